"""What an administrator chooses: one record, read from a YAML file or built in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from fairlead.api import quantity
from fairlead.scheduler import configuration as configurations

_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Text = Annotated[str, msgspec.Meta(pattern=r"^\S+$", max_length=512)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


NAMESPACE = "fairlead-system"
"""Where scheduler and operator run, unless another namespace is chosen."""


class ValuesError(ValueError):
    """Values that cannot be used: where, and what to do."""


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class History(_Section, frozen=True):
    """Where the operator records what jobs used; one of the two. secretName: a Secret of the namespace whose key `key` is the URL
    of a database that listens on `port`. storage: the size of a volume for a SQLite database with one operator.
    """

    secret_name: _Name | None = None
    key: _Text = "url"
    port: _Port = 5432
    storage: str | None = None


class Values(_Section, frozen=True):
    """All choices. image: with `fairlead` as its entry point. namespace: where both processes run; it is created and admits only
    pods of the Pod Security Standard `restricted`, unless it is kube-system. replicas: of each process, of which one leads.

    configuration: the scheduler's configuration file without its first two lines. trusted, provisioningClasses,
    requireScheduler: as of `fairlead crds --policies`. visibility: researchers' API; externalMetrics: that of autoscalers, of
    which a cluster has one. networkPolicies: deny to both processes all traffic but what they need; apiServerPorts: where pods
    reach the API server. prometheus: URL of the Prometheus with the use of GPUs. requests: of each process.
    """

    image: _Text
    namespace: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = NAMESPACE
    replicas: Annotated[int, msgspec.Meta(ge=1, le=9)] = 2
    configuration: dict[str, Any] = {}
    trusted: list[_Text] = []
    provisioning_classes: list[_Text] = []
    require_scheduler: bool = False
    visibility: bool = True
    external_metrics: bool = False
    history: History | None = None
    prometheus: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^\s/:]+(:\d{1,5})?(/\S*)?)?$")] = ""
    network_policies: bool = True
    api_server_ports: Annotated[list[_Port], msgspec.Meta(min_length=1)] = msgspec.field(default_factory=lambda: [443, 6443])
    requests: dict[_Text, str] = msgspec.field(default_factory=lambda: {"cpu": "1", "memory": "1Gi"})

    def document(self) -> dict[str, Any]:
        """The configuration file."""
        return {"apiVersion": configurations.API_VERSION, "kind": configurations.KIND, **self.configuration}

    def schedulers(self) -> list[str]:
        """The scheduler names that pods may have."""
        return [each.scheduler_name for each in configurations.parse(self.document(), "configuration").profiles]


def parse(document: Any, where: str) -> Values:
    """Values in a document. where: it is from, for messages. Raises `ValuesError`."""
    try:
        values = msgspec.convert(document, Values)
    except msgspec.ValidationError as error:
        raise ValuesError(f"{where}: {error}") from error
    check(values, where)
    return values


def read(path: Path | None, image: str = "") -> Values:
    """Values of a file, or the defaults; image: that of the file, where empty. Raises `ValuesError`."""
    document: Any = {}
    if path is not None:
        try:
            document = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise ValuesError(f"cannot read {path}: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValuesError(f"{path} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ValuesError(f"{path}: the file is no mapping")
    if image:
        document = {**document, "image": image}
    if not document.get("image"):
        raise ValuesError("no image: give --image, or `image` in the file of --values: one that the cluster can pull")
    return parse(document, str(path or "values"))


def check(values: Values, where: str) -> None:
    """Refuse what types cannot express. Raises `ValuesError`."""
    wrong = _mistake(values)
    if wrong:
        raise ValuesError(f"{where}: {wrong}")


def _mistake(values: Values) -> str:
    """What is wrong that types cannot express."""
    try:
        values.schedulers()
    except configurations.ConfigurationError as error:
        return str(error)
    history = values.history
    if history is not None and (history.secret_name is None) == (history.storage is None):
        return "history: give one of secretName and storage"
    sizes = {f"requests.{name}": size for name, size in values.requests.items()}
    if history is not None and history.storage is not None:
        sizes["history.storage"] = history.storage
    for what, size in sizes.items():
        try:
            if quantity.parse(size) <= 0:
                return f"{what}: {size!r} is not above 0"
        except quantity.QuantityError as error:
            return f"{what}: {error}"
    return ""

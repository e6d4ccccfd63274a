"""What an administrator chooses: one record, read from a YAML file or built in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import yaml

from fairlead.api import quantity
from fairlead.api.names import FIRST_RELEASE, SCHEDULER_NAME_LABEL
from fairlead.install.accounts import usernames
from fairlead.observability.rules import RUNBOOK
from fairlead.scheduler import configuration as configurations

_PORTS = r"([1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
_Text = Annotated[str, msgspec.Meta(pattern="^[^\\s\u0085\u2028\u2029]+$", max_length=512)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
_Label = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")]
_Class = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9._/]{0,251}[A-Za-z0-9])?$")]


_KUBE = "kube"
NAMESPACE = "fairlead-system"
"""Where scheduler and operator run, unless another namespace is chosen."""
PART_OF = {"app.kubernetes.io/part-of": "fairlead"}
"""Labels of all objects."""
INSTANCE = "app.kubernetes.io/instance"
"""The label of all objects that names their release."""
SYSTEM = "kube-system"
"""The namespace that is never created, labelled or removed. The leases are there, and its accounts are trusted."""


class ValuesError(ValueError):
    """Values that cannot be used: where, and what to do."""


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


def _about(text: str) -> msgspec.Meta:
    """What a value does: in the schema of the chart, and as a comment in its values.yaml."""
    return msgspec.Meta(description=text)


class History(_Section, frozen=True):
    """Where the operator records what jobs used; one of the two. secretName: a Secret of the namespace whose key `key` is the URL
    of a database that listens on `port`. storage: the size of a volume for a SQLite database with one operator.
    """

    secret_name: _Name | None = None
    key: _Text = "url"
    port: _Port = 5432
    storage: str | None = None


class Monitoring(_Section, frozen=True):
    """Objects of the Prometheus operator. serviceMonitor: what Prometheus scrapes; rules: recordings and alerts, whose sections
    are found at `runbook`. labels: those by which Prometheus selects both.
    """

    service_monitor: bool = False
    rules: bool = False
    runbook: _Text = RUNBOOK
    labels: dict[_Text, _Label] = {}


class Values(_Section, frozen=True):
    """All choices, the same for `fairlead install`, the Pulumi component and the chart (docs/install.md)."""

    image: Annotated[_Text, _about("Image with `fairlead` as its entry point, one that the cluster can pull.")]
    image_pull_secrets: Annotated[
        list[_Name], _about("Secrets of the namespace with which the image is pulled, where its registry asks for one.")
    ] = []
    namespace: Annotated[
        str,
        msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"),
        _about("Where scheduler and operator run. It is created, unless it is kube-system."),
    ] = NAMESPACE
    name: Annotated[
        str,
        msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"),
        _about(
            "First part of the names of all objects. A second release beside the first has another one, scheduler names of its "
            "own in `configuration`, and crds, aggregatedApi and externalMetrics false."
        ),
    ] = FIRST_RELEASE
    replicas: Annotated[int, msgspec.Meta(ge=1, le=9), _about("Of each process, of which one leads.")] = 2
    crds: Annotated[bool, _about("Install the CustomResourceDefinitions, and upgrade them.")] = True
    admission_policies: Annotated[
        bool,
        _about(
            "Install the admission policies: fencing, stamps of users, rules of queues and classes. A second release has only "
            "those of its own lease and schedulers."
        ),
    ] = True
    configuration: Annotated[
        dict[str, Any],
        _about("The scheduler's configuration file without apiVersion and kind (`fairlead scheduler --config-schema`)."),
    ] = {}
    trusted: Annotated[
        list[_Text],
        _about("Users that create pods for others, such as system:serviceaccount:ray:kuberay-operator."),
    ] = []
    provisioning_classes: Annotated[list[_Class], _about("Those with which tenants may request nodes.")] = []
    require_scheduler: Annotated[bool, _about("Pods that request GPUs must name one of the schedulers of the configuration.")] = (
        False
    )
    other_schedulers: Annotated[
        list[_Text], _about("Scheduler names of other releases in the cluster, which requireScheduler admits, too.")
    ] = []
    namespace_defaults: Annotated[
        bool,
        _about(f"Pods that name no scheduler get the one that the label {SCHEDULER_NAME_LABEL} of their namespace names."),
    ] = False
    aggregated_api: Annotated[
        bool,
        _about("Serve visibility.fairlead.dev, by which users ask the leader, and history.fairlead.dev, if there is a history."),
    ] = True
    external_metrics: Annotated[
        bool, _about("Serve external.metrics.k8s.io, of which a cluster has one server: for autoscalers.")
    ] = False
    history: Annotated[
        History | None,
        _about("Where the operator records what jobs used: {storage: 10Gi}, or {secretName: database, key: url, port: 5432}."),
    ] = None
    prometheus: Annotated[
        str,
        msgspec.Meta(pattern=r"^(https?://[^\s/:]+(:" + _PORTS + r")?(/\S*)?)?$"),
        _about("URL of the Prometheus that knows the utilization of GPUs."),
    ] = ""
    monitoring: Annotated[
        Monitoring,
        _about("Objects of the Prometheus operator, which has to be there: a ServiceMonitor; rules; labels on both."),
    ] = Monitoring()
    network_policies: Annotated[bool, _about("Deny to both processes all traffic but what they need.")] = True
    api_server_ports: Annotated[
        list[_Port], msgspec.Meta(min_length=1), _about("Where pods reach the API server, for the NetworkPolicies.")
    ] = msgspec.field(default_factory=lambda: [443, 6443])
    requests: Annotated[dict[_Text, str], _about("Resources that each process requests.")] = msgspec.field(
        default_factory=lambda: {"cpu": "1", "memory": "1Gi"}
    )

    @property
    def first(self) -> bool:
        """Whether it is the first release, which has what a cluster needs once."""
        return self.name == FIRST_RELEASE

    def document(self) -> dict[str, Any]:
        """The configuration file."""
        named = {} if self.first else {"name": self.name}
        return {"apiVersion": configurations.API_VERSION, "kind": configurations.KIND, **named, **self.configuration}

    def schedulers(self) -> list[str]:
        """The scheduler names that pods may have."""
        return [each.scheduler_name for each in configurations.parse(self.document(), "configuration").profiles]

    def text(self) -> str:
        """The configuration file, as Helm writes JSON: what is read from it is YAML, of which JSON is a part."""
        text = json.dumps(_plain(self.document()), indent=2, sort_keys=True, ensure_ascii=False)
        for character in "<>&\u2028\u2029":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return text

    def privileged(self) -> list[str]:
        """The users that the policies trust: the accounts of both processes, too; those of kube-system are trusted anyway."""
        accounts = [] if self.namespace == SYSTEM else usernames(self.namespace, self.name)
        return [*accounts, *self.trusted]

    def reached(self, process: str) -> list[int]:
        """TCP ports that a process connects to, besides those of name servers."""
        ports = list(self.api_server_ports)
        if process == "operator" and self.prometheus:
            url = urlsplit(self.prometheus)
            ports.append(url.port or (443 if url.scheme == "https" else 80))
        if process == "operator" and self.history is not None and self.history.secret_name is not None:
            ports.append(self.history.port)
        return list(dict.fromkeys(ports))


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
            document = configurations.load(path.read_text()) or {}
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
    if taken := {*PART_OF, INSTANCE} & values.monitoring.labels.keys():
        return f"monitoring.labels: {min(taken)} is on all objects"
    if not values.first and (wrong := _of_second(values)):
        return wrong
    if (values.require_scheduler or values.namespace_defaults) and not values.admission_policies:
        return "requireScheduler and namespaceDefaults are rules of the admission policies: admissionPolicies is false"
    return _of_configuration(values) or _of_history(values) or _of_sizes(values)


def _of_second(values: Values) -> str:
    """What only the first release may have: there is one of it in a cluster."""
    once = {
        "crds": values.crds,
        "aggregatedApi": values.aggregated_api,
        "externalMetrics": values.external_metrics,
        "requireScheduler": values.require_scheduler,
        "namespaceDefaults": values.namespace_defaults,
        "monitoring.rules": values.monitoring.rules,
    }
    if on := [name for name, given in once.items() if given]:
        return f"{', '.join(on)}: a cluster has it once, by the release {FIRST_RELEASE}; false in {values.name}"
    if values.name == _KUBE:
        return f"name: {_KUBE}-scheduler is the Lease of kube-scheduler: choose another"
    if "profiles" not in values.configuration:
        first = ", ".join(each.scheduler_name for each in configurations.default().profiles)
        return f"configuration.profiles: give {values.name} scheduler names of its own, others than {first}"
    return ""


def _of_configuration(values: Values) -> str:
    if not {"apiVersion", "kind", "name"}.isdisjoint(values.configuration):
        return "configuration: leave out apiVersion, kind and name"
    try:
        values.schedulers()
    except configurations.ConfigurationError as error:
        return str(error)
    if yaml.safe_load(values.text()) != values.document():
        return "configuration: it has numbers or characters that YAML does not return as they are"
    return ""


def _of_history(values: Values) -> str:
    history = values.history
    if history is not None and (history.secret_name is None) == (history.storage is None):
        return "history: give one of secretName and storage"
    return ""


def _of_sizes(values: Values) -> str:
    history = values.history
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


def _plain(value: Any) -> Any:
    """Whole numbers without a fraction, as JSON of Go has them."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value

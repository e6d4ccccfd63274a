"""Fairlead itself: definitions, policies, rights, the scheduler and the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from fairlead.api import crds
from fairlead.api.names import CONFIG_VARIABLE as VARIABLE
from fairlead.api.policies import policies
from fairlead.install import charts
from fairlead.install.processes import API_PORTS, PORTS
from fairlead.install.rights import NAMESPACE
from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument
from fairlead.scheduler import configuration as configurations

_DEFINITION = "CustomResourceDefinition"
_RBAC = "rbac.authorization.k8s.io"
_DATABASE = "fairlead-history"
_FOLDER = "/var/lib/fairlead"
_CONFIGURATION, _CONFIGURED = "fairlead-configuration", "/etc/fairlead"


class Fairlead(pulumi.ComponentResource):
    """Everything of Fairlead that runs in a cluster, in namespace kube-system.

    image: with `fairlead` as its entry point. replicas: of the scheduler and of the operator, of which one leads each.
    history_url: database for what jobs used, such as `postgresql+psycopg://...`; kept in a Secret. history_storage: instead, the
    size of a volume for a SQLite database; the operator has one replica then. prometheus: URL of the Prometheus that knows
    the use of GPUs. visibility, external_metrics: whether researchers' `visibility.fairlead.dev` and the autoscalers'
    `external.metrics.k8s.io` are served; the latter only where no other server does. trusted: users that make pods for others.
    provisioning_classes: those that tenants may order nodes of, for the policies and for the operator.
    configuration: the scheduler's configuration file as a mapping (`fairlead scheduler --config-schema`), read by scheduler,
    operator and policies.
    manifests: instead of this version's definitions, policies and rights, those of the image's version, for instance.
    requests: quantities by resource, for the scheduler and for the operator each.

    Raises InvalidArgument where arguments do not go together.
    """

    scheduler_name: pulumi.Output[str]
    """Name of the scheduler's Deployment, once it exists."""
    operator_name: pulumi.Output[str]
    """Name of the operator's Deployment."""

    def __init__(
        self,
        name: str = "fairlead",
        *,
        image: pulumi.Input[str],
        replicas: int = 2,
        history_url: pulumi.Input[str] | None = None,
        history_storage: str | None = None,
        prometheus: str | None = None,
        visibility: bool = True,
        external_metrics: bool = True,
        trusted: Sequence[str] = (),
        provisioning_classes: Sequence[str] = (),
        configuration: Mapping[str, Any] | None = None,
        manifests: Sequence[dict[str, Any]] | None = None,
        requests: Mapping[str, str | int] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        if isinstance(image, str) and not image.strip():
            raise InvalidArgument("image is empty; give the image of Fairlead that the cluster can pull")
        checks.whole(replicas, "replicas", 1)
        if isinstance(provisioning_classes, str) or not all(isinstance(each, str) and each for each in provisioning_classes):
            raise InvalidArgument(f"provisioning_classes: {provisioning_classes!r} is not a list of names")
        if history_url is not None and history_storage is not None:
            raise InvalidArgument("history_url and history_storage are both given; give one of them")
        asked = checks.amounts({"cpu": "1", "memory": "1Gi"} if requests is None else requests, "requests")
        super().__init__("fairlead:index:Fairlead", name, None, opts)
        self._name = name
        self._image, self._asked = image, asked
        configured = _configured(configuration)
        history = history_url is not None or history_storage is not None
        if manifests is None:
            definitions = [self._object(each) for each in crds.definitions()]
            schedulers = [each.scheduler_name for each in configured.profiles]
            rules = policies(trusted, provisioning_classes=provisioning_classes, schedulers=schedulers)
            guards = [self._object(each, definitions) for each in rules]
            wanted = [
                ("rbac", True),
                ("flowcontrol", True),
                ("visibility", visibility),
                ("history", history),
                ("external-metrics", external_metrics),
            ]
            given = [each for file, applied in wanted if applied for each in charts.manifests(f"{file}.yaml")]
        else:
            checked = [_checked(each) for each in manifests]
            definitions = [self._object(each) for each in checked if each["kind"] == _DEFINITION]
            guards, given = [], [each for each in checked if each["kind"] != _DEFINITION]
        made = [self._object(each, definitions) for each in given]
        for process in PORTS:
            made += [self._object(each) for each in _account(process, given)]
        ready = [*definitions, *guards, *made]
        serves = ["--visibility-address", f"0.0.0.0:{API_PORTS['visibility']}"] if visibility else []
        serves += ["--external-metrics-address", f"0.0.0.0:{API_PORTS['external-metrics']}"] if external_metrics else []
        mounted = self._configuration(configuration)
        scheduler = self._process("scheduler", serves, mounted, replicas, ready)
        flags = ["--history-address", f"0.0.0.0:{API_PORTS['history']}"] if history else []
        flags += ["--prometheus", prometheus] if prometheus else []
        flags += [word for each in provisioning_classes for word in ("--provisioning-class", each)]
        kept = self._database(history_url, history_storage)
        more = {key: [*mounted.get(key, ()), *kept.get(key, ())] for key in ("env", "mounts", "volumes")}
        operator = self._process("operator", flags, more, 1 if kept.get("volumes") else replicas, ready)
        self.scheduler_name, self.operator_name = scheduler.metadata.name, operator.metadata.name
        self.register_outputs({"scheduler_name": self.scheduler_name, "operator_name": self.operator_name})

    def _object(self, manifest: dict[str, Any], after: Sequence[pulumi.Resource] = ()) -> pulumi.CustomResource:
        metadata = manifest["metadata"]
        where = f"{metadata['namespace']}-" if "namespace" in metadata else ""
        logical = f"{self._name}-{manifest['kind'].lower()}-{where}{metadata['name']}"
        return _Object(logical, manifest, pulumi.ResourceOptions(parent=self, depends_on=list(after)))

    def _database(self, url: pulumi.Input[str] | None, storage: str | None) -> dict[str, Any]:
        """What the operator's pod gets so that it reaches its database."""
        inside = pulumi.ResourceOptions(parent=self)
        metadata: Any = {"name": _DATABASE, "namespace": NAMESPACE}
        if url is not None:
            content: Any = {"url": url}
            kubernetes.core.v1.Secret(f"{self._name}-{_DATABASE}", metadata=metadata, string_data=content, opts=inside)
            source = {"secret_key_ref": {"name": _DATABASE, "key": "url"}}
            return {"env": [{"name": "FAIRLEAD_DATABASE", "value_from": source}]}
        if storage is None:
            return {}
        asked: Any = {
            "access_modes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": checks.amount(storage, "history_storage")}},
        }
        kubernetes.core.v1.PersistentVolumeClaim(f"{self._name}-{_DATABASE}", metadata=metadata, spec=asked, opts=inside)
        return {
            "env": [{"name": "FAIRLEAD_DATABASE", "value": f"sqlite:///{_FOLDER}/history.db"}],
            "mounts": [{"name": "history", "mount_path": _FOLDER}],
            "volumes": [{"name": "history", "persistent_volume_claim": {"claim_name": _DATABASE}}],
        }

    def _configuration(self, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """What a process's pod gets so that it reads the configuration; nothing where none is given."""
        if given is None:
            return {}
        metadata: Any = {"name": _CONFIGURATION, "namespace": NAMESPACE}
        data = {"configuration.yaml": yaml.safe_dump(_document(given), sort_keys=True)}
        kubernetes.core.v1.ConfigMap(
            f"{self._name}-{_CONFIGURATION}", metadata=metadata, data=data, opts=pulumi.ResourceOptions(parent=self)
        )
        return {
            "env": [{"name": VARIABLE, "value": f"{_CONFIGURED}/configuration.yaml"}],
            "mounts": [{"name": "configuration", "mount_path": _CONFIGURED, "read_only": True}],
            "volumes": [{"name": "configuration", "config_map": {"name": _CONFIGURATION}}],
        }

    def _process(
        self, process: str, flags: Sequence[str], more: dict[str, Any], replicas: int, after: Sequence[pulumi.Resource]
    ) -> kubernetes.apps.v1.Deployment:
        app, port = f"fairlead-{process}", PORTS[process]
        probe = {"port": port, "scheme": "HTTP"}
        container = {
            "name": process,
            "image": self._image,
            "args": [process, "--address", f"0.0.0.0:{port}", *flags],
            "env": more.get("env", []),
            "volume_mounts": more.get("mounts", []),
            "ports": [{"name": "metrics", "container_port": port}],
            "resources": {"requests": self._asked},
            "liveness_probe": {"http_get": {**probe, "path": "/healthz"}, "period_seconds": 10, "failure_threshold": 6},
            "readiness_probe": {"http_get": {**probe, "path": "/readyz"}, "period_seconds": 5},
            "security_context": {
                "allow_privilege_escalation": False,
                "read_only_root_filesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        sole = any("persistent_volume_claim" in each for each in more.get("volumes", ()))  # a volume that one pod may mount
        template = {
            "metadata": {"labels": {"app": app}},
            "spec": {
                "service_account_name": app,
                "priority_class_name": "system-cluster-critical",
                "containers": [container],
                "volumes": more.get("volumes", []),
                "security_context": {
                    "run_as_non_root": True,
                    "run_as_user": 65532,
                    "fs_group": 65532,
                    "seccomp_profile": {"type": "RuntimeDefault"},
                },
            },
        }
        spec: Any = {
            "replicas": replicas,
            "selector": {"match_labels": {"app": app}},
            "strategy": {"type": "Recreate"} if sole else {"type": "RollingUpdate"},
            "template": template,
        }
        return kubernetes.apps.v1.Deployment(
            f"{self._name}-{process}",
            metadata={"name": app, "namespace": NAMESPACE, "labels": {"app": app}},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )


class _Object(pulumi.CustomResource):
    """Any Kubernetes object, given as its manifest."""

    def __init__(self, logical: str, manifest: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        version = manifest["apiVersion"] if "/" in manifest["apiVersion"] else f"core/{manifest['apiVersion']}"
        super().__init__(f"kubernetes:{version}:{manifest['kind']}", logical, manifest, opts)


def _document(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": configurations.API_VERSION, "kind": configurations.KIND, **given}


def _configured(given: Mapping[str, Any] | None) -> configurations.Configuration:
    """The configuration as the processes will read it."""
    try:
        return configurations.parse(_document(given or {}), "configuration")
    except configurations.ConfigurationError as error:
        raise InvalidArgument(str(error)) from error


def _checked(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest of the caller's."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not (isinstance(metadata, dict) and metadata.get("name") and manifest.get("kind") and manifest.get("apiVersion")):
        raise InvalidArgument(f"manifests: {str(manifest)[:80]!r} is not a manifest: it needs apiVersion, kind and metadata.name")
    return manifest


def _account(process: str, roles: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A process's ServiceAccount and the bindings of its roles."""
    account = f"fairlead-{process}"
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE}}
    serves = {
        "scheduler": ["fairlead-visibility-server", "fairlead-external-metrics-server"],
        "operator": ["fairlead-history-server"],
    }
    for role in roles:
        if role["kind"] in ("ClusterRole", "Role") and role["metadata"]["name"] in (account, *serves[process]):
            yield {
                "apiVersion": f"{_RBAC}/v1",
                "kind": f"{role['kind']}Binding",
                "metadata": role["metadata"],
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
                "roleRef": {"apiGroup": _RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
            }

"""Fairlead itself: the objects of `fairlead.install`, as resources of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pulumi
import pulumi_kubernetes as kubernetes

from fairlead.api.names import FIRST_RELEASE
from fairlead.install import NAMESPACE, History, Values, ValuesError, accounts, apis, objects, rights
from fairlead.pulumi import checks
from fairlead.pulumi.checks import InvalidArgument

_FIRST = ("CustomResourceDefinition", "Namespace")
_POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
"""Come last, as in `fairlead.install.kinds`."""
_SERVED = ("Service", "APIService")
_OURS = (
    *("Namespace", "ServiceAccount", "ConfigMap", "PersistentVolumeClaim", "NetworkPolicy", "PodDisruptionBudget", "Deployment"),
    *_SERVED,
)
"""Kinds that are made though the caller gives manifests."""
_ROLES = ("ClusterRole", "Role")
_UNKNOWN = "image"
"""Stands for the image while the program does not know it."""


class Fairlead(pulumi.ComponentResource):
    """Everything of Fairlead that runs in a cluster: what `fairlead install` applies.

    image: with `fairlead` as its entry point. namespace: of both processes; it is made unless it is kube-system. release: first
    part of all names; another than `fairlead` for a second release in the cluster (docs/install.md), which has no definitions,
    and visibility and external_metrics False. replicas: of the scheduler and of the operator, of which one leads each.
    history_url: database for what jobs used, such as `postgresql://...`; kept in a Secret; it listens on history_port.
    history_storage: instead, the size of a volume for a SQLite database; the operator has one replica then. prometheus: URL of
    the Prometheus that knows the use of GPUs.
    visibility, external_metrics: whether researchers' `visibility.fairlead.dev` (and `history.fairlead.dev`, with a history) and
    autoscalers' `external.metrics.k8s.io` are served; the latter only where no other server does. trusted: users that make pods
    for others. provisioning_classes: those that tenants may order nodes of, for the policies and for the operator.
    configuration: the scheduler's configuration file as a mapping (`fairlead scheduler --config-schema`), read by scheduler,
    operator and policies.
    manifests: instead of this version's definitions, policies and rights, those of the image's version, for instance: what its
    `fairlead install --dry-run` prints, which contains the rest, too.
    requests: quantities by resource, for the scheduler and for the operator each. network_policies: whether both processes are
    denied all traffic but what they need.

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
        namespace: str = NAMESPACE,
        release: str = FIRST_RELEASE,
        replicas: int = 2,
        history_url: pulumi.Input[str] | None = None,
        history_port: int = 5432,
        history_storage: str | None = None,
        prometheus: str | None = None,
        visibility: bool = True,
        external_metrics: bool = True,
        trusted: Sequence[str] = (),
        provisioning_classes: Sequence[str] = (),
        configuration: Mapping[str, Any] | None = None,
        manifests: Sequence[dict[str, Any]] | None = None,
        requests: Mapping[str, str | int] | None = None,
        network_policies: bool = True,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        if isinstance(image, str) and not image.strip():
            raise InvalidArgument("image is empty; give the image of Fairlead that the cluster can pull")
        checks.name(namespace, "namespace", 63)
        checks.whole(replicas, "replicas", 1, 9)
        _check_names(provisioning_classes)
        history = _history(release, history_url, history_port, history_storage)
        values = Values(
            image=image if isinstance(image, str) else _UNKNOWN,
            name=release,
            crds=release == FIRST_RELEASE,
            namespace=namespace,
            replicas=replicas,
            configuration=dict(configuration or {}),
            trusted=list(trusted),
            provisioning_classes=list(provisioning_classes),
            aggregated_api=visibility,
            external_metrics=external_metrics,
            history=history,
            prometheus=prometheus or "",
            network_policies=network_policies,
            requests=checks.amounts({"cpu": "1", "memory": "1Gi"} if requests is None else requests, "requests"),
        )
        wanted = _wanted(values, manifests)
        super().__init__("fairlead:index:Fairlead", name, None, opts)
        self._name = name
        started = self._install(_Stages.of(wanted), values, image, history_url)
        deployed = [accounts.account(each, release) for each in accounts.PROCESSES]
        self.scheduler_name, self.operator_name = (_once(started[each], each) for each in deployed)
        self.register_outputs({"scheduler_name": self.scheduler_name, "operator_name": self.operator_name})

    def _install(
        self, stages: _Stages, values: Values, image: pulumi.Input[str], history_url: pulumi.Input[str] | None
    ) -> dict[str, pulumi.CustomResource]:
        """Registers the objects of each stage after those that it needs. The Deployments, by their names."""
        first = [self._object(each) for each in stages.first]
        made: list[pulumi.Resource] = [*first]
        if history_url is not None:
            made.append(self._database(history_url, values.namespace, values.name, first))
        made += [self._object(each, first) for each in stages.needed]
        started = {each["metadata"]["name"]: self._object(_of_image(each, image), made) for each in stages.processes}
        for each in stages.policies:
            self._object(each, list(started.values()))
        return started

    def _object(self, manifest: dict[str, Any], after: Sequence[pulumi.Resource] = ()) -> pulumi.CustomResource:
        metadata = manifest["metadata"]
        where = f"{metadata['namespace']}-" if "namespace" in metadata else ""
        logical = f"{self._name}-{manifest['kind'].lower()}-{where}{metadata['name']}"
        return _Object(logical, manifest, pulumi.ResourceOptions(parent=self, depends_on=list(after)))

    def _database(
        self, url: pulumi.Input[str], namespace: str, release: str, after: Sequence[pulumi.Resource]
    ) -> pulumi.Resource:
        """The Secret from which the operator reads where its database is."""
        secret = f"{release}-history"
        metadata: Any = {"name": secret, "namespace": namespace}
        content: Any = {"url": url}
        inside = pulumi.ResourceOptions(parent=self, depends_on=list(after))
        return kubernetes.core.v1.Secret(f"{self._name}-{secret}", metadata=metadata, string_data=content, opts=inside)


class _Stages(NamedTuple):
    """The objects of an installation, by when they are made.

    first: definitions and the namespace, for all others. needed: what the processes need. policies: once the processes are made.
    """

    first: list[dict[str, Any]]
    needed: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    policies: list[dict[str, Any]]

    @classmethod
    def of(cls, wanted: Sequence[dict[str, Any]]) -> _Stages:
        """Every object in its stage, in the order in which they are given."""
        stages = cls([], [], [], [])
        for each in wanted:
            stages._of_kind(each["kind"]).append(each)
        return stages

    def _of_kind(self, kind: str) -> list[dict[str, Any]]:
        if kind in _FIRST:
            return self.first
        if kind == "Deployment":
            return self.processes
        return self.policies if kind.startswith(_POLICIES) else self.needed


class _Object(pulumi.CustomResource):
    """Any Kubernetes object, given as its manifest."""

    def __init__(self, logical: str, manifest: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        version = manifest["apiVersion"] if "/" in manifest["apiVersion"] else f"core/{manifest['apiVersion']}"
        super().__init__(f"kubernetes:{version}:{manifest['kind']}", logical, manifest, opts)


def _check_names(provisioning_classes: Sequence[str]) -> None:
    """Raises `InvalidArgument` where they are no list of names: a single text is none."""
    if isinstance(provisioning_classes, str) or not all(isinstance(each, str) and each for each in provisioning_classes):
        raise InvalidArgument(f"provisioning_classes: {provisioning_classes!r} is not a list of names")


def _history(release: str, url: pulumi.Input[str] | None, port: int, storage: str | None) -> History | None:
    """Where the history is: in the database of a URL, on a volume of that size, or nowhere."""
    if url is not None and storage is not None:
        raise InvalidArgument("history_url and history_storage are both given; give one of them")
    if url is not None:
        return History(secret_name=f"{release}-history", port=checks.whole(port, "history_port", 1, 65535))
    return History(storage=checks.amount(storage, "history_storage")) if storage is not None else None


def _wanted(values: Values, manifests: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """What is installed. manifests: the caller's, which take precedence. Raises `InvalidArgument`."""
    try:
        ours = objects(values)
    except ValuesError as error:
        raise InvalidArgument(str(error).removeprefix("values: ")) from error
    return ours if manifests is None else list(_with(manifests, ours, values))


def _once(deployment: pulumi.CustomResource, name: str) -> pulumi.Output[str]:
    """The name of a Deployment, once it exists."""
    return deployment.id.apply(lambda _: name)


def _of_image(deployment: dict[str, Any], image: pulumi.Input[str]) -> dict[str, Any]:
    """A Deployment whose image may be known only later."""
    template = deployment["spec"]["template"]
    containers = [{**each, "image": image} for each in template["spec"]["containers"]]
    template = {**template, "spec": {**template["spec"], "containers": containers}}
    return {**deployment, "spec": {**deployment["spec"], "template": template}}


def _with(manifests: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]], values: Values) -> Iterator[dict[str, Any]]:
    """The caller's manifests, which take precedence; of ours the processes, and the bindings of the roles that are given."""
    given = [_checked(each) for each in manifests]
    if not any(each["kind"] == "Deployment" for each in given):  # then ours run, which are reached in their own way
        reached = {(each["kind"], each["metadata"]["name"]) for each in ours if each["kind"] in _SERVED}
        given = [each for each in given if (each["kind"], each["metadata"]["name"]) not in reached]
    yield from given
    there = {_identity(each) for each in given}
    for each in (*ours, *_bindings(given, values)):
        bound = each.get("roleRef")
        inside = each["metadata"].get("namespace") == values.namespace  # to be the endpoint of its Services
        wanted = inside or (any(_names(bound, role) for role in given) if bound else each["kind"] in _OURS)
        if wanted and _identity(each) not in there:
            there.add(_identity(each))
            yield each


def _bindings(given: Sequence[dict[str, Any]], values: Values) -> Iterator[dict[str, Any]]:
    """Those of the roles with which `charts/` lets a process serve an API."""
    for api in apis.served(values):
        subject = {"name": accounts.account(api.process, values.name), "namespace": values.namespace}
        for role in given:
            if role["kind"] in _ROLES and role["metadata"]["name"] == f"{api.service}-server":
                yield rights.binding(f"{api.service}-server", role["metadata"].get("namespace", ""), subject)


def _names(reference: dict[str, Any], role: dict[str, Any]) -> bool:
    return (role["kind"], role["metadata"]["name"]) == (reference["kind"], reference["name"])


def _identity(manifest: dict[str, Any]) -> tuple[str, str, str]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _checked(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest of the caller's."""
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not (isinstance(metadata, dict) and metadata.get("name") and manifest.get("kind") and manifest.get("apiVersion")):
        raise InvalidArgument(f"manifests: {str(manifest)[:80]!r} is not a manifest: it needs apiVersion, kind and metadata.name")
    return manifest

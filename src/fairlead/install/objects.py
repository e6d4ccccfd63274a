"""All objects of an installation, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fairlead.api import crds
from fairlead.api.names import FIRST_RELEASE
from fairlead.api.policies import of_release, policies
from fairlead.install import apis, flowcontrol, kinds, monitoring, processes, rights
from fairlead.install.values import INSTANCE, PART_OF, SYSTEM, Values, check

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "fairlead-install"
"""The value of that label, by which what was installed is found again; and the field manager."""
SECURITY = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}


def installed(values: Values) -> list[dict[str, Any]]:
    """The objects as `fairlead install` applies them: with the label by which it finds them again. Raises `ValuesError`."""
    return [labelled(each, {MANAGED_BY: MANAGER}) for each in objects(values)]


def objects(values: Values) -> list[dict[str, Any]]:
    """The manifests of an installation; the same values give the same list. Raises `ValuesError`."""
    check(values, "values")
    made = [each for part in PARTS.values() for each in part(values)]
    return sorted((labelled(each, labels(values)) for each in made), key=kinds.rank)


def labels(values: Values) -> dict[str, str]:
    """Those of all objects: whose they are, and of which release."""
    return {**PART_OF, INSTANCE: values.name}


def release_of(manifests: Sequence[dict[str, Any]]) -> str:
    """The release whose objects these are."""
    found = {(each["metadata"].get("labels") or {}).get(INSTANCE, FIRST_RELEASE) for each in manifests}
    return found.pop() if len(found) == 1 else FIRST_RELEASE


def labelled(manifest: dict[str, Any], more: dict[str, str]) -> dict[str, Any]:
    """The object with further labels."""
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **more}}}


def _definitions(values: Values) -> list[dict[str, Any]]:
    return crds.definitions() if values.crds else []


def _namespace(values: Values) -> list[dict[str, Any]]:
    if values.namespace == SYSTEM:
        return []
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values.namespace, "labels": SECURITY}}]


def _flow_control(values: Values) -> list[dict[str, Any]]:
    return flowcontrol.objects(values.namespace, release=values.name)


def _policies(values: Values) -> list[dict[str, Any]]:
    if not values.admission_policies:
        return []
    if not values.first:
        return of_release(values.name, values.schedulers())
    return policies(
        values.privileged(),
        provisioning_classes=values.provisioning_classes,
        require_scheduler=values.require_scheduler,
        schedulers=values.schedulers(),
        other_schedulers=values.other_schedulers,
        namespace_defaults=values.namespace_defaults,
    )


def _apis(values: Values) -> Iterator[dict[str, Any]]:
    for api in apis.served(values):
        yield apis.service(api, values.namespace)
        yield apis.registration(api, values.namespace)


PARTS: dict[str, Callable[[Values], Iterable[dict[str, Any]]]] = {
    "definitions": _definitions,
    "namespace": _namespace,
    "flowcontrol": _flow_control,
    "rights": rights.of_processes,
    "people": rights.of_people,
    "policies": _policies,
    "files": processes.files,
    "network": processes.network,
    "apis": _apis,
    "monitoring": monitoring.objects,
    "budgets": processes.budgets,
    "deployments": processes.deployments,
}
"""What makes the objects; each reads of the values only what its objects depend on."""

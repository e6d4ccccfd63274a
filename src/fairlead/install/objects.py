"""All objects of an installation, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

from fairlead.api import crds
from fairlead.api.policies import policies
from fairlead.install import apis, flowcontrol, kinds, processes, rights
from fairlead.install.values import Values, check

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "fairlead-install"
"""The value of that label, by which what was installed is found again; and the field manager."""
SYSTEM = "kube-system"
"""The namespace that is never created, labelled or removed."""
_PART_OF = {"app.kubernetes.io/part-of": "fairlead"}
_SECURITY = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}


def installed(values: Values) -> list[dict[str, Any]]:
    """The objects as `fairlead install` applies them: with the label by which it finds them again. Raises `ValuesError`."""
    return [_labelled(each, {MANAGED_BY: MANAGER}) for each in objects(values)]


def objects(values: Values) -> list[dict[str, Any]]:
    """The manifests of an installation; the same values give the same list. Raises `ValuesError`."""
    check(values, "values")
    served = apis.served(values)
    made = [
        *crds.definitions(),
        *_namespace(values),
        *flowcontrol.objects(values.namespace),
        *rights.of_processes(values),
        *rights.of_people(values),
        *policies(
            [*(rights.usernames(values.namespace) if values.namespace != SYSTEM else ()), *values.trusted],
            provisioning_classes=values.provisioning_classes,
            require_scheduler=values.require_scheduler,
            schedulers=values.schedulers(),
        ),
        *processes.files(values),
        *processes.network(values),
        *(apis.service(api, values.namespace) for api in served),
        *(apis.registration(api, values.namespace) for api in served),
        *processes.budgets(values),
        *processes.deployments(values),
    ]
    return sorted((_labelled(each, _PART_OF) for each in made), key=kinds.rank)


def _namespace(values: Values) -> list[dict[str, Any]]:
    if values.namespace == SYSTEM:
        return []
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": values.namespace, "labels": _SECURITY}}]


def _labelled(manifest: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}}}

"""Accounts, roles and bindings: one account and one set of rules per process, and the roles of people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fairlead.install import apis, roles
from fairlead.install.accounts import LEASES, PROCESSES, account
from fairlead.install.roles import Rule
from fairlead.install.values import Values
from fairlead.scheduler.queue_metrics import METRICS

_RBAC = "rbac.authorization.k8s.io"
_AUTOSCALERS = {"kind": "ServiceAccount", "name": "horizontal-pod-autoscaler", "namespace": "kube-system"}


def of_processes(values: Values) -> Iterator[dict[str, Any]]:
    """Account, roles and bindings of each process."""
    for process in PROCESSES:
        name = account(process, values.name)
        metadata = {"name": name, "namespace": values.namespace}
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        served = apis.served(values, process)
        everywhere = [*_needed(values, process), *(roles.of_server(each.registered) for each in served)]
        yield role(name, everywhere)
        yield binding(name, "", metadata)
        inside = {LEASES: [*roles.of_lease(process, values.name), *([roles.OF_SERVERS] if served else [])]}
        if served:
            inside.setdefault(values.namespace, []).extend(roles.of_endpoints(tuple(each.service for each in served), process))
        for namespace, rules in inside.items():
            yield role(name, rules, namespace)
            yield binding(name, namespace, metadata)


def _needed(values: Values, process: str) -> list[Rule]:
    """Its rules in the whole cluster, without those of what is switched off."""
    return [each for each in roles.OF_PROCESS[process] if not each.needs or getattr(values, each.needs)]


def of_people(values: Values) -> Iterator[dict[str, Any]]:
    """Roles that Kubernetes' own `view`, `edit` and `admin` contain, and what autoscalers may read: once in a cluster."""
    if not values.first:
        return
    yield role("fairlead-viewer", roles.OF_VIEWERS, into=["view"])
    yield role("fairlead-user", roles.OF_USERS, into=["edit"])
    yield role("fairlead-admin", roles.OF_ADMINISTRATORS, into=["admin"])
    if values.external_metrics:
        yield from of_autoscalers()


def of_autoscalers() -> Iterator[dict[str, Any]]:
    """What the HorizontalPodAutoscaler controller may read, with its own account."""
    name = apis.EXTERNAL_METRICS.service
    yield role(name, [roles.of_autoscalers(tuple(METRICS))])
    yield binding(name, "", _AUTOSCALERS)


def role(name: str, rules: Iterable[Rule], namespace: str = "", into: Iterable[str] = ()) -> dict[str, Any]:
    """A Role in a namespace, or a ClusterRole. into: the roles of Kubernetes that contain it."""
    labels = {f"{_RBAC}/aggregate-to-{each}": "true" for each in into}
    return {
        **_named("Role" if namespace else "ClusterRole", name, namespace, labels),
        "rules": [each.manifest() for each in rules],
    }


def binding(name: str, namespace: str, subject: dict[str, Any]) -> dict[str, Any]:
    """Of the role of this name to a ServiceAccount."""
    kind = "Role" if namespace else "ClusterRole"
    return {
        **_named(f"{kind}Binding", name, namespace, {}),
        "subjects": [{**subject, "kind": "ServiceAccount"}],
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
    }


def _named(kind: str, name: str, namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **({"labels": labels} if labels else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata}

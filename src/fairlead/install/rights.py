"""Accounts and rights: one account and one role per process, and the roles of people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.api import names
from fairlead.install import charts
from fairlead.install.values import Values

NAMESPACE = "kube-system"
"""Where both processes run: their leases, and the Services of their APIs, are there."""
PROCESSES = ("scheduler", "operator")
_RBAC = "rbac.authorization.k8s.io"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]
_OF_USERS = ["aijobs", "podgroups"]
_OF_ADMINISTRATORS = ["queues", "serviceclasses", "nodepools", "reservations"]


def served(values: Values) -> dict[str, str]:
    """The aggregated APIs: the file of `charts/` -> the process that serves it."""
    wanted = {
        "visibility": ("scheduler", values.visibility),
        "external-metrics": ("scheduler", values.external_metrics),
        "history": ("operator", values.history is not None),
    }
    return {api: process for api, (process, serves) in wanted.items() if serves}


def of_processes(values: Values) -> Iterator[dict[str, Any]]:
    """Account, role and bindings of each process."""
    for process in PROCESSES:
        name = f"fairlead-{process}"
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
        serves = [api for api, server in served(values).items() if server == process]
        for kind, where in (("ClusterRole", {}), ("Role", {"namespace": NAMESPACE})):
            rules = charts.rules("rbac.yaml", kind, name)
            for api in serves:
                rules += [rule for rule in charts.rules(f"{api}.yaml", kind, f"fairlead-{api}-server") if rule not in rules]
            yield {**_named(kind, name, where), "rules": rules}
            yield {
                **_named(f"{kind}Binding", name, where),
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
            }


def of_people(values: Values) -> Iterator[dict[str, Any]]:
    """Roles that Kubernetes' own `view`, `edit` and `admin` contain, and what autoscalers may read."""
    answers = [
        rule for api in ("visibility", "history") for rule in charts.rules(f"{api}.yaml", "ClusterRole", f"fairlead-{api}")
    ]
    reads = [{"apiGroups": [names.GROUP], "resources": [*_OF_USERS, *_OF_ADMINISTRATORS], "verbs": _READ}]
    yield _aggregated("viewer", "view", [*reads, *answers])
    yield _aggregated("user", "edit", [{"apiGroups": [names.GROUP], "resources": _OF_USERS, "verbs": _WRITE}])
    yield _aggregated("admin", "admin", [{"apiGroups": [names.GROUP], "resources": _OF_ADMINISTRATORS, "verbs": _WRITE}])
    if values.external_metrics:
        yield from charts.of_kind("external-metrics.yaml", "ClusterRoleBinding")
        name = "fairlead-external-metrics"
        yield {**_named("ClusterRole", name, {}), "rules": charts.rules("external-metrics.yaml", "ClusterRole", name)}


def _aggregated(who: str, into: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    labels = {f"{_RBAC}/aggregate-to-{into}": "true"}
    return {**_named("ClusterRole", f"fairlead-{who}", {"labels": labels}), "rules": rules}


def _named(kind: str, name: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": {"name": name, **more}}

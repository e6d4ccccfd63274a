"""Kueue (kueue.x-k8s.io): cohorts and cluster queues become the queue tree, workload priority classes classes of service.

A cluster queue borrows from its cohort up to `borrowingLimit`, and without a cohort not at all: that is our `limit`.
A flavor whose nodes have labels becomes a NodePool, and what a queue has of it a quota and a limit for that pool, beside those
for the resource as a whole: the flavors' together.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from fairlead.api import names, quantity
from fairlead.api.quantity import QuantityError
from fairlead.importers.base import Imported, listed, mapping, name_of, whole

_UNSAID = {
    "admissionChecks": "admission checks are not supported",
    "admissionChecksStrategy": "admission checks are not supported",
    "stopPolicy": "queues cannot be stopped; set the queue's limits to 0",
    "flavorFungibility": "not needed: pods are placed where they fit",
    "admissionScope": "set `fairShare.usageHalfLifeSeconds` of the scheduler instead",
}


def read(objects: list[dict[str, Any]]) -> Imported:
    """Our manifests for Kueue's."""
    made = Imported()
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for each in objects:
        by_kind.setdefault(str(each.get("kind")), []).append(each)
    cohorts = {name_of(each): each for each in by_kind.pop("Cohort", [])}
    queues = by_kind.pop("ClusterQueue", [])
    parents = {_cohort(mapping(each.get("spec"))) for each in queues} - {""}
    for each in cohorts.values():
        parents.add(_parent(mapping(each.get("spec"))))
    pools = _pools(made, by_kind.pop("ResourceFlavor", []))
    for name in sorted((parents - {""}) | set(cohorts)):
        _cohort_queue(made, name, mapping(cohorts.get(name, {}).get("spec")), pools)
    for each in queues:
        _cluster_queue(made, each, pools)
    _local_queues(made, by_kind.pop("LocalQueue", []))
    for each in by_kind.pop("WorkloadPriorityClass", []):
        about = f"WorkloadPriorityClass/{name_of(each)}"
        made.add_priority(name_of(each), whole(each.get("value")), about)
        made.add("ServiceClass", name_of(each), {"priorityClassName": made.named(name_of(each), about)}, about)
    for kind, others in sorted(by_kind.items()):
        for each in others:
            made.note(f"{kind}/{name_of(each)}", "kind", "is not carried over")
    return made


def _cohort(spec: dict[str, Any]) -> str:
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def _parent(spec: dict[str, Any]) -> str:
    return str(spec.get("parentName") or spec.get("parent") or "")


def _pools(made: Imported, flavors: list[dict[str, Any]]) -> dict[str, str]:
    """Node pools for flavors that have nodes of their own: flavor -> pool."""
    pools: dict[str, str] = {}
    for each in flavors:
        about, spec = f"ResourceFlavor/{name_of(each)}", mapping(each.get("spec"))
        labels = {str(key): str(value) for key, value in mapping(spec.get("nodeLabels")).items()}
        if labels:
            pools[name_of(each)] = made.named(name_of(each), about)
            made.add("NodePool", name_of(each), {"nodeSelector": {"matchLabels": labels}}, about)
            made.note(about, "nodeLabels", "not added to pods: a pod is placed by its own nodeSelector and charged there")
        for field in ("nodeTaints", "tolerations", "topologyName"):
            if spec.get(field):
                made.note(about, field, "belongs in the pods' own spec")
    return pools


def _cohort_queue(made: Imported, name: str, spec: dict[str, Any], pools: dict[str, str]) -> None:
    about = f"Cohort/{name}"
    resources = _resources(made, about, spec, pools, borrows=bool(_parent(spec)))
    for each in resources:
        each.pop("limit", None)  # a cohort shares what its queues bring
    parent = _parent(spec)
    made.add("Queue", name, {"parent": made.named(parent, f"Cohort/{parent}") if parent else None, "resources": resources}, about)


def _cluster_queue(made: Imported, manifest: dict[str, Any], pools: dict[str, str]) -> None:
    name, spec = name_of(manifest), mapping(manifest.get("spec"))
    about, cohort = f"ClusterQueue/{name}", _cohort(spec)
    resources = _resources(made, about, spec, pools, borrows=bool(cohort))
    selector = spec.get("namespaceSelector")
    if selector is None:
        made.note(about, "namespaceSelector", "is absent: the queue admits no namespace, as in Kueue")
        selector = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["no-namespace"]}]}
    made.add(
        "Queue",
        name,
        {
            "parent": made.named(cohort, f"Cohort/{cohort}") if cohort else None,
            "resources": resources,
            "namespaceSelector": selector or None,
        },
        about,
    )
    if spec.get("queueingStrategy") == "StrictFIFO":
        made.note(about, "queueingStrategy", "StrictFIFO is `placement.headBlocks` of the scheduler, for all queues")
    preemption = mapping(spec.get("preemption"))
    if preemption.get("withinClusterQueue", "Never") == "Never":
        made.note(
            about,
            "preemption.withinClusterQueue",
            "Never: jobs of higher priority preempt lower ones; use a ServiceClass with preemption.mode Never",
        )
    if preemption.get("reclaimWithinCohort", "Never") == "Never":
        made.note(
            about,
            "preemption.reclaimWithinCohort",
            "Never: a queue reclaims what it lent (`fairShare.reclaim` of the scheduler)",
        )
    if preemption.get("borrowWithinCohort"):
        made.note(about, "preemption.borrowWithinCohort", "use a ServiceClass with preemption.scope Parent")
    for field, message in _UNSAID.items():
        if spec.get(field) not in (None, [], {}, "None"):
            made.note(about, field, message)


class _Amounts:
    """Quotas and limits of one queue added up. quotas, limits: by (resource, pool); flavors: by resource."""

    def __init__(self) -> None:
        self.quotas: dict[tuple[str, str], Fraction] = {}
        self.limits: dict[tuple[str, str], Fraction | None] = {}
        self.flavors: dict[str, set[str]] = {}

    def add(self, resource: str, flavor: str, pool: str, nominal: Fraction, more: Fraction | None) -> None:
        """What a flavor has of a resource. more: how much can be borrowed, None: any amount."""
        self.flavors.setdefault(resource, set()).add(flavor)
        for key in dict.fromkeys([(resource, ""), (resource, pool)]):
            self.quotas[key] = self.quotas.get(key, Fraction(0)) + nominal
            known = self.limits.get(key, Fraction(0))
            self.limits[key] = None if more is None or known is None else known + nominal + more


def _resources(made: Imported, about: str, spec: dict[str, Any], pools: dict[str, str], *, borrows: bool) -> list[dict[str, Any]]:
    """Quotas and limits: of each resource as a whole, and where flavors are pools, of each of these."""
    amounts = _Amounts()
    for group in listed(spec.get("resourceGroups")):
        for flavor in listed(group.get("flavors")):
            for each in listed(flavor.get("resources")):
                resource = str(each.get("name", ""))
                nominal = _value(made, about, f"{resource}.nominalQuota", each.get("nominalQuota", 0))
                if not resource or nominal is None:
                    continue
                borrowing = each.get("borrowingLimit")
                more = Fraction(0) if not borrows else None
                if borrows and borrowing is not None:
                    more = _value(made, about, f"{resource}.borrowingLimit", borrowing)
                name = str(flavor.get("name", ""))
                amounts.add(resource, name, pools.get(name, ""), nominal, more)
                if each.get("lendingLimit") is not None:
                    made.note(about, f"{resource}.lendingLimit", "idle quota is always lent")
    return _entries(made, about, amounts, set(pools), mapping(spec.get("fairSharing")).get("weight"))


def _entries(made: Imported, about: str, amounts: _Amounts, pools: set[str], weight: object) -> list[dict[str, Any]]:
    """The resources of our Queue."""
    found = []
    for (resource, pool), quota in sorted(amounts.quotas.items()):
        unlike = amounts.flavors[resource] - pools
        if not pool and len(unlike) > 1:
            made.note(about, resource, f"the quotas of {len(unlike)} flavors without node labels are added up")
        entry: dict[str, Any] = {"name": resource, "quota": _shown(resource, quota)}
        if pool:
            entry["pool"] = pool
        limit = amounts.limits[resource, pool]
        if limit is not None:
            entry["limit"] = _shown(resource, limit)
        if weight is not None:
            entry["weight"] = _weight(made, about, weight)
        found.append(entry)
    return found


def _weight(made: Imported, about: str, text: object) -> int:
    value = _value(made, about, "fairSharing.weight", text)
    if value is None or not 0 <= value < 10**6:
        return 1
    if value.denominator != 1:
        made.note(
            about,
            "fairSharing.weight",
            f"{text} is multiplied by 100: weights are whole numbers. Check the weights of its siblings",
        )
        return int(value * 100)
    return int(value)


def _value(made: Imported, about: str, field: str, text: object) -> Fraction | None:
    try:
        return Fraction(quantity.parse(text if isinstance(text, str | int | float) else str(text)))
    except QuantityError as error:
        made.note(about, field, f"left out: {error}")
        return None


def _shown(resource: str, value: Fraction) -> str | int:
    if value.denominator == 1 and resource != names.MEMORY:
        return int(value)
    milli = value * 1000
    if resource == names.CPU and milli.denominator == 1:
        return f"{int(milli)}m"
    return quantity.show(resource, int(value))


def _local_queues(made: Imported, manifests: list[dict[str, Any]]) -> None:
    """A namespace's only local queue is its default; of several, pods must name the queue."""
    of: dict[str, list[tuple[str, str]]] = {}
    for each in manifests:
        namespace = str(mapping(each.get("metadata")).get("namespace") or "default")
        of.setdefault(namespace, []).append((name_of(each), str(mapping(each.get("spec")).get("clusterQueue") or "")))
    for namespace, found in sorted(of.items()):
        local, target = found[0]
        if len({queue for _, queue in found}) == 1 and target:
            labels = {names.DEFAULT_QUEUE_LABEL: made.named(target, f"ClusterQueue/{target}")}
            made.objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}})
            continue
        for local, target in found:
            made.note(
                f"LocalQueue/{namespace}/{local}",
                "clusterQueue",
                f"pods that name it in kueue.x-k8s.io/queue-name carry the label {names.QUEUE_LABEL}: {target} instead",
            )

"""Whether more was taken of what a pool shares than it declares, and whether jobs that are to be kept apart are beside others.

Judged from pods, nodes, NodePools and ServiceClasses as the API server has them, without the scheduler's code: when a pod is
bound, unless what decides changed so recently that a watch may not have delivered it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from fairlead.api import names, quantity
from fairlead.cluster.simulated.kubelet import requests_of
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.cluster.simulated.store import Change, Key, Object, Store
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.neighbours.agents import ENDED, partner_of
from fairlead.simulation.world import GPU, REPLICAS_LABEL

_POOLS, _CLASSES, _GROUPS = "fairlead.dev/nodepools", "fairlead.dev/serviceclasses", "fairlead.dev/podgroups"


class _Bound(msgspec.Struct, frozen=True):
    """A pod on a node. gpus: whether it has any, or a part of one; fraction, paired: which."""

    key: Key
    node: str
    job: str
    service: str
    ours: bool
    gpus: bool
    fraction: bool
    paired: bool
    taken: Mapping[str, int]


class NeighbourAuditor:
    """Watches a store. wrong: called with what is violated; late: seconds by which a watch may be late.

    judged: bindings of pods that take something, or of classes that isolate or share.
    """

    def __init__(self, store: Store, clock: Callable[[], float], wrong: Callable[[str], None], *, late: float) -> None:
        self.judged = 0
        self._store = store
        self._clock = clock
        self._wrong = wrong
        self._late = late
        self._bound: dict[str, _Bound] = {}
        self._nodes_changed: dict[str, float] = {}
        self._pools_changed: dict[str, float] = {}
        self._classes_changed: dict[str, float] = {}
        for table, call in ((PODS, self._pod), (NODES, self._node), (_POOLS, self._pool), (_CLASSES, self._class)):
            store.listen(table, call)

    # -- what changes --------------------------------------------------------------------------

    def _node(self, change: Change) -> None:
        labels = [each.object["metadata"].get("labels") if each else None for each in (change.before, change.record)]
        if change.kind == "DELETED" or labels[0] != labels[1]:
            self._nodes_changed[change.key[1]] = self._clock()

    def _pool(self, change: Change) -> None:
        specs = [each.object.get("spec") if each else None for each in (change.before, change.record)]
        if change.kind == "DELETED" or specs[0] != specs[1]:
            self._pools_changed[change.key[1]] = self._clock()

    def _class(self, change: Change) -> None:
        specs = [each.object.get("spec") if each else None for each in (change.before, change.record)]
        if change.kind == "DELETED" or specs[0] != specs[1]:
            self._classes_changed[change.key[1]] = self._clock()

    def _lately(self, changed: Mapping[str, float], name: str) -> bool:
        return self._clock() - changed.get(name, -self._late) < self._late

    def _pod(self, change: Change) -> None:
        pod = change.record.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        if change.kind == "DELETED" or (pod.get("status") or {}).get("phase") in ENDED:
            self._bound.pop(uid, None)
        elif node and uid not in self._bound:
            bound = self._bound[uid] = self._seen(change.key, pod, node)
            if bound.ours:
                self._judge(bound)

    def _seen(self, key: Key, pod: Object, node: str) -> _Bound:
        metadata, requests = pod["metadata"], dict(requests_of(pod))
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        group = labels.get(names.POD_GROUP_LABEL, "")
        owner = next((each["uid"] for each in metadata.get("ownerReferences") or () if each.get("controller")), "")
        record = self._store.get(_GROUPS, (key[0], group)) if group else None
        service = (record.object["spec"].get("serviceClass") if record is not None else "") or ""
        fraction, ours = (
            bool(annotations.get(names.GPU_FRACTION_ANNOTATION)),
            pod["spec"].get("schedulerName") in names.SCHEDULERS,
        )
        return _Bound(
            key=key,
            node=node,
            job=f"{key[0]}/{group}" if group else owner or metadata["uid"],
            service=service or labels.get(names.SERVICE_CLASS_LABEL, ""),
            ours=ours,
            gpus=bool(requests.get(GPU)) or fraction,
            fraction=fraction,
            paired=bool(partner_of(pod)),
            taken=_taken(annotations.get(names.SHARED_RESOURCES_ANNOTATION, "")) if ours else {},
        )

    # -- judgement -----------------------------------------------------------------------------

    def _judge(self, bound: _Bound) -> None:
        spec = self._class_of(bound.service)
        self.judged += bool(bound.taken) or bool(spec.get("isolation")) or bool(spec.get("sharing"))
        for message in (*self._overdrawn(bound), *self._not_apart(bound), *self._divided(bound)):
            self._wrong(f"pod {'/'.join(bound.key)} is bound to {bound.node}: {message}")

    def _class_of(self, name: str) -> dict[str, Any]:
        """The spec of a class, nothing where it was changed of late."""
        record = self._store.get(_CLASSES, ("", name)) if name else None
        if record is None or self._lately(self._classes_changed, name):
            return {}
        found: dict[str, Any] = record.object["spec"]
        return found

    def _overdrawn(self, bound: _Bound) -> Iterator[str]:
        """Of what it takes no pool of its node has less than all take, and some pool has it."""
        pools = self._pools_of(bound.node)
        if self._lately(self._nodes_changed, bound.node) or any(self._lately(self._pools_changed, pool) for pool in pools):
            return
        for name in bound.taken:
            having = [pool for pool, amounts in pools.items() if name in amounts]
            if not having and not any(map(self._lately, [self._pools_changed] * len(self._pools_changed), self._pools_changed)):
                yield f"no pool there has {name}"
            for pool in having:
                members = self._members(pool)
                if any(self._lately(self._nodes_changed, each) for each in members):
                    continue
                used = sum(each.taken.get(name, 0) for each in self._bound.values() if each.node in members)
                if used > pools[pool][name]:
                    yield f"pods of pool {pool} take {used} of {pools[pool][name]} {name}"

    def _not_apart(self, bound: _Bound) -> Iterator[str]:
        """Jobs that isolate nodes are beside no other pod with GPUs; those that isolate GPUs have no part of one."""
        if self._lately(self._nodes_changed, bound.node):
            return
        isolation = self._class_of(bound.service).get("isolation", "None")
        if isolation == "GPU" and bound.fraction:
            yield "its class isolates GPUs, and it has a part of one"
        if isolation == "GPU" and bound.gpus and int((self._labels(bound.node) or {}).get(REPLICAS_LABEL, 1)) > 1:
            yield "its class isolates GPUs, and those of the node are replicated"
        for other in self._bound.values():
            if other.node != bound.node or other.job == bound.job:
                continue
            if isolation == "Node" and other.gpus:
                yield f"its class isolates nodes, and {'/'.join(other.key)} is there"
            if bound.gpus and other.ours and self._class_of(other.service).get("isolation") == "Node":
                yield f"{'/'.join(other.key)} is there, whose class isolates nodes"

    def _divided(self, bound: _Bound) -> Iterator[str]:
        """Pods that share GPUs two by two ask for it, and are not where parts of GPUs are given out by amounts."""
        if bound.paired and bound.service and self._class_of(bound.service).get("sharing", "Pairs") != "Pairs":
            yield "it shares its GPU, and its class does not"
        for other in self._bound.values():
            if other.node == bound.node and ((bound.paired and other.fraction) or (bound.fraction and other.paired)):
                yield f"it and {'/'.join(other.key)} have parts of GPUs by different rules"

    # -- pools ---------------------------------------------------------------------------------

    def _labels(self, node: str) -> dict[str, str] | None:
        record = self._store.get(NODES, ("", node))
        return (record.object["metadata"].get("labels") or {}) if record is not None else None

    def _pools_of(self, node: str) -> dict[str, dict[str, int]]:
        """What is declared for a node: pool -> name -> amount."""
        labels = self._labels(node)
        if labels is None:
            return {}
        return {
            key[1]: _amounts(record.object["spec"].get("sharedResources") or {})
            for key, record in self._store.records(_POOLS)
            if _selects(record.object["spec"], labels)
        }

    def _members(self, pool: str) -> set[str]:
        spec = self._store.get(_POOLS, ("", pool)).object["spec"]  # type: ignore[union-attr]
        return {
            key[1] for key, record in self._store.records(NODES) if _selects(spec, record.object["metadata"].get("labels") or {})
        }

    # -- once settled --------------------------------------------------------------------------

    def settled(self, state: ClusterState) -> list[str]:
        """The scheduler counts what pods take as they do."""
        right: Counter[tuple[str, str]] = Counter()
        for each in self._bound.values():
            for pool, declared in self._pools_of(each.node).items():
                for name, amount in each.taken.items():
                    if name in declared:
                        right[pool, name] += amount
        shared = state.nodes.shared
        counted = Counter(shared.used)
        for row in state.nodes.rows.values():
            for task in state.nodes.pods[row].values():
                if task.pod.placeholder:
                    counted.subtract(dict(shared.parts(task.shape.spec.shared, row)))
        found = {key: amount for key, amount in counted.items() if amount}
        wanted = {key: amount for key, amount in right.items() if amount}
        return [] if found == wanted else [f"of what pools share {found} is counted, pods take {wanted}"]


def _amounts(given: Mapping[str, Any]) -> dict[str, int]:
    return {name: quantity.amount(name, str(value)) for name, value in given.items()}


def _taken(text: str) -> dict[str, int]:
    return _amounts(dict(each.split("=") for each in text.split(",") if each))


def _selects(spec: Object, labels: Mapping[str, str]) -> bool:
    wanted = (spec.get("nodeSelector") or {}).get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())

"""Shared resources: a pod fits only where each pool of its node has as much left as it takes of what the pool's nodes share."""

from __future__ import annotations

from collections import Counter

from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.api.shared_resources import show
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.nodes.shared_resources import SharedResources as Shared
from fairlead.core.pods.filters.base import Refusal, Relation, Stop


class SharedResources(Relation):
    """What a shape takes of what the nodes of pools share."""

    plugin = "SharedResources"
    code = ReasonCode.SHARED_RESOURCES
    complaint = "node(s) share too little with others"

    @override
    def stop(self) -> Stop | None:
        shared = self.nodes.shared
        for name, amount in self.spec.shared:
            pools = shared.pools_with(name)
            if not pools:
                return Stop(self.plugin, f"node(s): no NodePool has the shared resource {name!r}")
            most = max(shared.declared[pool][name] for pool in pools)
            if most < amount:
                return Stop(self.plugin, f"node(s): a pod needs {show(amount)} {name}, the largest NodePool has {show(most)}")
        return None

    @override
    def refused(self) -> Mask | None:
        return self.nodes.shared.closed(self.spec.shared)

    @override
    def refuses(self, row: int) -> Refusal | None:
        shared, asked = self.nodes.shared, self.spec.shared
        if not shared.refuses(asked, row):
            return None
        return Refusal.UNRESOLVABLE if shared.never(asked, row) else Refusal.UNSCHEDULABLE

    @override
    def most(self, *, empty: bool = False) -> Ints | None:
        return self.nodes.shared.most(self.spec.shared, empty=empty)

    @override
    def words(self, rows: Ints | RowNumbers) -> str:
        shared, found = self.nodes.shared, Counter[str]()
        for row in rows.tolist():
            for name, amount in self.spec.shared:
                keys = shared.keys(row, name)
                short = next((pool for pool, _ in keys if shared.free((pool, name)) < amount), None)
                if keys and short is None:
                    continue
                what = f"of pool {short} ({left(shared, short, name)} free, {show(amount)} needed)" if short else ""
                found[what or f"of no pool with the shared resource {name}"] += 1
                break
        if not found:
            return self.complaint
        return "node(s) " + ", ".join(each if len(found) == 1 else f"{each} ({count})" for each, count in sorted(found.items()))

    @override
    def version(self) -> int:
        return self.nodes.shared.version


def left(shared: Shared, pool: str, name: str) -> str:
    """How much is free of how much."""
    return f"{show(max(0, shared.free((pool, name))))} of {show(shared.declared[pool][name])} {name}"

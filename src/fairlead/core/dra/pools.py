"""Slices as pools: the newest generation of each, whether it is complete and consistent, and what of it a node can use.

A pool that is incomplete or invalid gives no devices; a request for all devices is refused while there is one on the node.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.core.dra.model import Amount, Device, Reach, Slice
from fairlead.core.model.nodes import Node
from fairlead.core.model.selectors import any_term_holds

PoolId = tuple[str, str]
"""(driver, pool name)."""


class Pool(msgspec.Struct, frozen=True):
    """One pool as a node sees it.

    fault: why no device of it may be allocated, empty if they may; incomplete: slices of it are missing, else it contradicts
    itself. devices: (device, its slice) in the order of slices' names. counters: (set, counter) -> amount.
    every: all devices of the pool by name, whether this node can use them or not.
    """

    driver: str
    name: str
    fault: str = ""
    incomplete: bool = False
    devices: tuple[tuple[Device, Slice], ...] = ()
    counters: dict[tuple[str, str], Amount] = {}
    every: dict[str, Device] = {}

    @property
    def late(self) -> bool:
        """Whether it comes after the others: it has devices with binding conditions."""
        return any(device.conditions for device, _ in self.devices)


def reaches(reach: Reach, node: Node) -> bool:
    """Whether a node can use what has this reach."""
    if reach.node:
        return reach.node == node.name
    return reach.everywhere or (reach.terms is not None and any_term_holds(reach.terms, node.labels, node.name))


def pool_on(slices: Iterable[Slice], node: Node) -> Pool | None:
    """One pool, of all slices that name it, as a node sees it; None: it has nothing for this node.

    Slices of older generations count for nothing.
    """
    slices = list(slices)
    newest = max(each.generation for each in slices)
    current = sorted((each for each in slices if each.generation == newest), key=lambda each: each.name)
    usable = [each for each in current if _relevant(each, node)]
    if not usable:
        return None  # also where an older generation has something for this node: it was replaced
    first = current[0]
    wanted = {each.slices for each in current}
    if wanted != {len(current)}:
        fault = f"{len(current)} of {max(wanted)} slices of generation {newest} are there"
        return Pool(first.driver, first.pool, fault, incomplete=True)
    found = [(device, each) for each in usable if not each.counters for device in each.devices]
    fault = _repeated((device.name for device, _ in found), "device name") or _repeated(
        (name for each in current for name, _ in each.counters), "counter set"
    )
    counters = {(name, counter): value for each in current for name, set_ in each.counters for counter, value in set_.items()}
    fault = fault or _unknown_counters(current, counters)
    if fault:
        return Pool(first.driver, first.pool, fault)
    usable_here = tuple((device, each) for device, each in found if not each.per_device or reaches(device.reach, node))
    every = {device.name: device for each in current if not each.counters for device in each.devices}
    return Pool(first.driver, first.pool, devices=usable_here, counters=counters, every=every)


def _relevant(each: Slice, node: Node) -> bool:
    if each.per_device:
        return any(reaches(device.reach, node) for device in each.devices)
    return reaches(each.reach, node)


def _repeated(names: Iterable[str], what: str) -> str:
    seen = set()
    for name in names:
        if name in seen:
            return f"{what} {name} is there twice"
        seen.add(name)
    return ""


def _unknown_counters(slices: Iterable[Slice], counters: dict[tuple[str, str], Amount]) -> str:
    known = {name for name, _ in counters}
    for device in (device for each in slices for device in each.devices):
        for name, consumed in device.counters:
            if name not in known:
                return f"device {device.name} consumes counter set {name}, which is not there"
            for counter, _ in consumed:
                if (name, counter) not in counters:
                    return f"device {device.name} consumes counter {counter} of {name}, which is not there"
    return ""


class Slices:
    """All slices of a cluster, by pool and by what nodes they reach: what a node sees is found without reading the others'."""

    def __init__(self, slices: Iterable[Slice] = ()) -> None:
        self._by_name: dict[str, Slice] = {}
        self._by_pool: dict[PoolId, dict[str, Slice]] = {}
        self._on_node: dict[str, dict[PoolId, int]] = {}
        self._elsewhere: dict[PoolId, int] = {}
        for each in slices:
            self.put(each)

    def put(self, each: Slice) -> None:
        """Add a slice, or replace the one of this name."""
        self.remove(each.name)
        self._by_name[each.name] = each
        pool = (each.driver, each.pool)
        self._by_pool.setdefault(pool, {})[each.name] = each
        self._count(each, pool, 1)

    def remove(self, name: str) -> None:
        """Forget a slice; one that is not known is no mistake."""
        each = self._by_name.pop(name, None)
        if each is None:
            return
        pool = (each.driver, each.pool)
        del self._by_pool[pool][name]
        if not self._by_pool[pool]:
            del self._by_pool[pool]
        self._count(each, pool, -1)

    def pools(self, node: Node) -> list[Pool]:
        """The pools that a node sees, in the order in which devices are tried: by driver and name, late ones last."""
        ids = {*self._on_node.get(node.name, ()), *self._elsewhere}
        found = [pool_on(self._by_pool[each].values(), node) for each in sorted(ids)]
        return sorted((each for each in found if each is not None), key=lambda each: each.late)

    def _count(self, each: Slice, pool: PoolId, by: int) -> None:
        local = each.reach.node and not each.per_device
        where = self._on_node.setdefault(each.reach.node, {}) if local else self._elsewhere
        where[pool] = where.get(pool, 0) + by
        if not where[pool]:
            del where[pool]

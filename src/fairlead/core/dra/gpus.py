"""GPUs by ResourceSlices: which node has how many, and what part of which GPU an allocated device is.

A GPU is a counter set of a driver for GPUs (devices that consume it are parts of it), or a device that consumes no counters. It
is of the node that its devices are of, by name; one that several nodes can use is of no node. Of each pool the newest generation
counts, and what is in none of its slices any more counts neither as there nor as held: so all of it depends on objects as
they are, not on what was seen before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fairlead.core.dra import weights
from fairlead.core.dra.model import Amount, Chosen, Device, Reach, Slice

PoolId = tuple[str, str]
"""(driver, pool name)."""

_PROFILE = "profile"
_SHARE = "share"


class Part(NamedTuple):
    """What a device that a claim has is of a GPU. node: whose, empty: of none; gpu: its counter set, or the device.

    milli: thousandths of it. name: of partitions and shares, as `DRIVER/PROFILE` or `DRIVER/share`; empty: of whole GPUs.
    """

    driver: str
    pool: str
    node: str
    gpu: str
    milli: int
    name: str


class _Pool(msgspec.Struct):
    """The newest generation of a pool. gpus: name -> its node, empty: none. reaches: of those that are of no node, by name.

    missing: how many of its slices are not there.
    """

    devices: dict[str, Device] = {}
    counters: dict[tuple[str, str], Amount] = {}
    gpus: dict[str, str] = {}
    reaches: dict[str, list[Reach]] = {}
    missing: int = 0


class Gpus:
    """The GPUs of all slices. version: raised when any of them is different. changed: nodes whose GPUs may be different."""

    def __init__(self) -> None:
        self.version = 0
        self.changed: set[str] = set()
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[PoolId, dict[str, Slice]] = {}
        self._pools: dict[PoolId, _Pool] = {}
        self._stale: set[PoolId] = set()
        self._on: dict[str, dict[PoolId, list[str]]] = {}  # node -> pool -> its GPUs

    @property
    def any(self) -> bool:
        """Whether a driver for GPUs has published anything."""
        return bool(self._slices)

    def put(self, item: Slice) -> bool:
        """A slice came or changed; whether it is of a driver for GPUs, now or before."""
        before = self._slices.get(item.name)
        if before == item:
            return False
        found = before is not None and self.remove(item.name)
        if not weights.is_gpu(item.driver):
            return found
        self._slices[item.name] = item
        pool = item.driver, item.pool
        self._by_pool.setdefault(pool, {})[item.name] = item
        self._doubt(pool)
        return True

    def remove(self, name: str) -> bool:
        """A slice is gone; whether it was of a driver for GPUs."""
        item = self._slices.pop(name, None)
        if item is None:
            return False
        pool = item.driver, item.pool
        slices = self._by_pool[pool]
        del slices[name]
        if not slices:
            del self._by_pool[pool]
        self._doubt(pool)
        return True

    def on(self, node: str) -> list[tuple[PoolId, list[str]]]:
        """The GPUs of a node, by pool; by name within it."""
        self._settle()
        return sorted(self._on.get(node, {}).items())

    def of_none(self) -> list[tuple[PoolId, str, list[Reach]]]:
        """GPUs that are of no node: (pool, GPU, from where it can be used)."""
        self._settle()
        found = self._on.get("", {})
        return [(pool, gpu, self._pools[pool].reaches[gpu]) for pool, gpus in sorted(found.items()) for gpu in gpus]

    def complete(self, pool: PoolId) -> bool:
        """Whether all slices of a pool's newest generation are there."""
        self._settle()
        known = self._pools.get(pool)
        return known is not None and known.missing == 0

    def part(self, chosen: Chosen, stand_in: Device | None = None) -> Part | None:
        """What a device that a claim has is of a GPU; None: nothing, or it is in no slice any more.

        stand_in: what is counted instead of it.
        """
        driver, pool = chosen.device.driver, chosen.device.pool
        if chosen.admin or not weights.is_gpu(driver):
            return None
        self._settle()
        known = self._pools.get((driver, pool))
        device = stand_in or (known.devices.get(chosen.device.device) if known is not None else None)
        if known is None or device is None:
            return None
        gpu = device.counters[0][0] if device.counters else device.name
        if gpu not in known.gpus:
            return None
        if chosen.shared:
            milli = weights.milli_of_share(device, known.counters, dict(chosen.consumed))
        else:
            milli = weights.milli(device, known.counters)
        name = "" if milli >= weights.WHOLE else f"{driver}/{_SHARE if chosen.shared else part_name(device)}"
        return Part(driver, pool, known.gpus[gpu], gpu, milli, name)

    def _doubt(self, pool: PoolId) -> None:
        self._stale.add(pool)
        self.version += 1

    def settle(self) -> set[str]:
        """Bring all up to date; the nodes whose GPUs may be different since this was asked last."""
        self._settle()
        changed, self.changed = self.changed, set()
        return changed

    def _settle(self) -> None:
        while self._stale:
            pool = self._stale.pop()
            before = self._pools.pop(pool, None)
            for node in set(before.gpus.values()) if before is not None else ():
                of_node = self._on[node]
                del of_node[pool]
                if not of_node:
                    del self._on[node]
                self.changed.add(node)
            slices = self._by_pool.get(pool)
            if slices is None:
                continue
            found = self._pools[pool] = _read(slices)
            for gpu, node in sorted(found.gpus.items()):
                self._on.setdefault(node, {}).setdefault(pool, []).append(gpu)
                self.changed.add(node)


def part_name(device: Device) -> str:
    """How a partition is called: its profile, else its type."""
    for name in (_PROFILE, "type"):
        value = device.attributes.get(name, device.attributes.get(f"{device.driver}/{name}"))
        if isinstance(value, str):
            return value
    return "part"


def _read(slices: Mapping[str, Slice]) -> _Pool:
    newest = max(each.generation for each in slices.values())
    current = [slices[name] for name in sorted(slices) if slices[name].generation == newest]
    pool = _Pool(missing=max(each.slices for each in current) - len(current))
    reaches: dict[str, list[Reach]] = {}
    sets: dict[str, Reach] = {}
    for each in current:
        for name, amounts in each.counters:
            sets.setdefault(name, each.reach)
            pool.counters.update({(name, counter): amount for counter, amount in amounts.items()})
        for device in each.devices:
            pool.devices.setdefault(device.name, device)
            gpu = device.counters[0][0] if device.counters else device.name
            reach = device.reach if each.per_device else each.reach
            known = reaches.setdefault(gpu, [])
            if reach not in known:
                known.append(reach)
    for name, reach in sets.items():
        reaches.setdefault(name, [reach])
    for gpu, found in reaches.items():
        if gpu not in sets and gpu not in pool.devices:
            continue  # its devices consume counters that are not there
        node = found[0].node if len(found) == 1 else ""
        pool.gpus[gpu] = node
        if not node:
            pool.reaches[gpu] = found
    return pool

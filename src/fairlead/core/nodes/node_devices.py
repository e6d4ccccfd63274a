"""Devices of `resource.k8s.io` by node: what each can use, and what of it is free.

Slices are put into pools, pools of a node into an inventory, and what is allocated makes of that its state. `column` has for each
row when what its node can use changed last, and `everywhere` when that of any node may have; both are under the undo log, so a
state that was found in a trial is not taken for one outside of it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from fairlead.core.dra import model
from fairlead.core.dra.model import Allocation, Slice
from fairlead.core.model.arrays import Ints
from fairlead.core.model.late import late
from fairlead.core.model.nodes import Node
from fairlead.core.model.selectors import any_term_holds
from fairlead.core.model.undo import UndoLog, new_version
from fairlead.core.nodes.table import NodeTable

if TYPE_CHECKING:
    from fairlead.core.dra import evaluation, gangs, held, inventory, pools, remaining
    from fairlead.core.dra.gangs import Place
    from fairlead.core.dra.held import Held, NodeState
    from fairlead.core.dra.inventory import Inventory
    from fairlead.core.dra.pools import PoolId
    from fairlead.core.dra.reach import Affected
    from fairlead.core.nodes import device_sizes
else:  # a cluster without devices goes without their allocator
    evaluation, gangs, held = (late(f"fairlead.core.dra.{each}") for each in ("evaluation", "gangs", "held"))
    inventory, pools, remaining = (late(f"fairlead.core.dra.{each}") for each in ("inventory", "pools", "remaining"))
    device_sizes = late("fairlead.core.nodes.device_sizes")


class _Seen(NamedTuple):
    """What a node can use of devices, and when that was found."""

    node: Node
    inventory: Inventory
    version: tuple[int, int]
    state: NodeState


class NodeDevices:
    """What nodes can use. known: devices of slices, and those that are held, as they were seen last."""

    def __init__(self, nodes: NodeTable, log: UndoLog) -> None:
        self.column: Ints = np.zeros(0, np.int64)
        self.everywhere = 0
        self.known: dict[model.DeviceId, model.Device] = {}
        self.nodes, self._log = nodes, log
        self._slices: dict[str, None] = {}
        self._stand_ins: dict[model.DeviceId, model.Device] = {}  # for counters of which others get a part
        self._all = ChainMap(self.known, self._stand_ins)
        self._seen: dict[str, _Seen] = {}
        self._fitting: dict[int, tuple[NodeState | None, dict[tuple[str, int], int]]] = {}
        self._listed: dict[model.DeviceId, int] = {}  # in how many slices a device is
        self._withdrawn: dict[tuple[str, str], dict[model.DeviceId, None]] = {}  # pool -> devices that are in none, and held

    @cached_property
    def slices(self) -> pools.Slices:
        """All slices, by pool."""
        return pools.Slices()

    @cached_property
    def held(self) -> Held:
        """What claims hold, and devices that are avoided."""
        return held.Held()

    @cached_property
    def matches(self) -> evaluation.Evaluation:
        """Whether a CEL expression holds for a device."""
        return evaluation.Evaluation()

    @cached_property
    def sizes(self) -> device_sizes.DeviceSizes:
        """What parts of GPUs there are."""
        return device_sizes.DeviceSizes(self.matches)

    def node_changed(self, row: int) -> None:
        """A node came, or its labels changed: it may see other devices."""
        if row >= len(self.column):  # not within a trial, so the undo log remembers nothing of this array
            self.column = np.concatenate([self.column, np.zeros(max(64, row + 1), np.int64)])
        self._touch_row(row)

    def put(self, item: Slice) -> None:
        """A slice came or changed."""
        self.nodes.claimed.put(item)
        self._slices[item.name] = None
        self._follow(self.slices.get(item.name), item)
        self.sizes.put(item)
        self._outdate(self.slices.put(item))

    def remove(self, name: str) -> None:
        """A slice is gone; one that is not known is no news."""
        if self._slices.pop(name, "") is None:
            self.nodes.claimed.remove(name)
            self._follow(self.slices.get(name), None)
            self.sizes.remove(name)
            self._outdate(self.slices.remove(name))

    def _follow(self, before: Slice | None, after: Slice | None) -> None:
        """Devices are known as long as a slice has them, or a claim holds them."""
        for device, each in _devices(after):
            self.known[device] = each
            self._listed[device] = self._listed.get(device, 0) + 1
        for device, _ in _devices(before):
            self._listed[device] -= 1
            if not self._listed[device]:
                del self._listed[device]
                self._withdrawn.setdefault((device.driver, device.pool), {})[device] = None
        for pool in {(each.driver, each.pool) for each in (before, after) if each is not None}:
            self.forget_released(self._withdrawn.get(pool, ()))

    def forget_released(self, devices: Iterable[model.DeviceId]) -> None:
        """Devices that were withdrawn are forgotten once nothing holds them."""
        for device in list(devices):
            pool = (device.driver, device.pool)
            withdrawn = self._withdrawn.get(pool, {})
            if device in withdrawn and (device in self._listed or not self.held.holds(device)):
                del withdrawn[device]
                if not withdrawn:
                    del self._withdrawn[pool]
                if device not in self._listed:
                    self.known.pop(device, None)

    def _outdate(self, affected: Affected) -> None:
        """Nodes see other devices."""
        if affected.everywhere or affected.terms:
            self._seen.clear()
            self.renew_all()
            return
        for name in affected.names:
            self._seen.pop(name, None)
            self._touch(name)

    def _touch_all(self, affected: Affected) -> None:
        if affected.everywhere or affected.terms:
            self.renew_all()
        else:
            for name in affected.names:
                self._touch(name)

    def state_of(self, row: int) -> NodeState | None:
        """What the node of a row can use; None: there is no node."""
        node = self.nodes.objects[row]
        if node is None:
            return None
        version = self.column.item(row), self.everywhere
        seen = self._seen.get(node.name)
        if seen is not None and seen.version == version and seen.node is node:
            return seen.state
        if seen is None or (seen.node is not node and not _sees_the_same(seen.node, node)):
            found = inventory.Inventory(self.slices.pools(node), self.matches, node.links)
        else:
            found = seen.inventory
        state = self.held.on(found)
        self._seen[node.name] = _Seen(node, found, version, state)
        return state

    def parts_on(self, row: int) -> list[tuple[str, int, int, int]]:
        """The partitions and shares of a row's GPUs: (name, thousandths of a GPU, how many there could be, how many are held).

        There could be as many as are held, and would fit beside that if no others were made.
        """
        claimed = self.nodes.claimed
        if not claimed.gpus_on(row):
            return []
        held, state = claimed.used(row).parts, self.state_of(row)
        known = self._fitting.get(row)
        if known is None or known[0] is not state:
            known = self._fitting[row] = state, remaining.parts_that_fit(state) if state is not None else {}
        fitting = known[1]
        return sorted(
            (*part, held.get(part, 0) + fitting.get(part, 0), held.get(part, 0)) for part in held.keys() | fitting.keys()
        )

    def has_devices(self, row: int) -> bool:
        """Whether the node of a row can use any device."""
        state = self.state_of(row)
        return state is not None and bool(state.inventory.ids)

    def place_of(self, row: int) -> Place | None:
        """The node of a row with its devices, for the allocation of gangs."""
        state, node = self.state_of(row), self.nodes.objects[row]
        return gangs.Place(node, state.inventory) if state is not None and node is not None else None

    def rows_of(self, pool: PoolId) -> list[int]:
        """The rows from where a pool can be used, in order."""
        reached, nodes = self.slices.reached(pool), self.nodes
        if reached.everywhere:
            return sorted(nodes.rows.values())
        found = {nodes.rows[name] for name in reached.names if name in nodes.rows}
        for row in nodes.rows.values() if reached.terms else ():
            node = nodes.objects[row]
            if node is not None and any_term_holds(reached.terms, node.labels, node.name):
                found.add(row)
        return sorted(found)

    def versions(self, count: int) -> Ints:
        """For each row when what its node can use changed last, shape (count,); not to be written to."""
        return self.column[:count]

    def _touch(self, name: str) -> None:
        row = self.nodes.rows.get(name)
        if row is not None:
            self._touch_row(row)

    def _touch_row(self, row: int) -> None:
        self._log.put(self.column, row, new_version())

    def renew_all(self) -> None:
        """What any node can use may be different."""
        self._log.renew(self, "everywhere")

    # -- what is held, under the undo log --------------------------------------------------------

    def exchange(self, before: Allocation | None, wanted: Allocation | None) -> None:
        """Devices are held by one allocation instead of another."""
        if before is not None:
            self.held.release([before])
            self._log.call(self._take, before)
        if wanted is not None:
            self.held.take([wanted], self._all)
            self._log.call(self._release, wanted)
        chosen = (each for allocation in (before, wanted) if allocation is not None for each in allocation.devices)
        for pool in {(each.device.driver, each.device.pool) for each in chosen}:
            self._touch_all(self.slices.reached(pool))

    def _take(self, allocation: Allocation) -> None:
        self.held.take([allocation], self._all)

    def _release(self, allocation: Allocation) -> None:
        self.held.release([allocation])

    def rest_of(self, key: str, chosen: model.Chosen, row: int) -> model.Chosen | None:
        """What is free of a device that a victim has: the device, counters of it, or a part of its capacities; None: nothing.

        key: of its claim. row: its node.
        """
        state = self.state_of(row)
        at = state.inventory.position.get(chosen.device) if state is not None else None
        if state is None or chosen.admin or at is None:
            return chosen
        there = state.inventory
        if (state.alone | (0 if chosen.shared else state.sharing)) >> at & 1:
            return None
        if chosen.shared:
            taken = state.shares.get(at, {})
            capacity = there.devices[at].capacity
            free = {name: each.value - taken.get(name, 0) for name, each in capacity.items()}
            consumed = tuple((name, max(0, min(amount, free.get(name, 0)))) for name, amount in chosen.consumed)
            return msgspec.structs.replace(chosen, consumed=consumed)
        if all(state.free[counter] >= amount for counter, amount in there.uses[at]):
            return chosen
        counters: dict[str, list[tuple[str, model.Amount]]] = {}
        for counter, amount in there.uses[at]:
            _, _, name, what = there.counters[counter]
            counters.setdefault(name, []).append((what, max(0, min(amount, state.free[counter]))))
        device = chosen.device
        stand_in = model.DeviceId(device.driver, device.pool, f"{key}/{device.device}")
        self._stand_ins[stand_in] = model.Device(
            stand_in.device, device.driver, counters=tuple((name, tuple(each)) for name, each in counters.items())
        )
        return msgspec.structs.replace(chosen, device=stand_in)

    def stand_in(self, device: model.DeviceId) -> model.Device | None:
        """The device that stands for a part of what a victim has; None: it is a device itself."""
        return self._stand_ins.get(device)

    def forget_rest(self, key: str) -> None:
        """A claim is held as it is again: devices that stood for a part of it are not needed any more."""
        for each in [each for each in self._stand_ins if each.device.startswith(f"{key}/")]:
            del self._stand_ins[each]

    def hold(self, allocations: Iterable[Allocation]) -> Held:
        """What these hold, reckoned anew."""
        found = held.Held()
        found.take(allocations, self._all)
        return found

    def avoid(self, device: model.DeviceId, status: tuple[bool, str] | None) -> None:
        """A device is avoided from now on (whether it is closed, and why); None: no longer. Not within a trial."""
        self.held.avoid(device, status)
        self._touch_all(self.slices.reached((device.driver, device.pool)))

    def hold_again(self) -> None:
        """Nothing is held, and all is found anew."""
        self.held = held.Held(self.held.avoided)
        self._seen.clear()
        self.renew_all()


def _sees_the_same(old: Node, new: Node) -> bool:
    """Whether what a node can use, and how it is connected, is as before."""
    return (old.name, old.labels, old.links) == (new.name, new.labels, new.links)


def _devices(item: Slice | None) -> Iterator[tuple[model.DeviceId, model.Device]]:
    return ((model.DeviceId(item.driver, item.pool, each.name), each) for each in item.devices) if item is not None else iter(())

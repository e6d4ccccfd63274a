"""What a node can use of devices, prepared for many searches: sets of devices are integers, one bit for each device.

Bit i stands for device i in the order in which devices are tried (pools by driver and name, slices by name, devices as listed).
Selectors, tolerations and attributes are evaluated once per expression or name, however many claims name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

from fairlead.core.dra.capacity import consumption
from fairlead.core.dra.columns import Columns, Selected
from fairlead.core.dra.connected import Connected
from fairlead.core.dra.model import (
    BLOCKING_EFFECTS,
    Amount,
    Capacity,
    Device,
    DeviceId,
    Slice,
    Taint,
    Toleration,
    attribute_of,
    typed,
)
from fairlead.core.dra.pools import Pool
from fairlead.core.links.matrix import Links

Matches = Callable[[str, Device], bool]
"""Whether a CEL expression holds for a device; raises `SelectorFailure` where it errs."""


@runtime_checkable
class ByColumns(Protocol):
    """A `Matches` that decides for all devices of a node at once, those that agree in what an expression reads together."""

    def selected(self, expression: str, columns: Columns) -> Selected:
        """The devices that an expression selects; the message is why it errs for the first, without its name."""


CellUses = tuple[tuple[tuple[int, Amount], ...], ...]
"""Of a cell, by device: (counter of the cell, amount)."""


Key = TypeVar("Key")
Value = TypeVar("Value")

_MOST_KEPT = 1000
"""Entries of each cache of an inventory."""


class SelectorFailure(Exception):
    """A selector that cannot be compiled, or errs for a device; its text is the reason."""


def bits(mask: int) -> Iterator[int]:
    """The devices of a set, in order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def merged(verdicts: Iterable[tuple[int, bool | SelectorFailure]]) -> Selected:
    """What sets of devices come to, in the order of their first devices, each with the verdict or why there is none."""
    mask = failed = 0
    message = ""
    for devices, verdict in verdicts:
        if isinstance(verdict, SelectorFailure):
            failed |= devices
            message = message or str(verdict)
        elif verdict:
            mask |= devices
    return Selected(mask, failed, message)


def keep(cache: dict[Key, Value], key: Key, value: Value) -> Value:
    """Remember a value; a cache that is full is emptied first, since what claims name is not bounded."""
    if len(cache) >= _MOST_KEPT:
        cache.clear()
    cache[key] = value
    return value


class Inventory:
    """The devices that one node can use, by position. It changes only where a slice does.

    uses: counters that a device consumes, as (position in `counters`, amount). totals: of each counter. cells: devices that
    are connected by shared counters, as positions. packings: kept by `packing.py`. links: of the node's GPUs, if they are known.
    """

    def __init__(self, pools: Sequence[Pool], matches: Matches, links: Links | None = None) -> None:
        self._links = links
        self.faults = [each for each in pools if each.fault]
        self.pools = {(each.driver, each.name): each for each in pools if not each.fault}
        self.devices: list[Device] = []
        self.slices: list[Slice] = []
        self.ids: list[DeviceId] = []
        self.counters: list[tuple[str, str, str, str]] = []
        self.totals: list[Amount] = []
        position = {}
        for pool in self.pools.values():
            for (name, counter), total in pool.counters.items():
                position[pool.driver, pool.name, name, counter] = len(self.counters)
                self.counters.append((pool.driver, pool.name, name, counter))
                self.totals.append(total)
            for device, each in pool.devices:
                self.devices.append(device)
                self.slices.append(each)
                self.ids.append(DeviceId(pool.driver, pool.name, device.name))
        self.position = {each: index for index, each in enumerate(self.ids)}
        self._counter_at = position
        self.uses = [self.consumed(each, device) for each, device in zip(self.ids, self.devices, strict=True)]
        self.all = (1 << len(self.devices)) - 1
        self.counted = sum(1 << index for index, each in enumerate(self.uses) if each)  # devices that consume counters
        self.multiple = sum(1 << index for index, each in enumerate(self.devices) if each.multiple)
        self.packings: dict[object, dict[tuple[int, ...], tuple[tuple[int, int], ...]]] = {}
        self._matches = matches
        self._evaluated = matches if isinstance(matches, ByColumns) else None
        self._columns = Columns(self.devices)
        self._selected: dict[str, Selected] = {}
        self._matching: dict[tuple[tuple[str, ...], tuple[tuple[str, Amount], ...]], tuple[int, int]] = {}
        self._tolerated: dict[tuple[Toleration, ...], int] = {}
        self._values: dict[str, tuple[list[int], list[int]]] = {}
        self._given: dict[tuple[tuple[str, Amount], ...], tuple[int, dict[int, dict[str, Amount]]]] = {}
        self._least: dict[int, dict[int, Amount]] = {}
        self._kinds: list[dict[str, Capacity]] = []
        self._kind_of = [self._kind(each.capacity) for each in self.devices]

    def consumed(self, device_id: DeviceId, device: Device) -> tuple[tuple[int, Amount], ...]:
        """The counters that a device of this pool consumes, those that the pool still has: (position, amount)."""
        amounts: dict[int, Amount] = {}
        for name, each in device.counters:
            for counter, amount in each:
                at = self._counter_at.get((device_id.driver, device_id.pool, name, counter))
                if at is not None:
                    amounts[at] = amounts.get(at, 0) + amount
        return tuple(sorted((at, amount) for at, amount in amounts.items() if amount))

    def selected(self, expression: str) -> Selected:
        """The devices that a selector selects."""
        found = self._selected.get(expression)
        if found is None:
            found = self._evaluated.selected(expression, self._columns) if self._evaluated else merged(self._each(expression))
            if found.failed:
                found = Selected(found.mask, found.failed, f"{self.ids[next(bits(found.failed))]}: {found.message}")
            keep(self._selected, expression, found)
        return found

    def _each(self, expression: str) -> Iterator[tuple[int, bool | SelectorFailure]]:
        for index, device in enumerate(self.devices):
            try:
                yield 1 << index, self._matches(expression, device)
            except SelectorFailure as error:
                yield 1 << index, error

    def matching(self, selectors: tuple[str, ...], requested: tuple[tuple[str, Amount], ...]) -> tuple[int, int]:
        """The devices that all selectors select and that have what is requested of capacity; and those for which one errs."""
        key = (selectors, requested)
        found = self._matching.get(key)
        if found is None:
            mask, failed = self.all, 0
            for each in selectors:
                selected = self.selected(each)
                failed |= selected.failed & mask
                mask &= selected.mask
            found = keep(self._matching, key, (mask & self.given(requested), failed))
        return found

    def tolerated(self, tolerations: tuple[Toleration, ...]) -> int:
        """The devices without a taint that these tolerations leave."""
        found = self._tolerated.get(tolerations)
        if found is None:
            found = self.all
            for index in bits(self._tainted):
                if not all(any(one.tolerates(taint) for one in tolerations) for taint in self._blocking(index)):
                    found ^= 1 << index
            keep(self._tolerated, tolerations, found)
        return found

    def values(self, attribute: str) -> tuple[list[int], list[int]]:
        """An attribute as (number of its value by device, -1: it has none; devices by number)."""
        found = self._values.get(attribute)
        if found is None:
            numbers: dict[tuple[str, object], int] = {}
            masks: list[int] = []
            of = []
            for index, device in enumerate(self.devices):
                value = attribute_of(device, attribute)
                if value is None:
                    of.append(-1)
                    continue
                number = numbers.setdefault(typed(value), len(numbers))
                if number == len(masks):
                    masks.append(0)
                masks[number] |= 1 << index
                of.append(number)
            found = keep(self._values, attribute, (of, masks))
        return found

    def given(self, requested: tuple[tuple[str, Amount], ...]) -> int:
        """The devices that have what is requested of capacity, whatever others hold of it."""
        return self._capacity(requested)[0]

    def share(self, requested: tuple[tuple[str, Amount], ...], index: int) -> Mapping[str, Amount]:
        """What one allocation with this request consumes of a device's capacities."""
        return self._capacity(requested)[1][self._kind_of[index]]

    def is_local(self, index: int) -> bool:
        """Whether a device can be used from one node only."""
        device, each = self.devices[index], self.slices[index]
        return (device.reach if each.per_device else each.reach).node != "" or device.binds_to_node

    @cached_property
    def connected(self) -> Connected:
        """How the GPUs are connected, as the node's annotation and attributes have it."""
        return Connected(self.devices, self._links)

    @cached_property
    def cells(self) -> list[tuple[int, ...]]:
        """Devices that share counters, directly or through others; only cells of several."""
        users: dict[int, list[int]] = {}
        for index, uses in enumerate(self.uses):
            for at, _ in uses:
                users.setdefault(at, []).append(index)
        parent = list(range(len(self.devices)))

        def root(index: int) -> int:
            while parent[index] != index:
                parent[index] = parent[parent[index]]
                index = parent[index]
            return index

        for members in users.values():
            first = root(members[0])
            for other in members[1:]:
                parent[root(other)] = first
        found: dict[int, list[int]] = {}
        for index, uses in enumerate(self.uses):
            if uses:
                found.setdefault(root(index), []).append(index)
        return [tuple(members) for members in found.values() if len(members) > 1]

    @cached_property
    def cell_masks(self) -> list[int]:
        """The cells as sets."""
        return [sum(1 << index for index in members) for members in self.cells]

    @cached_property
    def consumers(self) -> list[tuple[list[Amount], list[int]]]:
        """By counter the amounts that devices consume of it, sorted, and for each the devices that consume as much or more."""
        by_amount: list[dict[Amount, int]] = [{} for _ in self.counters]
        for index, uses in enumerate(self.uses):
            for at, amount in uses:
                by_amount[at][amount] = by_amount[at].get(amount, 0) | 1 << index
        result = []
        for found in by_amount:
            amounts, masks, more = sorted(found), [], 0
            for amount in reversed(amounts):
                more |= found[amount]
                masks.append(more)
            result.append((amounts, masks[::-1]))
        return result

    @cached_property
    def forms(self) -> list[tuple[int, CellUses, tuple[int, ...]]]:
        """By cell: a number that cells share whose devices consume alike, what its devices consume, its counters by position."""
        numbers: dict[CellUses, int] = {}
        result = []
        for members in self.cells:
            counters: dict[int, int] = {}
            uses = tuple(
                tuple((counters.setdefault(at, len(counters)), each) for at, each in self.uses[index]) for index in members
            )
            result.append((numbers.setdefault(uses, len(numbers)), uses, tuple(counters)))
        return result

    @cached_property
    def kinds(self) -> list[int]:
        """By counter a number that the same counter of all sets of a driver has: sums of one kind bound what fits."""
        numbers: dict[tuple[str, str], int] = {}
        return [numbers.setdefault((driver, counter), len(numbers)) for driver, _, _, counter in self.counters]

    def least(self, candidates: int) -> dict[int, Amount]:
        """Of each kind of counter what every one of these devices consumes at least."""
        found = self._least.get(candidates)
        if found is None:
            sums = []
            for index in bits(candidates):
                amounts: dict[int, Amount] = {}
                for at, amount in self.uses[index]:
                    amounts[self.kinds[at]] = amounts.get(self.kinds[at], 0) + amount
                sums.append(amounts)
                if not amounts:
                    break
            found = {kind: min(each.get(kind, 0) for each in sums) for kind in (sums[-1] if sums else ())}
            keep(self._least, candidates, found)
        return found

    def _capacity(self, requested: tuple[tuple[str, Amount], ...]) -> tuple[int, dict[int, dict[str, Amount]]]:
        found = self._given.get(requested)
        if found is None:
            wanted = dict(requested)
            by_kind = {}
            for kind, capacity in enumerate(self._kinds):
                amounts = consumption(wanted, capacity)
                if amounts is not None:
                    by_kind[kind] = amounts
            mask = sum(1 << index for index, kind in enumerate(self._kind_of) if kind in by_kind)
            found = keep(self._given, requested, (mask, by_kind))
        return found

    def _kind(self, capacity: dict[str, Capacity]) -> int:
        for number, known in enumerate(self._kinds):
            if known == capacity:
                return number
        self._kinds.append(capacity)
        return len(self._kinds) - 1

    @cached_property
    def _tainted(self) -> int:
        return sum(1 << index for index, _ in enumerate(self.devices) if self._blocking(index))

    def _blocking(self, index: int) -> list[Taint]:
        return [each for each in self.devices[index].taints if each.effect in BLOCKING_EFFECTS]

"""Slices as pools: the newest generation of each, whether it is complete and consistent, and what of it a node can use.

A pool that is incomplete or invalid gives no devices; a request for all devices is refused while there is one on the node.
What a node sees is found without reading what others see, and kept until a slice of it changes. Nodes that see the same of a
pool get the same object.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

import msgspec

from fairlead.core.dra.model import Amount, Device, Slice
from fairlead.core.dra.reach import NO_NODES, Affected, Key, Reaches, reaches_of
from fairlead.core.model.nodes import Node

PoolId = tuple[str, str]
"""(driver, pool name)."""

_MOST_LISTS, _MOST_LOGGED = 1000, 10_000
"""Lists of pools that are kept, one for each set of selectors that nodes satisfy; and changes that they are brought up to."""


class Pool(msgspec.Struct, frozen=True, eq=False):
    """One pool as a node sees it. Two are equal if they are the same: nothing that the node sees of it has changed.

    fault: why no device of it may be allocated, empty if they may; incomplete: slices of it are missing, else it contradicts
    itself. devices: (device, its slice) in the order of slices' names. counters: (set, counter) -> amount.
    every: where there are counters, all devices of the pool by name, whether this node can use them or not.
    late: whether it comes after the others: it has devices with binding conditions.
    """

    driver: str
    name: str
    fault: str = ""
    incomplete: bool = False
    devices: tuple[tuple[Device, Slice], ...] = ()
    counters: dict[tuple[str, str], Amount] = {}
    every: dict[str, Device] = {}
    late: bool = False


_Listed = tuple[bool, str, str, Pool]
"""(late, driver, name, pool): pools are tried in this order."""


class _List(msgspec.Struct):
    """Pools in order, up to a position of the log of changes."""

    pools: list[_Listed]
    at: int = 0


def _order(each: _Listed) -> tuple[bool, str, str]:
    return each[:3]


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


class _Whole(msgspec.Struct, frozen=True):
    """What all nodes see alike of a complete pool. fault: repeated counter sets, or unknown counters."""

    counters: dict[tuple[str, str], Amount] = {}
    every: dict[str, Device] = {}
    fault: str = ""


_NO_COUNTERS = _Whole()


class _Generation:
    """The slices of one generation of a pool. by_reach: by what they reach, or what devices of them do.

    wide: how many keys of those are not names of nodes. counting: how many slices mention counters: what a node sees of a pool
    without counters is what its own slices have, else it depends on all of them.
    """

    def __init__(self, reaches: Reaches) -> None:
        self.slices: dict[str, Slice] = {}
        self.by_reach: dict[Key, dict[str, Slice]] = {}
        self.wide = self.counting = 0
        self._reaches = reaches
        self._sizes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._repeated = 0
        self._changed = False
        self._stale: set[Key] = set()
        self._valid: object = None
        self._whole: _Whole | None = None
        self._views: dict[str, dict[tuple[int, ...], Pool]] = {}

    def put(self, each: Slice) -> list[Key]:
        """Add a slice that is not there. Returns what only it reaches."""
        fresh = []
        self.slices[each.name] = each
        for reach in reaches_of(each):
            key = self._reaches.add(reach)
            if key is None:
                continue
            slices = self.by_reach.setdefault(key, {})
            if not slices:
                fresh.append(key)
                self.wide += isinstance(key, int)
            slices[each.name] = each
            self._stale.add(key)
        self._count(each, 1)
        return fresh

    def remove(self, each: Slice) -> list[Key]:
        """Remove a slice that is there. Returns what nothing reaches any more."""
        gone = []
        del self.slices[each.name]
        keys = {key for reach in reaches_of(each) if (key := self._reaches.key(reach)) is not None}
        for key in keys:
            slices = self.by_reach[key]
            del slices[each.name]
            if not slices:
                del self.by_reach[key]
                gone.append(key)
                self.wide -= isinstance(key, int)
        self._stale |= keys
        for reach in reaches_of(each):
            self._reaches.remove(reach)
        self._count(each, -1)
        return gone

    def _count(self, each: Slice, by: int) -> None:
        self._changed = True
        self._sizes[each.slices] = self._sizes.get(each.slices, 0) + by
        if not self._sizes[each.slices]:
            del self._sizes[each.slices]
        self.counting += by * _counts(each)
        for name in (device.name for device in each.devices if not each.counters):
            before = self._names.get(name, 0)
            self._repeated += (before + by > 1) - (before > 1)
            self._names[name] = before + by
            if not self._names[name]:
                del self._names[name]

    def seen(self, node: str, satisfied: tuple[int, ...]) -> Pool:
        """What a node sees that something of it reaches. satisfied: the keys that reach it otherwise than by its name."""
        if self._changed:
            self._forget()
        near = self.by_reach.get(node, {})
        chosen = tuple(each for each in satisfied if each in self.by_reach)
        views = self._views.setdefault(node if near else "", {})
        view = views.get(chosen)
        if view is None:
            usable = dict(near)
            for each in chosen:
                usable.update(self.by_reach[each])
            view = views[chosen] = self._view({node, *chosen}, [usable[name] for name in sorted(usable)])
        return view

    def _forget(self) -> None:
        """Forget what nodes see who are reached by changed slices; all, where the pool as a whole is different."""
        whole = (tuple(self._sizes.items()), self.counting)
        if whole != self._valid or self.counting or any(isinstance(each, int) for each in self._stale):
            self._views.clear()
            self._whole, self._valid = None, whole
        for each in self._stale:
            if isinstance(each, str):
                self._views.pop(each, None)
        self._stale.clear()
        self._changed = False

    def _view(self, reached: set[Key], usable: list[Slice]) -> Pool:
        first = usable[0]
        if self._sizes.keys() != {len(self.slices)}:
            fault = f"{len(self.slices)} of {max(self._sizes)} slices of generation {first.generation} are there"
            return Pool(first.driver, first.pool, fault, incomplete=True)
        whole = self._whole
        if whole is None:
            whole = self._whole = self._derived() if self.counting else _NO_COUNTERS
        found = [(device, each) for each in usable if not each.counters for device in each.devices]
        fault = _repeated((device.name for device, _ in found), "device name") if self._repeated else ""
        if fault := fault or whole.fault:
            return Pool(first.driver, first.pool, fault)
        devices = tuple(
            (device, each) for device, each in found if not each.per_device or self._reaches.key(device.reach) in reached
        )
        late = any(device.conditions for device, _ in devices)
        return Pool(
            first.driver, first.pool, "", incomplete=False, devices=devices, late=late, counters=whole.counters, every=whole.every
        )

    def _derived(self) -> _Whole:
        current = [self.slices[name] for name in sorted(self.slices)]
        counters = {(name, counter): value for each in current for name, set_ in each.counters for counter, value in set_.items()}
        every = {device.name: device for each in current if not each.counters for device in each.devices}
        fault = _repeated((name for each in current for name, _ in each.counters), "counter set")
        return _Whole(counters, every, fault or _unknown_counters(current, counters))


def _equal(one: Slice, other: Slice) -> bool:
    """Whether slices are the same, types of attributes included: `True` is not `1` to selectors."""
    return one == other and all(
        type(value) is type(device.attributes[name])
        for device, as_before in zip(one.devices, other.devices, strict=True)
        for name, value in as_before.attributes.items()
    )


def _counts(each: Slice) -> bool:
    return bool(each.counters) or any(device.counters for device in each.devices)


class Slices:
    """All slices of a cluster, by pool and by what nodes they reach.

    A change costs what its slice has, where devices of the pool consume counters what the pool has; a question costs what its
    node sees.
    """

    def __init__(self, slices: Iterable[Slice] = ()) -> None:
        self._by_name: dict[str, Slice] = {}
        self._pools: dict[PoolId, dict[int, _Generation]] = {}
        self._reaches = Reaches()
        self._by_reach: dict[Key, set[PoolId]] = {}
        self._lists: dict[tuple[int, ...], _List] = {}
        self._log: list[PoolId] = []
        for each in slices:
            self._drop(each.name)
            self._add(each)

    def put(self, each: Slice) -> Affected:
        """Add a slice, or replace the one of this name. Returns the nodes that can see something else now.

        They are those that the slice reaches, or has reached, where nothing else of its pool depends on it; else those that any
        slice of the pool's newest generation reaches, or has reached. A slice that is as it was affects no node.
        """
        known = self._by_name.get(each.name)
        if known is not None and _equal(known, each):
            return NO_NODES
        pool = (each.driver, each.pool)
        if known is not None and self._concerns_itself(known, each):
            affected = self._itself(known)
            self._drop(each.name)
            self._add(each)
            return affected | self._itself(each)
        affected = self.remove(each.name)
        before = self._reached(pool)
        self._add(each)
        if max(self._pools[pool]) == each.generation:
            affected |= before | self._reached(pool)
        return affected

    def remove(self, name: str) -> Affected:
        """Forget a slice; one that is not known is no mistake. Returns the nodes that can see something else now."""
        each = self._by_name.get(name)
        if each is None:
            return NO_NODES
        pool = (each.driver, each.pool)
        counts = max(self._pools[pool]) == each.generation
        before = self._reached(pool)
        self._drop(name)
        return before | self._reached(pool) if counts else NO_NODES

    def get(self, name: str) -> Slice | None:
        """The slice of this name."""
        return self._by_name.get(name)

    def pools(self, node: Node) -> list[Pool]:
        """The pools that a node sees, in the order in which devices are tried: by driver and name, late ones last.

        A pool is the same object for all nodes that see the same of it, and as long as no slice of it changes.
        """
        satisfied = self._reaches.satisfied(node)
        found = self._list(satisfied)
        near = self._by_reach.get(node.name, ())
        if near:
            found = list(found)
        for pool in near:  # what reaches the node otherwise of such a pool is not all that it sees
            self._place(pool, found, node.name, satisfied)
        return [each[3] for each in found]

    def _list(self, satisfied: tuple[int, ...]) -> list[_Listed]:
        """What nodes see that satisfy these selectors, without what reaches them by their names."""
        known = self._lists.get(satisfied)
        if known is None or len(self._log) - known.at > len(known.pools):
            ids = {pool for each in satisfied for pool in self._by_reach.get(each, ())}
            if len(self._lists) >= _MOST_LISTS:
                self._lists.clear()
            known = self._lists[satisfied] = _List(sorted((self._seen(each, "", satisfied) for each in ids), key=_order))
        else:
            for pool in dict.fromkeys(self._log[known.at :]):
                self._place(pool, known.pools, "", satisfied)
        known.at = len(self._log)
        return known.pools

    def _place(self, pool: PoolId, found: list[_Listed], node: str, satisfied: tuple[int, ...]) -> None:
        """Put what a node sees of a pool in the place of what was in a list before."""
        for late in (False, True):
            at = bisect_left(found, (late, *pool), key=_order)
            if at < len(found) and _order(found[at]) == (late, *pool):
                del found[at]
        if pool in self._pools:
            reached = self._current(pool).by_reach
            if node in reached or any(each in reached for each in satisfied):
                insort(found, self._seen(pool, node, satisfied), key=_order)

    def _seen(self, pool: PoolId, node: str, satisfied: tuple[int, ...]) -> _Listed:
        found = self._current(pool).seen(node, satisfied)
        return found.late, found.driver, found.name, found

    def _current(self, pool: PoolId) -> _Generation:
        generations = self._pools[pool]
        return generations[max(generations)]

    def _concerns_itself(self, known: Slice, each: Slice) -> bool:
        """Whether nodes that see nothing of a slice see the same of its pool after it is replaced.

        They do not where the pool counts its slices otherwise, or where devices of it consume counters.
        """
        if (known.driver, known.pool, known.generation, known.slices) != (each.driver, each.pool, each.generation, each.slices):
            return False
        pool = (each.driver, each.pool)
        return not _counts(each) and max(self._pools[pool]) == each.generation and not self._current(pool).counting

    def reached(self, pool: PoolId) -> Affected:
        """The nodes that can see something of a pool."""
        return self._reached(pool)

    def is_shared(self, pool: PoolId) -> bool:
        """Whether what one node has of a pool may be what another could have."""
        if pool not in self._pools:
            return False
        current = self._current(pool)
        return bool(current.wide) or (bool(current.counting) and len(current.by_reach) > 1)

    def shared(self) -> set[PoolId]:
        """The pools of which that is so."""
        return {pool for pool in self._pools if self.is_shared(pool)}

    def counters_of(self, pool: PoolId) -> dict[tuple[str, str], Amount]:
        """(set, counter) -> what a pool has, of all slices of its newest generation that are there."""
        slices = self._current(pool).slices.values() if pool in self._pools else ()
        sets = (found for each in slices for found in each.counters)
        return {(name, counter): amount for name, counters in sets for counter, amount in counters.items()}

    def _itself(self, each: Slice) -> Affected:
        return self._reaches.affected(self._reaches.key(reach) for reach in reaches_of(each))

    def _reached(self, pool: PoolId) -> Affected:
        return self._reaches.affected(self._current(pool).by_reach) if pool in self._pools else NO_NODES

    def _add(self, each: Slice) -> None:
        pool = (each.driver, each.pool)
        self._by_name[each.name] = each
        generations = self._pools.setdefault(pool, {})
        generation = generations.get(each.generation)
        if generation is None:
            replaced = self._current(pool) if generations else None
            generation = generations[each.generation] = _Generation(self._reaches)
            if replaced is not None and self._current(pool) is generation:
                self._unlist(pool, replaced.by_reach)
                self._note(pool, replaced)
        fresh = generation.put(each)
        if self._current(pool) is generation:
            self._list_under(pool, fresh)
            self._note(pool, generation)

    def _drop(self, name: str) -> None:
        each = self._by_name.pop(name, None)
        if each is None:
            return
        pool = (each.driver, each.pool)
        generations = self._pools[pool]
        generation = generations[each.generation]
        newest = generation is self._current(pool)
        if newest:
            self._note(pool, generation)
        gone = generation.remove(each)
        if newest:
            self._unlist(pool, gone)
        if not generation.slices:
            del generations[each.generation]
            if not generations:
                del self._pools[pool]
            elif newest:
                self._list_under(pool, self._current(pool).by_reach)
                self._note(pool, self._current(pool))

    def _note(self, pool: PoolId, generation: _Generation) -> None:
        """Note that a pool is different that can be in lists: a generation of it reaches nodes otherwise than by their names."""
        if generation.wide:
            self._log.append(pool)
            if len(self._log) > _MOST_LOGGED:
                self._lists.clear()
                self._log.clear()

    def _list_under(self, pool: PoolId, keys: Iterable[Key]) -> None:
        for each in keys:
            self._by_reach.setdefault(each, set()).add(pool)

    def _unlist(self, pool: PoolId, keys: Iterable[Key]) -> None:
        for each in keys:
            self._by_reach[each].discard(pool)
            if not self._by_reach[each]:
                del self._by_reach[each]

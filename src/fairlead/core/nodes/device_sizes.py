"""Sizes of GPUs in ResourceSlices, by what selectors read: the largest part of a GPU that an ask selects.

It is found from the slices that are there, whichever came first. Devices that present the same to the selectors of an ask and are
the same part of a GPU, are one kind; pools with the same kinds are one composition. An ask keeps its amount for each composition
that is there: another node of a known composition costs a step for each of its devices, and evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.core.dra import model, weights
from fairlead.core.dra.columns import Mention, presented
from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.inventory import SelectorFailure
from fairlead.core.dra.model import Amount, Ask, Device, Slice
from fairlead.core.dra.pools import PoolId

_MOST_VIEWS = 64
"""Sets of attributes that distinguish devices; beyond that an ask evaluates each device by itself."""

Kind = tuple[object, ...]
Composition = frozenset[tuple[Kind, int]]
_Counters = Mapping[tuple[str, str], Amount]


class Asked:
    """An ask with the selectors of its class. amounts: milli of a GPU -> compositions of which that is what it takes.

    largest: of these; where it selects no device, as it was while it did; None: it never did. contents: numbers of the contents
    that ask for it.
    """

    __slots__ = ("amounts", "ask", "contents", "key", "largest", "selectors", "view")

    def __init__(self, key: tuple[object, ...], ask: Ask, selectors: tuple[str, ...], view: _View) -> None:
        self.key, self.ask, self.selectors, self.view = key, ask, selectors, view
        self.amounts: dict[int, int] = {}
        self.contents: dict[int, None] = {}
        self.largest: int | None = None

    def count(self, amount: int, by: int) -> None:
        """More or fewer compositions are there of which it takes so much."""
        left = self.amounts.get(amount, 0) + by
        if left:
            self.amounts[amount] = left
        else:
            del self.amounts[amount]
        self.largest = max(self.amounts, default=self.largest)


class _View:
    """Compositions of pools as selectors with these `reads` distinguish devices; None: each device is a kind of its own."""

    def __init__(self, reads: tuple[Mention, ...] | None) -> None:
        self.reads = reads
        self.asks: dict[tuple[object, ...], Asked] = {}
        self.compositions: dict[Composition, int] = {}
        self.kinds: dict[Kind, tuple[Device, _Counters]] = {}
        self._of_pool: dict[PoolId, Composition] = {}
        self._users: dict[Kind, int] = {}

    def put(self, pool: PoolId, devices: Iterable[Device], counters: _Counters) -> tuple[Composition | None, Composition | None]:
        """A pool is as this from now on. Returns the composition that came, and the one that is gone; None: it was there."""
        counts: dict[Kind, int] = {}
        found: dict[Kind, tuple[Device, _Counters]] = {}
        for device in devices:
            kind = self._kind(pool, device, counters)
            counts[kind] = counts.get(kind, 0) + 1
            found.setdefault(kind, (device, counters))
        composition, before = frozenset(counts.items()), self._of_pool.get(pool)
        if composition == before:
            return None, None
        gone = self.remove(pool)
        self._of_pool[pool] = composition
        self.compositions[composition] = users = self.compositions.get(composition, 0) + 1
        if users > 1:
            return None, gone
        for kind, _ in composition:
            self._users[kind] = self._users.get(kind, 0) + 1
            self.kinds[kind] = found[kind]
        return composition, gone

    def remove(self, pool: PoolId) -> Composition | None:
        """A pool is gone. Returns the composition that none has any more; its kinds are known until `drop`."""
        before = self._of_pool.pop(pool, None)
        if before is None:
            return None
        self.compositions[before] -= 1
        if self.compositions[before]:
            return None
        del self.compositions[before]
        return before

    def drop(self, composition: Composition) -> None:
        """Forget the kinds of a composition that is gone."""
        for kind, _ in composition:
            self._users[kind] -= 1
            if not self._users[kind]:
                del self._users[kind], self.kinds[kind]

    def _kind(self, pool: PoolId, device: Device, counters: _Counters) -> Kind:
        seen = presented(device, self.reads) if self.reads is not None else None
        part = weights.part(device, counters)
        capacity = tuple(sorted(device.capacity.items())) if device.multiple else ()
        return (seen if seen is not None else (*pool, device.name)), part, capacity

    @property
    def entries(self) -> int:
        """What it remembers."""
        return len(self.asks) + len(self.compositions) + len(self.kinds) + len(self._of_pool)


class DeviceSizes:
    """GPUs of the newest generation of each pool. One that is incomplete counts as it was when it was complete last.

    changed: asks of which the largest may be another one.
    """

    def __init__(self, matches: Evaluation) -> None:
        self.changed: dict[tuple[object, ...], Asked] = {}
        self._matches = matches
        self._pool_of: dict[str, PoolId] = {}
        self._slices: dict[PoolId, dict[str, Slice]] = {}
        self._pools: dict[PoolId, tuple[tuple[Device, ...], _Counters]] = {}
        self._views: dict[tuple[Mention, ...] | None, _View] = {}

    # -- slices --------------------------------------------------------------------------------

    def put(self, item: Slice) -> None:
        """A slice came or changed."""
        pool = (item.driver, item.pool)
        if self._pool_of.get(item.name, pool) != pool:
            self.remove(item.name)
        if not weights.is_gpu(item.driver):
            return
        self._pool_of[item.name] = pool
        self._slices.setdefault(pool, {})[item.name] = item
        self._settle(pool)

    def remove(self, name: str) -> None:
        """A slice is gone; one that is not known is no news."""
        pool = self._pool_of.pop(name, None)
        if pool is not None:
            del self._slices[pool][name]
            self._settle(pool)

    def _settle(self, pool: PoolId) -> None:
        slices = self._slices[pool]
        if not slices:
            del self._slices[pool]
            if self._pools.pop(pool, None) is not None:
                for view in self._views.values():
                    self._note(view, None, view.remove(pool))
            return
        newest = max(each.generation for each in slices.values())
        current = [each for _, each in sorted(slices.items()) if each.generation == newest]
        if any(each.slices != len(current) for each in current):
            return
        counters = {(name, counter): value for each in current for name, of in each.counters for counter, value in of.items()}
        self._pools[pool] = found = (tuple(device for each in current for device in each.devices), counters)
        for view in self._views.values():
            self._note(view, *view.put(pool, *found))

    def _note(self, view: _View, came: Composition | None, gone: Composition | None) -> None:
        for asked in view.asks.values() if came is not None or gone is not None else ():
            before = asked.largest
            if came is not None:
                self._count(asked, came, 1)
            if gone is not None:
                self._count(asked, gone, -1)
            if asked.largest != before:
                self.changed[asked.key] = asked
        if gone is not None:
            view.drop(gone)

    # -- asks ----------------------------------------------------------------------------------

    def follow(self, number: int, ask: Ask, selectors: tuple[str, ...]) -> Asked:
        """What a content asks for, from now on until `leave`. selectors: those of the class, and of the ask."""
        reads = self._matches.reads(selectors)
        if reads not in self._views and len(self._views) >= _MOST_VIEWS:
            reads = None
        view = self._views.get(reads)
        if view is None:
            view = self._views[reads] = _View(reads)
            for pool, found in self._pools.items():
                view.put(pool, *found)
        key = (reads, selectors, ask.mode, ask.capacity, ask.admin)
        asked = view.asks.get(key)
        if asked is None:
            asked = view.asks[key] = Asked(key, ask, selectors, view)
            for composition in view.compositions:
                self._count(asked, composition, 1)
        asked.contents[number] = None
        return asked

    def leave(self, number: int, asked: Asked) -> None:
        """A content is forgotten, or asks for something else."""
        asked.contents.pop(number, None)
        if asked.contents:
            return
        asked.view.asks.pop(asked.key, None)
        self.changed.pop(asked.key, None)
        if not asked.view.asks:
            self._views.pop(asked.view.reads, None)

    def _count(self, asked: Asked, composition: Composition, by: int) -> None:
        amount = self._amount(asked, composition)
        if amount is not None:
            asked.count(amount, by)

    def _amount(self, asked: Asked, composition: Composition) -> int | None:
        """What an ask takes of a pool: its largest device, or all together; None: it selects none of them."""
        amounts = []
        for kind, count in composition:
            device, counters = asked.view.kinds[kind]
            if not asked.ask.admin and self._selects(asked.selectors, device):
                milli = weights.milli_of_ask(device, counters, asked.ask)
                amounts.append(milli if asked.ask.mode == model.EXACT else count * milli)
        if not amounts:
            return None
        return max(amounts) if asked.ask.mode == model.EXACT else sum(amounts)

    def _selects(self, selectors: tuple[str, ...], device: Device) -> bool:
        try:
            return all(self._matches(each, device) for each in selectors)
        except SelectorFailure:
            return False

    @property
    def entries(self) -> int:
        """What is remembered."""
        return len(self._pool_of) + len(self._pools) + sum(each.entries for each in self._views.values())

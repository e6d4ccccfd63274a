"""Shared resources: amounts that all nodes of a pool share, such as the bandwidth of its storage, and what pods there take.

A NodePool declares them. A pod takes what it asks for from each pool of its node that declares the name; nodes that are in no
such pool offer none of it. All of it is under the undo log, so what is tried takes and gives back like amounts of a node. Where
no pool declares anything, nothing but what pods take on their rows is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.nodes import Node, NodePool
from fairlead.core.model.selectors import matches
from fairlead.core.model.undo import UndoLog

Amounts = tuple[tuple[str, int], ...]
"""What a pod takes: (name, amount)."""
Key = tuple[str, str]
"""A pool, and the name of what its nodes share."""
_UNBOUNDED = 1 << 100
MANY = 1 << 40
"""More pods than any row holds, and of many rows the sum is still no overflow."""


class SharedResources:
    """declared: pool -> name -> amount, of pools that declare any. used: what pods of a pool take.

    version: that of `used`, `declared`, and which rows are in the pools; described: raised when one of the latter two changes.
    """

    def __init__(self, log: UndoLog, rows: Mapping[str, int], objects: Sequence[Node | None]) -> None:
        """rows: of nodes, by name; objects: the nodes, by row."""
        self._log = log
        self._rows = rows
        self._objects = objects
        self._pools: dict[str, NodePool] = {}
        self.declared: dict[str, dict[str, int]] = {}
        self.used: dict[Key, int] = {}
        self.version = 0
        self.described = 0
        self._pools_of: dict[int, tuple[str, ...]] = {}  # of rows in any of these pools
        self._taken: dict[int, dict[str, int]] = {}  # row -> name -> what its pods take; names may remain with 0
        self._masks: dict[str, Mask] = {}
        self._ignored = False
        self._closed: tuple[tuple[Amounts, int, int], Mask] | None = None

    # -- events --------------------------------------------------------------------------------

    def upsert_pool(self, pool: NodePool) -> None:
        """A node pool came or changed."""
        before = self._pools.get(pool.name)
        if before == pool or not (pool.shared or before is not None):
            return
        if pool.shared:
            self._pools[pool.name], self.declared[pool.name] = pool, dict(pool.shared)
        else:
            del self._pools[pool.name], self.declared[pool.name]
        self._sort()

    def remove_pool(self, name: str) -> None:
        """A node pool is gone."""
        if self._pools.pop(name, None) is not None:
            del self.declared[name]
            self._sort()

    def follow(self, row: int) -> None:
        """A node came, went, or changed: it may be in other pools. What its pods take is taken there from now on."""
        pools, before = self._of(row), self._pools_of.get(row, ())
        if pools == before:
            return
        self._take_all(row, -1)
        if pools:
            self._pools_of[row] = pools
        else:
            del self._pools_of[row]
        self._take_all(row, 1)
        self._rows_changed()

    def _sort(self) -> None:
        """Put all rows into their pools anew."""
        self._pools_of = {row: pools for row in self._rows.values() if (pools := self._of(row))}
        self._rows_changed()
        self._sum()

    def _rows_changed(self) -> None:
        self._masks.clear()
        self.described += 1
        self._log.renew(self)

    def _of(self, row: int) -> tuple[str, ...]:
        node = self._objects[row]
        if node is None:
            return ()
        return tuple(name for name, pool in sorted(self._pools.items()) if matches(pool.nodes, node.labels))

    def _take_all(self, row: int, sign: int) -> None:
        for key, amount in self.parts(self._taken.get(row, {}).items(), row):
            self.used[key] = self.used.get(key, 0) + sign * amount

    def _sum(self) -> None:
        self.used.clear()
        for row in self._taken:
            self._take_all(row, 1)

    # -- what is taken ---------------------------------------------------------------------------

    def add(self, amounts: Amounts, row: int, by: int) -> None:
        """A pod came to a row (1) or left it (-1)."""
        log, taken = self._log, self._taken.setdefault(row, {})
        for name, amount in amounts:
            log.add(taken, name, by * amount)
        for key, amount in self.parts(amounts, row):
            log.add(self.used, key, by * amount)
        log.renew(self)

    def recount(self, there: Iterable[tuple[Amounts, int]]) -> None:
        """Count anew what pods take. there: what each takes, and on which row. Nothing may be tried meanwhile."""
        self._taken.clear()
        for amounts, row in there:
            taken = self._taken.setdefault(row, {})
            for name, amount in amounts:
                taken[name] = taken.get(name, 0) + amount
        self._sum()
        self._log.renew(self)

    # -- questions -------------------------------------------------------------------------------

    def keys(self, row: int, name: str) -> list[Key]:
        """From which pools a pod on a row takes something."""
        return [(pool, name) for pool in self._pools_of.get(row, ()) if name in self.declared[pool]]

    def listed(self, row: int) -> list[tuple[str, str, int, int, int]]:
        """What the pools of a row share: pool, name, how much is declared, taken and free."""
        return [
            (pool, name, amount, self.used.get((pool, name), 0), max(0, self.free((pool, name))))
            for pool in self._pools_of.get(row, ())
            for name, amount in self.declared[pool].items()
        ]

    def parts(self, amounts: Iterable[tuple[str, int]], row: int) -> Iterator[tuple[Key, int]]:
        """What a pod on a row that takes so much takes of which pool."""
        return ((key, amount) for name, amount in amounts for key in self.keys(row, name))

    def pools_with(self, name: str) -> list[str]:
        """The pools that declare a name."""
        return [pool for pool, declared in sorted(self.declared.items()) if name in declared]

    def free(self, key: Key) -> int:
        """What is free; below 0 where more is taken than is declared."""
        pool, name = key
        if self._ignored:
            return _UNBOUNDED
        return self.declared[pool][name] - self.used.get(key, 0)

    def taken_on(self, row: int, name: str) -> int:
        """What pods on a row take."""
        return self._taken.get(row, {}).get(name, 0)

    def total(self, name: str, pool: str = "") -> int:
        """What all pools declare of a name, or one of them does."""
        return sum(self.declared[each].get(name, 0) for each in ([pool] if pool else self.declared) if each in self.declared)

    def rows(self) -> list[int]:
        """The rows whose pods take anything, or did."""
        return sorted(self._taken)

    def mask(self, pool: str) -> Mask:
        """For each row whether it is in a pool that declares something, shape (rows,), not to be written to."""
        count, known = len(self._objects), self._masks.get(pool)
        if known is None or len(known) != count:
            known = self._masks[pool] = np.zeros(count, np.bool_)
            known[[row for row, pools in self._pools_of.items() if pool in pools]] = True
        return known

    def closed(self, amounts: Amounts) -> Mask:
        """For each row whether a pod that takes so much is kept off, shape (rows,), not to be written to."""
        at = amounts, -1 if self._ignored else self.version, len(self._objects)
        if self._closed is None or self._closed[0] != at:
            shut: Mask = np.zeros(len(self._objects), np.bool_)
            for name, amount in amounts:
                offered: Mask = np.zeros(len(self._objects), np.bool_)
                for pool in self.pools_with(name):
                    rows = self.mask(pool)
                    offered |= rows
                    if self.free((pool, name)) < amount:
                        shut |= rows
                shut |= ~offered
            self._closed = at, shut
        return self._closed[1]

    def refuses(self, amounts: Amounts, row: int) -> bool:
        """The same of one row."""
        for name, amount in amounts:
            keys = self.keys(row, name)
            if not keys or any(self.free(key) < amount for key in keys):
                return True
        return False

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """In this context no pool has too little left."""
        self._ignored = True
        try:
            yield
        finally:
            self._ignored = False

    def never(self, amounts: Amounts, row: int) -> bool:
        """Whether a row is closed to it whatever its pools' other pods take."""
        for name, amount in amounts:
            keys = self.keys(row, name)
            if not keys or any(self.declared[pool][name] < amount for pool, _ in keys):
                return True
        return False

    def most(self, amounts: Amounts, *, empty: bool = False) -> Ints:
        """For each row how many such pods it takes at most, shape (rows,). empty: were nothing taken."""
        found: Ints = np.full(len(self._objects), MANY, np.int64)
        for name, amount in amounts:
            held: Ints = np.full(len(self._objects), -1, np.int64)
            for pool in self.pools_with(name):
                free = self.declared[pool][name] if empty else max(0, self.free((pool, name)))
                rows, here = self.mask(pool), min(MANY, free // amount)
                held[rows] = np.where(held[rows] < 0, here, np.minimum(held[rows], here))
            found = np.minimum(found, np.maximum(held, 0))
        return found

    def short(self, wanted: Mapping[str, int]) -> set[Key]:
        """The pools that have less free than is wanted, by name."""
        return {
            (pool, name) for name, amount in wanted.items() for pool in self.pools_with(name) if self.free((pool, name)) < amount
        }

    def lacks(self, wanted: Mapping[str, int]) -> bool:
        """Whether all pools together have too little free of something: no choice of nodes helps."""
        return any(
            sum(max(0, self.free((pool, name))) for pool in self.pools_with(name)) < amount for name, amount in wanted.items()
        )

    def problems(self, there: Iterable[tuple[Amounts, int]]) -> list[str]:
        """What is not counted as it should be. there: as in `recount`."""
        right: dict[Key, int] = {}
        for amounts, row in there:
            for key, amount in self.parts(amounts, row):
                right[key] = right.get(key, 0) + amount
        counted = {key: amount for key, amount in self.used.items() if amount}
        return [f"shared resources are counted as {counted}, not {right}"] if counted != right else []


def wanted_by(asked: Iterable[Amounts]) -> dict[str, int]:
    """What pods ask for together, by name."""
    found: dict[str, int] = {}
    for amounts in asked:
        for name, amount in amounts:
            found[name] = found.get(name, 0) + amount
    return found

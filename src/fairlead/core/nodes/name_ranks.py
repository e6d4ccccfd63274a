"""Name ranks: a number per row that sorts as the names do (greater = earlier name): one integer key holds score and tie."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.nodes.row_changes import RowChanges

NAME_RANK_BITS = 30
_NAME_RANKS = 1 << NAME_RANK_BITS
_BULK = 16


class NameRanks:
    """column: the name rank of every row. rows: the row of every name rank. unranked: names of nodes that have none yet."""

    def __init__(self, capacity: int, rows: Mapping[str, int], changes: RowChanges) -> None:
        self.column: Ints = np.zeros(capacity, np.int64)
        self.rows: dict[int, int] = {}
        self.unranked: list[str] = []
        self._row_of = rows
        self._changes = changes
        self._sorted: list[str] = []
        self._ranks: dict[str, int] = {}

    def grow(self) -> None:
        """There are twice as many rows."""
        self.column = np.concatenate([self.column, np.zeros_like(self.column)])

    def settle(self) -> None:
        """Give new rows name ranks between those of their neighbours by name; all anew where crowded."""
        if not self.unranked:
            return
        new = [name for name in self.unranked if name in self._row_of and name not in self._ranks]
        self.unranked.clear()
        for done, name in enumerate(new):
            at = bisect_left(self._sorted, name)
            above = self._ranks[self._sorted[at - 1]] if at else _NAME_RANKS
            below = self._ranks[self._sorted[at]] if at < len(self._sorted) else 0
            if len(new) - done > _BULK or above - below < 2:
                self._rank_all()
                return
            insort(self._sorted, name)
            self._set(name, self._row_of[name], (above + below) // 2)
            self._changes.touch(self._row_of[name])

    def remove(self, name: str, row: int) -> None:
        """A node is gone from its row."""
        if name in self._ranks:
            self.rows.pop(self._ranks.pop(name), None)
            del self._sorted[bisect_left(self._sorted, name)]
        self.column[row] = 0
        self.settle()

    def _rank_all(self) -> None:
        self._sorted = sorted(self._row_of)
        step = _NAME_RANKS // (len(self._sorted) + 1)
        self.rows.clear()
        for place, name in enumerate(self._sorted, 1):
            self._set(name, self._row_of[name], _NAME_RANKS - place * step)
        self._changes.renew()

    def _set(self, name: str, row: int, name_rank: int) -> None:
        self._ranks[name] = name_rank
        self.column[row] = name_rank
        self.rows[name_rank] = row

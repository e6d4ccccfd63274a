"""Shortages: how many of some rows have too little free of a resource, for messages. Asked anew for all that is refused.

The amounts of the rows are kept in order, and follow the rows that changed, so that an answer is one binary search.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from fairlead.core.model.arrays import Ints, RowNumbers
from fairlead.core.nodes.row_changes import RowChanges

_AT_ONCE = 48  # rows that are put in their places one by one; more are sorted anew
_REMEMBERED = 32  # lines of amounts: some resources of some sets of rows


class _Line:
    """One resource on some rows. frees: what each row had, by row; ordered: what these rows had, in ascending order."""

    __slots__ = ("among", "frees", "generation", "ordered", "place")

    def __init__(self, rows: RowNumbers, count: int) -> None:
        self.among = np.zeros(count, np.bool_)
        self.among[rows] = True
        self.generation = -1
        self.place = 0
        self.frees: Ints = np.zeros(0, np.int64)
        self.ordered: Ints = np.zeros(0, np.int64)


class Shortages:
    """By rows and resource, those asked about last."""

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes
        self._found: tuple[tuple[int, int, int], RowNumbers] = (-1, 0, 0), np.zeros(0, np.int32)
        self._lines: OrderedDict[tuple[int, int], tuple[RowNumbers, _Line]] = OrderedDict()

    def count(self, rows: RowNumbers, column: int, amount: int, free: Ints) -> int:
        """How many of these rows have less of a resource. rows: each once, the same array as long as they are the same.

        free: what all rows have free of it now, shape (rows,).
        """
        key = id(rows), column
        known = self._lines.get(key)
        if known is None or known[0] is not rows:
            known = self._lines[key] = rows, _Line(rows, len(free))
            if len(self._lines) > _REMEMBERED:
                self._lines.popitem(last=False)
        else:
            self._lines.move_to_end(key)
        line = known[1]
        self._follow(line, rows, free)
        return int(line.ordered.searchsorted(amount))

    def _follow(self, line: _Line, rows: RowNumbers, free: Ints) -> None:
        changes = self._changes
        if line.generation == changes.generation and line.place == changes.end:
            return
        changed = self._since(line.place) if line.generation == changes.generation else None
        line.generation, line.place = changes.generation, changes.end
        if changed is not None:
            changed = changed[changed < len(line.among)]
            changed = changed[line.among[changed] & (free[changed] != line.frees[changed])]
        if changed is None or len(changed) > _AT_ONCE:
            line.frees = free[: len(line.among)].copy()
            line.ordered = np.sort(line.frees[rows])
            return
        for row in changed.tolist():
            _move(line.ordered, line.frees.item(row), now := free.item(row))
            line.frees[row] = now

    def _since(self, place: int) -> RowNumbers:
        """The rows that changed from a place in the ring on: asked of several resources in a row."""
        at = self._changes.generation, place, self._changes.end
        if self._found[0] != at:
            self._found = at, self._changes.since(place)
        return self._found[1]


def _move(ordered: Ints, old: int, new: int) -> None:
    """One amount becomes another one."""
    start, end = int(ordered.searchsorted(old)), int(ordered.searchsorted(new))
    if old < new:
        ordered[start : end - 1] = ordered[start + 1 : end]
        ordered[end - 1] = new
    else:
        ordered[end + 1 : start + 1] = ordered[end:start]
        ordered[end] = new

"""Free rows: those with enough free of a resource, where they are few. On a full cluster no shape need score any others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.nodes.row_changes import RowChanges

_FEW = 8  # rows that are asked about one by one
_AT_ONCE = 16  # changes of rows that are followed one by one; behind more, all rows are compared
_REMEMBERED = 64


class _Known:
    """Rows with enough of one resource. rows: None where they are more than few; count: how many there were."""

    __slots__ = ("count", "generation", "place", "rows")

    def __init__(self) -> None:
        self.generation = -1
        self.place = 0  # in the ring of changes
        self.rows: list[int] | None = None
        self.count = 0


class FreeRows:
    """By resource and amount. What was found is brought up to date by the rows that changed since."""

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes
        self._known: dict[tuple[int, int], _Known] = {}

    def at_least(self, column: int, amount: int, free: Ints) -> Sequence[int] | None:
        """The rows with so much free of a resource, open or not, in ascending order; None: they are more than a few.

        free: what all rows have free of it now, shape (rows,).
        """
        changes, key = self._changes, (column, amount)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[key] = _Known()
        if known.generation != changes.generation:
            return self._find(known, free, amount)
        behind = changes.end - known.place
        if not behind:
            return known.rows
        if known.rows is None:
            # Each change takes away one of them at most.
            return None if known.count - behind > _FEW else self._find(known, free, amount)
        if behind > _AT_ONCE:
            return self._find(known, free, amount)
        found = set(known.rows)
        for row in changes.ring[known.place : changes.end].tolist():
            if free.item(row) >= amount:
                found.add(row)
            else:
                found.discard(row)
        known.place = changes.end
        return self._note(known, sorted(found))

    def _find(self, known: _Known, free: Ints, amount: int) -> Sequence[int] | None:
        known.generation, known.place = self._changes.generation, self._changes.end
        return self._note(known, np.flatnonzero(free >= amount).tolist())

    @staticmethod
    def _note(known: _Known, rows: list[int]) -> Sequence[int] | None:
        known.count = len(rows)
        known.rows = rows if len(rows) <= _FEW else None
        return known.rows

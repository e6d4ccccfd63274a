"""Which rows have no devices for what shapes ask for by claims: one array for all shapes that ask for the same.

A verdict counts until what the row's node can use changes (`NodeDevices.versions`); these versions are under the undo log, so one
that was found in a trial is found anew outside of it. Arrays go with the last shape that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

import numpy as np

from fairlead.core.model.arrays import Ints, Mask

_NEW = -1


class RowCounts:
    """By row a number, and the version of the row for which it was found."""

    def __init__(self) -> None:
        self._counts: Ints = np.zeros(0, np.int64)
        self._at: Ints = np.zeros(0, np.int64)
        self._seen: tuple[int, ...] = ()

    def counted(self, now: Ints, seen: tuple[int, ...], count_on: Callable[[int], int]) -> Ints:
        """The numbers of all rows, shape (count,); not to be written to. The same versions as for `Verdicts.refused`."""
        if seen != self._seen or len(self._at) != len(now):
            self._seen = seen
            self._counts = np.zeros(len(now), np.int64)
            self._at = np.full(len(now), _NEW, np.int64)
        stale = np.flatnonzero(self._at != now)
        for row in stale.tolist():
            self._counts[row] = count_on(row)
        self._at[stale] = now[stale]
        return self._counts


class Verdicts:
    """By row whether it is refused, and the version of the row for which that was found.

    free, empty: by row how many pods it has devices for at most, now and were none held.
    """

    def __init__(self) -> None:
        self.free, self.empty = RowCounts(), RowCounts()
        self._refused: Mask = np.zeros(0, np.bool_)
        self._at: Ints = np.zeros(0, np.int64)
        self._seen: tuple[int, ...] = ()

    def refused(self, now: Ints, seen: tuple[int, ...], refuses: Callable[[int], bool]) -> Mask:
        """The mask of rows that are refused, shape (count,); not to be written to.

        now: the version of each row, shape (count,). seen: versions of what concerns all rows. refuses: finds a verdict.
        """
        count = len(now)
        if seen != self._seen or len(self._at) > count:
            self._seen = seen
            self._refused = np.zeros(0, np.bool_)
            self._at = np.zeros(0, np.int64)
        if len(self._at) < count:
            more = count - len(self._at)
            self._at = np.concatenate([self._at, np.full(more, _NEW, np.int64)])
            self._refused = np.concatenate([self._refused, np.zeros(more, np.bool_)])
        stale = np.flatnonzero(self._at != now)
        for row in stale.tolist():
            self._refused[row] = refuses(row)
        self._at[stale] = now[stale]
        return self._refused


class SharedVerdicts:
    """Verdicts by what is asked for."""

    def __init__(self) -> None:
        self._by_asked: WeakValueDictionary[Hashable, Verdicts] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_asked)

    def of(self, asked: Hashable) -> Verdicts:
        """Those of all that ask for this."""
        found = self._by_asked.get(asked)
        if found is None:
            found = self._by_asked[asked] = Verdicts()
        return found

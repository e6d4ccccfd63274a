"""Row changes: a ring of the rows that changed, in order. Caches that are out of date repair just those rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints

_RING = 1 << 16
_PLACES = np.arange(_RING)
_GATHERED = 8  # an entry of the ring costs about as much as so many rows' stamps


class RowChanges:
    """generation: raised when so much changed that every cache starts afresh. end: the place of the next change in the ring."""

    def __init__(self, capacity: int) -> None:
        self.ring: npt.NDArray[np.int32] = np.zeros(_RING, np.int32)
        self.end = 0
        self.generation = 0
        self._stamp: Ints = np.full(capacity, -1, np.int64)  # a row's latest place in the ring

    def touch(self, row: int) -> None:
        """A row changed: every shape must score it again."""
        end = self.end
        if end == _RING:
            self.renew()
            end = 0
        self.ring[end] = row
        self._stamp[row] = end
        self.end = end + 1

    def since(self, place: int) -> npt.NDArray[np.int32]:
        """The rows entered into the ring from a place on, each once, in any order."""
        if (self.end - place) * _GATHERED > len(self._stamp):
            # Trials touch the same few rows over and over: to read the stamps of all rows costs less than to read all entries.
            return np.flatnonzero(self._stamp >= place).astype(np.int32)
        rows = self.ring[place : self.end]
        latest: npt.NDArray[np.int32] = rows[self._stamp[rows] == _PLACES[place : self.end]]
        return latest

    def renew(self) -> None:
        """Too much changed: every shape starts afresh."""
        self.generation += 1
        self.end = 0
        self._stamp.fill(-1)

    def grow(self) -> None:
        """There are twice as many rows."""
        self._stamp = np.concatenate([self._stamp, np.zeros_like(self._stamp)])
        self.renew()

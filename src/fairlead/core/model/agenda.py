"""What is due when: one time for each key, the earliest first. What was dropped or replaced takes no memory for long."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

_SLACK = 64  # stale entries that are always kept


class Agenda:
    """Times by key. Times in seconds."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []  # some entries are stale: their key has another time by now, or none

    def __len__(self) -> int:
        return len(self._times)

    @property
    def entries(self) -> int:
        """Entries held in memory, stale ones included."""
        return len(self._heap)

    def put(self, key: str, at: float) -> None:
        """The time of a key, instead of the one it had."""
        if self._times.get(key) == at:
            return
        self._times[key] = at
        heappush(self._heap, (at, key))
        self._sweep()

    def drop(self, key: str) -> None:
        """A key has no time any more."""
        if self._times.pop(key, None) is not None:
            self._sweep()

    @property
    def next(self) -> float | None:
        """The earliest time."""
        self._clear_head()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[str]:
        """The keys whose time has come, in order of time and key; each is dropped before it is yielded, and may be put again."""
        while (at := self.next) is not None and at <= now:
            _, key = heappop(self._heap)
            del self._times[key]
            yield key

    def _clear_head(self) -> None:
        heap = self._heap
        while heap and self._times.get(heap[0][1]) != heap[0][0]:
            heappop(heap)

    def _sweep(self) -> None:
        """Leave out what is stale once it outnumbers the rest."""
        if len(self._heap) > 2 * len(self._times) + _SLACK:
            self._heap = [(at, key) for key, at in self._times.items()]
            heapify(self._heap)

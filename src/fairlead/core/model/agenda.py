"""What is due when. An agenda has one time for each key, the earliest first; `Timers` has all agendas that passes are due for.

What was dropped or replaced takes no memory for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

SLACK = 64
"""Stale entries that are always kept where such entries are dropped once they outnumber the others."""


class _Key(Protocol):
    """What may be a key: it can be hashed, and keys of one time have an order."""

    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Key)


class Agenda(Generic[K]):
    """Times by key. Times in seconds."""

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []  # some entries are stale: their key has another time by now, or none

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: object) -> bool:
        return key in self._times

    @property
    def entries(self) -> int:
        """Entries held in memory, stale ones included."""
        return len(self._heap)

    def at(self, key: K) -> float | None:
        """The time of a key."""
        return self._times.get(key)

    def put(self, key: K, at: float) -> None:
        """The time of a key, instead of the one it had."""
        if self._times.get(key) == at:
            return
        self._times[key] = at
        heappush(self._heap, (at, key))
        self._sweep()

    def restore(self, saved: tuple[K, float | None]) -> None:
        """A key has the time again that it had, if it had one: as the undo log calls it."""
        key, at = saved
        if at is None:
            self.drop(key)
        else:
            self.put(key, at)

    def drop(self, key: K) -> None:
        """A key has no time any more."""
        if self._times.pop(key, None) is not None:
            self._sweep()

    @property
    def next(self) -> float | None:
        """The earliest time."""
        self._clear_head()
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[K]:
        """The keys whose time has come, in order of time and key; each is dropped before it is yielded, and may be put again."""
        while (at := self.next) is not None and at <= now:
            _, key = heappop(self._heap)
            del self._times[key]
            yield key

    def passed(self, now: float) -> list[K]:
        """The keys whose time has come, in order; none is dropped."""
        at = self.next
        return sorted(key for key, at in self._times.items() if at <= now) if at is not None and at <= now else []

    def _clear_head(self) -> None:
        heap = self._heap
        while heap and self._times.get(heap[0][1]) != heap[0][0]:
            heappop(heap)

    def _sweep(self) -> None:
        """Leave out what is stale once it outnumbers the rest."""
        if len(self._heap) > 2 * len(self._times) + SLACK:
            self._heap = [(at, key) for key, at in self._times.items()]
            heapify(self._heap)


class Timers:
    """By name, everything for which a pass is due at some time although nothing happens: agendas, and times that are derived."""

    def __init__(self) -> None:
        self._agendas: dict[str, Agenda[Any]] = {}
        self._derived: dict[str, Callable[[], float | None]] = {}

    def agenda(self, name: str) -> Agenda[Any]:
        """A new agenda: passes are due at its times."""
        made = self._agendas[name] = Agenda()
        return made

    def derive(self, name: str, due: Callable[[], float | None]) -> None:
        """A pass is due at the time that this returns, whenever it is called."""
        self._derived[name] = due

    def of(self, name: str) -> float | None:
        """When a pass is due for one of them."""
        agenda = self._agendas.get(name)
        return agenda.next if agenda is not None else self._derived[name]()

    @property
    def next(self) -> float | None:
        """When the next pass is due."""
        times = [agenda.next for agenda in self._agendas.values()] + [due() for due in self._derived.values()]
        return min((time for time in times if time is not None), default=None)

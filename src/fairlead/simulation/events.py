"""A virtual clock: events in order of time, ties in order of entry."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """Events with their times in seconds; `pop` moves the clock to the next one."""

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Event]] = []
        self._entered = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, at: float, event: Event) -> None:
        """Let an event happen at a time that is not past."""
        self._entered += 1
        heappush(self._entries, (max(at, self.now), self._entered, event))

    @property
    def next_time(self) -> float | None:
        """When the next event happens."""
        return self._entries[0][0] if self._entries else None

    def pop(self) -> Event:
        """The next event; the clock stands at its time afterwards."""
        self.now, _, event = heappop(self._entries)
        return event

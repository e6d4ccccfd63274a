"""Time of a simulated cluster, and a loop on which a day passes in seconds.

Everything in the simulated cluster asks its `Clock`: wall time laid over an asyncio loop's time. On
a real loop it may run faster than the wall; on a `VirtualLoop` time jumps to the next timer whenever
nothing is ready to run, so a run depends on its seed alone.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache

_NEVER = 1e9


class Deadlock(RuntimeError):
    """Everything on a virtual loop waits and no timer is set."""


class _Jump(selectors.SelectSelector):
    """Never waits: where a real selector would block, virtual time moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        if timeout > 0:
            self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without I/O and without waiting. Threads and sockets do not work on it."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jump.now


class Clock:
    """Seconds since the epoch in the simulated cluster. speed: of its time against the loop's."""

    def __init__(self, *, start: float, speed: float = 1.0, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.speed = speed
        self.start = start
        self._loop = loop
        self._zero = loop.time() if loop is not None else 0.0

    def now(self) -> float:
        """The time in the cluster."""
        if self._loop is None:
            return self.start
        return self.start + (self._loop.time() - self._zero) * self.speed

    def call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle | None:
        """Call after so many of the cluster's seconds. Without a loop time stands still and nothing is called."""
        if self._loop is None:
            return None
        return self._loop.call_later(min(max(0.0, seconds), _NEVER) / self.speed, call)

    def text(self, at: float | None = None) -> str:
        """A time as Kubernetes writes it."""
        return rfc3339(int(self.now() if at is None else at))


@lru_cache(maxsize=1024)
def rfc3339(seconds: int) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

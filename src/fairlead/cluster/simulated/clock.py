"""Time of a simulated cluster, and a loop on which a day passes in seconds.

Everything in the simulated cluster asks its `Clock`: wall time laid over an asyncio loop's time. On
a real loop it may run faster than the wall; on a `VirtualLoop` time jumps to the next timer whenever
nothing is ready to run, so a run depends on its seed alone.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any

from fairlead.cluster.times import timestamp

_NEVER = 1e9
_RESOLUTION = 1e-9  # timers that are due so close to each other are due together


class Deadlock(RuntimeError):
    """Everything on a virtual loop waits and no timer is set."""


class _Soon(asyncio.Handle):
    """What is called next. asyncio's own asks the loop for its debug mode each time: a tenth of a simulated day went there."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: asyncio.AbstractEventLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    """What is called at a time."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        _Soon.__init__(self, callback, args, loop, context)  # type: ignore[arg-type]
        self._when = when
        self._scheduled = False  # by asyncio's own book, which is not kept


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without I/O and without waiting: where nothing is ready, time moves on to the next timer.

    Timers that are due at one time are called in the order in which they were set. Threads and sockets do not work on it.
    """

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._set = 0  # timers that were set

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def spend(self, seconds: float) -> None:
        """Let time pass in the midst of a call."""
        self._now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it next."""
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it at a time."""
        timer = _Timer(when, callback, args, self, context)
        self._set += 1
        heappush(self._timers, (when, self._set, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call it after so many seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """One turn: what is ready now, or else at the next time at which anything is."""
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            while timers and timers[0][2]._cancelled:  # noqa: SLF001 - asyncio's own loop does the same
                heappop(timers)
            if not timers:
                raise Deadlock("every task waits and no timer is set")
            self._now = max(self._now, timers[0][0])
        due = self._now + _RESOLUTION
        while timers and timers[0][0] < due:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:  # noqa: SLF001 - as above
                handle._run()  # noqa: SLF001 - as above


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
        return timestamp(int(self.now() if at is None else at))

"""Three lines of writes before one pool of writers: urgent ones first, then conditions and statuses, then events.

Later lines move only when nothing urgent waits, is being written, or is about to be decided, so that nothing stands between a
decision and its binding; but none waits longer than `_PATIENCE`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from fairlead.cluster.transport import Unreachable

log = structlog.get_logger("applier")

URGENT, STATUS, EVENT = range(3)

_PATIENCE = 30.0
_POLL_SECONDS = 0.01
# More writes in flight cost the API server less each, but every connection costs a handshake: width follows the backlog.
_WIDTH, _DEPTH = 64, 40

Work = Callable[[], Awaitable[None]]


class Lines:
    """What waits to be written, and the writers. busy: whether more urgent writes are about to be decided."""

    def __init__(self, writers: int, busy: Callable[[], bool]) -> None:
        self.in_flight = 0
        self._writers = writers
        self._busy = busy
        self._lines: tuple[deque[tuple[float, Work]], ...] = (deque(), deque(), deque())
        self._width = _WIDTH
        self._urgent = 0  # urgent writes in flight, those that are held for included
        self._idle: deque[asyncio.Future[None]] = deque()
        self._called = 0  # writers that were idle, and have not chosen yet
        self._polling = False
        self._ended = asyncio.Event()  # a write has

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._writers):
                group.create_task(self._write())

    async def drain(self) -> None:
        """Return once urgent writes, and those in flight, have ended. The others are given up."""
        for line in self._lines[1:]:
            line.clear()
        while self._lines[URGENT] or self.in_flight:
            self._ended.clear()
            await self._ended.wait()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not self.in_flight and not any(self._lines)

    @staticmethod
    def now() -> float:
        """Seconds on the loop's clock."""
        return asyncio.get_running_loop().time()

    def enter(self, line: int, work: Work) -> None:
        """Put a write at the end of a line."""
        self._lines[line].append((self.now(), work))
        if line == URGENT or self._late() or not (self._urgent or self._polling):
            self._resume(1)

    def hold(self) -> Callable[[], None]:
        """Let later lines wait as behind an urgent write, which is made elsewhere, until what this returns is called."""
        self._urgent += 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._urgent -= 1
                if self._late() or not (self._urgent or self._polling):
                    self._resume(self._width)

        return release

    def length(self, line: int) -> int:
        """How many writes wait in a line."""
        return len(self._lines[line])

    def _late(self) -> int:
        """The first line that has waited for too long; 0 if there is none."""
        if not (self._lines[STATUS] or self._lines[EVENT]):
            return 0
        oldest = self.now() - _PATIENCE
        return next((number for number in (STATUS, EVENT) if (line := self._lines[number]) and line[0][0] < oldest), 0)

    def _choose(self) -> tuple[int, Work] | None:
        """The work that may be done now: urgent work always, the rest only when nothing urgent is about."""
        urgent, *later = self._lines
        if not urgent and not self._urgent:
            self._width = _WIDTH
        elif len(urgent) > self._width * _DEPTH:
            self._width = min(self._writers, len(urgent) // _DEPTH)
        if self.in_flight >= min(self._width, self._writers):
            return None
        late = self._late()
        if late:
            return late, self._lines[late].popleft()[1]
        if urgent:
            return URGENT, urgent.popleft()[1]
        if self._urgent or self._busy():
            return None
        for number, line in enumerate(later, 1):
            if line:
                return number, line.popleft()[1]
        return None

    async def _write(self) -> None:
        while True:
            chosen = self._choose()
            if chosen is None:
                await self._rest()
                continue
            number, work = chosen
            self.in_flight += 1
            self._urgent += number == URGENT
            try:
                await work()
            except Unreachable as error:
                log.error("outcome unknown", error=str(error)[:300])
            except Exception as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # what is cut off may end with an error instead
                log.exception("write failed", line=number)
            finally:
                self._urgent -= number == URGENT
                # This writer takes the next itself; others are called only where there is more to do at once.
                if self._lines[URGENT]:
                    self._resume(1, taken=1)
                elif not self._urgent and any(self._lines) and (not self._busy() or self._late()):
                    self._resume(self._width, taken=1)
                self.in_flight -= 1
                self._ended.set()

    async def _rest(self) -> None:
        """Wait until there is work; while only the core holds it back, check again a little later."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._idle.append(waiter)
        if not self._urgent and any(self._lines) and not self._polling:
            self._polling = True
            loop.call_later(_POLL_SECONDS, self._poll)
        try:
            await waiter
        finally:
            self._called -= not waiter.cancelled()

    def _poll(self) -> None:
        if self._urgent or self._lines[URGENT] or self._late() or not self._busy():
            self._polling = False
            self._resume(self._width)
        else:
            asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)

    def _resume(self, count: int, *, taken: int = 0) -> None:
        """Call idle writers, as many as there is work and width for. taken: work that the caller takes itself."""
        free = min(self._width, self._writers) - self.in_flight - self._called
        count = min(count, free, sum(map(len, self._lines)) - self._called - taken)
        while self._idle and count > 0:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._called += 1
                count -= 1

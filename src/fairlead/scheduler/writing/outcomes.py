"""What became of writes, for the core."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from fairlead.cluster.port import ClusterEvent, Outcome
from fairlead.cluster.transport import Unreachable

log = structlog.get_logger("applier")

_TOGETHER = 0.005  # seconds within which outcomes are reported together


class Outcomes:
    """Reports outcomes; several of one moment go together. report: takes them to the core."""

    def __init__(self, report: Callable[[list[ClusterEvent]], None]) -> None:
        self._report = report
        self._waiting: list[ClusterEvent] = []
        self._flushing = False

    @property
    def idle(self) -> bool:
        """Whether all were reported."""
        return not self._flushing

    def add(self, event: ClusterEvent) -> None:
        """Report one, in a moment."""
        self._waiting.append(event)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(_TOGETHER, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        waiting, self._waiting = self._waiting, []
        self._report(waiting)


async def answer(write: Awaitable[tuple[Outcome, str]]) -> tuple[Outcome, str]:
    """An answer whatever happens: the core counts on one. If the write took effect after all, an event will show it."""
    try:
        return await write
    except Unreachable as error:
        return Outcome.REFUSED, str(error)
    except Exception as error:
        log.exception("write failed")
        return Outcome.REFUSED, f"{type(error).__name__}: {error}"

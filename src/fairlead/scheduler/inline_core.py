"""The core on the I/O loop itself, for simulations: the same loop, without a thread.

A pass runs when events have come or when one is due, as soon as the loop is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import structlog

from fairlead.cluster.port import ClusterEvent
from fairlead.core.model.policy import Policy
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.core_loop import CoreLoop, Recorder
from fairlead.scheduler.counters import Counters
from fairlead.scheduler.metrics_snapshot import MetricsSnapshot
from fairlead.scheduler.outputs import Output

Answer = TypeVar("Answer")
log = structlog.get_logger("core")


class InlineCore:
    """Like `CoreThread`, on the running asyncio loop. clock: seconds since the epoch; speed: of its time against the loop's."""

    def __init__(
        self,
        policy: Policy,
        deliver: Callable[[list[Output]], None],
        *,
        clock: Callable[[], float],
        speed: float = 1.0,
        recorder: Recorder | None = None,
    ) -> None:
        self.busy = False
        self.after_pass: Callable[[], None] = lambda: None
        self._core = CoreLoop(policy, deliver, recorder)
        self._clock = clock
        self._speed = speed
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._due = float("inf")
        self._alive = False

    @property
    def state(self) -> ClusterState:
        """The core's state."""
        return self._core.state

    @property
    def counters(self) -> Counters:
        """What it did."""
        return self._core.counters

    @property
    def snapshot(self) -> MetricsSnapshot:
        """Queues and pools in numbers, as it saw them last."""
        return self._core.snapshots.latest

    def show(self, rest: float) -> None:
        """Have snapshots taken from now on. rest: seconds between two."""
        self._core.snapshots.rest = rest

    @property
    def synced(self) -> bool:
        """Whether everything that exists has been observed."""
        return self._core.synced

    @property
    def stalled(self) -> float:
        """Never: on the loop that asks, it cannot be stuck."""
        return 0.0

    @property
    def set_back(self) -> float:
        """Never: simulated time does not go back."""
        return 0.0

    def is_alive(self) -> bool:
        """Whether it decides."""
        return self._alive

    def start(self) -> None:
        """Begin."""
        self._alive = True

    def stop(self) -> None:
        """Decide nothing more."""
        self._alive = False
        if self._timer is not None:
            self._timer.cancel()

    def join(self, timeout: float) -> None:
        """There is nothing to wait for."""

    def send(self, events: list[ClusterEvent]) -> None:
        """Take events in; a pass follows, unless they contain nothing new."""
        if self._alive:
            self._core.apply(events, self._clock())
            if self._core.stale:
                self._plan(0.0)
            elif (due := self._core.next_due) is not None:
                self._plan(max(0.01, due - self._clock()))

    def ask(self, question: Callable[[CoreLoop], Answer]) -> Future[Answer]:
        """Have a question answered; it must change nothing."""
        answer: Future[Answer] = Future()
        try:
            answer.set_result(self._core.answer(question))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            answer.set_exception(error)
        return answer

    def _plan(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds / self._speed
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = loop.call_at(due, self._pass)

    def _pass(self) -> None:
        self._timer = None
        if not self._alive or not self.synced:
            return
        now = self._clock()
        self.busy = True
        try:
            self._core.decide(now)
        except Exception:
            self.counters.errors += 1
            log.exception("pass failed")
        self.busy = self._core.has_work
        if self._core.pause():
            self._plan(self._core.pause())
        elif self.busy:
            self._plan(0.0)
        elif (due := self._core.next_due) is not None:
            self._plan(max(0.01, due - now))
        self.after_pass()

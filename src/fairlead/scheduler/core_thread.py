"""The core's thread: events in, transactions out.

It owns the state; no other thread touches it. Events are applied as they come, between two passes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

import structlog

from fairlead.cluster.port import ClusterEvent
from fairlead.core.model.policy import Policy
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.core_loop import CoreLoop, Recorder
from fairlead.scheduler.counters import Counters
from fairlead.scheduler.metrics_snapshot import MetricsSnapshot
from fairlead.scheduler.outputs import Output

log = structlog.get_logger("core")

_IDLE = 5.0
Answer = TypeVar("Answer")


class CoreThread(threading.Thread):
    """Start it, `send` it events, and it calls `deliver` with batches of outputs (from its thread)."""

    def __init__(
        self,
        policy: Policy,
        deliver: Callable[[list[Output]], None],
        *,
        clock: Callable[[], float] = time.time,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(name="fairlead-core", daemon=True)
        self.busy = False  # units are left to try: more bindings are coming
        self.progressed = self._passed = time.monotonic()
        self._loop = CoreLoop(policy, deliver, recorder)
        self._clock = clock
        self._latest = clock()  # the latest time that it showed
        self._inbox: SimpleQueue[list[ClusterEvent] | Callable[[], None] | None] = SimpleQueue()
        self._stopped = False

    @property
    def state(self) -> ClusterState:
        """The core's state: for its own thread, and for tests and logs at rest."""
        return self._loop.state

    @property
    def counters(self) -> Counters:
        """What it did."""
        return self._loop.counters

    @property
    def snapshot(self) -> MetricsSnapshot:
        """Queues and pools in numbers, as it saw them last."""
        return self._loop.snapshots.latest

    def show(self, rest: float) -> None:
        """Have snapshots taken from now on. rest: seconds between two."""
        self._loop.snapshots.rest = rest

    @property
    def synced(self) -> bool:
        """Whether everything that exists has been observed."""
        return self._loop.synced

    @property
    def stalled(self) -> float:
        """Seconds since it last made progress."""
        return time.monotonic() - self.progressed

    @property
    def set_back(self) -> float:
        """By how many seconds the clock was set back, as far as it has not made up for that: all comes so much later."""
        return max(0.0, self._latest - self._clock())

    def send(self, events: list[ClusterEvent]) -> None:
        """Hand over events, in order; returns at once."""
        self._inbox.put(events)

    def ask(self, question: Callable[[CoreLoop], Answer]) -> Future[Answer]:
        """Have a question answered between two passes; it must change nothing."""
        answer: Future[Answer] = Future()

        def respond() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(self._loop.answer(question))
                except Exception as error:  # noqa: BLE001 - the caller gets it
                    answer.set_exception(error)

        self._inbox.put(respond)
        return answer

    def stop(self) -> None:
        """End after what is at hand; then `join`."""
        self._inbox.put(None)

    def run(self) -> None:
        """Apply, decide, deliver, until stopped."""
        while not self._stopped:
            self.progressed = time.monotonic()
            try:
                self._receive(self._patience())
                if self.synced and not self._stopped and self._must_decide():
                    self.busy = True
                    self._passed = time.monotonic()
                    self._loop.decide(self._now())
            except Exception:
                # A fault of ours must not end the process: it is loud, counted, and the next event tries again.
                self.counters.errors += 1
                log.exception("pass failed")
                time.sleep(max(0.1, self._loop.pause()))

    def _now(self) -> float:
        now = self._clock()
        self._latest = max(self._latest, now)
        return now

    def _patience(self) -> float:
        self.busy = self._loop.has_work
        if self.busy:
            return 0.0
        due = self._loop.next_due
        return _IDLE if due is None else min(_IDLE, max(0.01, due - self._clock()))

    def _must_decide(self) -> bool:
        """Whether a pass could do anything, or nothing was observed for so long that one is due."""
        loop = self._loop
        due = loop.next_due
        idle = time.monotonic() - self._passed >= _IDLE
        return loop.stale or loop.has_work or idle or (due is not None and self._clock() >= due)

    def _receive(self, patience: float) -> None:
        """Apply everything that has come, waiting up to `patience` seconds for the first."""
        try:
            batch = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
            while True:
                if batch is None:
                    self._stopped = True
                    return
                if callable(batch):
                    batch()
                else:
                    self._loop.apply(batch, self._now())
                batch = self._inbox.get_nowait()
        except Empty:
            return

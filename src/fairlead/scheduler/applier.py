"""The applier: carries out what the core puts out, in its order, many writes at a time.

Bindings and evictions go first, then conditions and statuses, then events (`writing/lines.py`). Every outcome goes back to the
core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.cluster.port import Cluster, ClusterEvent
from fairlead.core.model.transactions import (
    Choose,
    Deallocate,
    Evict,
    Fault,
    Kept,
    Overdue,
    Place,
    Preempt,
    Refuse,
    Resume,
    Unread,
    Warn,
)
from fairlead.scheduler.outputs import GroupStatus, Output, PairSpeeds, QueueStatus, ReservationStatus, Trouble, Verdict
from fairlead.scheduler.writing.bindings import Bindings
from fairlead.scheduler.writing.context import Context
from fairlead.scheduler.writing.counters import WriteCounters
from fairlead.scheduler.writing.events import Events
from fairlead.scheduler.writing.evictions import Evictions
from fairlead.scheduler.writing.lines import Lines
from fairlead.scheduler.writing.messages import Messages
from fairlead.scheduler.writing.outcomes import Outcomes
from fairlead.scheduler.writing.statuses import Statuses


class Applier:
    """Runs in the I/O thread. report: takes outcomes back to the core; busy: whether it has more to come."""

    def __init__(
        self,
        cluster: Cluster,
        report: Callable[[list[ClusterEvent]], None],
        epoch: Callable[[], int | None],
        *,
        writers: int = 256,
        write_events: bool = True,
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.counters = WriteCounters()
        self.lines = Lines(writers, busy)
        self.outcomes = Outcomes(report)
        self.events = Events(cluster, self.lines, self.counters, on=write_events)
        statuses = Statuses(cluster, self.lines, self.counters)
        context = Context(cluster, self.lines, self.counters, self.outcomes, self.events, statuses)
        self._bindings = Bindings(context, epoch)
        evictions, messages = Evictions(context), Messages(statuses, self.events)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Place: self._bindings.place,
            Deallocate: self._bindings.deallocate,
            Resume: self._bindings.resume,
            Preempt: evictions.preempt,
            Evict: evictions.take_down,
            Refuse: messages.refuse,
            Overdue: messages.overdue,
            Choose: messages.choose,
            Warn: messages.warn,
            Unread: messages.unread,
            Fault: messages.fault,
            Kept: messages.kept,
            Trouble: messages.trouble,
            GroupStatus: statuses.group,
            QueueStatus: statuses.queue,
            ReservationStatus: statuses.reservation,
            Verdict: statuses.verdict,
            PairSpeeds: statuses.speeds,
        }

    def submit(self, outputs: list[Output]) -> None:
        """Take over decisions; returns at once."""
        for output in outputs:
            self._handlers[type(output)](output)

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            await self.lines.run()
        finally:
            self._bindings.cancel()

    async def drain(self) -> None:
        """Return once what was decided has been written, as far as nothing else is waited for."""
        await self.lines.drain()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return self.lines.idle and self._bindings.idle

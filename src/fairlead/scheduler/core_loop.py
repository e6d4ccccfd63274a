"""The core's loop without its thread: events are applied, passes decide, outputs are delivered.

One bad event is logged and counted, and the loop goes on. Nothing is decided before everything that
exists has been observed (`Synced`). Everything is a function of the events and of the times that `apply`
and `decide` are given, so a log of both replays exactly (`decision_log.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.kinds import NODE, POD_GROUP, QUEUE, RESERVATION
from fairlead.cluster.port import (
    BindFailed,
    Bound,
    ClusterEvent,
    DevicesFailed,
    DevicesKnown,
    EvictFailed,
    Gone,
    Judged,
    PlacesKept,
    SpeedsKept,
    StorageKnown,
    Synced,
    Upsert,
)
from fairlead.core.model.backoff import backoff
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Node, Reservation
from fairlead.core.model.pods import Pod
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.transactions import Transaction, ref_of
from fairlead.core.pods.tasks import Task
from fairlead.core.schedule import has_work, schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler import taking
from fairlead.scheduler.counters import Counters
from fairlead.scheduler.echoes import Echoes
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.metrics_snapshot import SNAPSHOT_ACTION, MetricsSnapshots
from fairlead.scheduler.outputs import Output, Trouble
from fairlead.scheduler.reports.reporter import Reporter

_CHUNK = 16
_SOON = 0.1  # seconds until a pass for what only confirms decisions
_AGAIN, _LONGEST = 60.0, 3600.0  # seconds until an event that could not be applied is tried again: at first, at most
_REST, _LONGEST_REST = 0.1, 5.0  # seconds between passes that fail: at first, at most
_NOT_TAKEN_IN = (
    "an internal error of the scheduler: the object could not be processed; it is retried after a minute, then less and less "
    "often, and when it changes; the scheduler's log has the traceback"
)
Answer = TypeVar("Answer")
BUDGET = 512


class _Again(msgspec.Struct):
    """An event that could not be applied, when it is tried again, and how often it failed."""

    event: ClusterEvent
    due: float
    count: int


class Recorder:
    """Receives what the core observes and decides; this one discards it."""

    def observed(self, now: float, events: list[ClusterEvent]) -> None:
        """Events are about to be applied."""

    def decided(self, now: float, outputs: list[Output]) -> None:
        """A pass is over."""


class _Outbox:
    """The outputs of a pass, and how many of them were delivered."""

    def __init__(self, deliver: Callable[[list[Output]], None]) -> None:
        self.outputs: list[Output] = []
        self._deliver = deliver
        self._sent = 0

    @property
    def waiting(self) -> int:
        """How many were not delivered yet."""
        return len(self.outputs) - self._sent

    def send(self) -> None:
        """Deliver them."""
        self._deliver(self.outputs[self._sent :])
        self._sent = len(self.outputs)


class CoreLoop:
    """Owns the state. deliver: takes outputs, in order; recorder: receives everything."""

    def __init__(self, policy: Policy, deliver: Callable[[list[Output]], None], recorder: Recorder | None = None) -> None:
        self.state = ClusterState(policy)
        self.counters = Counters()
        self.synced = False
        self.deliver = deliver
        self.stale = True
        """Whether something was observed since the latest pass that could change what it decided."""
        self._soon: float | None = None  # when a pass is due for what was observed and could wait
        self._recorder = recorder
        self._echoes = Echoes(self.state.tasks, self.state.pods.finished)
        self._faults = Faults(self.counters)
        self.reports = Reporter(self.state, self._faults)
        self.snapshots = MetricsSnapshots()
        self._again: dict[tuple[str, str], _Again] = {}

    def apply(self, events: list[ClusterEvent], now: float) -> None:
        """Take events in, in order."""
        self._record(lambda recorder: recorder.observed(now, events))
        self.counters.events += len(events)
        for event in events:
            try:
                echo = self._echoes.is_echo(event)
                can_wait = echo or self._echoes.can_wait(event, self._placed_on)
            except Exception as error:  # noqa: BLE001 - one event stops no other event
                self._faults.note("event", repr(event)[:500], error)
                echo = can_wait = False
            if not echo:
                if not can_wait:
                    self.stale = True
                elif self._soon is None:
                    self._soon = now + _SOON
                self._apply(event, now)

    def _record(self, write: Callable[[Recorder], None]) -> None:
        """Have something recorded. What cannot be recorded ends the recording: with a gap it would show what never happened."""
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except Exception as error:  # noqa: BLE001 - scheduling goes on without the recorder
            self._recorder = None
            self._faults.note("recorder", "nothing more is recorded", error)

    def _placed_on(self, task: Task) -> str:
        return self.state.nodes.names[task.row] if task.row >= 0 else ""

    @property
    def has_work(self) -> bool:
        """Whether a pass cut short left units to try."""
        try:
            return self.synced and has_work(self.state)
        except Exception as error:  # noqa: BLE001 - the pass finds whose fault it is
            self._faults.note("next", "whether units are left", error)
            self.stale = True
            return True

    def _apply(self, event: ClusterEvent, now: float) -> None:
        key = _key_of(event)
        before = self._again.pop(key, None) if self._again else None
        if before is not None and key[0] == "node":
            self.state.nodes.poison(key[1], _NOT_TAKEN_IN, bad=False)
        try:
            self._take_in(event, now)
        except Exception as error:  # noqa: BLE001 - one event stops no other event
            self.counters.errors += 1
            self._faults.note("event", repr(event)[:500], error)
            about = event.object if isinstance(event, Upsert) else None
            pod = ref_of(about) if isinstance(about, Pod) else None
            self.deliver([Trouble(pod, f"the object could not be processed: {error!r}")])
            if isinstance(event, Upsert):
                count = before.count + 1 if before is not None else 1
                self._again[key] = _Again(event, now + backoff(_AGAIN, count, _LONGEST), count)
            self._make_whole(event, now)
            self.stale = True

    def _make_whole(self, event: ClusterEvent, now: float) -> None:
        """The state after an event that was applied in part: usable, and as near to the event as it can be."""
        isolation = self.state.isolation
        about = event.object if isinstance(event, Upsert) else None
        uid = about.uid if isinstance(about, Pod) else event.key if isinstance(event, Gone) and event.kind == "pod" else ""
        try:
            isolation.half_applied(uid)
            if about is None:
                return
            unreadable = Reason(ReasonCode.INTERNAL_ERROR, _NOT_TAKEN_IN)
            second = Upsert(msgspec.structs.replace(about, error=unreadable, unsized=True)) if isinstance(about, Pod) else event
            for attempt in (event, second) if uid else (second,):
                try:
                    self._take_in(attempt, now)
                    return
                except Exception as error:  # noqa: BLE001 - the second attempt follows
                    self._faults.note("event", f"again: {event!r}"[:500], error)
                    isolation.half_applied(uid)
            if isinstance(about, Node):
                self.state.nodes.poison(about.name, _NOT_TAKEN_IN, bad=True)  # what it has is not known for sure
        except Exception as error:  # noqa: BLE001 - one event stops no other event
            self._faults.note("recovery", repr(event)[:500], error)

    def _try_again(self, now: float) -> None:
        """Events that could not be applied, after a pause."""
        for key in sorted(key for key, again in self._again.items() if again.due <= now):
            self._apply(self._again[key].event, now)

    def _take_in(self, event: ClusterEvent, now: float) -> None:
        state = self.state
        if isinstance(event, Upsert):
            self._upsert(event)
        elif isinstance(event, Judged):
            self.reports.verdicts.judged(event.kind, event.name, event.complaint)
        elif isinstance(event, Bound):
            state.pods.bound(event.uid)
            self.reports.groups.mark_of(event.uid)
        elif isinstance(event, BindFailed):
            state.bind_failed(event.uid, now, event.devices)
            self.reports.groups.mark_of(event.uid)
        elif isinstance(event, DevicesFailed | PlacesKept | SpeedsKept):
            self._take_over(event, now)
        elif isinstance(event, EvictFailed):
            state.evictions.failed(event.uid, now, by_budget=event.by_budget)
        elif isinstance(event, Gone):
            self._remove(event)
        elif isinstance(event, StorageKnown):
            state.storage_known()
        elif isinstance(event, DevicesKnown):
            state.claims.all_known()
        elif isinstance(event, Synced):
            self.synced = True

    def _take_over(self, event: DevicesFailed | PlacesKept | SpeedsKept, now: float) -> None:
        """What the scheduler that led before has kept."""
        if isinstance(event, DevicesFailed):
            self.state.claims.remember_failures([(each.at, each.failed) for each in event.failures], now)
        elif isinstance(event, PlacesKept):
            self.state.places_before.remember(event.places)
        else:
            self.state.nodes.partners.speeds.restore(event.speeds)

    def _upsert(self, event: Upsert) -> None:
        about = event.object
        refused = taking.upsert(self.state, event)
        if isinstance(about, Pod):
            if about.group and about.ours:
                self.reports.groups.mark(f"{about.namespace}/{about.group}")
        elif isinstance(about, Node):
            self.reports.verdicts.node_changed()
        elif isinstance(about, Queue) and about.elsewhere:
            self.reports.verdicts.forget(QUEUE.name, about.name)
            self.reports.queues.forget(about.name)
        elif isinstance(about, Queue):
            self.reports.verdicts.queue_changed(about.name, refused)
            if refused is not None:
                self._echoes.forget(QUEUE.name, about.name)
        elif isinstance(about, Group):
            self.reports.groups.mark(about.key)
        elif isinstance(about, Reservation) and not about.ours:
            self.reports.verdicts.forget(RESERVATION.name, about.name)
        elif isinstance(about, Reservation):
            self.reports.verdicts.reservation_changed(about.name)

    def _remove(self, event: Gone) -> None:
        self.reports.groups.mark_of(event.key)
        taking.remove(self.state, event)
        if event.kind == NODE.name:
            self.reports.verdicts.node_changed()
        elif event.kind == POD_GROUP.name:
            self.reports.groups.forget(event.key)
        else:
            self.reports.verdicts.forget(event.kind, event.key)

    def decide(self, now: float) -> None:
        """One pass."""
        start = time.perf_counter()
        outbox = _Outbox(self.deliver)
        if self._again:
            self._try_again(now)
        try:
            self._pass(outbox, now)
            self.stale, self._soon = False, None
            self.counters.failing = 0
        except Exception:
            self.counters.failed += 1
            self.counters.failing += 1
            self._recover()
            raise
        finally:
            caught, self.state.isolation.caught = self.state.isolation.caught, []
            self._faults.set_aside(caught)
            # What was decided is assumed in the state already: it must be carried out, whatever happened after.
            if outbox.waiting:
                outbox.send()
            self.counters.passed(now, time.perf_counter() - start)
            self._record(lambda recorder: recorder.decided(now, outbox.outputs))

    def _pass(self, outbox: _Outbox, now: float) -> None:
        """Decide, deliver the decisions, then see what is to be reported, which goes with the end of the pass."""
        start = time.perf_counter()
        for transaction in schedule(self.state, now, BUDGET):
            try:
                self._count(transaction, now)
            except Exception as error:  # noqa: BLE001 - metrics stop no decision
                self._faults.note("count", repr(transaction)[:500], error)
            outbox.outputs.append(transaction)
            if outbox.waiting >= _CHUNK:
                outbox.send()
        outbox.send()
        decided = time.perf_counter()
        try:
            self.reports.foresee(now)
        except Exception as error:  # noqa: BLE001 - the forecast stops no decision
            self._faults.note("forecast", "", error)
            self.state.isolation.mend()
        foreseen = time.perf_counter()
        outbox.outputs.extend(self.reports.due(now))
        self.counters.spent("decide", decided - start)
        self.counters.spent("forecast", foreseen - decided)
        self.counters.spent("status", time.perf_counter() - foreseen)
        self._take_snapshot(now)

    def _take_snapshot(self, now: float) -> None:
        begun = time.perf_counter()
        try:
            if self.snapshots.renew(self.state, now):
                self.counters.spent(SNAPSHOT_ACTION, time.perf_counter() - begun)
        except Exception as error:  # noqa: BLE001 - metrics stop no decision
            self._faults.note(SNAPSHOT_ACTION, "", error)

    def _recover(self) -> None:
        """A pass failed outside every guard: the next begins with a whole state."""
        try:
            self.state.isolation.half_applied()
        except Exception as error:  # noqa: BLE001 - the next pass is tried all the same
            self._faults.note("recovery", "the state after a failed pass", error)

    def answer(self, question: Callable[[CoreLoop], Answer]) -> Answer:
        """What a question between two passes is answered; one that raises leaves no trace."""
        try:
            return question(self)
        except Exception:
            self.state.isolation.mend()
            raise

    def pause(self) -> float:
        """Seconds until the next pass after one that failed: they grow with each in a row."""
        return backoff(_REST, self.counters.failing, _LONGEST_REST) if self.counters.failing else 0.0

    def _count(self, transaction: Transaction, now: float) -> None:
        self.counters.decided(transaction, self.state.tasks, now)
        if transaction.group:
            self.reports.groups.mark(transaction.group)

    @property
    def next_due(self) -> float | None:
        """When a pass is due although nothing happens."""
        try:
            due = self.state.next_due
        except Exception as error:  # noqa: BLE001 - passes come with events and every few seconds
            self._faults.note("next", "when a pass is due", error)
            due = None
        again = min((each.due for each in self._again.values()), default=None)
        times = (due, self.reports.next_due, self.snapshots.next_due, self._soon, again)
        return min((time for time in times if time is not None), default=None)


def _key_of(event: ClusterEvent) -> tuple[str, str]:
    """Of what an event speaks: (kind, name)."""
    if isinstance(event, Gone):
        return event.kind, event.key
    if isinstance(event, Upsert):
        about = event.object
        kind = "pod" if isinstance(about, Pod) else type(about).__name__.lower()
        return kind, about.uid if isinstance(about, Pod) else str(getattr(about, "key", "") or getattr(about, "name", ""))
    return "", ""

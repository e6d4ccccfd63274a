"""The core's loop without its thread: events are applied, passes decide, outputs are delivered.

One bad event is logged and counted, and the loop goes on. Nothing is decided before everything that
exists has been heard (`Synced`). Everything is a function of the events and of the times that `apply`
and `decide` are given, so a log of both replays exactly (`decision_log.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.port import JUDGED, BindFailed, Bound, ClusterEvent, EvictFailed, Gone, Judged, StorageKnown, Synced, Upsert
from fairlead.core import explain
from fairlead.core.forecast import forecast
from fairlead.core.model.objects import (
    Completed,
    DisruptionBudget,
    FailedStarts,
    ForecastRecord,
    Group,
    Namespace,
    Node,
    NodePool,
    Pod,
    Policy,
    Queue,
    Reservation,
    RunTimeRecord,
    ServiceClass,
    UsageRecord,
)
from fairlead.core.model.transactions import Evict, Overdue, Place, PodRef, Preempt, Refuse, Transaction
from fairlead.core.nodes.storage import STORAGE_KINDS, StorageObject
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.preemption.search import GROUNDS
from fairlead.core.queues.tree import QueueNode, room_of
from fairlead.core.schedule import has_work, schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.foretold import Expected
from fairlead.observability.metrics import Distribution
from fairlead.scheduler.echoes import Echoes
from fairlead.scheduler.picture import Picture, take

log = structlog.get_logger("core")

_CHUNK = 16
_SOON = 0.1  # seconds until a pass for what only confirms decisions
_COUNTS_REST = 1.0  # seconds between two statuses of a group that differ in counts only
_STATUS_REST = 10.0  # seconds between two statuses of a queue
_KEPT_REST = 60.0  # seconds between two checkpoints of what survives a restart: usage and run times
_FORECAST_REST = 300.0  # seconds between two forecasts
_MOST_ENDS = 20_000
_MOVED = 0.1
_MOST_NODES = 1000  # named in a status
_SHOWN = 8  # pods named in a line of the log
_AGAIN, _LONGEST = 60.0, 3600.0  # seconds until an event that could not be applied is tried again: at first, at most
_REST, _LONGEST_REST = 0.1, 5.0  # seconds between passes that fail: at first, at most
_NOT_TAKEN_IN = (
    "an internal error of the scheduler: the object could not be processed; it is retried after a minute, then less and less "
    "often, and when it changes; the scheduler's log has the traceback"
)
Answer = TypeVar("Answer")
BUDGET = 512
_PASS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_WAIT_BOUNDS = (0.1, 1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0, 72 * 3600.0)


class GroupStatus(msgspec.Struct, frozen=True, tag=True):
    """Where a pod group stands, to be written to its status."""

    group: str
    phase: str
    scheduled: int
    reason: Reason | None
    expected_start: float | None = None
    completed: Completed | None = None
    failed_starts: FailedStarts | None = None
    earliest_start: float | None = None
    latest_start: float | None = None

    def foretells(self) -> tuple[float | None, ...]:
        """When it is expected to start."""
        return self.expected_start, self.earliest_start, self.latest_start

    def says(self) -> tuple[object, ...]:
        """What must be told at once when it changes."""
        return self.phase, self.scheduled, self.completed, self.failed_starts, self.reason and self.reason.code

    def counts_only(self, told: GroupStatus | None) -> bool:
        """Whether it differs from what was told in nothing but how many are scheduled."""
        return told is not None and told != self and msgspec.structs.replace(told, scheduled=self.scheduled) == self


class Trouble(msgspec.Struct, frozen=True, tag=True):
    """An object that could not be taken in."""

    pod: PodRef | None
    message: str


class QueueStatus(msgspec.Struct, frozen=True, tag=True):
    """What to say of a queue: what it and its descendants hold, pods that wait in it, its due; as (resource, base units).

    reason: why the first job that waits in it does. foreign: the part of what is allocated that pods of other schedulers hold.
    """

    queue: str
    allocated: tuple[tuple[str, int], ...]
    pending: int
    fair_share: tuple[tuple[str, int], ...]
    usage: UsageRecord | None = None
    reason: Reason | None = None
    run_times: tuple[RunTimeRecord, ...] = ()
    foreign: tuple[tuple[str, int], ...] = ()
    forecasts: tuple[ForecastRecord, ...] = ()


class ReservationStatus(msgspec.Struct, frozen=True, tag=True):
    """Where a reservation stands: its phase, and the names of its nodes."""

    reservation: str
    phase: str
    nodes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True, tag=True):
    """Whether a queue, a class, a reservation or a node pool is in force as it is. kind: its plural."""

    kind: str
    name: str
    accepted: bool
    reason: str
    message: str


Output = Transaction | GroupStatus | QueueStatus | ReservationStatus | Verdict | Trouble


class Counters(msgspec.Struct):
    """What the core did, read by the metrics."""

    events: int = 0
    passes: int = 0
    placed: int = 0
    refused: int = 0
    preempted: int = 0
    overdue: int = 0
    errors: int = 0
    failed: int = 0  # passes that failed outside every guard
    failing: int = 0  # of them, in a row until now
    faults: dict[str, int] = {}  # step -> exceptions that were contained there
    pass_seconds: float = 0.0
    last_pass: float = 0.0  # when, seconds since the epoch
    durations: Distribution = msgspec.field(default_factory=lambda: Distribution(_PASS_BOUNDS))
    waits: Distribution = msgspec.field(default_factory=lambda: Distribution(_WAIT_BOUNDS))
    actions: dict[str, float] = {}  # action -> seconds
    gangs: dict[str, int] = {}  # what became of gangs -> how many
    victims: dict[str, int] = {}  # why pods were to go -> how many


class _Again(msgspec.Struct):
    """An event that could not be applied, when it is tried again, and how often it failed."""

    event: ClusterEvent
    due: float
    count: int


class Recorder:
    """Hears what the core hears and decides; this one forgets it."""

    def heard(self, now: float, events: list[ClusterEvent]) -> None:
        """Events are about to be applied."""

    def decided(self, now: float, outputs: list[Output]) -> None:
        """A pass is over."""


class CoreLoop:
    """Owns the state. deliver: takes outputs, in order; recorder: hears everything."""

    def __init__(self, policy: Policy, deliver: Callable[[list[Output]], None], recorder: Recorder | None = None) -> None:
        self.state = ClusterState(policy)
        self.counters = Counters()
        self.synced = False
        self.deliver = deliver
        self.stale = True
        """Whether something was heard since the latest pass that could change what it decided."""
        self._soon: float | None = None  # when a pass is due for what was heard and could wait
        self._recorder = recorder
        self._echoes = Echoes(self.state.tasks, self.state.pods.finished)
        self._groups: set[str] = set()
        self._told: dict[str, GroupStatus] = {}
        self._counted: dict[str, float] = {}  # group -> when its status was told last
        self._counts_due: float | None = None  # when counts that changed are told
        self._queues: dict[str, QueueStatus] = {}
        self._kept_due = 0.0  # when what survives a restart is written again
        self._kept_is_due = False
        self._judged: dict[tuple[str, str], str] = {}  # (plural, name) -> what could not be used of it
        self._refused: dict[str, Reason | None] = {}  # queue -> why its latest change was refused
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._judge = False
        self._foreseen: dict[str, Expected] = {}  # job -> expected start, as last told
        self._foreseen_due = 0.0
        self._reservations: dict[str, ReservationStatus] = {}
        self._queues_due = 0.0  # when statuses of queues may be written again
        self.picture = Picture(0.0)
        self.picture_rest = 0.0  # seconds between two pictures; 0: none are taken
        self._picture_due = 0.0
        self._picture_stale = False
        self._again: dict[tuple[str, str], _Again] = {}

    def apply(self, events: list[ClusterEvent], now: float) -> None:
        """Take events in, in order."""
        self._record(lambda recorder: recorder.heard(now, events))
        self.counters.events += len(events)
        for event in events:
            try:
                echo = self._echoes.is_echo(event)
                can_wait = echo or self._echoes.can_wait(event, self._placed_on)
            except Exception as error:
                self._failed("event", repr(event)[:500], error)
                echo = can_wait = False
            if not echo:
                if not can_wait:
                    self.stale = True
                elif self._soon is None:
                    self._soon = now + _SOON
                self._apply(event, now)

    def _record(self, write: Callable[[Recorder], None]) -> None:
        """Have something recorded. What cannot be ends the recording: with a gap it would tell what never happened."""
        if self._recorder is None:
            return
        try:
            write(self._recorder)
        except Exception as error:
            self._recorder = None
            self._failed("recorder", "nothing more is recorded", error)

    def _placed_on(self, task: Task) -> str:
        return self.state.nodes.names[task.row] if task.row >= 0 else ""

    @property
    def has_work(self) -> bool:
        """Whether a pass cut short left units to try."""
        try:
            return self.synced and has_work(self.state)
        except Exception as error:
            self._failed("next", "whether units are left", error)
            self.stale = True
            return True  # the pass finds whose fault it is

    def _apply(self, event: ClusterEvent, now: float) -> None:
        key = _key_of(event)
        before = self._again.pop(key, None) if self._again else None
        if before is not None and key[0] == "node":
            self.state.nodes.poison(key[1], _NOT_TAKEN_IN, bad=False)
        try:
            self._take_in(event, now)
        except Exception as error:
            self.counters.errors += 1
            self._failed("event", repr(event)[:500], error)
            about = event.object if isinstance(event, Upsert) else None
            pod = PodRef(about.uid, about.namespace, about.name) if isinstance(about, Pod) else None
            self.deliver([Trouble(pod, f"the object could not be processed: {error!r}")])
            if isinstance(event, Upsert):
                count = before.count + 1 if before is not None else 1
                self._again[key] = _Again(event, now + min(_LONGEST, _AGAIN * 2 ** min(count - 1, 10)), count)
            self._make_whole(event, now)
            self.stale = True

    def _failed(self, site: str, about: str, error: Exception) -> None:
        """An exception of ours was contained."""
        self.counters.faults[site] = self.counters.faults.get(site, 0) + 1
        log.error("internal error", site=site, about=about, exc_info=error)

    def _make_whole(self, event: ClusterEvent, now: float) -> None:
        """The state after an event that was applied in part: usable, and as near to what was said as it can be."""
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
                except Exception as error:
                    self._failed("event", f"again: {event!r}"[:500], error)
                    isolation.half_applied(uid)
            if isinstance(about, Node):
                self.state.nodes.poison(about.name, _NOT_TAKEN_IN, bad=True)  # what it has is not known for sure
        except Exception as error:
            self._failed("recovery", repr(event)[:500], error)

    def _try_again(self, now: float) -> None:
        """Events that could not be applied, after a pause."""
        for key in sorted(key for key, again in self._again.items() if again.due <= now):
            self._apply(self._again[key].event, now)

    def _take_in(self, event: ClusterEvent, now: float) -> None:
        state = self.state
        if isinstance(event, Upsert):
            about = event.object
            if isinstance(about, Pod):
                state.upsert_pod(about)
                if about.group and about.ours:
                    self._groups.add(f"{about.namespace}/{about.group}")
            elif isinstance(about, Node):
                state.upsert_node(about)
                self._judge = self._judge or bool(state.queues.pools.named)
            elif isinstance(about, NodePool):
                state.upsert_pool(about)
            elif isinstance(about, Queue):
                refused = state.upsert_queue(about)
                self._refused[about.name] = refused
                if refused is not None:
                    self._echoes.forget("queue", about.name)
                self._judge = True
            elif isinstance(about, Reservation):
                state.upsert_reservation(about)
            elif isinstance(about, ServiceClass):
                state.upsert_class(about)
            elif isinstance(about, DisruptionBudget):
                state.upsert_budget(about)
            elif isinstance(about, StorageObject):
                state.upsert_storage(about)
            elif isinstance(about, Namespace):
                state.upsert_namespace(about)
            elif isinstance(about, Group):
                state.upsert_group(about)
                self._groups.add(about.key)
        elif isinstance(event, Judged):
            self._judged[event.kind, event.name] = event.complaint
            self._judge = True
        elif isinstance(event, Bound):
            state.pods.bound(event.uid)
            self._mark_group(event.uid)
        elif isinstance(event, BindFailed):
            state.bind_failed(event.uid, now)
            self._mark_group(event.uid)
        elif isinstance(event, EvictFailed):
            state.evictions.failed(event.uid, now, event.message)
        elif isinstance(event, Gone):
            self._mark_group(event.key)
            if event.kind in STORAGE_KINDS:
                state.remove_storage(STORAGE_KINDS[event.kind], event.key)
                return
            removers = {
                "pod": state.remove_pod,
                "node": state.remove_node,
                "queue": state.remove_queue,
                "class": state.remove_class,
                "reservation": state.remove_reservation,
                "pool": state.remove_pool,
                "group": state.remove_group,
                "namespace": state.remove_namespace,
                "budget": state.remove_budget,
            }
            removers[event.kind](event.key)
            self._judge = self._judge or (event.kind == "node" and bool(state.queues.pools.named))
            if event.kind in JUDGED:
                self._judged.pop((JUDGED[event.kind], event.key), None)
                self._verdicts.pop((JUDGED[event.kind], event.key), None)
                self._refused.pop(event.key if event.kind == "queue" else "", None)
                self._judge = True
            if event.kind == "group":
                self._told.pop(event.key, None)
                self._counted.pop(event.key, None)
        elif isinstance(event, StorageKnown):
            state.storage_known()
        elif isinstance(event, Synced):
            self.synced = True

    def _mark_group(self, uid: str) -> None:
        task = self.state.tasks.get(uid)
        if task is not None and task.gang is not None:
            self._groups.add(task.gang.key)

    def decide(self, now: float) -> None:
        """One pass."""
        start = time.perf_counter()
        outputs: list[Output] = []
        told = 0
        if self._again:
            self._try_again(now)
        try:
            for transaction in schedule(self.state, now, BUDGET):
                try:
                    self._count(transaction, now)
                except Exception as error:
                    self._failed("count", repr(transaction)[:500], error)
                outputs.append(transaction)
                if len(outputs) - told >= _CHUNK:
                    self.deliver(outputs[told:])
                    told = len(outputs)
            self.deliver(outputs[told:])
            told = len(outputs)
            decided = time.perf_counter()
            try:
                self._foresee(now)
            except Exception as error:
                self._failed("forecast", "", error)
                self.state.isolation.mend()
            foreseen = time.perf_counter()
            outputs += self._group_statuses(now)
            outputs += self._queue_statuses(now)
            outputs += self._reservation_statuses(now)
            outputs += self._verdicts_now()
            self._clock_in("decide", decided - start)
            self._clock_in("forecast", foreseen - decided)
            self._clock_in("status", time.perf_counter() - foreseen)
            try:
                self._take_picture(now)
            except Exception as error:
                self._failed("picture", "", error)
            self.stale, self._soon = False, None
            self.counters.failing = 0
        except Exception:
            self.counters.failed += 1
            self.counters.failing += 1
            self._recover()
            raise
        finally:
            self._log_faults()
            # What was decided is assumed in the state already: it must be carried out, whatever happened after.
            if told < len(outputs):
                self.deliver(outputs[told:])
            took = time.perf_counter() - start
            self.counters.passes += 1
            self.counters.pass_seconds += took
            self.counters.durations.observe(took)
            self.counters.last_pass = now
            self._record(lambda recorder: recorder.decided(now, outputs))

    def _recover(self) -> None:
        """A pass failed outside every guard: the next begins with a whole state."""
        try:
            self.state.isolation.half_applied()
        except Exception as error:
            self._failed("recovery", "the state after a failed pass", error)

    def _log_faults(self) -> None:
        """What the core contained, with tracebacks."""
        caught, self.state.isolation.caught = self.state.isolation.caught, []
        for fault, errors in caught:
            self.counters.faults[fault.site] = self.counters.faults.get(fault.site, 0) + 1
            pods = [pod.key for pod in fault.pods[:_SHOWN]]
            for error in errors:
                log.error("set aside", site=fault.site, pods=pods, subject=fault.subject or fault.group, exc_info=error)

    def answer(self, question: Callable[[CoreLoop], Answer]) -> Answer:
        """What a question between two passes is answered; one that raises leaves no trace."""
        try:
            return question(self)
        except Exception:
            self.state.isolation.mend()
            raise

    def pause(self) -> float:
        """Seconds until the next pass after one that failed: they grow with each in a row."""
        return min(_LONGEST_REST, _REST * 2 ** min(self.counters.failing - 1, 10)) if self.counters.failing else 0.0

    def _clock_in(self, action: str, seconds: float) -> None:
        self.counters.actions[action] = self.counters.actions.get(action, 0.0) + seconds

    def _take_picture(self, now: float) -> None:
        """For the metrics, where they are served: not too often, but once more after the last change."""
        if not self.picture_rest:
            return
        self._picture_stale = now < self._picture_due
        if not self._picture_stale:
            self._picture_due = now + self.picture_rest
            begun = time.perf_counter()
            self.picture = take(self.state, now)
            self._clock_in("picture", time.perf_counter() - begun)

    def _count(self, transaction: Transaction, now: float) -> None:
        self._note(transaction)
        if isinstance(transaction, Place):
            self.counters.placed += len(transaction.bindings)
            for binding in transaction.bindings:
                task = self.state.tasks.get(binding.pod.uid)
                if task is not None:
                    self.counters.waits.observe(max(0.0, now - task.pod.created))
        elif isinstance(transaction, Refuse):
            self.counters.refused += len(transaction.pods)
        elif isinstance(transaction, Preempt):
            self.counters.preempted += len(transaction.victims)
        elif isinstance(transaction, Overdue):
            self.counters.overdue += 1
        group = transaction.group
        if group:
            self._groups.add(group)

    def _note(self, transaction: Transaction) -> None:
        """Why pods are to go, and what becomes of gangs."""
        gangs, victims = self.counters.gangs, self.counters.victims
        if isinstance(transaction, Place) and transaction.group:
            gangs["placed"] = gangs.get("placed", 0) + 1
        elif isinstance(transaction, Preempt):
            why, moved = GROUNDS.get(transaction.why.partition(",")[0], "Priority"), len(transaction.moved)
            for ground, count in ((why, len(transaction.victims) - moved), ("Consolidation", moved)):
                if count:
                    victims[ground] = victims.get(ground, 0) + count
            fallen = len(transaction.groups)
            gangs["preempted"] = gangs.get("preempted", 0) + fallen
        elif isinstance(transaction, Evict):
            code = str(transaction.reason.code)
            victims[code] = victims.get(code, 0) + len(transaction.victims)
            if transaction.group:
                what = "ended" if transaction.reason.code is ReasonCode.TIME_LIMIT else "dismantled"
                gangs[what] = gangs.get(what, 0) + 1

    def expected(self, job: str) -> float | None:
        """When a job that waits is expected to start, as last foreseen; seconds since the epoch."""
        told = self._foreseen.get(job)
        return told.start if told is not None else None

    def interval(self, job: str) -> Expected | None:
        """The same with the interval in which it starts in eight cases of ten."""
        return self._foreseen.get(job)

    @property
    def next_due(self) -> float | None:
        """When a pass is due although nothing happens."""
        try:
            due = self.state.next_due
        except Exception as error:
            self._failed("next", "when a pass is due", error)
            due = None  # passes come when something is heard, and every few seconds
        if self._foreseen_due:
            due = self._foreseen_due if due is None else min(due, self._foreseen_due)
        status = self._queues_due if self.state.queues.fair.touched else None
        if self._keeps:
            kept = max(self._kept_due, self._queues_due)
            status = kept if status is None else min(kept, status)
        picture = self._picture_due if self._picture_stale else None
        again = min((each.due for each in self._again.values()), default=None)
        times = (due, status, picture, self._soon, self._counts_due, again)
        return min((time for time in times if time is not None), default=None)

    @property
    def _keeps(self) -> bool:
        """Whether there is something to write that a restart would forget."""
        return bool(self.state.policy.usage_half_life or self.state.runtimes.changed)

    def _queue_statuses(self, now: float) -> list[Output]:
        """Statuses of queues that changed, all at once and not too often."""
        queues = self.state.queues
        self._kept_is_due = self._keeps and now >= self._kept_due
        if not (queues.fair.touched or self._kept_is_due) or now < self._queues_due:
            return []
        if self._kept_is_due:
            self._kept_due = now + _KEPT_REST
        queues.fair.touched = False
        self._queues_due = now + _STATUS_REST
        told: list[Output] = []
        for name, node in sorted(queues.queues.items()):
            try:
                status = self._queue_status(node, now)
            except Exception as error:
                self._failed("status", f"queue {name}", error)
                continue
            if queues.has_object(name) and self._queues.get(name) != status:
                self._queues[name] = status
                told.append(status)
        if self._kept_is_due:
            self.state.runtimes.changed.clear()
            self.state.foretold.changed.clear()
        return told

    def _queue_status(self, node: QueueNode, now: float) -> QueueStatus:
        return QueueStatus(
            node.name,
            tuple(sorted((resource, held) for resource, held in node.used.items() if held)),
            node.pods_waiting,
            tuple(sorted(self.state.queues.fair.share.get(node.name, {}).items())),
            self._usage_of(node.name, now),
            self._why_waits(node),
            self._run_times_of(node.name),
            tuple(sorted((resource, held) for resource, held in node.foreign.items() if held)),
            self._forecasts_of(node.name),
        )

    def _why_waits(self, node: QueueNode) -> Reason | None:
        """Why the first job of a queue waits; as told before, while only the numbers behind it change."""
        first = node.first_refused()
        reason = explain.own(self.state, *first) if first is not None else None
        told = self._queues.get(node.name)
        if reason is not None and told is not None and told.reason is not None and told.reason.code is reason.code:
            return told.reason
        return reason

    def _usage_of(self, name: str, now: float) -> UsageRecord | None:
        """What a queue used of late, as of the latest checkpoint."""
        if self._kept_is_due:
            return self.state.queues.fair.usage.checkpoint(name, now)
        told = self._queues.get(name)
        return told.usage if told is not None else None

    def _run_times_of(self, name: str) -> tuple[RunTimeRecord, ...]:
        """What was learned in a queue, as of the latest checkpoint."""
        if self._kept_is_due and name in self.state.runtimes.changed:
            return self.state.runtimes.written(name)
        told = self._queues.get(name)
        return told.run_times if told is not None else ()

    def _forecasts_of(self, name: str) -> tuple[ForecastRecord, ...]:
        """What became of starts that were foretold in a queue, as of the latest checkpoint."""
        if self._kept_is_due and name in self.state.foretold.changed:
            return self.state.foretold.written(name)
        told = self._queues.get(name)
        return told.forecasts if told is not None else ()

    def _reservation_statuses(self, now: float) -> list[Output]:
        """Statuses of reservations that changed."""
        told: list[Output] = []
        table = self.state.reserved
        for name, given in sorted(table.given.items()):
            try:
                status = self._reservation_status(given, now)
            except Exception as error:
                self._failed("status", f"reservation {name}", error)
                continue
            if self._reservations.get(name) != status:
                self._reservations[name] = status
                told.append(status)
        for name in set(self._reservations) - set(table.given):
            del self._reservations[name]
        return told

    def _reservation_status(self, given: Reservation, now: float) -> ReservationStatus:
        phase = "Pending" if now < given.start else "Active" if now < given.end else "Over"
        hold = self.state.reserved.holds.get(f"reservation/{given.name}")
        nodes = tuple(sorted(self.state.nodes.names[row] for row in hold.rows)) if hold is not None else ()
        return ReservationStatus(given.name, phase, nodes[:_MOST_NODES])

    def _foresee(self, now: float) -> None:
        """When gangs that wait are expected to start: looked at from time to time, told when it moved by a tenth of the wait."""
        waiting = {
            gang.key
            for room in self.state.queues.parked
            if (unit := room.first()) is not None and (gang := unit.gang) is not None and gang.group is not None
        }
        if not waiting:
            self._foreseen_due = 0.0
        if not waiting or now < self._foreseen_due:
            return
        self._foreseen_due = now + _FORECAST_REST
        before, self._foreseen = self._foreseen, self._foretell(now)
        for key, gang in self.state.gangs.items():
            start, old = self._foreseen.get(key), before.get(key)
            if gang.group is None or start is None:
                continue
            if old is not None and not _moved(old, start, now):
                self._foreseen[key] = old
            else:
                self._groups.add(key)

    def _foretell(self, now: float) -> dict[str, Expected]:
        return self.state.foretold.look(self.state, forecast(self.state, now, _MOST_ENDS), now)

    def _verdicts_now(self) -> list[Output]:
        """Whether queues, classes, reservations and node pools are in force as they are, where that changed."""
        told: list[Output] = []
        if not self._judge:
            return told
        self._judge = False
        for (kind, name), complaint in sorted(self._judged.items()):
            try:
                verdict = self._verdict(kind, name, complaint)
            except Exception as error:
                self._failed("status", f"{kind}/{name}", error)
                continue
            if self._verdicts.get((kind, name)) != verdict:
                self._verdicts[kind, name] = verdict
                told.append(verdict)
        return told

    def _verdict(self, kind: str, name: str, complaint: str) -> Verdict:
        accepted, reason, message = True, "Accepted", ""
        refused = self._refused.get(name) if kind == "queues" else None
        if refused is not None:
            accepted, reason, message = (
                False,
                str(refused.code),
                f"{refused.message}; the previous policy stays in effect",
            )
        elif complaint:
            accepted, reason, message = False, "Unsupported", complaint
        elif kind == "queues" and (doubt := self.state.queues.doubt(name)) is not None:
            accepted, reason, message = doubt
        return Verdict(kind, name, accepted, reason, message)

    def _group_statuses(self, now: float) -> list[Output]:
        """Statuses of groups that changed since they were last told; where only counts did, not too often."""
        statuses: list[Output] = []
        later: set[str] = set()
        for key in sorted(self._groups):
            try:
                status = self._group_status(key)
            except Exception as error:
                self._failed("status", f"group {key}", error)
                continue
            if status is None:
                continue
            since = now - self._counted.get(key, -math.inf)
            if 0 <= since < _COUNTS_REST and status.counts_only(self._told.get(key)):
                later.add(key)
                continue
            self._told[key], self._counted[key] = status, now
            statuses.append(status)
        self._groups = later
        self._counts_due = min((self._counted[key] + _COUNTS_REST for key in later), default=None)
        return statuses

    def _group_status(self, key: str) -> GroupStatus | None:
        """What is to be said of a group; None: nothing that was not said."""
        gang = self.state.gangs.get(key)
        if gang is None or gang.group is None:
            return None
        bound = sum(task.state is TaskState.BOUND for task in gang.tasks.values())
        reason = gang.reason
        if reason is None and not bound:
            waiting = next((task.unit for task in gang.tasks.values() if task.unit is not None), None)
            room = room_of(waiting) if waiting is not None else None
            shared = room.parked if room is not None else None
            reason = explain.own(self.state, waiting, shared) if waiting is not None and shared is not None else None
        held = [task for task in gang.tasks.values() if task.state is TaskState.HELD and task.told is not None]
        if reason is None and held:
            reason = self.state.departures.reason(held)
        reason = reason or self.state.starts.stay.get(key) or self.state.belonging.differs(key)
        expected = self._foreseen.get(key) if not gang.placed() else None
        phase = "Scheduled" if bound >= gang.needed else "Pending"
        if gang.succeeded and not gang.needed and not gang.tasks:
            phase = "Succeeded"
        if key in self.state.suspended.targets:
            phase = "Suspended"
        completed = gang.completions.record if gang.completions is not None else None
        start, earliest, latest = expected if expected is not None else (None, None, None)
        status = GroupStatus(key, phase, bound, reason, start, completed, gang.failed_starts, earliest, latest)
        told = self._told.get(key)
        if told is not None and told.says() == status.says() and told.foretells() == status.foretells():
            return None
        if told is not None and len(gang.placed()) > bound + len(held):
            return None  # bindings are on their way: one write when they are through
        return status


def _moved(old: Expected, new: Expected, now: float) -> bool:
    """Whether a start, or an end of its interval, moved by more than a tenth of the wait."""
    return any(abs(one - other) > (max(other, now) - now) * _MOVED for one, other in zip(new, old, strict=True))


def _key_of(event: ClusterEvent) -> tuple[str, str]:
    """Of what an event speaks: (kind, name)."""
    if isinstance(event, Gone):
        return event.kind, event.key
    if isinstance(event, Upsert):
        about = event.object
        kind = "pod" if isinstance(about, Pod) else type(about).__name__.lower()
        return kind, about.uid if isinstance(about, Pod) else str(getattr(about, "key", "") or getattr(about, "name", ""))
    return "", ""

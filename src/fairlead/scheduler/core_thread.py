"""The core's thread: events in, transactions out.

It owns the state; nobody else touches it. Events are applied as they come, also between two
transactions of a pass. One bad event is logged and counted, and the loop goes on. Nothing is
decided before everything that exists has been heard (`Synced`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

import msgspec
import structlog

from fairlead.api.reasons import Reason
from fairlead.cluster.port import BindFailed, Bound, ClusterEvent, EvictFailed, Gone, Synced, Upsert
from fairlead.core.model import Group, Node, Pod, Policy, Queue
from fairlead.core.schedule import has_work, schedule
from fairlead.core.state import ClusterState
from fairlead.core.tasks import TaskState
from fairlead.core.transactions import Place, PodRef, Preempt, Refuse, Transaction

log = structlog.get_logger("core")

_CHUNK = 16
_BUDGET = 512
_IDLE = 5.0


class GroupStatus(msgspec.Struct, frozen=True):
    """Where a pod group stands, to be written to its status."""

    group: str
    phase: str
    scheduled: int
    reason: Reason | None


class Trouble(msgspec.Struct, frozen=True):
    """An object that could not be taken in."""

    pod: PodRef | None
    message: str


Output = Transaction | GroupStatus | Trouble


class Counters(msgspec.Struct):
    """What the thread did, read by the metrics."""

    events: int = 0
    passes: int = 0
    placed: int = 0
    refused: int = 0
    preempted: int = 0
    errors: int = 0
    pass_seconds: float = 0.0


class CoreThread(threading.Thread):
    """Start it, `send` it events, and it calls `deliver` with batches of outputs (from its thread)."""

    def __init__(
        self,
        policy: Policy,
        deliver: Callable[[list[Output]], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name="fairlead-core", daemon=True)
        self.state = ClusterState(policy)
        self.counters = Counters()
        self.synced = False
        self.busy = False  # units are left to try: more bindings are coming
        self.progressed = time.monotonic()
        self._deliver = deliver
        self._clock = clock
        self._inbox: SimpleQueue[list[ClusterEvent] | None] = SimpleQueue()
        self._groups: set[str] = set()
        self._told: dict[str, GroupStatus] = {}
        self._stopped = False

    def send(self, events: list[ClusterEvent]) -> None:
        """Hand over events, in order; returns at once."""
        self._inbox.put(events)

    def stop(self) -> None:
        """End after what is at hand; then `join`."""
        self._inbox.put(None)

    def run(self) -> None:
        """Apply, decide, deliver, until stopped."""
        while not self._stopped:
            self.progressed = time.monotonic()
            try:
                self._receive(self._patience())
                if self.synced and not self._stopped:
                    self._decide()
            except Exception:
                # A fault of ours must not end the process: it is loud, counted, and the next event tries again.
                self.counters.errors += 1
                log.exception("pass failed")
                time.sleep(0.1)

    def _patience(self) -> float:
        self.busy = self.synced and has_work(self.state)
        if self.busy:
            return 0.0
        due = self.state.next_due
        return _IDLE if due is None else min(_IDLE, max(0.01, due - self._clock()))

    def _receive(self, patience: float) -> None:
        """Apply everything that has come, waiting up to `patience` seconds for the first."""
        try:
            batch = self._inbox.get(timeout=patience) if patience else self._inbox.get_nowait()
            while True:
                if batch is None:
                    self._stopped = True
                    return
                for event in batch:
                    self._apply(event)
                batch = self._inbox.get_nowait()
        except Empty:
            return

    def _apply(self, event: ClusterEvent) -> None:
        self.counters.events += 1
        try:
            self._take_in(event)
        except Exception as error:
            self.counters.errors += 1
            log.exception("event not applied", about=repr(event)[:500])
            about = event.object if isinstance(event, Upsert) else None
            pod = PodRef(about.uid, about.namespace, about.name) if isinstance(about, Pod) else None
            self._deliver([Trouble(pod, f"the object could not be taken in: {error!r}")])

    def _take_in(self, event: ClusterEvent) -> None:
        state = self.state
        if isinstance(event, Upsert):
            about = event.object
            if isinstance(about, Pod):
                state.upsert_pod(about)
                if about.group and about.ours:
                    self._groups.add(f"{about.namespace}/{about.group}")
            elif isinstance(about, Node):
                state.upsert_node(about)
            elif isinstance(about, Queue):
                refused = state.upsert_queue(about)
                if refused is not None:
                    log.warning("queue change refused", queue=about.name, reason=refused.message)
            elif isinstance(about, Group):
                state.upsert_group(about)
                self._groups.add(about.key)
        elif isinstance(event, Bound):
            state.bound(event.uid)
            self._mark_group(event.uid)
        elif isinstance(event, BindFailed):
            state.bind_failed(event.uid, self._clock())
            self._mark_group(event.uid)
        elif isinstance(event, EvictFailed):
            state.evict_failed(event.uid, self._clock())
        elif isinstance(event, Gone):
            self._mark_group(event.key)
            removers = {
                "pod": state.remove_pod,
                "node": state.remove_node,
                "queue": state.remove_queue,
                "group": state.remove_group,
            }
            removers[event.kind](event.key)
            if event.kind == "group":
                self._told.pop(event.key, None)
        elif isinstance(event, Synced):
            self.synced = True

    def _mark_group(self, uid: str) -> None:
        task = self.state.tasks.get(uid)
        if task is not None and task.gang is not None:
            self._groups.add(task.gang.key)

    def _decide(self) -> None:
        start = time.perf_counter()
        self.busy = True
        outputs: list[Output] = []
        try:
            for transaction in schedule(self.state, self._clock(), _BUDGET):
                self._count(transaction)
                outputs.append(transaction)
                if len(outputs) >= _CHUNK:
                    self._deliver(outputs)
                    outputs = []
            outputs += self._group_statuses()
        finally:
            # What was decided is assumed in the state already: it must be carried out, whatever happened after.
            if outputs:
                self._deliver(outputs)
            self.counters.passes += 1
            self.counters.pass_seconds += time.perf_counter() - start

    def _count(self, transaction: Transaction) -> None:
        if isinstance(transaction, Place):
            self.counters.placed += len(transaction.bindings)
        elif isinstance(transaction, Refuse):
            self.counters.refused += len(transaction.pods)
        elif isinstance(transaction, Preempt):
            self.counters.preempted += len(transaction.victims)
        group = transaction.group
        if group:
            self._groups.add(group)

    def _group_statuses(self) -> list[Output]:
        """Statuses of groups that changed since they were last told."""
        statuses: list[Output] = []
        for key in sorted(self._groups):
            gang = self.state.gangs.get(key)
            if gang is None or gang.group is None:
                continue
            bound = sum(task.state is TaskState.BOUND for task in gang.tasks.values())
            reason = gang.reason
            if reason is None and not bound:
                waiting = next((task.unit for task in gang.tasks.values() if task.unit is not None), None)
                reason = waiting.room.parked if waiting is not None and waiting.room is not None else None
            status = GroupStatus(key, "Scheduled" if bound >= gang.min_member else "Pending", bound, reason)
            told = self._told.get(key)
            if told is None or (told.phase, told.scheduled, told.reason and told.reason.code) != (
                status.phase,
                status.scheduled,
                reason and reason.code,
            ):
                placing = len(gang.placed()) > bound
                if placing and told is not None:
                    continue  # bindings are on their way: one write when they are through
                self._told[key] = status
                statuses.append(status)
        self._groups.clear()
        return statuses

"""The applier: carries out transactions, in their order, many writes at a time.

Three lines wait before one pool of writers: bindings and evictions first, then conditions and
statuses, then events. Later lines move only when nothing urgent waits, is being written, or is about
to be decided, so that nothing stands between a decision and its binding; but none waits longer than
`_PATIENCE`. Every outcome goes back to the
core.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.grouping import is_upstream
from fairlead.cluster.port import BindFailed, Bound, Cluster, ClusterEvent, EvictFailed, GroupReport, Outcome, QueueReport
from fairlead.cluster.transport import Unreachable
from fairlead.core.model.objects import stands_in
from fairlead.core.model.transactions import (
    Binding,
    Evict,
    Fault,
    Kept,
    Overdue,
    Place,
    PodRef,
    Preempt,
    Refuse,
    Resume,
    Suspension,
    Unread,
    Warn,
)
from fairlead.observability.metrics import Distribution
from fairlead.scheduler.outputs import GroupStatus, Output, QueueStatus, ReservationStatus, Trouble, Verdict

log = structlog.get_logger("applier")

_PATIENCE = 30.0
_MOST_EVENTS = 200_000
_LOOK_AGAIN = 0.01
_LONGEST_WAIT = 60.0  # seconds between two attempts to write a status
# More writes in flight cost the API server less each, but every connection costs a handshake: width follows the backlog.
_WIDTH, _DEPTH = 64, 40

_TAKEN_DOWN = {
    ReasonCode.TIME_LIMIT: "TimeLimit",
    ReasonCode.START_TIMEOUT: "StartTimeout",
    ReasonCode.SUSPENDED: "SuspendTimedOut",
    ReasonCode.WAITING_FOR_VICTIMS: "GraceShortened",
}

_BIND_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
Work = Callable[[], Awaitable[None]]
Status = TypeVar("Status")


class WriteCounters(msgspec.Struct):
    """What was written, read by the metrics."""

    bound: int = 0
    bind_failed: int = 0
    evicted: int = 0
    evict_failed: int = 0
    suspended: int = 0
    resumed: int = 0
    plans_released: int = 0
    conditions: int = 0
    events: int = 0
    events_dropped: int = 0
    latencies: Distribution = msgspec.field(default_factory=lambda: Distribution(_BIND_BOUNDS))  # of bindings


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
        self.cluster = cluster
        self.report = report
        self.epoch = epoch
        self.writers = writers
        self.write_events = write_events
        self.busy = busy
        self.counters = WriteCounters()
        self.in_flight = 0
        self._lines: tuple[deque[tuple[float, Work]], ...] = (deque(), deque(), deque())
        self._width = _WIDTH
        self._urgent = 0  # bindings and evictions being written now
        self._groups = _Latest(self, self._write_group)
        self._queues = _Latest(self, self._write_queue)
        self._refusals = _Latest(self, self._write_refusal)
        self._reservations = _Latest(self, self._write_reservation)
        self._verdicts = _Latest(self, self._write_verdict)
        self._conditions = _Latest(self, self._write_condition)
        self._events: dict[PodRef | str, dict[tuple[str, str], tuple[str, bool]]] = {}  # about whom -> (reason, action) -> note
        self._resting: deque[asyncio.Future[None]] = deque()
        self._looking = False
        self._volumes: set[asyncio.Task[None]] = set()  # volumes being bound or made: slow, and no writer's business
        self._outcomes: list[ClusterEvent] = []
        self._flushing = False

    def submit(self, outputs: list[Output]) -> None:
        """Take over decisions; returns at once."""
        for output in outputs:
            if isinstance(output, Place):
                for binding in output.bindings:
                    self._refusals.drop(binding.pod.uid)
                    if binding.volumes:
                        self._bind_volumes(binding)
                    else:
                        self._enter(0, _Bind(self, binding))
            elif isinstance(output, Preempt):
                self._enter(0, _EvictAll(self, output))
            elif isinstance(output, Evict):
                self._take_down(output)
            elif isinstance(output, Resume):
                self._resume(output)
            elif isinstance(output, Refuse):
                self._refuse(output)
            elif isinstance(output, Overdue):
                self._tell_overdue(output)
            elif isinstance(output, Warn):
                for pod in _real(output.pods):
                    self.event(pod, output.event, output.message, warning=True, action="Preempting")
            elif isinstance(output, Unread):
                self._tell_unread(output)
            elif isinstance(output, Fault):
                self._tell_fault(output)
            elif isinstance(output, Kept):
                self.event(output.pod, str(output.reason.code), output.reason.message, warning=True, action="Counting")
            elif isinstance(output, GroupStatus):
                self._groups.put(output.group, output)
            elif isinstance(output, QueueStatus):
                self._queues.put(output.queue, output)
            elif isinstance(output, ReservationStatus):
                self._reservations.put(output.reservation, output)
            elif isinstance(output, Verdict):
                self._verdicts.put(f"{output.kind}/{output.name}", output)
            elif isinstance(output, Trouble) and output.pod is not None:
                self.event(output.pod, "FailedScheduling", output.message, warning=True)

    async def _write_group(self, status: GroupStatus) -> None:
        report = GroupReport(
            status.phase,
            status.scheduled,
            status.reason,
            status.expected_start,
            status.completed,
            status.failed_starts,
            status.earliest_start,
            status.latest_start,
        )
        await self.cluster.group_status(status.group, report)

    async def _write_refusal(self, told: tuple[PodRef, Reason]) -> None:
        self.counters.conditions += 1
        await self.cluster.refuse(*told)

    async def _write_reservation(self, status: ReservationStatus) -> None:
        await self.cluster.reservation_status(status.reservation, status.phase, status.nodes)

    async def _write_verdict(self, verdict: Verdict) -> None:
        await self.cluster.verdict(
            verdict.kind, verdict.name, accepted=verdict.accepted, reason=verdict.reason, message=verdict.message
        )

    async def _write_condition(self, told: tuple[PodRef | str, str, str, str]) -> None:
        await self.cluster.condition(*told)

    async def _write_queue(self, status: QueueStatus) -> None:
        amounts = dict(status.allocated), status.pending, dict(status.fair_share)
        report = QueueReport(*amounts, status.usage, status.reason, status.run_times, dict(status.foreign), status.forecasts)
        await self.cluster.queue_status(status.queue, report)

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.writers):
                    group.create_task(self._write())
        finally:
            for task in self._volumes:
                task.cancel()

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not self.in_flight and not any(self._lines) and not self._volumes

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    # -- lines ---------------------------------------------------------------------------------

    def _enter(self, line: int, work: Work) -> None:
        self._lines[line].append((self._now(), work))
        self._wake(1)

    def _next(self) -> tuple[int, Work] | None:
        """The work that may be done now: urgent work always, the rest only when nothing urgent is about."""
        urgent, *later = self._lines
        if not urgent and not self._urgent:
            self._width = _WIDTH
        elif len(urgent) > self._width * _DEPTH:
            self._width = min(self.writers, len(urgent) // _DEPTH)
        if self.in_flight >= min(self._width, self.writers):
            return None
        for number, line in enumerate(later, 1):
            if line and self._now() - line[0][0] > _PATIENCE:
                return number, line.popleft()[1]
        if urgent:
            return 0, urgent.popleft()[1]
        if self._urgent or self.busy():
            return None
        for number, line in enumerate(later, 1):
            if line:
                return number, line.popleft()[1]
        return None

    async def _write(self) -> None:
        while True:
            chosen = self._next()
            if chosen is None:
                await self._rest()
                continue
            number, work = chosen
            self.in_flight += 1
            self._urgent += number == 0
            try:
                await work()
            except Unreachable as error:
                log.error("outcome unknown", error=str(error)[:300])
            except Exception as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError from error  # what is cut off may end with an error instead
                log.exception("write failed", line=number)
            finally:
                self.in_flight -= 1
                self._urgent -= number == 0
                # This writer takes the next itself; others are called only where there is more to do at once.
                if self._lines[0]:
                    if self.in_flight + 1 < self._width:
                        self._wake(1)
                elif not self._urgent and any(self._lines):
                    self._wake(self._width)

    async def _rest(self) -> None:
        """Wait until there is work; while only the core holds it back, look again a little later."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._resting.append(waiter)
        if not self._urgent and any(self._lines) and not self._looking:
            self._looking = True
            loop.call_later(_LOOK_AGAIN, self._look)
        await waiter

    def _look(self) -> None:
        self._looking = False
        self._wake(self._width)

    def _wake(self, count: int) -> None:
        while self._resting and count:
            waiter = self._resting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def outcome(self, event: ClusterEvent) -> None:
        """Report an outcome; several of one moment go together."""
        self._outcomes.append(event)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_later(0.005, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        outcomes, self._outcomes = self._outcomes, []
        self.report(outcomes)

    # -- kinds of work -------------------------------------------------------------------------

    def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """One event, behind everything else. What is said again while it waits is written once, as it was last said."""
        if not self.write_events:
            return
        said = self._events.get(regarding)
        if said is None:
            if len(self._lines[2]) >= _MOST_EVENTS:
                self.counters.events_dropped += 1
                return
            said = self._events[regarding] = {}
            self._enter(2, partial(self._write_events, regarding))
        said.pop((reason, action), None)
        said[reason, action] = note, warning

    async def _write_events(self, regarding: PodRef | str) -> None:
        said = self._events[regarding]
        try:
            while said:
                reason, action = what = next(iter(said))
                note, warning = said.pop(what)
                self.counters.events += 1
                await self.cluster.event(regarding, reason, note, warning=warning, action=action)
        finally:
            if said:
                self._enter(2, partial(self._write_events, regarding))
            else:
                del self._events[regarding]

    def _bind_volumes(self, binding: Binding) -> None:
        async def work() -> None:
            outcome, message = await _answer(self.cluster.bind_volumes(binding))
            if outcome is Outcome.DONE:
                self._enter(0, _Bind(self, binding))
                return
            self.counters.bind_failed += 1
            self.outcome(BindFailed(binding.pod.uid, message))
            self.event(binding.pod, "FailedScheduling", f"volumes for {binding.node} were not bound: {message}", warning=True)

        task = asyncio.ensure_future(work())
        self._volumes.add(task)
        task.add_done_callback(self._volumes.discard)

    def _refuse(self, refusal: Refuse) -> None:
        for pod in _real(refusal.pods):
            self._refusals.put(pod.uid, (pod, refusal.reason))
            self.event(pod, "FailedScheduling", refusal.reason.message, warning=True)
        if refusal.group:
            self.event(refusal.group, "FailedScheduling", refusal.reason.message, warning=True)

    def _tell_fault(self, fault: Fault) -> None:
        for pod in _real(fault.pods):
            self._refusals.put(pod.uid, (pod, fault.reason))
            self.event(pod, str(fault.reason.code), fault.reason.message, warning=True)
        if fault.group:
            self.event(fault.group, str(fault.reason.code), fault.reason.message, warning=True)

    def _tell_overdue(self, late: Overdue) -> None:
        about: list[PodRef | str] = [*_real(late.pods), *([late.group] if late.group else [])]
        for each in about:
            kind = names.MAX_WAIT_CONDITION
            self._conditions.put(f"{kind} {each}", (each, kind, kind, late.message))
            self.event(each, kind, late.message, warning=True)

    def _tell_unread(self, unread: Unread) -> None:
        pod, node, message = unread.pod, unread.node, unread.reason.message
        if pod is None:
            self.event(node, "NodeClosed", f"no pod is placed on it: {message}", warning=True, action="Counting")
        elif unread.closes:
            why = f"because its size cannot be read: {message}"
            self.event(
                pod,
                "NodeClosed",
                f"no pod is placed on node {node} while this pod is on it, {why}",
                warning=True,
                action="Counting",
            )
            self.event(
                node, "NodeClosed", f"no pod is placed on it while pod {pod.key} is on it, {why}", warning=True, action="Counting"
            )
        else:
            note = f"{message}; on node {node} it is counted as it was read before, or by its requests"
            self.event(pod, str(unread.reason.code), note, warning=True, action="Counting")

    def _resume(self, decision: Resume) -> None:
        async def write() -> None:
            outcome, message = await _answer(self.cluster.resume(decision))
            if outcome is Outcome.REFUSED:
                log.warning("not resumed", group=decision.group, error=message)
                for pod in decision.pods:
                    self.outcome(BindFailed(pod.uid, message))
            elif decision.pods:
                self.counters.resumed += 1
                note = f"Capacity is free again on {len(set(decision.nodes))} nodes: {', '.join(sorted(set(decision.nodes))[:8])}"
                self.event(decision.group, "Resumed", note, action="Resuming")

        self._enter(0, write)

    def _take_down(self, decision: Evict) -> None:
        what = _TAKEN_DOWN.get(decision.reason.code, "GangBroken")
        if decision.group:
            self.event(decision.group, what, decision.reason.message, warning=True, action="Evicting")
        graces = dict(decision.graces)
        for victim in decision.victims:
            if not decision.group:
                self.event(victim.pod, what, decision.reason.message, warning=True, action="Evicting")

            async def write(pod: PodRef = victim.pod) -> None:
                outcome, message = await self.cluster.evict(pod, dry_run=False, grace=graces.get(pod.uid))
                if outcome is Outcome.REFUSED:
                    self.counters.evict_failed += 1
                    log.warning("not evicted", reason=what, pod=pod.key, error=message)
                else:
                    self.counters.evicted += 1

            self._enter(0, write)


async def _answer(write: Awaitable[tuple[Outcome, str]]) -> tuple[Outcome, str]:
    """An answer whatever happens: the core counts on one. Did the write take effect after all, an event will say so."""
    try:
        return await write
    except Unreachable as error:
        return Outcome.REFUSED, str(error)
    except Exception as error:
        log.exception("write failed")
        return Outcome.REFUSED, f"{type(error).__name__}: {error}"


def _real(pods: Sequence[PodRef]) -> list[PodRef]:
    """Without those that only stand for pods of suspended jobs: the cluster knows none of them."""
    return [pod for pod in pods if not stands_in(pod.uid)]


class _Bind:
    """Write one binding."""

    __slots__ = ("applier", "binding", "since")

    def __init__(self, applier: Applier, binding: Binding) -> None:
        self.applier = applier
        self.binding = binding
        self.since = applier._now()

    async def __call__(self) -> None:
        applier, binding = self.applier, self.binding
        outcome, message = await _answer(applier.cluster.bind(binding, applier.epoch()))
        applier.counters.latencies.observe(applier._now() - self.since)
        if outcome is Outcome.DONE:
            applier.counters.bound += 1
            applier.outcome(Bound(binding.pod.uid))
            applier.event(binding.pod, "Scheduled", f"Successfully assigned {binding.pod.key} to {binding.node}")
            return
        applier.counters.bind_failed += 1
        applier.outcome(BindFailed(binding.pod.uid, message))
        if outcome is Outcome.REFUSED:
            log.warning("binding refused", pod=binding.pod.key, node=binding.node, error=message)
            applier.event(binding.pod, "FailedScheduling", f"binding to {binding.node} was refused: {message}", warning=True)


class _EvictAll:
    """Evict a plan's victims: all are tried dry first, and only if all may go, they go."""

    __slots__ = ("applier", "plan")

    def __init__(self, applier: Applier, plan: Preempt) -> None:
        self.applier = applier
        self.plan = plan

    async def __call__(self) -> None:
        victims = [victim.pod for victim in self.plan.victims]
        if self.plan.outright:
            await self._outright(victims)
        else:
            await self._asking_budgets(victims)

    async def _outright(self, victims: list[PodRef]) -> None:
        """As kube-scheduler does: nominate the node, then delete, whatever the budgets say."""
        cluster = self.applier.cluster
        note = f"{len(victims)} pods are preempted for it"
        for binding in self.plan.beneficiaries:
            await cluster.nominate(binding.pod, binding.node, Reason(ReasonCode.RESOURCES, note))
        done = await asyncio.gather(*(_answer(cluster.preempt(pod)) for pod in victims))
        self._count(victims, done)

    async def _asking_budgets(self, victims: list[PodRef]) -> None:
        cluster, overrides = self.applier.cluster, set(self.plan.overrides)
        asked = [pod for pod in victims if pod.uid not in overrides]
        tried = await asyncio.gather(*(_answer(cluster.evict(pod, dry_run=True)) for pod in asked))
        if any(outcome is Outcome.REFUSED for outcome, _ in tried):
            self._give_up(asked, tried)
            return
        suspended = {uid for job in self.plan.suspends for uid in job.pods}
        evicted = [pod for pod in victims if pod.uid not in suspended]
        graces = dict(self.plan.graces)
        writes = (
            cluster.preempt(pod, grace=graces.get(pod.uid))
            if pod.uid in overrides
            else cluster.evict(pod, dry_run=False, grace=graces.get(pod.uid))
            for pod in evicted
        )
        done = await asyncio.gather(*(_answer(write) for write in writes))
        self._count(evicted, done)
        if all(outcome is not Outcome.REFUSED for outcome, _ in done):
            await asyncio.gather(*(self._suspend(job, victims) for job in self.plan.suspends))

    async def _suspend(self, job: Suspension, victims: Sequence[PodRef]) -> None:
        outcome, message = await _answer(self.applier.cluster.suspend(job))
        pods = [pod for pod in victims if pod.uid in job.pods]
        if outcome is Outcome.REFUSED:
            self._give_up(pods, [(outcome, message)] * len(pods))
            return
        self.applier.counters.suspended += 1
        everybody: list[PodRef | str] = [*pods, job.group]
        for about in everybody:
            self.applier.event(about, "Suspended", self._note().replace("Preempted", "Suspended", 1), action="Preempting")

    def _count(self, victims: list[PodRef], done: Sequence[tuple[Outcome, str]]) -> None:
        for pod, (outcome, _) in zip(victims, done, strict=True):
            if outcome is not Outcome.REFUSED:
                self.applier.counters.evicted += 1
                moved = pod.uid in self.plan.moved
                reason, action = ("Rescheduled", "Consolidating") if moved else ("Preempted", "Preempting")
                self.applier.event(pod, reason, self._note(moved=moved), action=action)
        if any(outcome is not Outcome.REFUSED for outcome, _ in done):
            for group in self.plan.groups:
                self.applier.event(group, "Preempted", self._note(), action="Preempting")
                if is_upstream(group):
                    kind, reason = "DisruptionTarget", "PreemptionByScheduler"
                    self.applier._conditions.put(f"{kind} {group}", (group, kind, reason, self._note()))
        self._give_up(victims, done)

    def _give_up(self, victims: list[PodRef], outcomes: Sequence[tuple[Outcome, str]]) -> None:
        """Tell the core of victims that would not go."""
        applier = self.applier
        refused = [
            (pod, message) for pod, (outcome, message) in zip(victims, outcomes, strict=True) if outcome is Outcome.REFUSED
        ]
        if refused:
            applier.counters.plans_released += 1
            applier.counters.evict_failed += len(refused)
            for pod, message in refused:
                applier.outcome(EvictFailed(pod.uid, message))
            log.warning("preemption given up", victims=[pod.key for pod, _ in refused], error=refused[0][1])

    def _note(self, *, moved: bool = False) -> str:
        if not self.plan.beneficiaries:
            return f"Rescheduled: {self.plan.why}"
        first = self.plan.beneficiaries[0]
        if moved:
            return f"Rescheduled so that {self.plan.group or first.pod.key} fits on node {first.node}"
        why = f": {self.plan.why}" if self.plan.why else ""
        return f"Preempted by {self.plan.group or first.pod.key} on node {first.node}{why}"


class _Latest(Generic[Status]):
    """The latest that is to be written about each of many things; several changes in one moment are one write.

    Never two at a time about one thing: they might arrive in the other order, and what is overtaken would stay. What the API
    server does not take for now is written again after a pause that doubles, unless something newer was said meanwhile.
    """

    __slots__ = ("applier", "busy", "dropped", "failures", "late", "waiting", "write")

    def __init__(self, applier: Applier, write: Callable[[Status], Awaitable[None]]) -> None:
        self.applier = applier
        self.write = write
        self.waiting: dict[str, Status] = {}
        self.busy: set[str] = set()
        self.dropped: set[str] = set()  # of those that are busy
        self.late: dict[str, Status] = {}  # could not be written
        self.failures: dict[str, int] = {}  # in a row

    def put(self, key: str, status: Status) -> None:
        """Write this about `key`, instead of whatever waits to be written about it."""
        self.late.pop(key, None)
        self.dropped.discard(key)
        entered = key in self.waiting or key in self.busy
        self.waiting[key] = status
        if not entered:
            self.applier._enter(1, partial(self._write, key))

    def drop(self, key: str) -> None:
        """What waits to be written about `key` is true no more."""
        self.waiting.pop(key, None)
        self.late.pop(key, None)
        self.failures.pop(key, None)
        if key in self.busy:
            self.dropped.add(key)

    def _again(self, key: str) -> None:
        if key in self.late:
            self.put(key, self.late[key])

    async def _write(self, key: str) -> None:
        if key not in self.waiting or key in self.busy:
            return  # it was dropped, or whoever writes about it now comes back for it
        self.busy.add(key)
        status = self.waiting.pop(key)
        try:
            await self.write(status)
            self.failures.pop(key, None)
        except Unreachable:
            if key not in self.waiting and key not in self.dropped:
                self.late[key] = status
                failures = self.failures[key] = self.failures.get(key, 0) + 1
                asyncio.get_running_loop().call_later(min(2.0 ** (failures - 1), _LONGEST_WAIT), self._again, key)
        finally:
            self.busy.discard(key)
            self.dropped.discard(key)
            if key in self.waiting:
                self.applier._enter(1, partial(self._write, key))

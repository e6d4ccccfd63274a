"""Arrays: the same job many times. Each element goes its own way by the rules of `plan`; here they are made and counted.

Finished elements are two sets of indexes in the job's status; an element under way is its pods, and its history (attempts,
restarts) a line in the status as soon as it has any. The cost of a reconciliation grows with what happened since the last one,
not with the number of elements. Pods are made as they find places: only so many wait for a node at a time as already run, within
limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

import msgspec

from fairlead.api.kinds.ai_job import AIJob, AIJobStatus, ElementStatus
from fairlead.cluster.times import seconds, timestamp
from fairlead.operator.jobs import indexes
from fairlead.operator.jobs.attempt import Given
from fairlead.operator.jobs.dependencies import READY, Gate, State, Verdict
from fairlead.operator.jobs.members import Member, members
from fairlead.operator.jobs.phases import BY_USER, FINISHED, Phase, step
from fairlead.operator.jobs.plan import LEAST_AHEAD, MOST_AHEAD, Blame, Plan, Step, plan
from fairlead.operator.jobs.pods import PodSeen
from fairlead.operator.jobs.starting import due

Idle = Callable[[AIJob, Iterable[PodSeen]], tuple[str, float | None]]
"""Why an element, as a job of its own with its pods, is shut down, empty if it is not; and in how many seconds to recheck."""


class ArrayRun:
    """One array. Rebuilt from the job and its pods it is the same again. Raises `indexes.WrongIndexes`."""

    def __init__(self, job: AIJob) -> None:
        spec, status = job.spec.array, job.status or AIJobStatus()
        self.indexes = indexes.parse(spec.indexes if spec is not None else "")
        self.completed = set(indexes.parse(status.completed_indexes))
        self.failed = set(indexes.parse(status.failed_indexes))
        self.behind = {each.index: each for each in status.elements}
        over = self.completed | self.failed
        self.waiting = [index for index in reversed(self.indexes) if index not in over]  # the next is last
        self.active: dict[int, dict[str, PodSeen]] = {}
        self._left: dict[str, PodSeen] = {}  # pods of elements that are over, which were not deleted yet
        self._unplaced: set[int] = set()
        self._ran: dict[int, str] = {}  # since when those ran that went while they did
        self._dirty: set[int] = set(self.behind)
        self._timers: list[tuple[float, int]] = []
        self._judged: dict[int, float] = {}  # when an element is next checked for idleness
        self._blamed: list[Blame] = []
        self._failed: list[tuple[int, int]] = []
        self._size = len(members(job, 0))
        self._settled = False

    # -- what is observed ----------------------------------------------------------------------

    def observed(self, pod: PodSeen) -> None:
        """A pod of an element came or changed."""
        index = pod.element
        if index in self.completed or index in self.failed:
            self._left.pop(pod.name, None)
            if pod.phase in ("Pending", "Running") and not pod.terminating:
                self._left[pod.name] = pod
        elif index >= 0:
            self.active.setdefault(index, {})[pod.name] = pod
            self._dirty.add(index)

    def gone(self, pod: PodSeen) -> None:
        """A pod of an element is no more."""
        self._left.pop(pod.name, None)
        if self.active.get(pod.element, {}).pop(pod.name, None) is not None:
            self._dirty.add(pod.element)
            behind = self.behind.get(pod.element)
            under_way = pod.attempt == (behind.attempt if behind is not None else 0)
            if pod.started and pod.phase == "Running" and under_way:
                self._ran[pod.element] = pod.started

    # -- what is done --------------------------------------------------------------------------

    def plan(
        self,
        job: AIJob,
        now: float,
        first: Verdict = READY,
        gate: Gate | None = None,
        *,
        idle: Idle | None = None,
        write_counts: bool = True,
    ) -> Plan:
        """The next step.

        gate: of each element, where these wait for those of another array. idle: where idle elements are shut down.
        write_counts: whether changed counts are written.
        """
        all_pods = [pod for pods in (*self.active.values(), self._left) for pod in pods.values()] if self._ends(job) else ()
        current = Step(job, all_pods, Given(now=now, first=first))
        before = Phase(current.old.phase)
        if before in FINISHED:
            return current.finished()
        if gate is not None:
            self._settle(gate)
        if job.spec.suspend:
            return self._suspend(current, before)
        if first.state is not State.READY and not self.active and not self.behind and not self.completed:
            waits = Step(job, (), Given(now=now, first=first)).wait(before)
            return msgspec.structs.replace(waits, status=msgspec.structs.replace(waits.status, **self._counts()))
        return self._go_on(current, before, gate, idle, write=write_counts)

    def _settle(self, gate: Gate) -> None:
        """Once the others have ended, elements that have no counterpart that succeeded have failed: the others may be deleted."""
        if gate.over and not self._settled:
            never = {index for index in self.waiting if gate(index) is State.FAILED}
            self.failed |= never
            self.waiting = [index for index in self.waiting if index not in never]
        self._settled = gate.over

    @staticmethod
    def _ends(job: AIJob) -> bool:
        """Whether all pods are to be checked, and not only those that changed."""
        return job.spec.suspend or (job.status is not None and job.status.phase in FINISHED)

    def _suspend(self, current: Step, before: Phase) -> Plan:
        for index, pods in self.active.items():
            old = self.behind.get(index, ElementStatus(index=index))
            placed = any(pod.node for pod in pods.values())
            if any(pod.attempt == old.attempt for pod in pods.values()):
                self.behind[index] = msgspec.structs.replace(
                    old, attempt=old.attempt + 1, interruptions=old.interruptions + placed, resume_at=None
                )
            if not placed:
                self._unplaced.add(index)
        leaving = current.leaving(current.attempt.pods.values()) + current.leaving(current.attempt.stale)
        if before is not Phase.SUSPENDED:
            current.events.append(("Suspended", BY_USER, False))
            self._dirty.update(self.active)
        status = self._status(current, step(before, Phase.SUSPENDED), suspended="User")
        return Plan(status, delete=leaving, events=tuple(current.events))

    def _go_on(self, current: Step, before: Phase, gate: Gate | None, idle: Idle | None, *, write: bool) -> Plan:
        create: list[Member] = []
        delete = list(current.leaving(self._left.values()))
        self._left.clear()
        remembered = False
        while self._timers and self._timers[0][0] <= current.now:
            self._dirty.add(heappop(self._timers)[1])
        dirty, self._dirty = sorted(self._dirty), set()
        for index in dirty:
            if index in self.completed or index in self.failed:
                continue
            made, left, changed = self._element(current, index, idle)
            create += made
            delete += left
            remembered = remembered or changed
        create += self._begin(current.job, gate)
        if not self.waiting and not self.active:
            return self._end(current, before, delete)
        busy = self._busy()
        phase = Phase.RUNNING if busy or self.completed or self.failed else Phase.PENDING
        if phase is not before:
            current.events.append((str(phase), f"{busy} of {len(self.indexes)} elements run", False))
        lacks = current.given.first if gate is not None and gate.missing and self.waiting else None
        newly = lacks is not None and current.old.message != lacks.message
        if lacks is not None and newly:
            current.events.append(("Dependency", lacks.message, True))
        written = write or remembered or newly or phase is not before
        status = self._status(current, step(before, phase), lacks=lacks) if written else current.old
        attempts = {each.element: self.behind[each.element].attempt for each in create if each.element in self.behind}
        again = max(0.0, self._timers[0][0] - current.now) if self._timers else None
        made, gone, events = tuple(create), tuple(delete), tuple(current.events)
        blamed, self._blamed = tuple(self._blamed), []
        failed, self._failed = tuple(self._failed), []
        return Plan(
            status,
            made,
            gone,
            recheck_after=again,
            events=events,
            attempts=attempts,
            unwritten=not written,
            blamed=blamed,
            failed=failed,
        )

    def _on_its_way(self, current: Step, index: int, old: ElementStatus, pod: PodSeen) -> bool:
        """Whether there is nothing to do for an element's only pod now; when there may be is noted."""
        if pod.phase not in ("Pending", "Running") or pod.attempt != old.attempt or pod.terminating:
            return False
        if pod.starting is None:
            return True
        ends = due(current.job, pod.bound, pod.starting)
        if ends <= current.now:
            return False
        heappush(self._timers, (ends, index))
        return True

    def _element(self, current: Step, index: int, idle: Idle | None) -> tuple[Iterable[Member], Iterable[str], bool]:
        """One element's next step: members to make, pods to delete, and whether its history changed."""
        pods = self.active.get(index, {})
        old = self.behind.get(index, ElementStatus(index=index))
        # Pods of earlier attempts may take long to terminate; they do not count for the one under way.
        present = [pod for pod in pods.values() if pod.attempt == old.attempt]
        if any(pod.node for pod in present):
            self._unplaced.discard(index)
        if len(pods) == self._size == 1 and idle is None and self._on_its_way(current, index, old, *pods.values()):
            return (), (), False  # by far the commonest
        running = any(pod.phase == "Running" for pod in present)
        status = AIJobStatus(
            phase="Restarting" if old.resume_at else "Running" if running else "Pending",
            attempt=old.attempt,
            restarts=old.restarts,
            interruptions=old.interruptions,
            complete_attempt=old.attempt if running else -1,
            resume_at=old.resume_at,
            running_since=self._ran.pop(index, None),
            avoided_nodes=old.avoided_nodes,
            starts=old.starts,
        )
        as_job = msgspec.structs.replace(current.job, status=status)
        why = self._judge(idle, as_job, present, index, current.now) if idle is not None else ""
        decided = plan(as_job, list(pods.values()), Given(now=current.now, element=index, idle=why))
        after = decided.status
        self._blamed += decided.blamed
        self._failed += decided.failed
        if after.phase in ("Succeeded", "Failed"):
            (self.completed if after.phase == "Succeeded" else self.failed).add(index)
            if after.phase == "Failed":
                current.events.append(("ElementFailed", f"element {index}: {after.message}", True))
            self._forget(index)
            return (), decided.delete, False
        if index not in self.active:
            self.active[index] = {}
            if index in self.waiting:
                self.waiting.remove(index)
        behind = msgspec.structs.replace(
            old,
            attempt=after.attempt,
            restarts=after.restarts,
            interruptions=after.interruptions,
            resume_at=after.resume_at,
            avoided_nodes=after.avoided_nodes,
            starts=after.starts,
        )
        changed = behind != old
        if changed:
            self.behind[index] = behind
            current.events += decided.events
        self._schedule_next(current.now, index, behind, decided.recheck_after, changed=changed)
        if decided.create:
            self._unplaced.add(index)
        return decided.create, decided.delete, changed

    def _schedule_next(
        self, now: float, index: int, behind: ElementStatus, seconds_later: float | None, *, changed: bool
    ) -> None:
        """Note when an element has its next step."""
        if behind.resume_at:
            heappush(self._timers, (seconds(behind.resume_at), index))
        elif changed and seconds_later is not None:
            self._dirty.add(index)
            heappush(self._timers, (now, index))
        elif seconds_later is not None:
            heappush(self._timers, (now + seconds_later, index))

    def _judge(self, idle: Idle, job: AIJob, pods: Iterable[PodSeen], index: int, now: float) -> str:
        """Why an element is idle; it is rechecked when it may be, once for however many reconciliations."""
        why, again = idle(job, pods)
        due = self._judged.get(index, 0.0)
        if again is not None and not now < due <= now + again:
            self._judged[index] = now + again
            heappush(self._timers, (now + again, index))
        return why

    def _begin(self, job: AIJob, gate: Gate | None) -> list[Member]:
        """Elements that may begin now, within the limits."""
        spec = job.spec.array
        at_once = spec.parallelism if spec is not None and spec.parallelism else len(self.indexes)
        ahead = min(max(LEAST_AHEAD, len(self.active) - len(self._unplaced)), MOST_AHEAD)
        made: list[Member] = []
        held: list[int] = []
        while self.waiting and len(self.active) < at_once and len(self._unplaced) < ahead:
            index = self.waiting.pop()
            if index in self.active or index in self.completed or index in self.failed:
                continue  # its pods were there already
            state = gate(index) if gate is not None else State.READY
            if state is State.FAILED:
                self.failed.add(index)
            elif state is not State.READY:
                held.append(index)
            else:
                self.active[index] = {}
                self._unplaced.add(index)
                made += members(job, index)
        self.waiting += reversed(held)
        return made

    def _busy(self) -> int:
        """How many have a node."""
        return len(self.active) - len(self._unplaced) - sum(each.resume_at is not None for each in self.behind.values())

    def _forget(self, index: int) -> None:
        self.active.pop(index, None)
        self.behind.pop(index, None)
        self._unplaced.discard(index)
        self._judged.pop(index, None)

    def _end(self, current: Step, before: Phase, delete: list[str]) -> Plan:
        phase = Phase.FAILED if self.failed else Phase.SUCCEEDED
        few = indexes.shown(self.failed)
        message = (
            f"{len(self.failed)} of {len(self.indexes)} elements failed: {few[:200]}"
            if self.failed
            else f"all {len(self.indexes)} elements have succeeded"
        )
        ended = current.end(before, phase, message)
        status = msgspec.structs.replace(ended.status, **self._counts())
        return msgspec.structs.replace(ended, status=status, delete=(*delete, *ended.delete))

    def _counts(self) -> Mapping[str, object]:
        return {
            "members": len(self.indexes),
            "running": self._busy(),
            "succeeded": len(self.completed),
            "completed_indexes": indexes.shown(self.completed),
            "failed_indexes": indexes.shown(self.failed),
            "elements": [self.behind[index] for index in sorted(self.behind)],
        }

    def _status(self, current: Step, phase: Phase, suspended: str = "", lacks: Verdict | None = None) -> AIJobStatus:
        """lacks: the elements that are left wait for a job that does not exist."""
        started = current.old.started_at or (timestamp(current.now) if phase is Phase.RUNNING else None)
        accepted, message = (True, "Accepted", ""), ""
        if lacks is not None:
            accepted, message = (False, "DependencyMissing", lacks.message), lacks.message
        status = current.status(phase, suspended=suspended, started_at=started, accepted=accepted, message=message)
        return msgspec.structs.replace(status, **self._counts())

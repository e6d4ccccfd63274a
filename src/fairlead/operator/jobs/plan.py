"""What is to be done for a job, and what its status is: a function of the job, its pods, its target state, and the time.

Nothing is read and nothing is written here; every action may be repeated, and the answer after a fault is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus, AlternativeStatus, JobStarts
from fairlead.api.kinds.common import Condition
from fairlead.cluster.times import seconds, timestamp
from fairlead.core.model.backoff import backoff
from fairlead.operator.jobs.attempt import STARTED, Attempt, Given
from fairlead.operator.jobs.defaults import ENDLESS
from fairlead.operator.jobs.defaults import restarts as restarts_of
from fairlead.operator.jobs.dependencies import State
from fairlead.operator.jobs.members import Member
from fairlead.operator.jobs.phases import BY_USER, FINISHED, Phase, step
from fairlead.operator.jobs.pods import DEADLINE, HARDWARE, NODE_LOST, PodSeen
from fairlead.operator.jobs.starting import Verdict as StartVerdict

SHORTEST_BACKOFF, _LONGEST_BACKOFF = 1.0, 600.0
"""Seconds before a restart, whatever the job gives; doubled for each after the first."""
_SHORT_RUN = 60.0
"""Seconds: a job that asks for another attempt sooner may have done nothing."""
_GIVEN_UP_FOR = 10.0
"""Seconds until members beyond the minimum that did not start are made again; doubled for each time in a row."""
_MOST_TEXT = 1024
_SETTLES_IN = 2.0  # seconds from the first that comes or goes until the size is what it is
LEAST_AHEAD, MOST_AHEAD = 32, 256
"""Elastic members, and elements of an array, wait for a node so many at a time: as many as run, within these."""
_MOST_NODES = 1000
_MOST_PREFERRED = 64  # nodes that a pod names as such that it had rather be on
_MOST_AVOIDED = 8  # nodes that it names as such that it had rather not be on
_PENDING, _RUNNING, _FAILED = "Pending", "Running", "Failed"


class Blame(msgspec.Struct, frozen=True, order=True):
    """A node that failed a member of a role, and how: its kubelet refused it, or (lost) the node was lost."""

    node: str
    why: str
    lost: bool
    role: str = ""


class Plan(msgspec.Struct, frozen=True):
    """What to do. recheck_after: seconds from now, None if nothing happens by itself. events: (reason, message, warning).

    attempts: of elements of an array for which members are created, where it is not the first. unwritten: the status is not
    written yet. blamed: nodes that failed members. failed: (element, attempt) of attempts that failed by themselves, which is no
    evidence against a node yet. excused: pods that failed and are to be marked as succeeded.
    """

    status: AIJobStatus
    create: tuple[Member, ...] = ()
    delete: tuple[str, ...] = ()
    delete_job: bool = False
    recheck_after: float | None = None
    events: tuple[tuple[str, str, bool], ...] = ()
    attempts: Mapping[int, int] = {}
    unwritten: bool = False
    blamed: tuple[Blame, ...] = ()
    failed: tuple[tuple[int, int], ...] = ()
    excused: tuple[str, ...] = ()


def plan(job: AIJob, pods: Sequence[PodSeen], given: Given) -> Plan:
    """The next step of a job."""
    return Step(job, pods, given).take()


class Step:
    """One reconciliation of a job."""

    def __init__(self, job: AIJob, pods: Sequence[PodSeen], given: Given) -> None:
        self.job = job
        self.given = given
        self.now = given.now
        self.attempt = Attempt(job, pods, given)
        self.old = self.attempt.old
        self.events: list[tuple[str, str, bool]] = []
        self.saved = max((pod.saved for pod in pods), default="") if job.spec.checkpoint is not None else ""

    def take(self) -> Plan:
        """What to do."""
        job, old = self.job, self.old
        before = Phase(old.phase)
        if before in FINISHED:
            return self.finished()
        if job.spec.suspend or self.given.suspended:
            return self._suspend(before)
        if self.given.first.state is not State.READY and self._untouched():
            return self.wait(before)
        if before is Phase.RESTARTING and old.resume_at and (left := seconds(old.resume_at) - self.now) > 0:
            return Plan(old, delete=self.leaving(self.attempt.stale), recheck_after=left)
        if self.given.form is not None and not any(pod.node or pod.phase != _PENDING for pod in self.attempt.pods.values()):
            return self._take_form(before, self.given.form)
        return self._go_on(before)

    # -- the cases -----------------------------------------------------------------------------

    def _untouched(self) -> bool:
        """Whether it has not begun: once it has, those that came first are no matter any more."""
        return not self.attempt.pods and self.attempt.number == 0 and self.old.complete_attempt < 0

    def wait(self, before: Phase) -> Plan:
        """Others come first, or it never begins."""
        state, message, _ = self.given.first
        if state is State.FAILED:
            return self.end(before, Phase.FAILED, message)
        if state is State.NOT_NEEDED:
            return self.end(before, Phase.SUCCEEDED, message)
        accepted = (False, "DependencyCycle", message) if state is State.CYCLE else (True, "Accepted", "")
        if state is State.MISSING:
            accepted = (False, "DependencyMissing", message)
        if self.old.message != message:
            self.events.append(("Dependency", message, state in (State.CYCLE, State.MISSING)))
        return Plan(self.status(step(before, Phase.PENDING), message=message, accepted=accepted), events=tuple(self.events))

    def finished(self) -> Plan:
        """Nothing of it runs on; after a while the object goes, too."""
        old = self.old
        alive = [pod for pod in (*self.attempt.pods.values(), *self.attempt.stale) if pod.phase in (_PENDING, _RUNNING)]
        ttl = self.job.spec.ttl_after_finished
        if ttl is None or old.finished_at is None:
            return Plan(old, delete=self.leaving(alive))
        left = seconds(old.finished_at) + spans.seconds(ttl) - self.now
        return Plan(old, delete=self.leaving(alive), delete_job=left <= 0, recheck_after=left if left > 0 else None)

    def _suspend(self, before: Phase) -> Plan:
        """No pods; those that end may save their work. The next ones are another attempt, which costs nothing."""
        present = [*self.attempt.pods.values(), *self.attempt.stale]
        who = "User" if self.job.spec.suspend else "Policy"
        changes: dict[str, Any] = {"resume_at": None}
        if before is not Phase.SUSPENDED:
            self.events.append(("Suspended", BY_USER if who == "User" else "suspended by the scheduler", False))
            if self.attempt.pods:
                ran = any(pod.node for pod in self.attempt.pods.values())
                changes |= {"attempt": self.attempt.number + 1, "interruptions": self.old.interruptions + ran}
        status = self.status(step(before, Phase.SUSPENDED), suspended=who, **changes)
        return Plan(status, delete=self.leaving(present), events=tuple(self.events))

    def _take_form(self, before: Phase, form: AlternativeStatus) -> Plan:
        """It has no node yet and can start in another form: its pods are made anew."""
        pool = f" in pool {form.pool}" if form.pool else ""
        message = f"it takes {f'alternative {form.index}' if form.index else 'its role as written'}{pool}, in which it can start"
        self.events.append(("AlternativeChosen", message, False))
        status = self.status(
            step(before, Phase.PENDING), attempt=self.attempt.number + 1, alternative=form, resume_at=None, message=message
        )
        gone = self.leaving((*self.attempt.pods.values(), *self.attempt.stale))
        return Plan(status, delete=gone, recheck_after=0.0, events=tuple(self.events))

    def _go_on(self, before: Phase) -> Plan:  # noqa: PLR0911 - the first that ends it
        """What ended it, or has it start again; else it goes on."""
        attempt = self.attempt
        late = next((pod for pod in attempt.failed if pod.reason == DEADLINE and not attempt.excused(pod)), None)
        if late is not None:
            return self.end(before, Phase.FAILED, f"{late.name} reached the activeDeadlineSeconds of its template")
        counted = [pod for pod in attempt.failed if not attempt.excused(pod) and attempt.action(pod) != "Ignore"]
        ending = next((pod for pod in counted if attempt.action(pod) == "Fail"), None)
        if ending is not None:
            message = f"{ending.name} ended with exit code {ending.exit_code}, which ends the job"
            return self.end(before, Phase.FAILED, message)
        own = [pod for pod in counted if attempt.action(pod) != "Restart"]
        if own:
            return self._restart(before, min(own, key=lambda pod: pod.ended or math.inf))
        if attempt.succeeded():
            return self.end(before, Phase.SUCCEEDED, "all required members have succeeded")
        lost, leaving = attempt.lost()
        if lost and attempt.over_limit():
            return self.end(before, Phase.FAILED, f"it reached its time limit of {attempt.limit()}")
        if self.given.idle:
            phase = Phase.SUCCEEDED if self.job.spec.workload_type == "Interactive" else Phase.FAILED
            self.events.append(("Idle", self.given.idle, True))
            return self.end(before, phase, self.given.idle)
        if lost:
            return self._interrupted(before, lost, itself=bool(counted))
        starts = attempt.judge_start()
        if starts.culprit:
            return self._not_started(before, starts)
        leaving += [attempt.pods[name] for name in starts.spared]
        return self._run_on(before, starts, leaving)

    def _run_on(self, before: Phase, starts: StartVerdict, leaving: list[PodSeen]) -> Plan:
        """The attempt goes on: members that are missing are made. leaving: those that it goes on without."""
        attempt = self.attempt
        named, done, pods = attempt.named, attempt.done, attempt.pods
        closed = {each.role for name, each in named.items() if name in done} & attempt.elastic  # its size is final
        wanted = {name: each for name, each in named.items() if each.role not in closed or name in pods}
        waiting = [pod for pod in pods.values() if pod.name not in wanted or (named[pod.name].role in closed and not pod.node)]
        absent = tuple(each for name, each in wanted.items() if name not in pods and name not in done)
        at_work = {name: each for name, each in named.items() if name in done or attempt.works(name)}
        counts = Counter(each.role for each in at_work.values())
        enough = all(counts[role] >= least for role, least in attempt.least.items())
        failed_starts = self._failed_starts(starts, all_run=wanted.keys() <= at_work.keys())
        rests = seconds(failed_starts.retry_at) - self.now if failed_starts is not None else 0.0
        if rests > 0:
            absent = tuple(each for each in absent if not each.elastic and counts[each.role] < attempt.least[each.role])
        missing = self._as_they_find_places(absent)
        settles = self._settles(before, len(at_work)) if enough else None
        status = self.status(
            step(before, self._phase_with(enough=enough, settles=settles, any_started=bool(at_work))),
            started=enough,
            running=len(at_work) - len(done),
            succeeded=len(done),
            succeeded_members=attempt.succeeded_members(),
            complete_attempt=self.old.complete_attempt if any(not each.elastic for each in missing) else attempt.number,
            resume_at=timestamp(settles) if settles is not None else None,
            running_since=attempt.since,
            starts=failed_starts,
        )
        if enough:
            used = sorted({pod.node for pod in pods.values() if pod.node})[:_MOST_NODES]
            status = msgspec.structs.replace(self._sized(status, len(at_work)), nodes=used)
        if status.phase != before:
            self.events.append((status.phase, f"{len(at_work)} of {len(attempt.members)} members run", False))
        gone = self.leaving([*attempt.stale, *waiting, *leaving])
        again = self._due_in(settles, starts.due, self.now + rests)
        mark = tuple(sorted(pod.name for pod in attempt.failed if pod.name in done and not pod.excused))
        return Plan(status, create=missing, delete=gone, recheck_after=again, events=tuple(self.events), excused=mark)

    def _due_in(self, settles: float | None, starts: float | None, rested: float) -> float | None:
        """In how many seconds: when the size settles, a start is to be judged, or it has rested, whichever comes first."""
        times = [each for each in (settles, starts, rested) if each is not None]
        times = [each for each in times if each > self.now or each == starts]
        return max(0.0, min(times) - self.now) if times else None

    def _failed_starts(self, starts: StartVerdict, *, all_run: bool) -> JobStarts | None:
        """What is to be remembered of members that the job can do without and that did not start: it waits ever longer for them.

        It is forgotten once all run, or when they have found no place for the longest wait. all_run: whether they do.
        """
        old = self.old.starts
        if not starts.spared:
            over = seconds(old.retry_at) + (0.0 if all_run else _LONGEST_BACKOFF) if old is not None else 0.0
            tried = any(pod.starting is not None and pod.node for pod in self.attempt.pods.values())
            return old if self.now < over or (tried and not all_run) else None
        if old is not None and self.now < seconds(old.retry_at):
            return old  # it was placed with one that failed a moment ago: that is one start
        failed = old.failed + 1 if old is not None else 1
        wait = backoff(_GIVEN_UP_FOR, failed, _LONGEST_BACKOFF)
        self.events.append(("NotStarted", f"{starts.message}: retried in {wait:g} s, the other members continue", True))
        return JobStarts(failed=failed, retry_at=timestamp(math.ceil(self.now + wait)), message=starts.message[:_MOST_TEXT])

    def _as_they_find_places(self, missing: tuple[Member, ...]) -> tuple[Member, ...]:
        """Of elastic members, only so many wait for a node at a time as already have one, within limits."""
        if not any(each.elastic for each in missing):
            return missing
        placed = sum(bool(pod.node) for pod in self.attempt.pods.values())
        waiting = sum(not pod.node and pod.phase == _PENDING for pod in self.attempt.pods.values())
        allowed = max(0, min(max(LEAST_AHEAD, placed), MOST_AHEAD) - waiting)
        first = [each for each in missing if each.elastic][:allowed]
        return (*(each for each in missing if not each.elastic), *first)

    @staticmethod
    def _phase_with(*, enough: bool, settles: float | None, any_started: bool) -> Phase:
        if not enough:
            return Phase.STARTING if any_started else Phase.PENDING
        return Phase.RUNNING if settles is None else Phase.RESIZING

    def _settles(self, before: Phase, size: int) -> float | None:
        """When the size counts as settled, at the earliest; None if it is.

        Those that come or go for one reason do so within moments: they are one change, as they are to a rendezvous.
        """
        if not self.attempt.elastic or before not in (Phase.RUNNING, Phase.RESIZING):
            return None
        changing = any(pod.terminating or (pod.node and pod.phase == _PENDING) for pod in self.attempt.pods.values())
        if not changing and size == self.old.size:
            return None
        since = seconds(self.old.resume_at) if before is Phase.RESIZING and self.old.resume_at else self.now + _SETTLES_IN
        return since if changing or self.now < since else None

    def _sized(self, status: AIJobStatus, size: int) -> AIJobStatus:
        """It runs; its size is recorded once no member comes or goes."""
        started = status.started_at or timestamp(self.now)
        if status.phase == Phase.RESIZING or size == status.size:
            return msgspec.structs.replace(status, started_at=started)
        resized = bool(status.size) and bool(self.attempt.elastic) and self.attempt.number == self.old.complete_attempt
        if resized:
            self.events.append(("Resized", f"from {status.size} to {size} members", False))
        return msgspec.structs.replace(status, started_at=started, size=size, resizes=status.resizes + resized)

    def _not_started(self, before: Phase, why: StartVerdict) -> Plan:
        """A member does not start: the whole job gives its places back and starts again, while its budget lasts."""
        unstarted = why.reason, why.message
        if why.for_good:
            return self.end(before, Phase.FAILED, why.message, unstarted)
        return self._restart(before, self.attempt.pods[why.culprit], why.message, unstarted)

    def _restart(self, before: Phase, culprit: PodSeen, why: str = "", unstarted: tuple[str, str] | None = None) -> Plan:
        """A member failed by itself: the whole job starts again, while its budget lasts.

        why, unstarted: it did not even start, which is no evidence against its node.
        """
        code = f" with exit code {culprit.exit_code}" if culprit.exit_code is not None else ""
        why = why or f"{culprit.name} failed{code}"
        failed = ((self.given.element, self.attempt.number),) if unstarted is None else ()
        restarts, limit = self.old.restarts + 1, restarts_of(self.job)
        if restarts > limit:
            ended = self.end(before, Phase.FAILED, f"{why}, and all {limit} restarts are used up", unstarted)
            return msgspec.structs.replace(ended, failed=failed)
        first = self._first_wait()
        wait = backoff(first, restarts, _LONGEST_BACKOFF)
        if self._ran() >= _LONGEST_BACKOFF:
            wait = min(first, wait)
        most = f" of {limit}" if limit < ENDLESS else ""
        message = f"{why}: restart {restarts}{most} in {wait:g} s"
        self.events.append(("Restarting", message, True))
        status = self.status(
            step(before, Phase.RESTARTING),
            attempt=self.attempt.number + 1,
            restarts=restarts,
            nodes=(good := self._good([culprit])),
            preferred_nodes=good[:_MOST_PREFERRED],
            avoided_nodes=self._avoided(culprit),
            resume_at=timestamp(math.ceil(self.now + wait)),
            message=message,
            unstarted=unstarted,
        )
        gone = self.leaving(self.attempt.pods.values())
        return Plan(status, delete=gone, recheck_after=wait, events=tuple(self.events), failed=failed)

    def _first_wait(self) -> float:
        return max(spans.seconds(self.job.spec.restart.backoff), SHORTEST_BACKOFF)

    def _ran(self) -> float:
        """Seconds for which the attempt ran, as far as that is known."""
        return self.now - seconds(self.attempt.since) if self.attempt.since else 0.0

    def _avoided(self, culprit: PodSeen) -> list[str]:
        """Nodes where it is not tried again as long as there are others: only elsewhere does it show whose fault it is."""
        nodes = [node for node in self.old.avoided_nodes if node != culprit.node]
        return [*nodes, *([culprit.node] if culprit.node else [])][-_MOST_AVOIDED:]

    def _interrupted(self, before: Phase, why: str, *, itself: bool) -> Plan:
        """It lost members through no fault of its own: it starts again at once, for nothing.

        itself: it asked for that by an exit code. One that does so again and again soon after its start waits ever longer.
        """
        wait = 0.0
        if itself and self._ran() < _SHORT_RUN:
            wait = backoff(self._first_wait(), self.old.interruptions + 1, _LONGEST_BACKOFF)
        self.events.append(("Interrupted", f"{why}: the job restarts", True))
        status = self.status(
            step(before, Phase.RESTARTING),
            attempt=self.attempt.number + 1,
            interruptions=self.old.interruptions + 1,
            nodes=(good := self._good(pod for pod in self.attempt.pods.values() if pod.phase == _FAILED or pod.disrupted)),
            preferred_nodes=good[:_MOST_PREFERRED],
            resume_at=timestamp(math.ceil(self.now + wait)) if wait else None,
            message=why,
        )
        gone = self.leaving(self.attempt.pods.values())
        blamed = self._blamed(pod for pod in self.attempt.pods.values() if pod.phase == _FAILED and pod.reason in HARDWARE)
        return Plan(status, delete=gone, recheck_after=wait, events=tuple(self.events), blamed=blamed)

    def _good(self, failed: Iterable[PodSeen]) -> list[str]:
        """The nodes that it ran on, but for those of its members that failed or were taken."""
        bad = {pod.node for pod in failed}
        return [node for node in self.old.nodes if node not in bad]

    @staticmethod
    def _blamed(pods: Iterable[PodSeen]) -> tuple[Blame, ...]:
        found = {
            pod.node: Blame(
                pod.node, f"{pod.name}: {pod.reason or f'exit code {pod.exit_code}'}", pod.reason == NODE_LOST, pod.role
            )
            for pod in pods
            if pod.node
        }
        return tuple(sorted(found.values()))

    def end(self, before: Phase, phase: Phase, message: str, unstarted: tuple[str, str] | None = None) -> Plan:
        """It is over. unstarted: for what members did not start, where it ends for that."""
        self.events.append((str(phase), message, phase is Phase.FAILED))
        status = self.status(
            step(before, phase),
            finished_at=timestamp(self.now),
            succeeded=len(self.attempt.done),
            succeeded_members=self.attempt.succeeded_members(),
            resume_at=None,
            message=message,
            unstarted=unstarted,
        )
        ttl = self.job.spec.ttl_after_finished
        alive = [pod for pod in (*self.attempt.pods.values(), *self.attempt.stale) if pod.phase in (_PENDING, _RUNNING)]
        again = spans.seconds(ttl) if ttl is not None else None
        return Plan(status, delete=self.leaving(alive), recheck_after=again, events=tuple(self.events))

    @staticmethod
    def leaving(pods: Iterable[PodSeen]) -> tuple[str, ...]:
        """Those that must be deleted still."""
        return tuple(sorted(pod.name for pod in pods if not pod.terminating))

    def status(
        self,
        phase: Phase,
        *,
        suspended: str = "",
        accepted: tuple[bool, str, str] = (True, "Accepted", ""),
        started: bool = False,
        unstarted: tuple[str, str] | None = None,
        **changes: object,
    ) -> AIJobStatus:
        """The status with these changes; what is not named and does not last is as at the beginning.

        started: all members that it needs have; unstarted: reason and message, where a start has failed. That stays until it
        has started.
        """
        kept = {"running": 0, "succeeded": 0, "succeeded_members": [], "message": "", "running_since": None, **changes}
        kept["met_dependencies"] = list(self.given.first.met)
        if kept.get("attempt", self.attempt.number) != self.attempt.number:
            kept["starts"] = None
        if self.saved > (self.old.last_checkpoint or ""):
            kept["last_checkpoint"] = self.saved
        conditions = [
            self._condition("Accepted", *accepted[1:], holds=accepted[0]),
            self._condition("Suspended", suspended or "NotSuspended", "", holds=bool(suspended)),
            self._condition("Complete", str(phase), "", holds=phase is Phase.SUCCEEDED),
            self._condition(
                "Failed", str(phase), str(kept["message"]) if phase is Phase.FAILED else "", holds=phase is Phase.FAILED
            ),
        ]
        failed_before = next((each for each in self.old.conditions if each.type == STARTED), None)
        if unstarted is not None:
            conditions.append(self._condition(STARTED, *unstarted, holds=False))
        elif failed_before is not None:
            conditions.append(self._condition(STARTED, "Started", "", holds=True) if started else failed_before)
        return msgspec.structs.replace(
            self.old, phase=str(phase), members=len(self.attempt.members), conditions=conditions, **kept
        )

    def _condition(self, kind: str, reason: str, message: str, *, holds: bool) -> Condition:
        status = "True" if holds else "False"
        old = next((each for each in self.old.conditions if each.type == kind), None)
        since = old.last_transition_time if old is not None and old.status == status else timestamp(self.now)
        return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)

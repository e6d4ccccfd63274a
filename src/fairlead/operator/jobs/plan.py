"""What is to be done for a job, and what its status is: a function of the job, its pods, the scheduler's intent, and the time.

Nothing is read and nothing is written here; every action may be repeated. Whoever asks again after a fault gets the same answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus, JobStarts, RoleIndexes
from fairlead.api.kinds.common import Condition
from fairlead.cluster.starting import RETRIED
from fairlead.cluster.times import seconds, timestamp
from fairlead.operator.jobs.defaults import ENDLESS
from fairlead.operator.jobs.defaults import restarts as restarts_of
from fairlead.operator.jobs.dependencies import READY, State, Verdict
from fairlead.operator.jobs.indexes import as_set, shown
from fairlead.operator.jobs.members import Member, bounds, members, name_of
from fairlead.operator.jobs.phases import FINISHED, Phase, step
from fairlead.operator.jobs.starting import Starting, judge
from fairlead.operator.jobs.starting import Verdict as StartVerdict

SHORTEST_BACKOFF, _LONGEST_BACKOFF = 1.0, 600.0
"""Seconds before a restart, whatever the job gives; doubled for each after the first."""
_GIVEN_UP_FOR = 10.0
"""Seconds until members beyond the minimum that did not start are made again; doubled for each time in a row."""
_MOST_TEXT = 1024
_CLOCKS_DIFFER = 2.0  # seconds
_SETTLES_IN = 2.0  # seconds from the first that comes or goes until the size is what it is
LEAST_AHEAD, MOST_AHEAD = 32, 256
"""Surplus members, and elements of an array, wait for a node so many at a time: as many as run, within these."""
_MOST_NODES = 1000
_MOST_PREFERRED = 64  # nodes that a pod names as such that it had rather be on
_MOST_AVOIDED = 8  # nodes that it names as such that it had rather not be on
STARTED = "Started"
"""Condition: False once a start of the job failed, until one succeeds; a job that starts at once has none."""
CHECKPOINTED = 85
"""With this exit code a member says that it has saved its work and is to be started again, for nothing."""
_PENDING, _RUNNING, _SUCCEEDED, _FAILED = "Pending", "Running", "Succeeded", "Failed"
NODE_LOST = "NodeLost"
_HARDWARE = frozenset({NODE_LOST, "UnexpectedAdmissionError"})
"""Reasons of a failed pod that speak against its node: it was lost, or its kubelet could not give what it had promised."""
_NOT_OUR_FAULT = _HARDWARE | {"NodeShutdown", "Terminated", "Evicted", "Preempting", "NodeAffinity", "Shutdown"}
"""Reasons of a failed pod that are its node's, not its own."""


class PodSeen(msgspec.Struct, frozen=True):
    """A pod of a job.

    exit_code: of the container that failed; disrupted: it was evicted, or its node went; element: of an array, else -1.
    saved: when it ended in good order after it was told to; started: when its kubelet took it on. made: when it was created,
    seconds since the epoch. limit: the time limit that it was made with, where it carries one itself. done: it succeeded
    before it was told to go. excused: it failed and is marked as one that counts as succeeded. bound: when it got its node,
    seconds since the epoch. starting: what keeps it there from starting, None: it has started, or has no node.
    index: which of its role it is. began, ended: when its containers did, seconds since the epoch, 0 if that is not known; the
    one that failed, if one did.
    """

    name: str
    attempt: int
    phase: str
    node: str = ""
    terminating: bool = False
    disrupted: bool = False
    reason: str = ""
    exit_code: int | None = None
    element: int = -1
    saved: str = ""
    role: str = ""
    started: str = ""
    made: float = 0.0
    limit: str = ""
    done: bool = False
    excused: bool = False
    bound: float = 0.0
    starting: Starting | None = None
    index: int = 0
    began: float = 0.0
    ended: float = 0.0


class Blame(msgspec.Struct, frozen=True, order=True):
    """A node that failed a member of a role, and how: its kubelet refused it, or (lost) the node was lost."""

    node: str
    why: str
    lost: bool
    role: str = ""


class Plan(msgspec.Struct, frozen=True):
    """What to do. look_again: seconds from now, None if nothing happens by itself. events: (reason, message, warning).

    attempts: of elements of an array for whom members are created, where it is not the first. untold: the status lags behind.
    blamed: nodes that failed members. failed: (element, attempt) of attempts that failed by themselves, which says nothing of a
    node yet. excused: pods that failed and are to be marked as succeeded.
    """

    status: AIJobStatus
    create: tuple[Member, ...] = ()
    delete: tuple[str, ...] = ()
    delete_job: bool = False
    look_again: float | None = None
    events: tuple[tuple[str, str, bool], ...] = ()
    attempts: Mapping[int, int] = {}
    untold: bool = False
    blamed: tuple[Blame, ...] = ()
    failed: tuple[tuple[int, int], ...] = ()
    excused: tuple[str, ...] = ()


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What counts beside a job and its pods. now: seconds since the epoch.

    suspended: by the scheduler. first: what those that come first say of it. element: of an array, with the job's status being
    that element's. idle: why it is shut down, if it does not use what it holds. ended: pods that succeeded and are gone.
    """

    now: float
    suspended: bool = False
    first: Verdict = READY
    element: int = -1
    idle: str = ""
    ended: frozenset[str] = frozenset()


def plan(job: AIJob, pods: Sequence[PodSeen], given: Given) -> Plan:
    """The next step of a job."""
    return Step(job, pods, given).take()


def action_on(job: AIJob, exit_code: int | None) -> str:
    """What a job's rules say of an exit code: Ignore, Restart, Fail; empty: nothing."""
    said = next((rule.action for rule in job.spec.restart.exit_codes if exit_code in rule.codes), "")
    return said or ("Restart" if exit_code == CHECKPOINTED and job.spec.checkpoint is not None else "")


class Step:
    """One look at a job."""

    def __init__(self, job: AIJob, pods: Sequence[PodSeen], given: Given) -> None:
        self.job = job
        self.given = given
        self.now = given.now
        self.old = job.status or AIJobStatus()
        self.members = members(job, given.element)
        self.least = {role.name: bounds(role)[0] for role in job.spec.roles}
        self.elastic = {role.name for role in job.spec.roles if bounds(role)[0] < bounds(role)[1]}
        self.attempt = self.old.attempt
        self.stale = [pod for pod in pods if pod.attempt != self.attempt]
        self.pods: Mapping[str, PodSeen] = {pod.name: pod for pod in pods if pod.attempt == self.attempt}
        self.events: list[tuple[str, str, bool]] = []
        started = min((pod.started for pod in self.pods.values() if pod.started), default=None)
        self.since = min(filter(None, (started, self.old.running_since)), default=None)
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
            return Plan(old, delete=self.leaving(self.stale), look_again=left)
        return self._go_on(before)

    # -- the cases -----------------------------------------------------------------------------

    def _untouched(self) -> bool:
        """Whether it has not begun: once it has, those that came first are no matter any more."""
        return not self.pods and self.attempt == 0 and self.old.complete_attempt < 0

    def wait(self, before: Phase) -> Plan:
        """Others come first, or it never begins."""
        state, message = self.given.first
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
        alive = [pod for pod in (*self.pods.values(), *self.stale) if pod.phase in (_PENDING, _RUNNING)]
        ttl = self.job.spec.ttl_after_finished
        if ttl is None or old.finished_at is None:
            return Plan(old, delete=self.leaving(alive))
        left = seconds(old.finished_at) + spans.seconds(ttl) - self.now
        return Plan(old, delete=self.leaving(alive), delete_job=left <= 0, look_again=left if left > 0 else None)

    def _suspend(self, before: Phase) -> Plan:
        """No pods; those that end may save their work. The next ones are another attempt, which costs nothing."""
        present = [*self.pods.values(), *self.stale]
        who = "User" if self.job.spec.suspend else "Policy"
        changes: dict[str, Any] = {"resume_at": None}
        if before is not Phase.SUSPENDED:
            self.events.append(("Suspended", f"suspended by {'its user' if who == 'User' else 'the scheduler'}", False))
            if self.pods:
                changes |= {"attempt": self.attempt + 1, "interruptions": self.old.interruptions + 1}
        status = self.status(step(before, Phase.SUSPENDED), suspended=who, **changes)
        return Plan(status, delete=self.leaving(present), events=tuple(self.events))

    def _go_on(self, before: Phase) -> Plan:
        failed = [pod for pod in self.pods.values() if pod.phase == _FAILED]
        counted = [pod for pod in failed if not self._excused(pod) and self._action(pod) != "Ignore"]
        ending = next((pod for pod in counted if self._action(pod) == "Fail"), None)
        if ending is not None:
            message = f"{ending.name} ended with exit code {ending.exit_code}, which ends the job"
            return self.end(before, Phase.FAILED, message)
        own = [pod for pod in counted if self._action(pod) != "Restart"]
        if own:
            return self._restart(before, min(own, key=lambda pod: pod.ended or math.inf))
        named = {name_of(self.job, each, self.attempt): each for each in self.members}
        done = self._done(named, failed)
        if self._succeeded(named, done):
            return self.end(before, Phase.SUCCEEDED, "all members that count have succeeded")
        lost, leaving = self._lost(named, done)
        if lost and self._over_limit():
            return self.end(before, Phase.FAILED, f"it ran for its time limit of {self._limit()}")
        if self.given.idle:
            phase = Phase.SUCCEEDED if self.job.spec.workload_type == "Interactive" else Phase.FAILED
            self.events.append(("Idle", self.given.idle, True))
            return self.end(before, phase, self.given.idle)
        if lost:
            return self._interrupted(before, lost)
        starts = self._judge_start(named, done)
        if starts.culprit:
            return self._not_started(before, starts)
        leaving += [self.pods[name] for name in starts.spared]
        closed = {each.role for name, each in named.items() if name in done} & self.elastic  # its size is final
        wanted = {name: each for name, each in named.items() if each.role not in closed or name in self.pods}
        waiting = [
            pod for pod in self.pods.values() if pod.name not in wanted or (named[pod.name].role in closed and not pod.node)
        ]
        absent = tuple(each for name, each in wanted.items() if name not in self.pods and name not in done)
        at_work = {name: each for name, each in named.items() if name in done or self._works(name)}
        counts = Counter(each.role for each in at_work.values())
        enough = all(counts[role] >= least for role, least in self.least.items())
        failed_starts = self._failed_starts(starts, all_run=wanted.keys() <= at_work.keys())
        rests = seconds(failed_starts.retry_at) - self.now if failed_starts is not None else 0.0
        if rests > 0:
            absent = tuple(each for each in absent if not each.surplus and counts[each.role] < self.least[each.role])
        missing = self._as_they_find_places(absent)
        settles = self._settles(before, len(at_work)) if enough else None
        status = self.status(
            step(before, self._phase_with(enough=enough, settles=settles, somebody=bool(at_work))),
            started=enough,
            running=len(at_work) - len(done),
            succeeded=len(done),
            succeeded_members=self._by_role(named, done),
            complete_attempt=self.old.complete_attempt if any(not each.surplus for each in missing) else self.attempt,
            resume_at=timestamp(settles) if settles is not None else None,
            running_since=self.since,
            starts=failed_starts,
        )
        if enough:
            used = sorted({pod.node for pod in self.pods.values() if pod.node})[:_MOST_NODES]
            status = msgspec.structs.replace(self._sized(status, len(at_work)), nodes=used)
        if status.phase != before:
            self.events.append((status.phase, f"{len(at_work)} of {len(self.members)} members run", False))
        gone = self.leaving([*self.stale, *waiting, *leaving])
        dues = [each for each in (settles, starts.due, self.now + rests) if each is not None]
        dues = [each for each in dues if each > self.now or each == starts.due]
        again = max(0.0, min(dues) - self.now) if dues else None
        mark = tuple(sorted(pod.name for pod in failed if pod.name in done and not pod.excused))
        return Plan(status, create=missing, delete=gone, look_again=again, events=tuple(self.events), excused=mark)

    def _failed_starts(self, starts: StartVerdict, *, all_run: bool) -> JobStarts | None:
        """What is to be remembered of members that the job can do without and that did not start: it waits ever longer for them.

        It is forgotten once all run, or when they have found no place for the longest wait. all_run: whether they do.
        """
        old = self.old.starts
        if not starts.spared:
            over = seconds(old.retry_at) + (0.0 if all_run else _LONGEST_BACKOFF) if old is not None else 0.0
            tried = any(pod.starting is not None and pod.node for pod in self.pods.values())
            return old if self.now < over or (tried and not all_run) else None
        if old is not None and self.now < seconds(old.retry_at):
            return old  # it was placed with one that failed a moment ago: that is one start
        failed = old.failed + 1 if old is not None else 1
        wait = min(_GIVEN_UP_FOR * 2.0 ** min(failed - 1, 16), _LONGEST_BACKOFF)
        self.events.append(("NotStarted", f"{starts.message}: it is tried again in {wait:g} s, the others go on", True))
        return JobStarts(failed=failed, retry_at=timestamp(math.ceil(self.now + wait)), message=starts.message[:_MOST_TEXT])

    def _done(self, named: Mapping[str, Member], failed: Iterable[PodSeen]) -> set[str]:
        """Members of this attempt that have run to their end, also those whose pods are gone."""
        recorded = {each.role: as_set(each.indexes) for each in self.old.succeeded_members}
        done = {name for name, each in named.items() if each.index in recorded.get(each.role, ()) and self._stays_done(name)}
        done |= {name for name in self.given.ended if name in named and name not in self.pods}
        done |= {pod.name for pod in self.pods.values() if pod.phase == _SUCCEEDED and (pod.done or not self._excused(pod))}
        return done | {pod.name for pod in failed if not self._excused(pod) and self._action(pod) == "Ignore"}

    def _stays_done(self, name: str) -> bool:
        """Whether a member that was seen to succeed has no pod any more, or the one that did so."""
        return name not in self.pods or self.pods[name].phase == _SUCCEEDED

    @staticmethod
    def _by_role(named: Mapping[str, Member], done: set[str]) -> list[RoleIndexes]:
        found: dict[str, list[int]] = {}
        for name in done & named.keys():
            found.setdefault(named[name].role, []).append(named[name].index)
        return [RoleIndexes(role=role, indexes=shown(indexes)) for role, indexes in sorted(found.items())]

    def _as_they_find_places(self, missing: tuple[Member, ...]) -> tuple[Member, ...]:
        """Of members that it can do without, only so many wait for a node at a time as already have one, within limits."""
        surplus = sum(each.surplus for each in missing)
        if not surplus:
            return missing
        placed = sum(bool(pod.node) for pod in self.pods.values())
        waiting = sum(not pod.node and pod.phase == _PENDING for pod in self.pods.values())
        room = max(0, min(max(LEAST_AHEAD, placed), MOST_AHEAD) - waiting)
        first = [each for each in missing if each.surplus][:room]
        return (*(each for each in missing if not each.surplus), *first)

    def _works(self, name: str) -> bool:
        pod = self.pods.get(name)
        return pod is not None and pod.phase == _RUNNING and not pod.terminating

    @staticmethod
    def _phase_with(*, enough: bool, settles: float | None, somebody: bool) -> Phase:
        if not enough:
            return Phase.STARTING if somebody else Phase.PENDING
        return Phase.RUNNING if settles is None else Phase.RESIZING

    def _settles(self, before: Phase, size: int) -> float | None:
        """When the size counts as settled, at the earliest; None if it is.

        Those that come or go for one reason do so within moments: they are one change, as they are to a rendezvous.
        """
        if not self.elastic or before not in (Phase.RUNNING, Phase.RESIZING):
            return None
        changing = any(pod.terminating or (pod.node and pod.phase == _PENDING) for pod in self.pods.values())
        if not changing and size == self.old.size:
            return None
        since = seconds(self.old.resume_at) if before is Phase.RESIZING and self.old.resume_at else self.now + _SETTLES_IN
        return since if changing or self.now < since else None

    def _sized(self, status: AIJobStatus, size: int) -> AIJobStatus:
        """It runs; once nobody comes or goes, its size is what it is."""
        started = status.started_at or timestamp(self.now)
        if status.phase == Phase.RESIZING or size == status.size:
            return msgspec.structs.replace(status, started_at=started)
        resized = bool(status.size) and bool(self.elastic) and self.attempt == self.old.complete_attempt
        if resized:
            self.events.append(("Resized", f"from {status.size} to {size} members", False))
        return msgspec.structs.replace(status, started_at=started, size=size, resizes=status.resizes + resized)

    def _lost(self, named: Mapping[str, Member], done: set[str]) -> tuple[str, list[PodSeen]]:
        """Why the attempt cannot go on, though the job is not to blame, empty if it can; and who is gone without whom it does."""
        leaving: list[PodSeen] = []
        staying = Counter(named[name].role for name in self.pods if name in named and (name in done or self._works(name)))
        for name, each in named.items():
            pod = self.pods.get(name)
            if name in done:
                continue
            # Where the size may change, it does; but the first of the first role is where all meet.
            replaced = each.role in self.elastic and not (each.index == 0 and each.role == self.job.spec.roles[0].name)
            expendable = each.surplus or (replaced and staying[each.role] >= self.least[each.role])
            if pod is None:
                if self.old.complete_attempt == self.attempt and not expendable:
                    return f"{name} is gone", []
            elif pod.phase in (_FAILED, _SUCCEEDED) or pod.terminating:
                if expendable:
                    leaving.append(pod)
                elif pod.phase == _FAILED:
                    return f"{name} was ended: {pod.reason or 'its node or the scheduler took it'}", []
                else:
                    return f"{name} is being removed", []
        return "", leaving

    def _judge_start(self, named: Mapping[str, Member], done: set[str]) -> StartVerdict:
        """What is to be done of members that have nodes and do not start."""
        theirs = {name: pod for name, pod in self.pods.items() if name in named and not pod.terminating and name not in done}
        starting = {name: pod.starting for name, pod in theirs.items() if pod.starting is not None and pod.phase == _PENDING}
        if not starting:
            return StartVerdict()
        placed = {name: pod.bound for name, pod in theirs.items() if pod.node} | dict.fromkeys(done, 0.0)
        told = next((each.reason for each in self.old.conditions if each.type == STARTED and each.status == "False"), "")
        if self.given.element >= 0 and self.old.restarts:  # what its starts failed for is not kept for each element
            told = next((each.trouble.reason for each in starting.values() if each.trouble.reason in RETRIED), "")
        working = Counter(each.role for name, each in named.items() if name in done or self._works(name))
        enough = {role for role, least in self.least.items() if working[role] >= least}
        return judge(self.job, named, starting, placed, self.now, enough=enough, before=told)

    def _not_started(self, before: Phase, why: StartVerdict) -> Plan:
        """A member does not start: the whole job gives its places back and starts again, while its budget lasts."""
        unstarted = why.reason, why.message
        if why.for_good:
            return self.end(before, Phase.FAILED, why.message, unstarted)
        return self._restart(before, self.pods[why.culprit], why.message, unstarted)

    def _restart(self, before: Phase, culprit: PodSeen, why: str = "", unstarted: tuple[str, str] | None = None) -> Plan:
        """A member failed by itself: the whole job starts again, while its budget lasts.

        why, unstarted: it did not even start, which says nothing of its node.
        """
        code = f" with exit code {culprit.exit_code}" if culprit.exit_code is not None else ""
        why = why or f"{culprit.name} failed{code}"
        failed = ((self.given.element, self.attempt),) if unstarted is None else ()
        restarts, limit = self.old.restarts + 1, restarts_of(self.job)
        if restarts > limit:
            ended = self.end(before, Phase.FAILED, f"{why}, and all {limit} restarts are used up", unstarted)
            return msgspec.structs.replace(ended, failed=failed)
        first = max(spans.seconds(self.job.spec.restart.backoff), SHORTEST_BACKOFF)
        wait = min(first * 2.0 ** min(restarts - 1, 16), _LONGEST_BACKOFF)
        most = f" of {limit}" if limit < ENDLESS else ""
        message = f"{why}: restart {restarts}{most} in {wait:g} s"
        self.events.append(("Restarting", message, True))
        status = self.status(
            step(before, Phase.RESTARTING),
            attempt=self.attempt + 1,
            restarts=restarts,
            nodes=(good := self._good([culprit])),
            preferred_nodes=good[:_MOST_PREFERRED],
            avoided_nodes=self._avoided(culprit),
            resume_at=timestamp(math.ceil(self.now + wait)),
            message=message,
            unstarted=unstarted,
        )
        gone = self.leaving(self.pods.values())
        return Plan(status, delete=gone, look_again=wait, events=tuple(self.events), failed=failed)

    def _avoided(self, culprit: PodSeen) -> list[str]:
        """Nodes where it is not tried again as long as there are others: only elsewhere does it show whose fault it is."""
        nodes = [node for node in self.old.avoided_nodes if node != culprit.node]
        return [*nodes, *([culprit.node] if culprit.node else [])][-_MOST_AVOIDED:]

    def _interrupted(self, before: Phase, why: str) -> Plan:
        """It lost members through no fault of its own: it starts again at once, for nothing."""
        self.events.append(("Interrupted", f"{why}: the job starts again", True))
        status = self.status(
            step(before, Phase.RESTARTING),
            attempt=self.attempt + 1,
            interruptions=self.old.interruptions + 1,
            nodes=(good := self._good(pod for pod in self.pods.values() if pod.phase == _FAILED or pod.disrupted)),
            preferred_nodes=good[:_MOST_PREFERRED],
            resume_at=None,
            message=why,
        )
        gone = self.leaving(self.pods.values())
        blamed = self._blamed(pod for pod in self.pods.values() if pod.phase == _FAILED and pod.reason in _HARDWARE)
        return Plan(status, delete=gone, look_again=0.0, events=tuple(self.events), blamed=blamed)

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
        named = {name_of(self.job, each, self.attempt): each for each in self.members}
        done = self._done(named, [pod for pod in self.pods.values() if pod.phase == _FAILED])
        status = self.status(
            step(before, phase),
            finished_at=timestamp(self.now),
            succeeded=len(done),
            succeeded_members=self._by_role(named, done),
            resume_at=None,
            message=message,
            unstarted=unstarted,
        )
        ttl = self.job.spec.ttl_after_finished
        alive = [pod for pod in (*self.pods.values(), *self.stale) if pod.phase in (_PENDING, _RUNNING)]
        again = spans.seconds(ttl) if ttl is not None else None
        return Plan(status, delete=self.leaving(alive), look_again=again, events=tuple(self.events))

    # -- judgements ----------------------------------------------------------------------------

    def _over_limit(self) -> bool:
        """Whether its time is over: the scheduler has taken it down for that, then."""
        limit = self._limit()
        return bool(limit and self.since) and self.now - seconds(self.since) >= spans.seconds(limit or "") - _CLOCKS_DIFFER

    def _limit(self) -> str | None:
        """The time limit in force: the one that its pods were made with, whatever its spec has become."""
        made_with = [pod.limit for pod in self.pods.values() if pod.limit]
        return min(made_with, key=spans.seconds) if made_with else self.job.spec.time_limit

    def _excused(self, pod: PodSeen) -> bool:
        """Whether a failed pod is its node's or the scheduler's doing."""
        rejected = pod.reason in _NOT_OUR_FAULT or pod.reason.startswith("OutOf")
        return pod.disrupted or pod.terminating or (pod.exit_code is None and rejected)

    def _action(self, pod: PodSeen) -> str:
        """What the job's rules say of an exit code; empty: nothing."""
        return action_on(self.job, pod.exit_code)

    def _succeeded(self, named: Mapping[str, Member], done: set[str]) -> bool:
        """Whether all have that count. Of a role without a fixed size these are all that ran to the end."""
        policy = self.job.spec.success_policy
        counts = policy.roles if policy is not None else list(self.least)
        for role in counts:
            theirs = [name for name, each in named.items() if each.role == role]
            if role not in self.elastic:
                if any(name not in done for name in theirs):
                    return False
            elif not any(name in done for name in theirs) or any(self._on_a_node(name) for name in theirs if name not in done):
                return False
        return True

    def _on_a_node(self, name: str) -> bool:
        pod = self.pods.get(name)
        return pod is not None and bool(pod.node) and pod.phase in (_PENDING, _RUNNING) and not pod.terminating

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
        if kept.get("attempt", self.attempt) != self.attempt:
            kept["starts"] = None
        if self.saved > (self.old.last_checkpoint or ""):
            kept["last_checkpoint"] = self.saved
        conditions = [
            self._condition("Accepted", *accepted),
            self._condition("Suspended", bool(suspended), suspended or "NotSuspended", ""),
            self._condition("Complete", phase is Phase.SUCCEEDED, str(phase), ""),
            self._condition("Failed", phase is Phase.FAILED, str(phase), str(kept["message"]) if phase is Phase.FAILED else ""),
        ]
        failed_before = next((each for each in self.old.conditions if each.type == STARTED), None)
        if unstarted is not None:
            conditions.append(self._condition(STARTED, False, *unstarted))
        elif failed_before is not None:
            conditions.append(self._condition(STARTED, True, "Started", "") if started else failed_before)
        return msgspec.structs.replace(self.old, phase=str(phase), members=len(self.members), conditions=conditions, **kept)

    def _condition(self, kind: str, true: bool, reason: str, message: str) -> Condition:
        status = "True" if true else "False"
        old = next((each for each in self.old.conditions if each.type == kind), None)
        since = old.last_transition_time if old is not None and old.status == status else timestamp(self.now)
        return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)

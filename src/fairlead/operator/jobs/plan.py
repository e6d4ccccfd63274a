"""What is to be done for a job, and what its status is: a function of the job, its pods, the scheduler's intent, and the time.

Nothing is read and nothing is written here; every action may be repeated. Whoever asks again after a fault gets the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api import spans
from fairlead.api.objects import AIJob, AIJobStatus, Condition
from fairlead.cluster.convert import seconds
from fairlead.cluster.translate import timestamp
from fairlead.operator.jobs.dependencies import READY, State, Verdict
from fairlead.operator.jobs.members import Member, members, name_of
from fairlead.operator.jobs.phases import FINISHED, Phase, step

_LONGEST_BACKOFF = 600.0
_PENDING, _RUNNING, _SUCCEEDED, _FAILED = "Pending", "Running", "Succeeded", "Failed"
_NOT_OUR_FAULT = frozenset({"NodeLost", "NodeShutdown", "Terminated", "Evicted", "Preempting", "NodeAffinity", "Shutdown"})
"""Reasons of a failed pod that are its node's, not its own."""


class PodSeen(msgspec.Struct, frozen=True):
    """A pod of a job. exit_code: of the container that failed; disrupted: it was evicted, or its node went."""

    name: str
    attempt: int
    phase: str
    node: str = ""
    terminating: bool = False
    disrupted: bool = False
    reason: str = ""
    exit_code: int | None = None


class Plan(msgspec.Struct, frozen=True):
    """What to do. look_again: seconds from now, None if nothing happens by itself. events: (reason, message, warning)."""

    status: AIJobStatus
    create: tuple[Member, ...] = ()
    delete: tuple[str, ...] = ()
    delete_job: bool = False
    look_again: float | None = None
    events: tuple[tuple[str, str, bool], ...] = ()


def plan(job: AIJob, pods: Sequence[PodSeen], suspended_by_policy: bool, now: float, first: Verdict = READY) -> Plan:
    """The next step of a job. now: seconds since the epoch. first: what those that come first say of it."""
    return _Step(job, pods, suspended_by_policy, now, first).take()


def not_acted_on(job: AIJob) -> str:
    """What a job asks for that this version does not do: it is not started without it."""
    spec = job.spec
    asked = {
        "array": spec.array is not None,
        "dependsOn with aftercorr": any(each.when == "aftercorr" for each in spec.depends_on),
        "minReplicas": any(role.min_replicas not in (None, role.replicas) for role in spec.roles),
        "maxReplicas": any(role.max_replicas not in (None, role.replicas) for role in spec.roles),
    }
    fields = [name for name, given in asked.items() if given]
    return f"not acted on by this version: {', '.join(fields)}" if fields else ""


class _Step:
    def __init__(self, job: AIJob, pods: Sequence[PodSeen], suspended_by_policy: bool, now: float, first: Verdict) -> None:
        self.job = job
        self.first = first
        self.now = now
        self.old = job.status or AIJobStatus()
        self.members = members(job)
        self.by_policy = suspended_by_policy
        self.attempt = self.old.attempt
        self.stale = [pod for pod in pods if pod.attempt != self.attempt]
        self.pods: Mapping[str, PodSeen] = {pod.name: pod for pod in pods if pod.attempt == self.attempt}
        self.events: list[tuple[str, str, bool]] = []

    def take(self) -> Plan:
        job, old = self.job, self.old
        before = Phase(old.phase)
        if before in FINISHED:
            return self._finished(old)
        wrong = not_acted_on(job)
        if wrong:
            return Plan(self._status(Phase.PENDING, message=wrong, accepted=(False, "Unsupported", wrong)))
        if job.spec.suspend or self.by_policy:
            return self._suspend(before)
        if self.first.state is not State.READY and self._untouched():
            return self._wait(before)
        if before is Phase.RESTARTING and old.resume_at and (left := seconds(old.resume_at) - self.now) > 0:
            return Plan(old, delete=self._leaving(self.stale), look_again=left)
        return self._go_on(before)

    # -- the cases -----------------------------------------------------------------------------

    def _untouched(self) -> bool:
        """Whether it has not begun: once it has, those that came first are no matter any more."""
        return not self.pods and self.attempt == 0 and self.old.complete_attempt < 0

    def _wait(self, before: Phase) -> Plan:
        """Others come first, or it never begins."""
        state, message = self.first
        if state is State.FAILED:
            return self._end(before, Phase.FAILED, message)
        if state is State.NOT_NEEDED:
            return self._end(before, Phase.SUCCEEDED, message)
        accepted = (False, "DependencyCycle", message) if state is State.CYCLE else (True, "InForce", "")
        if self.old.message != message:
            self.events.append(("Dependency", message, state is State.CYCLE))
        return Plan(self._status(step(before, Phase.PENDING), message=message, accepted=accepted), events=tuple(self.events))

    def _finished(self, old: AIJobStatus) -> Plan:
        """Nothing of it runs on; after a while the object goes, too."""
        alive = [pod for pod in (*self.pods.values(), *self.stale) if pod.phase in (_PENDING, _RUNNING)]
        ttl = self.job.spec.ttl_after_finished
        if ttl is None or old.finished_at is None:
            return Plan(old, delete=self._leaving(alive))
        left = seconds(old.finished_at) + spans.seconds(ttl) - self.now
        return Plan(old, delete=self._leaving(alive), delete_job=left <= 0, look_again=left if left > 0 else None)

    def _suspend(self, before: Phase) -> Plan:
        """No pods; those that end may save their work. The next ones are another attempt, which costs nothing."""
        present = [*self.pods.values(), *self.stale]
        who = "User" if self.job.spec.suspend else "Policy"
        changes: dict[str, Any] = {"resume_at": None}
        if before is not Phase.SUSPENDED:
            self.events.append(("Suspended", f"suspended by {'its user' if who == 'User' else 'the scheduler'}", False))
            if self.pods:
                changes |= {"attempt": self.attempt + 1, "interruptions": self.old.interruptions + 1}
        status = self._status(step(before, Phase.SUSPENDED), suspended=who, **changes)
        return Plan(status, delete=self._leaving(present), events=tuple(self.events))

    def _go_on(self, before: Phase) -> Plan:
        failed = [pod for pod in self.pods.values() if pod.phase == _FAILED]
        counted = [pod for pod in failed if not self._excused(pod) and self._action(pod) != "Ignore"]
        ending = next((pod for pod in counted if self._action(pod) == "Fail"), None)
        if ending is not None:
            message = f"{ending.name} ended with exit code {ending.exit_code}, which ends the job"
            return self._end(before, Phase.FAILED, message)
        own = [pod for pod in counted if self._action(pod) != "Restart"]
        if own:
            return self._restart(before, own[0])
        done = {pod.name for pod in self.pods.values() if pod.phase == _SUCCEEDED}
        done |= {pod.name for pod in failed if not self._excused(pod) and self._action(pod) == "Ignore"}
        if self._succeeded(done):
            return self._end(before, Phase.SUCCEEDED, "all members that count have succeeded")
        lost = self._lost(failed, done)
        if lost:
            return self._interrupted(before, lost)
        missing = tuple(each for each in self.members if name_of(self.job, each, self.attempt) not in self.pods)
        running = sum(pod.phase == _RUNNING for pod in self.pods.values())
        everybody = len(self.members)
        here = running + len(done)
        phase = Phase.RUNNING if here == everybody else Phase.STARTING if running or done else Phase.PENDING
        status = self._status(
            step(before, phase),
            running=running,
            succeeded=len(done),
            complete_attempt=self.attempt if not missing else self.old.complete_attempt,
            started_at=self.old.started_at or (timestamp(self.now) if phase is Phase.RUNNING else None),
            resume_at=None,
        )
        if phase is not before:
            self.events.append((str(phase), f"{here} of {everybody} members run", False))
        return Plan(status, create=missing, delete=self._leaving(self.stale), events=tuple(self.events))

    def _lost(self, failed: list[PodSeen], done: set[str]) -> str:
        """Why the attempt cannot go on, though the job is not to blame; empty if it can."""
        for pod in failed:
            if pod.name not in done:
                return f"{pod.name} was ended: {pod.reason or 'its node or the scheduler took it'}"
        for pod in self.pods.values():
            if pod.terminating and pod.name not in done:
                return f"{pod.name} is being removed"
        if self.old.complete_attempt == self.attempt:
            for each in self.members:
                name = name_of(self.job, each, self.attempt)
                if name not in self.pods:
                    return f"{name} is gone"
        return ""

    def _restart(self, before: Phase, culprit: PodSeen) -> Plan:
        """A member failed by itself: the whole job starts again, while its budget lasts."""
        code = f" with exit code {culprit.exit_code}" if culprit.exit_code is not None else ""
        restarts, limit = self.old.restarts + 1, self.job.spec.restart.limit
        if restarts > limit:
            return self._end(before, Phase.FAILED, f"{culprit.name} failed{code}, and all {limit} restarts are used up")
        wait = min(spans.seconds(self.job.spec.restart.backoff) * 2.0 ** min(restarts - 1, 16), _LONGEST_BACKOFF)
        message = f"{culprit.name} failed{code}: restart {restarts} of {limit} in {wait:g} s"
        self.events.append(("Restarting", message, True))
        status = self._status(
            step(before, Phase.RESTARTING),
            attempt=self.attempt + 1,
            restarts=restarts,
            resume_at=timestamp(self.now + wait),
            message=message,
        )
        return Plan(status, delete=self._leaving(self.pods.values()), look_again=wait, events=tuple(self.events))

    def _interrupted(self, before: Phase, why: str) -> Plan:
        """It lost members through no fault of its own: it starts again at once, for nothing."""
        self.events.append(("Interrupted", f"{why}: the job starts again", True))
        status = self._status(
            step(before, Phase.RESTARTING),
            attempt=self.attempt + 1,
            interruptions=self.old.interruptions + 1,
            resume_at=None,
            message=why,
        )
        return Plan(status, delete=self._leaving(self.pods.values()), look_again=0.0, events=tuple(self.events))

    def _end(self, before: Phase, phase: Phase, message: str) -> Plan:
        self.events.append((str(phase), message, phase is Phase.FAILED))
        status = self._status(
            step(before, phase),
            finished_at=timestamp(self.now),
            succeeded=sum(pod.phase == _SUCCEEDED for pod in self.pods.values()),
            resume_at=None,
            message=message,
        )
        ttl = self.job.spec.ttl_after_finished
        alive = [pod for pod in (*self.pods.values(), *self.stale) if pod.phase in (_PENDING, _RUNNING)]
        again = spans.seconds(ttl) if ttl is not None else None
        return Plan(status, delete=self._leaving(alive), look_again=again, events=tuple(self.events))

    # -- judgements ----------------------------------------------------------------------------

    def _excused(self, pod: PodSeen) -> bool:
        """Whether a failed pod is its node's or the scheduler's doing."""
        return pod.disrupted or pod.terminating or (pod.exit_code is None and pod.reason in _NOT_OUR_FAULT)

    def _action(self, pod: PodSeen) -> str:
        """What the job's rules say of an exit code; empty: nothing."""
        rules = self.job.spec.restart.exit_codes
        return next((rule.action for rule in rules if pod.exit_code in rule.codes), "")

    def _succeeded(self, done: set[str]) -> bool:
        policy = self.job.spec.success_policy
        counts = policy.roles if policy is not None else [role.name for role in self.job.spec.roles]
        return all(name_of(self.job, each, self.attempt) in done for each in self.members if each.role in counts)

    @staticmethod
    def _leaving(pods: object) -> tuple[str, ...]:
        return tuple(sorted(pod.name for pod in pods if not pod.terminating))  # type: ignore[attr-defined]

    def _status(
        self,
        phase: Phase,
        *,
        suspended: str = "",
        accepted: tuple[bool, str, str] = (True, "InForce", ""),
        **changes: object,
    ) -> AIJobStatus:
        kept = {"running": 0, "succeeded": 0, "message": "", **changes}
        conditions = [
            self._condition("Accepted", *accepted),
            self._condition("Suspended", bool(suspended), suspended or "NotSuspended", ""),
            self._condition("Complete", phase is Phase.SUCCEEDED, str(phase), ""),
            self._condition("Failed", phase is Phase.FAILED, str(phase), str(kept["message"]) if phase is Phase.FAILED else ""),
        ]
        return msgspec.structs.replace(self.old, phase=str(phase), members=len(self.members), conditions=conditions, **kept)

    def _condition(self, kind: str, true: bool, reason: str, message: str) -> Condition:
        status = "True" if true else "False"
        old = next((each for each in self.old.conditions if each.type == kind), None)
        since = old.last_transition_time if old is not None and old.status == status else timestamp(self.now)
        return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)

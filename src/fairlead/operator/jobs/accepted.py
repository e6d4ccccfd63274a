"""An AIJob's conditions beside those of `plan`: why it is not made, which changes have no effect, which user its pods belong to.

`Accepted=False` names what is wrong and what to do. `Trusted=False` appears where the API server does not accept the operator's
statement of the pods' user.
"""

from __future__ import annotations

import msgspec

from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.api.kinds.common import Condition
from fairlead.cluster import views
from fairlead.cluster.times import timestamp
from fairlead.core.model.backoff import backoff
from fairlead.operator.jobs.phases import FINISHED
from fairlead.operator.jobs.plan import Plan

NOTHING = ("", "")
_REST, _LONGEST_REST = 2.0, 120.0  # seconds until members are made again of which the API server refused one


class Taken(Exception):
    """Something of the job's name is there that is not its own. reason: of the condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Notes(msgspec.Struct):
    """Problems of one job. job, pods: (reason, message) of what is wrong with it, and with the creation of its pods.

    change: of what changed in its spec without effect; untrusted: the user that its pods got instead of its own.
    alternatives: what is wrong with those that are not offered.
    refusals: how often in a row the API server refused a member; until rests_until none is made again, of the same generation.
    """

    job: tuple[str, str] = NOTHING
    pods: tuple[str, str] = NOTHING
    change: str = ""
    untrusted: str = ""
    alternatives: str = ""
    refusals: int = 0
    rests_until: float = 0.0
    rests_of: int = 0

    def refused(self, now: float, generation: int) -> None:
        """The API server refused a member: the next is made ever later."""
        self.refusals = self.refusals + 1 if generation == self.rests_of else 1
        self.rests_of = generation
        self.rests_until = now + backoff(_REST, self.refusals, _LONGEST_REST)

    def rests(self, now: float, generation: int) -> float:
        """Seconds until members are made again."""
        return max(0.0, self.rests_until - now) if generation == self.rests_of else 0.0

    def on(self, status: AIJobStatus, job: AIJob, now: float) -> AIJobStatus:
        """A status with these conditions as well."""
        reason, message = self.job if self.job[0] else self.pods
        queue, service_class = job.spec.queue or "", job.spec.service_class or ""
        conditions = list(status.conditions)
        if reason:
            conditions = _with(conditions, "Accepted", reason, message, now, holds=False)
            if status.phase not in FINISHED:
                status = msgspec.structs.replace(status, message=message)
        elif self.change and _status(conditions, "Accepted") != "False":
            conditions = _with(conditions, "Accepted", "ChangeWithoutEffect", self.change, now, holds=True)
        if self.untrusted:
            message = f"its pods belong to user {self.untrusted} instead of the job's user: {trust(self.untrusted)}"
            conditions = _with(conditions, "Trusted", "OperatorNotTrusted", message, now, holds=False)
        else:
            conditions = [each for each in conditions if each.type != "Trusted"]
        conditions = [each for each in conditions if each.type != "AlternativesOffered"]
        if self.alternatives:
            conditions = _with(
                conditions, "AlternativesOffered", "AlternativeNotOffered", self.alternatives[:1024], now, holds=False
            )
        old = job.status.conditions if job.status is not None else []
        conditions = [_since(each, old) for each in conditions]
        return msgspec.structs.replace(status, conditions=conditions, queue=queue, service_class=service_class)


def trust(user: str) -> str:
    """What an administrator has to do."""
    return (
        f"an administrator must print the policies again with --trust {user} and all other trusted users in one command: "
        "fairlead crds --policies --trust ... | kubectl apply -f -"
    )


def over(job: AIJob) -> bool:
    """Whether it has come to its end."""
    return job.status is not None and job.status.phase in FINISHED


def held(job: AIJob, why: tuple[str, str], now: float) -> Plan:
    """Nothing is done for a job until what is wrong with it is put right; what runs of it runs on."""
    old, (reason, message) = job.status or AIJobStatus(), why
    events = ((reason, message, True),) if old.message != message else ()
    conditions = _with(list(old.conditions), "Accepted", reason, message, now, holds=False)
    return Plan(msgspec.structs.replace(old, message=message, conditions=conditions), events=events)


def taken(kind: str, name: str, job: AIJob) -> tuple[str, str]:
    """The problem of an object that has the job's name and belongs to another."""
    where = f"namespace {job.metadata.namespace}"
    return "NameTaken", f"{kind} {name} exists in {where} and is not this job's: delete it, or give the job another name"


def as_admitted(job: AIJob, group: views.PodGroup, given: AIJob) -> tuple[AIJob, str]:
    """The job with what its PodGroup was made with, and what of its spec has no effect. given: as its user wrote it."""
    kept, spec = group.spec, given.spec
    changed = [
        f"{name} {now or 'none'} (it was made with {then or 'none'})"
        for name, given_now, now, then in (
            ("queue", True, spec.queue, kept.queue),
            ("serviceClass", bool(spec.service_class), job.spec.service_class, kept.service_class),
            ("timeLimit", bool(spec.time_limit), job.spec.time_limit, kept.time_limit),
        )
        if given_now and (now or "") != (then or "")
    ]
    message = f"no effect until the job is submitted again: {', '.join(changed)}" if changed else ""
    admitted = msgspec.structs.replace(
        job.spec, queue=kept.queue or None, service_class=kept.service_class or None, time_limit=kept.time_limit or None
    )
    return msgspec.structs.replace(job, spec=admitted), message


def as_recorded(job: AIJob) -> AIJob:
    """A job whose PodGroup is gone, with the queue and the class that it was made with: they are in its status, too."""
    status = job.status
    if status is None or job.spec.array is not None:
        return job
    queue, service_class = status.queue or job.spec.queue, status.service_class or job.spec.service_class
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, queue=queue, service_class=service_class))


def _status(conditions: list[Condition], kind: str) -> str:
    return next((each.status for each in conditions if each.type == kind), "")


def _with(conditions: list[Condition], kind: str, reason: str, message: str, now: float, *, holds: bool) -> list[Condition]:
    status = "True" if holds else "False"
    old = next((each for each in conditions if each.type == kind), None)
    since = old.last_transition_time if old is not None and old.status == status else timestamp(now)
    fresh = Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)
    if old is None:
        return [*conditions, fresh]
    return [fresh if each.type == kind else each for each in conditions]


def _since(condition: Condition, before: list[Condition]) -> Condition:
    """It has been so since it was first written as such."""
    old = next((each for each in before if each.type == condition.type and each.status == condition.status), None)
    return condition if old is None else msgspec.structs.replace(condition, last_transition_time=old.last_transition_time)

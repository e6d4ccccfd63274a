"""AIJobs for the commands that explain: the status of an AIJob where the scheduler knows no pods of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.api.kinds.rules import strict
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import requests, views
from fairlead.cluster.times import seconds
from fairlead.core.model.units import WHOLE
from fairlead.operator.jobs.members import bounds, members, pod

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.client import Client
    from fairlead.scheduler.explanations import Explanation


_OVER = ("Succeeded", "Failed")
_FORBIDDEN, _NOT_FOUND = 403, 404
SOON = 15.0
"""Seconds within which an operator that runs has reconciled a new job."""


class Unknown(Exception):
    """There is no such AIJob."""


async def fetch(client: Client, namespace: str, name: str) -> AIJob | None:
    """An AIJob; None: the user may not read it. Raises `Unknown`, `ApiError`, `Unreachable`."""
    from fairlead.cluster.kubernetes.client import ApiError

    try:
        return msgspec.json.decode(
            await client.get(f"/apis/{names.API_VERSION}/namespaces/{namespace}/aijobs/{name}"), type=strict(AIJob)
        )
    except ApiError as error:
        if error.code == _NOT_FOUND:
            raise Unknown(f"aijob {namespace}/{name} does not exist (another namespace? give --namespace)") from error
        if error.code != _FORBIDDEN:
            raise
        return None


async def default_queue(client: Client, namespace: str) -> str:
    """The queue of a namespace's jobs that name none. Raises `ApiError`, `Unreachable`."""
    from fairlead.cluster.kubernetes.client import ApiError

    try:
        found = msgspec.json.decode(await client.get(f"/api/v1/namespaces/{namespace}"), type=views.Namespace)
    except ApiError as error:
        if error.code not in (_FORBIDDEN, _NOT_FOUND):
            raise
        return names.DEFAULT_QUEUE
    return (found.metadata.labels or {}).get(names.DEFAULT_QUEUE_LABEL, names.DEFAULT_QUEUE)


async def of_its_own(client: Client, job: AIJob, now: float) -> Explanation:
    """Where a job stands by its own status, with its namespace's queue if it names none. Raises `ApiError`, `Unreachable`."""
    found = by_status(job, now)
    if found.queue:
        return found
    return msgspec.structs.replace(found, queue=await default_queue(client, job.metadata.namespace))


def over(job: AIJob | None) -> bool:
    """Whether it has ended: pods that it still has add nothing to that."""
    return job is not None and job.status is not None and job.status.phase in _OVER


def by_status(job: AIJob, now: float) -> Explanation:
    """Where a job stands by its own status. now: seconds since the epoch."""
    from fairlead.scheduler.explanations import bare

    status = job.status or AIJobStatus()
    code, message = _why(job, status, now)
    start = seconds(status.resume_at) if status.phase == "Restarting" and status.resume_at else None
    submitted = seconds(job.metadata.creation_timestamp)
    pods, gpus = _asks_for(job)
    return bare(
        f"aijob/{job.metadata.name}",
        queue=status.queue or job.spec.queue or "",
        state=status.phase,
        pods=pods,
        gpus=gpus,
        waiting_seconds=max(0.0, now - submitted) if submitted and status.started_at is None and not over(job) else None,
        user=(job.metadata.annotations or {}).get(names.USER_ANNOTATION) or job.metadata.namespace,
        service_class=status.service_class or job.spec.service_class or "",
        expected_start=status.resume_at if start is not None else None,
        expected_wait_seconds=None if start is None else max(0.0, start - now),
        code=code,
        message=message or None,
    )


def unseen(waits: float) -> str:
    """Why a job has no status, so many seconds after it was created."""
    if waits < SOON:
        return "the operator has not reconciled it yet"
    return f"no operator has reconciled it for {waits:.0f} s: `fairlead install` or `fairlead operator` starts one"


def _why(job: AIJob, status: AIJobStatus, now: float) -> tuple[str | None, str]:  # noqa: PLR0911 - the first reason that holds
    """(code, message): why it has no pods."""
    conditions = {each.type: each for each in status.conditions}
    accepted = conditions.get("Accepted")
    if over(job):
        return None, status.message
    if accepted is not None and accepted.status == "False":
        return accepted.reason, accepted.message or status.message
    if job.spec.suspend:
        return str(ReasonCode.SUSPENDED), "suspended by its user (spec.suspend): `fairlead resume` resumes it"
    if status.phase == "Suspended":
        return str(ReasonCode.SUSPENDED), status.message or "suspended by the scheduler, which resumes it when capacity is free"
    if status.phase == "Restarting":
        return str(ReasonCode.BACKOFF), status.message
    if job.spec.depends_on and status.message:
        return str(ReasonCode.DEPENDENCY), status.message
    if not status.conditions:
        return None, unseen(now - (seconds(job.metadata.creation_timestamp) or now))
    return None, status.message or "its pods are being created"


def _asks_for(job: AIJob) -> tuple[int, float]:
    """(pods, GPUs) of the members that it needs; of an array those of one element."""
    from fairlead.cluster import convert
    from fairlead.cluster.gpu_parts import held_milli

    element = -1 if job.spec.array is None else 0
    roles = {role.name: role for role in job.spec.roles}
    counts = {role.name: bounds(role)[0] for role in job.spec.roles}
    gpus = 0.0
    for member in members(job, element):
        if member.index:
            continue
        try:
            view = requests.defaulted(msgspec.convert(pod(job, roles[member.role], member, 0), views.Pod))
            one = convert.pod(view, names.DEFAULT_QUEUE)
        except (msgspec.ValidationError, AttributeError, TypeError, ValueError):
            continue  # its template is invalid: see its condition Accepted
        gpus += counts[member.role] * held_milli(one.spec) / WHOLE
    return sum(counts.values()), gpus

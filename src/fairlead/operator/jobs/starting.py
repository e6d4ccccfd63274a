"""Members that have a node and do not start: how long the job waits for them, and what is reported."""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from fairlead.api import spans
from fairlead.api.kinds.ai_job import AIJob
from fairlead.cluster.starting import HOPELESS, RETRIED, Trouble
from fairlead.core.model.starts import START_RETRIES
from fairlead.operator.jobs.members import Member

START_TIMEOUT = "15m"
"""How long members with nodes may take to start where neither the job nor its class sets it."""


class Starting(msgspec.Struct, frozen=True, gc=False):
    """What keeps a pod that has a node and has not started. since: since when its reason has been the same."""

    trouble: Trouble
    since: float


class Verdict(msgspec.Struct, frozen=True):
    """What is to be done of members that do not start.

    culprit: the pod for whose sake the whole job is stopped, empty: none; reason: why, in its container's words or
    `StartTimeout`; for_good: no further start can help. spared: pods beyond the minimum that are given up, message: why the first
    of them is. due: when the next is to be judged.
    """

    culprit: str = ""
    reason: str = ""
    message: str = ""
    for_good: bool = False
    spared: tuple[str, ...] = ()
    due: float | None = None


def allowed(job: AIJob) -> str:
    """The start timeout in force."""
    return job.spec.start_timeout or START_TIMEOUT


def due(job: AIJob, bound: float, starting: Starting) -> float:
    """When a member that is alone is to be judged, seconds since the epoch."""
    if starting.trouble.reason in HOPELESS:
        return 0.0
    ends = bound + spans.seconds(allowed(job))
    return min(ends, starting.since + START_RETRIES) if starting.trouble.reason in RETRIED else ends


def _is_hopeless(found: Starting, now: float) -> bool:
    """Whether a member that has not started never will, or has been retried for long enough."""
    reason = found.trouble.reason
    return reason in HOPELESS or (reason in RETRIED and now - found.since >= START_RETRIES)


def judge(
    job: AIJob,
    named: Mapping[str, Member],
    starting: Mapping[str, Starting],
    placed: Mapping[str, float],
    now: float,
    *,
    enough: Container[str] = (),
    before: str = "",
) -> Verdict:
    """Judge the members of an attempt.

    named: all members by their pods' names; starting: those of them that have nodes and have not started; placed: when those
    got their nodes that have one, 0 for those that have succeeded. enough: roles of which enough members run already. before:
    the reason for which the start before this one failed, empty: none did.
    """
    needed = {name for name, each in named.items() if not each.elastic and each.role not in enough}
    times: list[float] = []
    for name in sorted(needed & starting.keys()):
        found = starting[name]
        reason, why = found.trouble.reason, found.trouble.message
        if reason in HOPELESS:
            return Verdict(name, reason, f"{name} can never start: {why}", for_good=True)
        if reason in RETRIED and now - found.since >= START_RETRIES:
            return Verdict(name, reason, f"{name} cannot start: {why}", for_good=before == reason)
        if reason in RETRIED:
            times.append(found.since + START_RETRIES)
    spare = {name: starting[name] for name in sorted(starting.keys() - needed)}
    hopeless = [name for name, each in spare.items() if _is_hopeless(each, now)]
    times += [
        each.since + START_RETRIES for name, each in spare.items() if each.trouble.reason in RETRIED and name not in hopeless
    ]
    if hopeless:
        message = f"{hopeless[0]} cannot start: {starting[hopeless[0]].trouble.message}"
        return Verdict(message=message, spared=tuple(hopeless), due=now)  # the others are judged in the next reconciliation
    if not needed <= placed.keys():
        return Verdict(due=min(times, default=None))  # the others have no nodes yet
    whole = max((placed[name] for name in needed), default=0.0)
    limit, late = spans.seconds(allowed(job)), []
    for name in sorted(starting):
        ends = max(placed[name], whole) + limit
        if now >= ends:
            late.append(name)
        else:
            times.append(ends)
    culprit = min((name for name in late if name in needed), key=lambda name: not starting[name].trouble.reason, default="")
    if culprit:
        trouble = starting[culprit].trouble
        message = f"{culprit} did not start within {allowed(job)}: {trouble.message}"
        return Verdict(culprit, trouble.reason or "StartTimeout", message)
    message = f"{late[0]} did not start within {allowed(job)}: {starting[late[0]].trouble.message}" if late else ""
    return Verdict(message=message, spared=tuple(late), due=min(times, default=None))

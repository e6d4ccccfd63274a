"""Which jobs come first: whether a job may begin, must wait, or never will.

`afterok` waits for a success, `afternotok` for a failure, `afterany` for either end; `aftercorr` between two arrays is
`afterok` element by element, and `afterok` otherwise. What can never come true ends the
job: it has failed where it needed a success, and is not needed where it was there for a failure. `singleton` waits while any
older job of the same user with the same label `fairlead.dev/singleton` is not over.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.operator.jobs import indexes
from fairlead.operator.jobs.neighbours import Neighbours
from fairlead.operator.jobs.phases import FINISHED


class State(Enum):
    """The verdict of a job's dependencies."""

    READY = "ready"
    WAITS = "waits"
    FAILED = "failed"
    NOT_NEEDED = "not needed"
    CYCLE = "cycle"
    MISSING = "missing"


class Verdict(NamedTuple):
    """message: of whom, and why."""

    state: State
    message: str = ""


READY = Verdict(State.READY)


def judge(job: AIJob, others: Neighbours) -> Verdict:
    """Whether a job may begin. others: all jobs of its namespace, with this one."""
    if not job.spec.depends_on:
        return READY
    cycle = others.cycle(job.metadata.name)
    if cycle:
        return Verdict(State.CYCLE, f"dependency cycle: {' -> '.join(cycle)}")
    waits: list[str] = []
    missing = False
    for each in job.spec.depends_on:
        if each.when == "singleton":
            older = others.before(job, each.job)
            if older:
                waits.append(f"job {older!r} of the same user must end first")
            continue
        other = others.get(each.job)
        phase = _phase(other)
        if other is not None and by_element(job, other, each.when):
            continue
        if other is None:
            waits.append(f"job {each.job!r} does not exist in namespace {job.metadata.namespace}")
            missing = True
        elif phase not in FINISHED:
            waits.append(f"job {each.job!r} is {phase}")
        elif each.when in ("afterok", "aftercorr") and phase == "Failed":
            return Verdict(State.FAILED, f"depends on job {each.job!r}, which failed")
        elif each.when == "afternotok" and phase == "Succeeded":
            return Verdict(State.NOT_NEEDED, f"not needed: job {each.job!r} succeeded")
    return Verdict(State.MISSING if missing else State.WAITS, "; ".join(waits)) if waits else READY


def by_element(job: AIJob, other: AIJob, when: str) -> bool:
    """Whether a dependency is one of elements on elements."""
    return when == "aftercorr" and job.spec.array is not None and other.spec.array is not None


def gate(job: AIJob, others: Neighbours) -> Callable[[int], State]:
    """Whether an element of an array may begin, as far as it waits for those of others."""
    statuses = [
        other.status or AIJobStatus()
        for each in job.spec.depends_on
        if (other := others.get(each.job)) is not None and by_element(job, other, each.when)
    ]
    done = [indexes.as_set(each.completed_indexes) for each in statuses]
    never = [indexes.as_set(each.failed_indexes) for each in statuses]

    def may(index: int) -> State:
        for status, completed, failed in zip(statuses, done, never, strict=True):
            if index in failed or (index not in completed and status.phase in FINISHED):
                return State.FAILED
            if index not in completed:
                return State.WAITS
        return State.READY

    return may


def _phase(job: AIJob | None) -> str:
    return job.status.phase if job is not None and job.status is not None else "Pending"

"""Which jobs come first: whether a job may begin, must wait, or never will.

`afterok` waits for a success, `afternotok` for a failure, `afterany` for either end; `aftercorr` between two arrays is
`afterok` element by element, and `afterok` otherwise. What can never come true ends the
job: it has failed where it needed a success, and is not needed where it was there for a failure. `singleton` waits while any
older job of the same user with the same label `fairlead.dev/singleton` is not over.

A dependency that was met stays so when its job is deleted, as after `ttlAfterFinished`: which these are is in the status of the
job that waits. While a job of that name exists, that one counts.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fairlead.api.kinds.ai_job import AIJob, AIJobStatus, Dependency
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
    """message: of whom, and why. met: the dependencies that are met, as the job's status has them."""

    state: State
    message: str = ""
    met: tuple[str, ...] = ()


READY = Verdict(State.READY)


def judge(job: AIJob, others: Neighbours) -> Verdict:
    """Whether a job may begin. others: all jobs of its namespace, with this one."""
    if not job.spec.depends_on:
        return READY
    cycle = others.cycle(job.metadata.name)
    if cycle:
        return Verdict(State.CYCLE, f"dependency cycle: {' -> '.join(cycle)}", tuple(_met(job)))
    waits: list[Verdict] = []
    for each in job.spec.depends_on:
        found = _one(job, each, others)
        if found.state in (State.FAILED, State.NOT_NEEDED):
            return found
        if found.state is not State.READY:
            waits.append(found)
    met = tuple(_written(each) for each in job.spec.depends_on if _is_met(job, each, others))
    if not waits:
        return Verdict(State.READY, met=met)
    missing = any(each.state is State.MISSING for each in waits)
    return Verdict(State.MISSING if missing else State.WAITS, "; ".join(each.message for each in waits), met)


def _one(job: AIJob, each: Dependency, others: Neighbours) -> Verdict:  # noqa: PLR0911 - one for each kind
    if each.when == "singleton":
        older = others.before(job, each.job)
        return Verdict(State.WAITS, f"job {older!r} of the same user must end first") if older else READY
    other = others.get(each.job)
    if other is None:
        missing = f"job {each.job!r} does not exist in namespace {job.metadata.namespace}"
        return READY if _is_met(job, each, others) else Verdict(State.MISSING, missing)
    phase = _phase(other)
    if by_element(job, other, each.when):
        return READY
    if phase not in FINISHED:
        return Verdict(State.WAITS, f"job {each.job!r} is {phase}")
    if each.when in ("afterok", "aftercorr") and phase == "Failed":
        return Verdict(State.FAILED, f"depends on job {each.job!r}, which failed")
    if each.when == "afternotok" and phase == "Succeeded":
        return Verdict(State.NOT_NEEDED, f"not needed: job {each.job!r} succeeded")
    return READY


def _is_met(job: AIJob, each: Dependency, others: Neighbours) -> bool:
    """Whether a dependency that nothing contradicts was met; its job may be gone."""
    other = others.get(each.job)
    if each.when == "singleton":
        return False
    return _written(each) in _met(job) if other is None else _phase(other) in FINISHED


def _written(each: Dependency) -> str:
    return f"{each.when}:{each.job}"


def _met(job: AIJob) -> list[str]:
    return job.status.met_dependencies if job.status is not None else []


def by_element(job: AIJob, other: AIJob, when: str) -> bool:
    """Whether a dependency is one of elements on elements."""
    return when == "aftercorr" and job.spec.array is not None and other.spec.array is not None


class Gate:
    """Whether each element of an array may begin, as far as it waits for those of others.

    over: the others have all ended, so that nothing that is known of an element changes any more. missing: one of them is gone
    before its end.
    """

    def __init__(self, job: AIJob, others: Neighbours) -> None:
        found = [(each, others.get(each.job)) for each in job.spec.depends_on if each.when == "aftercorr"]
        self.missing = any(other is None and _written(each) not in _met(job) for each, other in found)
        statuses = [
            other.status or AIJobStatus() for each, other in found if other is not None and by_element(job, other, each.when)
        ]
        self.over = not self.missing and all(each.phase in FINISHED for each in statuses)
        self._sets = [
            (indexes.as_set(each.completed_indexes), indexes.as_set(each.failed_indexes), each.phase in FINISHED)
            for each in statuses
        ]

    def __call__(self, index: int) -> State:
        """READY, WAITS or FAILED."""
        for completed, failed, over in self._sets:
            if index in failed or (index not in completed and over):
                return State.FAILED
            if index not in completed:
                return State.WAITS
        return State.MISSING if self.missing else State.READY


def _phase(job: AIJob) -> str:
    return job.status.phase if job.status is not None else "Pending"

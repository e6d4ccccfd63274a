"""Which jobs come first: whether a job may begin, must wait, or never will.

`afterok` waits for a success, `afternotok` for a failure, `afterany` for either end; `aftercorr` between two arrays is
`afterok` element by element, and `afterok` otherwise. What can never come true ends the
job: it has failed where it needed a success, and is not needed where it was there for a failure. `singleton` waits while an
older job of the same user with the same label `fairlead.dev/singleton` is not over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.operator.jobs import indexes

_OVER = ("Succeeded", "Failed")


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


def judge(job: AIJob, others: Mapping[str, AIJob]) -> Verdict:
    """Whether a job may begin. others: all jobs of its namespace by name."""
    if not job.spec.depends_on:
        return READY
    cycle = _cycle(job, others)
    if cycle:
        return Verdict(State.CYCLE, f"dependency cycle: {' -> '.join(cycle)}")
    waits: list[str] = []
    missing = False
    for each in job.spec.depends_on:
        if each.when == "singleton":
            older = _older(job, each.job, others)
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
        elif phase not in _OVER:
            waits.append(f"job {each.job!r} is {phase}")
        elif each.when in ("afterok", "aftercorr") and phase == "Failed":
            return Verdict(State.FAILED, f"depends on job {each.job!r}, which failed")
        elif each.when == "afternotok" and phase == "Succeeded":
            return Verdict(State.NOT_NEEDED, f"not needed: job {each.job!r} succeeded")
    return Verdict(State.MISSING if missing else State.WAITS, "; ".join(waits)) if waits else READY


def by_element(job: AIJob, other: AIJob, when: str) -> bool:
    """Whether a dependency is one of elements on elements."""
    return when == "aftercorr" and job.spec.array is not None and other.spec.array is not None


def gate(job: AIJob, others: Mapping[str, AIJob]) -> Callable[[int], State]:
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
            if index in failed or (index not in completed and status.phase in _OVER):
                return State.FAILED
            if index not in completed:
                return State.WAITS
        return State.READY

    return may


def dependents(name: str, others: Mapping[str, AIJob]) -> list[str]:
    """The jobs that depend on one."""
    job = others.get(name)
    label = (job.metadata.labels or {}).get(names.SINGLETON_LABEL) if job is not None else None
    return [
        other
        for other, each in others.items()
        if any(one.job in ((label,) if one.when == "singleton" else (name,)) for one in each.spec.depends_on)
    ]


def _phase(job: AIJob | None) -> str:
    return job.status.phase if job is not None and job.status is not None else "Pending"


def _older(job: AIJob, label: str, others: Mapping[str, AIJob]) -> str:
    """An older job with a singleton label that is not over; empty if there is none."""
    mine = (job.metadata.creation_timestamp or "", job.metadata.name)
    for name, other in sorted(others.items()):
        metadata = other.metadata
        same = (metadata.labels or {}).get(names.SINGLETON_LABEL) == label and _user(other) == _user(job)
        if same and name != job.metadata.name and _phase(other) not in _OVER and (metadata.creation_timestamp or "", name) < mine:
            return name
    return ""


def _user(job: AIJob) -> str:
    return (job.metadata.annotations or {}).get(names.USER_ANNOTATION) or job.metadata.namespace


def _cycle(job: AIJob, others: Mapping[str, AIJob]) -> list[str]:
    """A way from a job back to itself over what it waits for; empty if there is none."""
    start = job.metadata.name
    paths, seen = [[start]], {start}
    while paths:
        path = paths.pop()
        current = job if path[-1] == start else others.get(path[-1])
        for each in current.spec.depends_on if current is not None else ():
            if each.when == "singleton":
                continue
            if each.job == start:
                return [*path, start]
            if each.job not in seen:
                seen.add(each.job)
                paths.append([*path, each.job])
    return []

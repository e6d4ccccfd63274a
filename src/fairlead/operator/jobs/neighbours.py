"""The AIJobs of one namespace: which of them wait for which. A change of one costs those that it concerns, and no others.

Jobs with the same label `fairlead.dev/singleton` of the same user stand in a line, the oldest first: each waits for the one
before it. What is known of cycles is forgotten when a job on which others depend gets other dependencies, no oftener.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob, AIJobStatus
from fairlead.operator.jobs.phases import FINISHED

_Place = tuple[str, str]
"""When a job was created, and its name."""


class _Line(msgspec.Struct):
    """Jobs of a user with a singleton label. open: those that have it and are not over; waiting: those that wait for such."""

    open: list[_Place] = []
    waiting: list[_Place] = []


class _Relations(msgspec.Struct, frozen=True):
    """What of a job concerns others. needs: jobs that it depends on; behind: labels of which it waits for older jobs."""

    needs: tuple[str, ...]
    behind: tuple[str, ...]
    label: str
    user: str
    place: _Place
    over: bool


class Neighbours:
    """Jobs by their names."""

    def __init__(self) -> None:
        self._jobs: dict[str, AIJob] = {}
        self._relations: dict[str, _Relations] = {}
        self._dependents: dict[str, dict[str, None]] = {}  # job -> those that name it, whether it exists or not
        self._lines: dict[tuple[str, str], _Line] = {}  # (label, user)
        self._safe: set[str] = set()  # jobs from which no way leads into a cycle

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def get(self, name: str) -> AIJob | None:
        """One of them."""
        return self._jobs.get(name)

    # -- what is observed ----------------------------------------------------------------------

    def put(self, job: AIJob) -> list[str]:
        """A job as it is now; the names of those whose dependencies may be judged differently."""
        name = job.metadata.name
        old, now = self._jobs.get(name), _relations(job)
        before = self._relations.get(name)
        self._jobs[name] = job
        if before == now:
            return self.dependents(name) if old is not None and _progress(old) != _progress(job) else []
        concerned = dict.fromkeys(self.dependents(name))
        if before is not None:
            self._unlink(name, before)
        self._link(name, now)
        if before is None or before.needs != now.needs:
            if self._dependents.get(name):
                self._safe.clear()
            self._safe.discard(name)
        return list(concerned | dict.fromkeys(self.dependents(name)))

    def remove(self, name: str) -> list[str]:
        """A job is gone; the names of those whose dependencies may be judged differently."""
        if self._jobs.pop(name, None) is None:
            return []
        concerned = self.dependents(name)
        self._unlink(name, self._relations.pop(name))
        self._safe.discard(name)
        return [each for each in concerned if each != name]

    def _link(self, name: str, now: _Relations) -> None:
        self._relations[name] = now
        for needed in now.needs:
            self._dependents.setdefault(needed, {})[name] = None
        for places in self._places(now):
            insort(places, now.place)

    def _unlink(self, name: str, before: _Relations) -> None:
        for needed in before.needs:
            theirs = self._dependents[needed]
            del theirs[name]
            if not theirs:
                del self._dependents[needed]
        for places in self._places(before):
            del places[bisect_left(places, before.place)]
        for label in (before.label, *before.behind):
            line = self._lines.get((label, before.user))
            if line is not None and not line.open and not line.waiting:
                del self._lines[label, before.user]

    def _places(self, relations: _Relations) -> Iterator[list[_Place]]:
        """Where in lines a job stands."""
        if relations.over:
            return
        if relations.label:
            yield self._lines.setdefault((relations.label, relations.user), _Line()).open
        for label in relations.behind:
            yield self._lines.setdefault((label, relations.user), _Line()).waiting

    # -- questions -----------------------------------------------------------------------------

    def dependents(self, name: str) -> list[str]:
        """The jobs that depend on one."""
        found = dict(self._dependents.get(name, {}))
        relations = self._relations.get(name)
        line = self._lines.get((relations.label, relations.user)) if relations is not None and relations.label else None
        if relations is not None and line is not None:
            after = bisect_right(line.open, relations.place)
            first = bisect_right(line.waiting, relations.place)
            last = bisect_right(line.waiting, line.open[after]) if after < len(line.open) else len(line.waiting)
            found |= {each: None for _, each in line.waiting[first:last]}
        return list(found)

    def before(self, job: AIJob, label: str) -> str:
        """The job before this one in a line; empty if there is none."""
        relations = _relations(job)
        line = self._lines.get((label, relations.user))
        at = bisect_left(line.open, relations.place) if line is not None else 0
        return line.open[at - 1][1] if line is not None and at else ""

    def cycle(self, name: str) -> list[str]:
        """A way from a job back to itself over what it waits for; empty if there is none."""
        return [] if self._is_safe(name) else self._way_back(name)

    def _is_safe(self, start: str) -> bool:
        """Whether no way leads from a job into a cycle; each job is visited once until dependencies change."""
        safe, on_the_way = self._safe, {start}
        ways = [(start, iter(self._needs(start)))]
        while ways and start not in safe:
            name, needs = ways[-1]
            following = next((each for each in needs if each not in safe), None)
            if following is None:
                safe.add(name)
                on_the_way.discard(name)
                ways.pop()
            elif following in on_the_way:
                return False
            else:
                on_the_way.add(following)
                ways.append((following, iter(self._needs(following))))
        return True

    def _way_back(self, start: str) -> list[str]:
        came_from = {start: start}
        open_ends = [start]
        while open_ends:
            name = open_ends.pop()
            for each in self._needs(name):
                if each == start:
                    way = [start]
                    while name != start:
                        way.append(name)
                        name = came_from[name]
                    return [start, *reversed(way)]
                if each not in came_from:
                    came_from[each] = name
                    open_ends.append(each)
        return []

    def _needs(self, name: str) -> tuple[str, ...]:
        relations = self._relations.get(name)
        return relations.needs if relations is not None else ()


def _relations(job: AIJob) -> _Relations:
    metadata = job.metadata
    first = job.spec.depends_on
    return _Relations(
        needs=tuple(dict.fromkeys(each.job for each in first if each.when != "singleton")),
        behind=tuple(dict.fromkeys(each.job for each in first if each.when == "singleton")),
        label=(metadata.labels or {}).get(names.SINGLETON_LABEL, ""),
        user=(metadata.annotations or {}).get(names.USER_ANNOTATION) or metadata.namespace,
        place=(metadata.creation_timestamp or "", metadata.name),
        over=job.status is not None and job.status.phase in FINISHED,
    )


def _progress(job: AIJob) -> tuple[str, str, str]:
    """The part of a job's status that dependent jobs check."""
    status = job.status or AIJobStatus()
    return status.phase, status.completed_indexes, status.failed_indexes

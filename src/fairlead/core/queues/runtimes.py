"""Run times: how long work is thought to run, by what its owner declares, else by what ended before it.

What was learned is kept per kind of job, from the most alike (same queue, user, class and size) to all jobs: the latest run times
of a kind, of which the median beyond what a job has run already is taken. A learned time plans, it never kills. Where nothing is
known, what has run for long is thought to run as long again (the Lindy rule); how long something new will run is not guessed.
The latest of each queue survive a restart in the queue's status.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from fairlead.core.model.queues import RunTimeRecord
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.attained import begun
from fairlead.core.queues.services import Services

_KEPT = 200  # run times of a kind
_ENOUGH = 5  # of them, before a kind is believed
_KINDS = 4096
_WRITTEN_KINDS, _WRITTEN = 50, 10  # of a queue, and run times of each, that survive a restart
_LEAST = 60.0  # seconds; what runs is not expected to end sooner unless its owner declares it

Kind = tuple[str | int, ...]
"""(queue, user, class, devices in milli), or less of it: of any user and class, in any queue, all jobs."""
_ALL: Kind = ()
_EXACT = 4


class _Sample:
    """The latest run times of one kind, also in order."""

    __slots__ = ("latest", "ordered")

    def __init__(self) -> None:
        self.latest: deque[float] = deque()
        self.ordered: list[float] = []

    def add(self, seconds: float) -> None:
        if len(self.latest) == _KEPT:
            del self.ordered[bisect_right(self.ordered, self.latest.popleft()) - 1]
        self.latest.append(seconds)
        insort(self.ordered, seconds)

    def median_beyond(self, elapsed: float) -> float | None:
        """The median of those above; None if they are too few."""
        first = bisect_right(self.ordered, elapsed) if elapsed > 0 else 0
        count = len(self.ordered) - first
        return self.ordered[first + count // 2] if count >= _ENOUGH else None


class RunTimes:
    """Estimates in seconds. changed: queues of which more is known than was written."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.changed: set[str] = set()
        self._samples: dict[Kind, _Sample] = {}
        self._known: set[str] = set()  # queues of which this scheduler has observed something itself, or restored it

    def declared(self, task: Task) -> float | None:
        """What its owner, or its class, declares: the expected duration, else the time limit."""
        group = task.gang.group if task.gang is not None else None
        expected = (group.expected if group is not None else 0.0) or task.pod.expected
        limit = self.services.limits.of(task)
        if expected:
            return min(expected, limit)
        return limit if math.isfinite(limit) else None

    def total(self, task: Task) -> float | None:
        """How long a task that starts now is thought to run, or None."""
        declared = self.declared(task)
        return declared if declared is not None else self._learned(task, 0.0)

    def usual(self) -> float | None:
        """The median of all that ended of late."""
        sample = self._samples.get(_ALL)
        return sample.median_beyond(0.0) if sample is not None else None

    def longest(self) -> float:
        """The longest of all that ended of late, 0.0 where none did."""
        sample = self._samples.get(_ALL)
        return sample.ordered[-1] if sample is not None else 0.0

    def remaining(self, task: Task, now: float) -> float:
        """How long a task that runs is thought to go on."""
        elapsed = max(0.0, now - begun(task))
        total = self.declared(task)
        if total is None or total <= elapsed:
            total = self._learned(task, elapsed)
        return max(_LEAST, elapsed if total is None else total - elapsed)

    def ended(self, task: Task, now: float) -> None:
        """A task has run to its end."""
        seconds = now - begun(task)
        if seconds <= 0:
            return
        self.changed.add(task.queue)
        self._known.add(task.queue)
        self._learn(_kinds(task), seconds)

    def written(self, queue: str) -> tuple[RunTimeRecord, ...]:
        """What is to survive a restart: the latest of the kinds of a queue that were observed last, in that order."""
        own = (each for each in reversed(self._samples.items()) if len(each[0]) == _EXACT and each[0][0] == queue)
        records = []
        for (_, user, service_class, devices), sample in islice(own, _WRITTEN_KINDS):
            seconds = tuple(max(1, round(each)) for each in list(sample.latest)[-_WRITTEN:])
            records.append(RunTimeRecord(str(user), str(service_class), int(devices), seconds))
        return tuple(reversed(records))

    def restore(self, queue: str, records: Iterable[RunTimeRecord]) -> None:
        """What a scheduler before this one wrote; what this one knows itself goes before."""
        if queue in self._known:
            return
        self._known.add(queue)
        for record in records:
            for seconds in record.seconds:
                self._learn(_kinds_of(queue, record.user, record.service_class, record.devices), seconds)

    def _learn(self, kinds: Iterable[Kind], seconds: float) -> None:
        for kind in kinds:
            sample = self._samples.pop(kind, None) or _Sample()
            self._samples[kind] = sample  # the latest to be observed goes last
            sample.add(seconds)
        while len(self._samples) > _KINDS:
            del self._samples[next(iter(self._samples))]

    def _learned(self, task: Task, elapsed: float) -> float | None:
        for kind in _kinds(task):
            sample = self._samples.get(kind)
            median = sample.median_beyond(elapsed) if sample is not None else None
            if median is not None:
                return median
        return None


def _kinds(task: Task) -> Iterator[Kind]:
    members = len(task.gang.tasks) if task.gang is not None and task.gang.group is not None else 1
    return _kinds_of(task.queue, task.user, task.service_class, task.shape.counted_milli * members)


def _kinds_of(queue: str, user: str, service_class: str, size: int) -> Iterator[Kind]:
    yield queue, user, service_class, size
    yield queue, size
    yield (size,)
    yield _ALL

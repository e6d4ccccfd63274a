"""Intervals of expected starts: they follow from how far off earlier forecasts were.

Conformal prediction over past forecasts (Vovk et al., 2005), online: of each job that came to wait the first forecast is
kept, and when the job starts, how long it waited in truth. By size class, log(wait) is fitted as a line in log(forecast), so
that a forecast that predicts little has little weight, and what the line leaves is the sample of errors. Jobs that still wait
bound theirs from below: the sample's quantiles are those of the estimator of Kaplan and Meier (1958), else long waits would
be missing from it. The levels of both ends follow what came true (adaptive conformal inference, Gibbs and Candes, NeurIPS
2021), so that a tenth of the starts lies outside at each end also where the errors change with time.

Starts come in bursts: hundreds of jobs that were submitted together start one after the other, and their forecasts are off by
much the same. A burst teaches as much as a single start: its errors share one weight, and its first start moves the levels
most. Else one burst would make the interval too narrow for the next.

Only jobs that waited over ten minutes count: one that starts sooner needs no forecast. Nothing here decides anything.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fairlead.core.model.queues import ForecastRecord
from fairlead.core.model.units import WHOLE

if TYPE_CHECKING:
    from fairlead.core.pods.tasks import Gang, Task, Unit
    from fairlead.core.queues.services import Services

LONG = 600.0
"""Seconds of waiting from which on a start is worth foretelling."""
LOW, HIGH = 0.1, 0.9
SIZES = (1, 8)
"""Size classes: up to one device, up to eight, more."""

_KEPT = 1000  # forecasts that came true, of each size class
_WRITTEN = 20  # of them of each queue that survive a restart
_ENOUGH = 8  # bursts, before a class is believed
_PRIOR = (-1.6, -0.9, -0.4, 0.0, 0.4, 0.9, 1.6)  # errors in logarithms while too little is known
_STEP = 0.04  # by which one start moves the level of an end
_LEAST = 60.0  # seconds; shorter waits and forecasts count as this


class Jobs(Protocol):
    """The jobs of a cluster: pods by UID, gangs by key, and their classes of service."""

    @property
    def tasks(self) -> Mapping[str, Task]:
        """By UID of their pods."""

    @property
    def gangs(self) -> Mapping[str, Gang]:
        """By key."""

    @property
    def services(self) -> Services:
        """The classes of service."""


class Expected(NamedTuple):
    """When a job is expected to start, seconds since the epoch: in the middle, and from the 10th to the 90th percentile."""

    start: float
    earliest: float
    latest: float


class _Asked(NamedTuple):
    """A job that waits for its first start, as it was foretold first. foretold: seconds from its creation."""

    queue: str
    devices: int
    created: float
    foretold: float
    interval: Expected


class _Point(NamedTuple):
    """A forecast and what came of it, in logarithms. weight: its part of a burst."""

    foretold: float
    waited: float
    weight: float


class _Error(NamedTuple):
    """What a forecast was off by, in logarithms. true: whether the job has started; else it is at least so much."""

    error: float
    true: bool
    weight: float


class _Line(NamedTuple):
    """log(wait) = base + slope * log(forecast) + error; the errors in order, each with the part of all that lies up to it.

    most: the largest, of those that still wait, too.
    """

    slope: float
    base: float
    errors: list[float]
    parts: list[float]
    most: float

    def at(self, foretold: float, level: float, beyond: float) -> float:
        """The wait in seconds that such a part of those who wait for longer than `beyond` do not exceed."""
        if level <= 0.0:
            return beyond  # too many came before the least that was known
        middle = self.base + self.slope * math.log(foretold)
        passed = bisect_right(self.errors, math.log(max(beyond, _LEAST)) - middle)
        before = self.parts[passed - 1] if passed else 0.0
        wanted = before + level * (1.0 - before)
        first = bisect_left(self.parts, wanted - 1e-9, passed)
        if first < len(self.errors):
            return math.exp(middle + self.errors[first])
        longest = math.exp(middle + self.most)  # more than that no job has waited by now
        return float(max(longest, beyond * 2.0 ** (1 + level) if passed == len(self.errors) else 0.0))


class _Burst:
    """Starts of a size class of which each follows another within ten minutes. starts: how many; latest: when the last was."""

    __slots__ = ("latest", "starts")

    def __init__(self, now: float = -math.inf) -> None:
        self.starts = 1
        self.latest = now


_Past = tuple[ForecastRecord, _Burst]


class Foretold:
    """What was foretold and what came of it. changed: queues of which more is known than was written."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._asked: dict[str, _Asked] = {}  # job -> its first forecast
        self._past: dict[int, deque[_Past]] = {}  # by size class
        self._bursts: dict[int, _Burst] = {}  # the latest of each size class
        self._levels: dict[int, tuple[float, float]] = {}
        self._known: set[str] = set()

    def intervals(self, jobs: Jobs, starts: Mapping[str, float], now: float) -> dict[str, Expected]:
        """The interval of each job that a forecast made now gives a start; the first one of each job is judged when it starts."""
        for job in [job for job in self._asked if job not in jobs.tasks and job not in jobs.gangs]:
            del self._asked[job]  # it was deleted while it waited
        found: dict[str, Expected] = {}
        lines: dict[int, _Line] = {}
        for job, start in starts.items():
            unit = _unit_of(jobs, job)
            if unit is None:
                continue
            first = unit.tasks[0]
            devices = sum(task.shape.counted_milli for task in unit.tasks[: unit.need])
            size = _size_of(devices)
            if size not in lines:
                lines[size] = self._line(size, now)
            waited, foretold = max(0.0, now - unit.created), max(_LEAST, start - unit.created)
            low, high = self._levels.get(size, (LOW, HIGH))
            beyond = max(waited, LONG) if foretold > LONG else waited
            ends = [lines[size].at(foretold, level, beyond) + unit.created for level in (low, 0.5, high)]
            interval = Expected(*(max(now, each) for each in (ends[1], ends[0], ends[2])))
            found[job] = interval
            if job not in self._asked and waited <= LONG and not jobs.services.attained.before(first):
                self._asked[job] = _Asked(first.queue, devices, unit.created, foretold, interval)
        return found

    def started(self, job: str, now: float) -> None:
        """A job has its first places: what was foretold is compared with it."""
        asked = self._asked.pop(job, None)
        if asked is None or now - asked.created <= LONG:
            return
        size = _size_of(asked.devices)
        low, high = self._levels.get(size, (LOW, HIGH))
        burst = self._burst(size, now)
        step = _STEP / burst.starts
        low += step * (LOW - (now < asked.interval.earliest))
        high += step * ((now > asked.interval.latest) - (1 - HIGH))
        self._levels[size] = min(max(low, 0.0), 0.4), min(max(high, 0.6), 1.0)
        self._remember(ForecastRecord(asked.queue, asked.devices, round(asked.foretold), round(now - asked.created)), burst)
        self.changed.add(asked.queue)
        self._known.add(asked.queue)

    def written(self, queue: str) -> tuple[ForecastRecord, ...]:
        """What is to survive a restart: the latest of a queue's."""
        return tuple([each for past in self._past.values() for each, _ in past if each.queue == queue][-_WRITTEN:])

    def restore(self, queue: str, records: Iterable[ForecastRecord]) -> None:
        """What a scheduler before this one wrote; what this one knows itself goes before."""
        if queue not in self._known:
            self._known.add(queue)
            for record in records:
                self._remember(record, _Burst())  # when it started is not written

    def _burst(self, size: int, now: float) -> _Burst:
        """The burst that a start belongs to, which counts it."""
        burst = self._bursts.get(size)
        if burst is None or abs(now - burst.latest) > LONG:
            burst = self._bursts[size] = _Burst(now)
        else:
            burst.starts += 1
            burst.latest = now
        return burst

    def _remember(self, record: ForecastRecord, burst: _Burst) -> None:
        self._past.setdefault(_size_of(record.devices), deque(maxlen=_KEPT)).append((record, burst))

    def _line(self, size: int, now: float) -> _Line:
        """The line that past forecasts of a size class, else of all, give for the next one."""
        past = list(self._past.get(size, ()))
        of_size = (asked for asked in self._asked.values() if _size_of(asked.devices) == size and now - asked.created > LONG)
        waiting = sorted(of_size, key=lambda each: each.created)
        if _bursts(past) < _ENOUGH:
            past, waiting = [each for every in self._past.values() for each in every], []
        points = [
            _Point(math.log(max(_LEAST, each.foretold)), math.log(max(_LEAST, each.waited)), 1 / burst.starts)
            for each, burst in past
        ]
        slope, base = _fit(points) if points else (1.0, 0.0)
        errors = [_Error(y - base - slope * x, true=True, weight=weight) for x, y, weight in points]
        errors += [
            _Error(math.log(now - each.created) - base - slope * math.log(each.foretold), true=False, weight=weight)
            for each, weight in zip(waiting, _shared([each.created for each in waiting]), strict=True)
        ]
        if (missing := _ENOUGH - _bursts(past)) > 0:
            # Worth half of the bursts that are missing.
            errors += [_Error(error, true=True, weight=missing / 2 / len(_PRIOR)) for error in _PRIOR]
        return _Line(slope, base, *_distribution(errors), max(each.error for each in errors))


def _size_of(devices: int) -> int:
    """The number of a size class. devices: in thousandths."""
    return next((number for number, most in enumerate(SIZES) if devices <= most * WHOLE), len(SIZES))


def _unit_of(jobs: Jobs, job: str) -> Unit | None:
    """What waits of a job."""
    gang = jobs.gangs.get(job)
    if gang is not None:
        return next((task.unit for task in gang.tasks.values() if task.unit is not None and task.unit.alive), None)
    task = jobs.tasks.get(job)
    return task.unit if task is not None and task.unit is not None and task.unit.alive else None


def _shared(times: Sequence[float]) -> list[float]:
    """The weights of jobs that came at these times, in order: those that follow each other within ten minutes share one."""
    sizes: list[int] = []
    for number, at in enumerate(times):
        if number and at - times[number - 1] <= LONG:
            sizes[-1] += 1
        else:
            sizes.append(1)
    return [1 / size for size in sizes for _ in range(size)]


def _bursts(past: Iterable[_Past]) -> int:
    return len({id(burst) for _, burst in past})


def _fit(points: Sequence[_Point]) -> tuple[float, float]:
    """Slope, from 0 to 1, and base of the line of least squares."""
    total = sum(each.weight for each in points)
    mean_x, mean_y = (sum(each[axis] * each.weight for each in points) / total for axis in (0, 1))
    spread = sum(weight * (x - mean_x) ** 2 for x, _, weight in points)
    slope = sum(weight * (x - mean_x) * (y - mean_y) for x, y, weight in points) / spread if spread > 1e-9 else 1.0
    slope = min(1.0, max(0.0, slope))
    return slope, mean_y - slope * mean_x


def _distribution(errors: Iterable[_Error]) -> tuple[list[float], list[float]]:
    """Errors that came true, in order, and the part of all up to each, by the estimator of Kaplan and Meier.

    One that did not come true is at least so much.
    """
    ordered = sorted(errors, key=lambda each: (each.error, not each.true))
    left, beyond = sum(each.weight for each in ordered), 1.0
    values, parts = [], []
    for error, true, weight in ordered:
        if true:
            beyond *= max(0.0, 1 - weight / left) if left > weight else 0.0
            values.append(error)
            parts.append(1 - beyond)
        left -= weight
    return values, parts

"""Jobs that accept any profile, on GPUs that are partitioned as needed, statically, or not at all: mean completion
times.

The protocol: a pool of A100-40GB. Jobs arrive by a Poisson process, each of a workload drawn from a table of measured
step times, with exponential work of mean 1 (the unit of time: the mean run time on a whole GPU). `load` is the rate of
arrivals divided by the most that any scheduler can complete (`core/mig/flexible.py`, the bound): at 1 queues grow. Run
times are not known to any policy; the speeds of a job's workload are. Jobs are never moved, and a partition stays as it
is while its job runs; new partitions are made of free slices. Jobs start in the order of arrival, except those for
which nothing acceptable is free.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Protocol

import msgspec

from fairlead.core.mig.flexible import Completion, Flexible, Head, Speeds
from fairlead.core.mig.geometry import GEOMETRIES, Geometry
from fairlead.core.mig.pool import Pool
from fairlead.core.mig.states import States

MODEL = "A100-40GB"
_WHOLE = "7g.40gb"
_LEAST, _MOST = 1e-6, 1e6
"""Of seconds per step, and of a speed relative to the whole GPU."""


class SpeedsError(ValueError):
    """A table of step times that cannot be used: what is wrong, and where."""


class Workloads(msgspec.Struct, frozen=True):
    """speeds: for each workload, on each profile of the geometry on which it runs, relative to a whole GPU."""

    geometry: Geometry
    names: tuple[str, ...]
    speeds: tuple[Speeds, ...]


def read(path: Path) -> Workloads:
    """A JSON object: workload -> profile -> seconds per step. A missing profile: it does not fit there. Raises
    `SpeedsError`.
    """
    try:
        table = msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, float]])
    except OSError as error:
        raise SpeedsError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise SpeedsError(f"{path}: expected an object of workload -> profile -> seconds: {error}") from error
    model = GEOMETRIES[MODEL].without_media()
    known = [profile.name for profile in model.profiles]
    for name, seconds in table.items():
        for profile, value in seconds.items():
            if profile not in known:
                raise SpeedsError(f"{path}: workload {name!r}: {MODEL} has no profile {profile!r} (it has {', '.join(known)})")
            if not _LEAST <= value <= _MOST:
                wrong = f"{value:g} seconds per step must be from {_LEAST:g} to {_MOST:g}"
                raise SpeedsError(f"{path}: workload {name!r}, profile {profile}: {wrong}")
        if _WHOLE not in seconds:
            raise SpeedsError(f"{path}: workload {name!r} has no {_WHOLE}: speeds are relative to the whole GPU")
        for profile, value in seconds.items():
            if not _LEAST <= (speed := seconds[_WHOLE] / value) <= _MOST:
                wrong = f"{speed:g} times the speed of {_WHOLE} must be from {_LEAST:g} to {_MOST:g}"
                raise SpeedsError(f"{path}: workload {name!r}, profile {profile}: {wrong}")
    if not table:
        raise SpeedsError(f"{path}: no workloads")
    geometry = model.only({profile for seconds in table.values() for profile in seconds})
    index = {profile.name: number for number, profile in enumerate(geometry.profiles)}
    return Workloads(
        geometry,
        tuple(table),
        tuple({index[profile]: seconds[_WHOLE] / value for profile, value in seconds.items()} for seconds in table.values()),
    )


class Job(msgspec.Struct, frozen=True):
    """time: of its arrival; work: time on a whole GPU."""

    time: float
    workload: int
    work: float


def draw(seed: int, workloads: Workloads, rate: float, count: int) -> list[Job]:
    """So many jobs, at this rate."""
    rng, now, found = random.Random(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        found.append(Job(now, rng.randrange(len(workloads.names)), rng.expovariate(1.0)))
    return found


Partition = tuple[int, tuple[int, int] | None]
"""A profile, and for dynamic partitions its (GPU, placement)."""


class Gpus(Protocol):
    """What jobs run on."""

    def offered(self) -> Sequence[float | None]:
        """For each profile what a partition of it costs now, in GPUs; None: none is free."""

    def take(self, profile: int) -> Partition:
        """A partition of a profile that is offered."""

    def release(self, partition: Partition) -> None:
        """Its job has ended."""


class Dynamic:
    """Partitions are made of free slices, where least of a GPU is lost; then on the fullest GPU."""

    def __init__(self, completion: Completion, states: States, gpus: int) -> None:
        self._pool = Pool(states, gpus)
        self._completion = completion
        self._best: list[tuple[float, int, int, int] | None] | None = None  # by profile: cost, - compute in use, GPU, placement

    def offered(self) -> Sequence[float | None]:
        """See `Gpus`."""
        if self._best is None:
            states = self._pool.states
            self._best = [None] * len(states.geometry.profiles)
            for state, gpu in self._pool.groups():
                for profile, offer in enumerate(self._completion.offers(state)):
                    if offer is not None:
                        each = offer[0], -states.compute(state), gpu, offer[1]
                        best = self._best[profile]
                        self._best[profile] = each if best is None else min(best, each)
        return [None if best is None else best[0] for best in self._best]

    def take(self, profile: int) -> Partition:
        """See `Gpus`."""
        best = self._best[profile] if self._best is not None else None
        if best is None:
            raise ValueError(f"profile {profile} is not offered")
        place = best[2], best[3]
        self._pool.add(*place)
        self._best = None
        return profile, place

    def release(self, partition: Partition) -> None:
        """See `Gpus`."""
        _, place = partition
        if place is not None:
            self._pool.remove(*place)
            self._best = None


class Static:
    """Partitions that stay as they are. counts: how many there are of each profile."""

    def __init__(self, counts: Sequence[int], prices: Sequence[float]) -> None:
        self._free = list(counts)
        self._prices = prices

    def offered(self) -> Sequence[float | None]:
        """See `Gpus`."""
        return [price if free else None for free, price in zip(self._free, self._prices, strict=True)]

    def take(self, profile: int) -> Partition:
        """See `Gpus`."""
        self._free[profile] -= 1
        return profile, None

    def release(self, partition: Partition) -> None:
        """See `Gpus`."""
        self._free[partition[0]] += 1


def play(jobs: Sequence[Job], speeds: Sequence[Speeds], gpus: Gpus, policy: Flexible) -> float:
    """The mean time from the arrival of a job to its end. speeds: of each workload, on the profiles that the GPUs may have.

    Raises `ValueError` for a workload that no profile can run.
    """
    if not all(speeds):
        raise ValueError("a workload has no profile on which it runs")
    lines: dict[int, deque[int]] = {}
    heads: dict[int, Head] = {}
    ends: list[tuple[float, int, Partition]] = []
    waiting = arrived = 0
    total = 0.0
    while arrived < len(jobs) or ends:
        if arrived < len(jobs) and (not ends or jobs[arrived].time <= ends[0][0]):
            now, workload = jobs[arrived].time, jobs[arrived].workload
            line = lines.setdefault(workload, deque())
            line.append(arrived)
            if len(line) == 1:
                heads[workload] = Head(arrived, speeds[workload])
            waiting += 1
            arrived += 1
        else:
            now, number, partition = heapq.heappop(ends)
            gpus.release(partition)
            total += now - jobs[number].time
        while waiting and (start := policy.choose(heads.values(), waiting - 1, gpus.offered())) is not None:
            head, profile = start
            job = jobs[head.number]
            line = lines[job.workload]
            line.popleft()
            if line:
                heads[job.workload] = Head(line[0], head.speeds)
            else:
                del heads[job.workload]
            waiting -= 1
            heapq.heappush(ends, (now + job.work / head.speeds[profile], head.number, gpus.take(profile)))
    return total / len(jobs)


def dynamic_time(
    all_jobs: Sequence[Sequence[Job]], workloads: Workloads, states: States, gpus: int, prices: Sequence[float]
) -> float:
    """That of jobs on dynamic partitions: the mean over seeds."""
    completion, policy = Completion(states, prices), Flexible(prices, gpus)
    return fmean(play(jobs, workloads.speeds, Dynamic(completion, states, gpus), policy) for jobs in all_jobs)


def static_time(
    all_jobs: Sequence[Sequence[Job]], workloads: Workloads, counts: Sequence[int], prices: Sequence[float], policy: Flexible
) -> float:
    """That of jobs on static partitions; infinity if a workload fits none of them."""
    speeds = [{profile: speed for profile, speed in each.items() if counts[profile]} for each in workloads.speeds]
    if not all(speeds):
        return float("inf")
    return fmean(play(jobs, speeds, Static(counts, prices), policy) for jobs in all_jobs)

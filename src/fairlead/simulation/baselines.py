"""Textbook policies for job traces, to measure the scheduler against; they know nothing of it.

Jobs are served by (submission, duration, GPUs). `easy-total` knows run times, `sjf` and `easy` go by the estimates that
they are given; `fifo` and `las` need none.
Sources: EASY (Lifka, JSSPP 1995); least attained service in discrete levels (Gu et al., Tiresias, NSDI 2019).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Literal, get_args

from fairlead.simulation.charges import Charges, Run
from fairlead.simulation.durations import Estimates
from fairlead.simulation.pool import Place, Pool
from fairlead.simulation.traces import TraceJob

Baseline = Literal["fifo", "sjf", "easy-total", "easy", "las"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

Rank = tuple[float, float, int, int]

_CANDIDATES = 200  # jobs behind the head that one pass of EASY considers
_LEVELS = (3_600.0, 36_000.0)  # attained GPU-seconds from which `las` puts a job on the next level
_ROUND = 600.0  # seconds between two updates of attained service by `las`


def simulate(
    jobs: Sequence[TraceJob],
    *,
    nodes: int,
    gpus_per_node: int,
    policy: Baseline,
    charges: Charges,
    estimates: Estimates,
    progress: Callable[[int, int], None] | None = None,
) -> list[Run]:
    """What becomes of each job on `nodes` x `gpus_per_node` GPUs, in the order of `jobs`."""
    return _POLICIES[policy](jobs, nodes, gpus_per_node, charges, estimates).run(progress)


class _Engine:
    """Arrivals and completions on one clock; a policy decides who starts."""

    def __init__(self, jobs: Sequence[TraceJob], nodes: int, gpus_per_node: int, charges: Charges, estimates: Estimates) -> None:
        self.jobs = jobs
        self.estimates = estimates
        self.expected: dict[int, float] = {}  # how long each was thought to run when it came
        self.pool = Pool(nodes, gpus_per_node)
        self.capacity = nodes * gpus_per_node
        self.runs = [Run(job.duration, job.gpus, charges) for job in jobs]
        self.now = 0.0
        self.ends: list[tuple[float, int]] = []  # (when, which); one that was suspended since is out of date
        self.places: dict[int, Place] = {}
        self.waiting: list[tuple[Rank, int]] = []

    def rank(self, index: int) -> Rank:
        job = self.jobs[index]
        return job.submitted, job.duration, job.gpus, index

    def next_round(self) -> float | None:
        """When the policy wants to decide again although nothing happens."""
        return None

    def run(self, progress: Callable[[int, int], None] | None) -> list[Run]:
        jobs, finished, arrived = self.jobs, 0, 0
        arrivals = sorted(range(len(jobs)), key=lambda index: (jobs[index].submitted, jobs[index].duration, jobs[index].gpus))
        while arrived < len(jobs) or self.ends:
            times = [self.ends[0][0]] if self.ends else []
            if arrived < len(jobs):
                times.append(jobs[arrivals[arrived]].submitted)
            if (again := self.next_round()) is not None:
                times.append(again)
            self.now = min(times)
            while self.ends and self.ends[0][0] <= self.now:
                finished += self._end(*heappop(self.ends))
            while arrived < len(jobs) and jobs[arrivals[arrived]].submitted <= self.now:
                self._submit(arrivals[arrived])
                arrived += 1
            self.serve()
            if progress is not None:
                progress(finished, len(jobs))
        return self.runs

    def _submit(self, index: int) -> None:
        self.expected[index] = self.estimates.of(index)
        if self.jobs[index].gpus <= self.capacity:
            insort(self.waiting, (self.rank(index), index))

    def start(self, index: int, place: Place) -> None:
        self.places[index] = place
        heappush(self.ends, (self.runs[index].start(self.now), index))

    def _end(self, at: float, index: int) -> bool:
        if self.runs[index].ends != at:
            return False
        self.pool.give(self.places.pop(index))
        self.runs[index].finish(at)
        self.estimates.ended(index)
        return True

    def serve(self) -> None:
        raise NotImplementedError

    def serve_in_order(self) -> None:
        """Start the first ones for as long as they fit."""
        served = 0
        for _, index in self.waiting:
            if not self.pool.fits(self.jobs[index].gpus):
                break
            self.start(index, self.pool.find(self.jobs[index].gpus))
            served += 1
        del self.waiting[:served]


class _Fifo(_Engine):
    """By submission; a head that does not fit holds up all jobs."""

    def serve(self) -> None:
        self.serve_in_order()


class _Shortest(_Engine):
    """The shortest first; jobs that do not fit are passed."""

    def rank(self, index: int) -> Rank:
        job = self.jobs[index]
        return self.expected[index], job.submitted, job.gpus, index

    def serve(self) -> None:
        left = []
        refused = set[int]()
        for entry in self.waiting:
            gpus = self.jobs[entry[1]].gpus
            if gpus not in refused and self.pool.fits(gpus):
                self.start(entry[1], self.pool.find(gpus))
            else:
                refused.add(gpus)
                left.append(entry)
        self.waiting = left


class _Backfill(_Engine):
    """EASY backfill: the head gets a reservation, and others start that do not delay it."""

    def serve(self) -> None:
        self.serve_in_order()
        if len(self.waiting) < 2 or not self.pool.total:
            return
        self.reserve(self.jobs[self.waiting[0][1]].gpus)
        behind = []
        for entry in self.waiting[1 : 1 + _CANDIDATES]:
            place = self.beside(entry[1])
            if place is None:
                behind.append(entry)
            else:
                self.start(entry[1], place)
        self.waiting[1 : 1 + _CANDIDATES] = behind

    def reserve(self, gpus: int) -> None:
        """Note when the head, of so many GPUs, can start, and what is left beside it then."""
        raise NotImplementedError

    def beside(self, index: int) -> Place | None:
        """Take a place for a job that does not delay the head."""
        raise NotImplementedError


class _EasyTotal(_Backfill):
    """Run times known, the head's start reckoned from the total of free GPUs, fragments and all."""

    shadow, extra = 0.0, 0

    def reserve(self, gpus: int) -> None:
        free, self.shadow = self.pool.total, self.now
        if free < gpus:
            for end, index in sorted(self.ends):
                self.shadow = end
                free += self.jobs[index].gpus
                if free >= gpus:
                    break
        self.extra = free - gpus

    def beside(self, index: int) -> Place | None:
        job = self.jobs[index]
        in_time = self.now + job.duration <= self.shadow
        if not (in_time or job.gpus <= self.extra) or not self.pool.fits(job.gpus):
            return None
        self.extra -= 0 if in_time else job.gpus
        return self.pool.find(job.gpus)


class _Easy(_Backfill):
    """The head's start and place reckoned node by node. A job that overruns its estimate ends any moment."""

    shadow = 0.0
    later: Pool

    def reserve(self, gpus: int) -> None:
        self.later, self.shadow = self.pool.copy(), self.now
        for due, index in sorted((self._due(index), index) for index in self.places):
            self.shadow = due
            self.later.give(self.places[index])
            if self.later.fits(gpus):
                break
        self.later.find(gpus)

    def _due(self, index: int) -> float:
        return max(self.now, self.runs[index].since + self.expected[index])

    def beside(self, index: int) -> Place | None:
        pool, gpus = self.pool, self.jobs[index].gpus
        if not pool.fits(gpus):
            return None
        if self.now + self.expected[index] <= self.shadow:
            return pool.find(gpus)
        both = list(zip(pool.free, self.later.free, range(len(pool.free)), strict=True))
        if gpus <= pool.size:
            fitting = [(free, node) for free, then, node in both if free >= gpus and then >= gpus]
            nodes = [min(fitting)[1]] if fitting else []
        else:
            nodes = [node for free, then, node in both if free == then == pool.size][: pool.nodes_of(gpus)]
        if len(nodes) < pool.nodes_of(gpus):
            return None
        self.later.on(nodes, gpus)
        return pool.on(nodes, gpus)


class _LeastAttained(_Engine):
    """Least attained service in levels, run times unknown: jobs that used less preempt jobs that used more.

    Inside a level by submission. A suspension is charged; those of the lowest rank are suspended, and none in vain.
    """

    def __init__(self, jobs: Sequence[TraceJob], nodes: int, gpus_per_node: int, charges: Charges, estimates: Estimates) -> None:
        super().__init__(jobs, nodes, gpus_per_node, charges, estimates)
        self.suspended: list[tuple[Rank, int]] = []

    def next_round(self) -> float | None:
        if not self.waiting or not self.places:
            return None
        return (self.now // _ROUND + 1) * _ROUND

    def level(self, index: int) -> int:
        attained = self.runs[index].held_until(self.now) * self.jobs[index].gpus
        return sum(attained >= each for each in _LEVELS)

    def serve(self) -> None:
        if not self.waiting:
            return
        running = sorted(((self.level(index), self.rank(index), index) for index in self.places), reverse=True)
        refused: dict[int, int] = {}  # GPUs -> best level that found no place for so many
        left, self.suspended = [], []
        for level, rank, index in sorted((self.level(index), rank, index) for rank, index in self.waiting):
            gpus = self.jobs[index].gpus
            place = self.pool.find(gpus) if self.pool.fits(gpus) else None
            if place is None and running and running[0][0] > level and refused.get(gpus, level + 1) > level:
                nodes = self._suspend_for(level, gpus, running)
                if nodes is not None:
                    place = self.pool.on(nodes, gpus)
                    running = [each for each in running if each[2] in self.places]
            if place is None:
                refused.setdefault(gpus, level)
                left.append((rank, index))
            else:
                self.start(index, place)
        self.waiting = sorted(left + self.suspended)

    def _suspend_for(self, level: int, gpus: int, running: list[tuple[int, Rank, int]]) -> list[int] | None:
        """Suspend jobs, the lowest rank first, until the job has its nodes; None if they do not suffice."""
        wanted, free = self.pool.nodes_of(gpus), self.pool.free[:]
        per_node = min(gpus, self.pool.size)
        nodes = [node for node, each in enumerate(free) if each >= per_node]
        taken: list[int] = []
        for at, _, index in running:
            if at <= level or len(nodes) >= wanted:
                break
            taken.append(index)
            for node, part in self.places[index]:
                free[node] += part
                if free[node] >= per_node > free[node] - part:
                    nodes.append(node)
        if len(nodes) < wanted:
            return None
        nodes = nodes[:wanted]
        for index in taken:
            if any(node in nodes for node, _ in self.places[index]):
                self.suspend(index)
        return nodes

    def suspend(self, index: int) -> None:
        self.pool.give(self.places.pop(index))
        self.runs[index].suspend(self.now)
        self.suspended.append((self.rank(index), index))


_POLICIES: dict[str, type[_Engine]] = {
    "fifo": _Fifo,
    "sjf": _Shortest,
    "easy-total": _EasyTotal,
    "easy": _Easy,
    "las": _LeastAttained,
}

"""The best static partitioning of a pool for given jobs, by search on the very jobs that are measured.

A candidate is how many GPUs have which partitioning (only such into which nothing more fits) and by which of
`_POLICIES` jobs choose. The search begins at the best partitioning that all GPUs share, and at the best half-and-half
of two; from each it moves GPUs from one partitioning to another, many at a time, then fewer, then changes the policy,
until nothing is better. A candidate is first tried on three seeds, and on all only if it is within 3 % of the best
there. Static partitions get every advantage here: they are chosen with the jobs known, which no administrator can do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fairlead.core.mig.flexible import Flexible, partitionings
from fairlead.core.mig.states import States
from fairlead.simulation.mig.speeds import Job, Workloads, static_time

_RACED = 3
_WITHIN = 1.03
_ANY = float("inf")
_POLICIES: tuple[dict[str, float], ...] = (
    {},
    {"by_arrival": True},
    {"patience": _ANY},
    {"patience": 3.0},
    {"idle": 0.0, "waiting": 0.0, "patience": _ANY},
    {"waiting": 1.0},
    {"waiting": 20.0},
    {"waiting": 20.0, "patience": _ANY},
    {"waiting": 1.0, "patience": _ANY, "by_arrival": True},
)

Layout = tuple[int, ...]
"""How many GPUs have each partitioning."""


class Found(msgspec.Struct, frozen=True):
    """time: mean over jobs; layout: profiles of one GPU, as `3g.20gb+2x2g.10gb`, -> GPUs; tried: candidates."""

    time: float
    layout: dict[str, int]
    policy: dict[str, float]
    tried: int


class _Search:
    def __init__(
        self, jobs: Sequence[Sequence[Job]], workloads: Workloads, states: States, gpus: int, prices: Sequence[float]
    ) -> None:
        self._jobs = jobs
        self._workloads = workloads
        self._gpus = gpus
        self._prices = prices
        self.ways = partitionings(states)
        self._known: dict[tuple[tuple[int, ...], int], float] = {}
        self._raced: dict[tuple[tuple[int, ...], int], float] = {}
        self._best_raced = _ANY
        self._best = _ANY

    @property
    def tried(self) -> int:
        return len(self._raced)

    def time(self, layout: Layout, policy: int) -> float:
        """Of a candidate; infinity if it lost the race. Layouts with the same partitions are the same."""
        counts = tuple(
            sum(gpus * way[profile] for gpus, way in zip(layout, self.ways, strict=True)) for profile in range(len(self._prices))
        )
        key = counts, policy
        if key not in self._known:
            chosen = Flexible(self._prices, self._gpus, **_POLICIES[policy])  # type: ignore[arg-type]
            first = self._raced[key] = static_time(self._jobs[:_RACED], self._workloads, counts, self._prices, chosen)
            if first <= self._best_raced * _WITHIN and first < _ANY:
                self._known[key] = static_time(self._jobs, self._workloads, counts, self._prices, chosen)
                if self._known[key] < self._best:
                    self._best, self._best_raced = self._known[key], first
            else:
                self._known[key] = _ANY
        return self._known[key]

    def neighbours(self, layout: Layout, step: int) -> Iterator[Layout]:
        for source, gpus in enumerate(layout):
            for target in range(len(layout)):
                if source != target and gpus >= step:
                    moved = list(layout)
                    moved[source] -= step
                    moved[target] += step
                    yield tuple(moved)

    def climb(self, layout: Layout, policy: int) -> tuple[float, Layout, int]:
        """Down from a candidate until no neighbour and no policy is better."""
        best = self.time(layout, policy), layout, policy
        step = max(1, self._gpus // 2)
        while step:
            improved = False
            for moved in self.neighbours(best[1], step):
                if (value := self.time(moved, best[2])) < best[0]:
                    best, improved = (value, moved, best[2]), True
            for other in range(len(_POLICIES)):
                if (value := self.time(best[1], other)) < best[0]:
                    best, improved = (value, best[1], other), True
            if not improved:
                step //= 2
        return best


def search(jobs: Sequence[Sequence[Job]], workloads: Workloads, states: States, gpus: int, prices: Sequence[float]) -> Found:
    """The best that is found. jobs: of each seed."""
    seen = _Search(jobs, workloads, states, gpus, prices)
    count = len(seen.ways)
    shared = [tuple(gpus * (number == way) for number in range(count)) for way in range(count)]
    halves = [
        tuple((gpus - gpus // 2) * (number == one) + gpus // 2 * (number == other) for number in range(count))
        for one in range(count)
        for other in range(one)
    ]
    starts = [min(candidates, key=lambda layout: seen.time(layout, 0)) for candidates in (shared, halves) if candidates]
    value, layout, policy = min(seen.climb(start, 0) for start in starts)
    names = [profile.name for profile in workloads.geometry.profiles]
    return Found(
        value,
        {_named(way, names): number for way, number in zip(seen.ways, layout, strict=True) if number},
        _POLICIES[policy],
        seen.tried,
    )


def _named(way: Sequence[int], names: Sequence[str]) -> str:
    return "+".join(
        name if held == 1 else f"{held}x{name}" for name, held in reversed(list(zip(names, way, strict=True))) if held
    )

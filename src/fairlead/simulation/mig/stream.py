"""A stream of requests for MIG partitions: each is placed at once, or lost. How much of the GPUs is allocated under a
rule.

The protocol: A100-40GB without the profiles with media extensions; one request per unit of time on average (Poisson),
its profile drawn from a mix, its run time exponential with the mean at which the requests ask for `load` times all
compute slices; 6,000 requests of a seed, of which the first quarter is not counted. `allocated` is the mean, over the
requests, of the compute slices in use, in percent. The draws are those of `random.Random(seed)` in this order for each
request: gap, profile, run time, then those of the rule `random`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping

import msgspec

from fairlead.core.mig.geometry import GEOMETRIES
from fairlead.core.mig.moves import MoveBudget, Plan, search
from fairlead.core.mig.placing import Placer
from fairlead.core.mig.pool import Pool
from fairlead.core.mig.states import States
from fairlead.simulation.mig.rules import rule

MIXES: dict[str, dict[str, float]] = {
    "uniform": {"1g.5gb": 1, "2g.10gb": 1, "3g.20gb": 1, "4g.20gb": 1, "7g.40gb": 1},
    "small": {"1g.5gb": 0.5, "2g.10gb": 0.25, "3g.20gb": 0.15, "4g.20gb": 0.05, "7g.40gb": 0.05},
    "middle": {"1g.5gb": 0.3, "1g.10gb": 0.1, "2g.10gb": 0.25, "3g.20gb": 0.25, "7g.40gb": 0.1},
}
"""The three mixes: profile -> weight."""

GEOMETRY = GEOMETRIES["A100-40GB"].without_media()
REQUESTS = 6000


class Request(msgspec.Struct, frozen=True):
    """One request. profile: index in the geometry; time, duration: in mean gaps between requests."""

    time: float
    profile: int
    duration: float


class Stream:
    """The requests of one seed, drawn one by one. parts: for each profile of the geometry its part of the requests."""

    def __init__(self, seed: int, mix: Mapping[str, float], gpus: int, load: float) -> None:
        self.rng = random.Random(seed)
        names = [profile.name for profile in GEOMETRY.profiles]
        total = sum(mix.values())
        self._profiles = [names.index(name) for name in mix]
        self._weights = [weight / total for weight in mix.values()]
        self.parts = [mix.get(name, 0) / total for name in names]
        mean = sum(part * profile.compute for part, profile in zip(self.parts, GEOMETRY.profiles, strict=True))
        self._life = gpus * GEOMETRY.compute * load / mean
        self._now = 0.0

    def requests(self, count: int) -> Iterator[Request]:
        """So many, one after the other."""
        for _ in range(count):
            self._now += self.rng.expovariate(1.0)
            profile = self.rng.choices(self._profiles, self._weights)[0]
            yield Request(self._now, profile, self.rng.expovariate(1 / self._life))


class Measured(msgspec.Struct, frozen=True):
    """Of one run. allocated, accepted: percent; moves: of partitions, for each request."""

    allocated: float
    accepted: float
    moves: float = 0.0


class _Counted:
    """What is measured, from the second quarter of the requests on."""

    def __init__(self, requests: int, slices: int) -> None:
        self._warm = requests // 4
        self._slices = slices
        self._number = self._used = self._accepted = self._counted = 0

    def request(self, accepted: bool, used: int) -> None:
        if self._number > self._warm:
            self._counted += 1
            self._accepted += accepted
            self._used += used
        self._number += 1

    def measured(self, moves: float = 0.0) -> Measured:
        counted = max(1, self._counted)
        return Measured(100 * self._used / counted / self._slices, 100 * self._accepted / counted, moves)


class _Placed:
    """What runs: where each request is, and who is at a place."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._place: dict[int, tuple[int, int]] = {}
        self._at: dict[tuple[int, int], int] = {}
        self._ends: list[tuple[float, int]] = []

    def end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            place = self._place.pop(heapq.heappop(self._ends)[1])
            del self._at[place]
            self._pool.remove(*place)

    def begin(self, number: int, place: tuple[int, int], ends: float) -> None:
        self._pool.add(*place)
        self._place[number] = place
        self._at[place] = number
        heapq.heappush(self._ends, (ends, number))

    def move(self, plan: Plan, number: int, ends: float) -> None:
        """All moves of a plan, and the request that they are for."""
        leaving = [self._at.pop((move.gpu, move.placement)) for move in plan.moves]
        for move in plan.moves:
            self._pool.remove(move.gpu, move.placement)
        self.begin(number, (plan.gpu, plan.placement), ends)
        for moved, move in zip(leaving, plan.moves, strict=True):
            place = move.to_gpu, move.to_placement
            self._pool.add(*place)
            self._place[moved] = place
            self._at[place] = moved


def run(
    name: str,
    seed: int,
    mix: Mapping[str, float],
    *,
    gpus: int = 64,
    load: float = 1.0,
    requests: int = REQUESTS,
    rate: float = 0.0,
    states: States | None = None,
) -> Measured:
    """One seed under a rule. rate: the most moves per request, for rule `fairlead`; states: shared by the runs of a
    process.
    """
    pool = Pool(states if states is not None else States(GEOMETRY), gpus)
    stream = Stream(seed, mix, gpus, load)
    chosen = rule(name, pool, stream.parts, stream.rng)
    placer = chosen if isinstance(chosen, Placer) else None
    budget = MoveBudget(rate)
    counted, placed = _Counted(requests, gpus * GEOMETRY.compute), _Placed(pool)
    for number, request in enumerate(stream.requests(requests)):
        placed.end(request.time)
        ends = request.time + request.duration
        budget.arrive()
        if placer is not None:
            placer.mix.observe(request.profile)
        place = chosen.choose(request.profile)
        plan = None
        if place is not None:
            placed.begin(number, place, ends)
        elif placer is not None and rate > 0:
            plan = search(placer, request.profile)
            if plan is not None and budget.allows(plan):
                placed.move(plan, number, ends)
            else:
                plan = None
        counted.request(place is not None or plan is not None, pool.compute)
    return counted.measured(budget.moved / requests)


def fluid(seed: int, mix: Mapping[str, float], *, gpus: int = 64, load: float = 1.0, requests: int = REQUESTS) -> Measured:
    """The bound: the slices of all GPUs are one pool, in which a request fits wherever its slices are free."""
    stream = Stream(seed, mix, gpus, load)
    slices = free = gpus * GEOMETRY.compute
    counted, ends = _Counted(requests, slices), list[tuple[float, int]]()
    for request in stream.requests(requests):
        while ends and ends[0][0] <= request.time:
            free += heapq.heappop(ends)[1]
        size = GEOMETRY.profiles[request.profile].compute
        accepted = size <= free
        if accepted:
            free -= size
            heapq.heappush(ends, (request.time + request.duration, size))
        counted.request(accepted, slices - free)
    return counted.measured()

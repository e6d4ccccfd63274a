"""Which profile a job takes now, if it accepts several and its speed on each is known.

Prices. A GPU can be partitioned in several ways; a price for each profile is the part of a GPU's throughput it takes
away. For any prices, the jobs that a GPU completes per unit of time are at most

    (the dearest partitioning of a GPU) / (mean over jobs of the cheapest price x time)

by weak duality of the linear program that assigns jobs to profiles and GPUs to partitionings. `prices` lowers this
bound; the bound is also the unit in which load is measured: at load 1 no scheduler can keep up.

The choice. A job of speed s on a profile of price p takes 1/s of time and p/s of GPU time. The GPU time delays all who
wait; so the cost of a profile is (1 + pressure x p) / s, where the pressure grows with the number of waiting jobs per
GPU. A profile that costs more than `_PATIENCE` times the cheapest of all is not taken: the job waits. Of the jobs that
wait, the one starts whose cost is nearest to the cheapest that it could have: each partition goes to work that it
suits.

What is left of a GPU matters, too: 3g twice leaves a compute slice that no partition can use. The *completion* of a
state is the price of its dearest partitioning that keeps what runs; a placement costs the price of its profile and what
the completion loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import msgspec

from fairlead.core.mig.states import EMPTY, States

_IDLE_PRESSURE = 2.0
_PRESSURE_OF_WAITING = 5.0
_PATIENCE = 1.3
_SUITS = 1.05

Speeds = Mapping[int, float]
"""Profile (its index in the geometry) -> work per unit of time; 1 is that of a whole GPU. Profiles that are missing
cannot run it.
"""


def partitionings(states: States) -> list[tuple[int, ...]]:
    """All ways to partition a GPU into which nothing more fits: for each profile how many. Sorted, each once."""
    profiles = range(len(states.geometry.profiles))
    line, found = [EMPTY], set[tuple[int, ...]]()
    seen = {EMPTY}
    for state in line:
        following = [after for profile in profiles for _, after in states.options(state, profile)]
        if not following:
            held = [states.placements[each].profile for each in states.running(state)]
            found.add(tuple(held.count(profile) for profile in profiles))
        for after in following:
            if after not in seen:
                seen.add(after)
                line.append(after)
    return sorted(found)


def throughput(prices: Sequence[float], ways: Sequence[Sequence[int]], jobs: Sequence[Speeds]) -> float:
    """The bound of the module's text: jobs of mean work 1 that one GPU completes per unit of time, at most."""
    dearest = max(sum(count * price for count, price in zip(way, prices, strict=True)) for way in ways)
    return dearest / (sum(min(prices[profile] / speed for profile, speed in speeds.items()) for speeds in jobs) / len(jobs))


def prices(states: States, jobs: Sequence[Speeds]) -> tuple[list[float], float]:
    """Prices of the profiles (a whole GPU has 1) with the least bound that a pattern search finds, and that bound.

    All sets of profiles become dearer or cheaper together, by steps that are halved when none helps: the bound has
    edges, at which a search along single prices would stop.
    """
    geometry, ways = states.geometry, partitionings(states)
    found = [profile.compute / geometry.compute for profile in geometry.profiles]
    best = throughput(found, ways, jobs)
    step = 0.2
    while step > 1e-5:
        improved = False
        for chosen in product((1.0, 1.0 + step, 1.0 / (1.0 + step)), repeat=len(found)):
            tried = [price * factor for price, factor in zip(found, chosen, strict=True)]
            value = throughput(tried, ways, jobs)
            if value < best * (1 - 1e-12):
                best, found, improved = value, tried, True
        if not improved:
            step /= 2
    return [price / found[-1] for price in found], best


class Completion:
    """The price of the dearest partitioning that a state of a GPU can still become; and the places that lose least of
    it.
    """

    def __init__(self, states: States, prices: Sequence[float]) -> None:
        self._states = states
        self._prices = prices
        self._worth: dict[int, float] = {}
        self._offers: dict[int, tuple[Offer | None, ...]] = {}

    def worth(self, state: int) -> float:
        """Of the best partitioning that contains what runs."""
        found = self._worth.get(state)
        if found is None:
            found = sum(self._prices[self._states.placements[each].profile] for each in self._states.running(state))
            for profile in range(len(self._prices)):
                for _, after in self._states.options(state, profile):
                    found = max(found, self.worth(after))
            self._worth[state] = found
        return found

    def offers(self, state: int) -> tuple[Offer | None, ...]:
        """For each profile the placement that costs least, and its cost; None where it does not fit."""
        found = self._offers.get(state)
        if found is None:
            worth = self.worth(state)
            found = self._offers[state] = tuple(
                min(
                    (
                        (round(price + worth - self.worth(after), 9), placement)
                        for placement, after in self._states.options(state, profile)
                    ),
                    default=None,
                )
                for profile, price in enumerate(self._prices)
            )
        return found


Offer = tuple[float, int]
"""A price, and the placement."""


class Head(msgspec.Struct, frozen=True):
    """The first waiting job of those with the same speeds. number: its place in the queue."""

    number: int
    speeds: Speeds


class Flexible:
    """Chooses which job starts on which profile. gpus: of the pool; by_arrival: instead of by what suits."""

    def __init__(
        self,
        prices: Sequence[float],
        gpus: int,
        *,
        idle: float = _IDLE_PRESSURE,
        waiting: float = _PRESSURE_OF_WAITING,
        patience: float = _PATIENCE,
        by_arrival: bool = False,
    ) -> None:
        self._prices = prices
        self._gpus = gpus
        self._idle = idle
        self._waiting = waiting
        self._patience = patience
        self._by_arrival = by_arrival

    def choose(self, heads: Iterable[Head], others: int, offered: Sequence[float | None]) -> tuple[Head, int] | None:
        """A job and a profile that it should take now; None: all should wait.

        others: how many more jobs wait; offered: what each profile costs now, None if none is free. Ties by queue
        order.
        """
        pressure = self._idle + self._waiting * others / self._gpus
        best: tuple[tuple[float, int], Head, int] | None = None
        for head in heads:
            costs = [
                ((1 + pressure * price) / speed, profile)
                for profile, speed in head.speeds.items()
                if (price := offered[profile]) is not None
            ]
            if not costs:
                continue
            cost, profile = min(costs)
            ratio = cost / min((1 + pressure * self._prices[each]) / speed for each, speed in head.speeds.items())
            key = (0.0 if self._by_arrival else max(ratio, _SUITS)), head.number
            if ratio <= self._patience and (best is None or key < best[0]):
                best = key, head, profile
        return None if best is None else best[1:]

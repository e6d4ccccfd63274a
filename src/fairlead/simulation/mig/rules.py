"""The rules that place requests in the MIG stream: those compared with, as simple scores, and Fairlead's.

A score rule takes the (GPU, start) with the least score; ties go to the lowest GPU, then the first start. Scores depend
on the state of one GPU only, so each is computed once for a state.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Protocol

from fairlead.core.mig.placing import Placer
from fairlead.core.mig.pool import Pool
from fairlead.core.mig.states import States

Score = tuple[float, ...]
Choice = tuple[int, int]


class Rule(Protocol):
    """Chooses (GPU, placement) for a request, or None where it fits nowhere."""

    def choose(self, profile: int) -> Choice | None:
        """For a request of this profile, now."""


class ByScore:
    """The least score of (state, placement, state after it)."""

    def __init__(self, pool: Pool, score: Callable[[int, int], Score]) -> None:
        self._pool = pool
        self._score = score
        self._best: dict[tuple[int, int], tuple[Score, int] | None] = {}

    def choose(self, profile: int) -> Choice | None:
        """See `Rule`."""
        found = [(best[0], gpu, best[1]) for state, gpu in self._pool.groups() if (best := self._of(state, profile)) is not None]
        if not found:
            return None
        _, gpu, placement = min(found)
        return gpu, placement

    def _of(self, state: int, profile: int) -> tuple[Score, int] | None:
        key = state, profile
        if key not in self._best:
            options = [(self._score(state, after), placement) for placement, after in self._pool.states.options(state, profile)]
            self._best[key] = min(options, default=None)
        return self._best[key]


class FirstFit:
    """The lowest GPU, and on it the first start: what kube-scheduler's allocator of devices does."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def choose(self, profile: int) -> Choice | None:
        """See `Rule`."""
        found = [
            (gpu, options[0][0]) for state, gpu in self._pool.groups() if (options := self._pool.states.options(state, profile))
        ]
        return min(found, default=None)


class Anywhere:
    """One of all places, each with the same chance. Draws a number for each place, GPU by GPU, from the stream's
    generator.
    """

    def __init__(self, pool: Pool, rng: random.Random) -> None:
        self._pool = pool
        self._rng = rng

    def choose(self, profile: int) -> Choice | None:
        """See `Rule`."""
        draws: Iterator[tuple[float, int, int]] = (
            (self._rng.random(), gpu, placement)
            for gpu in range(len(self._pool))
            for placement, _ in self._pool.states.options(self._pool.state(gpu), profile)
        )
        found = min(draws, default=None)
        return None if found is None else found[1:]


def best_fit(states: States) -> Callable[[int, int], Score]:
    """The GPU with the fewest free compute slices."""
    return lambda state, _: (states.geometry.compute - states.compute(state),)


def most_placements(states: States) -> Callable[[int, int], Score]:
    """The GPU with the fewest free compute slices, and on it the start that leaves most placements: as NVIDIA's
    driver places.
    """
    profiles = range(len(states.geometry.profiles))

    def score(state: int, after: int) -> Score:
        return states.geometry.compute - states.compute(state), -sum(len(states.options(after, each)) for each in profiles)

    return score


def fragmentation_gradient(states: States, parts: list[float]) -> Callable[[int, int], Score]:
    """The least growth of fragmentation as FGD defines it (Weng et al., USENIX ATC 2023): free slices that a request
    cannot use.
    """

    def fragmentation(state: int) -> float:
        idle = states.geometry.compute - states.compute(state)
        return sum(part * (0 if states.options(state, each) else idle) for each, part in enumerate(parts) if part)

    def score(state: int, after: int) -> Score:
        return fragmentation(after) - fragmentation(state), states.geometry.compute - states.compute(state)

    return score


def lookahead(states: States, parts: list[float]) -> Callable[[int, int], Score]:
    """The least loss of placements, each counted by how often its profile arrives and by its compute slices."""
    profiles = states.geometry.profiles

    def score(state: int, after: int) -> Score:
        lost = sum(
            part
            * (len(states.options(state, each)) - len(states.options(after, each)))
            / len(profiles[each].starts)
            * profiles[each].compute
            for each, part in enumerate(parts)
        )
        return lost, states.geometry.compute - states.compute(state)

    return score


def rule(name: str, pool: Pool, parts: list[float], rng: random.Random) -> Rule:
    """The rule of that name on a pool. parts: of what arrives, for each profile; Fairlead's rule does not see them.

    Raises `KeyError` for another name.
    """
    states = pool.states
    scores: dict[str, Callable[[], Callable[[int, int], Score]]] = {
        "best_fit": lambda: best_fit(states),
        "most_placements": lambda: most_placements(states),
        "fgd": lambda: fragmentation_gradient(states, parts),
        "lookahead": lambda: lookahead(states, parts),
    }
    if name in scores:
        return ByScore(pool, scores[name]())
    others: dict[str, Callable[[], Rule]] = {
        "random": lambda: Anywhere(pool, rng),
        "first_fit": lambda: FirstFit(pool),
        "fairlead": lambda: Placer(pool),
    }
    return others[name]()


SIMPLE = ("random", "first_fit", "best_fit", "most_placements", "fgd", "lookahead")
"""The names of the rules that Fairlead's is compared with."""

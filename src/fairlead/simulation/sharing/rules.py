"""What jobs get out of their GPUs under several rules of sharing: one draw of jobs, the same for all rules.

The draw, and the random pairs, are those of the protocol that the floors were measured with: 200 jobs of the one-GPU kinds,
each paired with the first of those left with which it runs. What is learned runs in rounds: in each the pairs that run are
measured, and jobs whose partner changes lose a part of the round for their restart.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from fairlead.core.pairs.choose import choose, worths
from fairlead.core.pairs.estimate import Measured, Speeds, estimate
from fairlead.simulation.sharing.exact import best_pairs
from fairlead.simulation.sharing.throughputs import Throughputs

Pairs = Sequence[tuple[int, ...]]
CHANGE = 0.03
"""What an exchange of partners must gain, in jobs' worth, over the estimate of what runs."""


class Score(msgspec.Struct, frozen=True):
    """worth: jobs' worth (relative speeds, summed) and GPUs that they took. slowdowns: of the slower job of each pair."""

    worth: float
    gpus: float
    slowdowns: tuple[float, ...]


class Learned(msgspec.Struct, frozen=True):
    """A run that learns. rounds: worth per GPU of each. kept_not_runnable: the most rounds in a row that a pair of jobs was
    together although it does not run; 1: in none after it was tried. tried_not_runnable: how often one was tried.
    """

    score: Score
    rounds: tuple[float, ...]
    moves: int
    tried_not_runnable: int
    kept_not_runnable: int


def drawn(rng: random.Random, table: Throughputs, jobs: int) -> list[int]:
    """The kinds of so many jobs."""
    return [rng.choice(range(len(table.kinds))) for _ in range(jobs)]


def random_pairs(rng: random.Random, table: Throughputs, jobs: Sequence[int]) -> Pairs:
    """In a random order each with the first of the others that it runs with."""
    left = list(range(len(jobs)))
    rng.shuffle(left)
    pairs: list[tuple[int, ...]] = []
    while left:
        first = left.pop(0)
        second = next((other for other in left if table.speed[jobs[first], jobs[other]] > 0), None)
        pairs.append((first,) if second is None else (first, second))
        if second is not None:
            left.remove(second)
    return pairs


def scored(table: Throughputs, jobs: Sequence[int], pairs: Pairs) -> Score:
    """What pairs are worth, as measured."""
    worth = 0.0
    slowdowns: list[float] = []
    for pair in pairs:
        if len(pair) == 1:
            worth += 1.0
            continue
        one, other = (jobs[each] for each in pair)
        speeds = table.speed[one, other], table.speed[other, one]
        worth += sum(speeds)
        slowdowns.append(1 / min(speeds) if min(speeds) > 0 else np.inf)
    return Score(float(worth), float(len(pairs)), tuple(float(each) for each in slowdowns))


def matched(table: Throughputs, jobs: Sequence[int]) -> tuple[Score, float]:
    """The best pairs where all is known; and the bound on worth per GPU of any pairs."""
    kind = np.asarray(jobs)
    speed = table.speed[np.ix_(kind, kind)]
    pairs, bound = best_pairs(speed + speed.T, speed)
    return scored(table, jobs, pairs), bound


def learned(rng: random.Random, table: Throughputs, jobs: Sequence[int], *, known: float, rounds: int, restart: float) -> Learned:
    """Pairs by estimates; a part `known` of all pairs of kinds is measured before, the others while they run.

    restart: the part of a round that a job loses where its partner changes. The number of jobs is even.
    """
    kinds = range(len(table.kinds))
    every = [(one, other) for one in kinds for other in kinds if one <= other]
    measured = Measured(len(table.kinds))
    _measure(measured, table.speed, rng.sample(every, round(known * len(every))))
    pairs: list[tuple[int, int]] = []
    worth, gpus = 0.0, 0.0
    by_round: list[float] = []
    slowdowns: list[float] = []
    moves = tried = longest = 0
    idle_for: dict[tuple[int, int], int] = {}
    for _ in range(rounds):
        before = {frozenset(pair) for pair in pairs}
        pairs = choose(jobs, worths(estimate(measured)), measured.not_runnable, pairs, change=CHANGE)
        # What is known not to run gets a GPU for each of its jobs.
        apart = [(each,) for a, b in pairs if measured.not_runnable[jobs[a], jobs[b]] for each in (a, b)]
        shared = [pair for pair in pairs if not measured.not_runnable[jobs[pair[0]], jobs[pair[1]]]]
        score = scored(table, jobs, [*shared, *apart])
        moved = [pair for pair in shared if before and frozenset(pair) not in before]
        lost = restart * sum(float(table.speed[jobs[a], jobs[b]] + table.speed[jobs[b], jobs[a]]) for a, b in moved)
        stopped = [pair for pair in shared if table.speed[jobs[pair[0]], jobs[pair[1]]] == 0]
        idle_for = {pair: idle_for.get(pair, 0) + 1 for pair in stopped}
        longest, tried, moves = max(longest, *idle_for.values(), 0), tried + len(stopped), moves + 2 * len(moved)
        worth, gpus = worth + score.worth - lost, gpus + score.gpus
        by_round.append(float((score.worth - lost) / score.gpus))
        slowdowns += score.slowdowns
        _measure(measured, table.speed, [(jobs[a], jobs[b]) for a, b in shared])
    return Learned(Score(worth, gpus, tuple(slowdowns)), tuple(by_round), moves, tried, longest)


def _measure(measured: Measured, speed: Speeds, pairs: Iterable[tuple[int, int]]) -> None:
    for one, other in pairs:
        measured.record(one, other, (float(speed[one, other]), float(speed[other, one])))

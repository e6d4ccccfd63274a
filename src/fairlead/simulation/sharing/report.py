"""The rules of sharing on the same draws, as one result."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from fairlead.simulation.sharing import rules
from fairlead.simulation.sharing.rules import Learned, Score
from fairlead.simulation.sharing.throughputs import Throughputs
from fairlead.simulation.sharing.world import Passed


class Rule(msgspec.Struct, frozen=True):
    """worth_per_gpu: relative speeds of all jobs over the GPUs that they take, the mean of the draws. p95_slowdown: of the
    slower job of each pair, the mean of the draws' 95th percentiles; null where that pair does not run.
    """

    worth_per_gpu: float
    p95_slowdown: float | None


class SharingResult(msgspec.Struct, frozen=True, kw_only=True):
    """ours, random, matching: the rules; ours over all rounds. bound: no matching is worth more per GPU.

    rounds: worth per GPU of ours in each round. moves_per_job: changes of partner in a run. tried_not_runnable: pairs that do
    not run together and were put together, per draw. kept_not_runnable: the most rounds in a row of one of them. passed: jobs
    through the production pass; blind: where no speeds reach it.
    """

    matrix: str
    kinds: int
    runnable_pairs: int
    known: float
    jobs: int
    draws: int
    restart: float
    ours: Rule
    random: Rule
    matching: Rule
    bound: float
    rounds: tuple[float, ...]
    moves_per_job: float
    tried_not_runnable: float
    kept_not_runnable: int
    passed: Passed | None = None
    blind: Passed | None = None


def compare(  # noqa: PLR0913 - the protocol's numbers
    table: Throughputs,
    matrix: str,
    *,
    known: float,
    jobs: int = 200,
    draws: int = 10,
    rounds: int = 16,
    restart: float = 0.05,
    seed: int = 7,
    progress: Callable[[int, int], None] | None = None,
) -> SharingResult:
    """All rules on the same draws. jobs: even. The draws of seed 7 are those of the floors."""
    rng = random.Random(seed)
    ours: list[Learned] = []
    by_chance: list[Score] = []
    matching: list[Score] = []
    bounds = []
    for draw in range(draws):
        if progress is not None:
            progress(draw + 1, draws)
        kinds = rules.drawn(rng, table, jobs)
        by_chance.append(rules.scored(table, kinds, rules.random_pairs(rng, table, kinds)))
        best, bound = rules.matched(table, kinds)
        matching.append(best)
        bounds.append(bound)
        # What is known at first is drawn apart, so that the draws of jobs do not depend on it.
        own = random.Random(f"{seed}/{draw}")
        ours.append(rules.learned(own, table, kinds, known=known, rounds=rounds, restart=restart))
    return SharingResult(
        matrix=matrix,
        kinds=len(table.kinds),
        runnable_pairs=table.runnable_pairs,
        known=known,
        jobs=jobs,
        draws=draws,
        restart=restart,
        ours=_rule([each.score for each in ours]),
        random=_rule(by_chance),
        matching=_rule(matching),
        bound=_mean(bounds),
        rounds=tuple(_mean([each.rounds[at] for each in ours]) for at in range(rounds)),
        moves_per_job=_mean([each.moves / jobs for each in ours]),
        tried_not_runnable=_mean([each.tried_not_runnable for each in ours]),
        kept_not_runnable=max(each.kept_not_runnable for each in ours),
    )


def _rule(scores: Sequence[Score]) -> Rule:
    slowdowns = _mean([_p95(each.slowdowns) for each in scores])
    return Rule(_mean([each.worth / each.gpus for each in scores]), slowdowns if slowdowns < float("inf") else None)


def _p95(values: Sequence[float]) -> float:
    """The 95th percentile, by the method that is Python's default for quantiles."""
    ordered = sorted(values)
    if len(ordered) < 2:
        return ordered[0] if ordered else 1.0
    place = 0.95 * (len(ordered) + 1) - 1
    low = min(max(int(place), 0), len(ordered) - 2)
    part = place - low
    return ordered[low] if part <= 0 else ordered[low] + (ordered[low + 1] - ordered[low]) * part


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

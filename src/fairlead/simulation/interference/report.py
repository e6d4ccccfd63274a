"""What `simulate interference` reports: our slowdowns beside those of the same scheduler without measurements, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from fairlead.simulation.interference import stream
from fairlead.simulation.interference.world import Run, World


class Seed(msgspec.Struct):
    """One stream of jobs under both. ratio: our mean slowdown over that of the blind run."""

    seed: int
    ours: Run
    blind: Run
    ratio: float


class InterferenceResult(msgspec.Struct):
    """Means over the seeds. Slowdowns: 1 is none; excess: what is above 1. allocation: the part of all GPUs in use."""

    nodes: int
    gpus: int
    jobs: int
    load: float
    seeds: int
    mean_slowdown: dict[str, float]
    p95_slowdown: dict[str, float]
    mean_excess: dict[str, float]
    allocation: dict[str, float]
    mean_wait: dict[str, float]
    slowdown_ratio: float
    excess_ratio: float
    limits_broken: int
    runs: list[Seed]


def compare(
    seeds: Sequence[int],
    *,
    nodes: int,
    count: int,
    load: float,
    progress: Callable[[int, int], None] | None = None,
) -> InterferenceResult:
    """Play the same jobs with and without measurements. progress: called with (jobs arrived, jobs of all runs)."""
    runs: list[Seed] = []
    for seed in seeds:
        jobs = stream.jobs(seed, count, gpus=nodes * stream.GPUS, load=load)
        found: dict[bool, Run] = {}
        for learns in (True, False):
            done = (len(runs) * 2 + len(found)) * count
            shown = None if progress is None else lambda at, _, done=done: progress(done + at, 2 * count * len(seeds))
            found[learns] = World(jobs, nodes, seed, learns=learns).play(shown)
        runs.append(Seed(seed, found[True], found[False], found[True].mean_slowdown / found[False].mean_slowdown))

    def mean(of: Callable[[Run], float]) -> dict[str, float]:
        return {
            "ours": sum(of(each.ours) for each in runs) / len(runs),
            "blind": sum(of(each.blind) for each in runs) / len(runs),
        }

    slowdown, excess = mean(lambda run: run.mean_slowdown), mean(lambda run: run.mean_excess)
    return InterferenceResult(
        nodes,
        nodes * stream.GPUS,
        count,
        load,
        len(runs),
        slowdown,
        mean(lambda run: run.p95_slowdown),
        excess,
        mean(lambda run: run.allocation),
        mean(lambda run: run.mean_wait),
        slowdown["ours"] / slowdown["blind"],
        excess["ours"] / excess["blind"] if excess["blind"] else 1.0,
        sum(run.limits_broken for each in runs for run in (each.ours, each.blind)),
        runs,
    )

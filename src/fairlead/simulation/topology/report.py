"""All rules on the same seeds and loads, with the lower bound and a schedule that knows all departures; the production pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import msgspec

from fairlead.simulation.topology import floors, production
from fairlead.simulation.topology.bound import lower_bound
from fairlead.simulation.topology.fabric import Fabric
from fairlead.simulation.topology.rules import RULES, Rule, clairvoyant

OURS, BASELINE = "fairlead", "best-fit"


class LoadResult(msgspec.Struct):
    """One load. leaves_over_ideal: by rule, then by seed. leaves_by_size: by rule, then by nodes of a gang, of the first seed.

    mean: of the rules over the seeds. clairvoyant_bound: no rule is below, by seed; clairvoyant_schedule: reached by one that
    knows all departures, by seed. way_to_bound, way_to_schedule: what Fairlead saves against best fit, as a part of what these
    would save, by means. below_best_fit: on so many seeds.
    """

    leaves_over_ideal: dict[str, dict[str, float]]
    mean: dict[str, float]
    leaves_by_size: dict[str, dict[str, float]]
    clairvoyant_bound: dict[str, float]
    clairvoyant_schedule: dict[str, float]
    mean_bound: float
    mean_schedule: float
    way_to_bound: float
    way_to_schedule: float
    below_best_fit: int


class FloorsResult(msgspec.Struct):
    """By load."""

    hosts: int
    leaves: int
    arrivals: int
    seeds: int
    loads: dict[str, LoadResult]


def compare(
    fabric: Fabric,
    seeds: Sequence[int],
    loads: Sequence[float],
    *,
    arrivals: int = floors.ARRIVALS,
    progress: Callable[[int, int], None] | None = None,
) -> FloorsResult:
    """The protocol of `floors` under all rules."""
    done, total = 0, len(seeds) * len(loads) * (len(RULES) + 1) * -(-arrivals // 1000)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, total), total)

    return FloorsResult(
        fabric.hosts,
        len(fabric.sizes),
        arrivals,
        len(seeds),
        {f"{load:g}": _load(fabric, seeds, load, arrivals, step) for load in loads},
    )


def _load(fabric: Fabric, seeds: Sequence[int], load: float, arrivals: int, step: Callable[[], None]) -> LoadResult:
    def runs(rule: Rule) -> list[floors.Run]:
        return [floors.run(fabric, rule, seed, load, arrivals, step) for seed in seeds]

    played = {name: runs(rule) for name, rule in RULES.items()}
    bounds = [lower_bound(fabric, run) for run in played[BASELINE]]
    known = [run.mean for run in runs(clairvoyant)]
    means = {name: fmean(run.mean for run in some) for name, some in played.items()}
    saved = means[BASELINE] - means[OURS]
    return LoadResult(
        {name: {str(seed): run.mean for seed, run in zip(seeds, some, strict=True)} for name, some in played.items()},
        means,
        {name: {str(size): fmean(counts) for size, counts in sorted(some[0].by_size.items())} for name, some in played.items()},
        dict(zip(map(str, seeds), bounds, strict=True)),
        dict(zip(map(str, seeds), known, strict=True)),
        fmean(bounds),
        fmean(known),
        _part(saved, means[BASELINE] - fmean(bounds)),
        _part(saved, means[BASELINE] - fmean(known)),
        sum(ours.mean < theirs.mean for ours, theirs in zip(played[OURS], played[BASELINE], strict=True)),
    )


def _part(saved: float, most: float) -> float:
    return saved / most if most > 0 else 0.0


class ProductionLoad(msgspec.Struct):
    """One load, of the production pass and of best fit in one line. leaves_over_ideal, mean_wait: by rule, then by seed; waits in
    units of the protocol, the mean time between two arrivals.

    mean, wait: of the rules over the seeds; longest_wait: of any gang. leaves_by_size: by rule, then by nodes of a gang, of the
    first seed.
    """

    leaves_over_ideal: dict[str, dict[str, float]]
    mean_wait: dict[str, dict[str, float]]
    mean: dict[str, float]
    wait: dict[str, float]
    longest_wait: dict[str, float]
    leaves_by_size: dict[str, dict[str, float]]


class ProductionResult(msgspec.Struct):
    """By load. preferred_wait: the policy's, in seconds; seconds_per_unit: of the protocol."""

    hosts: int
    leaves: int
    arrivals: int
    seeds: int
    preferred_wait: float
    seconds_per_unit: float
    loads: dict[str, ProductionLoad]


PRODUCTION = "production"


def in_production(
    fabric: Fabric,
    seeds: Sequence[int],
    loads: Sequence[float],
    *,
    preferred_wait: float,
    arrivals: int = floors.ARRIVALS,
    progress: Callable[[int, int], None] | None = None,
) -> ProductionResult:
    """The gangs of best fit's runs through the production pass. Raises `ValueError` as `production.simulate`."""
    done, total = 0, len(seeds) * len(loads) * -(-arrivals // 1000)

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, total), total)

    policy = production.policy(preferred_wait)
    found: dict[str, ProductionLoad] = {}
    for load in loads:
        runs: dict[str, list[floors.Run]] = {PRODUCTION: [], BASELINE: []}
        for seed in seeds:
            base = floors.run(fabric, RULES[BASELINE], seed, load, arrivals)
            runs[BASELINE].append(base)
            runs[PRODUCTION].append(production.simulate(fabric, production.stream(base, seed), policy, step))
        found[f"{load:g}"] = _production(runs, seeds)
    return ProductionResult(fabric.hosts, len(fabric.sizes), arrivals, len(seeds), preferred_wait, production.UNIT, found)


def _production(runs: dict[str, list[floors.Run]], seeds: Sequence[int]) -> ProductionLoad:
    def by_seed(values: Iterable[float]) -> dict[str, float]:
        return {str(seed): value for seed, value in zip(seeds, values, strict=True)}

    return ProductionLoad(
        {name: by_seed(run.mean for run in some) for name, some in runs.items()},
        {name: by_seed(fmean(run.waits) for run in some) for name, some in runs.items()},
        {name: fmean(run.mean for run in some) for name, some in runs.items()},
        {name: fmean(fmean(run.waits) for run in some) for name, some in runs.items()},
        {name: max(max(run.waits) for run in some) for name, some in runs.items()},
        {name: {str(size): fmean(counts) for size, counts in sorted(some[0].by_size.items())} for name, some in runs.items()},
    )

"""All rules on the same streams: means over seeds, for each mix and rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from fairlead.core.mig import flexible
from fairlead.core.mig.states import States
from fairlead.simulation.mig import speeds, static, stream
from fairlead.simulation.mig.rules import SIMPLE

OURS = "fairlead"
MOVING = "fairlead_moves"
BOUND = "fluid_bound"


class StreamResult(msgspec.Struct):
    """Means over the seeds. allocated: compute slices in use, accepted: requests, both in percent; by mix, then by
    rule.
    """

    gpus: int
    load: float
    seeds: int
    requests: int
    allocated: dict[str, dict[str, float]]
    accepted: dict[str, dict[str, float]]
    moves_per_pod: dict[str, float]
    most_moves_per_pod: float


def compare(
    seeds: Sequence[int],
    *,
    gpus: int = 64,
    load: float = 1.0,
    requests: int = stream.REQUESTS,
    rate: float = 0.0,
    progress: Callable[[int, int], None] | None = None,
) -> StreamResult:
    """The simple rules, Fairlead's, with at most `rate` moves per request if it is above 0 Fairlead's again, and the
    fluid bound.
    """
    rules = [*SIMPLE, OURS, *([MOVING] if rate > 0 else []), BOUND]
    result = StreamResult(gpus, load, len(seeds), requests, {}, {}, {}, 0.0)
    states = States(stream.GEOMETRY)
    done = 0
    for mix, weights in stream.MIXES.items():
        for name in rules:
            measured = []
            for seed in seeds:
                if name == BOUND:
                    one = stream.fluid(seed, weights, gpus=gpus, load=load, requests=requests)
                else:
                    one = stream.run(
                        OURS if name == MOVING else name,
                        seed,
                        weights,
                        gpus=gpus,
                        load=load,
                        requests=requests,
                        rate=rate if name == MOVING else 0.0,
                        states=states,
                    )
                measured.append(one)
                done += 1
                if progress is not None:
                    progress(done, len(stream.MIXES) * len(rules) * len(seeds))
            result.allocated.setdefault(mix, {})[name] = fmean(one.allocated for one in measured)
            result.accepted.setdefault(mix, {})[name] = fmean(one.accepted for one in measured)
            if name == MOVING:
                result.moves_per_pod[mix] = fmean(one.moves for one in measured)
                result.most_moves_per_pod = max(result.most_moves_per_pod, *(one.moves for one in measured))
    return result


class SpeedsResult(msgspec.Struct):
    """Mean completion times by load, in mean run times on a whole GPU; ratios of ours to the others.

    capacity: jobs that one GPU can complete per unit of time, at most; load 1 is as many for each GPU. static_layout:
    the partitioning of one GPU -> GPUs; static_tried: candidates of the search.
    """

    gpus: int
    seeds: int
    jobs: int
    capacity: float
    mean_jct: dict[str, float]
    best_static: dict[str, float]
    whole_gpus: dict[str, float]
    of_best_static: dict[str, float]
    of_whole_gpus: dict[str, float]
    static_layout: dict[str, dict[str, int]]
    static_tried: dict[str, int]


def compare_speeds(
    workloads: speeds.Workloads, seeds: Sequence[int], *, gpus: int, loads: Sequence[float], jobs: int
) -> SpeedsResult:
    """Jobs that accept any of their profiles, on the same draws: dynamic partitions, the best static ones, whole
    GPUs.
    """
    states = States(workloads.geometry)
    prices, capacity = flexible.prices(states, workloads.speeds)
    policy = flexible.Flexible(prices, gpus)
    result = SpeedsResult(gpus, len(seeds), jobs, capacity, {}, {}, {}, {}, {}, {}, {})
    for load in loads:
        drawn = [speeds.draw(seed, workloads, load * capacity * gpus, jobs) for seed in seeds]
        name = f"{load:g}"
        ours = result.mean_jct[name] = speeds.dynamic_time(drawn, workloads, states, gpus, prices)
        found = static.search(drawn, workloads, states, gpus, prices)
        whole = [gpus * (index == len(prices) - 1) for index in range(len(prices))]
        result.best_static[name] = found.time
        result.static_layout[name], result.static_tried[name] = found.layout, found.tried
        result.whole_gpus[name] = speeds.static_time(drawn, workloads, whole, prices, policy)
        result.of_best_static[name] = ours / found.time
        result.of_whole_gpus[name] = ours / result.whole_gpus[name]
    return result

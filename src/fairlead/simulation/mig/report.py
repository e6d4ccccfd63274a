"""All rules on the same streams: means over seeds, for each mix and rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import msgspec

from fairlead.core.mig.states import States
from fairlead.simulation.mig import stream
from fairlead.simulation.mig.rules import SIMPLE

OURS = "fairlead"
MOVING = "fairlead_moves"
BOUND = "fluid_bound"


class StreamResult(msgspec.Struct):
    """Means over the seeds. allocated: compute slices in use, accepted: requests, both in percent; by mix, then by rule."""

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
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> StreamResult:
    """The simple rules, Fairlead's, with at most `rate` moves per request if it is above 0 Fairlead's again, and the fluid bound."""
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
                progress(done, len(stream.MIXES) * len(rules) * len(seeds))
            result.allocated.setdefault(mix, {})[name] = fmean(one.allocated for one in measured)
            result.accepted.setdefault(mix, {})[name] = fmean(one.accepted for one in measured)
            if name == MOVING:
                result.moves_per_pod[mix] = fmean(one.moves for one in measured)
                result.most_moves_per_pod = max(result.most_moves_per_pod, *(one.moves for one in measured))
    return result

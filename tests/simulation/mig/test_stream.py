"""The MIG stream: figures recorded from an independent program of the protocol, and what holds for every run."""

import pytest

from fairlead.core.mig.states import States
from fairlead.simulation.mig import stream
from fairlead.simulation.mig.report import BOUND, MOVING, OURS, compare
from fairlead.simulation.mig.rules import SIMPLE

STATES = States(stream.GEOMETRY)

# (allocated, accepted) in percent of 8 GPUs, 500 requests, seed 11, load 1, as a program that tries all GPUs one by one prints them.
RECORDED = {
    "uniform random": (67.63751, 79.679144),
    "uniform first_fit": (74.212185, 81.818182),
    "uniform best_fit": (74.551184, 85.828877),
    "uniform most_placements": (75.921505, 83.42246),
    "uniform fgd": (73.849312, 86.631016),
    "uniform lookahead": (73.347976, 86.096257),
    "uniform fluid_bound": (81.498281, 86.096257),
    "small random": (71.3856, 80.213904),
    "small first_fit": (76.236631, 87.967914),
    "small best_fit": (76.847785, 87.967914),
    "small most_placements": (77.950726, 87.967914),
    "small fgd": (77.062643, 88.502674),
    "small lookahead": (79.287624, 89.037433),
    "small fluid_bound": (85.46123, 87.967914),
    "middle random": (62.858098, 85.294118),
    "middle first_fit": (73.6822, 87.700535),
    "middle best_fit": (75.334225, 84.491979),
    "middle most_placements": (73.242934, 86.898396),
    "middle fgd": (73.581933, 87.433155),
    "middle lookahead": (78.523682, 86.631016),
    "middle fluid_bound": (84.525401, 87.700535),
}


@pytest.mark.parametrize("key", RECORDED)
def test_simple_rules_give_the_figures_of_the_protocol(key):
    mix, name = key.split()
    if name == BOUND:
        measured = stream.fluid(11, stream.MIXES[mix], gpus=8, requests=500)
    else:
        measured = stream.run(name, 11, stream.MIXES[mix], gpus=8, requests=500, states=STATES)
    assert (measured.allocated, measured.accepted) == pytest.approx(RECORDED[key], abs=1e-6)


@pytest.mark.parametrize("mix", stream.MIXES)
def test_moves_are_few_and_pay(mix):
    seeds = range(301, 305)
    still = [stream.run(OURS, seed, stream.MIXES[mix], gpus=32, requests=2500, states=STATES) for seed in seeds]
    moving = [stream.run(OURS, seed, stream.MIXES[mix], gpus=32, requests=2500, rate=0.02, states=STATES) for seed in seeds]
    assert all(0 < each.moves <= 0.02 for each in moving)
    assert all(each.moves == 0 for each in still)
    assert sum(each.allocated for each in moving) > sum(each.allocated for each in still) + 2
    first = [stream.run("first_fit", seed, stream.MIXES[mix], gpus=32, requests=2500, states=STATES) for seed in seeds]
    assert sum(each.allocated for each in still) > sum(each.allocated for each in first) + 2


def test_a_run_is_the_same_whatever_was_run_before():
    """States are interned in the order in which they are seen: no choice may depend on that."""
    fresh = [stream.run(OURS, seed, stream.MIXES["middle"], gpus=8, requests=600, rate=0.05) for seed in (1, 2)]
    used = [stream.run(OURS, seed, stream.MIXES["middle"], gpus=8, requests=600, rate=0.05, states=STATES) for seed in (1, 2)]
    assert fresh == used


def test_all_rules_are_compared_on_the_same_streams():
    shown = []
    result = compare([3], gpus=4, requests=40, rate=0.1, progress=lambda done, of: shown.append((done, of)))
    assert list(result.allocated) == list(stream.MIXES)
    for by_rule in result.allocated.values():
        assert list(by_rule) == [*SIMPLE, OURS, MOVING, BOUND]
        assert all(0 < value <= 100 for value in by_rule.values())
    assert 0 <= result.most_moves_per_pod <= 0.1
    assert shown[-1] == (27, 27)
    assert MOVING not in compare([3], gpus=4, requests=40).allocated["small"]

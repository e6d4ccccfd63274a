"""Device states that no node has any more are dropped, and no placement changes for it."""

import random

import numpy as np
import pytest

from fairlead.core import invariants
from fairlead.core.nodes import devices
from tests.builders import cluster, confirm, node, pod, run, spec


def history(seed, strategy):
    """What a random history of fractions decides, and how many device states are remembered at most."""
    rnd = random.Random(seed)
    state = cluster([node(f"n{number}", gpus=rnd.choice([2, 4, 8])) for number in range(4)], strategy=strategy)
    running, decided, most = [], [], 0
    for number in range(150):
        milli = rnd.choice([rnd.randint(1, 999), 250, 500, 1000])
        state.upsert_pod(pod(f"p{number}", created=number, spec_=spec(gpus=rnd.choice([1, 1, 2]), milli=milli, cpu=10)))
        found = run(state, now=float(number))
        confirm(state, found)
        decided.append(found)
        running += [binding.pod.uid for each in found for binding in getattr(each, "bindings", ())]
        while running and rnd.random() < 0.45:
            state.remove_pod(running.pop(rnd.randrange(len(running))))
        most = max(most, len(state.nodes.devices))
    invariants.check(state)
    return decided, most


@pytest.mark.parametrize("strategy", ["ai", "fgd", "binpack"])
def test_decisions_are_the_same_when_states_are_forgotten(strategy, monkeypatch):
    for seed in range(6):
        decided, many = history(seed, strategy)
        with monkeypatch.context() as patched:
            patched.setattr(devices, "_FEW", 16)
            again, few = history(seed, strategy)
        assert again == decided
        assert few < many / 2


def test_those_that_are_kept_are_what_they_were():
    states = devices.DeviceStates()
    ids = np.array([states.intern((each, 1000)) for each in (1000, 5, 7, 5)] + [0], np.int32)
    for each in range(100):
        states.intern((each, 0))
    kept = states.keep(ids)
    assert [states.states[each] for each in kept.tolist()] == [(1000, 1000), (5, 1000), (7, 1000), (5, 1000), ()]
    assert len(states) == 4
    assert states.total[kept].tolist() == [2000, 1005, 1007, 1005, 0]
    assert [states.states[each] for each in states.whole[kept].tolist()] == [(1000, 1000)] * 4 + [()]

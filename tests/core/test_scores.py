import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.core.model.policy import Policy
from fairlead.core.pods.scores import make
from fairlead.core.pods.scores.fgd import fragmentation
from fairlead.core.pods.scores.prices import Prices
from fairlead.core.state.cluster import ClusterState
from tests.builders import cluster, node, placed, pod, run


def test_binpack_fills_and_spread_spreads():
    for strategy, count in (("binpack", 1), ("spread", 4)):
        state = cluster([node(f"n{i}") for i in range(4)], pods=[pod(f"p{i}") for i in range(4)], strategy=strategy)
        assert len(set(placed(run(state)).values())) == count


def test_unknown_strategies_are_named():
    with pytest.raises(ValueError, match="choose one of ai, binpack, fgd, spread"):
        ClusterState(Policy(strategy="best"))
    assert make(Policy(strategy="ai"), ClusterState().nodes).name == "ai"


def test_ai_sends_cpu_hungry_pods_where_cpu_is_plenty():
    state = cluster([node("a-lean", gpus=8, cpu=96_000), node("rich", gpus=8, cpu=400_000)])
    for index in range(40):
        state.upsert_pod(pod(f"warm-{index}", cpu=11_000))
        run(state)
        state.remove_pod(f"uid-warm-{index}")
    state.upsert_pod(pod("hungry", cpu=30_000))
    assert placed(run(state)) == {"hungry": "rich"}


def test_ai_keeps_remainders_that_are_wanted():
    state = cluster([node("n", gpus=2)])
    for index in range(60):
        state.upsert_pod(pod(f"w{index}", milli=(810, 470)[index % 2], at=""))
        run(state)
        state.remove_pod(f"uid-w{index}")
    state.upsert_pod(pod("a", milli=470))
    run(state)
    state.upsert_pod(pod("b", milli=470))
    run(state)
    assert sorted(state.nodes.devices.states[state.nodes.device.item(0)]) == [60, 1000]


def test_prices_of_halves_and_wholes():
    prices = Prices({1000: 10, 500: 10})
    assert prices.price[1000] == 1000
    assert prices.price[500] == 500
    assert prices.loss(1000, 500) == 0
    assert prices.loss(900, 500) == 0
    assert prices.loss(1000, 600) == 500, "of what is left nothing is wanted, and 600 are worth no more than 500"


@given(st.dictionaries(st.integers(1, 100).map(lambda grains: grains * 10), st.floats(0.5, 1000), min_size=1, max_size=12))
def test_no_pattern_is_worth_more_than_a_device(demand):
    prices = Prices(demand)
    assert max(prices.value) <= 1000 + len(demand) * 51
    assert all(later >= earlier for earlier, later in zip(prices.value, prices.value[1:], strict=False))
    for size in demand:
        for remainder in range(size, 1001, 70):
            assert prices.loss(remainder, size) >= 0


def test_fragmentation_as_in_the_paper():
    targets = [((1000, 1, 1000), 0.5), ((1000, 1, 500), 0.25), ((99_000, 1, 500), 0.125), ((1000, 0, 0), 0.125)]
    assert fragmentation((1000, 400), 64_000, targets) == pytest.approx(0.5 * 400 + 0.25 * 400 + 0.25 * 1400)
    assert fragmentation((0, 0), 64_000, targets) == 0


def test_scores_are_whole_numbers_in_range():
    state = cluster([node("n", cpu=1 << 59, memory=1 << 61)], pods=[pod("p")])
    shape = state.tasks["uid-p"].shape
    states = state.nodes.device[:1]
    assert state.shapes.strategy.rows(shape, slice(0, 1), states, shape.fit.costs(states)).dtype == np.int64

"""Prices of profiles, completions of states, and which job takes which profile."""

import random

import pytest

from fairlead.core.mig.flexible import Completion, Flexible, Head, partitionings, prices, throughput
from fairlead.core.mig.geometry import GEOMETRIES
from fairlead.core.mig.states import EMPTY, States

NAMES = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
STATES = States(GEOMETRIES["A100-40GB"].only(NAMES))


def random_jobs(rng):
    """Jobs that are slower on smaller profiles, some of which cannot run them."""
    return [
        dict(
            zip(
                range(smallest := rng.randint(0, 3), 5),
                [*sorted(rng.uniform(0.1, 1) for _ in range(4 - smallest)), 1.0],
                strict=True,
            )
        )
        for _ in range(rng.randint(1, 6))
    ]


def full_ways(state):
    """The counts of all full states beyond a state, by trying all orders."""
    following = [after for profile in range(5) for _, after in STATES.options(state, profile)]
    if not following:
        held = [STATES.placements[each].profile for each in STATES.running(state)]
        return {tuple(held.count(profile) for profile in range(5))}
    return set().union(*(full_ways(after) for after in set(following)))


def test_partitionings_are_those_into_which_nothing_fits():
    ways = partitionings(STATES)
    assert (0, 0, 0, 0, 1) in ways
    assert (7, 0, 0, 0, 0) in ways
    assert (0, 0, 1, 1, 0) in ways
    assert (0, 3, 0, 0, 0) not in ways  # a 1g fits beside
    start = STATES.state([STATES.options(EMPTY, 3)[0][0]])
    assert full_ways(start) <= set(ways)


@pytest.mark.parametrize("seed", range(20))
def test_any_prices_bound_what_any_assignment_completes(seed):
    rng = random.Random(seed)
    jobs, ways = random_jobs(rng), partitionings(STATES)
    found, bound = prices(STATES, jobs)
    assert found[-1] == 1
    assert bound == pytest.approx(throughput(found, ways, jobs))
    for _ in range(100):  # no other prices give less, near or far
        other = [price * 2 ** rng.gauss(0, rng.choice([0.02, 0.5])) for price in found]
        assert throughput(other, ways, jobs) >= bound * 0.995
    for _ in range(100):  # an assignment of kinds of jobs to profiles, and the mix of two ways that carries most of it
        chosen = [rng.choice(list(speeds)) for speeds in jobs]
        need = [
            sum(1 / speeds[each] for speeds, each in zip(jobs, chosen, strict=True) if each == profile) / len(jobs)
            for profile in range(5)
        ]
        one, two, part = rng.choice(ways), rng.choice(ways), rng.random()
        rate = min((part * one[p] + (1 - part) * two[p]) / need[p] for p in range(5) if need[p])
        assert rate <= bound * 1.0001


@pytest.mark.parametrize("seed", range(15))
def test_a_completion_is_the_dearest_that_can_still_be(seed):
    rng = random.Random(seed)
    cost = [rng.uniform(0.1, 1) for _ in range(5)]
    completion = Completion(STATES, cost)
    state = EMPTY
    while True:
        expected = (
            max(sum(count * price for count, price in zip(way, cost, strict=True)) for way in full_ways(state)) if state else None
        )
        if expected is not None:
            assert completion.worth(state) == pytest.approx(expected)
        for profile, offer in enumerate(completion.offers(state)):
            losses = {
                placement: cost[profile] + completion.worth(state) - completion.worth(after)
                for placement, after in STATES.options(state, profile)
            }
            if offer is None:
                assert not losses
            else:
                assert offer[0] == pytest.approx(min(losses.values()))
                assert losses[offer[1]] == pytest.approx(offer[0])
        following = [after for profile in range(5) for _, after in STATES.options(state, profile)]
        if not following:
            break
        state = rng.choice(following)


def test_a_lone_job_takes_the_fastest_and_a_crowd_takes_the_cheapest():
    cost = [0.15, 0.3, 0.48, 0.6, 1.0]
    speeds = {0: 0.5, 1: 0.7, 2: 0.8, 3: 0.9, 4: 1.0}
    policy = Flexible(cost, gpus=8, idle=0.0)
    assert policy.choose([Head(0, speeds)], 0, cost)[1] == 4
    assert policy.choose([Head(0, speeds)], 200, cost)[1] == 0


def test_a_job_waits_rather_than_take_what_is_much_too_slow():
    cost = [0.15, 0.3, 0.48, 0.6, 1.0]
    policy = Flexible(cost, gpus=8)
    slow = {0: 0.05, 4: 1.0}
    assert policy.choose([Head(0, slow)], 0, [0.15, None, None, None, None]) is None
    assert policy.choose([Head(0, slow)], 0, cost) == (Head(0, slow), 4)
    assert policy.choose([], 0, cost) is None
    assert policy.choose([Head(0, slow)], 0, [None] * 5) is None


def test_a_partition_goes_to_the_job_that_it_suits():
    cost = [0.15, 0.3, 0.48, 0.6, 1.0]
    policy = Flexible(cost, gpus=8)
    heads = [Head(0, {0: 0.14, 4: 1.0}), Head(1, {0: 0.6, 4: 1.0}), Head(2, {0: 0.6, 4: 1.0})]
    only_small = [0.15, None, None, None, None]
    assert policy.choose(heads, 30, only_small)[0].number == 1
    assert Flexible(cost, gpus=8, patience=99, by_arrival=True).choose(heads, 30, only_small)[0].number == 0

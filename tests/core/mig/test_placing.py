"""Pools, placing by expected loss, and moves, on random pools."""

import random
from itertools import permutations
from math import exp

import pytest

from fairlead.core.mig import moves as moving
from fairlead.core.mig.geometry import GEOMETRIES
from fairlead.core.mig.moves import MoveBudget, Plan, search
from fairlead.core.mig.placing import Mix, Placer
from fairlead.core.mig.pool import Pool
from fairlead.core.mig.states import States

STATES = States(GEOMETRIES["A100-40GB"].without_media())
PROFILES = range(len(STATES.geometry.profiles))


def filled(rng, gpus, tries):
    """A pool with random partitions, and where they are."""
    placer = Placer(Pool(STATES, gpus))
    running = []
    for _ in range(tries):
        profile = rng.choice(PROFILES)
        placer.mix.observe(profile)
        gpu = rng.randrange(gpus)
        options = STATES.options(placer.pool.state(gpu), profile)
        if options:
            place = gpu, rng.choice(options)[0]
            placer.pool.add(*place)
            running.append(place)
        if running and rng.random() < 0.3:
            placer.pool.remove(*running.pop(rng.randrange(len(running))))
    return placer, running


def loss(placer, states_of):
    """The expected loss, from the states alone."""
    available = placer.pool.availability
    return sum(
        part * STATES.geometry.profiles[profile].compute * exp(-sum(available.of(state)[profile] for state in states_of) / 16)
        for profile, part in enumerate(placer.mix.parts())
    )


@pytest.mark.parametrize("seed", range(60))
def test_the_place_with_the_least_expected_loss_is_taken(seed):
    rng = random.Random(seed)
    gpus = rng.randint(1, 5)
    placer, _ = filled(rng, gpus, 30)
    states_of = [placer.pool.state(gpu) for gpu in range(gpus)]
    assert sum(placer.losses()) == pytest.approx(loss(placer, states_of))
    for profile in PROFILES:
        values = {
            (gpu, placement): loss(placer, [*states_of[:gpu], after, *states_of[gpu + 1 :]])
            for gpu in range(gpus)
            for placement, after in STATES.options(states_of[gpu], profile)
        }
        chosen = placer.choose(profile)
        if chosen is None:
            assert not values
            continue
        least = min(values.values())
        assert values[chosen] == pytest.approx(least)
        assert chosen == min(place for place, value in values.items() if value < least + 1e-10)


@pytest.mark.parametrize("seed", range(40))
def test_the_index_of_a_pool_is_that_of_its_gpus(seed):
    rng = random.Random(seed)
    placer, running = filled(rng, 6, 40)
    pool = placer.pool
    by_state = {}
    for gpu in range(6):
        by_state.setdefault(pool.state(gpu), []).append(gpu)
        assert set(STATES.running(pool.state(gpu))) == {placement for at, placement in running if at == gpu}
    assert dict(pool.groups()) == {state: members[0] for state, members in by_state.items()}
    assert all(list(pool.members(state)) == members for state, members in by_state.items())
    assert pool.compute == sum(STATES.placements[placement].compute for _, placement in running)
    for profile, total in enumerate(pool.totals):
        assert total == pytest.approx(sum(pool.availability.of(pool.state(gpu))[profile] for gpu in range(6)))


@pytest.mark.parametrize("seed", range(60))
def test_moves_make_place_and_never_overlap(seed):
    rng = random.Random(seed)
    placer, running = filled(rng, rng.randint(2, 4), 60)
    pool = placer.pool
    movable = {place for place in running if rng.random() < 0.7}
    before = [pool.state(gpu) for gpu in range(len(pool))]
    for profile in PROFILES:
        if placer.choose(profile) is not None:
            continue
        plan = search(placer, profile, lambda gpu, placement: (gpu, placement) in movable, most=2)
        assert [pool.state(gpu) for gpu in range(len(pool))] == before
        if plan is None:
            assert not one_move_suffices(before, profile, movable)
            continue
        assert STATES.placements[plan.placement].profile == profile
        assert 1 <= len(plan.moves) <= 2
        assert {(move.gpu, move.placement) for move in plan.moves} <= movable
        after = [set(STATES.running(state)) for state in before]
        for move in plan.moves:
            assert STATES.placements[move.placement].profile == STATES.placements[move.to_placement].profile
            after[move.gpu].remove(move.placement)
        after[plan.gpu].add(plan.placement)
        for move in plan.moves:
            assert move.to_placement not in after[move.to_gpu]
            after[move.to_gpu].add(move.to_placement)
        for placements in after:
            STATES.state(sorted(placements))  # raises for partitions that overlap


def one_move_suffices(states_of, profile, movable):
    """Whether one move makes place, by trying all."""
    for gpu, placement in movable:
        rest = [STATES.remove(state, placement) if at == gpu else state for at, state in enumerate(states_of)]
        for first, second in permutations((profile, STATES.placements[placement].profile)):
            for at, state in enumerate(rest):
                for _, after in STATES.options(state, first):
                    then = [*rest[:at], after, *rest[at + 1 :]]
                    if any(STATES.options(each, second) for each in then):
                        return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_moves_stay_within_their_rate_at_every_moment(seed):
    rng = random.Random(seed)
    budget = MoveBudget(rate=rng.choice([0.0, 0.02, 0.1, 0.5]))
    spent = 0
    for arrived in range(1, 800):
        budget.arrive()
        if rng.random() < 0.5:
            plan = Plan(0, 0, tuple([None] * rng.randint(1, 3)), rng.uniform(-1, 7))
            if budget.allows(plan):
                spent += len(plan.moves)
        assert spent == budget.moved <= budget.rate * arrived
    assert spent > 0.5 * budget.rate * 800 or not budget.rate


def test_the_plans_with_most_gain_are_carried_out():
    rng = random.Random(1)
    budget = MoveBudget(rate=0.05)
    taken, left = [], []
    for _ in range(4000):
        budget.arrive()
        if rng.random() < 0.2:
            plan = Plan(0, 0, (None,), rng.uniform(0, 7))
            (taken if budget.allows(plan) else left).append(plan.gain)
    assert len(taken) >= 190
    assert sum(gain > 5 for gain in taken) / len(taken) > 0.85
    assert sum(gain > 5.5 for gain in left) < 0.1 * len(left)


def test_plans_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr(moving, "_REMEMBERED", 50)
    rng = random.Random(3)
    budget = MoveBudget(rate=0.1)
    for _ in range(1000):
        budget.arrive()
        budget.allows(Plan(0, 0, (None,), rng.uniform(0, 7)))
    assert len(budget._recent) == len(budget._sorted) == 50
    assert budget.moved <= 100


def test_the_mix_follows_what_arrives():
    mix = Mix(3, half_life=100)
    assert mix.parts() == pytest.approx([1 / 3] * 3)
    for _ in range(1000):
        mix.observe(0)
    assert mix.parts()[0] > 0.99
    for _ in range(200000):
        mix.observe(1)
    assert mix.parts()[1] > 0.99
    assert sum(mix.parts()) == pytest.approx(1)

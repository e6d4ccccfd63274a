"""Two jobs on one GPU: estimates of pairs that were not measured, and the choice of partners, against every matching."""

import random
from functools import lru_cache

import numpy as np
import pytest

from fairlead.core.pairs.choose import IDLE, choose, worths
from fairlead.core.pairs.estimate import Estimate, Measured, estimate


def _world(rng, kinds, *, sized=True):
    """Speeds of kinds that are sensitive and disturbing by a few features; some pairs do not run."""
    sensitive = np.array([[rng.uniform(0.0, 0.5) for _ in range(2)] for _ in range(kinds)])
    disturbing = np.array([[rng.uniform(0.0, 1.0) for _ in range(2)] for _ in range(kinds)])
    size = np.array([rng.uniform(0.1, 0.6) for _ in range(kinds)])
    speed = np.clip(1 - sensitive @ disturbing.T, 0.05, 1.0)
    if sized:
        speed[size[:, None] + size[None, :] > 1] = 0.0
    return speed


def _measured(rng, speed, part):
    kinds = len(speed)
    every = [(one, other) for one in range(kinds) for other in range(one, kinds)]
    measured = Measured(kinds)
    for one, other in rng.sample(every, round(part * len(every))):
        measured.record(one, other, (float(speed[one, other]), float(speed[other, one])))
    return measured


@pytest.mark.parametrize("seed", range(40))
def test_what_was_measured_is_believed_and_the_rest_is_bounded(seed):
    rng = random.Random(seed)
    kinds = rng.randint(1, 14)
    speed = _world(rng, kinds)
    measured = _measured(rng, speed, rng.random())
    found = estimate(measured)
    assert np.allclose(found.speed[measured.known], speed[measured.known])
    assert (found.deviation[measured.known] == 0).all()
    assert (found.deviation[~measured.known] >= 0).all()
    assert ((found.speed >= 0) & (found.speed <= 1)).all()
    assert (measured.not_runnable == measured.not_runnable.T).all()
    assert (measured.not_runnable <= (speed == 0)).all()
    again = estimate(measured)
    assert (again.speed == found.speed).all()
    assert (again.deviation == found.deviation).all()


def test_estimates_are_better_than_the_mean_of_what_was_measured():
    ours, mean = [], []
    for seed in range(30):
        rng = random.Random(seed)
        speed = _world(rng, 20, sized=False)
        measured = _measured(rng, speed, 0.3)
        unknown = ~measured.known
        found = estimate(measured)
        ours.append(np.sqrt(np.mean((found.speed - speed)[unknown] ** 2)))
        mean.append(np.sqrt(np.mean((speed[measured.known].mean() - speed)[unknown] ** 2)))
    assert np.mean(ours) < 0.7 * np.mean(mean)


def test_measurements_are_averaged_and_those_of_one_kind_count_once():
    measured = Measured(2)
    measured.record(0, 1, (0.5, 0.9))
    measured.record(1, 0, (0.7, 0.7))
    measured.record(0, 0, (0.2, 0.4))
    assert measured.speed == pytest.approx(np.array([[0.3, 0.6], [0.8, 0.0]]))
    assert measured.known.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("pair", "speeds", "says"), [((0, 2), (1, 1), "kind 2"), ((0, 1), (-0.1, 1), "-0.1"), ((0, 1), (float("nan"), 1), "nan")]
)
def test_bad_measurements_are_refused(pair, speeds, says):
    measured = Measured(2)
    with pytest.raises(ValueError, match=says):
        measured.record(*pair, speeds)
    assert not measured.known.any()
    with pytest.raises(ValueError, match="0 kinds"):
        Measured(0)


def _best(kinds, worth):
    """The largest total worth of all ways to make pairs."""
    everything = (1 << len(kinds)) - 1

    @lru_cache(None)
    def best(left):
        if not left:
            return 0.0
        first = (left & -left).bit_length() - 1
        rest = left & ~(1 << first)
        return max(
            worth[kinds[first]][kinds[other]] + best(rest & ~(1 << other)) for other in range(len(kinds)) if rest >> other & 1
        )

    return best(everything)


def _total(kinds, worth, pairs):
    return sum(worth[kinds[one]][kinds[other]] for one, other in pairs)


def test_pairs_are_nearly_as_good_as_the_best_of_all_matchings():
    shares = []
    for seed in range(150):
        rng = random.Random(seed)
        count = rng.randint(1, 6)
        worth = np.array([[rng.uniform(0.2, 2.0) for _ in range(count)] for _ in range(count)])
        worth = (worth + worth.T) / 2
        kinds = [rng.randrange(count) for _ in range(2 * rng.randint(1, 5))]
        nothing = np.zeros((count, count), dtype=bool)
        pairs = choose(kinds, worth, nothing)
        assert sorted(each for pair in pairs for each in pair) == list(range(len(kinds)))
        best = _best(tuple(kinds), worth)
        total = _total(kinds, worth, pairs)
        assert total <= best + 1e-9
        shares.append(total / best)
    assert min(shares) > 0.9
    assert np.mean(shares) > 0.995


def test_pairs_that_do_not_run_are_left_out_where_one_exchange_can():
    for seed in range(60):
        rng = random.Random(seed)
        count = rng.randint(2, 6)
        worth = np.ones((count, count))
        forbidden = np.array([[rng.random() < 0.3 for _ in range(count)] for _ in range(count)])
        forbidden |= forbidden.T
        kinds = [rng.randrange(count) for _ in range(12)]
        pairs = choose(kinds, worth, forbidden)
        bad = [pair for pair in pairs if forbidden[kinds[pair[0]], kinds[pair[1]]]]
        for a, b in bad:
            for c, d in pairs:
                if (c, d) != (a, b):
                    left = sum(forbidden[kinds[x], kinds[y]] for x, y in ((a, c), (b, d)))
                    assert left >= 1 + forbidden[kinds[c], kinds[d]] or left == 2


def test_idle_slots_take_the_jobs_that_share_worst():
    worth = np.array([[1.8, 1.5], [1.5, 1.05]])
    pairs = choose([0, 0, 1, 1, IDLE, IDLE], worth, np.zeros((2, 2), dtype=bool))
    together = sorted(tuple(sorted(pair)) for pair in pairs)
    assert together[0] == (0, 1)
    assert [pair[0] for pair in together[1:]] == [2, 3]  # each beside an idle slot


def test_what_runs_changes_only_where_that_gains_enough():
    worth = np.array([[1.5, 1.52], [1.52, 1.5]])
    running = [(0, 1), (2, 3)]
    nothing = np.zeros((2, 2), dtype=bool)
    assert choose([0, 0, 1, 1], worth, nothing, running, change=0.05) == running
    assert choose([0, 0, 1, 1], worth, nothing, running, change=0.03) != running
    with pytest.raises(ValueError, match="present pairs"):
        choose([0, 0, 1, 1], worth, nothing, [(0, 1)])
    with pytest.raises(ValueError, match="3 slots"):
        choose([0, 0, 1], worth, nothing)
    assert choose([], worth, nothing) == []


def test_worth_counts_doubt_in_favour_and_slow_partners_against():
    speed = np.array([[0.9, 0.2], [0.9, 0.6]])
    doubt = np.array([[0.0, 0.0], [0.0, 0.2]])
    found = worths(Estimate(speed, doubt), slowest=0.5, aversion=2.0, optimism=1.0)
    assert found == pytest.approx(np.array([[1.8, 1.1 - 0.6], [1.1 - 0.6, 1.6]]))

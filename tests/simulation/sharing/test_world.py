"""Jobs through the production pass on a full cluster: what is learned is worth something, and nothing waits for ever."""

import random

import numpy as np
import pytest

from fairlead.simulation.sharing.throughputs import Throughputs
from fairlead.simulation.sharing.world import World


def table(seed, kinds=8):
    """Kinds with sensitivities and disturbances of their own; one in ten pairs does not run."""
    rnd = random.Random(seed)
    sensitive, disturbing = ([rnd.uniform(0.0, 0.5) for _ in range(kinds)] for _ in range(2))
    speed = np.array([[1.0 - sensitive[i] - disturbing[j] for j in range(kinds)] for i in range(kinds)])
    stopped = np.array([[rnd.random() < 0.05 for _ in range(kinds)] for _ in range(kinds)])
    speed[stopped | stopped.T] = 0.0
    return Throughputs(tuple(f"kind {number}" for number in range(kinds)), speed)


@pytest.mark.parametrize("seed", [1, 2])
def test_partners_by_measured_speeds_are_worth_more_than_the_first_that_are_there(seed):
    learns, blind = (World(table(seed), gpus=12, waiting=8, seed=seed, learns=each).play(6 * 3600.0) for each in (True, False))
    assert learns.worth_per_gpu > blind.worth_per_gpu * 1.05
    assert learns.p95_slowdown is not None
    assert learns.p95_slowdown <= 2.6
    assert learns.longest_wait < 4 * 3600.0
    assert blind.parted == 0


def test_the_same_seed_gives_the_same_run():
    runs = [World(table(3), gpus=6, waiting=3, seed=3).play(2 * 3600.0) for _ in range(2)]
    assert runs[0] == runs[1]


def test_where_no_pair_runs_each_job_has_a_gpu_of_its_own():
    nothing = Throughputs(("a", "b"), np.zeros((2, 2)))
    found = World(nothing, gpus=6, waiting=3, seed=1).play(4 * 3600.0)
    assert found.worth_per_gpu > 0.9

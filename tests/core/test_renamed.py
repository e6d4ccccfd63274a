"""Names of queues decide nothing: the same world with other names, and the same creation times and UIDs, decides the same."""

import random

import pytest

from fairlead.core.fairshare import Claim, divide
from fairlead.core.model import WHOLE
from fairlead.simulation.judged.world import Job, Share, World


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_equal_remainders_go_to_the_oldest_work(names):
    one, two = names
    ages = {one: (1.0, "x"), two: (1.0, "y")}
    assert divide(5, [Claim(one, 99), Claim(two, 99)], oldest=ages.__getitem__) == {one: 3, two: 2}
    assert divide(5, [Claim(one, 99, quota=1), Claim(two, 99, quota=3)], oldest=ages.__getitem__) == {one: 2, two: 3}


def decided(seed, names):
    """What happens in the world of a seed, with queues named so: when each job starts where, and whom it evicts."""
    rnd = random.Random(seed)
    count = rnd.randint(2, 4)
    nodes = [rnd.choice([3, 4, 8]) for _ in range(rnd.randint(1, 3))]
    tree = rnd.random() < 0.4
    queues = []
    for number in range(count):
        quota = rnd.choice([0, 1, 1, 2]) * WHOLE
        parent = names[0] if tree and number > 1 else ""
        queues.append(Share(names[number], quota, parent, rnd.choice([None, 1, 1])))
    rnd.random()
    world = World(nodes, queues, share_wait=100.0)
    told = []
    for number in range(16):
        world.now += rnd.choice([0.0, 0.0, 5.0, 60.0])
        queue = names[rnd.randrange(1 if tree and count > 2 else 0, count)]
        world.submit(Job(f"j{number}", queue, rnd.choice([1, 1, 2, 3]) * WHOLE, created=float(number // 3)))
        if rnd.random() < 0.6:
            world.play()
        if world.places and rnd.random() < 0.3:
            world.end(rnd.choice(sorted(world.places)))
        told.append((sorted((job, tuple(at)) for job, at in world.places.items()), len(world.evicted)))
    world.play()
    return told, world.evicted, sorted(world.places.items())


@pytest.mark.parametrize("seed", range(80))
def test_renaming_queues_changes_no_decision(seed):
    names = ["k", "m", "p", "z"]
    others = random.Random(seed).sample(["a", "q", "y", "zz", "b", "l"], 4)
    assert decided(seed, names) == decided(seed, others)
    assert decided(seed, names) == decided(seed, names[::-1])

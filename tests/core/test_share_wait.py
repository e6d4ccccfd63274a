"""A wait for the share ends: after `share_wait` a lender may be left with less than its own, once, and nothing oscillates."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.units import WHOLE
from fairlead.simulation.judged.world import Job, Share, World
from tests.builders import GPU, cluster, node, placed, pod, preempted, settle

QUIET = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0}


def part(name, quota, weight=None):
    return Queue(name, "", 0, (QueueResource(GPU, quota * 1000, weight=weight),))


def lender(**policy):
    """10 GPUs: q0's one job holds 8, its share is 4; q1's share is 6."""
    state = cluster([node("n", gpus=10)], [part("q0", 2, 1), part("q1", 2, 2)], **{**QUIET, **policy})
    state.upsert_pod(pod("large", queue="q0", gpus=8, at="n"))
    state.upsert_pod(pod("mine", queue="q1", gpus=6, created=100.0))
    return state


def test_it_is_served_after_the_wait_though_the_lender_is_left_with_less_than_its_share():
    state = lender()
    assert preempted(settle(state, 100.0)) == []
    assert state.next_due == 3700.0
    assert preempted(settle(state, 3699.0)) == []
    assert preempted(settle(state, 3700.0)) == [["large"]]
    old = state.tasks["uid-large"].pod
    state.remove_pod("uid-large")
    state.upsert_pod(msgspec.structs.replace(old, uid="again", name="again", node="", created=3701.0))
    assert placed(settle(state, 3701.0)) == {"mine": "n"}
    for hour in range(1, 6):
        assert preempted(settle(state, 3701.0 + 3600.0 * hour)) == [], "what was given is not taken back"
    invariants.check(state)


def test_never_where_it_is_turned_off():
    state = lender(share_wait=0.0)
    assert [preempted(settle(state, at)) for at in (100.0, 4000.0, 90_000.0)] == [[], [], []]


def test_what_is_within_its_quota_does_not_wait():
    state = cluster([node("n", gpus=10)], [part("q0", 2, 1), part("q1", 6, 2)], **QUIET)
    state.upsert_pod(pod("large", queue="q0", gpus=8, at="n"))
    state.upsert_pod(pod("mine", queue="q1", gpus=6, created=100.0))
    assert preempted(settle(state, 100.0)) == [["large"]]


def test_what_would_bring_its_queue_beyond_its_share_waits_on():
    state = cluster([node("n", gpus=10)], [part("q0", 2, 1), part("q1", 2, 2)], **QUIET)
    state.upsert_pod(pod("large", queue="q0", gpus=8, at="n"))
    state.upsert_pod(pod("mine", queue="q1", gpus=7, created=100.0))
    assert [preempted(settle(state, at)) for at in (100.0, 3700.0, 90_000.0)] == [[], [], []]


def test_work_that_ran_before_waits_anew():
    state = lender()
    pending = state.tasks["uid-mine"].pod
    state.remove_pod("uid-mine")
    settle(state, 5000.0)
    state.upsert_pod(msgspec.structs.replace(pending, uid="back", attained=60.0))
    assert preempted(settle(state, 5001.0)) == []
    assert preempted(settle(state, 8601.0)) == [["large"]]


def test_the_wait_of_a_gang_that_ran_before_goes_on_whatever_is_reported_of_it():
    """Its PodGroup's changes, and members that come later, form its unit anew; the wait of those that were there goes on."""
    state = lender()
    state.remove_pod("uid-mine")
    settle(state, 5000.0)
    given = Group("ns", "gang", 2)
    state.upsert_group(given)
    for name in ("g0", "g1"):
        state.upsert_pod(pod(name, queue="q1", gpus=3, group="gang", created=100.0, attained=60.0))
    assert preempted(settle(state, 5001.0)) == []
    for at in range(5100, 8600, 100):
        state.upsert_group(msgspec.structs.replace(given, expected=float(at)))
        assert preempted(settle(state, float(at))) == []
    state.upsert_pod(pod("g2", queue="q1", gpus=1, group="gang", created=100.0, attained=60.0))
    assert preempted(settle(state, 8600.5)) == []
    assert preempted(settle(state, 8601.0)) == [["large"]]


@pytest.mark.parametrize("seed", range(40))
def test_random_histories_come_to_rest(seed):
    """Jobs come and go for some hours; then nothing comes or ends, and after two more waits nothing moves any more."""
    rnd = random.Random(seed)
    names = ["q0", "q1", "q2"][: rnd.randint(2, 3)]
    gpus = [8] * rnd.randint(1, 2)
    left, queues = sum(gpus), []
    for name in names:
        quota = rnd.randint(0, left // 2)
        left -= quota
        queues.append(Share(name, quota * WHOLE, weight=rnd.choice([None, 1, 2, 3])))
    world = World(gpus, queues, share_wait=3600.0)
    for number in range(14):
        world.now += rnd.choice([10.0, 1000.0, 4000.0])
        world.submit(Job(f"j{number}", rnd.choice(names), rnd.choice([1, 2, 3, 4, 6, 8]) * WHOLE, created=world.now))
        world.play()
        if rnd.random() < 0.3 and world.places:
            world.end(rnd.choice(sorted(world.places)))
            world.play()
    for _ in range(4):
        world.now += 3600.0
        world.play()
    before = len(world.evicted)
    for _ in range(6):
        world.now += 3600.0
        world.play()
    assert world.evicted[before:] == []
    invariants.check(world.state)

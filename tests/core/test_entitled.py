"""A job within its queue's quota gets what others borrow within the documented time, whatever they do to keep it."""

import pytest

from tests.core.worlds import POLICY, World

FAST = range(60)


def bound(world):
    """Seconds: budgets are overridden, then one victim after the other that does not go is waited for, and the last one goes."""
    stuck = sum(life.ends == "never" for life in world.lives.values())
    once = POLICY["max_grace"] + POLICY["victim_timeout"]
    return POLICY["budget_override"] + 60.0 + (2 * stuck + 1) * once + 60.0


def play(seed, events=40):
    world = World(seed, reservations=0 if seed % 2 else 1)
    since = {}
    quiet = 0.0
    while events or quiet < 4000.0:
        before = world.now
        if events and world.rnd.random() < 0.7:
            events -= 1
            world.disturb()
        world.step(world.rnd.choice([1.0, 10.0, 60.0]) if events else 300.0)
        quiet += 0.0 if events else world.now - before
        world.check()
        # A job after a bigger one of its own queue waits for its reservation: its queue has decided so.
        kept = {hold.unit.tasks[0].queue for hold in world.state.reserved.of_units()}
        claiming = {unit[0].pod.uid: unit for unit in world.units() if unit[0].pod.queue not in kept and world.claims(unit)}
        since = {uid: since.get(uid, world.now) for uid in claiming}
        for uid, at in since.items():
            if world.now - at > bound(world):
                waits = [(life.pod.name, world.state.tasks[life.pod.uid]) for life in claiming[uid]]
                there = [
                    f"{life.pod.name} {life.pod.queue} {life.pod.spec.gpus} {life.pod.node} {life.ends}"
                    for life in world.lives.values()
                ]
                text = [*world.log[-80:], f"queues {world.queues}", *there]
                pytest.fail("\n".join([*text, f"seed {seed}: {waits} claims since {at}, now {world.now}"]))


@pytest.mark.parametrize("seed", FAST)
def test_who_is_within_quota_starts_in_time(seed):
    play(seed)


def test_a_pass_ends_though_victims_are_preemptible_in_one_order_only():
    """A pod of `borrow` is preemptible once one of `lent`, below `org`, was preempted; the smaller one is tried first."""
    play(486, events=80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 1100))
def test_who_is_within_quota_starts_in_time_in_many_worlds(seed):
    play(seed, events=80)

"""No unit is forgotten: one that a state rebuilt from the cluster would place at once does not wait.

Where something is reserved a rebuilt state knows less: there, what waits must not be placed when all of it is tried again.
"""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.queues.queue_node import PendingClass
from tests.builders import cluster, group, held, node, placed, pod, preempted, queue, run, spec
from tests.core.test_outwait import leaving
from tests.core.worlds import GPUS, World


class Restless(World):
    """A world in which waiting pods are deleted, nodes come and go, and queues have limits that change."""

    def disturb(self):
        rnd, chance = self.rnd, self.rnd.random()
        waiting = sorted(uid for uid, life in self.lives.items() if not life.bound)
        held = [uid for uid in waiting if self.state.tasks[uid].state is TaskState.HELD]
        if chance < 0.15 and waiting:
            self.vanish(rnd.choice(held or waiting), again=rnd.random() < 0.3)
        elif chance < 0.2:
            self._change_node()
        elif chance < 0.3:
            self._change_limit()
        elif chance < 0.4:
            self._fail()
        else:
            super().disturb()

    def _change_node(self):
        name = self.rnd.choice([*self.nodes, f"m{self.number}"])
        old = self.nodes.get(name) or node(name, gpus=GPUS)
        self.nodes[name] = msgspec.structs.replace(old, unschedulable=name in self.nodes and not old.unschedulable)
        self.say(f"node {name} unschedulable {self.nodes[name].unschedulable}")
        self.state.upsert_node(self.nodes[name])

    def _change_limit(self):
        index = self.rnd.randrange(len(self.queues))
        old = self.queues[index]
        quota = self._quota(old)
        made = queue(old.name, quota=quota, limit=self.rnd.choice([None, quota + 2, quota + 8]), parent=old.parent)
        self.say(f"queue {made.name} quota {quota} {made.resources}")
        self.queues[index] = made
        self.state.upsert_queue(made)

    def _fail(self):
        """An eviction fails for a reason of its own."""
        victims = sorted(uid for uid in self.state.in_flight.waits if uid in self.lives and not self.lives[uid].pod.terminating)
        if victims:
            self.say(f"eviction of {victims[0]} fails late")
            self.state.evictions.failed(victims[0], self.now)


def missed(world):
    """Units that wait although a rebuilt state would place them now, without an eviction."""
    state = world.state
    if any(task.state is TaskState.HELD for task in state.tasks.values()):
        return set()
    resting = {task.pod.name for task in state.tasks.values() if task.not_before > world.now}
    made = world.rebuilt()
    return set(placed(run(made, world.now))) - resting


def play(seed, events=60):
    world = Restless(seed, reservations=0, moves_per_minute=0)
    while events:
        if world.rnd.random() < 0.6:
            events -= 1
            world.disturb()
        decided = world.step(world.rnd.choice([0.5, 5.0, 60.0]))
        if any(isinstance(each, Place | Preempt | Evict) for each in decided):
            continue
        found = missed(world)
        if found:
            pytest.fail("\n".join([*world.log[-40:], f"seed {seed}: {sorted(found)} would be placed at {world.now}"]))


@pytest.mark.parametrize("seed", range(40))
def test_who_could_be_placed_does_not_wait(seed):
    play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 1040))
def test_who_could_be_placed_does_not_wait_in_many_worlds(seed):
    play(seed)


SOON = 1.0
"""Seconds within which what a hold excluded is tried again, once that has ended."""


class Reserving(Restless):
    """The same where places, and what queues may hold, are reserved for those that were passed for long.

    Some queues have limits from the beginning, and some work is never preempted, so much is reserved.
    """

    def __init__(self, seed):
        policy = random.Random(f"policy {seed}")
        super().__init__(
            seed,
            reservations=policy.choice([0, 1, 2]),
            share_wait=policy.choice([5.0, 20.0, 60.0]),
            moves_per_minute=policy.choice([0, 0, 600]),
            patience=policy.choice([0.0, 30.0]),
            move_patience=policy.choice([0.0, 30.0]),
            reclaim=policy.random() < 0.6,
        )
        for index, old in enumerate(self.queues):
            if policy.random() < 0.6:
                quota = self._quota(old)
                self.queues[index] = queue(old.name, quota=quota, limit=quota + policy.choice([2, 4, 8]), parent=old.parent)
                self.state.upsert_queue(self.queues[index])

    def rebuilt(self):
        state = super().rebuilt()
        state.upsert_class(ServiceClass("firm", mode="Never"))
        return state

    def submit(self, name, like=None, ends="", **more):
        if like is None and self.rnd.random() < 0.4:
            more["service_class"] = "firm"
        super().submit(name, like, ends, **more)

    def disturb(self):
        running = sorted(uid for uid, life in self.lives.items() if life.bound and not life.pod.terminating)
        if self.rnd.random() < 0.3 and running:
            self.vanish(self.rnd.choice(running), again=False)
        elif self.rnd.random() < 0.3 and len(self.lives) < 25:
            self.arrive()
        else:
            super().disturb()


def overlooked(world):
    """What is decided now if everything that waits is tried again, of a world in which nothing is due: nothing should be."""
    state, waiting = world.state, world.state.queues.waiting
    due = state.next_due is not None and state.next_due <= world.now + SOON
    if due or any(task.state is TaskState.HELD for task in state.tasks.values()):
        return []
    resting = {task.pod.name for task in state.tasks.values() if task.not_before > world.now}
    why = {each.first().tasks[0].pod.name: each.unschedulable.text for each in waiting.unschedulable if each.first() is not None}
    for pending_class in sorted(waiting.unschedulable, key=PendingClass.order):
        waiting.requeue(pending_class)
    decided = [each for each in run(state, world.now) if isinstance(each, Place | Preempt)]
    names = [sorted(binding.pod.name for binding in getattr(each, "bindings", ()) or each.beneficiaries) for each in decided]
    return [(each, why.get(each[0])) for each in names if not resting.issuperset(each)]


def play_reserving(seed, events=60):
    world = Reserving(seed)
    while events:
        if world.rnd.random() < 0.6:
            events -= 1
            world.disturb()
        decided = world.step(world.rnd.choice([0.5, 5.0, 20.0, 60.0]))
        if any(isinstance(each, Place | Preempt | Evict) for each in decided) or events > 50 or world.rnd.random() < 0.7:
            continue
        found = overlooked(world)
        if found:
            pytest.fail("\n".join([*world.log[-40:], f"seed {seed}: {found} at {world.now}"]))


@pytest.mark.parametrize("seed", [*range(30), 86, 127, 175, 254, 280, 342, 382, 426])
def test_what_was_reserved_for_another_is_not_overlooked_once_it_is_free(seed):
    play_reserving(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 1030))
def test_what_was_reserved_for_another_is_not_overlooked_in_many_worlds(seed):
    play_reserving(seed)


def test_a_beneficiary_that_goes_keeps_no_more_closed_than_its_victims_hold():
    state = cluster(
        [node("n")],
        [queue("vision", quota=8), queue("borrow", quota=0)],
        [pod("b", "borrow", at="n", gpus=2), pod("c", "borrow", at="n", gpus=2)],
    )
    run(state)
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    assert preempted(run(state, 1.0)) == [["b", "c"]]
    for uid in ("uid-b", "uid-c"):
        leaving(state, uid)
    state.upsert_pod(pod("w", "borrow", gpus=4, created=2.0))
    assert not placed(run(state, 2.0))
    state.remove_pod("uid-v")
    assert placed(run(state, 3.0)) == {"w": "n"}
    assert held(state, "borrow") == 8
    invariants.check(state)


def test_who_holds_another_back_with_what_is_leaving_is_tried_itself():
    """`red` may have 4 GPUs once `r` has left: until `v` is tried, which evicts what it lacks, `w` would wait for it in vain."""
    state = cluster(
        [node("n", gpus=8)],
        [queue("red", quota=4), queue("borrow", quota=2), queue("other", quota=1)],
        [
            pod("r", "red", at="n", gpus=2),
            pod("o", "other", at="n"),
            pod("b1", "borrow", at="n", gpus=2),
            pod("b2", "borrow", at="n", gpus=2, created=1.0),
        ],
    )
    run(state, 2.0)
    state.upsert_pod(pod("v", "red", gpus=4, created=3.0))
    assert not preempted(run(state, 3.0))
    leaving(state, "uid-r")
    assert not run(state, 4.0)
    state.upsert_pod(pod("w", "borrow", created=5.0))
    decided = run(state, 5.0)
    assert (preempted(decided), placed(decided)) == ([["b2"]], {"w": "n"})
    invariants.check(state)


def test_a_gang_with_members_in_two_queues_is_tried_again_once_either_holds_less():
    """Beside it what ends in the second queue leaves no place that one of them takes."""
    nodes = [node("n", gpus=1), node("m", gpus=4)]
    state = cluster(nodes, [queue("red", quota=4), queue("blue", quota=2, limit=2)])
    state.upsert_pod(pod("r", "blue", at="n"))
    state.upsert_group(group("g", 2))
    state.upsert_pod(pod("g-0", "red", gpus=2, group="g", created=1.0))
    state.upsert_pod(pod("g-1", "blue", gpus=2, group="g", created=1.0))
    assert placed(run(state, 1.0)) == {}
    state.remove_pod("uid-r")
    assert placed(run(state, 2.0)) == {"g-0": "m", "g-1": "m"}


def test_what_is_held_back_is_tried_again_in_time():
    """`c` may run on `n` for as long as it ends before what is reserved there begins. Later nothing holds `w` back, and nothing happens."""
    state = cluster(
        [node("n", gpus=1, labels={"name": "n"}), node("m", gpus=1)],
        [queue("a", quota=1), queue("b", quota=1)],
        [pod("y", "a", at="n")],
        recheck=300.0,
    )
    state.upsert_reservation(Reservation("r", 1000.0, 2000.0, (Requirement("name", "In", ("n",)),)))
    state.upsert_pod(pod("c", "b", spec_=spec(selector={"name": "n"}), time_limit=600.0))
    state.upsert_pod(pod("w", "a", created=1.0))
    assert placed(run(state, 2.0)) == {}
    assert held(state, "a") == 1
    while not (started := placed(run(state, now := state.next_due))):
        pass
    assert (now, started) == (602.0, {"w": "m"})
    invariants.check(state)

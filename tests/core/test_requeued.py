"""No unit is forgotten: one that a state rebuilt from the cluster would place at once does not wait."""

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, held, node, placed, pod, preempted, queue, run
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

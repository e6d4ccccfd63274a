"""Gangs of which too few members run are noticed, whatever else befalls them, and are taken down in time."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.transactions import Evict, Place, Preempt
from tests.builders import cluster, group, node, pod, queue, run

GRACE = 60.0


def test_a_member_that_loses_its_place_and_cannot_wait_breaks_its_gang():
    """Its binding was on its way to a node that is gone, and its queue's object is gone, too."""
    members = [pod("a", "q", group="g", at="n", gpus=8), pod("b", "q", group="g", gpus=8)]
    state = cluster([node("n"), node("m")], [queue("q"), queue("other")], members, [group("g", 2, "q")])
    (place,) = [each for each in run(state, 0.0) if isinstance(each, Place)]
    assert [each.node for each in place.bindings] == ["m"]
    state.remove_queue("q")
    state.remove_node("m")
    run(state, 1.0)
    invariants.check(state)
    (taken,) = [each for each in run(state, 1.0 + GRACE) if isinstance(each, Evict)]
    assert [each.pod.name for each in taken.victims] == ["a"]


class World:
    """A few gangs of jobs that start over, on nodes and in queues whose objects come and go."""

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.now = 1000.0
        self.nodes = [node(f"n{number}", gpus=4) for number in range(self.rnd.randint(2, 4))]
        self.queues = [queue("q"), queue("other")]
        self.sizes = {f"g{number}": self.rnd.randint(2, 3) for number in range(self.rnd.randint(1, 3))}
        self.attempts = dict.fromkeys(self.sizes, 0)
        self.done = dict.fromkeys(self.sizes, 0)  # members of the present attempt that succeeded
        self.pods, self.ended, self.gone = {}, [], set()
        self.state = cluster(self.nodes, self.queues, (), [group(name, size, "q") for name, size in self.sizes.items()])
        self.decided = []

    def starts(self, name):
        """All members of a job are made; those of the attempt before may still be there."""
        if any(each.group == name and each.attempt == self.attempts[name] for each in self.pods.values()):
            self.attempts[name] += 1
        self.done[name] = 0
        for index in range(self.sizes[name]):
            made = pod(
                f"{name}-{index}-{self.attempts[name]}",
                "q",
                group=name,
                gpus=self.rnd.choice([1, 2]),
                created=self.now,
                owner=name,
                attempt=self.attempts[name],
            )
            self.pods[made.uid] = made
            self.state.upsert_pod(made)

    def of(self, *, bound):
        return sorted(uid for uid, each in self.pods.items() if bool(each.node) is bound)

    def happens(self):
        rnd, chance = self.rnd, self.rnd.random()
        running = self.of(bound=True)
        if chance < 0.2:
            self.starts(rnd.choice(sorted(self.sizes)))
        elif chance < 0.35 and running:
            self.succeeds(rnd.choice(running))
        elif chance < 0.45 and running:
            self.vanishes(rnd.choice(running))
        elif chance < 0.5 and running:
            uid = rnd.choice(running)
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], terminating=True)
            self.state.upsert_pod(self.pods[uid])
        elif chance < 0.65:
            self.comes_or_goes("q", lambda: self.state.upsert_queue(self.queues[0]), lambda: self.state.remove_queue("q"))
        elif chance < 0.8:
            each = rnd.choice(self.nodes)
            self.comes_or_goes(each.name, lambda: self.state.upsert_node(each), lambda: self.state.remove_node(each.name))
        else:
            self.writes()

    def comes_or_goes(self, name, comes, goes):
        (comes if name in self.gone else goes)()
        self.gone ^= {name}

    def succeeds(self, uid):
        each = self.pods.pop(uid)
        self.done[each.group] += each.attempt == self.attempts[each.group]
        self.state.upsert_pod(msgspec.structs.replace(each, finished=True, succeeded=self.now))

    def vanishes(self, uid):
        self.pods.pop(uid)
        self.state.remove_pod(uid)

    def writes(self):
        """What was decided is written, some of it in vain."""
        decided, self.decided = self.decided, []
        for each in decided:
            for binding in each.bindings if isinstance(each, Place) else ():
                uid = binding.pod.uid
                if uid not in self.pods or self.pods[uid].node:
                    continue
                if self.rnd.random() < 0.2 or binding.node in self.gone:
                    self.state.bind_failed(uid, self.now)
                    continue
                self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node)
                self.state.pods.bound(uid)
                self.state.upsert_pod(self.pods[uid])
            for victim in each.victims if isinstance(each, Evict | Preempt) else ():
                if victim.pod.uid in self.pods:
                    self.vanishes(victim.pod.uid)

    def passes(self):
        self.decided += run(self.state, self.now)
        invariants.check(self.state)

    def half(self):
        """Gangs of which some run, but too few: found from the pods alone."""
        found = []
        for name, size in self.sizes.items():
            there = [each for each in self.pods.values() if each.group == name and each.node and not each.terminating]
            if 0 < len(there) < size - self.done[name]:
                found.append(name)
        return found


@pytest.mark.parametrize("seed", range(200))
def test_random_histories_leave_no_gang_half_running(seed):
    world = World(seed)
    for _ in range(world.rnd.randint(5, 40)):
        world.now += world.rnd.choice([0.0, 1.0, 20.0])
        world.happens()
        if world.rnd.random() < 0.7:
            world.passes()
    for _ in range(12):  # nothing else happens: what is broken is completed or taken down
        world.passes()
        world.writes()
        world.now += GRACE
    assert not world.half()

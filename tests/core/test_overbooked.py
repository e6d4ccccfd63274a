"""No GPU is given away before its holder has left, whatever becomes of evictions, moved pods and those that wait for them."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, group, node, pod, run

GPUS = 4
POLICY = {"victim_timeout": 60.0, "max_grace": 60, "moves_per_minute": 50, "move_patience": 30.0, "reservations": 0}


class World:
    """Pods of a few priorities on small nodes. What becomes of each eviction is drawn; the judge knows who is where, no more."""

    def __init__(self, seed):
        self.rnd = rnd = random.Random(seed)
        self.now, self.number, self.log = 1000.0, 0, []
        self.nodes = [f"n{number}" for number in range(rnd.randint(2, 4))]
        self.state = cluster([node(name, gpus=GPUS) for name in self.nodes], [Queue("q")], **POLICY)
        self.state.upsert_class(ServiceClass("whole", moves_whole=True, checkpoint_interval=100_000.0))
        self.pods, self.agenda = {}, []
        self.order = 0

    def say(self, what):
        self.log.append(f"{self.now:8.1f} {what}")

    def later(self, seconds, act):
        self.order += 1
        self.agenda.append((self.now + seconds, self.order, act))

    def comes(self, made):
        self.pods[made.uid] = made
        self.say(f"+ {made.name} {made.spec.gpus}x{made.spec.gpu_milli} priority {made.priority}")
        self.state.upsert_pod(made)

    def arrive(self):
        rnd = self.rnd
        self.number += 1
        size, milli = rnd.choice([(1, 1000), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (1, 500)])
        more = {"gpus": size, "milli": milli, "priority": rnd.choice([0, 0, 10, 20]), "created": self.now}
        if rnd.random() < 0.4:
            members, name = rnd.randint(2, 3), f"g{self.number}"
            self.state.upsert_group(group(name, rnd.randint(1, members), "q"))
            more |= {"group": name, "service_class": rnd.choice(["", "whole"])}
            for member in range(members):
                self.comes(pod(f"{name}-{member}", "q", **more))
        else:
            self.comes(pod(f"p{self.number}", "q", **more))

    def vanish(self, uid, *, again):
        if uid not in self.pods:
            return
        old = self.pods.pop(uid)
        self.say(f"x {old.name}")
        self.state.remove_pod(uid)
        if again and self.rnd.random() < 0.9:
            self.number += 1
            name = f"{old.name.partition('+')[0]}+{self.number}"
            new = msgspec.structs.replace(old, uid=f"uid-{name}", name=name, node="", terminating=False, created=self.now)
            self.later(
                self.rnd.choice([0.0, 0.5, 20.0, 100.0]), lambda: self.comes(msgspec.structs.replace(new, created=self.now))
            )

    def evicted(self, uid):
        """The API server is asked to evict a pod."""
        fate = self.rnd.choices(("at once", "soon", "late", "never", "refused", "dropped"), (30, 25, 10, 10, 15, 10))[0]
        self.say(f"eviction of {uid}: {fate}")
        if fate == "at once":
            self.vanish(uid, again=True)
        elif fate == "refused":
            self.later(self.rnd.choice([0.0, 0.5, 30.0]), lambda: self.state.evictions.failed(uid, self.now))
        elif fate != "dropped" and uid in self.pods:
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], terminating=True, leaves=float(int(self.now + 30)))
            self.state.upsert_pod(self.pods[uid])
            if fate != "never":
                wait = self.rnd.uniform(0.5, 30.0) if fate == "soon" else self.rnd.uniform(60.0, 300.0)
                self.later(wait, lambda: self.vanish(uid, again=True))

    def carry_out(self, decided):
        for each in decided:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self.bind(binding)
            elif isinstance(each, Preempt | Evict):
                what = f"for {[one.pod.name for one in each.beneficiaries]}" if isinstance(each, Preempt) else "outright"
                moved = list(each.moved) if isinstance(each, Preempt) else []
                self.say(f"evict {[victim.pod.name for victim in each.victims]}, of which move {moved}, {what}")
                for victim in each.victims:
                    if victim.pod.uid in self.pods:
                        self.evicted(victim.pod.uid)

    def bind(self, binding):
        uid = binding.pod.uid
        if uid not in self.pods:
            return
        if self.rnd.random() < 0.05:
            self.say(f"binding of {uid} fails")
            self.state.bind_failed(uid, self.now)
            return
        self.say(f"{uid} on {binding.node}")
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node, started=self.now)
        self.state.pods.bound(uid)
        self.state.upsert_pod(self.pods[uid])
        self.judge()

    def judge(self):
        for name in self.nodes:
            there = [each for each in self.pods.values() if each.node == name]
            used = sum(each.spec.gpus * each.spec.gpu_milli for each in there)
            assert used <= 1000 * GPUS, "\n".join([*self.log[-80:], f"{name}: {[each.name for each in there]}"])

    def goes_on(self, seconds):
        """Time passes until what is next, at most so long; one pass."""
        dues = [self.now + seconds, *(at for at, _, _ in self.agenda)]
        if self.state.next_due is not None:
            dues.append(max(self.state.next_due, self.now + 0.01))
        self.now = max(self.now, min(dues))
        due = sorted(each for each in self.agenda if each[0] <= self.now)
        self.agenda = [each for each in self.agenda if each[0] > self.now]
        for _, _, act in due:
            act()
        self.carry_out(run(self.state, self.now))
        invariants.check(self.state)
        assert not self.stuck(), "\n".join([*self.log[-80:], *self.stuck()])

    def happens(self, steps, chance, pauses):
        """So many steps, some with a disturbance first."""
        for _ in range(steps):
            if self.rnd.random() < chance:
                self.disturb()
            self.goes_on(self.rnd.choice(pauses))

    def disturb(self):
        chance, names = self.rnd.random(), sorted(self.pods)
        if chance < 0.55 or not names:
            self.arrive()
        elif chance < 0.85:
            self.vanish(self.rnd.choice(names), again=False)
        else:
            held = sorted(uid for uid, task in self.state.tasks.items() if task.state is TaskState.HELD)
            self.vanish(self.rnd.choice(held or names), again=False)

    def stuck(self):
        """Pods that wait for others to leave which are not there, or are not to leave."""
        return [
            f"{uid} waits for {sorted(task.waits_for)}"
            for uid, task in self.state.tasks.items()
            if task.state is TaskState.HELD
            and not all(
                victim in self.state.tasks and self.state.tasks[victim].state is TaskState.EVICTING for victim in task.waits_for
            )
        ]


@pytest.mark.parametrize("seed", range(400))
def test_no_gpu_is_overbooked_in_random_worlds(seed):
    world = World(seed)
    world.happens(world.rnd.randint(10, 60), 0.5, [1.0, 20.0, 60.0, 400.0])
    for _ in range(40):
        world.goes_on(1000.0)
    world.judge()

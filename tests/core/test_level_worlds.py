"""Random worlds with gangs on the levels of a network: nodes, labels, pools, groups and pods in any order; writes that fail.

The world is the API server. It judges what is bound: members of a gang with a required level are in one domain of it. At rest an
exhaustive search over domains finds no gang that waits though it could start. The state is walked after each step.
"""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import Closeness
from fairlead.core.model.transactions import Evict, Place, Preempt
from tests.builders import GPU, cluster, node, pod, queue, run, spec

LEVELS = (NetworkLevel("block", "net/block"), NetworkLevel("rack", "net/rack"))
SOME = (("block",), ("rack",), ("net/rack",), ("rack", "nvidia.com/gpu.clique"), ())


class World:
    """What exists. moved: gangs whose running members had their labels, or levels, changed: they may be anywhere since then."""

    def __init__(self, seed):
        self.rnd = rnd = random.Random(seed)
        self.now, self.number = 1000.0, 0
        self.levels = LEVELS if rnd.random() < 0.8 else LEVELS[1:]
        self.nodes, self.groups, self.pods = {}, {}, {}
        self.unwritten, self.moved = [], set()
        self.policy = {"gang_grace": 10.0, **({} if seed % 2 else {"reservations": 0})}
        self.state = cluster(queues=[queue("default", quota=100)], **self.policy)
        self.state.upsert_pool(NodePool("p", levels=self.levels))
        for _ in range(rnd.randint(2, 7)):
            self.add_node()

    def labels(self):
        rnd, labels = self.rnd, {}
        for label, values in (("net/block", "ab"), ("net/rack", "rst"), ("nvidia.com/gpu.clique", "01")):
            if rnd.random() < 0.93:
                labels[label] = rnd.choice(values)
        return labels

    # -- what may happen -----------------------------------------------------------------------

    def add_node(self):
        self.number += 1
        made = node(f"n{self.number}", gpus=self.rnd.choice((1, 2, 2, 4)), labels=self.labels())
        self.nodes[made.name] = made
        self.state.upsert_node(made)

    def remove_node(self):
        if len(self.nodes) > 2:
            name = self.rnd.choice(sorted(self.nodes))
            del self.nodes[name]
            self.state.remove_node(name)
            for uid in [uid for uid, each in self.pods.items() if each.node == name]:
                self.end(uid)

    def relabel(self):
        name = self.rnd.choice(sorted(self.nodes))
        self.moved |= {each.group for each in self.pods.values() if each.node == name}
        self.moved |= {binding_group for binding_group, where in self.on_their_way() if where == name}
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], labels=self.labels())
        self.state.upsert_node(self.nodes[name])

    def repool(self):
        self.moved |= {each.group for each in self.pods.values() if each.node} | {group for group, _ in self.on_their_way()}
        self.levels = self.rnd.choice((LEVELS, LEVELS[1:], LEVELS[:1]))
        self.state.upsert_pool(NodePool("p", levels=self.levels))

    def on_their_way(self):
        return [(self.pods[each.pod.uid].group, each.node) for each in self.unwritten if each.pod.uid in self.pods]

    def submit(self):
        rnd = self.rnd
        self.number += 1
        name, size = f"g{self.number}", rnd.choice((1, 2, 2, 3, 4, 5))
        closeness = Closeness(rnd.choice(SOME), rnd.choice(("", "rack", "block")))
        least = size if rnd.random() < 0.7 else rnd.randint(1, size)
        made = Group("ns", name, least, closeness=closeness if closeness.required or closeness.preferred else None)
        pods = [self.member(name, rank) for rank in range(size)]
        events = [(self.state.upsert_group, made), *((self.state.upsert_pod, each) for each in pods)]
        rnd.shuffle(events)
        self.groups[name] = made
        self.pods.update({each.uid: each for each in pods})
        for event, thing in events:
            event(thing)

    def member(self, group, rank, priority=None):
        self.number += 1
        more = {"priority": self.rnd.choice((0, 0, 5)) if priority is None else priority, "created": self.now}
        return pod(f"{group}-{rank}-{self.number}", group=group, spec_=spec(gpus=self.rnd.choice((1, 1, 1, 2))), **more)

    def end(self, uid):
        ended = self.pods.pop(uid, None)
        if ended is not None:
            self.state.remove_pod(uid)
            if self.rnd.random() < 0.6 and ended.group in self.groups:
                again = msgspec.structs.replace(ended, uid=f"{uid}+", name=f"{ended.name}+", node="", terminating=False)
                self.pods[again.uid] = again
                self.state.upsert_pod(again)

    def end_one(self):
        if self.pods:
            self.end(self.rnd.choice(sorted(self.pods)))

    def end_gang(self):
        if self.groups:
            name = self.rnd.choice(sorted(self.groups))
            del self.groups[name]
            for uid in [uid for uid, each in self.pods.items() if each.group == name]:
                self.end(uid)
            self.state.remove_group(f"ns/{name}")
            self.moved.discard(name)

    def terminate(self):
        bound = sorted(uid for uid, each in self.pods.items() if each.node)
        if bound:
            uid = self.rnd.choice(bound)
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], terminating=True)
            self.state.upsert_pod(self.pods[uid])

    def write(self, *, sure=False):
        """Bindings are written, or fail; in any order."""
        self.rnd.shuffle(self.unwritten)
        while self.unwritten and (sure or self.rnd.random() < 0.8):
            binding = self.unwritten.pop()
            uid = binding.pod.uid
            if uid not in self.pods:
                continue
            if binding.node not in self.nodes or (not sure and self.rnd.random() < 0.1):
                self.state.bind_failed(uid, self.now)
                continue
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node)
            self.judge(uid)
            if self.rnd.random() < 0.5:
                self.state.pods.bound(uid)
            self.state.upsert_pod(self.pods[uid])

    def decide(self):
        self.now += self.rnd.choice((0.0, 1.0, 30.0))
        for each in run(self.state, self.now):
            if isinstance(each, Place):
                self.unwritten += each.bindings
            elif isinstance(each, Preempt):
                self.unwritten += getattr(each, "bindings", ())
                for victim in each.victims:
                    self.end(victim.pod.uid)
            elif isinstance(each, Evict):
                for victim in each.victims:
                    self.end(victim.pod.uid)
        wrong = [each for each in invariants.violations(self.state) if "members placed" not in each]
        assert not wrong, wrong

    def restart(self):
        """Another scheduler begins with what exists, in any order."""
        self.write(sure=True)
        self.state = cluster(queues=[queue("default", quota=100)], **self.policy)
        events = [
            (self.state.upsert_pool, NodePool("p", levels=self.levels)),
            *((self.state.upsert_node, each) for each in self.nodes.values()),
            *((self.state.upsert_group, each) for each in self.groups.values()),
            *((self.state.upsert_pod, each) for each in self.pods.values()),
        ]
        self.rnd.shuffle(events)
        for event, thing in events:
            event(thing)

    # -- the judge -----------------------------------------------------------------------------

    def domain(self, name, level):
        """The domain of a node by the rule of the page on design; None: it is in none."""
        labels = self.nodes[name].labels
        if level == "nvidia.com/gpu.clique":
            return labels.get(level)
        at = next((at for at, each in enumerate(self.levels) if level in (each.name, each.label)), None)
        path = [labels.get(each.label) for each in self.levels[: at + 1]] if at is not None else [None]
        return None if None in path else tuple(path)

    def domains(self, name, levels):
        found = tuple(self.domain(name, level) for level in levels)
        return None if None in found else found

    def judge(self, uid):
        name = self.pods[uid].group
        group = self.groups.get(name)
        if group is None or group.closeness is None or not group.closeness.required or name in self.moved:
            return
        nodes = {
            each.node for each in self.pods.values() if each.group == name and each.node in self.nodes and not each.terminating
        }
        found = {self.domains(each, group.closeness.required) for each in nodes}
        assert len(found) == 1, f"gang {name} is in {found}"
        assert None not in found, f"a member of gang {name} is in no domain"

    def could_start(self):
        """The gangs of which no member has a place, and for which there is one; only of members that exist.

        Where there are reservations, not those that wait for a place which is reserved for a gang that has waited for longer.
        """
        free = {name: each.allocatable[GPU] for name, each in self.nodes.items()}
        for each in self.pods.values():
            if each.node in free:
                free[each.node] -= each.spec.gpus
        for name, group in sorted(self.groups.items()):
            members = [each for each in self.pods.values() if each.group == name]
            if len(members) < group.min_member or any(each.node for each in members):
                continue
            if self.state.reserved.holds and all(
                self.state.tasks[each.uid].reported is ReasonCode.RESERVATION for each in members
            ):
                continue
            asked = sorted((each.spec.gpus for each in members), reverse=True)
            required = group.closeness.required if group.closeness is not None else ()
            known = all(
                each == "nvidia.com/gpu.clique" or any(each in (k.name, k.label) for k in self.levels) for each in required
            )
            by_domain = {}
            for each, amount in free.items():
                domain = self.domains(each, required)
                if domain is not None and known:
                    by_domain.setdefault(domain, []).append(amount)
            if group.min_member == len(members) and any(_fits(asked, amounts) for amounts in by_domain.values()):
                yield name


def _fits(asked, amounts):
    """Whether amounts of 1 and 2, the largest first, go into these: exact for those sizes."""
    twos, ones = asked.count(2), asked.count(1)
    return sum(each // 2 for each in amounts if each > 0) >= twos and sum(each for each in amounts if each > 0) >= 2 * twos + ones


STEPS = (
    *["submit"] * 4,
    *["decide"] * 5,
    *["write"] * 4,
    *("end_one", "end_one", "end_gang", "terminate", "relabel", "repool", "add_node", "remove_node", "restart"),
)


def live(seed, steps, kind=World):
    """A world of a kind after so many random steps, and once all has come to rest: then no gang waits in vain."""
    world = kind(seed)
    for _ in range(steps):
        step = world.rnd.choice(STEPS)
        if step == "repool" and world.rnd.random() < 0.5:
            continue
        getattr(world, step)()
    for uid in [uid for uid, each in world.pods.items() if each.terminating]:
        world.pods.pop(uid)
        world.state.remove_pod(uid)
    for _ in range(12):
        world.now += 600.0
        world.write(sure=True)
        world.decide()
    world.write(sure=True)
    waiting = list(world.could_start())
    assert not waiting, f"{waiting} could start"
    return world


@pytest.mark.parametrize("seed", range(40))
def test_no_gang_is_in_two_domains_and_none_waits_in_vain(seed):
    live(seed, 60)


def test_what_the_worlds_contain():
    """Gangs with required levels run in them, in racks of several nodes, and others wait for want of a domain."""
    seen = Counter()
    for seed in range(60, 80):
        world = live(seed, 60)
        for name, group in world.groups.items():
            required = bool(group.closeness and group.closeness.required)
            nodes = {each.node for each in world.pods.values() if each.group == name and each.node}
            seen[required, min(2, len(nodes))] += 1
    assert min(seen[True, count] for count in range(3)) > 4, seen

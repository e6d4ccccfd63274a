"""Random worlds with gangs that keep spare places: racks, two queues with limits, nodes that fail, pressure, restarts.

The world is the API server and the judge: it knows pods, nodes and the nodes that PodGroups' statuses name, and reckons from these
alone. No place is given away twice, no queue holds more than its limit, a gang starts with all of its spares, members that are
replaced are placed in the next pass while there is a spare, nothing is kept for what has ended, and at rest no spare is missing
for which capacity is free.
"""

import random
from collections import Counter

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import NetworkLevel, NodePool, Reservation
from fairlead.core.model.pods import Closeness
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.pods.tasks import TaskState
from tests.builders import GPU, cluster, node, pod, queue, run, spec

POOL = NodePool("p", levels=(NetworkLevel("rack", "net/rack"),))
LIMITS = {"a": 14, "b": 9}


class World:
    """What exists. gangs: how many GPUs a member of a gang asks for, drawn from these. unsure: gangs of which a binding was refused -> until when their
    members may wait before they are tried again."""

    gangs = (1, 1, 1, 2)

    def __init__(self, seed):
        self.rnd = random.Random(seed)
        self.now, self.number = 1000.0, 0
        self.nodes, self.groups, self.pods, self.unwritten, self.unsure = {}, {}, {}, [], {}
        self.windows = {}
        self.counts, self.sizes = Counter(), {}
        self.begin()
        for _ in range(self.rnd.randint(6, 12)):
            self.add_node()

    def begin(self):
        self.state = cluster(queues=[queue(name, quota=100, limit=most) for name, most in LIMITS.items()], gang_grace=200.0)
        self.state.upsert_pool(POOL)
        for window in self.windows.values():
            self.state.upsert_reservation(window)

    # -- what the judge knows ------------------------------------------------------------------

    def kept(self, name):
        gang = self.state.gangs.get(f"ns/{name}")
        return list(self.state.spares.nodes(gang)) if gang is not None else []

    def size(self, name):
        return self.sizes[name]

    def offers(self, name):
        return self.nodes[name].allocatable[GPU]

    def holds(self, _, left, size):
        """Whether a node holds one more pod. left: what is free there by amounts."""
        return left >= size

    def asked(self, pod_):
        return pod_.spec.gpus

    def on_their_way(self):
        return {each.pod.uid: each.node for each in self.unwritten if each.pod.uid in self.pods}

    def awaited(self):
        """What has a place once victims are gone, by UID: node. Of spares, too."""
        tasks, names = self.state.tasks.values(), self.state.nodes.names
        return {task.pod.uid: names[task.row] for task in tasks if task.state is TaskState.HELD and task.row >= 0}

    def places(self):
        """Pods with a place: UID -> node."""
        held = {uid: where for uid, where in self.awaited().items() if uid in self.pods}
        return {**held, **{uid: each.node for uid, each in self.pods.items() if each.node}, **self.on_their_way()}

    def spare_places(self, name):
        """Where spares of a gang have places, those for which victims have to go included."""
        return self.kept(name) + [where for uid, where in self.awaited().items() if uid.startswith(f"spare/ns/{name}/")]

    def members(self, name):
        places = self.places()
        return {uid: places.get(uid, "") for uid, each in self.pods.items() if each.group == name and not each.terminating}

    def free(self):
        free = {name: self.offers(name) for name in self.nodes}
        for uid, where in self.places().items():
            if where in free:
                free[where] -= self.asked(self.pods[uid])
        for name in self.groups:
            for where in self.spare_places(name):
                free[where] -= self.size(name)
        return free

    def held(self, queue_name):
        own = sum(self.asked(self.pods[uid]) for uid in self.places() if self.pods[uid].queue == queue_name)
        return own + sum(
            self.size(name) * len(self.spare_places(name)) for name, each in self.groups.items() if each.queue == queue_name
        )

    def leaving(self, _):
        """What may be charged beside that, for what is on its way out."""
        return 0

    def rack(self, name):
        return self.nodes[name].labels.get("net/rack")

    def usable(self, name):
        return name in self.nodes and name not in self.windows and not self.nodes[name].unschedulable

    # -- what may happen -----------------------------------------------------------------------

    def add_node(self):
        self.number += 1
        name, gpus = f"n{self.number}", self.rnd.choice((1, 1, 2, 4))
        labels = {"net/rack": self.rnd.choice("rst"), "name": name}
        self.nodes[name] = self.made_node(name, gpus, labels)
        self.state.upsert_node(self.nodes[name])

    def made_node(self, name, gpus, labels):
        return node(name, gpus=gpus, labels=labels)

    def fail_node(self):
        if len(self.nodes) > 4:
            name = self.rnd.choice(sorted(self.nodes))
            del self.nodes[name]
            self.state.remove_node(name)
            self.unwritten = [each for each in self.unwritten if each.node != name or self.refuse(each)]
            for uid in [uid for uid, each in self.pods.items() if each.node == name]:
                self.end(uid, again=self.rnd.random() < 0.9)

    def refuse(self, binding):
        if binding.pod.uid in self.pods:
            self.unsure[self.pods[binding.pod.uid].group] = self.now + 300.0
            self.state.bind_failed(binding.pod.uid, self.now)
        return False

    def cordon(self):
        name = self.rnd.choice(sorted(self.nodes))
        self.nodes[name] = msgspec.structs.replace(self.nodes[name], unschedulable=not self.nodes[name].unschedulable)
        self.state.upsert_node(self.nodes[name])

    def reserve(self):
        """An administrator reserves a node for some time that has no end, or no longer."""
        if self.windows and self.rnd.random() < 0.7:
            self.windows.pop(name := self.rnd.choice(sorted(self.windows)))
            self.state.remove_reservation(name)
            return
        name = self.rnd.choice(sorted(self.nodes))
        self.windows[name] = Reservation(name, self.now + 1e6, 1e9, (Requirement("name", "In", (name,)),))
        self.state.upsert_reservation(self.windows[name])

    def submit(self):
        rnd = self.rnd
        self.number += 1
        name, size, gpus = f"g{self.number}", rnd.choice((1, 2, 2, 3, 4)), rnd.choice(self.gangs)
        closeness = Closeness(("rack",), spares=rnd.choice((0, 1, 1, 2)))
        group = Group("ns", name, size, queue=rnd.choice("ab"), closeness=closeness)
        more = {"group": name, "priority": rnd.choice((0, 0, 5)), "created": self.now, "queue": group.queue}
        pods = [self.made_pod(f"{name}-{rank}", gpus, **more) for rank in range(size)]
        self.groups[name], self.sizes[name] = group, gpus
        self.pods.update({each.uid: each for each in pods})
        events = [(self.state.upsert_group, group), *((self.state.upsert_pod, each) for each in pods)]
        rnd.shuffle(events)
        for event, thing in events:
            event(thing)

    def made_pod(self, name, gpus, **more):
        return pod(name, spec_=spec(gpus=gpus), **more)

    def press(self):
        self.number += 1
        made = self.made_pod(f"p{self.number}", 1, queue=self.rnd.choice("ab"), created=self.now)
        self.pods[made.uid] = made
        self.state.upsert_pod(made)

    def end(self, uid, *, again=True):
        ended = self.pods.pop(uid, None)
        if ended is None:
            return
        self.state.remove_pod(uid)
        if again and (ended.group in self.groups or not ended.group):
            self.number += 1
            made = self.made_again(ended, f"u{self.number}")
            self.pods[made.uid] = made
            self.state.upsert_pod(made)

    def made_again(self, ended, uid):
        return msgspec.structs.replace(ended, uid=uid, name=f"{ended.name}+", node="", terminating=False)

    def evict(self, uid):
        self.end(uid)

    def end_one(self):
        if self.pods:
            self.end(self.rnd.choice(sorted(self.pods)), again=self.rnd.random() < 0.7)

    def lose_member(self):
        """A member of a gang with spares goes, and comes again."""
        running = [uid for uid, each in self.pods.items() if each.node and each.group in self.groups and self.kept(each.group)]
        if running:
            self.end(self.rnd.choice(sorted(running)))

    def restart_gang(self):
        """All members go, and come again, as those of an AIJob's next attempt."""
        if self.groups:
            name = self.rnd.choice(sorted(self.groups))
            for uid in sorted(self.members(name)):
                self.end(uid)

    def end_gang(self):
        if self.groups:
            name = self.rnd.choice(sorted(self.groups))
            del self.groups[name]
            for uid in [uid for uid, each in self.pods.items() if each.group == name]:
                self.end(uid, again=False)
            self.state.remove_group(f"ns/{name}")

    def write(self, *, sure=False):
        self.rnd.shuffle(self.unwritten)
        while self.unwritten and (sure or self.rnd.random() < 0.9):
            binding = self.unwritten.pop()
            uid = binding.pod.uid
            if uid not in self.pods:
                continue
            if not sure and self.rnd.random() < 0.05:
                self.refuse(binding)
                continue
            self.bind(binding)

    def bind(self, binding):
        uid = binding.pod.uid
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node)
        self.state.pods.bound(uid)
        self.state.upsert_pod(self.pods[uid])

    def restart(self):
        """Another scheduler begins with what exists, and what the statuses have."""
        self.write(sure=True)
        groups = [msgspec.structs.replace(each, spares=tuple(self.kept(name))) for name, each in self.groups.items()]
        wanted = {
            each.name: Counter(where for where in each.spares if self.usable(where))
            for each in groups
            if all(self.members(each.name).values()) and len(self.members(each.name)) == each.min_member
        }
        self.begin()
        events = [*self.events(), *((self.state.upsert_group, each) for each in groups)]
        self.rnd.shuffle(events)
        for event, thing in events:
            event(thing)
        self.listed()
        self.state.begin(self.now)
        for name, nodes in wanted.items():
            assert Counter(self.kept(name)) == nodes, f"{name} keeps {self.kept(name)} after a restart, not {nodes}"
            self.counts["found again"] += len(nodes)
        self.judge()

    def events(self):
        """What exists, but for groups, as a scheduler that begins is told of it."""
        nodes = [(self.state.upsert_node, each) for each in self.nodes.values()]
        return [*nodes, *((self.state.upsert_pod, each) for each in self.pods.values())]

    def listed(self):
        """All that exists has been told."""

    def decide(self):
        self.now += self.rnd.choice((0.0, 1.0, 30.0, 200.0))
        before = {name: (self.members(name), self.kept(name)) for name in self.groups}
        lacking = {name: self.lacking(name) for name in self.groups}
        touched = set()
        for each in run(self.state, self.now):
            if isinstance(each, Place):
                self.unwritten += each.bindings
                touched |= {self.pods[binding.pod.uid].group for binding in each.bindings}
            elif isinstance(each, Preempt | Evict):
                assert not any(victim.pod.uid.startswith("spare/") for victim in each.victims)
                for victim in each.victims:
                    touched.add(self.pods[victim.pod.uid].group if victim.pod.uid in self.pods else "")
                    self.evict(victim.pod.uid)
        self.judge()
        for name, (members, kept) in before.items():
            self.judge_change(name, members, kept, touched)
            if lacking[name] and self.unsure.get(name, 0.0) < self.now:
                places = self.members(name)
                assert sum(map(bool, places.values())) >= self.groups[name].min_member, f"{name} lacks members beside its spares"
                self.counts["replaced"] += 1

    def lacking(self, name):
        """Whether a gang that runs lacks members that wait, and has spares for all of them."""
        members, least = self.members(name), self.groups[name].min_member
        there = sum(map(bool, members.values()))
        spares = [where for where in self.kept(name) if self.usable(where)]
        return 0 < least - there <= min(len(spares), len(members) - there) and there > 0

    # -- the judge -----------------------------------------------------------------------------

    def judge_change(self, name, members, kept, touched):
        """What a pass may do to the spares of one gang. members, kept: before it."""
        now, asked = self.spare_places(name), self.groups[name].closeness.spares
        starts = not any(members.values()) and not kept and any(self.members(name).values())
        if starts:
            assert len(now) == asked, f"{name} starts with {len(now)} of {asked} spares"
            self.counts["starts"] += bool(asked)
        if name not in touched and any(members.values()):
            lost = Counter(where for where in kept if self.usable(where)) - Counter(now)
            assert not lost, f"{name} lost its places on {lost}, and none of its members was placed or evicted"

    def judge(self):
        wrong = [each for each in invariants.violations(self.state) if "members placed" not in each]
        assert not wrong, wrong
        over = {name: left for name, left in self.free().items() if left < 0}
        assert not over, f"given away twice: {over}"
        for name, limit in LIMITS.items():
            assert self.held(name) <= limit, f"queue {name} holds {self.held(name)} of {limit}"
            used = self.state.queues.queues[name].used.get(GPU, 0) / 1000
            most = self.held(name) + self.leaving(name)
            assert self.held(name) <= used <= most, f"queue {name} is charged {used} for {self.held(name)} to {most}"
        for name, group in self.groups.items():
            kept, members = self.kept(name), {where for where in self.members(name).values() if where in self.nodes}
            assert len(kept) <= group.closeness.spares
            if members:
                assert {self.rack(where) for where in kept} <= {self.rack(where) for where in members}, f"{name} keeps {kept}"
        known = {f"ns/{name}" for name in self.groups}
        strange = [task for task in self.state.tasks.values() if task.pod.spare and task.gang.key not in known]
        assert not strange, strange

    def missing(self):
        """Gangs that run whole, keep too few places, and have room for one more that is reserved for no other job."""
        reserved = {self.state.nodes.names[row] for hold in self.state.reserved.holds.values() for row in hold.rows}
        free = {name: left for name, left in self.free().items() if name not in reserved}
        for name, group in sorted(self.groups.items()):
            members, size = self.members(name), self.size(name)
            if not all(members.values()) or len(members) < group.min_member or len(self.kept(name)) >= group.closeness.spares:
                continue
            racks = {self.rack(where) for where in members.values()}
            room = [
                each for each in free if self.holds(each, free[each], size) and self.rack(each) in racks and self.usable(each)
            ]
            if room and self.held(group.queue) + size <= LIMITS[group.queue]:
                yield name, room


STEPS = (
    *["submit"] * 4,
    *["decide"] * 6,
    *["write"] * 5,
    *["press"] * 3,
    *["end_one"] * 3,
    *["fail_node"] * 2,
    *["lose_member"] * 3,
    *("add_node", "add_node", "cordon", "reserve", "end_gang", "restart_gang", "restart"),
)


def live(world, steps, kinds=STEPS):
    for _ in range(steps):
        getattr(world, world.rnd.choice(kinds))()
        world.judge()
    for _ in range(6):
        world.now += 600.0
        world.write(sure=True)
        world.decide()
    world.write(sure=True)
    world.decide()
    assert not list(world.missing())
    while world.groups:
        world.end_gang()
    world.decide()
    world.judge()
    assert not world.state.spares.keys
    return world


@pytest.mark.parametrize("seed", range(24))
def test_what_is_kept_is_kept_for_its_gang_and_paid_for(seed):
    live(World(seed), 80)


def test_the_worlds_contain_what_is_judged():
    counts = sum((live(World(seed), 80).counts for seed in range(100, 112)), Counter())
    assert min(counts[each] for each in ("starts", "replaced", "found again")) >= 3, counts

"""Random worlds with extended resources: nodes with device plugins and nodes with devices, and nodes that change from one to the other.

Beside what the worlds of claims do, the API server serves such claims at times and at times not; classes come, change and go; a request to create a claim is carried out without an answer; and
schedulers end at any point and begin anew, so claims are there that no binding uses. The world judges that no device is given
twice, no plugin's node is given more than it has, and no pod is bound without what it requests, or has two claims with devices.
"""

import msgspec
import pytest

from fairlead.core.dra.model import DeviceClaim, DeviceClass, DeviceTemplate
from fairlead.core.model.allocations import DeviceId, FailedDevice
from fairlead.core.model.pods import ExtendedRequest
from fairlead.core.nodes.extended_resources import IMPLICIT, content_of
from tests.builders import cluster, group, pod, spec
from tests.core.test_claim_worlds import World
from tests.core.test_device_claims import DRIVER, GPU, asks

RESOURCE = "example.com/gpu"
HALF = f'device.attributes["{DRIVER}"].kind == "half"'
OFFERS = (
    msgspec.structs.replace(GPU, resource=RESOURCE),
    GPU,
    DeviceClass("half", (HALF,), resource=RESOURCE, created=1.0),
    DeviceClass("half", (HALF,), resource="example.com/half", created=1.0),
)


class Mixed(World):
    """nodes: as the scheduler has them; classes: by name, those that there are."""

    def __init__(self, seed):
        self.classes = {"gpu": OFFERS[0]}
        super().__init__(seed)
        self.state.claims.upsert(OFFERS[0])
        for each in list(self.nodes):
            if self.rnd.random() < 0.5:
                self.advertise(each.name, self.rnd.randint(1, 2))
        self.calm = False  # every write succeeds from now on
        self.doubtful = set()  # pods of which this scheduler does not know whether a claim was created
        self.by_plugin = self.by_devices = self.left_behind = self.gate_refusals = 0
        self.served = True  # the API server keeps in pods' statuses which claim they have
        self.refusals, self.refused_until = 0, 0.0  # in a row, as this scheduler has seen them

    # -- what users, drivers and administrators do ---------------------------------------------

    def advertise(self, name, count):
        for at, each in enumerate(self.nodes):
            if each.name == name:
                others = {key: value for key, value in each.allocatable.items() if key != RESOURCE}
                self.nodes[at] = msgspec.structs.replace(each, allocatable={**others, **({RESOURCE: count} if count else {})})
                self.state.upsert_node(self.nodes[at])
        self.check()

    def change_node(self):
        if self.rnd.random() < 0.3:
            self.advertise(self.rnd.choice(self.nodes).name, self.rnd.choice((0, 0, 1, 2)))

    def change_class(self):
        if self.rnd.random() < 0.6:
            return
        item = self.rnd.choice(OFFERS)
        if item.name in self.classes and item.name != "gpu" and self.rnd.random() < 0.5:
            del self.classes[item.name]
            self.state.claims.remove(DeviceClass, item.name)
        else:
            self.classes[item.name] = item
            self.state.claims.upsert(item)
        self.check()

    def create(self):
        if self.rnd.random() < 0.4:
            super().create()
            return
        self.number += 1
        name = f"p{self.number}"
        amounts = {RESOURCE: self.rnd.choice((1, 1, 2))}
        if self.rnd.random() < 0.2:
            amounts[self.rnd.choice((f"{IMPLICIT}gpu", "example.com/half"))] = 1
        found = []
        for at, (resource, amount) in enumerate(sorted(amounts.items())):
            found.append(ExtendedRequest("main", 1, resource, f"container-1-request-{at}", amount))
            if self.rnd.random() < 0.3:
                found.insert(0, ExtendedRequest("init", 0, resource, f"container-0-request-{at}", amount, brief=True))
        more = {"group": "g"} if self.rnd.random() < 0.2 else {}
        made = pod(
            name,
            spec_=spec(gpus=0, cpu=self.rnd.choice((100, 2000)), extra=amounts),
            extended=tuple(found),
            priority=self.rnd.randint(0, 2),
            created=self.now,
            **more,
        )
        self.pods[made.uid] = made
        self.tell("pod", made)

    # -- what the scheduler does ---------------------------------------------------------------

    def decide(self):
        before = len(self.unwritten)
        super().decide()
        for binding in self.unwritten[before:]:
            self.judge_place(binding)

    def judge_place(self, binding):
        """Resources that the node advertises are not had by a claim, and there are enough; all others are."""
        wanted = self.state.tasks[binding.pod.uid].pod
        row = self.state.nodes.rows[binding.node]
        there = self.state.nodes.objects[row].allocatable
        served = {each.resource for choice in binding.claims if choice.extended for each in choice.extended.mappings}
        requested = {each.resource for each in wanted.extended}
        advertised = {each for each in requested if there.get(each)}
        assert served == requested - advertised, (served, requested, advertised)
        assert not served or self.now >= self.refused_until, "the cluster refused such a claim, and the wait for it is not over"
        for resource in advertised:
            taken = sum(dict(task.pod.spec.requests).get(resource, 0) for task in self.state.nodes.pods[row].values())
            assert taken <= there[resource], f"{binding.node} is given {taken} of {there[resource]} {resource}"

    def owned(self, uid):
        return {key: claim for key, claim in self.claims.items() if claim.owner == uid and claim.extended}

    def allocate(self, binding):
        """Creating may not be answered; before it is tried again, what was created is deleted."""
        for choice in binding.claims:
            wanted = choice.extended
            if wanted is None:
                continue
            uid = binding.pod.uid
            if uid not in self.pods:
                return False
            if uid in self.doubtful:
                self.doubtful.discard(uid)
                for key in self.owned(uid):
                    self.drop(key)
            if not wanted.requests:
                self.show(uid, "")
                continue
            self.number += 1
            key = f"ns/{binding.pod.name}-made-{self.number}"
            served = self.state.tasks[uid].shape.spec.devices[-1].served
            by_name = {name: each for each in served for name, _ in each.asks}
            content = content_of([each for each in served if {name for name, _ in each.asks} & {r[0] for r in wanted.requests}])
            assert {r[0] for r in wanted.requests} <= set(by_name)
            claim = DeviceClaim(key, f"uid-{key}", content, owner=uid, extended=True)
            self.write(claim)
            if self.rnd.random() < 0.2 and not self.calm:
                self.left_behind += 1
                self.doubtful.add(uid)
                return False  # as if nothing was answered; see `release`
            self.write(msgspec.structs.replace(claim, allocation=choice.allocation, users=(uid,)))
            self.show(uid, key.partition("/")[2])
            if self.rnd.random() < 0.2 and not self.calm:
                return False  # as if the binding was refused
        plain = tuple(each for each in binding.claims if each.extended is None)
        return super().allocate(msgspec.structs.replace(binding, claims=plain))

    def show(self, uid, name):
        self.pods[uid] = msgspec.structs.replace(self.pods[uid], extended_claim=name)
        self.tell("pod", self.pods[uid])

    def drop(self, key):
        del self.claims[key]
        self.written.remove(key)
        self.tell("claim", key)

    def release(self, binding):
        plain = tuple(each for each in binding.claims if each.extended is None and not each.removed)
        super().release(msgspec.structs.replace(binding, claims=plain))
        for choice in binding.claims:
            if choice.removed and choice.claim in self.claims:
                self.drop(choice.claim)
            if choice.extended is None or binding.pod.uid in self.doubtful:
                continue
            if self.calm or self.rnd.random() < 0.7:  # else the deletion is refused
                for key in self.owned(binding.pod.uid):
                    self.drop(key)
            if binding.pod.uid in self.pods and self.pods[binding.pod.uid].extended_claim:
                self.show(binding.pod.uid, "")
        self.observe_claims()

    def switch(self):
        """The API server restarts, with another feature gate."""
        self.served = self.rnd.random() < 0.6

    def carry_out(self, *, surely=False):
        waiting, self.unwritten = self.unwritten, []
        for binding in waiting:
            by_claim = any(choice.extended is not None and choice.extended.requests for choice in binding.claims)
            if by_claim and not self.served:
                if self.now >= self.refused_until:
                    self.refusals += 1
                    self.refused_until = self.now + min(600.0, 10.0 * 2 ** (self.refusals - 1))
                self.gate_refusals += 1
                plain = tuple(each for each in binding.claims if each.extended is None)
                self.release(msgspec.structs.replace(binding, claims=plain))
                refused = FailedDevice("", DeviceId("", "", ""), "the feature gate is off", unserved=True)
                self.state.bind_failed(binding.pod.uid, self.now, (refused,))
                self.check()
            else:
                self.unwritten.append(binding)
        super().carry_out(surely=surely)

    def bind(self, binding):
        owned = self.owned(binding.pod.uid)
        needed = [choice for choice in binding.claims if choice.extended is not None and choice.extended.requests]
        if not needed:  # one that was created without an answer may be there: it has no devices, and goes with the pod
            owned = {key: claim for key, claim in owned.items() if claim.allocation is not None}
        assert len(owned) == len(needed), f"{binding.pod.name} has {sorted(owned)}"
        for key, claim in owned.items():
            assert self.pods[binding.pod.uid].extended_claim == key.partition("/")[2]
            devices = [each.device for each in claim.allocation.devices]
            assert {each.pool for each in devices} == {binding.node}
            assert len(devices) == sum(count for _, _, count in needed[0].extended.requests)
        if not needed:
            assert not self.pods[binding.pod.uid].extended_claim
        self.by_devices += bool(needed)
        if needed:
            self.refusals, self.refused_until = 0, 0.0
        self.by_plugin += bool(self.pods[binding.pod.uid].extended) and not needed
        super().bind(binding)

    def control(self):
        super().control()
        for key, claim in list(self.claims.items()):
            if claim.extended and claim.owner not in self.pods:
                self.drop(key)

    def restore(self):
        super().restore()
        self.classes["gpu"] = OFFERS[0]
        self.state.claims.upsert(OFFERS[0])

    def as_new(self):
        state = cluster(self.nodes, groups=[group("g", 2)])
        for each in (*self.classes.values(), DeviceTemplate("ns/t", asks(1)), *self.slices.values(), *self.claims.values()):
            state.claims.upsert(each)
        state.claims.all_known()
        for each in self.pods.values():
            state.upsert_pod(each)
        return state

    def begin_anew(self):
        """The scheduler ends between two writes, and another begins with what there is."""
        if self.rnd.random() > 0.15:
            return
        for binding in self.unwritten:
            if self.rnd.random() < 0.5 and binding.pod.uid in self.pods:
                self.allocate(binding)
        self.unwritten = []
        self.doubtful.clear()
        self.refusals, self.refused_until = 0, 0.0
        for events in self.events.values():
            events.clear()
        self.state = self.as_new()
        self.check()


ACTIONS = ("create", "create", "control", "end", "drive", "deliver", "deliver", "decide", "carry_out", "decide")
MORE = ("change_node", "change_class", "begin_anew", "switch")


@pytest.mark.parametrize("seed", range(40))
def test_devices_are_given_once_and_plugins_no_more_than_they_have(seed):
    world = Mixed(seed)
    for _ in range(120):
        getattr(world, world.rnd.choice((*ACTIONS, *MORE)))()
    world.restore()
    world.calm = world.served = True
    for _ in range(14):
        world.control()
        world.deliver(everything=True)
        world.now += 100
        world.decide()
        world.carry_out(surely=True)
        world.deliver(everything=True)
    assert not world.unwritten
    held = {key for key, claim in world.claims.items() if claim.allocation is not None}
    assert all(world.claims[key].users for key in held), "claims hold devices for no pod"
    for uid, each in world.pods.items():
        owned = world.owned(uid)
        assert len([claim for claim in owned.values() if claim.allocation is not None]) <= 1
        assert each.node or not owned, f"{each.name} waits, and has {sorted(owned)}"
        if each.node:
            assert bool(each.extended_claim) == any(claim.allocation is not None for claim in owned.values())
    assert not world.missed(), "a scheduler that begins now would start these"


def test_the_worlds_are_eventful():
    by_plugin = by_devices = left_behind = gate_refusals = 0
    for seed in range(6):
        world = Mixed(seed)
        for _ in range(60):
            for action in ("create", "control", "deliver", "decide", "carry_out", *MORE):
                getattr(world, action)()
            while len(world.pods) > 8:
                world.end()
        by_plugin += world.by_plugin
        by_devices += world.by_devices
        left_behind += world.left_behind
        gate_refusals += world.gate_refusals
    assert by_plugin > 10
    assert by_devices > 10
    assert left_behind > 2
    assert gate_refusals > 2

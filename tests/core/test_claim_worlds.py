"""Random worlds with ResourceClaims: events in any order, writes that fail, pods that come and go, drivers that restart.

The world is the API server and its controllers. It judges what is written: no device is in two claims, no counter is overdrawn, a
pod is bound where its claims can be used, and reserved for it. The state is walked after each step.
"""

import random
from collections import Counter, deque
from typing import ClassVar

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.dra.model import DeviceClaim, DeviceId, DeviceTemplate, Slice
from fairlead.core.dra.overlaps import Written
from fairlead.core.model.allocations import FailedDevice
from fairlead.core.model.pods import DeviceUse
from fairlead.core.model.transactions import Deallocate, Evict, Fault, Place, Preempt
from tests.builders import cluster, group, node, pod, run, spec
from tests.core.test_device_claims import GPU, asks, gpus, halves, held

SIZES = {"whole": 2, "half-0": 1, "half-1": 1}


class World:
    """What the API server has; what of it the scheduler has not seen yet is in `events`, in order for each kind."""

    policy: ClassVar[dict[str, float]] = {}

    def __init__(self, seed):
        self.rnd = rnd = random.Random(seed)
        self.now = 0.0
        self.number = self.version = 0
        hosts = [f"n{each}" for each in range(rnd.randint(1, 3))]
        self.nodes = [node(each, gpus=0, cpu=rnd.choice((4000, 64_000))) for each in hosts]
        self.state = cluster(self.nodes, groups=[group("g", 2)], **self.policy)
        self.slices = {}
        for each in hosts:
            found = [gpus(each, rnd.randint(1, 3))] if rnd.random() < 0.4 else halves(each, rnd.randint(1, 3))
            self.slices.update({item.name: item for item in found})
        self.claims, self.pods, self.deleted = {}, {}, set()
        self.events = {kind: deque() for kind in ("pod", "claim", "slice")}
        self.unwritten = []  # bindings on their way
        self.written = Written()  # as the adapter reads it
        self.racing = False
        self.overlapped = self.bound = 0
        self.bad = {}  # devices that cannot be bound: since when they failed last, and how long they are not tried again
        self.state.claims.upsert(GPU)
        self.state.claims.upsert(DeviceTemplate("ns/t", asks(1)))
        for each in self.slices.values():
            self.tell("slice", each)
            self.written.put_slice(each)
        self.state.claims.all_known()

    def check(self):
        # A member may have ended; and another scheduler may give away what is being written here.
        known = ("members placed", "ns/foreign")
        wrong = [each for each in invariants.violations(self.state) if not any(one in each for one in known)]
        assert not wrong, wrong

    def tell(self, kind, event):
        self.events[kind].append(event)

    def deliver(self, *, everything=False):
        while kinds := [kind for kind, events in self.events.items() if events]:
            kind = self.rnd.choice(kinds)
            event = self.events[kind].popleft()
            removed = isinstance(event, str)
            if kind == "pod":
                self.state.remove_pod(event) if removed else self.state.upsert_pod(event)
            elif removed:
                self.state.claims.remove(DeviceClaim if kind == "claim" else Slice, event)
            else:
                self.state.claims.upsert(event)
            self.check()
            if not everything and self.rnd.random() < 0.2:
                return

    def observe_claims(self):
        while self.events["claim"]:
            event = self.events["claim"].popleft()
            self.state.claims.remove(DeviceClaim, event) if isinstance(event, str) else self.state.claims.upsert(event)
            self.check()

    # -- what users, controllers and drivers do ------------------------------------------------

    def create(self):
        self.number += 1
        name = f"p{self.number}"
        uses = []
        for at in range(self.rnd.choice((1, 1, 1, 2))):
            kind = self.rnd.choice(("own", "own", "template", "shared"))
            if kind == "template":
                uses.append(DeviceUse(f"u{at}", "", "ns/t"))
                continue
            key = f"ns/{name}-{at}" if kind == "own" else f"ns/shared-{self.rnd.randint(0, 2)}"
            if key in {each.key for each in uses}:
                continue
            if key not in self.claims and self.rnd.random() < 0.9:
                self.make(key)
            uses.append(DeviceUse(f"u{at}", key))
        more = {"group": "g"} if self.rnd.random() < 0.2 else {}
        cpu = self.rnd.choice((100, 100, 2000))
        made = pod(
            name, spec_=spec(gpus=0, cpu=cpu), claims=tuple(uses), priority=self.rnd.randint(0, 2), created=self.now, **more
        )
        self.pods[made.uid] = made
        self.tell("pod", made)

    def make(self, key, owner=""):
        kind = self.rnd.choice(("", "whole", "half"))
        self.claims[key] = DeviceClaim(key, f"uid-{key}", asks(self.rnd.choice((1, 1, 2)), kind=kind), owner=owner)
        self.tell("claim", self.claims[key])

    def control(self):
        """Claims of templates are made, reservations of pods that are gone end, and claims that nothing reserves are free."""
        for uid, each in list(self.pods.items()):
            if any(not use.key for use in each.claims):
                uses = []
                for use in each.claims:
                    key = use.key or f"ns/{each.name}-{use.name}-made"
                    if key not in self.claims and not use.key:
                        self.make(key, uid)
                    uses.append(DeviceUse(use.name, key, use.template))
                self.pods[uid] = msgspec.structs.replace(each, claims=tuple(uses))
                self.tell("pod", self.pods[uid])
        for key, claim in list(self.claims.items()):
            users = tuple(each for each in claim.users if each in self.pods)
            if users != claim.users and not claim.foreign:
                self.write(msgspec.structs.replace(claim, users=users, allocation=claim.allocation if users else None))
            elif claim.owner and claim.owner not in self.pods:
                del self.claims[key]
                self.written.remove(key)
                self.tell("claim", key)

    def write(self, claim):
        self.claims[claim.key] = claim
        self.version += 1
        self.written.put(claim.key, claim.allocation, self.version)
        self.tell("claim", claim)
        if not self.racing:
            self.judge()

    def end(self):
        if self.pods:
            self.delete(self.rnd.choice(sorted(self.pods)))

    def delete(self, uid):
        if self.pods.pop(uid, None) is not None:
            self.tell("pod", uid)

    def drive(self):
        """A driver restarts: its slices go and come back as they were."""
        name = self.rnd.choice(sorted(self.slices))
        self.tell("slice", name)
        if self.rnd.random() < 0.8:
            self.tell("slice", self.slices[name])
        else:
            self.now += 1

    def restore(self):
        for each in self.slices.values():
            self.tell("slice", each)

    # -- what the scheduler does ---------------------------------------------------------------

    def decide(self):
        self.now += self.rnd.choice((0.1, 1.0, 30.0))
        for each in run(self.state, self.now):
            self.check()
            assert not isinstance(each, Fault), each
            if isinstance(each, Place):
                self.unwritten += each.bindings
                self.judge_avoided(each.bindings)
            elif isinstance(each, Preempt | Evict):
                for victim in each.victims:
                    self.deleted.add(victim.pod.uid)
            elif isinstance(each, Deallocate):
                for binding in each.bindings:
                    self.release(binding)
        self.check()

    def judge_avoided(self, bindings):
        """What failed a moment ago is not taken again; a claim that another pod uses keeps what it has, and nothing is taken."""
        for choice in (choice for binding in bindings for choice in binding.claims if choice.decided):
            claim = self.claims.get(choice.claim)
            if claim is not None and claim.users and claim.allocation == choice.allocation:
                continue
            for each in choice.allocation.devices if choice.allocation is not None else ():
                last = self.bad.get(each.device)
                assert last is None or self.now - last >= 10.0, f"{each.device} failed {self.now - last} s ago"

    def break_one(self):
        """A device cannot be bound from now on, or one can again."""
        if self.bad and self.rnd.random() < 0.4:
            self.bad.pop(self.rnd.choice(sorted(self.bad)))
            return
        known = [(item, each) for item in self.slices.values() for each in item.devices]
        item, chosen = self.rnd.choice(known)
        self.bad.setdefault(DeviceId(item.driver, item.pool, chosen.name), None)

    def carry_out(self, *, surely=False):
        waiting, self.unwritten = self.unwritten, []
        for binding in waiting:
            failed = tuple(
                FailedDevice(choice.claim, each.device, "condition Broken")
                for choice in binding.claims
                for each in (choice.allocation.devices if choice.allocation is not None else ())
                if each.device in self.bad
            )
            if not surely and self.rnd.random() < 0.2:
                self.unwritten.append(binding)
            elif failed and not surely:
                self.allocate(binding)
                self.release(binding)
                self.state.bind_failed(binding.pod.uid, self.now, failed)
                for each in failed:
                    self.bad[each.device] = self.now
            elif (not surely and self.rnd.random() < 0.15) or not self.allocate(binding) or binding.pod.uid not in self.pods:
                self.release(binding)
                self.state.bind_failed(binding.pod.uid, self.now)
            else:
                self.bind(binding)
            self.check()
        for uid in sorted(self.deleted):
            if surely or self.rnd.random() < 0.5:
                self.deleted.discard(uid)
                self.delete(uid)

    def other_scheduler(self):
        """Another scheduler allocates a device that is free by what is written, or gives one back."""
        key = f"ns/foreign-{self.rnd.randint(0, 3)}"
        if key in self.claims and self.claims[key].allocation is not None:
            self.write(DeviceClaim(key, f"uid-{key}", asks(1)))
            return
        item = self.rnd.choice([each for each in self.slices.values() if each.devices])
        names = [each.name for each in item.devices]
        on_their_way = [
            each.device
            for binding in self.unwritten
            for choice in binding.claims
            for each in (choice.allocation.devices if choice.allocation is not None else ())
            if choice.decided and each.device.pool == item.pool
        ]
        if on_their_way and self.rnd.random() < 0.8:  # that device, or another part of its GPU
            gpu = self.rnd.choice(on_their_way).device[:5]
            names = [each for each in names if each.startswith(gpu)]
        chosen = held(item.pool, self.rnd.choice(names))
        self.racing = True
        self.write(DeviceClaim(key, f"uid-{key}", asks(1), allocation=chosen, foreign=True))
        self.racing = False
        if self.written.overlap(key) is not None:  # it was not free: as if that had not been written
            self.write(DeviceClaim(key, f"uid-{key}", asks(1)))

    def allocate(self, binding):
        """As the adapter does: what was given to another meanwhile is refused, and what overlaps with others is released."""
        self.racing = True
        try:
            if not self.written_all(binding):
                return False
            overlaps = [self.written.overlap(each.claim) for each in binding.claims]
            self.overlapped += any(overlaps)
            return not any(overlaps)
        finally:
            self.racing = False

    def written_all(self, binding):
        """Every claim by its version."""
        for choice in binding.claims:
            claim = self.claims.get(choice.claim)
            if claim is None or choice.allocation is None or binding.pod.uid not in self.pods:
                return False
            if choice.decided and claim.allocation is not None and claim.allocation.devices != choice.allocation.devices:
                return False
            if claim.allocation is None and not choice.decided:
                return False
            users = (*claim.users, *([] if binding.pod.uid in claim.users else [binding.pod.uid]))
            self.write(msgspec.structs.replace(claim, allocation=claim.allocation or choice.allocation, users=users))
        return True

    def release(self, binding):
        self.racing = True
        for choice in binding.claims:
            claim = self.claims.get(choice.claim)
            if claim is None:
                continue
            users = tuple(each for each in claim.users if each != binding.pod.uid)
            keeps = users or not choice.decided or claim.allocation != choice.allocation
            if keeps and not users and claim.allocation is not None:
                continue  # nobody would free it once the pod is gone
            changed = msgspec.structs.replace(claim, users=users, allocation=claim.allocation if keeps else None)
            if changed != claim:
                self.write(changed)
        self.racing = False
        self.judge()
        self.observe_claims()  # the adapter waits until the watch has delivered what it took back

    def bind(self, binding):
        found = self.pods[binding.pod.uid]
        for use in found.claims:
            claim = self.claims[use.key]
            assert claim.allocation is not None, f"{found.name} is bound without devices"
            assert found.uid in claim.users, f"{found.name} is bound, and {use.key} is not reserved for it"
            pools = {each.device.pool for each in claim.allocation.devices}
            assert pools <= {binding.node}, f"{found.name} is bound to {binding.node}, and {use.key} has devices of {pools}"
        self.bound += 1
        self.pods[found.uid] = msgspec.structs.replace(found, node=binding.node)
        self.state.pods.bound(found.uid)
        self.tell("pod", self.pods[found.uid])

    def as_new(self):
        """A scheduler that begins now."""
        state = cluster(self.nodes, groups=[group("g", 2)], **self.policy)
        for each in (GPU, DeviceTemplate("ns/t", asks(1)), *self.slices.values(), *self.claims.values()):
            state.claims.upsert(each)
        state.claims.all_known()
        for each in self.pods.values():
            state.upsert_pod(each)
        return state

    def missed(self):
        """What a scheduler that begins now would start, or take back, and this one does not.

        What waits because its place is reserved for a job that has waited for longer is not missed: no job has a reservation yet
        where a scheduler begins.
        """
        kept = {uid for uid, task in self.state.tasks.items() if task.reported is ReasonCode.RESERVATION}
        found = [each for each in run(self.as_new(), self.now) if isinstance(each, Place | Deallocate)]
        return [each for each in found if not {binding.pod.uid for binding in each.bindings} <= kept]

    def judge(self):
        """No device is in two claims, and no GPU is more than whole."""
        holders = Counter()
        memory = Counter()
        for claim in self.claims.values():
            for each in claim.allocation.devices if claim.allocation is not None else ():
                name = str(each.device)
                holders[name] += 1
                gpu, _, part = each.device.device[4:].partition("-")
                if part:
                    memory[each.device.pool, gpu] += SIZES[part]
        assert all(count == 1 for count in holders.values()), f"given twice: {holders}"
        assert all(amount <= 2 for amount in memory.values()), f"overdrawn: {memory}"


@pytest.mark.parametrize("seed", range(60))
def test_devices_are_given_once_whatever_happens(seed):
    come_to_rest(World(seed), seed)


def come_to_rest(world, seed):
    """Whatever happens in a world, it is judged at each step, and once everything comes to rest."""
    actions = (world.create, world.create, world.control, world.end, world.drive, world.deliver, world.deliver, world.decide)
    for _ in range(120):
        more = [*([world.break_one] if seed % 2 else []), *([world.other_scheduler] if seed % 3 == 0 else [])]
        world.rnd.choice((*actions, world.carry_out, world.decide, *more))()
    # Everything comes to rest: what waits then could not start.
    world.restore()
    world.bad.clear()
    for _ in range(12):
        world.control()
        world.deliver(everything=True)
        world.now += 100
        world.decide()
        world.carry_out(surely=True)
        world.deliver(everything=True)
    assert not world.unwritten
    having = {key for key, claim in world.claims.items() if claim.allocation is not None}
    assert all(world.claims[key].users or world.claims[key].foreign for key in having), "claims hold devices for no pod"
    assert not world.missed(), "a scheduler that begins now would start these"


def test_the_worlds_are_eventful():
    world = World(3)
    for _ in range(150):
        for action in (world.create, world.control, world.deliver, world.decide, world.carry_out, world.deliver):
            action()
        while len(world.pods) > 8:
            world.end()
    assert world.bound > 20


def test_another_scheduler_gives_away_what_is_being_bound():
    world = World(6)
    for _ in range(200):
        actions = (
            world.create,
            world.control,
            world.deliver,
            world.decide,
            world.other_scheduler,
            world.carry_out,
            world.deliver,
        )
        for action in actions:
            action()
        while len(world.pods) > 6:
            world.end()
    assert world.overlapped > 10
    assert world.bound > 10

"""A cluster in which time passes and jobs with claims come, run for as long as they do, and end.

It is the API server and its controllers without delays: claims have in their status what was decided as soon as it is written, and
nothing once their pods are gone.
"""

from collections import Counter
from heapq import heappop, heappush

import msgspec

from fairlead.core import invariants
from fairlead.core.dra.model import DeviceClaim, DeviceTemplate
from fairlead.core.model.pods import DeviceUse
from fairlead.core.model.transactions import Deallocate, Evict, Fault, Place, Preempt
from tests.builders import cluster, node, pod, run, spec
from tests.core.test_device_claims import GPU


class ClaimStream:
    """lengths: name -> seconds that a pod runs. started: name -> when. remade: whether a controller makes evicted pods again."""

    def __init__(self, hosts, items, cpu=64_000, groups=(), classes=(), queues=(), *, remade=False, **policy):
        self.nodes = [node(each, gpus=0, cpu=cpu) for each in hosts]
        self.state = cluster(self.nodes, queues, groups=groups, **policy)
        for each in classes:
            self.state.upsert_class(each)
        for each in (GPU, *items):
            self.state.claims.upsert(each)
        self.state.claims.all_known()
        self.slices = {each.name: each for each in items}
        self.remade = remade
        self.now, self.ends, self.lengths, self.started, self.evicted = 0.0, [], {}, {}, []
        self.claims, self.pods, self.where = {}, {}, {}
        self.moved, self.serial = 0, 0

    def submit(self, name, length, asks=(), shared=(), cpu=100, **more):
        """asks: what each of its claims asks for, made from templates. shared: keys of claims that it names."""
        uses = []
        for at, each in enumerate(asks):
            template = DeviceTemplate(f"ns/t{self.template(each)}", each)
            self.state.claims.upsert(template)
            uses.append(DeviceUse(f"u{at}", "", template.key))
        uses += [DeviceUse(f"s{at}", key) for at, key in enumerate(shared)]
        self.lengths[name] = length
        made = pod(name, spec_=spec(gpus=0, cpu=cpu), created=self.now, claims=tuple(uses), **more)
        self.create(made)

    _templates: dict

    def template(self, asks):
        known = self.__dict__.setdefault("_templates", {})
        return known.setdefault(asks, len(known))

    def create(self, made):
        """A pod comes, and its claims of templates are made."""
        uses = []
        for use in made.claims:
            key = use.key or f"ns/{made.name}-{use.name}"
            if use.template:
                asks = self.state.device_claims.templates[use.template].asks
                self.write(DeviceClaim(key, f"uid-{key}", asks, owner=made.uid))
            uses.append(DeviceUse(use.name, key, use.template))
        made = msgspec.structs.replace(made, claims=tuple(uses))
        self.pods[made.uid] = made
        self.state.upsert_pod(made)

    def share(self, name, asks):
        """A claim that pods may name."""
        self.write(DeviceClaim(f"ns/{name}", f"uid-{name}", asks))

    def write(self, claim):
        self.claims[claim.key] = claim
        self.state.claims.upsert(claim)
        self.judge()

    def delete(self, uid):
        """A pod is gone: then its claims are free, and those made for it are gone, too."""
        made = self.pods.pop(uid)
        self.where.pop(uid, None)
        self.state.remove_pod(uid)
        for use in made.claims:
            claim = self.claims[use.key]
            users = tuple(each for each in claim.users if each != uid)
            if use.template:
                del self.claims[use.key]
                self.state.claims.remove(DeviceClaim, use.key)
            elif users != claim.users:
                self.write(msgspec.structs.replace(claim, users=users, allocation=claim.allocation if users else None))

    def remake(self, old):
        """A controller makes a pod instead of one that is gone."""
        self.serial += 1
        name = f"{old.name.partition('+')[0]}+{self.serial}"
        uses = tuple(DeviceUse(use.name, "" if use.template else use.key, use.template) for use in old.claims)
        again = msgspec.structs.replace(
            old, uid=f"uid-{name}", name=name, node="", claims=uses, spec=msgspec.structs.replace(old.spec, devices=())
        )
        self.lengths[name] = self.lengths[old.name]
        self.create(again)

    def step(self):
        """What ended is gone; passes until nothing more is decided. Returns what was placed."""
        while self.ends and self.ends[0][0] <= self.now:
            _, uid = heappop(self.ends)
            if uid in self.pods:
                self.delete(uid)
        found = {}
        for _ in range(60):
            transactions = run(self.state, self.now)
            acted = False
            for each in transactions:
                assert not isinstance(each, Fault), each
                if isinstance(each, Place):
                    acted = True
                    found.update(self.bind(each))
                elif isinstance(each, Preempt | Evict):
                    acted = True
                    self.moved += len(getattr(each, "moved", ()))
                    self.evict(each)
                elif isinstance(each, Deallocate):
                    acted = True
                    for binding in each.bindings:
                        for choice in binding.claims:
                            self.write(msgspec.structs.replace(self.claims[choice.claim], users=(), allocation=None))
            invariants.check(self.state)
            if not acted:
                return found
        raise AssertionError("it never comes to rest")

    def evict(self, transaction):
        for victim in transaction.victims:
            old = self.pods[victim.pod.uid]
            self.evicted.append(old.name)
            self.delete(old.uid)
            if self.remade and old.controlled:
                self.remake(old)

    def bind(self, place):
        found = {}
        for binding in place.bindings:
            uid = binding.pod.uid
            for choice in binding.claims:
                claim = self.claims[choice.claim]
                assert choice.allocation is not None
                assert claim.allocation is None or claim.allocation.devices == choice.allocation.devices
                self.write(
                    msgspec.structs.replace(claim, allocation=claim.allocation or choice.allocation, users=(*claim.users, uid))
                )
            bound = self.pods[uid] = msgspec.structs.replace(self.pods[uid], node=binding.node)
            assert all(self.claims[use.key].allocation is not None for use in bound.claims), f"{bound.name} has no devices"
            self.where[uid] = binding.node
            self.state.pods.bound(uid)
            self.state.upsert_pod(bound)
            found[bound.name] = binding.node
            self.started.setdefault(bound.name.partition("+")[0], self.now)
            heappush(self.ends, (self.now + self.lengths[bound.name], uid))
        return found

    def judge(self):
        """No device is in two claims, and no counter is overdrawn."""
        holders, consumed = Counter(), Counter()
        for claim in self.claims.values():
            for each in claim.allocation.devices if claim.allocation is not None else ():
                holders[each.device] += 1
                device = self.state.device_claims.devices.known[each.device]
                for name, amounts in device.counters:
                    for counter, amount in amounts:
                        consumed[each.device.pool, name, counter] += amount
        assert all(count == 1 for count in holders.values()), f"given twice: {holders}"
        totals = {
            (item.pool, name, counter): amount
            for item in self.slices.values()
            for name, counters in getattr(item, "counters", ())
            for counter, amount in counters.items()
        }
        assert all(amount <= totals[key] for key, amount in consumed.items()), f"overdrawn: {consumed}"

"""Random worlds with gangs that keep spare places and whose members have ResourceClaims of templates.

The worlds of `test_spare_worlds.py`, where all GPUs are devices of claims: whole ones, or halves of the same ones. Controllers make
the claims of pods later than these, and free them later than pods are gone. The judge knows what claims have by their
statuses and by bindings on their way. Beside these, each node has devices left for the spares that are kept there.
"""

from collections import Counter

import msgspec
import pytest

from fairlead.core.dra.model import DeviceClaim, DeviceTemplate, Slice
from fairlead.core.model.pods import DeviceUse
from tests.builders import node, pod, spec
from tests.core.test_device_claims import GPU, asks, halves
from tests.core.test_spare_worlds import STEPS, World, live

TEMPLATES = {0.5: ("ns/half", asks(1, kind="half")), 1: ("ns/one", asks(1, kind="whole")), 2: ("ns/two", asks(2, kind="whole"))}
SIZES = {key: size for size, (key, _) in TEMPLATES.items()}


class ClaimWorld(World):
    """claims: those that exist, by key. evicted: pods that were, by UID."""

    gangs = (0.5, 1, 1, 2)

    def __init__(self, seed):
        self.slices, self.claims, self.evicted = {}, {}, {}
        super().__init__(seed)

    def begin(self):
        super().begin()
        if not self.slices:
            for event, thing in self.devices():
                event(thing)
            self.listed()

    def devices(self):
        given = [GPU, *(DeviceTemplate(key, asks_) for key, asks_ in TEMPLATES.values())]
        given += [each for slices in self.slices.values() for each in slices]
        return [(self.state.claims.upsert, each) for each in (*given, *self.claims.values())]

    def events(self):
        return [*super().events(), *self.devices()]

    def listed(self):
        self.state.claims.all_known()

    # -- what the judge knows ------------------------------------------------------------------

    def offers(self, name):
        return len(self.slices[name][1].devices) // 3

    def asked(self, pod_):
        return sum(SIZES[use.template] for use in pod_.claims)

    def leaving(self, queue_name):
        """Victims that are gone count as terminating while their claims have devices, unless another has their place.

        Those that move are charged at both places once their node fails.
        """
        ours = {uid for uid, each in self.evicted.items() if each.queue == queue_name}
        had = (each for each in self.claims.values() if each.owner in ours and each.allocation is not None)
        return 2 * sum(self.asked(self.evicted[each.owner]) for each in had)

    def given(self):
        """The devices that claims have, or are to get: (node, GPU, whole or which half) -> keys of claims."""
        found = {}
        allocations = {key: each.allocation for key, each in self.claims.items() if each.allocation is not None}
        for binding in self.unwritten:
            for choice in binding.claims:
                if binding.pod.uid in self.pods and choice.claim in self.claims:
                    allocations.setdefault(choice.claim, choice.allocation)
        for key, allocation in allocations.items():
            for each in allocation.devices:
                found.setdefault((each.device.pool, *each.device.device.split("-")[1:]), []).append(key)
        return found

    def judge(self):
        super().judge()
        given = self.given()
        assert all(len(keys) == 1 for keys in given.values()), f"given twice: {given}"
        parts = self.parts(given)
        assert all(amount <= 1 for amount in parts.values()), f"overdrawn: {parts}"
        for name in self.nodes:
            wanted, left = self.kept_on(name), self.left_of_each(name, parts)
            assert _fit(wanted, left), f"{name} keeps {wanted}, and has {left} left"

    @staticmethod
    def parts(given):
        """How much of each GPU is held."""
        found = {}
        for name, gpu, kind, *_ in given:
            found[name, gpu] = found.get((name, gpu), 0.0) + (1 if kind == "whole" else 0.5)
        return found

    def left_of_each(self, name, parts):
        return [1.0 - parts.get((name, str(gpu)), 0.0) for gpu in range(self.offers(name))]

    def kept_on(self, name):
        return [self.size(gang) for gang in self.groups for where in self.kept(gang) if where == name]

    def holds(self, name, left, size):
        return left >= size and _fit([*self.kept_on(name), size], self.left_of_each(name, self.parts(self.given())))

    def lacking(self, name):
        """The claims of its members are there."""
        uids = self.members(name)
        return all(use.key in self.claims for uid in uids for use in self.pods[uid].claims) and super().lacking(name)

    # -- what may happen -----------------------------------------------------------------------

    def made_node(self, name, gpus, labels):
        self.slices[name] = halves(name, gpus)
        for each in self.slices[name]:
            self.state.claims.upsert(each)
        return node(name, gpus=0, labels=labels)

    def made_pod(self, name, gpus, **more):
        gpus = self.rnd.choice((0.5, 1)) if gpus == 1 and not more.get("group") else gpus
        use = DeviceUse("gpu", "", TEMPLATES[gpus][0])
        return pod(name, spec_=spec(gpus=0), claims=(use,), **more)

    def made_again(self, ended, uid):
        uses = tuple(DeviceUse(use.name, "", use.template) for use in ended.claims)
        return msgspec.structs.replace(super().made_again(ended, uid), claims=uses)

    def fail_node(self):
        before = set(self.nodes)
        super().fail_node()
        for name in before - set(self.nodes):
            for each in self.slices.pop(name):
                self.state.claims.remove(Slice, each.name)

    def evict(self, uid):
        if uid in self.pods:
            self.evicted[uid] = self.pods[uid]
        super().evict(uid)

    def write(self, *, sure=False):
        if sure:
            self.control()
        super().write(sure=sure)

    def control(self):
        """Claims are made for pods, and go with them."""
        for uid, each in list(self.pods.items()):
            if not all(use.key for use in each.claims):
                self.make_claims(uid, each)
        for key, each in list(self.claims.items()):
            if each.owner not in self.pods:
                del self.claims[key]
                self.state.claims.remove(DeviceClaim, key)

    def make_claims(self, uid, made):
        uses = []
        for use in made.claims:
            key = f"ns/{uid}-{use.name}"
            asks_ = TEMPLATES[SIZES[use.template]][1]
            self.claims[key] = DeviceClaim(key, f"uid-{key}", asks_, owner=uid)
            self.state.claims.upsert(self.claims[key])
            uses.append(DeviceUse(use.name, key, use.template))
        self.pods[uid] = msgspec.structs.replace(made, claims=tuple(uses))
        self.state.upsert_pod(self.pods[uid])

    def bind(self, binding):
        for choice in binding.claims:
            assert choice.allocation is not None, f"{binding.pod.name} has no devices"
            pools = {each.device.pool for each in choice.allocation.devices}
            assert pools == {binding.node}, f"{binding.pod.name} goes to {binding.node}, with devices of {pools}"
            claim = msgspec.structs.replace(self.claims[choice.claim], allocation=choice.allocation, users=(binding.pod.uid,))
            self.claims[choice.claim] = claim
            self.state.claims.upsert(claim)
        super().bind(binding)


def _fit(wanted, left):
    """Whether these sizes are to be had of GPUs of which so much is left: whole ones first, then halves."""
    needed = sum(size for size in wanted if size >= 1)
    return needed <= left.count(1.0) and wanted.count(0.5) <= 2 * (left.count(1.0) - needed) + left.count(0.5)


KINDS = (*(each for each in STEPS if each != "reserve"), *["control"] * 8)


@pytest.mark.parametrize("seed", range(24))
def test_devices_of_spares_are_there_for_replacements_and_for_nothing_else(seed):
    live(ClaimWorld(seed), 80, KINDS)


def test_the_worlds_contain_what_is_judged():
    counts = sum((live(ClaimWorld(seed), 80, KINDS).counts for seed in range(100, 110)), Counter())
    assert min(counts[each] for each in ("starts", "replaced", "found again")) >= 3, counts

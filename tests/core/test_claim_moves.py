"""Pods with ResourceClaims that move: against a judge that tries everything, and in worlds whose events come in any order."""

from typing import ClassVar

import msgspec
import pytest

from fairlead.core.dra.model import DeviceClaim, DeviceTemplate
from fairlead.core.dra.overlaps import Written
from fairlead.core.model.pods import DeviceUse
from fairlead.core.model.transactions import Preempt
from tests.builders import pod, run, spec
from tests.core.claim_moving import World
from tests.core.test_claim_worlds import World as Shaken
from tests.core.test_claim_worlds import come_to_rest
from tests.core.test_device_claims import asks, halves


@pytest.mark.parametrize("seed", range(120))
def test_as_few_move_as_a_judge_finds(seed):
    world = World(seed)
    fewest = world.fewest()
    world.ask()
    stream = world.stream
    plans = [each for each in run(stream.state, stream.now) if isinstance(each, Preempt)]
    moved = sum(len(each.moved) for each in plans)
    if fewest is None:
        return
    if fewest == 0:
        assert not plans
        return
    assert moved == fewest, (world.free, world.movable, world.wanted)


TEMPLATE = DeviceTemplate("ns/halves", asks(1, kind="half"))


class Moving(Shaken):
    """The same worlds with controllers, which make pods again that were evicted: some of these move."""

    policy: ClassVar = {"move_patience": 0.0, "moves_per_minute": 600.0, "reservations": 0}

    def __init__(self, seed):
        super().__init__(seed)
        for host in sorted({item.pool for item in self.slices.values()}):
            for item in [each for each in self.slices.values() if each.pool == host]:
                del self.slices[item.name]
            self.slices.update({item.name: item for item in halves(host, self.rnd.randint(2, 4))})
        self.events["slice"].clear()
        self.written = Written()
        for item in self.slices.values():
            self.written.put_slice(item)
        self.restore()
        self.state.claims.upsert(TEMPLATE)

    def create(self):
        """Most ask for halves by a template, some for a whole GPU, and some share a claim."""
        self.number += 1
        name, kind = f"p{self.number}", self.rnd.choice(("half", "half", "half", "whole", "both", "shared"))
        uses = [DeviceUse("own", "", TEMPLATE.key)] if kind in ("half", "both") else []
        if kind == "whole":
            uses = [DeviceUse("one", f"ns/{name}")]
            self.make_claim(f"ns/{name}", "whole")
        elif kind != "half":
            key = f"ns/shared-{self.rnd.randint(0, 1)}"
            uses.append(DeviceUse("shared", key))
            if key not in self.claims:
                self.make_claim(key, "half")
        more = {"group": "g"} if self.rnd.random() < 0.1 else {}
        made = pod(name, spec_=spec(gpus=0, cpu=100), claims=tuple(uses), created=self.now, **more)
        if self.rnd.random() < 0.9:
            made = msgspec.structs.replace(made, controlled=True, owner=f"owner-{name}")
        self.pods[made.uid] = made
        self.tell("pod", made)

    def make(self, key, owner=""):
        """The claim of a pod, by its template."""
        self.make_claim(key, "half", owner=owner)

    def make_claim(self, key, kind, **more):
        self.claims[key] = DeviceClaim(key, f"uid-{key}", asks(1, kind=kind), **more)
        self.tell("claim", self.claims[key])

    def as_new(self):
        state = super().as_new()
        state.claims.upsert(TEMPLATE)
        return state

    def delete(self, uid):
        old = self.pods.get(uid)
        super().delete(uid)
        if old is not None and old.controlled and uid in self.to_make:
            self.to_make.discard(uid)
            self.number += 1
            name = f"p{self.number}"
            uses = tuple(DeviceUse(use.name, "" if use.template else use.key, use.template) for use in old.claims)
            spec = msgspec.structs.replace(old.spec, devices=())
            again = msgspec.structs.replace(old, uid=f"uid-{name}", name=name, node="", claims=uses, spec=spec)
            self.pods[again.uid] = again
            self.tell("pod", again)

    @property
    def to_make(self):
        """Pods that were evicted, whose controllers make others once they are gone."""
        return self.__dict__.setdefault("_to_make", set())

    def judge_avoided(self, bindings):
        """Devices of a place that is kept for a pod that moves were decided before, and may have failed since: they are tried."""

    def decide(self):
        before = set(self.deleted)
        super().decide()
        self.to_make.update(self.deleted - before)


@pytest.mark.parametrize("seed", range(60))
def test_devices_are_given_once_while_pods_move(seed):
    come_to_rest(Moving(seed), seed)

"""Claims that contradict each other: several schedulers gave away the same device, a GPU and its parts, or more than a capacity.

The core counts what is there and never raises; nothing that overlaps is given away on top of it, and what it decides does not depend
on the order in which it learned of the claims.
"""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.dra import model
from fairlead.core.dra.model import Allocation, Ask, Capacity, Chosen, Claim, DeviceClaim, DeviceId, Request
from fairlead.core.dra.overlaps import Written
from fairlead.core.model.transactions import Place
from tests.builders import placed, run
from tests.core.test_device_claims import DRIVER, allocated, claim, halves, held, state_of, uses


def with_shares(host):
    """Two GPUs that are whole or halves, and a device of 4 GiB that is shared; it consumes half of the first GPU."""
    counters, devices = halves(host, 2)
    shared = model.Device(
        "shared", DRIVER, {"kind": "shared"}, {"memory": Capacity(4)}, (("gpu-0", (("memory", 1),)),), multiple=True
    )
    return counters, msgspec.structs.replace(devices, devices=(*devices.devices, shared))


def share_of(host, amount):
    chosen = Chosen("r0", DeviceId(DRIVER, host, "shared"), shared=True, consumed=(("memory", amount),))
    return msgspec.structs.replace(held(host), devices=(chosen,))


def wants_share(name, amount):
    selectors = (f'device.attributes["{DRIVER}"].kind == "shared"',)
    asks = Claim("", "", (Request("r0", (Ask("r0", "gpu", selectors=selectors, capacity=(("memory", amount),)),)),))
    return DeviceClaim(f"ns/{name}", f"uid-{name}", asks)


def test_no_part_of_a_gpu_is_given_away_that_another_scheduler_gave_away_as_a_whole():
    state = state_of(*with_shares("a"), hosts=("a",))
    state.claims.upsert(claim("x", allocation=held("a", "gpu-0-whole"), foreign=True))
    state.claims.upsert(claim("y", allocation=held("a", "gpu-0-half-1"), foreign=True))
    for each in (claim("c", kind="half"), claim("d", kind="whole")):
        state.claims.upsert(each)
    state.upsert_pod(uses("p", "c"))
    state.upsert_pod(uses("q", "d"))
    assert allocated(run(state)) == {}, "the pool is overdrawn: nothing of it is given away"
    state.claims.remove(DeviceClaim, "ns/y")
    assert allocated(run(state, 1)) in ({"ns/c": ["gpu-1-half-0"]}, {"ns/d": ["gpu-1-whole"]})


def test_a_device_whose_capacity_is_exceeded_is_full_until_that_ends():
    state = state_of(*with_shares("a"), hosts=("a",))
    state.claims.upsert(claim("x", allocation=share_of("a", 3), foreign=True))
    state.claims.upsert(claim("y", allocation=share_of("a", 3), foreign=True))
    state.claims.upsert(wants_share("c", 1))
    state.upsert_pod(uses("p", "c"))
    assert placed(run(state)) == {}
    state.claims.remove(DeviceClaim, "ns/x")
    assert placed(run(state, 1)) == {"p": "a"}


@pytest.mark.parametrize("seed", range(60))
def test_whatever_claims_hold_nothing_is_given_away_that_overlaps_with_it(seed):
    rnd = random.Random(seed)
    slices = with_shares("a")
    names = [each.name for each in slices[1].devices if each.name != "shared"]
    state, written = state_of(*slices, hosts=("a",)), Written()
    for each in slices:
        written.put_slice(each)
    there, number = {}, 0
    for step in range(40):
        action = rnd.random()
        number += 1
        if action < 0.45:
            key = f"x{rnd.randint(0, 4)}"
            found = share_of("a", rnd.randint(1, 4)) if rnd.random() < 0.3 else held("a", rnd.choice(names))
            if rnd.random() < 0.3:
                state.claims.remove(DeviceClaim, f"ns/{key}")
                written.remove(f"ns/{key}")
                there.pop(key, None)
            else:
                there[key] = claim(key, allocation=found, foreign=True)
                state.claims.upsert(there[key])
                written.put(f"ns/{key}", found, number)
        elif action < 0.6:
            state.claims.remove(model.Slice, slices[0].name) if rnd.random() < 0.5 else state.claims.upsert(slices[1])
            state.claims.upsert(slices[0])
        else:
            name = f"c{step}"
            wanted = (
                wants_share(name, rnd.randint(1, 3)) if rnd.random() < 0.3 else claim(name, kind=rnd.choice(("whole", "half")))
            )
            state.claims.upsert(wanted)
            state.upsert_pod(uses(name, name))
        decided = [binding for each in run(state, float(step)) if isinstance(each, Place) for binding in each.bindings]
        for binding in decided:
            key, allocation = binding.claims[0].claim, binding.claims[0].allocation
            number += 1
            written.put(key, allocation, number)
            overlap = written.overlap(key)
            assert overlap is None, overlap
            asked = state.device_claims.claims[key]
            there[key[3:]] = msgspec.structs.replace(asked, allocation=allocation, users=(binding.pod.uid,))
            state.claims.upsert(there[key[3:]])
            state.pods.bound(binding.pod.uid)
        wrong = [each for each in invariants.violations(state) if " is given to " not in each]
        assert not wrong, wrong
    # Whichever claim is known first, the same is free.
    orders = [list(there.values()) for _ in range(3)]
    decisions = []
    for order in orders:
        rnd.shuffle(order)
        again = state_of(*slices, *order, hosts=("a",))
        for each in ("half", "whole", ""):
            again.claims.upsert(wants_share("n", 1) if not each else claim(f"n{each}", kind=each))
            again.upsert_pod(uses(f"n{each}", f"n{each}", created=1))
        decisions.append(allocated(run(again, 100.0)))
    assert decisions[0] == decisions[1] == decisions[2]


def test_a_claim_without_devices_is_no_mistake():
    state = state_of(*with_shares("a"), claim("c", allocation=Allocation(())), pods=[uses("p", "c")], hosts=("a",))
    assert placed(run(state)) == {"p": "a"}

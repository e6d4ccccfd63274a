"""What a claim is charged depends on the slices that are there alone; and what is remembered is bounded by what is there."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.dra import model
from fairlead.core.dra.model import Ask, Capacity, Claim, DeviceClaim, DeviceClass, DeviceTemplate, Request
from fairlead.core.model.pods import DeviceUse
from fairlead.core.model.transactions import Place
from tests.builders import cluster, confirm, node, placed, pod, run, spec
from tests.core.test_device_claims import DRIVER, claim, gpus, halves, held, state_of, uses


def quarters(host, count, generation=1):
    """GPUs that are whole or four quarters, one of which is a device that is shared; and the counters."""
    devices = []
    for each in range(count):
        set_ = f"gpu-{each}"
        devices.append(
            model.Device(
                f"{set_}-whole", DRIVER, {"kind": "whole", "uuid": f"{host}-{each}"}, counters=((set_, (("memory", 4),)),)
            )
        )
        devices += [
            model.Device(
                f"{set_}-quarter-{at}",
                DRIVER,
                {"kind": "quarter", "uuid": f"{host}-{each}-{at}"},
                counters=((set_, (("memory", 1),)),),
            )
            for at in range(3)
        ]
        devices.append(
            model.Device(
                f"{set_}-shared", DRIVER, {"kind": "shared"}, {"memory": Capacity(10)}, ((set_, (("memory", 1),)),), multiple=True
            )
        )
    sets = tuple((f"gpu-{each}", {"memory": 4}) for each in range(count))
    reach = model.Reach(host)
    return (
        model.Slice(f"{host}-{generation}-counters", DRIVER, host, generation, 2, reach, counters=sets),
        model.Slice(f"{host}-{generation}-devices", DRIVER, host, generation, 2, reach, devices=tuple(devices)),
    )


MILLI = {"whole": 1000, "half": 500, "quarter": 250}


def plain(asks, slices, classes):
    """What a claim is charged by the rule: of each request the alternative that takes most, of each the largest device there is."""
    total = 0
    pools = {}
    for each in slices:
        pools.setdefault((each.driver, each.pool), []).append(each)
    for request in asks.requests:
        largest = 0
        for ask in request.alternatives:
            selectors = (*classes[ask.device_class].selectors, *ask.selectors) if ask.device_class in classes else ("!",)
            kinds = [each.partition('"')[2].partition('"')[2].partition('"')[2].partition('"')[0] for each in selectors]
            amounts = []
            for of_pool in pools.values():
                newest = max(each.generation for each in of_pool)
                mine = []
                for device in (device for each in of_pool if each.generation == newest for device in each.devices):
                    kind = device.attributes.get("kind", "")
                    if any(one not in (kind, str(device.attributes.get("uuid"))) for one in kinds if one) or "!" in selectors:
                        continue
                    part = MILLI.get(kind, 1000)
                    if kind == "shared":
                        part = 250 * dict(ask.capacity).get("memory", 10) // 10
                    mine.append(part)
                if mine:
                    amounts.append(ask.count * max(mine) if ask.mode == model.EXACT else sum(mine))
            largest = max([largest, *amounts])
        total += largest
    return total


def drawn(rnd):
    """What a claim asks for."""
    requests = []
    for at in range(rnd.choice((1, 1, 2))):
        alternatives = []
        for _ in range(rnd.choice((1, 1, 2))):
            name = rnd.choice(("kind", "kind", "uuid"))
            value = rnd.choice(("whole", "half", "quarter", "shared")) if name == "kind" else rnd.choice(("a-0", "b-0-1"))
            selectors = (f'device.attributes["{DRIVER}"].{name} == "{value}"',) if rnd.random() < 0.6 else ()
            more = {"capacity": (("memory", rnd.randint(1, 10)),)} if value == "shared" and selectors else {}
            mode = model.ALL if rnd.random() < 0.2 else model.EXACT
            device_class = rnd.choice(("gpu", "gpu", "quarters", "late"))
            alternatives.append(Ask(f"r{at}", device_class, mode, rnd.randint(1, 3), selectors, **more))
        requests.append(Request(f"r{at}", tuple(alternatives)))
    return Claim("", "", tuple(requests))


CLASSES = {
    "gpu": DeviceClass("gpu"),
    "quarters": DeviceClass("quarters", (f'device.attributes["{DRIVER}"].kind == "quarter"',)),
    "late": DeviceClass("late", (f'device.attributes["{DRIVER}"].kind == "half"',)),
}


@pytest.mark.parametrize("seed", range(40))
def test_charges_are_those_of_the_slices_that_are_there_in_every_order(seed):
    rnd = random.Random(seed)
    slices = [gpus("a", 2), *halves("b", 1), *quarters("c", rnd.randint(1, 2))]
    pools = rnd.sample("abc", rnd.randint(1, 3))
    slices = [each for each in slices if each.pool in pools]
    contents = [drawn(rnd) for _ in range(6)]
    events = [*slices, *CLASSES.values()]
    events += [DeviceClaim(f"ns/c{at}", f"uid-{at}", asks) for at, asks in enumerate(contents)]
    events += [uses(f"p{at}", f"c{at}") for at in range(6)]
    expected = [plain(each, slices, CLASSES) for each in contents]
    for _ in range(3):
        rnd.shuffle(events)
        state = cluster([node(host, gpus=0) for host in "abc"])
        # Slices that were there for a while, of a pool that had other devices, and one that came back.
        for each in events:
            if isinstance(each, model.Slice) and rnd.random() < 0.5:
                state.claims.upsert(msgspec.structs.replace(each, slices=each.slices + 1))
                state.claims.upsert(each)
                state.claims.remove(model.Slice, each.name)
            if isinstance(each, model.Slice | DeviceClass | DeviceClaim):
                state.claims.upsert(each)
            else:
                state.upsert_pod(each)
        state.claims.all_known()
        found = [sum(need.milli for need in state.tasks[f"uid-p{at}"].shape.spec.devices) for at in range(6)]
        assert found == expected
        run(state)
        invariants.check(state)


@pytest.mark.parametrize("seed", range(20))
def test_charges_follow_slices_that_come_and_go(seed):
    """As long as a claim selects any device; after that it is charged as it was."""
    rnd = random.Random(seed)
    state = cluster([node(host, gpus=0) for host in "abc"])
    for each in CLASSES.values():
        state.claims.upsert(each)
    state.claims.all_known()
    contents = [drawn(rnd) for _ in range(5)]
    for at, asks in enumerate(contents):
        state.claims.upsert(DeviceClaim(f"ns/c{at}", f"uid-{at}", asks))
        state.upsert_pod(uses(f"p{at}", f"c{at}"))
    pools = {"a": (gpus("a", 1),), "b": halves("b", 2), "c": quarters("c", 1)}
    there, alone = {}, [{} for _ in contents]  # of each request what it is charged
    for _ in range(25):
        pool = rnd.choice(sorted(pools))
        if pool in there:
            for each in there.pop(pool):
                state.claims.remove(model.Slice, each.name)
        else:
            there[pool] = pools[pool]
            for each in rnd.sample(pools[pool], len(pools[pool])):
                state.claims.upsert(each)
        slices = [each for one in there.values() for each in one]
        for at, asks in enumerate(contents):
            total = 0
            for request in asks.requests:
                for ask in request.alternatives:
                    one = plain(Claim("", "", (Request("r", (ask,)),)), slices, CLASSES)
                    alone[at][id(ask)] = one or alone[at].get(id(ask), 0)
                total += max(alone[at][id(ask)] for ask in request.alternatives)
            assert sum(need.milli for need in state.tasks[f"uid-p{at}"].shape.spec.devices) == total
        confirm(state, run(state))  # pods that run are charged anew, too
        state.claims.follow()
        invariants.check(state)


def test_pods_that_run_are_charged_for_larger_devices_once_these_are_there():
    """As after a restart: what is charged does not depend on which node's slice came first."""
    state = state_of(*quarters("a", 1), claim("c"), pods=[uses("p", "c")])
    assert placed(run(state)) == {"p": "a"}
    assert state.queues.queues["default"].used["nvidia.com/gpu"] == 1000
    only = state_of(*halves("b", 1), claim("c", kind="half"), pods=[uses("p", "c")])
    run(only)
    only.pods.bound("uid-p")
    assert only.queues.queues["default"].used["nvidia.com/gpu"] == 500
    whole = msgspec.structs.replace(gpus("a", 1), devices=(model.Device("big", DRIVER, {"kind": "half"}),))
    only.claims.upsert(whole)
    run(only, 1.0)
    assert only.queues.queues["default"].used["nvidia.com/gpu"] == 1000
    assert only.tasks["uid-p"].row >= 0
    invariants.check(only)
    only.claims.remove(model.Slice, "a")
    run(only, 2.0)
    assert only.queues.queues["default"].used["nvidia.com/gpu"] == 500
    for name in ("b-devices", "b-counters"):
        only.claims.remove(model.Slice, name)
    run(only, 3.0)
    assert only.queues.queues["default"].used["nvidia.com/gpu"] == 500, "its driver restarts"
    invariants.check(only)


def test_a_pod_that_is_being_bound_keeps_its_place_when_larger_devices_come():
    state = state_of(*halves("b", 1), claim("c", kind="half"), pods=[uses("p", "c")])
    (binding,) = [each for one in run(state) if isinstance(one, Place) for each in one.bindings]
    assert binding.node == "b"
    state.claims.upsert(msgspec.structs.replace(gpus("a", 1), devices=(model.Device("big", DRIVER, {"kind": "half"}),)))
    assert state.tasks["uid-p"].row >= 0
    assert placed(run(state, 1.0)) == {}
    state.pods.bound("uid-p")
    run(state, 2.0)
    assert state.queues.queues["default"].used["nvidia.com/gpu"] == 1000
    invariants.check(state)


def remembered(state):
    claims = state.device_claims
    devices, wants = claims.devices, claims.wants
    return (
        wants.entries
        + devices.sizes.entries
        + len(devices.known)
        + len(devices._listed)
        + len(devices._withdrawn)
        + len(devices._stand_ins)
        + len(claims.claims)
        + len(claims.assumed)
        + len(claims._counted)
        + len(claims._placed)
        + len(claims._given)
        + len(claims._observed)
        + len(claims._unseen)
        + len(claims.failures)
        + len(state.shapes)
    )


def test_claims_that_come_and_go_leave_nothing_behind():
    """In batches, each of which asks for something that none asked for before."""
    state = state_of(*halves("a", 4), DeviceTemplate("ns/t", claim("t", kind="half").asks), hosts=("a",))
    first, seen, placed_ = remembered(state), [], 0
    for batch in range(20):
        asked = {}
        for each in range(100 * batch, 100 * batch + 100):
            name = f"c{each}"
            asks = claim(name, kind=("half", "whole", f"other-{batch}")[each % 3]).asks
            asked[name] = msgspec.structs.replace(asks, configs=(model.Config(f'{{"number": {each}}}'),))
            state.claims.upsert(DeviceClaim(f"ns/{name}", f"uid-{name}", asked[name]))
            state.upsert_pod(pod(name, spec_=spec(gpus=0), claims=(DeviceUse("gpu", f"ns/{name}"),)))
        for one in run(state, float(batch)):
            for binding in one.bindings if isinstance(one, Place) else ():
                choice, name = binding.claims[0], binding.pod.name
                found = DeviceClaim(choice.claim, choice.uid, asked[name], allocation=choice.allocation, users=(binding.pod.uid,))
                state.claims.upsert(found)
                state.pods.bound(binding.pod.uid)
                placed_ += 1
        for name, asks in asked.items():
            state.remove_pod(f"uid-{name}")
            state.claims.upsert(DeviceClaim(f"ns/{name}", f"uid-{name}", asks))
            state.claims.remove(DeviceClaim, f"ns/{name}")
        seen.append(remembered(state))
    assert placed_ >= 80
    assert max(seen[5:]) <= max(seen[:3]), seen
    run(state, 1000.0)
    state.device_claims.wants.forget_others(())
    assert remembered(state) <= first + 4, "all are gone"
    invariants.check(state)


def test_devices_are_known_while_a_slice_or_a_claim_has_them():
    state = state_of(gpus("a", 2), claim("c", allocation=held("a", "gpu-0"), users=("uid-p",)), hosts=("a",))
    for generation in range(2, 40):
        new = msgspec.structs.replace(
            gpus("a", 2), name=f"a-{generation}", generation=generation, devices=(model.Device(f"new-{generation}", DRIVER),)
        )
        state.claims.upsert(new)
        state.claims.remove(model.Slice, "a" if generation == 2 else f"a-{generation - 1}")
        assert {each.device for each in state.device_claims.devices.known} == {"gpu-0", f"new-{generation}"}
    state.claims.upsert(claim("c"))
    assert {each.device for each in state.device_claims.devices.known} == {"new-39"}
    state.claims.remove(model.Slice, "a-39")
    assert not state.device_claims.devices.known
    assert not state.device_claims.devices._withdrawn
    invariants.check(state)

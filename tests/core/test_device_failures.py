"""Devices whose binding failed are avoided: for how long, by which claims, and that what else serves is taken meanwhile."""

import random

import pytest

from fairlead.core import invariants
from fairlead.core.dra.model import DeviceClaim, DeviceId
from fairlead.core.model.allocations import FailedDevice
from fairlead.core.model.transactions import Place
from fairlead.core.nodes.device_failures import DeviceFailures
from tests.builders import group, placed, refused, run
from tests.core.test_device_claims import DRIVER, allocated, claim, either, gpus, halves, held, state_of, uses

WHY = "condition Broken"


def device(host, name):
    return DeviceId(DRIVER, host, name)


def fail(state, uid, now, *devices, **more):
    state.bind_failed(uid, now, tuple(FailedDevice(key, each, WHY, **more) for key, each in devices))


def test_another_device_is_taken_then_another_node_and_else_the_same_after_the_backoff():
    state = state_of(gpus("a", 2), gpus("b", 1), claim("c"), pods=[uses("p", "c")])
    now, tried = 0.0, []
    for _ in range(3):
        (binding,) = [each for one in run(state, now) if isinstance(one, Place) for each in one.bindings]
        (chosen,) = binding.claims[0].allocation.devices
        tried.append((chosen.device.pool, chosen.device.device))
        fail(state, "uid-p", now, ("ns/c", chosen.device))
        now += 2.0
    assert sorted(tried) == [("a", "gpu-0"), ("a", "gpu-1"), ("b", "gpu-0")]
    now = 8.5
    reason = refused(run(state, now))["p"]
    assert "1 could not be bound (gpu.example.com/b/gpu-0: condition Broken; tried again after 10 s)" in reason.message or (
        "2 could not be bound (gpu.example.com/a/gpu-0: condition Broken; tried again after 10 s)" in reason.message
    )
    assert placed(run(state, 9.9)) == {}
    assert state.next_due <= 10.0
    (again,) = [each for one in run(state, 10.0) if isinstance(one, Place) for each in one.bindings]
    assert again.claims[0].allocation.devices[0].device == device(*tried[0])
    fail(state, "uid-p", 11.0, ("ns/c", device(*tried[0])))
    assert placed(run(state, 30.0)) != {}, "the others are over by now"
    invariants.check(state)


def test_others_do_not_get_a_device_that_failed_and_the_parts_of_its_gpu_are_no_worse():
    items = [*halves("a", 1), claim("c", kind="half"), claim("d", kind="half"), claim("e", kind="half")]
    state = state_of(*items, pods=[uses("p", "c")], hosts=("a",))
    assert allocated(run(state)) == {"ns/c": ["gpu-0-half-0"]}
    fail(state, "uid-p", 1.0, ("ns/c", device("a", "gpu-0-half-0")))
    state.upsert_pod(uses("q", "d"))
    state.upsert_pod(uses("r", "e"))
    assert allocated(run(state, 1.0)) == {"ns/d": ["gpu-0-half-1"]}
    assert set(placed(run(state, 11.0))) <= {"p", "r"}


def test_a_device_that_failed_is_tried_last_once_its_backoff_is_over():
    state = state_of(gpus("a", 2), claim("c"), claim("d"), claim("e"), pods=[uses("p", "c")], hosts=("a",))
    assert allocated(run(state)) == {"ns/c": ["gpu-0"]}
    fail(state, "uid-p", 0.0, ("ns/c", device("a", "gpu-0")))
    state.remove_pod("uid-p")
    state.upsert_pod(uses("q", "d"))
    assert allocated(run(state, 20.0)) == {"ns/d": ["gpu-1"]}
    state.upsert_pod(uses("r", "e"))
    assert allocated(run(state, 21.0)) == {"ns/e": ["gpu-0"]}
    state.pods.bound("uid-r")
    assert not state.device_claims.failures, "it works"
    assert len(state.device_claims.failures) == 0


def test_what_the_server_refuses_closes_a_device_for_this_claim_alone():
    state = state_of(gpus("a", 1), claim("c"), pods=[uses("p", "c")], hosts=("a",))
    run(state)
    fail(state, "uid-p", 0.0, ("ns/c", device("a", "gpu-0")), refused=True)
    message = refused(run(state, 5.0))["p"].message
    assert "could not be bound (gpu.example.com/a/gpu-0: condition Broken" in message
    state.claims.upsert(claim("d"))
    state.upsert_pod(uses("q", "d"))
    assert placed(run(state, 6.0)) == {"q": "a"}
    state.remove_pod("uid-q")
    assert placed(run(state, 10.0)) == {"p": "a"}


def test_a_claim_that_fails_everywhere_closes_few_devices_for_others():
    state = state_of(gpus("a", 8), gpus("b", 8), claim("c"), pods=[uses("p", "c")])
    now = 0.0
    for _ in range(16):
        (binding,) = [each for one in run(state, now) if isinstance(one, Place) for each in one.bindings]
        fail(state, "uid-p", now, ("ns/c", binding.claims[0].allocation.devices[0].device))
        now = state.tasks["uid-p"].not_before
        if now > 5.0:
            break
    failures = state.device_claims.failures
    ids = [device(host, f"gpu-{each}") for host in "ab" for each in range(8)]
    for each in ids:
        failures.note(FailedDevice("ns/c", each, WHY), "content", 5.0)
        failures.note(FailedDevice("ns/x", each, WHY), "content", 5.0)
    assert sum(bool((failures.status(each) or (False,))[0]) for each in ids) <= 10
    assert set(failures.of_claim("ns/c")) | {each for each in ids if failures.status(each)[0]} == set(ids)


def test_a_gang_whose_claims_failed_takes_what_is_left_together():
    members = [uses(f"m{each}", f"c{each}", group="g") for each in range(2)]
    items = [*halves("a", 2), either("c0"), either("c1")]
    state = state_of(*items, pods=members, groups=[group("g", 2)], hosts=("a",))
    first = allocated(run(state))
    assert len(first) == 2
    for each in range(2):
        fail(state, f"uid-m{each}", 0.0, (f"ns/c{each}", device("a", first[f"ns/c{each}"][0])), refused=bool(each))
    second = allocated(run(state, 5.0))
    assert len(second) == 2
    assert second["ns/c0"] != first["ns/c0"]
    assert second["ns/c1"] not in first.values(), "one is closed for all, the other one for this claim"
    invariants.check(state)


@pytest.mark.parametrize("seed", range(40))
def test_random_failures_are_avoided_as_a_plain_list_of_them_says(seed):
    """The judge keeps every failure, and derives by the rule alone which device is closed to which claim."""
    rnd = random.Random(seed)
    failures = DeviceFailures()
    ids = [device("a", f"gpu-{each}") for each in range(4)]
    keys = [f"ns/c{each}" for each in range(5)]
    episodes = {each: [] for each in ids}  # of each device: [since, until, claims, for all], since it last worked
    now = 0.0
    for _ in range(300):
        now += rnd.choice((0.0, 1.0, 9.0, 40.0, 700.0, 3700.0))
        failures.end_backoffs(now)
        for each in ids:  # forgotten an hour after the last backoff; `end_backoffs` may have ended that backoff late
            if episodes[each] and episodes[each][-1][4] is None and episodes[each][-1][1] <= now:
                episodes[each][-1][4] = now + 3600.0
            elif episodes[each] and episodes[each][-1][4] is not None and episodes[each][-1][4] <= now:
                episodes[each] = []
        which, key = rnd.choice(ids), rnd.choice(keys)
        action = rnd.random()
        if action < 0.15:
            failures.works(which)
            episodes[which] = []
        elif action < 0.25:
            failures.claim_gone(key)
            for found in episodes.values():
                for each in found:
                    each[2].discard(key)
        else:
            refused_ = rnd.random() < 0.3
            failures.note(FailedDevice(key, which, WHY, refused_), f"content of {key}", now)
            found = episodes[which]
            if found and now < found[-1][1]:
                found[-1][2].add(key)
                found[-1][3] = found[-1][3] or not refused_
            else:
                found.append([now, now + min(600.0, 10.0 * 2 ** len(found)), {key}, not refused_, None])
        for each in ids:
            last = episodes[each][-1] if episodes[each] else None
            closed = last is not None and now < last[1]
            status = failures.status(each)
            assert (status is None) is (last is None)
            assert bool(status and status[0]) is bool(closed and last[3])
            for one in keys:
                ever = any(one in episode[2] for episode in episodes[each])
                assert (each in failures.of_claim(one)) is bool(closed and not last[3] and ever)
    failures.end_backoffs(now + 10_000.0)
    failures.end_backoffs(now + 20_000.0)
    assert not failures._failures
    assert not failures._of_claim
    assert not failures._of_content


def test_events_in_the_same_order_give_the_same_decisions():
    def play():
        state = state_of(gpus("a", 2), gpus("b", 2), *(claim(f"c{each}") for each in range(4)))
        for each in range(4):
            state.upsert_pod(uses(f"p{each}", f"c{each}"))
        decided = []
        for now in (0.0, 3.0, 12.0, 40.0):
            for one in run(state, now):
                decided.append(repr(one))
                for binding in one.bindings if isinstance(one, Place) else ():
                    if binding.claims[0].allocation.devices[0].device.device == "gpu-1":
                        fail(
                            state, binding.pod.uid, now, (binding.claims[0].claim, binding.claims[0].allocation.devices[0].device)
                        )
        return decided

    assert play() == play()


def test_a_claim_that_is_made_anew_begins_anew():
    state = state_of(gpus("a", 1), claim("c"), pods=[uses("p", "c")], hosts=("a",))
    run(state)
    fail(state, "uid-p", 0.0, ("ns/c", device("a", "gpu-0")), refused=True)
    assert placed(run(state, 5.0)) == {}
    state.claims.remove(DeviceClaim, "ns/c")
    state.claims.upsert(claim("c"))
    assert placed(run(state, 6.0)) == {"p": "a"}


def test_a_device_that_holds_a_failed_allocation_still_is_released_before_it_is_tried_again():
    state = state_of(gpus("a", 2), claim("c"), pods=[uses("p", "c")], hosts=("a",))
    assert allocated(run(state)) == {"ns/c": ["gpu-0"]}
    state.claims.upsert(claim("c", allocation=held("a", "gpu-0"), users=("uid-p",)))
    fail(state, "uid-p", 0.0, ("ns/c", device("a", "gpu-0")))
    state.claims.upsert(claim("c"))
    assert allocated(run(state, 2.0)) == {"ns/c": ["gpu-1"]}

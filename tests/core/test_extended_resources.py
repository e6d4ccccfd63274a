"""Extended resources that devices serve: by which class, on which nodes, with which requests, and what becomes of the claim."""

import random
from itertools import product

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.dra import model
from fairlead.core.dra.model import DeviceClaim, DeviceClass
from fairlead.core.model.allocations import DeviceId, FailedDevice
from fairlead.core.model.pods import DeviceUse, ExtendedRequest
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Deallocate, Place, Preempt, RequestMapping
from fairlead.core.nodes.extended_resources import ExtendedResources, asked_for, key_of_pod
from fairlead.core.state.stand_ins import record
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, refused, run, spec
from tests.core.test_device_claims import DRIVER, claim, either, gpus, halves, held

RESOURCE = "example.com/gpu"
CLASS = DeviceClass("gpu", resource=RESOURCE)


def requests(amount, resource=RESOURCE):
    return (ExtendedRequest("main", 0, resource, "container-0-request-1", amount),)


def wants(name, amount=1, resource=RESOURCE, spec_=None, **more):
    spec_ = spec_ or spec(gpus=0, extra={resource: amount}, cpu=100)
    return pod(name, spec_=spec_, extended=requests(amount, resource), **more)


def state_of(*items, nodes=(), pods=(), known=True, **more):
    state = cluster(nodes or [node("a", gpus=0), node("b", gpus=0)], **more)
    for each in items:
        state.claims.upsert(each)
    if known:
        state.claims.all_known()
    for each in pods:
        state.upsert_pod(each)
    return state


def plugin(name, count, resource=RESOURCE):
    found = node(name, gpus=0)
    return msgspec.structs.replace(found, allocatable={**found.allocatable, resource: count})


def choices(transactions):
    return {binding.pod.name: binding.claims for each in transactions if isinstance(each, Place) for binding in each.bindings}


def devices(choice):
    return [each.device.device for each in choice.allocation.devices]


def test_a_class_serves_a_resource_that_a_node_does_not_advertise():
    state = state_of(CLASS, gpus("b", 2), pods=[wants("p", 2)])
    transactions = run(state)
    assert placed(transactions) == {"p": "b"}
    (choice,) = choices(transactions)["p"]
    assert devices(choice) == ["gpu-0", "gpu-1"]
    assert choice.extended.requests == (("container-0-request-1", "gpu", 2),)
    assert choice.extended.mappings == (RequestMapping("main", RESOURCE, "container-0-request-1"),)
    invariants.check(state)


def test_a_node_that_advertises_it_serves_it_by_its_device_plugin():
    state = state_of(CLASS, gpus("a", 4), nodes=[plugin("a", 1)], pods=[wants("p"), wants("q")])
    transactions = run(state)
    assert len(placed(transactions)) == 1
    assert list(choices(transactions).values()) == [()]
    (reason,) = refused(transactions).values()
    assert reason.code is ReasonCode.RESOURCES
    assert f"1 Insufficient {RESOURCE}" in reason.message
    invariants.check(state)


def test_one_pod_after_the_other_lands_on_both_kinds_of_nodes():
    state = state_of(CLASS, gpus("b", 2), nodes=[plugin("a", 1), node("b", gpus=0)], pods=[wants(f"p{at}") for at in range(4)])
    transactions = run(state)
    assert sorted(placed(transactions).values()) == ["a", "b", "b"]
    (reason,) = refused(transactions).values()
    assert f"1 Insufficient {RESOURCE}" in reason.message
    assert f"{RESOURCE} by device class gpu" in reason.message
    assert "2 are allocated" in reason.message


def test_without_a_class_nothing_changes():
    state = state_of(gpus("b", 2), pods=[wants("p")])
    reason = refused(run(state))["p"]
    assert reason.code is ReasonCode.RESOURCES
    assert f"2 Insufficient {RESOURCE}" in reason.message
    assert not state.device_claims.used


def unserved(state, uid, now):
    state.bind_failed(uid, now, (FailedDevice("", DeviceId("", "", ""), "the feature gate is off", unserved=True),))


def test_claims_that_the_cluster_refuses_are_waited_for_with_the_reason():
    state = state_of(CLASS, gpus("a", 4), pods=[wants("p")])
    assert placed(run(state, 0.0)) == {"p": "a"}
    unserved(state, "uid-p", 0.0)
    state.upsert_pod(wants("q"))
    reasons = refused(run(state, 5.0))
    assert {name: each.code for name, each in reasons.items()} == {"p": ReasonCode.DEVICES, "q": ReasonCode.DEVICES}
    assert f"{RESOURCE} by device class gpu: the feature gate is off; tried again after 10 s" in reasons["q"].message
    assert state.next_due <= 10.0
    state.upsert_node(plugin("b", 1))
    assert list(placed(run(state, 9.0)).values()) == ["b"], "device plugins serve it as before"
    (left,) = placed(run(state, 10.0))
    unserved(state, f"uid-{left}", 10.0)
    assert "2 times in a row; tried again after 20 s" in refused(run(state, 12.0))[left].message
    assert placed(run(state, 30.0)) == {left: "a"}
    invariants.check(state)


def test_a_gang_waits_for_claims_that_the_cluster_refuses_as_a_whole():
    members = [wants(f"m{at}", group="g") for at in range(3)]
    state = state_of(CLASS, gpus("a", 4), nodes=[node("a", gpus=0), plugin("b", 1)], pods=members, groups=[group("g", 3)])
    assert sorted(placed(run(state, 0.0)).values()) == ["a", "a", "a"]
    for each in members:
        unserved(state, each.uid, 0.0)
    assert placed(run(state, 5.0)) == {}
    assert len(placed(run(state, 20.0))) == 3


def both(name, gpus_=1, cards=1, **more):
    """It needs two resources that classes serve, and some CPU."""
    asked = (
        ExtendedRequest("main", 0, RESOURCE, "container-0-request-1", gpus_),
        ExtendedRequest("main", 0, "example.com/card", "container-0-request-2", cards),
    )
    return pod(name, spec_=spec(gpus=0, extra={RESOURCE: gpus_, "example.com/card": cards}, cpu=100), extended=asked, **more)


def test_members_have_one_resource_from_a_plugin_and_another_by_a_claim_on_one_node():
    """One after the other the first members take the node that the last one needs."""
    card = DeviceClass("card", ('device.attributes["x"].y == "none"',), resource="example.com/card")
    mixed = msgspec.structs.replace(plugin("a", 0), allocatable={**node("a", gpus=0).allocatable, "example.com/card": 2})
    members = [both(f"m{at}", group="g") for at in range(2)]
    state = state_of(CLASS, card, gpus("a", 2), nodes=[mixed, node("b", gpus=0)], pods=members, groups=[group("g", 2)])
    transactions = run(state)
    assert placed(transactions) == {"m0": "a", "m1": "a"}
    for (choice,) in choices(transactions).values():
        assert [each.resource for each in choice.extended.mappings] == [RESOURCE]
    invariants.check(state)


@pytest.mark.parametrize("seed", range(60))
def test_gangs_with_claims_and_plugins_are_placed_exactly_where_it_is_possible(seed):
    """Halves and wholes of GPUs by claims, cards of plugins or by devices, and CPU: every way is tried by the judge."""
    draw = random.Random(seed)
    gpus_of = {name: draw.randint(0, 2) for name in "ab"}
    cards = {name: draw.choice((0, 0, 1, 2)) for name in "ab"}
    cpus = {name: draw.choice((200, 400, 4000)) for name in "ab"}
    nodes = []
    for name in "ab":
        found = node(name, gpus=0, cpu=cpus[name])
        offered = {"example.com/card": cards[name]} if cards[name] else {}
        nodes.append(msgspec.structs.replace(found, allocatable={**found.allocatable, **offered}))
    slices = [each for name in "ab" for each in (halves(name, gpus_of[name]) if gpus_of[name] else [])]
    wanted = draw.sample(
        [("either", 0), ("either", 0), ("either", 1), ("half", 1), ("whole", 0), ("whole", 1)], draw.randint(2, 4)
    )
    pods = []
    for at, (kind, count) in enumerate(wanted):
        cpu, name = draw.choice((100, 200)), f"c{at}"
        slices.append(either(name) if kind == "either" else claim(name, kind=kind))
        extra = {"example.com/card": count} if count else {}
        own = (DeviceUse(name, f"ns/{name}"),)
        pods.append(pod(f"m{at}", claims=own, group="g", spec_=spec(gpus=0, cpu=cpu, extra=extra)))
    state = state_of(CLASS, *slices, nodes=nodes, pods=pods, groups=[group("g", len(pods))])
    where = placed(run(state))

    def fits(name, chosen):
        here = [(wanted[at], pods[at]) for at, host in enumerate(chosen) if host == name]
        if sum(count for (_, count), _ in here) > cards[name]:
            return False
        if sum(dict(each.spec.requests)["cpu"] for _, each in here) > cpus[name]:
            return False
        size = {"either": 1, "half": 1, "whole": 2}  # halves of a GPU; wholes are not split
        wholes = sum(kind == "whole" for (kind, _), _ in here)
        return wholes <= gpus_of[name] and sum(size[kind] for (kind, _), _ in here) <= 2 * gpus_of[name]

    possible = any(all(fits(name, chosen) for name in "ab") for chosen in product("ab", repeat=len(pods)))
    assert (len(where) == len(pods)) == possible
    assert not where or fits("a", [where[each.name] for each in pods])
    invariants.check(state)


def test_a_class_that_comes_and_goes_decides_what_waits():
    state = state_of(gpus("b", 1), pods=[wants("p")])
    assert refused(run(state))
    state.claims.upsert(CLASS)
    assert placed(run(state)) == {"p": "b"}
    state = state_of(CLASS, pods=[wants("p")])
    assert refused(run(state))["p"].code is ReasonCode.DEVICES
    state.claims.remove(DeviceClass, "gpu")
    assert refused(run(state))["p"].code is ReasonCode.RESOURCES
    state.claims.upsert(gpus("a", 1))
    assert not placed(run(state))
    state.claims.upsert(CLASS)
    assert placed(run(state)) == {"p": "a"}


def test_the_name_of_a_class_serves_it_whatever_else_it_serves():
    name = "deviceclass.resource.kubernetes.io/gpu"
    state = state_of(CLASS, gpus("b", 1), pods=[wants("p", resource=name)])
    assert placed(run(state)) == {"p": "b"}


def test_of_several_classes_the_newest_serves_then_the_first_by_name():
    classes = {}
    found = ExtendedResources(classes)
    for name, created in (("old", 1.0), ("b", 2.0), ("a", 2.0)):
        classes[name] = DeviceClass(name, resource=RESOURCE, created=created)
        found.class_changed(name, None, classes[name])
    assert found.class_of(RESOURCE) == "a"
    found.class_changed("a", classes.pop("a"), None)
    assert found.class_of(RESOURCE) == "b"
    before = classes["b"]
    classes["b"] = DeviceClass("b", resource="example.com/other", created=2.0)
    found.class_changed("b", before, classes["b"])
    assert (found.class_of(RESOURCE), found.class_of("example.com/other")) == ("old", "b")


def test_the_resource_of_whole_gpus_is_served_too_and_charged_once():
    quota = Queue("default", "", 0, (QueueResource(GPU, None, 2000),))
    gpu_class = DeviceClass("gpu", resource=GPU)
    pods = [wants(name, spec_=spec(gpus=1), resource=GPU) for name in "pqr"]
    state = state_of(gpu_class, gpus("a", 4), pods=pods, queues=[quota])
    transactions = run(state)
    assert len(placed(transactions)) == 2
    (reason,) = refused(transactions).values()
    assert reason.code is ReasonCode.LIMIT_EXCEEDED
    assert state.queues.queues["default"].used[GPU] == 2000
    invariants.check(state)


def test_another_resource_of_gpus_is_charged_as_the_part_that_its_devices_are():
    quota = Queue("default", "", 0, (QueueResource(GPU, None, 1000),))
    half = DeviceClass("gpu", (f'device.attributes["{DRIVER}"].kind == "half"',), resource=RESOURCE)
    state = state_of(half, *halves("a", 4), pods=[wants(name) for name in "pqr"], queues=[quota])
    transactions = run(state)
    assert len(placed(transactions)) == 2
    assert next(iter(refused(transactions).values())).code is ReasonCode.LIMIT_EXCEEDED


def test_what_waits_is_charged_by_devices_that_are_listed_after_it():
    quota = Queue("default", "", 0, (QueueResource(GPU, None, 1000),))
    state = state_of(CLASS, pods=[wants(name) for name in "pq"], queues=[quota])
    state.claims.upsert(gpus("a", 4))
    transactions = run(state)
    assert len(placed(transactions)) == 1
    assert next(iter(refused(transactions).values())).code is ReasonCode.LIMIT_EXCEEDED
    invariants.check(state)


def test_a_pod_that_runs_is_charged_once_for_what_is_a_gpu_by_its_name():
    state = state_of(DeviceClass("gpu", resource=GPU), gpus("a", 4), pods=[wants("p", spec_=spec(gpus=2), resource=GPU)])
    for each in ("assumed", "bound", "weighed anew"):
        if each == "bound":
            state.pods.bound("uid-p")
        if each == "weighed anew":
            state.claims.upsert(DeviceClass("gpu", ("true",), resource=GPU))
        run(state)
        assert state.queues.queues["default"].used[GPU] == 2000, each
        invariants.check(state)


def test_a_pod_that_is_weighed_anew_keeps_devices_that_its_claim_does_not_show_yet():
    kind = f'device.attributes["{DRIVER}"].kind'
    state = state_of(DeviceClass("gpu", (f'{kind} == "half"',), resource=RESOURCE), *halves("a", 1), pods=[wants("p")])
    (choice,) = choices(run(state))["p"]
    state.pods.bound("uid-p")
    state.claims.upsert(DeviceClass("gpu", (f'{kind} in ["half", "whole"]',), resource=RESOURCE))
    state.upsert_pod(wants("q"))
    state.upsert_pod(wants("r"))
    found = choices(run(state))
    assert len(found) == 1
    assert state.queues.queues["default"].used[GPU] == 2000, "it was charged as half of one GPU, and the class selects all of it"
    ((other,),) = found.values()
    assert set(devices(choice)) | set(devices(other)) == {"gpu-0-half-0", "gpu-0-half-1"}
    invariants.check(state)


def test_devices_of_a_plugin_are_still_predicted():
    gpu_class = DeviceClass("gpu", resource=GPU)
    pods = [wants("p", spec_=spec(gpus=2), resource=GPU), pod("z", milli=500)]
    state = state_of(gpu_class, nodes=[node("a", gpus=2)], pods=pods)
    transactions = run(state)
    assert placed(transactions) == {"p": "a"}
    assert state.tasks["uid-p"].devices == (0, 1)
    invariants.check(state)


def test_a_gang_is_spread_over_both_kinds_of_nodes():
    pods = [wants(f"m{at}", group="g") for at in range(4)]
    state = state_of(CLASS, *halves("b", 2), nodes=[plugin("a", 2), node("b", gpus=0)], pods=pods, groups=[group("g", 4)])
    transactions = run(state)
    assert sorted(placed(transactions).values()) == ["a", "a", "b", "b"]
    invariants.check(state)
    more = state_of(CLASS, *halves("b", 1), nodes=[plugin("a", 1), node("b", gpus=0)], pods=pods, groups=[group("g", 4)])
    assert not placed(run(more))
    invariants.check(more)


def test_members_that_need_the_whole_and_the_halves_are_solved_together():
    """A member that comes first would take a whole GPU where a half does; two nodes differ in what serves them."""
    pods = [wants(f"m{at}", 1, group="g") for at in range(5)]
    state = state_of(CLASS, *halves("b", 2), nodes=[plugin("a", 1), node("b", gpus=0)], pods=pods, groups=[group("g", 5)])
    transactions = run(state)
    assert sorted(placed(transactions).values()) == ["a", "b", "b", "b", "b"]
    invariants.check(state)


def test_a_victim_gives_its_devices_up():
    state = state_of(CLASS, gpus("a", 1), pods=[wants("low")])
    confirm(state, run(state))
    bound(state, "low", "a")
    state.upsert_pod(wants("high", priority=5))
    transactions = run(state, 10.0)
    assert preempted(transactions) == [["low"]]
    state.remove_pod("uid-low")
    assert not placed(run(state, 11.0)), "its claim still has the device"
    state.claims.remove(DeviceClaim, "ns/low-1")
    transactions = run(state, 12.0)
    assert placed(transactions) == {"high": "a"}
    assert devices(choices(transactions)["high"][0]) == ["gpu-0"]
    invariants.check(state)


def test_a_victim_gives_up_what_a_device_plugin_gave_it():
    state = state_of(CLASS, nodes=[plugin("a", 1)], pods=[wants("low")])
    confirm(state, run(state))
    state.upsert_pod(wants("low", at="a"))
    state.upsert_pod(wants("high", priority=5))
    assert preempted(run(state, 10.0)) == [["low"]]
    state.remove_pod("uid-low")
    assert placed(run(state, 11.0)) == {"high": "a"}


def made_for(name, node_name="", number=1, devices_=("gpu-0",), uid=""):
    allocation = held(node_name, *devices_, request="container-0-request-1") if node_name else None
    asks = model.Claim("", "", (model.Request("container-0-request-1", (model.Ask("container-0-request-1", "gpu"),)),))
    users = (f"uid-{name}",) if node_name else ()
    return DeviceClaim(
        f"ns/{name}-{number}", uid or f"claim-{name}-{number}", asks, allocation, users, owner=f"uid-{name}", extended=True
    )


def bound(state, name, node_name):
    state.claims.upsert(made_for(name, node_name))
    old = state.tasks[f"uid-{name}"].pod
    kept = msgspec.structs.replace(wants(name, at=node_name), extended_claim=f"{name}-1", priority=old.priority)
    state.upsert_pod(kept)
    invariants.check(state)


def test_a_claim_counts_once_while_it_is_written_and_is_found_again_by_its_owner():
    state = state_of(CLASS, gpus("a", 2), pods=[wants("p")])
    run(state)
    state.claims.upsert(made_for("p"))
    state.upsert_pod(wants("q"))
    transactions = run(state)
    assert devices(choices(transactions)["q"][0]) == ["gpu-1"]
    bound(state, "p", "a")
    again = state_of(CLASS, gpus("a", 2), made_for("p", "a"), pods=[wants("p", at="a", extended_claim="p-1"), wants("q")])
    transactions = run(again)
    assert devices(choices(transactions)["q"][0]) == ["gpu-1"]
    assert key_of_pod("uid-p") in again.device_claims.claims
    invariants.check(again)


def test_a_claim_of_an_earlier_binding_is_deleted_before_the_pod_is_tried_again():
    state = state_of(CLASS, gpus("a", 1), gpus("b", 1), made_for("p", "b"), pods=[wants("p")])
    transactions = run(state)
    (gone,) = [each for each in transactions if isinstance(each, Deallocate)]
    (choice,) = gone.bindings[0].claims
    assert (choice.claim, choice.uid, choice.removed) == ("ns/p-1", "claim-p-1", True)
    assert "resourceclaim ns/p-1 of an earlier binding is not deleted yet" in refused(transactions)["p"].message
    state.claims.remove(DeviceClaim, "ns/p-1")
    transactions = run(state)
    assert placed(transactions)
    assert choices(transactions)["p"][0].claim == key_of_pod("uid-p")


def test_a_claim_of_a_member_whose_gang_is_too_small_is_deleted():
    """The scheduler before had created it, and ended; then the other member was deleted."""
    state = state_of(CLASS, gpus("a", 1), made_for("p", "a"), groups=[group("g", 2)], pods=[wants("p", group="g")])
    (gone,) = [each for each in run(state) if isinstance(each, Deallocate)]
    (choice,) = gone.bindings[0].claims
    assert (choice.claim, choice.removed) == ("ns/p-1", True)
    state.claims.remove(DeviceClaim, "ns/p-1")
    state.upsert_pod(wants("q"))
    assert placed(run(state)) == {"q": "a"}
    assert not [each for each in run(state, 100.0) if isinstance(each, Deallocate)]
    invariants.check(state)


def test_of_two_claims_the_one_with_devices_counts():
    state = state_of(CLASS, gpus("a", 2), pods=[wants("p", at="a", extended_claim="p-1")])
    state.claims.upsert(made_for("p", number=0))
    state.claims.upsert(made_for("p", "a"))
    assert state.device_claims.claims[key_of_pod("uid-p")].key == "ns/p-1"
    invariants.check(state)
    state.claims.remove(DeviceClaim, "ns/p-0")
    assert state.device_claims.claims[key_of_pod("uid-p")].key == "ns/p-1"
    state.claims.remove(DeviceClaim, "ns/p-1")
    assert key_of_pod("uid-p") not in state.device_claims.claims
    invariants.check(state)


def test_the_status_of_an_earlier_claim_is_taken_back_where_a_plugin_serves_the_pod():
    state = state_of(CLASS, nodes=[plugin("a", 1)], pods=[wants("p", extended_claim="p-1")])
    transactions = run(state)
    (choice,) = choices(transactions)["p"]
    assert choice.extended.requests == ()


def test_a_binding_that_fails_gives_the_devices_back():
    state = state_of(CLASS, gpus("a", 1), pods=[wants("p")])
    run(state)
    state.bind_failed("uid-p", 1.0)
    invariants.check(state)
    state.upsert_pod(wants("q"))
    assert placed(run(state, 1.1)) == {"q": "a"}


def test_requests_are_those_of_upstream():
    """The init container has what the later containers request, and asks for what it needs beyond that."""
    found = (
        ExtendedRequest("init-a", 0, RESOURCE, "container-0-request-0", 3, brief=True),
        ExtendedRequest("sidecar", 1, RESOURCE, "container-1-request-0", 1),
        ExtendedRequest("init-b", 2, RESOURCE, "container-2-request-0", 2, brief=True),
        ExtendedRequest("main", 3, RESOURCE, "container-3-request-1", 1),
        ExtendedRequest("main", 3, "example.com/other", "container-3-request-2", 1),
    )
    asks, mappings = asked_for(found, RESOURCE)
    assert sorted(asks) == [("container-0-request-0", 1), ("container-1-request-0", 1), ("container-3-request-1", 1)]
    assert [(each.container, each.request) for each in mappings] == [
        ("sidecar", "container-1-request-0"),
        ("main", "container-3-request-1"),
        ("init-a", "container-1-request-0"),
        ("init-a", "container-3-request-1"),
        ("init-a", "container-0-request-0"),
        ("init-b", "container-3-request-1"),
        ("init-b", "container-0-request-0"),
    ]


def test_the_places_of_a_suspended_job_hold_devices():
    state = state_of(CLASS, gpus("a", 1), nodes=[node("a", gpus=0)], pods=[wants("s", placeholder=True)])
    task = state.tasks["uid-s"]
    state.placement.place(task, 0)
    assert not state.device_claims.problems([task.pod], [task.pod])
    state.upsert_pod(wants("q"))
    waiting = state.tasks["uid-q"]
    assert not waiting.ranking.fits_row(0)
    state.placement.unassign(task)
    assert waiting.ranking.fits_row(0)


def test_what_is_remembered_of_a_suspended_pod_names_no_claim_and_finds_its_class_again():
    state = state_of(CLASS, gpus("a", 1), made_for("p", "a"), pods=[wants("p", at="a", extended_claim="p-1")])
    kept = record(state.tasks["uid-p"].pod, 0.0, 0.0, 0.0, anew=False)
    assert (kept.claims, kept.spec.devices, kept.extended_claim) == ((), (), "")
    assert msgspec.json.decode(msgspec.json.encode(kept), type=type(kept)) == kept
    again = state_of(CLASS, gpus("a", 1), pods=[msgspec.structs.replace(kept, uid="uid-again", name="again")])
    assert placed(run(again)) == {"again": "a"}


def test_a_pod_keeps_its_devices_whatever_becomes_of_the_class():
    state = state_of(CLASS, gpus("a", 1), nodes=[node("a", gpus=0)], pods=[wants("p")])
    confirm(state, run(state))
    state.claims.remove(DeviceClass, "gpu")
    bound(state, "p", "a")
    state.claims.upsert(CLASS)
    state.upsert_pod(wants("q"))
    assert not placed(run(state))
    state.remove_pod("uid-p")
    state.claims.remove(DeviceClaim, "ns/p-1")
    assert placed(run(state)) == {"q": "a"}
    invariants.check(state)


def test_a_node_that_begins_to_advertise_a_resource_is_served_by_its_plugin_from_then_on():
    state = state_of(CLASS, gpus("a", 3), nodes=[node("a", gpus=0)], pods=[wants("p")])
    confirm(state, run(state))
    bound(state, "p", "a")
    state.upsert_node(plugin("a", 2))
    state.upsert_pod(wants("q"))
    state.upsert_pod(wants("r"))
    transactions = run(state)
    assert len(placed(transactions)) == 1, "what p has counts among what the node advertises, as upstream counts it"
    assert list(choices(transactions).values()) == [()]
    invariants.check(state)


def test_a_pod_of_two_resources_asks_each_node_for_what_that_lacks():
    both = {RESOURCE: 1, "deviceclass.resource.kubernetes.io/gpu": 1}
    found = (
        ExtendedRequest("main", 0, "deviceclass.resource.kubernetes.io/gpu", "container-0-request-1", 1),
        ExtendedRequest("main", 0, RESOURCE, "container-0-request-2", 1),
    )
    nodes = [plugin("a", 1), node("b", gpus=0)]
    pods = [pod(name, spec_=spec(gpus=0, extra=both), extended=found) for name in "pq"]
    state = state_of(CLASS, gpus("a", 1), gpus("b", 2), nodes=nodes, pods=pods)
    transactions = run(state)
    where = placed(transactions)
    assert sorted(where.values()) == ["a", "b"]
    asked = {where[name]: [each for each, _, _ in found[0].extended.requests] for name, found in choices(transactions).items()}
    assert asked == {"a": ["container-0-request-1"], "b": ["container-0-request-1", "container-0-request-2"]}


def test_more_devices_than_a_claim_can_have_are_refused_with_the_number():
    state = state_of(CLASS, gpus("a", 40), pods=[wants("p", 33)])
    reason = refused(run(state))["p"]
    assert reason.code is ReasonCode.DEVICES
    assert "32" in reason.message


def test_devices_are_listed_before_a_pod_gets_any():
    state = state_of(CLASS, gpus("a", 1), pods=[wants("p")], known=False)
    assert "still being listed" in refused(run(state))["p"].message
    state.claims.all_known()
    assert placed(run(state)) == {"p": "a"}


def test_pods_that_run_give_up_what_their_plugin_gave_them_whatever_becomes_of_the_class():
    """What is asked of every node leaves the resource out while the class is there; what is held on a node does not."""
    state = state_of(CLASS, nodes=[plugin("a", 2)], pods=[wants("p"), wants("q")])
    assert len(placed(confirm(state, run(state)))) == 2
    for each in "pq":
        state.upsert_pod(msgspec.structs.replace(state.tasks[f"uid-{each}"].pod, node="a"))
    state.claims.remove(DeviceClass, "gpu")
    state.upsert_pod(wants("high", 2, priority=5))
    assert preempted(run(state, 10.0)) == [["p", "q"]]
    invariants.check(state)


def starts(*items, passes=60):
    """When a job for all four GPUs of a node starts, while each minute one comes that needs one GPU for half an hour."""
    state = state_of(*items, nodes=[node("a", gpus=4)], patience=0.0)
    ends = {}

    def decide(now):
        found = placed(confirm(state, run(state, now)))
        for name in found:
            bound_ = msgspec.structs.replace(state.tasks[f"uid-{name}"].pod, node="a", started=now)
            ends[name] = now + bound_.time_limit
            state.upsert_pod(bound_)
        invariants.check(state)
        return found

    def of(name, count, lasts, **more):
        return wants(name, spec_=spec(gpus=count), amount=count, resource=GPU, time_limit=lasts, expected=lasts, **more)

    for at in range(4):
        state.upsert_pod(of(f"x{at}", 1, 600.0 + 300.0 * at))
    decide(0.0)
    state.upsert_pod(of("big", 4, 600.0, created=1.0))
    for number in range(1, passes):
        now = 60.0 * number
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name]
            state.remove_pod(f"uid-{name}")
        state.upsert_pod(of(f"s{number}", 1, 1800.0, created=now))
        if "big" in decide(now):
            return now
    return None


def test_what_a_device_plugin_has_is_reserved_as_where_no_class_serves_it():
    found = starts()
    assert found is not None
    assert starts(DeviceClass("gpu", resource=GPU)) == found


def test_one_gpu_of_a_device_plugin_is_not_reserved():
    state = state_of(DeviceClass("gpu", resource=GPU), nodes=[node("a", gpus=1)], patience=0.0)
    for name in "pq":
        state.upsert_pod(wants(name, spec_=spec(gpus=1), resource=GPU))
    confirm(state, run(state, 10.0))
    run(state, 20.0)
    assert not state.reserved.holds


@pytest.mark.parametrize("served", ["plugins", "plugins, and the class came later", "devices"])
def test_pods_move_whichever_way_their_resource_is_served(served):
    """One of two is free on each of two nodes: a pod moves, and what comes again finds the place that is kept for it."""
    by_devices = served == "devices"
    items = [gpus(name, 2) for name in "ab"] if by_devices else []
    nodes = [] if by_devices else [plugin(name, 2) for name in "ab"]
    state = state_of(*items, *(() if "later" in served else (CLASS,)), nodes=nodes, reservations=0)
    if by_devices:
        for name, there in zip("pq", "ab", strict=True):
            state.claims.upsert(made_for(name, there))
            state.upsert_pod(wants(name, at=there, extended_claim=f"{name}-1", started=0.0))
    else:
        for name in "pxq":
            state.upsert_pod(wants(name))
            (there,) = placed(confirm(state, run(state))).values()
            state.upsert_pod(msgspec.structs.replace(state.tasks[f"uid-{name}"].pod, node=there, started=0.0))
        state.remove_pod("uid-x")
    state.claims.upsert(CLASS)
    state.upsert_pod(wants("big", 2, created=0.0))
    assert not placed(run(state, 10.0))
    (plan,) = [each for each in run(state, 1000.0) if isinstance(each, Preempt)]
    assert plan.moves
    (victim,) = plan.victims
    state.remove_pod(victim.pod.uid)
    state.claims.remove(DeviceClaim, f"ns/{victim.pod.name}-1")
    state.upsert_pod(wants("again", created=1000.0))
    other = next(each for each in "ab" if each != victim.node)
    assert placed(run(state, 1001.0)) == {"big": victim.node, "again": other}
    invariants.check(state)

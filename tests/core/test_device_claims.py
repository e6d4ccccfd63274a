"""Devices by ResourceClaims in the running scheduler: what is decided for claims, who shares them, and what is given back."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.dra import model
from fairlead.core.dra.model import Allocation, Ask, Chosen, Claim, DeviceClaim, DeviceClass, DeviceId, DeviceTemplate, Request
from fairlead.core.forecast import forecast
from fairlead.core.links.matrix import links_of
from fairlead.core.model.pods import DeviceUse
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Deallocate, Place
from fairlead.core.state.stand_ins import record
from tests.builders import cluster, group, node, placed, pod, preempted, queue, refused, run, spec

DRIVER = "gpu.example.com"
GPU = DeviceClass("gpu")


def gpus(host, count, **more):
    """A slice with whole GPUs."""
    devices = tuple(model.Device(f"gpu-{each}", DRIVER, {"index": each}) for each in range(count))
    return model.Slice(host, DRIVER, host, 1, 1, model.Reach(host), devices=devices, **more)


def halves(host, count):
    """A slice with GPUs that are whole, or two halves, and the counters."""
    devices = []
    for each in range(count):
        for name, amount in (("whole", 2), ("half-0", 1), ("half-1", 1)):
            kind = name.partition("-")[0]
            counters = ((f"gpu-{each}", (("memory", amount),)),)
            devices.append(model.Device(f"gpu-{each}-{name}", DRIVER, {"kind": kind}, counters=counters))
    sets = tuple((f"gpu-{each}", {"memory": 2}) for each in range(count))
    reach = model.Reach(host)
    return (
        model.Slice(f"{host}-counters", DRIVER, host, 1, 2, reach, counters=sets),
        model.Slice(f"{host}-devices", DRIVER, host, 1, 2, reach, devices=tuple(devices)),
    )


def asks(*counts, kind=""):
    selectors = (f'device.attributes["{DRIVER}"].kind == "{kind}"',) if kind else ()
    requests = tuple(
        Request(f"r{at}", (Ask(f"r{at}", "gpu", count=count, selectors=selectors),)) for at, count in enumerate(counts)
    )
    return Claim("", "", requests)


def claim(name, *counts, kind="", **more):
    return DeviceClaim(f"ns/{name}", f"uid-{name}", asks(*counts or (1,), kind=kind), **more)


def held(host, *devices, request="r0"):
    chosen = tuple(Chosen(request, DeviceId(DRIVER, host, each)) for each in devices)
    terms = (SelectorTerm(fields=(Requirement("metadata.name", "In", (host,)),)),)
    return Allocation(chosen, (), terms)


def uses(name, *claims, **more):
    found = tuple(DeviceUse(each, f"ns/{each}") for each in claims)
    return pod(name, spec_=spec(gpus=0), claims=found, **more)


def state_of(*items, pods=(), hosts=("a", "b"), known=True, **more):
    state = cluster([node(host, gpus=0) for host in hosts], **more)
    for each in (GPU, *items):
        state.claims.upsert(each)
    if known:
        state.claims.all_known()
    for each in pods:
        state.upsert_pod(each)
    return state


def allocated(transactions):
    """claim -> devices, of what is to be written."""
    return {
        choice.claim: [each.device.device for each in choice.allocation.devices]
        for transaction in transactions
        if isinstance(transaction, Place)
        for binding in transaction.bindings
        for choice in binding.claims
        if choice.decided
    }


def test_a_pod_goes_where_its_claim_can_be_allocated():
    state = state_of(gpus("b", 2), claim("c", 2), pods=[uses("p", "c")])
    transactions = run(state)
    assert placed(transactions) == {"p": "b"}
    assert allocated(transactions) == {"ns/c": ["gpu-0", "gpu-1"]}


def bridged(host, *pairs):
    """A node of four GPUs with NVLink between these pairs."""
    weights = [[0 if at == to else 400 if {at, to} in pairs else 10 for to in range(4)] for at in range(4)]
    return msgspec.structs.replace(node(host, gpus=0), links=links_of(weights))


def test_a_claim_gets_gpus_that_are_connected_and_a_changed_annotation_counts_from_then_on():
    state = state_of(gpus("b", 4), claim("c", 2), claim("d", 1), pods=[], hosts=("a",))
    state.upsert_node(bridged("b", {0, 3}, {1, 2}))
    state.claims.upsert(claim("c", 2, allocation=held("b", "gpu-0"), users=("x",)))
    state.upsert_pod(uses("q", "d"))
    assert allocated(run(state)) == {"ns/d": ["gpu-3"]}, "the other pair stays whole"
    invariants.check(state)
    state = state_of(gpus("b", 4), claim("c", 2), claim("d", 2), hosts=("a",))
    state.upsert_node(bridged("b", {0, 3}, {1, 2}))
    state.upsert_node(bridged("b", {0, 2}, {1, 3}))
    state.upsert_pod(uses("p", "c"))
    assert allocated(run(state)) == {"ns/c": ["gpu-0", "gpu-2"]}
    state.upsert_pod(uses("q", "d"))
    assert allocated(run(state)) == {"ns/d": ["gpu-1", "gpu-3"]}


def test_a_device_is_given_once():
    state = state_of(gpus("a", 1), claim("c"), claim("d"), pods=[uses("p", "c"), uses("q", "d")])
    transactions = run(state)
    assert placed(transactions) == {"p": "a"}
    assert refused(transactions)["q"].code is ReasonCode.DEVICES
    assert "1 are allocated" in refused(transactions)["q"].message


def test_what_the_status_says_is_held():
    state = state_of(gpus("a", 1), claim("c", allocation=held("a", "gpu-0"), users=("x",)), claim("d"), pods=[uses("q", "d")])
    assert placed(run(state)) == {}
    state.claims.upsert(claim("c"))
    assert placed(run(state)) == {"q": "a"}


def test_a_pod_with_an_allocated_claim_goes_where_that_is():
    state = state_of(gpus("a", 1), gpus("b", 1), claim("c", allocation=held("b", "gpu-0")), pods=[uses("p", "c")])
    transactions = run(state)
    assert placed(transactions) == {"p": "b"}
    assert allocated(transactions) == {}


def test_pods_that_share_a_claim_share_its_devices():
    state = state_of(gpus("a", 1), gpus("b", 1), claim("c"), pods=[uses("p", "c"), uses("q", "c")])
    transactions = run(state)
    assert len(set(placed(transactions).values())) == 1
    assert set(placed(transactions)) == {"p", "q"}


def test_a_claim_that_does_not_exist_is_waited_for():
    state = state_of(gpus("a", 1), pods=[uses("p", "c")])
    reason = refused(run(state))["p"]
    assert (reason.code, placed(run(state))) == (ReasonCode.DEVICES, {})
    assert "ns/c does not exist" in reason.message
    state.claims.upsert(claim("c"))
    assert placed(run(state)) == {"p": "a"}


def test_a_claim_is_waited_for_until_its_template_has_made_it():
    made = pod("p", spec_=spec(gpus=0), claims=(DeviceUse("gpu", "", "ns/t"),))
    state = state_of(gpus("a", 1), DeviceTemplate("ns/t", asks(1)), pods=[made])
    assert "from template ns/t" in refused(run(state))["p"].message
    state.claims.upsert(claim("p-gpu-x", owner="uid-p"))
    state.upsert_pod(msgspec.structs.replace(made, claims=(DeviceUse("gpu", "ns/p-gpu-x", "ns/t"),)))
    transactions = run(state)
    assert placed(transactions) == {"p": "a"}
    assert allocated(transactions) == {"ns/p-gpu-x": ["gpu-0"]}


def test_nothing_is_decided_before_all_devices_are_known():
    state = state_of(gpus("a", 1), claim("c"), pods=[uses("p", "c")], known=False)
    assert placed(run(state)) == {}
    state.claims.all_known()
    assert placed(run(state)) == {"p": "a"}


def test_a_class_that_does_not_exist_is_waited_for():
    state = state_of(gpus("a", 1), claim("c"), pods=[uses("p", "c")])
    state.claims.remove(DeviceClass, "gpu")
    assert "device class gpu does not exist" in refused(run(state))["p"].message
    state.claims.upsert(GPU)
    assert placed(run(state)) == {"p": "a"}


def test_whole_devices_stay_whole_while_halves_suffice():
    items = [*halves("a", 2), claim("x", kind="half"), claim("y", kind="half"), claim("z", kind="whole")]
    state = state_of(*items, pods=[uses("p", "x"), uses("q", "y"), uses("r", "z")], hosts=("a",))
    assert set(placed(run(state))) == {"p", "q", "r"}


def test_a_refused_binding_leaves_the_devices_with_the_claim_until_its_status_says_otherwise():
    state = state_of(
        gpus("a", 1), claim("c"), claim("d"), pods=[uses("p", "c", created=1), uses("q", "d", created=2)], hosts=("a",)
    )
    assert placed(run(state)) == {"p": "a"}
    state.claims.upsert(claim("c", allocation=held("a", "gpu-0"), users=("uid-p",)))
    state.bind_failed("uid-p", 0.0)
    assert placed(run(state, 0.1)) == {}
    state.claims.upsert(claim("c"))
    assert placed(run(state, 0.2)) == {"q": "a"}


def test_a_victim_gives_its_devices_back_once_its_claim_is_free():
    low = uses("low", "c", priority=1, at="a")
    state = state_of(
        gpus("a", 1),
        claim("c", allocation=held("a", "gpu-0"), users=("uid-low",)),
        claim("d"),
        pods=[low, uses("high", "d", priority=10)],
        hosts=("a",),
    )
    transactions = run(state)
    assert preempted(transactions) == [["low"]]
    state.remove_pod("uid-low")
    assert placed(run(state, 1)) == {}  # the claim has the device still
    state.claims.upsert(claim("c"))
    transactions = run(state, 2)
    assert placed(transactions) == {"high": "a"}
    assert allocated(transactions) == {"ns/d": ["gpu-0"]}


def test_a_gang_is_placed_with_a_claim_of_each_member_or_not_at_all():
    members = [uses(f"m{each}", f"c{each}", group="g") for each in range(3)]
    claims = [claim(f"c{each}") for each in range(3)]
    state = state_of(gpus("a", 1), gpus("b", 1), *claims, pods=members, groups=[group("g", 3)])
    assert placed(run(state)) == {}
    state.claims.upsert(gpus("b", 2))
    assert len(placed(run(state, 1))) == 3


def test_a_claim_whose_pod_cannot_run_where_its_devices_are_gives_them_back():
    full = pod("full", spec_=spec(gpus=0, cpu=64_000), at="b")
    state = state_of(gpus("a", 1), gpus("b", 1), claim("c", allocation=held("b", "gpu-0"), users=("uid-p",)), pods=[full])
    state.upsert_pod(uses("p", "c"))
    transactions = run(state)
    assert (placed(transactions), preempted(transactions)) == ({}, [])
    (asked,) = [each for each in transactions if isinstance(each, Deallocate)]
    assert [(each.pod.name, each.claims[0].claim) for each in asked.bindings] == [("p", "ns/c")]
    state.claims.upsert(claim("c"))
    assert placed(run(state, 1)) == {"p": "a"}


def test_queues_are_charged_for_the_part_of_a_gpu_that_devices_are():
    items = [*halves("a", 2), claim("x", kind="half"), claim("y", kind="whole")]
    state = state_of(*items, pods=[uses("p", "x"), uses("q", "y")], hosts=("a",))
    assert set(placed(run(state))) == {"p", "q"}
    assert state.queues.queues["default"].used["nvidia.com/gpu"] == 1500
    assert state.queues.tree.total("nvidia.com/gpu") == 2000


def test_a_quota_for_gpus_limits_claims():
    state = state_of(
        *halves("a", 2), claim("x", kind="half"), claim("y", kind="whole"), hosts=("a",), queues=[queue("q", limit=1)]
    )
    state.upsert_pod(uses("p", "x", queue="q", created=1))
    state.upsert_pod(uses("r", "y", queue="q", created=2))
    transactions = run(state)
    assert placed(transactions) == {"p": "a"}
    assert refused(transactions)["r"].code is ReasonCode.LIMIT_EXCEEDED


def either(name):
    """A claim for a whole GPU, or a half of one."""
    kinds = [(f'device.attributes["{DRIVER}"].kind == "{kind}"',) for kind in ("whole", "half")]
    alternatives = tuple(Ask(f"r/{at}", "gpu", selectors=each) for at, each in enumerate(kinds))
    return DeviceClaim(f"ns/{name}", f"uid-{name}", Claim("", "", (Request("r", alternatives),)))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_devices_of_a_gang_are_decided_together(count):
    members = [uses(f"m{each}", f"c{each}", group="g") for each in range(count)]
    claims = [either(f"c{each}") for each in range(count)]
    state = state_of(*halves("a", 2), *claims, pods=members, groups=[group("g", count)], hosts=("a",))
    transactions = run(state)
    assert len(placed(transactions)) == count
    devices = [device for each in allocated(transactions).values() for device in each]
    assert len(set(devices)) == count
    invariants.check(state)


@pytest.mark.parametrize("count", [4, 5])
def test_what_waits_is_tried_once_a_gang_with_claims_was(count):
    """Whether the gang got its devices or not, the trial of its members ends, so what leaves afterwards wakes others."""
    members = [uses(f"m{each}", f"c{each}", group="g", priority=5) for each in range(count)]
    pods = [*members, pod("first", at="b"), pod("second")]
    items = [*halves("a", 2), *(either(f"c{each}") for each in range(count))]
    state = state_of(*items, groups=[group("g", count)], hosts=("a",))
    state.upsert_node(node("b", gpus=1))
    for each in pods:
        state.upsert_pod(each)
    assert len(placed(run(state))) == (count if count == 4 else 0)
    invariants.check(state)
    state.remove_pod("uid-first")
    assert placed(run(state, 2.0)) == {"second": "b"}


def test_a_gang_that_shares_a_claim_gets_it_on_one_node():
    members = [uses(f"m{each}", "c", f"own{each}", group="g") for each in range(2)]
    items = [*halves("a", 1), *halves("b", 2), claim("c", kind="half"), either("own0"), either("own1")]
    state = state_of(*items, pods=members, groups=[group("g", 2)])
    assert set(placed(run(state)).values()) == {"b"}


def test_the_places_of_a_suspended_job_hold_devices_by_its_template():
    placeholder = pod("s", spec_=spec(gpus=0), claims=(DeviceUse("gpu", "", "ns/t"),), placeholder=True)
    state = state_of(gpus("a", 1), DeviceTemplate("ns/t", asks(1)), claim("c"), hosts=("a",))
    state.upsert_pod(placeholder)
    (task,) = state.tasks.values()
    assert [(need.missing, state.device_claims.wants.content(need.content)) for need in task.shape.spec.devices] == [
        (False, asks(1))
    ]
    state.placement.place(task, 0)
    assert not state.device_claims.problems([task.pod], [task.pod])
    state.upsert_pod(uses("p", "c"))
    waiting = state.tasks["uid-p"]
    assert not waiting.ranking.fits_row(0)
    state.placement.unassign(task)
    assert waiting.ranking.fits_row(0)


def test_what_is_remembered_of_a_suspended_pod_names_no_claim_of_its_own():
    running = pod("p", spec_=spec(gpus=0), at="a", claims=(DeviceUse("one", "ns/p-one-x", "ns/t"), DeviceUse("two", "ns/named")))
    state = state_of(claim("p-one-x", owner="uid-p"), claim("named"), pods=[running], hosts=("a",))
    kept = record(state.tasks["uid-p"].pod, 0.0, 0.0, 0.0, anew=False)
    assert [(use.name, use.key, use.template) for use in kept.claims] == [("one", "", "ns/t"), ("two", "ns/named", "")]
    assert kept.spec.devices == ()


def test_members_of_a_gang_are_charged_for_a_shared_claim_in_equal_parts():
    state = state_of(gpus("a", 8), claim("c", 8), hosts=("a",), groups=[group("g", 4)])
    for each in range(4):
        state.upsert_pod(uses(f"m{each}", "c", group="g"))
    assert len(placed(run(state))) == 4
    assert state.queues.queues["default"].used["nvidia.com/gpu"] == 8000


def test_pods_that_never_start_make_a_claim_no_cheaper():
    state = state_of(gpus("a", 8), claim("c", 8), hosts=("a",), queues=[queue("q", limit=1)])
    for each in range(9):
        state.upsert_pod(uses(f"z{each}", "c", queue="q", gated=True, created=2))
    state.upsert_pod(uses("p", "c", queue="q", created=1))
    assert placed(run(state)) == {}


def test_a_pod_that_waits_for_a_claim_keeps_no_device_of_a_victim_from_others():
    low = uses("low", "c", priority=1, at="a")
    state = state_of(
        gpus("a", 1), claim("c", allocation=held("a", "gpu-0"), users=("uid-low",)), claim("d"), pods=[low], hosts=("a",)
    )
    state.upsert_pod(pod("same", spec_=spec(gpus=0, selector={"x": "y"}), claims=low.claims))
    state.upsert_pod(uses("high", "d", priority=10))
    assert preempted(run(state)) == [["low"]]


def test_a_claim_that_was_freed_before_its_pod_was_seen_to_end_holds_nothing():
    state = state_of(gpus("a", 1), claim("c"), claim("d"), pods=[uses("p", "c")], hosts=("a",))
    run(state)
    state.claims.upsert(claim("c", allocation=held("a", "gpu-0"), users=("uid-p",)))
    state.pods.bound("uid-p")
    state.upsert_pod(pod("q", spec_=spec(gpus=0, selector={"x": "y"}), claims=(DeviceUse("c", "ns/c"),)))
    state.upsert_pod(uses("x", "d"))
    assert placed(run(state, 1)) == {}
    state.claims.upsert(claim("c"))
    state.remove_pod("uid-p")
    assert placed(run(state, 10)) == {"x": "a"}


def test_pods_wait_while_the_one_that_used_their_claim_leaves_and_start_then():
    items = [gpus("a", 2), claim("c", 2, allocation=held("a", "gpu-0", "gpu-1"), users=("uid-low",)), claim("d", 2)]
    state = state_of(*items, pods=[uses("low", "c", priority=1, at="a"), uses("high", "d", priority=10)], hosts=("a",))
    assert preempted(run(state)) == [["low"]]
    state.upsert_pod(uses("q", "c"))
    state.upsert_pod(uses("r", "c"))
    assert placed(run(state, 1)) == {}
    state.remove_pod("uid-low")
    state.claims.upsert(claim("c", 2))
    assert placed(run(state, 2)) == {"high": "a"}
    state.remove_pod("uid-high")
    assert set(placed(run(state, 3))) == {"q", "r"}


def test_a_class_that_is_listed_last_is_charged_all_the_same():
    state = cluster([node("a", gpus=0)], queues=[queue("q", limit=1)])
    for each in range(3):
        state.upsert_pod(uses(f"p{each}", f"c{each}", queue="q", created=each))
    for item in (gpus("a", 4), *(claim(f"c{each}") for each in range(3)), GPU):
        state.claims.upsert(item)
    state.claims.all_known()
    assert placed(run(state)) == {"p0": "a"}


def test_one_claim_is_used_by_as_many_pods_as_it_can_be_reserved_for():
    members = [uses(f"m{each}", "c", group="g") for each in range(5)]
    users = tuple(f"uid-u{each}" for each in range(254))
    state = state_of(gpus("a", 1), claim("c", allocation=held("a", "gpu-0"), users=users), hosts=("a",), groups=[group("g", 3)])
    for uid in users:
        state.upsert_pod(pod(uid[4:], spec_=spec(gpus=0, cpu=1, memory=1), at="a", claims=members[0].claims))
    for each in members[:3]:
        state.upsert_pod(each)
    assert placed(run(state)) == {}


def test_nothing_is_taken_back_before_all_devices_are_known_nor_for_a_limit():
    items = [gpus("a", 1), claim("c", allocation=held("a", "gpu-0"), users=("uid-p",))]
    state = state_of(*items, pods=[uses("p", "c")], hosts=("a",), known=False)
    assert not [each for each in run(state) if isinstance(each, Deallocate)]
    state = state_of(*items, pods=[uses("p", "c", queue="q")], hosts=("a",), queues=[queue("q", limit=0)])
    assert not [each for each in run(state) if isinstance(each, Deallocate)]


def test_gpus_of_a_pool_are_counted_in_its_newest_generation():
    state = state_of(gpus("a", 8), hosts=("a",))
    state.claims.upsert(msgspec.structs.replace(gpus("a", 8), name="new", generation=2))
    assert state.queues.tree.total("nvidia.com/gpu") == 8000
    state.claims.remove(model.Slice, "a")
    state.claims.remove(model.Slice, "new")
    assert state.queues.tree.total("nvidia.com/gpu") == 0


def test_claims_that_differ_in_parameters_of_drivers_share_the_verdicts_of_nodes():
    items = [gpus(host, 1) for host in "ab"]
    asked = [msgspec.structs.replace(asks(1), configs=(model.Config(f'{{"number": {each}}}'),)) for each in range(20)]
    items += [DeviceClaim(f"ns/c{at}", f"uid-{at}", each) for at, each in enumerate(asked)]
    items.append(claim("other", kind="none"))
    state = state_of(*items)
    for each in range(20):
        state.upsert_pod(uses(f"p{each}", f"c{each}", created=each))
    state.upsert_pod(uses("q", "other", created=30))
    bindings = [binding for each in run(state) if isinstance(each, Place) for binding in each.bindings]
    assert [each.claims[0].allocation.configs for each in bindings] == [
        (("FromClaim", (), '{"number": 0}'),),
        (("FromClaim", (), '{"number": 1}'),),
    ]
    assert len(state.device_claims.verdicts) == 2
    state.remove_pod("uid-q")
    for each in range(20):
        state.remove_pod(f"uid-p{each}")
    run(state, 1.0)
    assert len(state.device_claims.verdicts) == 0, "they go with the shapes"


def test_jobs_with_claims_are_forecast_when_their_devices_come_free():
    asked = [claim(name, *counts) for name, counts in (("c", (2,)), ("d", (1,)), ("e", (3,)))]
    taken = [
        claim("x", allocation=held("a", "gpu-0"), users=("uid-x",)),
        claim("y", allocation=held("a", "gpu-1"), users=("uid-y",)),
    ]
    running = [uses("x", "x", at="a", started=0.0, expected=600.0), uses("y", "y", at="a", started=0.0, expected=1200.0)]
    waiting = [uses("p", "c", created=1.0), uses("q", "d", created=2.0), uses("r", "e", created=3.0)]
    state = state_of(gpus("a", 2), *asked, *taken, pods=[*running, *waiting])
    assert placed(run(state)) == {}
    found = {job.removeprefix("uid-"): start for job, start in forecast(state, 0.0).items()}
    assert found.keys() == {"p", "q"}, "no node has three"
    assert found["q"] == 600.0
    assert found["p"] >= 1200.0

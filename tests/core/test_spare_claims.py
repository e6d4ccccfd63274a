"""Spare places of gangs whose members have ResourceClaims: each has devices, like those of the member that it stands in for."""

import msgspec

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.dra.model import DeviceClaim, DeviceTemplate, Slice
from fairlead.core.model.groups import Followers, Group
from fairlead.core.model.nodes import NetworkLevel, NodePool
from fairlead.core.model.pods import Closeness, DeviceUse
from fairlead.core.model.transactions import Deallocate
from tests.builders import cluster, node, placed, pod, refused, run, spec
from tests.core.test_device_claims import GPU, asks, gpus, held

TEMPLATE = DeviceTemplate("ns/t", asks(1))


def world(*sizes, spares=1):
    """One rack; so many GPUs on each node."""
    state = cluster(gang_grace=1e9)
    state.upsert_pool(NodePool("p", levels=(NetworkLevel("rack", "net/rack"),)))
    for item in (GPU, TEMPLATE):
        state.claims.upsert(item)
    for number, size in enumerate(sizes):
        state.upsert_node(node(f"n{number}", gpus=0, labels={"net/rack": "r"}))
        state.claims.upsert(gpus(f"n{number}", size))
    state.claims.all_known()
    state.upsert_group(Group("ns", "g", 2, closeness=Closeness(("rack",), spares=spares)))
    return state


def member(state, name, *, claim="", made=True, group="g"):
    """A pod whose claim is made of the template, or that names one."""
    key = f"ns/{claim or name}"
    if made:
        state.claims.upsert(DeviceClaim(key, f"uid-{key}", asks(1), owner="" if claim else f"uid-{name}"))
    use = DeviceUse("gpu", key) if claim else DeviceUse("gpu", key if made else "", TEMPLATE.key)
    state.upsert_pod(pod(name, spec_=spec(gpus=0), claims=(use,), group=group))


def bind(state, name, device="gpu-0"):
    """What was decided for a pod is written."""
    task = state.tasks[f"uid-{name}"]
    (use,) = task.pod.claims
    where = state.nodes.names[task.row]
    claim = state.device_claims.claims[use.key]
    state.claims.upsert(msgspec.structs.replace(claim, allocation=held(where, device), users=(task.pod.uid,)))
    state.pods.bound(task.pod.uid)
    state.upsert_pod(msgspec.structs.replace(task.pod, node=where))
    return where


def kept(state):
    return list(state.spares.nodes(state.gangs["ns/g"]))


def used(state):
    return state.queues.queues["default"].used.get("nvidia.com/gpu", 0) / 1000


def test_a_gang_starts_only_where_its_spare_has_devices_too():
    state = world(1, 1)
    for name in ("g-0", "g-1"):
        member(state, name)
    reason = refused(run(state, 1.0))["g-0"]
    assert (reason.code, reason.numbers["needed"]) == (ReasonCode.TOPOLOGY, 3)
    state.upsert_node(node("n2", gpus=0, labels={"net/rack": "r"}))
    state.claims.upsert(gpus("n2", 1))
    assert len(placed(run(state, 2.0))) == 2
    assert (len(kept(state)), used(state)) == (1, 3)
    member(state, "other", group="")
    assert placed(run(state, 3.0)) == {}, "the GPU that is left is the spare's"
    invariants.check(state)


def test_without_its_template_no_spare_has_devices_and_that_is_the_reason():
    state = world(1, 1, 1)
    for name in ("g-0", "g-1"):
        member(state, name)
    state.claims.remove(DeviceTemplate, TEMPLATE.key)
    reason = refused(run(state, 1.0))["g-0"]
    assert reason.code is ReasonCode.DEVICES
    assert "1 of them for its spare" in reason.message
    assert "resourceclaimtemplate ns/t does not exist" in reason.message
    state.claims.upsert(TEMPLATE)
    assert len(placed(run(state, 2.0))) == 2


def test_that_a_claim_is_not_made_yet_is_the_reason_also_with_a_topology():
    state = world(1, 1, spares=0)
    member(state, "g-0")
    member(state, "g-1", made=False)
    reason = refused(run(state, 1.0))["g-1"]
    assert reason.code is ReasonCode.DEVICES
    assert "waiting for a resourceclaim to be created from template ns/t" in reason.message


def test_a_replacement_waits_for_its_claim_and_gets_the_devices_of_the_spare():
    state = world(1, 1, 1)
    for name in ("g-0", "g-1"):
        member(state, name)
    run(state, 1.0)
    (spare,) = kept(state)
    lost = bind(state, "g-0")
    bind(state, "g-1")
    state.remove_node(lost)
    state.claims.remove(Slice, lost)
    state.remove_pod("uid-g-0")
    state.claims.remove(DeviceClaim, "ns/g-0")
    member(state, "again", made=False)
    member(state, "other", group="")
    assert placed(run(state, 2.0)) == {}
    assert kept(state) == [spare], "it is kept while the claim is made"
    member(state, "again")
    assert placed(run(state, 3.0)) == {"again": spare}
    assert (kept(state), used(state)) == ([], 2)
    invariants.check(state)


def test_a_spare_for_members_with_claims_that_each_names_has_devices_of_its_own():
    """A replacement names the claim of the pod before it, which gets devices anew once it is deallocated."""
    state = world(1, 1, 1)
    for name in ("g-0", "g-1"):
        member(state, name, claim=f"of-{name}")
    assert len(placed(run(state, 1.0))) == 2
    (spare,) = kept(state)
    assert used(state) == 3
    lost = bind(state, "g-1")
    bind(state, "g-0")
    assert spare not in (lost, state.tasks["uid-g-0"].pod.node)
    state.remove_node(lost)
    state.claims.remove(Slice, lost)
    state.remove_pod("uid-g-1")
    freed = state.device_claims.claims["ns/of-g-1"]
    state.claims.upsert(msgspec.structs.replace(freed, users=()))
    state.upsert_pod(pod("again", spec_=spec(gpus=0), claims=(DeviceUse("gpu", "ns/of-g-1"),), group="g"))
    assert any(isinstance(each, Deallocate) for each in run(state, 2.0))
    state.claims.upsert(msgspec.structs.replace(freed, users=(), allocation=None))
    assert placed(run(state, 3.0)) == {"again": spare}
    assert kept(state) == []
    invariants.check(state)


def test_a_spare_shares_the_claim_that_all_members_share():
    state = world(1, 1)
    for name in ("g-0", "g-1"):
        member(state, name, claim="shared")
    assert len(set(placed(run(state, 1.0)).values())) == 1
    assert kept(state) == [state.nodes.names[state.tasks["uid-g-0"].row]]
    assert used(state) == 1, "its devices are charged once, to the members"
    member(state, "other", group="")
    assert len(placed(run(state, 2.0))) == 1, "one GPU is all that the gang holds"
    invariants.check(state)
    # A member is replaced: while it is away its part is not charged, and its replacement pays it again.
    state.remove_pod("uid-g-1")
    assert used(state) == 1.5
    member(state, "again", claim="shared")
    assert set(placed(run(state, 3.0))) == {"again"}
    assert used(state) == 2, "with the other pod's"
    invariants.check(state)


def test_a_shared_claim_that_comes_late_is_charged_once_beside_spares():
    state = world(1, 1, spares=2)
    use = DeviceUse("gpu", "ns/shared")
    for name in ("g-0", "g-1"):
        state.upsert_pod(pod(name, spec_=spec(gpus=0), claims=(use,), group="g"))
    assert placed(run(state, 1.0)) == {}
    state.claims.upsert(DeviceClaim("ns/shared", "uid-shared", asks(1)))
    assert len(placed(run(state, 2.0))) == 2
    assert (len(kept(state)), used(state)) == (2, 1)
    invariants.check(state)


def test_places_for_followers_have_the_devices_that_their_template_asks_for():
    """JobSet's leader without GPUs; its followers have claims of a template. Another pod gets none of their devices."""
    index, job = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/replicatedjob-name"
    like = pod("like", spec_=spec(gpus=0), claims=(DeviceUse("gpu", "", TEMPLATE.key),))
    state = world(1, 2)
    led = Followers("ns/followers", ((index, "0"), (job, "a")), "net/rack", 2, like)
    state.upsert_group(Group("ns", "leaders", 1, followers=(led,)))
    state.upsert_group(Group("ns", "followers", 2))
    state.upsert_pod(pod("lead", spec_=spec(gpus=0), group="leaders", labels=((index, "0"), (job, "a"))))
    assert set(placed(run(state, 1.0))) == {"lead"}
    places = sorted(state.spares.nodes(state.gangs["ns/leaders"]))
    assert len(places) == 2
    for name in ("other-0", "other-1"):
        member(state, name, group="")
    assert len(placed(run(state, 2.0))) == 1
    for name in ("f-0", "f-1"):
        member(state, name, group="followers")
    assert sorted(placed(run(state, 3.0)).values()) == places
    assert not state.spares.keys
    invariants.check(state)

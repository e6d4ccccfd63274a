"""Volumes in the running scheduler: what is decided for claims that wait for their first consumer, and given back."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.pods import ClaimUse, Disk
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Place, VolumeChoice
from fairlead.core.nodes.storage import BINDS_LATE, SINGLE_POD, Claim, NodeDrivers, StorageClass, Volume
from tests.builders import cluster, group, node, placed, pod, preempted, refused, run, spec

GIB = 1 << 30


def on(name):
    return (SelectorTerm((Requirement("host", "In", (name,)),)),)


def disk(name, host, size=10, **more):
    return Volume(name, "local", size * GIB, ("ReadWriteOnce",), available=True, nodes=on(host), **more)


def claim(name, size=5, **more):
    return Claim(
        f"ns/{name}", f"uid-{name}", more.pop("storage_class", "local"), access_modes=("ReadWriteOnce",), size=size * GIB, **more
    )


def mounts(name, *claims, **more):
    uses = tuple(ClaimUse(f"ns/{each}") for each in claims)
    return pod(name, spec_=msgspec.structs.replace(spec(gpus=0), claims=uses), **more)


def state_of(*items, pods=(), hosts=("a", "b"), groups=()):
    state = cluster([node(host, gpus=0, labels={"host": host}) for host in hosts], groups=groups)
    for each in (
        StorageClass("local", "kubernetes.io/no-provisioner", BINDS_LATE),
        StorageClass("made", "csi", BINDS_LATE),
        *items,
    ):
        state.upsert_storage(each)
    state.storage_known()
    for each in pods:
        state.upsert_pod(each)
    return state


def volumes(transactions):
    return {b.pod.name: b.volumes for each in transactions if isinstance(each, Place) for b in each.bindings}


def test_a_pod_goes_where_its_volume_can_be_reached():
    bound = claim("c", volume="v", bound=True)
    state = state_of(disk("v", "b", claim="ns/c"), bound, pods=[mounts("p", "c")])
    transactions = run(state)
    assert placed(transactions) == {"p": "b"}
    assert volumes(transactions) == {"p": ()}


def test_two_claims_never_get_the_same_volume():
    items = (disk("small", "a"), disk("large", "b", size=20), claim("c1"), claim("c2"))
    transactions = run(state_of(*items, pods=[mounts("p1", "c1"), mounts("p2", "c2", created=1)]))
    assert volumes(transactions) == {
        "p1": (VolumeChoice("ns/c1", "small"),),
        "p2": (VolumeChoice("ns/c2", "large"),),
    }
    assert placed(transactions) == {"p1": "a", "p2": "b"}


def test_two_claims_of_one_pod_never_get_the_same_volume():
    claims = (claim("c1"), claim("c2"))
    transactions = run(state_of(disk("small", "a"), disk("large", "a", size=20), *claims, pods=[mounts("p", "c1", "c2")]))
    assert sorted(choice.volume for choice in volumes(transactions)["p"]) == ["large", "small"]
    assert not placed(run(state_of(disk("small", "a"), *claims, pods=[mounts("p", "c1", "c2")])))


def test_the_members_of_a_gang_share_no_volume():
    items = (disk("va", "a"), disk("vb", "b"), *(claim(f"c{i}") for i in range(3)))
    members = [mounts(f"p{i}", f"c{i}", group="g") for i in range(2)]
    chosen = [
        choice.volume for each in volumes(run(state_of(*items, pods=members, groups=[group("g", 2)]))).values() for choice in each
    ]
    assert sorted(chosen) == ["va", "vb"]
    three = [mounts(f"p{i}", f"c{i}", group="g") for i in range(3)]
    state = state_of(*items, pods=three, groups=[group("g", 3)])
    assert not placed(run(state))
    assert not state.storage.taken


def test_what_was_decided_is_given_back_when_the_binding_fails():
    state = state_of(disk("v", "a"), claim("c1"), claim("c2"), pods=[mounts("p1", "c1"), mounts("p2", "c2", created=1)])
    transactions = run(state)
    assert placed(transactions) == {"p1": "a"}
    assert refused(transactions)["p2"].code is ReasonCode.VOLUMES
    state.bind_failed("uid-p1", 0.0)
    assert not state.storage.taken
    assert volumes(run(state, 0.5)) == {"p2": (VolumeChoice("ns/c2", "v"),)}


def test_a_volume_is_made_on_the_node_that_was_chosen():
    state = state_of(claim("c", storage_class="made"), pods=[mounts("p", "c")])
    transactions = run(state)
    assert volumes(transactions) == {"p": (VolumeChoice("ns/c"),)}
    assert state.storage.chosen == {"ns/c": placed(transactions)["p"]}


def test_a_pod_waits_for_its_claim_and_is_requeued_by_it():
    state = state_of(disk("v", "a"), pods=[mounts("p", "c")])
    transactions = run(state)
    assert "does not exist" in refused(transactions)["p"].message
    state.upsert_storage(claim("c"))
    assert placed(run(state)) == {"p": "a"}


def test_a_new_claim_requeues_a_pod_that_has_to_preempt():
    high = msgspec.structs.replace(spec(gpus=8), claims=(ClaimUse("ns/c"),))
    state = cluster([node("a", labels={"host": "a"})], pods=[pod("low", gpus=8, at="a"), pod("high", spec_=high, priority=5)])
    state.upsert_storage(StorageClass("local", "kubernetes.io/no-provisioner", BINDS_LATE))
    state.upsert_storage(disk("v", "a"))
    state.storage_known()
    assert "does not exist" in refused(run(state))["high"].message
    state.upsert_storage(claim("c"))
    assert preempted(run(state)) == [["low"]]


@pytest.mark.parametrize(
    ("kind", "driver"),
    [("aws", "ebs.csi.aws.com"), ("azure-disk", "disk.csi.azure.com"), ("cinder", "cinder.csi.openstack.org")],
)
def test_inline_disks_that_were_migrated_count_against_their_drivers_limit(kind, driver):
    state = state_of(NodeDrivers("a", ((driver, 1),)), hosts=("a",))
    for number in range(2):
        given = msgspec.structs.replace(spec(gpus=0), disks=(Disk(kind, f"disk-{number}"),))
        state.upsert_pod(pod(f"p{number}", spec_=given, created=number))
    transactions = run(state)
    assert placed(transactions) == {"p0": "a"}
    assert "max volume count" in refused(transactions)["p1"].message


def test_a_volume_that_is_attached_for_another_pod_counts_once_against_the_limit():
    items = [NodeDrivers("a", (("csi", 1),)), NodeDrivers("b", (("csi", 0),))]
    items += [Volume(f"v{name}", driver="csi", handle=f"h{name}", claim=f"ns/c{name}") for name in "12"]
    items += [claim(f"c{name}", storage_class="made", volume=f"v{name}", bound=True) for name in "12"]
    state = state_of(*items, pods=[mounts("runs", "c1", at="a"), mounts("shares", "c1"), mounts("more", "c2", created=1)])
    transactions = run(state)
    assert placed(transactions) == {"shares": "a"}
    assert "max volume count" in refused(transactions)["more"].message


def test_nothing_with_claims_is_placed_before_the_volumes_are_known():
    state = cluster([node("a", gpus=0)], pods=[mounts("p", "c"), pod("free", gpus=0)])
    state.upsert_storage(claim("c", volume="v", bound=True))
    state.upsert_storage(Volume("v", claim="ns/c"))
    assert placed(run(state)) == {"free": "a"}
    state.storage_known()
    assert placed(run(state)) == {"p": "a"}


def test_a_claim_for_one_pod_only():
    shared = Claim("ns/c", "u", "local", "v", bound=True, access_modes=(SINGLE_POD,))
    state = state_of(Volume("v", claim="ns/c"), shared, pods=[mounts("first", "c", at="a"), mounts("second", "c")])
    assert not placed(run(state))
    state.remove_pod("uid-first")
    assert "second" in placed(run(state))

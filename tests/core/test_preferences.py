"""What pods prefer comes first in the profile `ai`, too: nodes, company, and the spreading of services' replicas."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.api.reasons import ReasonCode
from fairlead.cluster import convert, views
from fairlead.core import invariants
from fairlead.core.forecast import forecast
from fairlead.core.model.pods import AffinityTerm, SpreadConstraint
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.nodes.name_ranks import NAME_RANK_BITS
from tests.builders import cluster, group, node, placed, pod, refused, run, settle, spec

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def nodes(count, zones=1, **more):
    return [node(f"n{i}", labels={HOST: f"n{i}", ZONE: f"z{i % zones}"}, **more) for i in range(count)]


def named(*names, weight=100):
    return (weight, SelectorTerm((), (Requirement("metadata.name", "In", names),)))


def wishing(gpus=1, **wishes):
    return msgspec.structs.replace(spec(gpus=gpus), **wishes)


def selected(key, value):
    return (Requirement(key, "In", (value,)),)


def with_labels(made, **labels):
    return msgspec.structs.replace(made, labels=tuple(sorted(labels.items())))


def replica(name, service="web", gpus=1, **more):
    wanted = wishing(gpus, default_spread=selected("hash", service))
    return with_labels(pod(name, spec_=wanted, **more), hash=service)


def test_replicas_of_a_service_are_spread_over_nodes_and_zones_where_others_are_packed():
    state = cluster(nodes(4, zones=2), pods=[replica(f"r{i}") for i in range(4)])
    assert sorted(placed(settle(state)).values()) == ["n0", "n1", "n2", "n3"]
    invariants.check(state)
    state = cluster(nodes(4, zones=2), pods=[replica(f"r{i}") for i in range(2)])
    assert {int(each[1]) % 2 for each in placed(settle(state)).values()} == {0, 1}, "the zone first"
    state = cluster(nodes(4, zones=2), pods=[pod(f"p{i}") for i in range(4)])
    assert len(set(placed(settle(state)).values())) == 1


def test_spreading_gives_way_where_there_is_no_capacity():
    state = cluster([*nodes(1, gpus=4), node("full", gpus=0)], pods=[replica(f"r{i}") for i in range(5)])
    done = settle(state)
    assert sorted(placed(done).values()) == ["n0"] * 4


def test_services_do_not_count_each_other():
    state = cluster(nodes(2), pods=[replica("a", "one"), replica("b", "two")])
    assert set(placed(settle(state)).values()) == {"n0"}


def test_nodes_that_are_preferred_come_first_and_bind_no_pod():
    wanted = wishing(preferred_nodes=(named("n2"),))
    state = cluster(nodes(3), pods=[pod("p", spec_=wanted)])
    assert placed(settle(state)) == {"p": "n2"}
    state = cluster(nodes(3), pods=[pod("p", spec_=wishing(8, preferred_nodes=(named("n9", "n8"),)))])
    assert placed(settle(state)) == {"p": "n0"}
    by_name_rank = wishing(preferred_nodes=((1, SelectorTerm((Requirement(ZONE, "In", ("z1",)),))),))
    state = cluster(nodes(4, zones=2), pods=[pod("p", spec_=by_name_rank)])
    assert placed(settle(state)) == {"p": "n1"}


def test_the_heavier_preference_decides():
    wanted = wishing(preferred_nodes=(named("n1", weight=10), named("n2", weight=90), named("n1", weight=10)))
    assert placed(settle(cluster(nodes(3), pods=[pod("p", spec_=wanted)]))) == {"p": "n2"}


def test_the_heavier_of_two_labels_decides():
    zone = {each: SelectorTerm((Requirement(ZONE, "In", (each,)),)) for each in ("z0", "z1")}
    wanted = wishing(preferred_nodes=((10, zone["z0"]), (90, zone["z1"])))
    assert placed(settle(cluster(nodes(2, zones=2), pods=[pod("p", spec_=wanted)]))) == {"p": "n1"}


def test_the_heavier_of_two_companions_decides():
    def near(app, weight):
        return weight, AffinityTerm(HOST, selected("app", app), ("ns",), None)

    there = [with_labels(pod(app, at=at), app=app) for app, at in (("cache", "n0"), ("web", "n1"))]
    wanted = wishing(preferred_pods=(near("cache", 10), near("web", 90)))
    assert placed(settle(cluster(nodes(2), pods=[*there, pod("p", spec_=wanted)]))) == {"p": "n1"}


def test_a_gang_goes_where_it_prefers_among_nodes_that_hold_as_many():
    wanted = wishing(4, preferred_nodes=(named("n5", "n6"),))
    pods = [pod(f"p{i}", group="g", spec_=wanted) for i in range(4)]
    state = cluster(nodes(8), groups=[group("g", 4)], pods=pods)
    assert set(placed(settle(state)).values()) == {"n5", "n6"}
    state = cluster(nodes(8), groups=[group("g", 4)], pods=[pod("other", gpus=4, at="n5"), *pods])
    found = set(placed(settle(state)).values())
    assert len(found) == 2, "and never spans more nodes for it"
    assert "n6" in found
    invariants.check(state)


def test_a_preferred_node_that_comes_or_goes_counts():
    wanted = wishing(preferred_nodes=(named("late"),))
    state = cluster(nodes(2), pods=[pod("one", spec_=wanted)])
    assert placed(settle(state)) == {"one": "n0"}
    state.upsert_node(node("late"))
    state.upsert_pod(pod("two", spec_=wanted))
    assert placed(settle(state)) == {"two": "late"}
    state.remove_pod("uid-two")
    state.remove_node("late")
    state.upsert_pod(pod("three", spec_=wanted))
    assert placed(settle(state))["three"] in {"n0", "n1"}


def test_company_that_is_preferred_or_avoided():
    cache = selected("app", "cache")
    near = wishing(preferred_pods=((100, AffinityTerm(HOST, cache, ("ns",), None)),))
    far = wishing(preferred_pods=((-100, AffinityTerm(HOST, cache, ("ns",), None)),))
    there = with_labels(pod("cache", at="n2"), app="cache")
    state = cluster(nodes(3), pods=[there, pod("near", spec_=near)])
    assert placed(settle(state)) == {"near": "n2"}
    state = cluster(nodes(1), pods=[])
    state = cluster(nodes(3, gpus=2), pods=[there, pod("far", spec_=far)])
    assert placed(settle(state))["far"] != "n2"


@pytest.mark.parametrize(("weight", "where"), [(100, "n2"), (-100, "n0")])
def test_what_running_pods_prefer_of_a_newcomer_counts_in_profile_kubernetes(weight, where):
    term = AffinityTerm(HOST, selected("app", "cache"), ("ns",), None)
    runs = pod("web", at="n2", spec_=wishing(preferred_pods=((weight, term),)))
    comes = with_labels(pod("cache", profile=KUBERNETES_PROFILE), app="cache")
    state = cluster(nodes(3), pods=[runs, *(pod(f"busy-{i}", at=f"n{i}") for i in range(2))])
    state.upsert_pod(comes)
    assert placed(run(state)) == {"cache": where}


def test_soft_spreading_that_a_gang_asks_for():
    constraint = SpreadConstraint(HOST, 1, selected("app", "g"))
    wanted = wishing(preferred_spread=(constraint,))
    pods = [with_labels(pod(f"p{i}", group="g", spec_=wanted), app="g") for i in range(3)]
    state = cluster(nodes(4), groups=[group("g", 3)], pods=pods)
    assert len(set(placed(settle(state)).values())) == 3


def test_who_prefers_nothing_is_placed_as_ever():
    many = [pod(f"p{i}", gpus=1 + i % 3) for i in range(12)]
    plain = placed(settle(cluster(nodes(6), pods=many)))
    service = [replica("r", created=9e9)]
    assert {name: at for name, at in placed(settle(cluster(nodes(6), pods=[*many, *service]))).items() if name != "r"} == plain


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 3)), min_size=1, max_size=20), st.integers(0, 7))
def test_ranked_keys_keep_order_names_and_verdicts(taken, favourite):
    state = cluster(nodes(8), pods=[pod(f"t{i}", gpus=gpus, at=f"n{row}") for i, (row, gpus) in enumerate(taken)])
    state.upsert_pod(pod("p", spec_=wishing(2, preferred_nodes=(named(f"n{favourite}"),))))
    ranking = state.tasks["uid-p"].ranking
    plain, ranked = ranking.keys(), ranking.ranked()
    assert ((plain < 0) == (ranked < 0)).all()
    fits = plain >= 0
    mask = (1 << NAME_RANK_BITS) - 1
    assert ((plain & mask) == (ranked & mask))[fits].all()
    row = state.nodes.rows[f"n{favourite}"]
    if fits[row]:
        assert ranking.best() == int(ranked.argmax()) == row
    run(state)
    invariants.check(state)


def test_whose_replicas_a_pod_is_is_told_by_its_controllers_label():
    def read(kind, labels, *, group="", spread=()):
        owner = views.OwnerReference("apps/v1", kind, "web", "u", controller=True)
        marked = {**labels, **({"fairlead.dev/pod-group": group} if group else {})}
        metadata = views.Metadata(name="p", namespace="ns", labels=marked, owner_references=[owner])
        constraints = [views.TopologySpreadConstraint(topology_key=HOST, when_unsatisfiable="ScheduleAnyway") for _ in spread]
        pod_spec = views.PodSpec(scheduler_name="fairlead", topology_spread_constraints=constraints or None)
        return convert.pod(views.Pod(metadata, pod_spec), "default").spec.default_spread

    assert read("ReplicaSet", {"app": "web", "pod-template-hash": "5d"}) == selected("pod-template-hash", "5d")
    assert read("StatefulSet", {"controller-revision-hash": "web-7"}) == selected("controller-revision-hash", "web-7")
    assert read("ReplicaSet", {"app": "web"}) is None
    assert read("DaemonSet", {"controller-revision-hash": "7"}) is None
    assert read("ReplicaSet", {"pod-template-hash": "5d"}, group="g") is None
    assert read("ReplicaSet", {"pod-template-hash": "5d"}, spread=["own"]) is None


def avoiding_itself(name, gpus, **more):
    """A pod that would rather not share a node with its like, as a Deployment's usually do."""
    term = (-100, AffinityTerm(HOST, selected("app", "web"), ("ns",), None))
    return with_labels(pod(name, spec_=wishing(gpus, preferred_pods=(term,)), **more), app="web")


def test_replicas_that_avoid_each_other_fill_the_nodes_and_one_is_left():
    state = cluster(nodes(4), pods=[avoiding_itself(f"r{i}", 7, created=i) for i in range(5)] + [pod("small", created=9)])
    decided = settle(state)
    assert len(placed(decided)) == 5
    assert "small" in placed(decided)
    assert refused(decided)["r4"].code is ReasonCode.RESOURCES
    assert placed(settle(state, 60)) == {}, "and it goes on waiting"
    invariants.check(state)


WISHES = {
    "company": {"preferred_pods": ((100, AffinityTerm(HOST, selected("app", "web"), ("ns",), None)),)},
    "distance": {"preferred_pods": ((-100, AffinityTerm(ZONE, selected("app", "web"), ("ns",), None)),)},
    "nodes": {"preferred_nodes": (named("n1"), (7, SelectorTerm((Requirement(ZONE, "In", ("z1",)),))))},
    "soft spreading": {"preferred_spread": (SpreadConstraint(ZONE, 1, selected("app", "web")),)},
    "spreading of services": {"default_spread": selected("app", "web")},
    "spreading of all": {"spread": (SpreadConstraint(ZONE, 1, ()),)},
    "spreading where no node is": {"spread": (SpreadConstraint("nowhere", 1, ()),)},
    "required company": {"pod_affinity": (AffinityTerm(ZONE, selected("app", "web"), ("ns",), None),)},
}


@pytest.mark.parametrize("there", [0, 1, 4])
@pytest.mark.parametrize("profile", ["ai", "kubernetes"])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("wish", WISHES)
def test_what_no_node_can_take_waits_with_a_reason_whatever_it_prefers(wish, members, profile, there):
    running = [with_labels(pod("web", gpus=1, at="n0"), app="web")] if there else []
    wanted = wishing(9, **WISHES[wish])
    gang = "g" if members > 1 else ""
    wishers = [with_labels(pod(f"w{i}", spec_=wanted, profile=profile, group=gang), app="web") for i in range(members)]
    state = cluster(nodes(there, zones=2), pods=[*running, *wishers], groups=[group("g", members)], patience=0.0)
    decided = settle(state)
    assert set(refused(decided)) == {f"w{i}" for i in range(members)}
    forecast(state, 0.0, 100)
    state.upsert_pod(pod("plain", gpus=2, created=5.0))
    assert set(placed(settle(state, 10.0))) == ({"plain"} if there else set())
    invariants.check(state)


def avoided(name, weight=1):
    return weight, SelectorTerm((), (Requirement("metadata.name", "NotIn", (name,)),))


def test_nodes_that_are_avoided_come_last_and_bind_no_pod():
    wanted = wishing(8, preferred_nodes=(avoided("n0"), avoided("n1")))
    state = cluster(nodes(3), pods=[pod("one", spec_=wanted)])
    assert placed(settle(state)) == {"one": "n2"}
    state.upsert_pod(pod("two", spec_=wanted))
    assert placed(settle(state))["two"] in {"n0", "n1"}, "there is no other room"
    both = wishing(preferred_nodes=(avoided("n0"), named("n0"), named("n2")))
    assert placed(settle(cluster(nodes(3), pods=[pod("p", spec_=both)]))) == {"p": "n2"}
    everywhere = wishing(preferred_nodes=(avoided("n0"),))
    assert placed(settle(cluster(nodes(1), pods=[pod("p", spec_=everywhere)]))) == {"p": "n0"}

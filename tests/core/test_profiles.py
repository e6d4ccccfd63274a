"""Profile `kubernetes` places as kube-scheduler would score, and stands beside profile `ai` in one scheduler."""

import json

import msgspec
import pytest

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.cluster.cases import Loaded, decode
from fairlead.core.model.nodes import Taint
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.transactions import Place
from fairlead.core.schedule import schedule
from testbed.random_clusters.cluster import generate
from tests.builders import cluster, node, placed, pod, queue, run, spec


def of_upstream(name, **more):
    return msgspec.structs.replace(pod(name, **more), profile=KUBERNETES_PROFILE)


@pytest.mark.parametrize("seed", range(200, 320))
def test_the_best_scored_node_is_taken(seed):
    """Every waiting pod by itself: the others are sent away before it is placed."""
    given = generate(seed)
    for number in range(len(Loaded(decode(json.dumps(given).encode())).waiting)):
        case = Loaded(decode(json.dumps(given).encode()))
        task = case.waiting[number]
        for other in case.waiting:
            if other is not task:
                case.state.remove_pod(other.pod.uid)
        case.nominated.clear()
        judgement = case.judgement(task) if not task.pod.nominated else None
        if judgement is None or task.pod.gated or task.pod.error or any(each.scoring for each in task.pod.spec.mistakes):
            continue
        where = [b.node for each in schedule(case.state, 0.0) if isinstance(each, Place) for b in each.bindings]
        totals = {name: sum(scores.values()) for name, scores in judgement.scores.items()}
        assert where == sorted(totals, key=lambda name: (-totals[name], name))[:1]


def test_each_pod_is_placed_by_its_own_profile():
    """`ai` packs GPUs tightly, upstream's scores prefer the empty node."""
    nodes = [node("a"), node("b")]
    running = pod("running", gpus=4, at="a")
    where = placed(run(cluster(nodes, pods=[running, pod("tight", gpus=1), of_upstream("roomy", gpus=1)])))
    assert where == {"tight": "a", "roomy": "b"}


def test_preferences_decide_before_free_capacity():
    disk = SelectorTerm((Requirement("disk", "In", ("ssd",)),))
    prefers = msgspec.structs.replace(spec(gpus=0), preferred_nodes=((50, disk),))
    nodes = [node("full", gpus=0, cpu=4000, labels={"disk": "ssd"}), node("empty", gpus=0)]
    running = pod("running", gpus=0, cpu=2000, at="full")
    where = placed(run(cluster(nodes, pods=[running, of_upstream("p", spec_=prefers)])))
    assert where == {"p": "full"}


def test_soft_taints_are_avoided_while_there_is_another_node():
    nodes = [node("soft", gpus=0, taints=(Taint("old", "", "PreferNoSchedule"),)), node("small", gpus=0, cpu=2000)]
    where = placed(run(cluster(nodes, pods=[of_upstream(f"p{i}", gpus=0) for i in range(3)])))
    assert sorted(where.values()) == ["small", "small", "soft"]


def test_upstream_counts_devices_as_amounts():
    """A fraction that `ai` gave out does not stand in the way of a whole device asked of upstream's profile."""
    state = cluster([node("n", gpus=1)], pods=[pod("fraction", milli=500, at="n"), of_upstream("whole")])
    assert placed(run(state)) == {"whole": "n"}


def test_capacity_that_was_cleared_for_a_pod_is_not_taken_by_its_equals_after_a_restart():
    """The pod itself cannot be placed yet: one of its victims is still there."""
    leaving = msgspec.structs.replace(pod("leaving", gpus=4, at="n", terminating=True), preempted=True)
    waits = msgspec.structs.replace(of_upstream("waits", priority=9, gpus=8), nominated="n")
    state = cluster([node("n")], pods=[leaving, waits, of_upstream("equal", priority=9, gpus=4, created=1)])
    assert placed(run(state)) == {}
    state.upsert_pod(of_upstream("above", priority=10, gpus=4))
    assert placed(run(state)) == {"above": "n"}, "higher priority may take it"
    state.remove_pod("uid-above")
    state.remove_pod("uid-leaving")
    assert placed(run(state)) == {"waits": "n"}
    assert not state.pods.nominated or state.pods.nominated == {"n": {"uid-waits": state.tasks["uid-waits"]}}


def test_a_fraction_of_profile_kubernetes_gets_no_device_that_is_held_whole():
    state = cluster([node("n", gpus=1)], [queue("a")], [pod("w", "a", at="n", gpus=1, priority=5)])
    run(state)
    state.upsert_pod(pod("f", "a", gpus=1, milli=250, profile="kubernetes", created=1.0))
    assert not placed(run(state, 1.0))
    state.remove_pod("uid-w")
    assert placed(run(state, 2.0)) == {"f": "n"}
    assert min(state.nodes.devices.states[state.nodes.device.item(0)]) == 750

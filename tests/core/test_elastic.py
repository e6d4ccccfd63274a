"""Elastic replicas: they take what no other job requests, and are preempted by jobs that come later."""

import pytest

from fairlead.core.model.groups import Group
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, node, pod, preempted, run, start


def elastic(state, core, surplus, name="el", **more):
    for index in range(core + surplus):
        state.upsert_pod(pod(f"{name}-{index}", group=name, elastic=index >= core, never_preempts=index >= core, **more))


def gone(state, *pods):
    for name in pods:
        state.remove_pod(f"uid-{name}")


def test_a_gang_starts_with_what_is_free_and_others_of_its_priority_go_before_its_elastic_replicas():
    state = cluster([node("n", gpus=4)], groups=[Group("ns", "el", 2)])
    elastic(state, 2, 3, created=1.0)
    state.upsert_pod(pod("later", created=9.0))
    assert set(start(state)) == {"el-0", "el-1", "el-2", "later"}
    state.upsert_pod(pod("last", created=10.0))
    assert preempted(run(state, 2.0)) == [["el-2"]], "what was free was taken, and is given back"


def test_it_grows_when_others_leave_but_only_behind_them():
    state = cluster([node("n", gpus=3)], groups=[Group("ns", "el", 1)])
    state.upsert_pod(pod("one", created=0.0, gpus=2))
    start(state)
    elastic(state, 1, 3, created=1.0)
    assert set(start(state)) == {"el-0"}
    state.upsert_pod(pod("two", created=5.0))
    gone(state, "one")
    assert set(start(state, 6.0)) == {"two", "el-1"}, "two is younger and goes first all the same"
    gone(state, "two")
    assert set(start(state, 7.0)) == {"el-2"}


def test_it_shrinks_for_equals_and_never_below_what_it_needs():
    state = cluster([node("n", gpus=4)], groups=[Group("ns", "el", 2)])
    elastic(state, 2, 2)
    start(state)
    state.upsert_pod(pod("other", gpus=3, created=5.0))
    assert preempted(run(state, 6.0)) == [], "two are needed"
    gone(state, "other")
    state.upsert_pod(pod("other", gpus=2, created=5.0))
    assert preempted(run(state, 7.0)) == [["el-2", "el-3"]]


def test_no_elastic_replica_is_evicted_that_is_needed_meanwhile():
    state = cluster([node("n", gpus=3)], groups=[Group("ns", "el", 2)])
    elastic(state, 2, 1)
    start(state)
    gone(state, "el-0")
    state.upsert_pod(pod("other", gpus=2, created=5.0))
    assert preempted(run(state, 6.0)) == [], "it runs with two, as it must"


def test_higher_priority_preempts_elastic_replicas_first_and_then_the_whole():
    state = cluster([node("n", gpus=4)], groups=[Group("ns", "el", 2)])
    elastic(state, 2, 2)
    start(state)
    state.upsert_pod(pod("high", gpus=1, priority=5, created=5.0))
    assert preempted(run(state, 6.0)) in ([["el-2"]], [["el-3"]])
    state = cluster([node("n", gpus=4)], groups=[Group("ns", "el", 2)])
    elastic(state, 2, 2)
    start(state)
    state.upsert_pod(pod("high", gpus=3, priority=5, created=5.0))
    (victims,) = preempted(run(state, 6.0))
    assert {"el-0", "el-1", "el-2", "el-3"} >= set(victims) >= {"el-0", "el-1"}, "three are not to be had from the surplus alone"


def test_elastic_replicas_preempt_nothing():
    state = cluster([node("n", gpus=2)], groups=[Group("ns", "el", 1)])
    state.upsert_pod(pod("low", created=0.0))
    start(state)
    elastic(state, 1, 2, priority=9, created=1.0)
    assert set(start(state)) == {"el-0"}
    decided = run(state, 3.0)
    assert preempted(decided) == []
    assert state.tasks["uid-low"].state is TaskState.BOUND


def test_a_gang_gets_its_capacity_from_several():
    groups = [Group("ns", "el", 1), Group("ns", "fat", 1), Group("ns", "gang", 2)]
    state = cluster([node("a", gpus=2), node("b", gpus=2)], groups=groups)
    elastic(state, 1, 1, "el", gpus=1)
    elastic(state, 1, 1, "fat", gpus=1)
    start(state)
    for number in range(2):
        state.upsert_pod(pod(f"gang-{number}", group="gang", created=5.0))
    assert sorted(preempted(run(state, 6.0))[0]) == ["el-1", "fat-1"]


@pytest.mark.parametrize(("scope", "falls"), [("Queue", []), ("Cluster", [["el-1"]])])
def test_other_queues_elastic_replicas_are_preempted_only_within_the_scope_of_the_class(scope, falls):
    state = cluster([node("n", gpus=2)], [Queue("a"), Queue("b")], groups=[Group("ns", "el", 1, "a")], reclaim=False)
    state.upsert_class(ServiceClass("c", scope=scope))
    elastic(state, 1, 1, queue="a")
    start(state)
    state.upsert_pod(pod("other", queue="b", created=5.0, service_class="c"))
    assert preempted(run(state, 6.0)) == falls


def test_a_pending_class_is_requeued_once_an_elastic_replica_has_started_where_it_could_not():
    state = cluster([node("n", gpus=2), node("m", gpus=2)], groups=[Group("ns", "el", 1)])
    state.upsert_pod(pod("one", gpus=2, at="n"))
    state.upsert_pod(pod("two", gpus=1, at="m"))
    state.upsert_pod(pod("wide", gpus=2, created=2.0))
    start(state)
    elastic(state, 1, 1, created=3.0)
    state.upsert_pod(pod("three", gpus=1, created=3.0))
    first = start(state)
    assert len(first) == 1, "one place is free, for the first of them"
    gone(state, "one")
    assert set(start(state, 5.0)) == {"wide"}

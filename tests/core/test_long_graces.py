"""Pods that their own users deleted with a long time to end hold nothing that others are guaranteed."""

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Preempt
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, queue, run
from tests.core.test_outwait import leaving
from tests.core.test_suspended import Story

LONG = 10**9


def borrowed(*pods, nodes=1, **policy):
    queues = [queue("vision", quota=8 * nodes), queue("borrow", quota=0)]
    return cluster([node(f"n{number}") for number in range(nodes)], queues, pods, **policy)


def hurried(decided):
    return [graces for each in decided if isinstance(each, Evict) for graces in each.graces]


def test_a_pod_that_its_user_deleted_with_a_long_grace_is_preempted_and_ends_sooner():
    state = borrowed(pod("b", "borrow", at="n0", gpus=8))
    run(state)
    leaving(state, "uid-b", leaves=float(LONG))
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    (plan,) = [each for each in run(state, 1.0) if isinstance(each, Preempt)]
    assert (preempted([plan]), plan.graces) == ([["b"]], (("uid-b", 30),))
    leaving(state, "uid-b", leaves=30.0)
    assert not hurried(run(state, 20.0))
    state.remove_pod("uid-b")
    assert placed(run(state, 30.0)) == {"v": "n0"}
    invariants.check(state)


def test_who_waits_already_takes_it_once_it_is_deleted():
    """Its disruption budget counts only while it runs."""
    state = borrowed(pod("b", "borrow", at="n0", gpus=8))
    run(state)
    state.upsert_budget(DisruptionBudget("ns", "all", ()))
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    assert not preempted(run(state, 1.0))
    leaving(state, "uid-b", leaves=float(LONG))
    assert preempted(run(state, 20.0)) == [["b"]]


@pytest.mark.parametrize(("leaves", "falls"), [(30.0, False), (3600.0, False), (3700.0, True)])
def test_who_leaves_within_what_an_eviction_may_take_is_waited_for(leaves, falls):
    state = borrowed(pod("b", "borrow", at="n0", gpus=8))
    run(state)
    leaving(state, "uid-b", leaves=leaves)
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    assert bool(preempted(run(state, 1.0))) is falls


def test_no_budget_is_asked_about_a_deleted_pod_nor_counts_it():
    state = borrowed(*(pod(f"b{number}", "borrow", at=f"n{number}", gpus=8) for number in range(2)), nodes=2)
    run(state)
    state.upsert_budget(DisruptionBudget("ns", "all", (), allowed=1))
    leaving(state, "uid-b1", leaves=float(LONG))
    state.upsert_pod(pod("v0", "vision", gpus=8, created=1.0))
    state.upsert_pod(pod("v1", "vision", gpus=8, created=1.0))
    assert sorted(preempted(run(state, 1.0))) == [["b0"], ["b1"]]


def test_a_gang_loses_only_the_member_that_was_deleted():
    state = borrowed(*(pod(f"b{number}", "borrow", group="g", gpus=8) for number in range(3)), nodes=3)
    state.upsert_group(group("g", 2, "borrow"))
    confirm(state, run(state))
    leaving(state, "uid-b1", leaves=float(LONG))
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    assert preempted(run(state, 1.0)) == [["b1"]]
    invariants.check(state)


def test_a_delete_that_came_before_the_eviction_is_shortened_too():
    state = borrowed(pod("b", "borrow", at="n0", gpus=8))
    run(state)
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    assert preempted(run(state, 1.0)) == [["b"]]
    leaving(state, "uid-b", leaves=float(LONG))
    assert not hurried(run(state, 2.0)), "what was asked of the server may be heard of later"
    assert state.next_due == 6.0
    assert hurried(run(state, 6.0)) == [("uid-b", 30)]
    assert not hurried(run(state, 7.0))
    assert hurried(run(state, 66.0)) == [("uid-b", 30)]
    leaving(state, "uid-b", leaves=96.0)
    assert not hurried(run(state, 150.0))
    assert state.tasks["uid-v"].state is TaskState.HELD


def test_pods_of_a_suspended_job_end_within_the_bound():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    for uid in ("uid-low-0", "uid-low-1"):
        story.state.upsert_pod(msgspec.structs.replace(story.state.tasks[uid].pod, grace=LONG))
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    assert len(story.asked) == 1
    for uid in ("uid-low-0", "uid-low-1"):
        leaving(story.state, uid, leaves=float(LONG))
    assert hurried(story.step(10.0)) == [("uid-low-0", 3600), ("uid-low-1", 3600)]


def test_without_an_operator_pods_of_a_suspended_job_have_the_bounded_grace_too():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    for uid in ("uid-low-0", "uid-low-1"):
        story.state.upsert_pod(msgspec.structs.replace(story.state.tasks[uid].pod, grace=LONG))
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    story.step()
    leaving(story.state, "uid-low-1", leaves=100.0)
    (taken,) = [each for each in story.step(61.0) if isinstance(each, Evict)]
    assert taken.graces == (("uid-low-0", 3600),)


def test_the_rest_of_a_job_that_is_suspended_is_preempted_as_before():
    story = Story()
    story.submit("low", 2, gpus=2)
    story.step()
    leaving(story.state, "uid-low-0", leaves=float(LONG))
    story.state.upsert_pod(pod("high", priority=5, gpus=4, created=9.0))
    decided = story.step()
    assert preempted(decided) == [["low-0", "low-1"]]
    (plan,) = [each for each in decided if isinstance(each, Preempt)]
    assert plan.graces == (("uid-low-0", 30),)
    assert [job.pods for job in plan.suspends] == [("uid-low-1",)]


def test_a_time_limit_ends_who_was_deleted_with_a_long_grace():
    state = borrowed(pod("b", "borrow", at="n0", gpus=8, started=0.0))
    state.upsert_class(ServiceClass("batch"))
    state.upsert_pod(pod("c", "borrow", at="n0", gpus=0, started=0.0, time_limit=50.0))
    run(state)
    leaving(state, "uid-c", leaves=float(LONG))
    assert hurried(run(state, 51.0)) == [("uid-c", 30)]

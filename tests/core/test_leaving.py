"""Pods that leave by themselves make room: nobody is evicted for what fits once they are gone."""

import msgspec
import pytest

from fairlead.core import invariants
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, queue, run, settle


def world(gpus=2, nodes=1, **more):
    state = cluster([node(f"n{number}", gpus=gpus) for number in range(nodes)], [queue("q0", quota=1), queue("q1", quota=1)])
    for name in "ab":
        state.upsert_pod(pod(name, queue="q0", **more))
    settle(state)
    return state


def leave(state, name, at=0.0):
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, terminating=True, leaves=at))


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("leaves", [0.0, 30.0])
def test_who_waits_is_given_what_is_leaving(name, leaves):
    state = world()
    leave(state, name, leaves)
    state.upsert_pod(pod("c", queue="q1", created=1.0))
    assert not preempted(run(state, 1.0))
    state.remove_pod(f"uid-{name}")
    assert placed(run(state, 20.0)) == {"c": "n0"}
    invariants.check(state)


def test_a_pod_that_does_not_leave_in_time_is_counted_on_no_longer():
    state = world()
    leave(state, "b", 30.0)
    state.upsert_pod(pod("c", queue="q1", created=1.0))
    assert not preempted(run(state, 1.0))
    assert state.next_due == 150.0
    assert not preempted(run(state, 149.0))
    assert preempted(run(state, 150.0)) == [["a"]]


def test_the_same_for_priorities_in_a_queue():
    state = cluster([node("n", gpus=2)])
    for name in "ab":
        state.upsert_pod(pod(name))
    settle(state)
    leave(state, "b", 30.0)
    state.upsert_pod(pod("high", priority=5, created=1.0))
    assert not preempted(run(state, 1.0))
    state.upsert_pod(pod("higher", gpus=2, priority=6, created=1.0))
    assert not any("b" in names for names in preempted(run(state, 2.0)))


def test_the_same_for_gangs_and_pods_of_other_schedulers():
    state = cluster([node("n", gpus=4)], [queue("q0", quota=1), queue("q1", quota=2)], groups=[group("g", 2, "q1")])
    state.upsert_pod(pod("other", ours=False, gpus=1, at="n"))
    for name in "abc":
        state.upsert_pod(pod(name, queue="q0"))
    confirm(state, run(state))
    leave(state, "other", 30.0)
    leave(state, "b", 30.0)
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", queue="q1", group="g", created=1.0))
    assert not preempted(run(state, 1.0))
    state.remove_pod("uid-other")
    state.remove_pod("uid-b")
    assert set(placed(run(state, 31.0))) == {"g-0", "g-1"}

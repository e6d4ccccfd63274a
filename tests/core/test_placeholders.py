"""Placeholders hold places and are no pods: nothing serves, moves or evicts them, and no UID makes a pod one."""

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.model.transactions import PodRef, ref_of
from fairlead.core.pods.tasks import Placeholder, TaskState
from fairlead.core.preemption.victims import victims_of
from tests.builders import cluster, node, placed, pod, preempted, run
from tests.core.test_moves import LATE, Moving


def placeholders(state):
    return [task for row in state.nodes.rows.values() for task in state.nodes.pods[row].values() if isinstance(task, Placeholder)]


def leaving():
    """A victim that holds more than its beneficiary takes."""
    state = cluster([node("n", gpus=4)], pods=[pod("low", gpus=4, at="n", started=0.0), pod("high", gpus=1, priority=5)])
    assert preempted(run(state, LATE))
    return state


@pytest.fixture(params=["moved", "leaving"])
def state(request):
    return Moving().state if request.param == "moved" else leaving()


def test_it_is_in_a_state_of_its_own_which_it_never_leaves(state):
    (placeholder,) = placeholders(state)
    assert placeholder.state is TaskState.PLACEHOLDER
    for other in set(TaskState) - {TaskState.PLACEHOLDER}:
        with pytest.raises(AssertionError, match="PLACEHOLDER -> "):
            placeholder.become(other)
    invariants.check(state)


def test_no_pod_is_made_one():
    state = cluster([node("n")], pods=[pod("a")])
    (task,) = state.tasks.values()
    with pytest.raises(AssertionError, match=r"WAITING -> .*PLACEHOLDER"):
        task.become(TaskState.PLACEHOLDER)


def test_one_that_is_taken_for_a_pod_is_a_violation(state):
    (placeholder,) = placeholders(state)
    placeholder.state = TaskState.BOUND
    assert any("is taken for a pod" in each for each in invariants.violations(state))


def test_it_is_no_victim_and_does_not_move():
    moving = Moving()
    state, placeholder = moving.state, moving.kept
    queue = state.queues.queues["mine"]
    assert placeholder in queue.placed.values(), "its queue is charged for it, and its pods are asked for victims"
    assert [state.tasks[uid].pod.name for uid in victims_of(state).listed.of] == [moving.stays]
    assert not state.moves.is_movable(placeholder)


@pytest.mark.parametrize("gpus", [1, 2])
def test_no_preemption_evicts_it(state, gpus):
    """Pods that may preempt all that runs come until there is nothing left: only pods of the cluster are evicted."""
    known = set(state.tasks)
    for number in range(3):
        state.upsert_pod(pod(f"urgent-{number}", "default", gpus=gpus, priority=100, created=LATE))
    for step in range(3):
        for plan in preempted(run(state, LATE + step)):
            assert {each.pod.uid for each in plan.victims} <= known
    invariants.check(state)


@pytest.mark.parametrize("uid", ["suspended/ns/job/0", "moved/uid-a", "leaving/uid-a/0"])
def test_a_pod_is_a_pod_whatever_its_uid(uid):
    state = cluster([node("n")])
    state.upsert_pod(msgspec.structs.replace(pod("a"), uid=uid))
    assert placed(run(state)) == {"a": "n"}
    state.remove_node("n")
    assert state.tasks[uid].state is TaskState.WAITING
    invariants.check(state)


def test_a_reference_to_a_pod_is_written_as_before():
    assert msgspec.json.encode(ref_of(pod("a"))) == b'{"uid":"uid-a","namespace":"ns","name":"a"}'
    written = msgspec.json.encode(PodRef("u", "ns", "a", placeholder=True))
    assert msgspec.json.decode(written, type=PodRef) == PodRef("u", "ns", "a", placeholder=True)

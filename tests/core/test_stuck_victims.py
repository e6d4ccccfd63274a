"""Victims that do not go: pods of profile `kubernetes` do not choose them again and again."""

from fairlead.core.model.transactions import Preempt
from tests.builders import cluster, node, placed, pod, preempted, queue, run
from tests.core.test_outwait import leaving


def test_a_pod_of_profile_kubernetes_takes_another_victim_when_one_does_not_go():
    state = cluster([node("n0"), node("n1")], [queue("borrow", quota=0)])
    for number in range(2):
        state.upsert_pod(pod(f"b{number}", "borrow", at=f"n{number}", gpus=8, created=number))
    run(state, 0.0)
    state.upsert_pod(pod("v", "borrow", gpus=8, priority=100, created=10.0, profile="kubernetes"))
    ((first,),) = preempted(run(state, 10.0))
    leaving(state, f"uid-{first}")
    now, chosen = 10.0, []
    for _ in range(10):
        now = max(now + 1.0, state.next_due or 0.0)
        chosen += [names for each in run(state, now) if isinstance(each, Preempt) for names in preempted([each])]
    assert chosen == [["b1" if first == "b0" else "b0"]]


def test_no_plan_is_remembered_for_victims_that_are_gone():
    state = cluster([node("n")], [queue("vision", quota=8), queue("borrow", quota=0)])
    for number in range(2):
        state.upsert_pod(pod(f"b{number}", "borrow", at="n", gpus=4, created=number))
    run(state, 0.0)
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    ((gone, stays),) = preempted(run(state, 10.0))
    leaving(state, f"uid-{stays}")
    state.remove_pod(f"uid-{gone}")
    state.upsert_node(node("new"))
    assert placed(run(state, 11.0)) == {"v": "new"}
    assert not state.in_flight.plans

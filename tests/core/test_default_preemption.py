"""Profile `kubernetes` frees capacity as kube-scheduler does: pods of any queue, on one node, budgets checked but not binding."""

import json

import msgspec
import pytest

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.cluster.cases import Loaded, decode
from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Preempt
from fairlead.core.pods.tasks import TaskState
from fairlead.core.preemption.default_preemption import on_row
from fairlead.core.schedule import schedule
from testbed.random_clusters.cluster import generate
from tests.builders import cluster, node, placed, pod, preempted, queue, run, settle


def of_upstream(name, **more):
    return msgspec.structs.replace(pod(name, **more), profile=KUBERNETES_PROFILE)


def test_its_victims_are_those_of_the_oracle():
    """Where upstream's view of ports and claims does not differ from how things are."""
    agreed = 0
    for seed in range(400):
        given = generate(seed)
        for number, waiting in enumerate(Loaded(decode(json.dumps(given).encode())).waiting):
            if waiting.pod.spec.ports or waiting.pod.spec.claims or waiting.pod.nominated:
                continue
            case = Loaded(decode(json.dumps(given).encode()))
            task = case.waiting[number]
            for other in case.waiting:
                if other is not task:
                    case.state.remove_pod(other.pod.uid)
            case.nominated.clear()
            judgement = case.judgement(task)
            plans = [each for each in schedule(case.state, 0.0) if isinstance(each, Preempt)]
            if judgement.preempts is None:
                assert plans == []
                continue
            [plan] = plans
            assert plan.outright
            assert plan.beneficiaries[0].node == judgement.preempts.node
            assert sorted(victim.pod.key for victim in plan.victims) == list(judgement.preempts.victims)
            agreed += 1
    assert agreed > 20


def test_victims_may_be_anybodys():
    pods = [pod("ours", queue="other", gpus=4, at="n"), pod("foreign", gpus=4, at="n", ours=False)]
    state = cluster([node("n")], [queue("other"), queue("default")], pods)
    state.upsert_pod(of_upstream("high", priority=9, gpus=8))
    assert preempted(run(state)) == [["foreign", "ours"]]
    assert state.tasks["uid-high"].state is TaskState.HELD
    state.remove_pod("uid-ours")
    assert placed(run(state)) == {}
    state.remove_pod("uid-foreign")
    assert placed(run(state)) == {"high": "n"}
    invariants.check(state)


def test_many_preemptors_take_the_cheapest_nodes_one_after_the_other():
    nodes = [node(f"n{i}", gpus=1) for i in range(20)]
    lows = [pod(f"low-{i}", priority=i % 5, at=f"n{i}") for i in range(20)]
    state = cluster(nodes, pods=lows)
    for i in range(8):
        state.upsert_pod(of_upstream(f"high-{i}", priority=9, created=i))
    victims = sorted(name for names in preempted(run(state)) for name in names)
    assert sorted(int(name[4:]) % 5 for name in victims) == [0, 0, 0, 0, 1, 1, 1, 1]
    invariants.check(state)


def test_a_budget_moves_the_choice_but_does_not_forbid_it():
    guarded = msgspec.structs.replace(pod("guarded", at="a", gpus=8), labels=(("app", "x"),))
    budget = DisruptionBudget("ns", "b", (Requirement("app", "In", ("x",)),), 0)
    dearer = pod("dearer", at="b", gpus=8, priority=5)
    for others, victim in (([dearer], "dearer"), ([], "guarded")):
        state = cluster([node("a"), node("b")] if others else [node("a")], pods=[guarded, *others])
        state.upsert_budget(budget)
        state.upsert_pod(of_upstream("high", priority=9, gpus=8))
        assert preempted(run(state)) == [[victim]]


def test_among_equals_those_go_whose_most_important_pods_started_last():
    for started in ({"a": 100.0, "b": 200.0}, {"a": 200.0, "b": 100.0}):
        state = cluster([node(name, gpus=1) for name in started])
        for name, at in started.items():
            state.upsert_pod(pod(f"on-{name}", at=name, started=at))
        state.upsert_pod(of_upstream("high", priority=9))
        latest = max(started, key=started.get)
        assert preempted(run(state, now=300.0)) == [[f"on-{latest}"]]


def test_a_node_that_changed_is_worked_out_anew():
    state = cluster([node("a", gpus=1), node("b", gpus=1)], pods=[pod("la", at="a"), pod("lb", at="b", priority=3)])
    state.upsert_pod(of_upstream("first", priority=9))
    assert preempted(run(state)) == [["la"]]
    state.upsert_pod(pod("lb", at="b", priority=3, terminating=True))
    state.upsert_pod(of_upstream("second", priority=9, created=1))
    assert preempted(run(state)) == [["lb"]]


@pytest.mark.parametrize("never", [True, False])
def test_a_pod_that_never_preempts_waits(never):
    state = cluster([node("a", gpus=1)], pods=[pod("low", at="a")])
    state.upsert_pod(of_upstream("high", priority=9, never_preempts=never))
    assert bool(preempted(run(state))) is not never


def test_after_a_restart_it_waits_for_the_victims_that_are_leaving():
    leaving = msgspec.structs.replace(pod("low", at="a", terminating=True), preempted=True)
    other = pod("other", at="b")
    state = cluster([node("a", gpus=1), node("b", gpus=1)], pods=[leaving, other])
    state.upsert_pod(msgspec.structs.replace(of_upstream("high", priority=9), nominated="a"))
    assert preempted(run(state)) == []
    state.remove_pod("uid-low")
    assert placed(settle(state)) == {"high": "a"}


def test_the_same_pods_are_chosen_however_often_it_is_tried():
    state = cluster([node("n", gpus=4)], [queue("q")])
    for name, gpus in (("large", 2), ("small-1", 1), ("small-2", 1)):
        state.upsert_pod(of_upstream(name, queue="q", gpus=gpus))  # none has started: all are as important
    settle(state)
    newcomer = of_upstream("k", queue="q", gpus=2, priority=5)
    ranking = state.shapes.intern(newcomer.spec, profile=KUBERNETES_PROFILE)
    choices = [on_row(state, 5, 0, ranking.fits_row, lambda task: True) for _ in range(4)]
    assert len({tuple(task.pod.name for task in choice.victims) for choice in choices}) == 1
    state.upsert_pod(newcomer)
    assert len(preempted(run(state))) == 1

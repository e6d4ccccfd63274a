"""Ending: time limits kill jobs as a whole, learned run times never; gangs that half run are evicted after their grace."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.actions.ending import dismantle, end_overtime
from fairlead.core.model.queues import Queue
from fairlead.core.pods.tasks import TaskState
from tests.builders import cluster, first, group, node, placed, pod, run, settle

LIMIT = 100.0


def ended(state, now):
    """What is evicted for its time limit: names by decision."""
    first(state, now)
    decided = list(end_overtime(state, now))
    assert {each.reason.code for each in decided} <= {ReasonCode.TIME_LIMIT}
    return [[victim.pod.name for victim in each.victims] for each in decided]


def dismantled(state, now):
    first(state, now)
    return list(dismantle(state, now))


def test_a_job_is_ended_at_its_limit_and_not_before():
    state = cluster([node("n")], pods=[pod("p", at="n", started=10.0, time_limit=LIMIT), pod("free", at="n", started=10.0)])
    assert ended(state, 109.0) == []
    first(state, 110.0)
    (evict,) = end_overtime(state, 110.0)
    assert [(each.pod.name, each.node) for each in evict.victims] == [("p", "n")]
    assert (evict.group, evict.reason.message) == ("", "it has reached its time limit of 100 s")
    assert evict.reason.numbers == {"limit": 100}


def test_a_gang_is_ended_in_one_decision_in_the_order_of_its_members():
    members = [pod(f"g-{i}", group="g", at="n", started=10.0, time_limit=LIMIT, created=9.0 - i) for i in range(3)]
    state = cluster([node("n")], pods=[*members, pod("a", at="n", started=0.0, time_limit=LIMIT)], groups=[group("g", 3)])
    first(state, 110.0)
    decided = list(end_overtime(state, 110.0))
    assert {each.group: [victim.pod.name for victim in each.victims] for each in decided} == {
        "": ["a"],
        "ns/g": ["g-2", "g-1", "g-0"],
    }


def test_a_pod_that_ends_already_is_not_asked_again():
    state = cluster([node("n")], pods=[pod(name, at="n", started=0.0, time_limit=LIMIT) for name in "ab"])
    state.upsert_pod(msgspec.structs.replace(state.tasks["uid-a"].pod, terminating=True, leaves=130.0))
    assert ended(state, 100.0) == [["b"]]


def test_a_pod_that_is_evicted_already_is_not_asked_again():
    state = cluster([node("n", gpus=1)], pods=[pod("low", at="n", started=0.0, time_limit=LIMIT)])
    state.upsert_pod(pod("high", priority=5, created=1.0))
    settle(state, 50.0)
    assert state.tasks["uid-low"].state is TaskState.EVICTING
    assert ended(state, 100.0) == []


def test_a_pod_whose_binding_is_not_confirmed_is_not_evicted():
    state = cluster([node("n")], pods=[pod("p", time_limit=LIMIT)])
    assert placed(run(state, 1.0)) == {"p": "n"}
    assert state.tasks["uid-p"].state is TaskState.ASSUMED
    assert ended(state, 500.0) == []
    state.pods.bound("uid-p")
    assert ended(state, 900.0) == [["p"]]


def test_learned_run_times_end_no_job():
    state = cluster([node("n")], [Queue("q")])
    for number in range(6):
        state.upsert_pod(pod(f"old-{number}", queue="q", user="ann", at="n", started=0.0))
        first(state, 100.0 * (number + 1))
        state.remove_pod(f"uid-old-{number}")
    state.upsert_pod(pod("runs", queue="q", user="ann", at="n", started=0.0, expected=50.0))
    state.upsert_pod(pod("like-those", queue="q", user="ann", at="n", started=0.0))
    assert state.runtimes.total(state.tasks["uid-like-those"]) == 400.0
    assert ended(state, 9000.0) == []


def test_a_job_that_cannot_be_ended_hinders_no_other(monkeypatch):
    state = cluster([node("n")], pods=[pod(name, at="n", started=0.0, time_limit=LIMIT) for name in "abc"])
    graces = state.departures.graces

    def broken(tasks):
        if tasks[0].pod.name == "b":
            raise RuntimeError("a defect")
        return graces(tasks)

    monkeypatch.setattr(state.departures, "graces", broken)
    assert ended(state, 100.0) == [["a"], ["c"]]


def half(controlled=(True, True), grace=60.0):
    """A gang of three members, the first two of which have a controller or none."""
    state = cluster([node("n")], groups=[group("g", 3)], gang_grace=grace)
    for number, each in enumerate((*controlled, True)):
        state.upsert_pod(pod(f"g-{number}", group="g", controlled=each))
    settle(state)
    return state


@pytest.mark.parametrize("grace", [5.0, 60.0])
def test_a_gang_that_half_runs_is_evicted_after_its_grace_and_again_after_another(grace):
    state = half(grace=grace)
    state.remove_pod("uid-g-2")
    assert dismantled(state, 10.0) == []
    assert state.gangs["ns/g"].fault_at == 10.0
    assert dismantled(state, 9.0 + grace) == []
    (evict,) = dismantled(state, 10.0 + grace)
    assert [(each.pod.name, each.node) for each in evict.victims] == [("g-0", "n"), ("g-1", "n")]
    assert (evict.group, evict.reason.code) == ("ns/g", ReasonCode.GANG_INCOMPLETE)
    assert evict.reason.numbers == {"bound": 2, "min_member": 3, "kept": 0, "succeeded": 0}
    assert evict.reason.message == "gang ns/g runs 2 of the 3 pods it needs and could not be completed"
    assert dismantled(state, 9.0 + 2 * grace) == [], "evictions may take a while"
    assert len(dismantled(state, 10.0 + 2 * grace)) == 1, "or fail"


def test_a_gang_that_is_completed_within_its_grace_runs_on():
    state = half()
    state.remove_pod("uid-g-2")
    assert dismantled(state, 10.0) == []
    state.upsert_pod(pod("g-3", group="g", at="n"))
    assert dismantled(state, 70.0) == []
    assert "ns/g" not in state.pending.faulty
    assert dismantled(state, 500.0) == []


def test_members_without_a_controller_stay_and_are_counted():
    """They would not be made again."""
    state = half(controlled=(False, True))
    state.remove_pod("uid-g-2")
    dismantled(state, 10.0)
    (evict,) = dismantled(state, 70.0)
    assert [each.pod.name for each in evict.victims] == ["g-1"]
    assert evict.reason.numbers["kept"] == 1
    assert evict.reason.message.endswith("; 1 of them have no controller and stay")


def test_if_all_stay_it_is_said_once():
    state = half(controlled=(False, False))
    state.remove_pod("uid-g-2")
    dismantled(state, 10.0)
    (evict,) = dismantled(state, 70.0)
    assert (evict.victims, evict.reason.numbers["kept"]) == ((), 2)
    assert "ns/g" not in state.pending.faulty
    assert dismantled(state, 500.0) == []


def test_a_gang_that_is_gone_is_forgotten():
    state = half()
    state.remove_pod("uid-g-2")
    assert dismantled(state, 10.0) == []
    assert "ns/g" in state.pending.faulty
    for number in range(2):
        state.remove_pod(f"uid-g-{number}")
    state.remove_group("ns/g")
    assert dismantled(state, 70.0) == []
    assert not state.pending.faulty

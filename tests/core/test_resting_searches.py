"""Searches that rest: what ends the rest before its time, and what a job that rests is told."""

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core.actions import serve
from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import Toleration
from fairlead.core.schedule import has_work
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, queue, run

QUIET = {"moves_per_minute": 0.0, "reservations": 0, "share_wait": 0.0}
HOUR = 3600.0


def leaves_late(name, **more):
    """A pod that was deleted and may take an hour to end."""
    return msgspec.structs.replace(pod(name, started=0.0, grace=3600, **more), terminating=True, leaves=HOUR)


def world(nodes, queues, pods):
    state = cluster([node(name, labels={"n": name}, **more) for name, more in nodes.items()], **QUIET)
    for name, quota in queues.items():
        state.upsert_queue(queue(name, quota=quota))
    for each in pods:
        state.upsert_pod(each)
    return state


def held(name, queue_name, gpus, at, **more):
    return pod(name, queue=queue_name, gpus=gpus, at=at, started=0.0, **more)


def go(state, now):
    return confirm(state, run(state, now))


def reason(state, name):
    unit = state.tasks[f"uid-{name}"].unit
    why = unit.pending_class.unschedulable if unit is not None and unit.pending_class is not None else None
    return why.code if why is not None else None


def test_what_awaits_a_pod_searches_once_that_is_gone_and_its_place_is_taken():
    state = world({"n0": {}, "n1": {}}, {"a": 16}, [leaves_late("late", queue="a", gpus=8, at="n0"), held("low", "a", 8, "n1")])
    state.upsert_pod(pod("waits", queue="a", gpus=8, priority=5, created=1.0))
    assert preempted(go(state, 1.0)) == []
    state.upsert_pod(pod("first", queue="a", gpus=8, priority=9, created=9.0, never_preempts=True))
    go(state, 9.0)
    state.remove_pod("uid-late")
    decided = go(state, 10.0)
    assert placed(decided) == {"first": "n0"}
    assert preempted(decided) == [["low"]]


def test_a_job_that_is_held_back_from_a_free_place_needs_no_search_to_get_it():
    tolerates = (Toleration("t", "Exists", "", "NoSchedule"),)
    state = world(
        {"n0": {}, "n1": {}, "n2": {}, "n3": {"taints": (Taint("t"),)}},
        {"a": 4, "b": 4, "c": 20},
        [
            leaves_late("late", queue="c", gpus=6, at="n0"),
            held("c0", "c", 2, "n0"),
            held("c1", "c", 4, "n1"),
            held("c2", "c", 4, "n2"),
            held("c3", "c", 6, "n3", tolerations=tolerates),
            held("a1", "a", 4, "n1"),
            held("ends", "c", 4, "n2"),
            pod("claims", queue="b", gpus=4, selector={"n": "n1"}, created=1.0),
            pod("asks", queue="c", gpus=8, tolerations=tolerates, created=5.0),
            pod("waits", queue="a", gpus=4, created=2.0),
        ],
    )
    go(state, 10.0)
    state.remove_pod("uid-ends")
    go(state, 20.0)
    assert reason(state, "waits") is ReasonCode.FAIR_SHARE
    state.remove_pod("uid-asks")
    assert placed(go(state, 30.0)) == {"waits": "n2"}


def test_one_trial_holds_back_all_that_are_alike_but_for_what_is_not_scarce(monkeypatch):
    state = world(
        {"n0": {}, "n1": {}, "n2": {}},
        {"a": 4, "b": 4, "c": 16},
        [
            held("c0", "c", 8, "n0"),
            held("c1", "c", 4, "n1"),
            held("c2", "c", 4, "n2"),
            held("a1", "a", 4, "n1"),
            pod("claims", queue="b", gpus=4, selector={"n": "n1"}, created=1.0),
            pod("asks", queue="c", gpus=8, created=5.0),
            *(pod(f"waits-{cpu}", queue="a", gpus=4, cpu=cpu, created=2.0) for cpu in (100, 200, 300)),
        ],
    )
    trials, known = [], serve.reclaimer
    monkeypatch.setattr(serve, "reclaimer", lambda *asked: trials.append(asked[1]) or known(*asked))
    go(state, 10.0)
    assert {reason(state, f"waits-{cpu}") for cpu in (100, 200, 300)} == {ReasonCode.FAIR_SHARE}
    assert len(trials) == 1


def test_shares_without_leaving_pods_count_what_is_tried_once():
    state = world(
        {"n0": {}, "n1": {}, "n2": {}},
        {"a": 4, "b": 4, "c": 16},
        [
            leaves_late("late", queue="c", gpus=4, at="n0"),
            held("c0", "c", 4, "n0"),
            held("c1", "c", 4, "n1"),
            held("c2", "c", 4, "n2"),
            held("a1", "a", 4, "n1"),
            held("ends", "c", 4, "n2"),
            pod("claims", queue="b", gpus=4, selector={"n": "n1"}, created=1.0),
            pod("waits", queue="a", gpus=4, created=2.0),
        ],
    )
    go(state, 10.0)
    state.remove_pod("uid-ends")
    assert placed(go(state, 20.0)) == {"waits": "n2"}


def given_up_for_another(seconds):
    """A gang whose plan was given up each time, as `claims` would take back what it got; its searches rest ever longer.

    Returns the state, and the reasons that the gang had. On n3 two GPUs come and go: enough for a member, not for both.
    """
    state = world(
        {"n1": {}, "n2": {}, "n3": {}},
        {"a": 4, "b": 1, "c": 19},
        [
            held("a1", "a", 1, "n1"),
            held("c1", "c", 7, "n1"),
            held("c2", "c", 4, "n2"),
            held("a2", "a", 3, "n2"),
            held("c3", "c", 6, "n3"),
            held("comes-0", "c", 2, "n3"),
            pod("claims", queue="b", gpus=1, selector={"n": "n1"}, created=1.0),
            pod("asks", queue="c", gpus=8, created=5.0),
        ],
    )
    state.upsert_group(group("gang", 2, "a"))
    for member in range(2):
        state.upsert_pod(pod(f"gang-{member}", queue="a", gpus=2, group="gang", priority=5, created=2.0))
    seen, number, free = set(), 0, False
    for second in range(seconds):
        if second % 4 == 3:
            if free:
                number += 1
                state.upsert_pod(pod(f"comes-{number}", queue="c", gpus=2, at="n3", started=10.0 + second))
            else:
                state.remove_pod(f"uid-comes-{number}")
            free = not free
        go(state, 10.0 + second)
        seen.add(reason(state, "gang-0"))
    return state, seen


def test_a_gang_whose_plan_was_given_up_keeps_that_reason_while_its_search_rests():
    _, seen = given_up_for_another(200)
    assert seen == {ReasonCode.FAIR_SHARE}


def change(state, name, **changes):
    state.upsert_pod(msgspec.structs.replace(state.tasks[f"uid-{name}"].pod, **changes))


@pytest.mark.parametrize(
    "happens",
    [
        lambda state: state.remove_pod("uid-claims"),
        lambda state: change(state, "claims", gated=True),
        lambda state: change(state, "claims", never_preempts=True),
        lambda state: state.upsert_queue(queue("b", quota=0)),
        lambda state: state.upsert_queue(queue("b", quota=1, limit=0)),
        lambda state: state.upsert_queue(queue("a", quota=8)),
        lambda state: state.remove_queue("b"),
    ],
)
def test_a_job_that_was_held_back_is_tried_again_at_once_when_the_claim_is_over(happens):
    """Also where its own search rests: that was in vain because of the claim alone."""
    state, _ = given_up_for_another(200)
    pending_class = state.tasks["uid-gang-0"].unit.pending_class
    assert pending_class.held_back.tasks[0].pod.name == "claims"
    assert pending_class.search.backoff_until > 211.0
    happens(state)
    assert preempted(go(state, 210.0)) == [["a2"]]


def test_a_job_that_was_held_back_is_tried_again_once_what_claims_may_not_have_its_place_any_more():
    """`claims` would reclaim from n1, until that is reserved for the first of its queue: nothing else happens."""
    nodes = [node(name, gpus=4, labels={"n": name}) for name in ("n1", "n2")]
    state = cluster(nodes, queues=[queue("a", quota=4), queue("b", quota=4)], **QUIET | {"share_wait": 600.0})
    for each in (
        *(held(f"a{number}", "a", 2, "n1") for number in range(2)),
        pod("first", queue="b", gpus=4, selector={"n": "n1"}, priority=5, created=1.0),
        pod("claims", queue="b", gpus=1, selector={"n": "n1"}, created=2.0),
        pod("waits", queue="a", gpus=2, created=3.0),
    ):
        state.upsert_pod(each)
    for now in (4.0, 300.0, 601.0):
        assert placed(go(state, now)) == {}
        assert reason(state, "waits") is ReasonCode.FAIR_SHARE
        assert not has_work(state)
    assert placed(go(state, 604.0)) == {}
    assert list(state.reserved.holds) == ["pod/uid-first"]
    assert has_work(state), "no event is waited for"
    assert placed(go(state, 604.1)) == {"waits": "n2"}


def test_reasons_follow_the_nodes():
    state = world(
        {"n0": {}, "n1": {}},
        {"a": 8, "b": 8},
        [
            held("a1", "a", 8, "n0"),
            held("b1", "b", 7, "n1"),
            pod("entitled", queue="a", gpus=4, created=1.0),
            pod("beyond", queue="b", gpus=2, created=1.0),
        ],
    )
    go(state, 1.0)
    go(state, 15.0)
    assert {reason(state, name) for name in ("entitled", "beyond")} == {ReasonCode.RESOURCES}
    for name in ("n0", "n1"):
        state.upsert_node(node(name, labels={"n": name}, unschedulable=True))
    go(state, 20.0)
    assert state.timers.next <= 21.0
    go(state, 21.0)
    assert {reason(state, name) for name in ("entitled", "beyond")} == {ReasonCode.TAINTS}
    state.upsert_node(node("n1", labels={"n": "n1"}))
    go(state, 30.0)
    go(state, 31.0)
    assert {reason(state, name) for name in ("entitled", "beyond")} == {ReasonCode.RESOURCES}

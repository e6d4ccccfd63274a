"""What a unit is refused for: data, which holds what was found while places were sought; it is no message."""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core import allocation, explain
from fairlead.core.allocation import NoCapacity, OverLimit, ReservedForOthers
from fairlead.core.model.nodes import Reservation
from tests.builders import cluster, group, node, pod, queue, run


def refused(state, name):
    unit = state.tasks[f"uid-{name}"].unit
    why = allocation.allocate(state, unit)
    assert not isinstance(why, list)
    return why, explain.refused(state, unit, why)


def test_a_pod_for_which_no_node_has_capacity():
    state = cluster([node("n", gpus=2)], pods=[pod("big", gpus=3)])
    run(state)
    why, reason = refused(state, "big")
    assert why == NoCapacity()
    assert why.code is ReasonCode.RESOURCES
    assert reason.message.startswith("0/1 nodes are available: ")


def test_a_gang_too_large_is_found_to_be_that_where_it_is_told():
    members = [pod(f"g-{i}", group="g", gpus=2) for i in range(2)]
    state = cluster([node("n", gpus=2)], pods=members, groups=[group("g", 2)])
    run(state)
    why, reason = refused(state, "g-0")
    assert why == NoCapacity()
    assert reason.code is ReasonCode.TOO_LARGE
    assert reason.gang == "ns/g"


def test_a_limit_comes_with_its_numbers():
    state = cluster([node("n", gpus=4)], [queue("q", limit=1)], [pod("p", gpus=2, queue="q")])
    run(state)
    why, reason = refused(state, "p")
    assert isinstance(why, OverLimit)
    assert why.code is ReasonCode.LIMIT_EXCEEDED
    assert reason is why.reason
    assert reason.numbers["limit"] == 1000


def test_a_gang_is_refused_for_its_queue_s_limit_though_there_is_no_capacity_either():
    members = [pod(f"g-{i}", group="g", queue="q") for i in range(4)]
    state = cluster([node("n", gpus=2)], [queue("q", limit=3)], members, groups=[group("g", 4, queue="q")])
    run(state)
    assert isinstance(refused(state, "g-0")[0], OverLimit)


def test_nodes_that_are_kept_come_with_the_hold():
    members = [pod(f"g-{i}", group="g") for i in range(2)]
    state = cluster([node("a", gpus=1), node("b", gpus=1)], pods=members, groups=[group("g", 2)])
    state.upsert_reservation(Reservation("maintenance", 1_000.0, 2_000.0))
    run(state)
    why, reason = refused(state, "g-0")
    assert isinstance(why, ReservedForOthers)
    assert (why.nodes, why.queue) == (2, None)
    assert reason.code is ReasonCode.RESERVATION
    assert reason.numbers["nodes"] == 2


def test_device_costs_follow_what_the_strategy_has_learnt_at_once():
    state = cluster([node("n", gpus=4)], pods=[pod("half", milli=500)])
    shape, before = state.tasks["uid-half"].shape, state.tasks["uid-half"].shape.fit
    for number in range(40):
        state.upsert_pod(pod(f"odd-{number}", milli=700, cpu=9_000))
    assert state.shapes.strategy.epoch > 0
    assert shape.fit is not before, "without anybody asking for it"

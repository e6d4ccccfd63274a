"""Reserve: where and when a blocked unit is expected to fit, for whom nodes are reserved, and when they are given up."""

import math

import pytest

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions.requeue import mark_unschedulable
from fairlead.core.actions.reserve import REPLAN_AFTER, REST, can_be_planned, plan, renew, reserve, reserve_for
from fairlead.core.model.queues import Queue
from tests.builders import GIB, GPU, cluster, first, group, node, pod, queue

HOUR = 3600.0
NOW = 10.0


def runs(name, on, ends, gpus=1, **more):
    """A pod that runs since 0 and ends then."""
    return pod(name, at=on, gpus=gpus, started=0.0, time_limit=ends, **more)


def unit_of(state, name="big", now=NOW):
    first(state, now)
    return state.tasks[f"uid-{name}"].unit


def where(state, hold):
    return sorted(state.nodes.names[row] for row in hold.rows)


def test_it_fits_when_enough_has_ended_and_there():
    """In the order of their ends; the node that is free first is the one."""
    state = cluster([node("a", gpus=4), node("b", gpus=4)])
    for each in (runs("x", "a", 3 * HOUR, 2), runs("y", "b", HOUR, 1), runs("z", "b", 2 * HOUR, 1), pod("big", gpus=4)):
        state.upsert_pod(each)
    hold = plan(state, unit_of(state), NOW)
    assert (where(state, hold), hold.start, hold.end) == (["b"], 2 * HOUR, math.inf)
    assert hold.key == "pod/uid-big"
    assert hold.unit is state.tasks["uid-big"].unit


def test_a_gang_has_as_many_nodes_as_it_needs_and_no_more():
    nodes = [node(name, gpus=4) for name in "abc"]
    state = cluster(nodes, groups=[group("g", 2)])
    for number, name in enumerate("abc"):
        state.upsert_pod(runs(f"r-{name}", name, (number + 1) * HOUR, 4))
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", group="g", gpus=4))
    hold = plan(state, unit_of(state, "g-0"), NOW)
    assert (where(state, hold), hold.start) == (["a", "b"], 2 * HOUR)


def test_what_is_left_there_is_known():
    state = cluster([node("a", gpus=4, cpu=8000)], pods=[runs("x", "a", HOUR, 4), pod("big", gpus=3, cpu=2000)])
    hold = plan(state, unit_of(state), NOW)
    left = hold.spare[hold.rows[0]]
    amounts = {name: left[column] for name, column in state.nodes.resources.items() if column in left}
    assert amounts == {"cpu": 6000, "memory": 511 * GIB, "pods": 109, GPU: 1}


def test_no_start_is_expected_sooner_than_a_plan_is_made_anew():
    state = cluster([node("a", gpus=4)], pods=[runs("x", "a", NOW + 1.0, 4), pod("big", gpus=4)])
    assert plan(state, unit_of(state), NOW).start == NOW + REPLAN_AFTER


def test_guessed_run_times_are_checked():
    """If nothing has ended by then, the guess was wrong."""
    state = cluster([node("a", gpus=4)], pods=[pod("x", at="a", gpus=4, started=0.0), pod("big", gpus=4)])
    assert plan(state, unit_of(state), NOW).check < math.inf
    known = cluster([node("a", gpus=4)], pods=[runs("x", "a", HOUR, 4), pod("big", gpus=4)])
    assert plan(known, unit_of(known), NOW).check == math.inf


@pytest.mark.parametrize(("theirs", "own"), [("q", True), ("other", False)])
def test_it_is_known_whether_its_own_queue_is_in_the_way(theirs, own):
    state = cluster([node("a", gpus=4)], [Queue("q"), Queue("other")])
    state.upsert_pod(runs("x", "a", HOUR, 4, queue=theirs))
    state.upsert_pod(pod("big", queue="q", gpus=4))
    assert plan(state, unit_of(state), NOW).own is own


def test_nodes_that_are_kept_for_others_and_closed_ones_do_not_count():
    state = cluster([node("a", gpus=4), node("b", gpus=4)], pods=[runs("x", "a", HOUR, 4), runs("y", "b", 2 * HOUR, 4)])
    state.upsert_pod(pod("big", gpus=4))
    state.upsert_pod(pod("next", gpus=4, created=1.0))
    one = plan(state, unit_of(state), NOW)
    state.reserved.keep(one)
    two = plan(state, unit_of(state, "next"), NOW)
    assert (where(state, one), where(state, two)) == (["a"], ["b"])
    state.reserved.drop(one)
    state.upsert_node(node("a", gpus=4, unschedulable=True))
    assert where(state, plan(state, unit_of(state), NOW)) == ["b"]
    state.upsert_node(node("a", gpus=4))
    state.nodes.open[state.nodes.rows["a"]] = False  # as where a pod's size is not known
    assert where(state, plan(state, unit_of(state), NOW)) == ["b"]


def test_members_of_several_shapes_have_nodes_of_their_own_and_start_with_the_last():
    state = cluster([node("a", gpus=4), node("b", gpus=4)], groups=[group("g", 2)])
    for each in (runs("x", "a", 2 * HOUR, 4), runs("y", "b", 9 * HOUR, 4)):
        state.upsert_pod(each)
    state.upsert_pod(pod("g-leader", group="g", gpus=0))
    state.upsert_pod(pod("g-worker", group="g", gpus=4))
    hold = plan(state, unit_of(state, "g-leader"), NOW)
    assert (where(state, hold), hold.start) == (["a", "b"], 2 * HOUR)


def test_what_never_fits_has_no_plan_and_is_planned_again_after_a_rest():
    state = cluster([node("a", gpus=4)], pods=[runs("x", "a", HOUR, 4), pod("big", gpus=8)], patience=0.0)
    unit = unit_of(state)
    assert plan(state, unit, NOW) is None
    pending_class = unit.pending_class
    refuse_all(state)
    reserve_for(state, unit, NOW)
    assert pending_class.replans_at == NOW + REST
    assert not state.reserved.holds


@pytest.mark.parametrize(
    ("more", "planned"),
    [({"gpus": 1}, False), ({"gpus": 1, "milli": 500}, False), ({"gpus": 2}, True), ({"gpus": 0, "cpu": 64000}, True)],
)
def test_a_single_device_or_part_of_one_needs_no_plan(more, planned):
    state = cluster([node("a")], pods=[pod("p", **more)])
    assert can_be_planned(unit_of(state, "p")) is planned


def refuse_all(state, code=ReasonCode.RESOURCES, now=NOW):
    """Every class that waits is refused with a code, and nothing is reserved."""
    first(state, now)
    for each in state.queues.queues.values():
        for pending_class in list(each.pending_classes.values()):
            mark_unschedulable(state, pending_class, pending_class.first(), Reason(code, "no"), now)


def full(*names, **policy):
    """Two full nodes, and large jobs that wait, the first since the earliest."""
    state = cluster([node("a", gpus=4), node("b", gpus=4)], pods=[runs("x", "a", HOUR, 4), runs("y", "b", 2 * HOUR, 4)], **policy)
    for number, name in enumerate(names):
        state.upsert_pod(pod(name, gpus=4, cpu=1000 + number, created=float(number)))
    return state


@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_first_get_nodes_as_many_as_policy_allows(most):
    state = full("one", "two", "three", patience=0.0, reservations=most)
    refuse_all(state)
    reserve(state, NOW)
    assert list(state.reserved.holds) == ["pod/uid-one", "pod/uid-two"][:most]


def test_what_is_reserved_is_not_planned_again_in_the_same_pass():
    state = full("one", patience=0.0, reservations=2)
    refuse_all(state)
    reserve(state, NOW)
    (hold,) = state.reserved.holds.values()
    reserve(state, NOW + 1)
    assert list(state.reserved.holds.values()) == [hold]
    assert next(iter(state.reserved.holds.values())) is hold


def test_not_before_they_have_waited_for_long_enough():
    state = full("one", patience=300.0)
    refuse_all(state)
    reserve(state, NOW)
    reserve_for(state, state.tasks["uid-one"].unit, NOW)
    assert not state.reserved.holds
    assert state.reserved.due == 300.0, "its creation, and the patience"
    reserve(state, 300.0)
    assert set(state.reserved.holds) == {"pod/uid-one"}
    assert state.reserved.due is None


@pytest.mark.parametrize(
    ("code", "reserves"),
    [
        (ReasonCode.RESOURCES, True),
        (ReasonCode.RESERVATION, True),
        (ReasonCode.DISRUPTION_BUDGET, True),
        (ReasonCode.FAIR_SHARE, False),
        (ReasonCode.LIMIT_EXCEEDED, False),
        (ReasonCode.TOO_LARGE, False),
    ],
)
def test_only_who_waits_for_capacity_has_nodes_reserved(code, reserves):
    state = full("one", patience=0.0)
    refuse_all(state, code)
    reserve_for(state, state.tasks["uid-one"].unit, NOW)
    assert bool(state.reserved.holds) is reserves
    for hold in list(state.reserved.holds.values()):
        state.reserved.drop(hold)
    reserve(state, NOW)
    assert bool(state.reserved.holds) is reserves


def test_nor_has_who_would_exceed_a_limit_then():
    state = cluster([node("a", gpus=4)], [queue("q", limit=4)], [runs("x", "a", HOUR, 4, queue="q")], patience=0.0)
    state.upsert_pod(pod("big", queue="q", gpus=4))
    refuse_all(state)
    reserve(state, NOW)
    assert not state.reserved.holds


def test_elastic_replicas_have_none():
    state = full(patience=0.0)
    state.upsert_pod(pod("more", gpus=4, elastic=True))
    refuse_all(state)
    reserve(state, NOW)
    assert not state.reserved.holds


def test_it_is_reserved_for_one_unit_as_soon_as_that_is_refused():
    state = full("one", "two", patience=0.0)
    refuse_all(state)
    reserve_for(state, state.tasks["uid-two"].unit, NOW)
    assert set(state.reserved.holds) == {"pod/uid-two"}
    reserve_for(state, state.tasks["uid-one"].unit, NOW)
    assert set(state.reserved.holds) == {"pod/uid-two"}, "one is all that policy allows"


def reserved():
    state = full("one", patience=0.0)
    refuse_all(state)
    reserve(state, NOW)
    (hold,) = state.reserved.holds.values()
    return state, hold


def test_it_ends_with_its_unit():
    state, _ = reserved()
    renew(state, NOW + 1)
    assert state.reserved.holds
    state.remove_pod("uid-one")
    renew(state, NOW + 2)
    assert not state.reserved.holds


def test_it_holds_for_a_gang_whose_unit_is_made_anew():
    state = cluster([node("a", gpus=4)], groups=[group("g", 2)], pods=[runs("x", "a", HOUR, 4)], patience=0.0)
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", group="g", gpus=2))
    refuse_all(state)
    reserve(state, NOW)
    (hold,) = state.reserved.holds.values()
    before = hold.unit
    state.remove_pod("uid-g-1")
    state.upsert_pod(pod("g-2", group="g", gpus=2))
    first(state, NOW + 1)
    renew(state, NOW + 1)
    assert set(state.reserved.holds) == {"gang/ns/g"}
    assert state.reserved.holds["gang/ns/g"].unit is state.tasks["uid-g-0"].unit is not before


def test_a_missed_start_is_planned_anew_on_the_same_nodes_and_given_up_if_nothing_changes():
    state, hold = reserved()
    assert (where(state, hold), hold.start) == (["a"], HOUR)
    renew(state, HOUR)
    (again,) = state.reserved.holds.values()
    assert (again.rows, again.late, again.vain) == (hold.rows, 1, 1)
    assert again.start >= HOUR + REPLAN_AFTER
    renew(state, again.start)
    assert not state.reserved.holds
    assert state.reserved.backoff_until("pod/uid-one") > again.start


def test_it_goes_on_while_what_is_in_the_way_ends():
    """Each time a start is missed less is missing than before."""
    state = cluster([node("a", gpus=4)], pods=[runs(f"x-{number}", "a", HOUR) for number in range(4)], patience=0.0)
    state.upsert_pod(pod("big", gpus=4))
    refuse_all(state)
    reserve(state, NOW)
    now = HOUR
    for number in range(3):
        state.remove_pod(f"uid-x-{number}")
        renew(state, now)
        (hold,) = state.reserved.holds.values()
        assert (hold.vain, hold.lacking) == (0, 250 * (3 - number))
        now = hold.start

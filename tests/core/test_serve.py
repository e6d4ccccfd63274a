"""Serve: a unit gets its places, else capacity is freed for it, else it is refused; nothing of a trial is left."""

import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.actions import serve as serving
from fairlead.core.actions.serve import refuse_again, serve
from fairlead.core.model.queues import Queue, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt, Refuse
from fairlead.core.pods.tasks import TaskState
from tests.builders import GPU, cluster, first, group, node, pod, queue, refused, settle

QUIET = {"patience": 9e9, "moves_per_minute": 0.0}


def served(state, now=1.0):
    """What is decided for the next unit, of which the name and its class are returned, too."""
    unit = first(state, now)
    decided = list(serve(state, unit, now))
    invariants.check(state)
    return unit, decided


def held(state):
    return {name: dict(node.used) for name, node in state.queues.queues.items()}


def test_what_fits_is_placed_and_no_pod_is_searched_for_it(monkeypatch):
    monkeypatch.setattr(serving, "free_capacity", lambda *_: pytest.fail("it fits"))
    state = cluster([node("n", gpus=2)], pods=[pod("low", at="n"), pod("high", priority=5, created=1.0)], **QUIET)
    unit, decided = served(state)
    assert [type(each) for each in decided] == [Place]
    assert [(each.pod.name, each.node) for each in decided[0].bindings] == [("high", "n")]
    assert not unit.alive
    assert state.queues.waiting.next() is None


def test_else_capacity_is_freed_for_it_and_it_is_not_refused():
    state = cluster([node("n", gpus=1)], pods=[pod("low", at="n"), pod("high", priority=5, created=1.0)], **QUIET)
    unit, decided = served(state)
    assert [type(each) for each in decided] == [Preempt]
    assert [each.pod.name for each in decided[0].victims] == ["low"]
    assert [(each.pod.name, each.node) for each in decided[0].beneficiaries] == [("high", "n")]
    assert (unit.tasks[0].state, state.tasks["uid-low"].state) == (TaskState.HELD, TaskState.EVICTING)
    assert state.log.mark() == 0, "it holds, whatever is taken back later"


def test_else_its_class_is_refused_with_the_reason_and_not_offered_again():
    state = cluster([node("n", gpus=1)], pods=[pod("runs", at="n"), pod("a", created=1.0), pod("b", created=2.0)], **QUIET)
    before = held(state)
    unit, decided = served(state)
    assert [type(each) for each in decided] == [Refuse]
    assert set(refused(decided)) == {"a", "b"}, "they are alike"
    assert {each.code for each in refused(decided).values()} == {ReasonCode.RESOURCES}
    assert unit.alive
    assert unit.tasks[0].state is TaskState.WAITING
    assert held(state) == before
    assert (state.log.depth, state.log.entries) == (0, [])
    assert state.queues.waiting.next() is None


def test_no_victims_are_searched_for_what_may_not_borrow_guaranteed_capacity(monkeypatch):
    monkeypatch.setattr(serving, "free_capacity", lambda *_: pytest.fail("it would be evicted itself, and cannot be"))
    state = cluster([node("n", gpus=2)], [queue("owner", 2), queue("guest", 0)], **QUIET)
    state.upsert_class(ServiceClass("pinned", mode="Never", borrows=False))
    state.upsert_pod(pod("low", queue="guest", at="n"))
    state.upsert_pod(pod("high", queue="guest", priority=5, service_class="pinned", created=1.0))
    _, decided = served(state)
    assert refused(decided)["high"].code is ReasonCode.QUOTA_EXCEEDED


def test_a_search_in_vain_leaves_nothing(monkeypatch):
    """Whatever was tried, the next unit is served in the state as it was."""
    search = serving.free_capacity

    def in_vain(state, unit, code, now):
        assert search(state, unit, code, now) is not None

    monkeypatch.setattr(serving, "free_capacity", in_vain)
    state = cluster([node("n", gpus=1)], pods=[pod("low", at="n"), pod("high", priority=5, created=1.0)], **QUIET)
    before = held(state)
    _, decided = served(state)
    assert refused(decided)["high"].code is ReasonCode.RESOURCES
    assert state.tasks["uid-low"].state is TaskState.BOUND
    assert held(state) == before
    assert (state.log.depth, state.log.entries) == (0, [])


def blocked(priority=1):
    """A queue beyond its share whose next job fits, and another that would reclaim its place at once."""
    state = cluster([node("n", gpus=2)], [queue("guest", 0, priority=priority), queue("owner", 2)], **QUIET)
    state.upsert_pod(pod("own", queue="owner", at="n"))
    state.upsert_pod(pod("mine", queue="owner", created=1.0))
    state.upsert_pod(pod("beyond", queue="guest", created=0.0))
    return state


def test_what_would_be_reclaimed_at_once_does_not_start():
    state = blocked()
    before = held(state)
    unit, decided = served(state)
    assert unit.tasks[0].pod.name == "beyond"
    assert refused(decided)["beyond"].code is ReasonCode.FAIR_SHARE
    assert unit.pending_class.held_back.tasks[0].pod.name == "mine"
    assert (unit.tasks[0].row, unit.tasks[0].state) == (-1, TaskState.WAITING)
    assert held(state) == before
    assert (state.log.depth, state.log.entries) == (0, [])
    assert [type(each) for each in served(state)[1]] == [Place], "the other has the place"


def test_nor_are_pods_evicted_for_it():
    """Its victim, of its own queue, would free a place that the other queue would reclaim."""
    state = cluster([node("n", gpus=2)], [queue("guest", 0, priority=1), queue("owner", 2)], **QUIET)
    state.upsert_pod(pod("own", queue="owner", at="n"))
    state.upsert_pod(pod("low", queue="guest", at="n"))
    state.upsert_pod(pod("mine", queue="owner", created=1.0))
    state.upsert_pod(pod("high", queue="guest", created=0.0, priority=5))
    before = held(state)
    unit, decided = served(state)
    assert unit.tasks[0].pod.name == "high"
    assert [type(each) for each in decided] == [Refuse]
    assert refused(decided)["high"].code is ReasonCode.FAIR_SHARE
    assert (unit.tasks[0].state, state.tasks["uid-low"].state) == (TaskState.WAITING, TaskState.BOUND)
    assert held(state) == before
    assert (state.log.depth, state.log.entries) == (0, [])


def test_work_within_its_share_is_not_held_against_others():
    state = blocked(priority=0)
    unit, decided = served(state)
    assert unit.tasks[0].pod.name == "mine"
    assert [type(each) for each in decided] == [Place]


def test_a_limit_of_a_user_stops_that_user_alone():
    state = cluster([node("n")], [Queue("q", per_user=UserLimits(resources=((GPU, 1000),)))], **QUIET)
    for user in ("ann", "bob"):
        for number in range(2):
            state.upsert_pod(pod(f"{user}-{number}", queue="q", user=user, created=float(number)))
    decided = [each for _ in range(4) for each in served(state)[1]]
    assert [type(each) for each in decided] == [Place, Place, Refuse, Refuse]
    assert {name: reason.code for name, reason in refused(decided).items()} == dict.fromkeys(
        ("ann-1", "bob-1"), ReasonCode.USER_LIMIT
    )
    assert state.queues.waiting.next() is None


@pytest.mark.parametrize("blocks", [True, False])
def test_the_first_that_cannot_start_blocks_its_queue_where_policy_says_so(blocks):
    large, small = pod("large", gpus=4, created=1.0), pod("small", created=2.0)
    state = cluster([node("n", gpus=4)], pods=[pod("runs", at="n"), large, small], head_blocks=blocks, **QUIET)
    _, decided = served(state)
    assert set(refused(decided)) == {"large"}
    following = state.queues.waiting.next()
    assert (following is None) is blocks
    if following is not None:
        assert following.tasks[0].pod.name == "small"


def test_nodes_are_reserved_for_what_was_refused_before_the_next_is_served():
    long, large, small = pod("long", at="n", started=0.0), pod("large", gpus=2, created=1.0), pod("small", created=2.0)
    state = cluster([node("n", gpus=2)], pods=[long, large, small], patience=0.0, moves_per_minute=0.0)
    assert set(refused(served(state, 10.0)[1])) == {"large"}
    assert set(state.reserved.holds) == {"pod/uid-large"}
    assert refused(served(state, 10.0)[1])["small"].code is ReasonCode.RESERVATION


def test_what_is_refused_again_is_not_reported_again_and_has_nodes_reserved():
    state = cluster([node("n", gpus=2)], pods=[pod("long", at="n"), pod("large", gpus=2, created=1.0)], patience=100.0)
    unit, decided = served(state, 10.0)
    reason = refused(decided)["large"]
    assert not state.reserved.holds, "it waits for its patience"
    state.queues.waiting.requeue(unit.pending_class)
    assert unit.pending_class.unschedulable is None
    refuse_again(state, unit, reason, 200.0)
    assert unit.pending_class.unschedulable is reason
    assert set(state.reserved.holds) == {"pod/uid-large"}
    assert not refused(settle(state, 201.0))


def test_a_gang_is_placed_in_one_transaction():
    members = [pod(f"g-{number}", group="g") for number in range(3)]
    state = cluster([node("n", gpus=2), node("m", gpus=2)], pods=members, groups=[group("g", 3)], **QUIET)
    _, (place,) = served(state)
    assert (place.group, {each.pod.name for each in place.bindings}) == ("ns/g", {"g-0", "g-1", "g-2"})

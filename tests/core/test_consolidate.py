"""Consolidation: the fewest pods move, each with a new place before it is evicted, and none moves in vain."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core import invariants
from fairlead.core.actions.defragment import next_run
from fairlead.core.model.groups import Group
from fairlead.core.model.policy import Defragment
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.state.snapshot import snapshot
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, run
from tests.core.moving import move

LATE = 1000.0


def fragmented(nodes=4, gpus=4, each=3, **more):
    """Every node holds some one-GPU pods, so that one GPU is free on each."""
    state = cluster([node(f"n{i}", gpus=gpus) for i in range(nodes)], [Queue("q")], reservations=0, **more)
    for i in range(nodes):
        for j in range(each):
            state.upsert_pod(pod(f"p{i}-{j}", queue="q", at=f"n{i}", started=0.0))
    return state


def test_pods_move_so_that_a_wider_one_fits_and_get_a_new_place():
    state = fragmented()
    state.upsert_pod(pod("wide", queue="q", gpus=2, created=0.0))
    assert run(state, 10.0)[0].reason.code == "Resources"
    assert state.next_due == 60.0, "it is given a minute first"
    decided = run(state, 60.0)
    (plan,) = decided
    assert isinstance(plan, Preempt)
    assert plan.moves
    assert len(plan.victims) == 1
    invariants.check(state)
    (again,) = move(state, decided, 61.0)
    decided = run(state, 61.0)
    assert set(placed(decided)) == {"wide", again}
    confirm(state, decided)
    invariants.check(state)
    for now in range(62, 70):
        assert run(state, float(now)) == [], "then nothing moves any more"


def test_the_new_place_is_kept_from_others_until_it_is_taken_or_given_up():
    state = fragmented(nodes=2)
    state.upsert_pod(pod("wide", queue="q", gpus=2))
    decided = run(state, LATE)
    assert len(preempted(decided)[0]) == 1
    state.upsert_pod(pod("thief", queue="q", priority=9, created=1.0, owner="another", never_preempts=True))
    assert "thief" not in placed(run(state, LATE + 1))
    victim = decided[0].victims[0].pod
    state.remove_pod(victim.uid)
    assert set(placed(run(state, LATE + 2))) == {"wide"}
    assert state.next_due is not None
    assert set(placed(run(state, LATE + 121))) == {"thief"}, "nobody came for it"
    invariants.check(state)


@pytest.mark.parametrize(
    "changes",
    [
        {"controlled": False},
        {"service_class": "stays"},
        {"service_class": "held"},
        {"stays": True},
        {"priority": 1},
        {"group": "pair"},
    ],
)
def test_who_is_never_moved(changes):
    state = cluster([node(f"n{i}", gpus=2) for i in range(2)], [Queue("q")], groups=[group("pair", 2, "q")], reservations=0)
    state.upsert_class(ServiceClass("stays", movable=False))
    state.upsert_class(ServiceClass("held", mode="Never"))
    for i in range(2):
        state.upsert_pod(pod(f"p{i}", queue="q", at=f"n{i}", started=0.0, **changes))
    state.upsert_pod(pod("wide", queue="q", gpus=2))
    assert not preempted(run(state, LATE))
    invariants.check(state)


def test_moves_have_a_budget():
    state = fragmented(nodes=8, moves_per_minute=2)
    for i in range(3):
        state.upsert_pod(pod(f"wide-{i}", queue="q", gpus=2, created=float(i)))
    decided = run(state, LATE)
    assert sum(len(each) for each in preempted(decided)) == 2
    assert not preempted(run(state, LATE + 1)), "the budget is spent"
    state.upsert_pod(pod("another", queue="q", gpus=2, created=5.0))
    later = run(state, LATE + 70)
    assert sum(len(each) for each in preempted(later)) >= 1
    for each in (fragmented(moves_per_minute=0), fragmented(preempt=False)):
        each.upsert_pod(pod("wide", queue="q", gpus=2))
        assert not preempted(run(each, LATE))


def test_a_refused_eviction_gives_everything_back():
    state = fragmented()
    before = snapshot(state)["nodes"]
    state.upsert_pod(pod("wide", queue="q", gpus=2))
    (plan,) = run(state, LATE)
    state.evictions.failed(plan.victims[0].pod.uid, LATE + 1)
    run(state, LATE + 1)
    invariants.check(state)
    assert snapshot(state)["nodes"] == before
    assert not state.in_flight.kept


def least_moves(pods, free, size, needed):
    """By trying all: how few pods must move so that so many places of a size are there, the moved ones included."""

    def packs(free, items):
        if not items:
            return True
        seen = set()
        for index, room in enumerate(free):
            if room >= items[0] and room not in seen:
                seen.add(room)
                if packs([*free[:index], room - items[0], *free[index + 1 :]], items[1:]):
                    return True
        return False

    for count in range(len(pods) + 1):
        for chosen in combinations(range(len(pods)), count):
            left = list(free)
            for index in chosen:
                left[pods[index][0]] += pods[index][1]
            items = sorted([size] * needed + [pods[index][1] for index in chosen], reverse=True)
            if packs(left, items):
                return count
    return None


CASES = st.lists(st.lists(st.sampled_from([1, 1, 1, 2]), max_size=3), min_size=2, max_size=5)


@settings(max_examples=150, deadline=None)
@given(CASES, st.integers(2, 4), st.integers(1, 3))
def test_few_more_move_than_the_fewest_possible(rows, size, needed):
    state = cluster([node(f"n{i}", gpus=4) for i in range(len(rows))], [Queue("q")], reservations=0)
    pods, free = [], []
    for i, row in enumerate(rows):
        kept = row[: next((k for k in range(len(row), -1, -1) if sum(row[:k]) <= 4), 0)]
        free.append(4 - sum(kept))
        for j, gpus in enumerate(kept):
            pods.append((i, gpus))
            state.upsert_pod(pod(f"p{i}-{j}", queue="q", at=f"n{i}", gpus=gpus, started=0.0))
    if needed > 1:
        state.upsert_group(Group("ns", "g", needed, "q"))
    for i in range(needed):
        state.upsert_pod(pod(f"wide-{i}", queue="q", gpus=size, group="g" if needed > 1 else ""))
    least = least_moves(pods, free, size, needed)
    decided = run(state, LATE)
    invariants.check(state)
    moved = sum(len(each) for each in preempted(decided))
    found = bool(moved) or any(isinstance(each, Place) for each in decided)
    if least is None:
        assert not found
    elif found:
        assert moved <= max(least + 1, 1.3 * least)
    # Moves end: every pod has a place, and there are no cycles.
    for now in range(10):
        decided = run(state, LATE + 10 + now) if now else decided
        if not decided:
            break
        move(state, decided, LATE + 10 + now)
        invariants.check(state)
    else:
        raise AssertionError("it never comes to rest")
    if found:
        assert all(task.row >= 0 for task in state.tasks.values())


def pieces(every=3600.0, **more):
    """Three nodes of four GPUs with one, two and three in use."""
    state = cluster([node(f"n{i}", gpus=4) for i in range(1, 4)], [Queue("q")], defragment=Defragment(every=every, **more))
    for i in range(1, 4):
        for j in range(i):
            state.upsert_pod(pod(f"p{i}-{j}", queue="q", at=f"n{i}", started=0.0))
    assert run(state, 0.0) == []
    return state


def used(state):
    return {name: sum(task.shape.gpus for task in state.nodes.pods[row].values()) for name, row in state.nodes.rows.items()}


def test_nodes_that_hold_little_are_emptied_when_it_is_time():
    state = pieces()
    assert state.next_due == 3600.0
    assert run(state, 3599.0) == []
    decided = run(state, 3600.0)
    (plan,) = decided
    assert plan.moves
    assert plan.beneficiaries == ()
    assert [victim.node for victim in plan.victims] == ["n1"]
    invariants.check(state)
    (again,) = move(state, decided, 3601.0)
    decided = run(state, 3601.0)
    assert placed(decided) == {again: "n3"}, "the smallest piece takes it"
    confirm(state, decided)
    assert used(state) == {"n1": 0, "n2": 2, "n3": 4}
    assert run(state, 7200.0) == [], "what is left in pieces is less than half of what is free"
    invariants.check(state)


def test_it_keeps_to_its_budget_and_its_hours():
    state = pieces(moves=1, begins=2 * 3600.0, ends=5 * 3600.0)
    assert state.next_due == 2 * 3600.0
    assert run(state, 3600.0) == []
    assert sum(len(each.victims) for each in run(state, 2 * 3600.0)) == 1
    night = Defragment(every=3600.0, begins=23 * 3600.0, ends=3600.0)
    assert next_run(night, 10 * 3600.0) == 23 * 3600.0
    assert next_run(night, 22.5 * 3600.0) == 23.5 * 3600.0
    assert next_run(night, 23.5 * 3600.0) == 24.5 * 3600.0
    assert next_run(night, 24.5 * 3600.0) == 47 * 3600.0


@pytest.mark.parametrize("more", [{"controlled": False}, {"service_class": "fixed"}, {"stays": True}, {"ours": False}])
def test_a_node_with_a_pod_that_may_not_move_is_left_alone(more):
    state = cluster([node("a", gpus=4), node("b", gpus=4)], [Queue("q")], defragment=Defragment(every=60.0))
    state.upsert_class(ServiceClass("fixed", movable=False))
    state.upsert_pod(pod("stays", queue="q", at="a", started=0.0, **more))
    state.upsert_pod(pod("also", queue="q", at="b", gpus=3, started=0.0, **more))
    run(state, 0.0)
    assert run(state, 60.0) == []
    invariants.check(state)


def test_an_eviction_that_is_refused_gives_the_new_place_back():
    state = pieces()
    (plan,) = run(state, 3600.0)
    state.evictions.failed(plan.victims[0].pod.uid, 3600.0)
    invariants.check(state)
    assert used(state) == {"n1": 1, "n2": 2, "n3": 3}


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(1, 4), max_size=4), min_size=2, max_size=6), st.integers(1, 8))
def test_it_never_fragments_more_and_moves_no_more_than_it_may(laid, budget):
    state = cluster(
        [node(f"n{i}", gpus=8) for i in range(len(laid))],
        [Queue("q")],
        defragment=Defragment(every=60.0, moves=budget, threshold=0),
    )
    for i, sizes in enumerate(laid):
        for j, gpus in enumerate(sizes):
            if sum(sizes[: j + 1]) <= 8:
                state.upsert_pod(pod(f"p{i}-{j}", queue="q", at=f"n{i}", gpus=gpus, started=0.0))
    run(state, 0.0)
    before = sum(count == 0 for count in used(state).values())
    decided = run(state, 60.0)
    moved = [victim for each in decided for victim in each.victims]
    assert len(moved) <= budget
    invariants.check(state)
    move(state, decided, 61.0)
    confirm(state, run(state, 61.0))
    assert sum(count == 0 for count in used(state).values()) == before + len(decided)
    assert sum(used(state).values()) == sum(task.shape.gpus for task in state.tasks.values()), "all run"
    invariants.check(state)


def test_capacity_that_becomes_free_later_is_consolidated_with_fragments_elsewhere():
    state = cluster([node(f"n{i}", gpus=2) for i in range(2)], [Queue("q")], reservations=0)
    for i in range(2):
        for j in range(2):
            state.upsert_pod(pod(f"p{i}-{j}", queue="q", at=f"n{i}", started=0.0))
    state.upsert_pod(pod("wide", queue="q", gpus=2, created=0.0))
    assert not preempted(run(state, LATE))
    state.remove_pod("uid-p0-0")
    assert not preempted(run(state, LATE + 100))
    state.remove_pod("uid-p1-0")
    assert len(preempted(run(state, LATE + 200))) == 1, "the second piece makes it enough"

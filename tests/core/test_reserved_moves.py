"""What is reserved for others: pods that move take no more of it than is to spare, and victims leave headroom for those behind."""

import pytest

from fairlead.core.model.nodes import Reservation
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Preempt
from tests.builders import cluster, confirm, group, node, pod, queue, run

SOUTH = {"south": "1"}


def nodes():
    return [
        node("a", labels={"hall": "a", **SOUTH}),
        node("b1", labels={"hall": "b", **SOUTH}),
        node("b2", labels={"hall": "b"}),
    ]


def two_that_may_move():
    """Two pods of a GPU each on b1 that may move to a, beside others that stay; 4 GPUs of b would be free without them."""
    stay = {"created": 1.0, "started": 1.0, "stays": True}
    return [
        pod("k", "q", gpus=3, at="b1", **stay),
        pod("k2", "q", gpus=6, at="b2", **stay),
        *(pod(name, "q", gpus=1, at="b1", created=1.0, started=121.0, selector=SOUTH) for name in ("m1", "m2")),
    ]


def moved(state, times):
    """Who is moved for a pod of 4 GPUs in hall b."""
    state.upsert_pod(pod("v", "q", gpus=5, created=60.0, selector={"hall": "b"}))
    found = []
    for now in times:
        decided = run(state, now)
        confirm(state, decided)
        found += [victim.pod.name for each in decided if isinstance(each, Preempt) for victim in each.victims]
    return found


POLICY = {"reservations": 1, "patience": 0.0, "move_patience": 0.0, "moves_per_minute": 600.0, "share_wait": 0.0}


@pytest.mark.parametrize(("size", "found"), [(6, ["m1", "m2"]), (7, [])])
def test_what_a_reservation_can_spare_is_taken_by_one_moved_pod_only(size, found):
    state = cluster(
        nodes(),
        [queue("q")],
        [pod("l", "q", gpus=4, at="a", created=1.0, started=1.0, stays=True), *two_that_may_move()],
        **POLICY,
    )
    state.upsert_pod(pod("u", "q", gpus=size, created=2.0, selector={"hall": "a"}))
    for now in (3.0, 4.0, 40.0, 120.0):
        confirm(state, run(state, now))
    assert len(state.reserved.holds) == 1
    assert sorted(moved(state, (122.0, 130.0))) == found


@pytest.mark.parametrize("owner", ["other", "default"])
def test_nothing_moves_to_nodes_that_administrators_reserve(owner):
    state = cluster(nodes(), [queue("q"), queue("other"), queue("default")], two_that_may_move(), **POLICY)
    state.upsert_reservation(Reservation("r", 0.0, 1e6, (Requirement("hall", "In", ("a",)),), owner))
    confirm(state, run(state, 120.0))
    assert moved(state, (122.0, 130.0)) == []
    state.remove_reservation("r")
    assert set(moved(state, (300.0, 400.0, 500.0))) == {"m1", "m2"}


def test_victims_that_leave_headroom_are_found_for_a_gang_of_unlike_members():
    queues = [queue("top", limit=8), *(queue(name, quota=quota, parent="top") for name, quota in (("a", 4), ("b", 2), ("c", 0)))]
    state = cluster([node("n", gpus=16)], queues, share_wait=60.0, reservations=0, moves_per_minute=0.0, patience=1e9)
    for number in range(6):
        state.upsert_pod(pod(f"c{number}", "c", gpus=1, created=1.0, at="n"))
    state.upsert_pod(pod("head", "a", gpus=4, created=2.0, never_preempts=True))
    for now in (3.0, 30.0, 70.0, 80.0):
        confirm(state, run(state, now))
    assert [hold.rows for hold in state.reserved.holds.values()] == [[]], "only headroom is reserved, for the head"
    state.upsert_group(group("g", 2, "b"))
    for number, gpus in enumerate((1, 0)):
        state.upsert_pod(pod(f"g-{number}", "b", group="g", gpus=gpus, created=81.0))
    assert any(isinstance(each, Preempt) for each in run(state, 82.0))

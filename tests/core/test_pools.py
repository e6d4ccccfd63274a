"""Queues that are given part of one pool: what is charged there, limits, guarantees, and pools that change."""

import random

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlead.api.reasons import ReasonCode
from fairlead.core import allocation, invariants
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.pods.tasks import TaskState
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, refused, run, settle

H100, A100 = {"nvidia.com/gpu.product": "h100"}, {"nvidia.com/gpu.product": "a100"}


def shares(name, parent="", **pools):
    """A queue with (quota, limit) of pools; `all` is of all nodes."""
    amounts = tuple(
        QueueResource(GPU, quota and quota * 1000, None if limit is None else limit * 1000, pool="" if pool == "all" else pool)
        for pool, (quota, limit) in pools.items()
    )
    return Queue(name, parent, 0, amounts)


def two_pools(*queues, gpus=4, **policy):
    return cluster([node("h", gpus=gpus, labels=H100), node("a", gpus=gpus, labels=A100)], queues, **policy)


def used(state, name, pool=""):
    return state.queues.queues[name].used.get(f"{GPU}@{pool}" if pool else GPU, 0) // 1000


def on(state, name):
    """How many pods are on a node."""
    return len(state.nodes.pods[state.nodes.rows[name]])


def test_a_limit_for_a_pool_stops_there_and_nowhere_else():
    state = two_pools(shares("q", h100=(None, 2)))
    for i in range(7):
        state.upsert_pod(pod(f"p{i}", queue="q", created=float(i)))
    settle(state)
    assert (on(state, "h"), on(state, "a")) == (2, 4)
    assert (used(state, "q", "h100"), used(state, "q")) == (2, 6)
    reason = next(task.unit.pending_class.unschedulable for task in state.tasks.values() if task.row < 0)
    assert (str(reason.code), reason.message) == (
        "LimitExceeded",
        "queue 'q' holds 2 of at most 2 nvidia.com/gpu of pool 'h100'; 1 more would exceed its limit",
    )
    assert reason.numbers == {"used": 2000, "limit": 2000, "requested": 1000}
    invariants.check(state)


def test_what_its_limit_blocked_starts_when_the_limit_is_raised():
    state = two_pools(shares("q", h100=(None, 1)))
    for i in range(3):
        state.upsert_pod(pod(f"p{i}", queue="q", created=float(i), selector=H100))
    assert placed(settle(state)) == {"p0": "h"}
    state.remove_pod("uid-p0")
    assert placed(settle(state)) == {"p1": "h"}
    state.upsert_queue(shares("q", h100=(None, 2)))
    assert placed(settle(state)) == {"p2": "h"}
    invariants.check(state)


def test_a_limit_above_holds_for_those_below():
    state = two_pools(shares("top", h100=(None, 1)), shares("one", parent="top"), shares("two", parent="top"))
    state.upsert_pod(pod("a", queue="one", selector=H100))
    state.upsert_pod(pod("b", queue="two", selector=H100, created=1.0))
    decided = settle(state)
    assert placed(decided) == {"a": "h"}
    assert "queue 'top'" in refused(decided)["b"].message


def test_a_gang_is_laid_over_pools_as_limits_allow():
    state = two_pools(shares("q", h100=(None, 2)))
    state.upsert_group(group("g", 6))
    for i in range(6):
        state.upsert_pod(pod(f"m{i}", queue="q", group="g", created=float(i)))
    assert len(placed(settle(state))) == 6
    assert (on(state, "h"), on(state, "a")) == (2, 4)
    invariants.check(state)


def test_a_gang_beyond_a_limit_waits_whole_and_says_so():
    state = two_pools(shares("q", h100=(None, 2)))
    state.upsert_group(group("g", 3))
    for i in range(3):
        state.upsert_pod(pod(f"m{i}", queue="q", group="g", selector=H100, created=float(i)))
    decided = settle(state)
    assert not placed(decided)
    assert "pool 'h100'" in refused(decided)["m0"].message
    assert used(state, "q", "h100") == 0


def test_a_node_pool_says_which_nodes_and_without_one_the_device_model():
    state = two_pools(shares("q", fast=(None, 1), h100=(None, 3)))
    for i in range(8):
        state.upsert_pod(pod(f"p{i}", queue="q", created=float(i)))
    settle(state)
    assert (on(state, "h"), used(state, "q", "h100"), used(state, "q", "fast")) == (3, 3, 0)
    assert state.queues.limits.doubt("q") == (
        False,
        "PoolNotFound",
        "pool 'fast' has no node: there is no such NodePool, and no device model of that name",
    )
    state.upsert_pool(NodePool("fast", (Requirement("nvidia.com/gpu.product", "In", ("a100", "h100")),)))
    assert used(state, "q", "fast") == 7
    assert state.queues.limits.doubt("q")[1] == "OverLimit"
    invariants.check(state)
    state.remove_pool("fast")
    assert used(state, "q", "fast") == 0
    invariants.check(state)


def test_accounts_follow_nodes_from_pool_to_pool():
    state = two_pools(shares("q", h100=(None, 8), a100=(None, 8)))
    for i in range(8):
        state.upsert_pod(pod(f"p{i}", queue="q", created=float(i)))
    settle(state)
    state.upsert_node(node("a", gpus=4, labels=H100))
    assert (used(state, "q", "h100"), used(state, "q", "a100")) == (8, 0)
    state.remove_node("h")
    invariants.check(state)
    assert (used(state, "q", "h100"), used(state, "q")) == (4, 8), "of a pod whose node is gone nobody knows the pool"
    state.upsert_node(node("h", gpus=4, labels=A100))
    assert (used(state, "q", "h100"), used(state, "q", "a100")) == (4, 4)
    invariants.check(state)


def test_percentages_are_of_the_pool():
    state = two_pools(Queue("q", resources=(QueueResource(GPU, quota_percent=25_000, limit_percent=50_000, pool="h100"),)))
    state.queues.settle(0.0)
    node_ = state.queues.queues["q"]
    assert (node_.quota, node_.limits) == ({f"{GPU}@h100": 1000, GPU: 1000}, {f"{GPU}@h100": 2000})
    state.upsert_node(node("h2", gpus=4, labels=H100))
    state.queues.settle(0.0)
    assert node_.limits == {f"{GPU}@h100": 4000}


@pytest.mark.parametrize(("wanted", "held"), [(3, (3, 1)), (4, (4, 0))])
def test_a_guarantee_in_a_pool_is_taken_back_there(wanted, held):
    """What is beyond the guarantee is half of the owner's: rounding gives it to the larger guarantee."""
    state = two_pools(shares("owner", h100=(3, None)), shares("guest"))
    for i in range(8):
        state.upsert_pod(pod(f"guest-{i}", queue="guest", created=float(i)))
    settle(state)
    assert used(state, "guest", "h100") == 4
    for i in range(wanted):
        state.upsert_pod(pod(f"owner-{i}", queue="owner", created=100.0 + i, selector=H100))
    decided = run(state)
    assert sum(map(len, preempted(decided))) == 3
    for _ in range(5):
        victims = [victim for each in decided if isinstance(each, Preempt) for victim in each.victims]
        assert {victim.node for victim in victims} <= {"h"}
        for victim in victims:
            state.remove_pod(victim.pod.uid)
            state.upsert_pod(pod(f"{victim.pod.name}+", queue="guest", created=200.0))
        decided = settle(state)
    assert (used(state, "owner", "h100"), used(state, "guest", "h100")) == held
    assert not [each for each in run(state) if isinstance(each, Place | Preempt)], "nothing moves any more"
    invariants.check(state)


def test_weights_divide_a_pool():
    def weighted(name, weight):
        return Queue(name, resources=(QueueResource(GPU, weight=weight, pool="h100"),))

    state = two_pools(weighted("one", 1), weighted("three", 3), gpus=8)
    for i in range(20):
        for name in ("one", "three"):
            state.upsert_pod(pod(f"{name}-{i}", queue=name, created=float(i), selector=H100))
    settle(state)
    assert (used(state, "one", "h100"), used(state, "three", "h100")) == (2, 6)
    assert state.queues.fair.share["three"][f"{GPU}@h100"] == 6000


def test_work_that_may_run_elsewhere_does_not_count_as_a_wish_for_the_pool():
    state = two_pools(shares("picky", h100=(2, None)), shares("easy", h100=(2, None)))
    for i in range(8):
        state.upsert_pod(pod(f"easy-{i}", queue="easy", created=float(i)))
    state.queues.settle(0.0)
    assert f"{GPU}@h100" not in state.queues.fair.share.get("easy", {})


def test_a_victim_of_its_own_relieves_the_limit_of_a_pool():
    state = two_pools(shares("q", h100=(None, 2)))
    for i in range(2):
        state.upsert_pod(pod(f"low-{i}", queue="q", created=float(i), selector=H100))
    settle(state)
    state.upsert_pod(pod("high", queue="q", priority=5, created=9.0, selector=H100))
    decided = run(state)
    assert preempted(decided) == [["low-1"]], "though the node has room: the limit has none"
    invariants.check(state)


def test_a_held_place_is_given_up_when_its_pool_may_hold_no_more():
    state = two_pools(shares("q", h100=(None, 4)))
    for i in range(4):
        state.upsert_pod(pod(f"low-{i}", queue="q", created=float(i), selector=H100))
    settle(state)
    state.upsert_pod(pod("high", queue="q", priority=5, created=9.0, selector=H100))
    (plan,) = [each for each in run(state) if isinstance(each, Preempt)]
    state.upsert_queue(shares("q", h100=(None, 3)))
    state.remove_pod(plan.victims[0].pod.uid)
    assert not placed(settle(state)), "three run already"
    assert used(state, "q", "h100") == 3
    invariants.check(state)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from([None, H100, A100]), st.sampled_from("xy"), st.integers(0, 3)), max_size=30
    ),
    st.integers(0, 6),
    st.integers(0, 6),
)
@example([(1, None, "x", 0)] * 9 + [(1, None, "y", 0), (2, None, "x", 0), (3, None, "x", 0), (3, None, "y", 0)], 0, 3)
def test_no_limit_of_a_pool_is_ever_exceeded(pods, one, two):
    queues = (shares("top", h100=(None, one + two)), shares("x", "top", h100=(2, one)), shares("y", "top", a100=(None, two)))
    state = two_pools(*queues, gpus=8)
    state.upsert_group(group("g", 3))
    for i, (gpus, where, queue_, kind) in enumerate(pods):
        made = pod(
            f"p{i}", queue=queue_, gpus=gpus, selector=where, created=float(i), priority=kind, group="g" if kind == 3 else ""
        )
        state.upsert_pod(made)
        if i % 5 == 0:
            victims = [v for each in confirm(state, run(state, float(i))) if isinstance(each, Preempt) for v in each.victims]
            for victim in victims:
                state.remove_pod(victim.pod.uid)
    settle(state, 100.0)
    assert used(state, "x", "h100") <= one
    assert used(state, "y", "a100") <= two
    assert used(state, "top", "h100") <= one + two
    invariants.check(state)
    for task in state.tasks.values():
        if task.state is TaskState.WAITING and task.gang is None and state.queues.limits.over_limit(task) is None:
            if task.reported is ReasonCode.FAIR_SHARE:
                continue  # its queue would be above its share, and lose another pod, in a pool that is full, at once
            closed = allocation.closed_to(state, task)
            rows = [
                row for row in state.nodes.rows.values() if task.ranking.fits_row(row) and (closed is None or not closed[row])
            ]
            assert not rows, "work is conserved"


@pytest.mark.parametrize("seed", range(150))
def test_nodes_come_into_pools_and_leave_them_while_victims_are_going(seed):
    """What a victim and its beneficiary are charged for changes with the pools of their nodes, and none is charged for less."""
    rnd = random.Random(seed)
    queues = [
        shares("top", all=(None, None), h100=(None, 9)),
        *(shares(name, "top", all=(2, None), h100=(1, 6)) for name in "xyz"),
    ]
    state = cluster([node(name, gpus=4, labels=rnd.choice([H100, A100])) for name in "mno"], queues)
    going = {}
    for number in range(60):
        now, event = 10.0 * number, rnd.random()
        if event < 0.6:
            first, gpus, queue_ = rnd.randint(0, 2), rnd.choice([1, 1, 2, 4]), rnd.choice("xyz")
            state.upsert_pod(pod(f"p{number}", queue=queue_, gpus=gpus, created=now, priority=first, user=rnd.choice("ab")))
        elif event < 0.85:
            state.upsert_node(node(rnd.choice("mno"), gpus=4, labels=rnd.choice([H100, A100])))
        else:
            most = UserLimits(resources=((f"{GPU}@h100", 2000),)) if rnd.random() < 0.5 else UserLimits()
            state.upsert_queue(msgspec.structs.replace(queues[1], per_user=most))
        for each in confirm(state, run(state, now)):
            if isinstance(each, Preempt):
                going |= {victim.pod.uid: now + rnd.choice([0.0, 20.0, 60.0]) for victim in each.victims}
        invariants.check(state)
        for uid in [uid for uid, ends in going.items() if ends <= now]:
            del going[uid]
            state.remove_pod(uid)
            invariants.check(state)


def test_users_limits_count_what_is_held_of_pools_whenever_they_begin_to():
    """A limit for users that comes later, and pools that change, count what runs already as it is charged."""
    state = two_pools(shares("q", h100=(4, 4), all=(None, None)))
    for number in range(3):
        state.upsert_pod(pod(f"p{number}", queue="q", at="h", user="ann"))
    limits = UserLimits(resources=((f"{GPU}@h100", 2000),))
    state.upsert_queue(msgspec.structs.replace(shares("q", h100=(4, 4), all=(None, None)), per_user=limits))
    invariants.check(state)
    assert state.queues.queues["q"].meter.held["ann", f"{GPU}@h100"] == 3000
    state.upsert_pool(NodePool("h100", (Requirement("nvidia.com/gpu.product", "In", ("a100",)),)))
    invariants.check(state)
    assert not state.queues.queues["q"].meter.held.get(("ann", f"{GPU}@h100"))

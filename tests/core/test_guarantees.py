"""Non-preemptible work gets only what is guaranteed to no other queue, so that every guarantee can be honoured at any moment."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.forecast import forecast
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from tests.builders import GPU, cluster, group, held, node, placed, play, pod, preempted, queue, refused, run, settle

FIRM = ServiceClass("firm", mode="Never", borrows=False)


def firm(name, queue, **more):
    return pod(name, queue=queue, service_class="firm", **more)


def lab(nodes=2, queues=(), **policy):
    state = cluster([node(f"n{i}", gpus=8) for i in range(nodes)], queues, **policy)
    state.upsert_class(FIRM)
    return state


def test_it_borrows_only_what_no_queue_is_guaranteed():
    state = lab(2, [queue("owner", quota=6), queue("guest", quota=2)])
    for i in range(16):
        state.upsert_pod(firm(f"guest-{i:02}", "guest", created=float(i)))
    told = refused(settle(state))
    assert held(state, "guest") == 10, "2 are its own, 8 nobody's"
    assert {reason.code for reason in told.values()} == {ReasonCode.QUOTA_EXCEEDED}
    assert told["guest-15"].message == (
        "ServiceClass 'firm' is non-preemptible and may not borrow guaranteed capacity: 1 more would raise the guarantees in total "
        "to 17 of 16 nvidia.com/gpu (own quota: 2)"
    )
    for i in range(8):
        state.upsert_pod(pod(f"other-{i}", queue="guest", created=50.0))
    settle(state)
    assert held(state, "guest") == 16, "what falls when the owner returns may have the rest"
    for i in range(6):
        state.upsert_pod(pod(f"owner-{i}", queue="owner", created=100.0))
    play(state)
    assert (held(state, "owner"), held(state, "guest")) == (6, 10)
    invariants.check(state)


def test_a_class_without_the_field_borrows_what_is_idle():
    state = lab(2, [queue("owner", quota=6), queue("guest", quota=2)])
    state.upsert_class(ServiceClass("firm", mode="Never"))
    for i in range(16):
        state.upsert_pod(firm(f"guest-{i:02}", "guest"))
    assert not refused(settle(state))
    assert held(state, "guest") == 16
    state.upsert_class(FIRM)
    state.upsert_pod(pod("mine", queue="owner", created=1.0))
    state.upsert_pod(firm("late", "guest", created=1.0))
    told = refused(settle(state))
    assert (told["mine"].code, told["late"].code) == (ReasonCode.RESOURCES, ReasonCode.QUOTA_EXCEEDED)
    invariants.check(state)


def test_without_guarantees_it_is_like_any_other():
    state = lab(2, [queue("a"), queue("b", limit=16)])
    for i in range(16):
        state.upsert_pod(firm(f"a-{i}", "a"))
    settle(state)
    assert held(state, "a") == 16


def test_guarantees_beyond_the_cluster_leave_each_its_own():
    state = lab(1, [queue("a", quota=8), queue("b", quota=8)])
    for i in range(8):
        state.upsert_pod(firm(f"a-{i}", "a"))
    settle(state)
    assert held(state, "a") == 8, "an administrator promised more than there is: whoever comes first has his part of it"


@pytest.mark.parametrize(("limit", "starts"), [(None, 6), (12, 4)])
def test_a_sibling_is_guaranteed_its_part_below_the_limit_above_both(limit, starts):
    state = lab(2, [queue("top", quota=8, limit=limit), queue("one", quota=2, parent="top"), queue("two", quota=8, parent="top")])
    for i in range(8):
        state.upsert_pod(firm(f"one-{i}", "one", created=float(i)))
    told = refused(settle(state))
    assert held(state, "one") == min(8, starts + 2 if limit is None else starts)
    if limit is not None:
        assert "the guarantees under queue 'top'" in told["one-7"].message


def test_a_non_preemptible_gang_waits_as_a_whole():
    state = lab(2, [queue("owner", quota=12), queue("guest", quota=0)])
    state.upsert_group(msgspec.structs.replace(group("g", 3, "guest"), service_class="firm"))
    for i in range(3):
        state.upsert_pod(pod(f"g-{i}", queue="guest", group="g", gpus=2))
    told = refused(settle(state))
    assert {reason.code for reason in told.values()} == {ReasonCode.QUOTA_EXCEEDED}
    assert held(state, "guest") == 0
    assert not refused(settle(state)), "it is told once"
    state.upsert_queue(queue("owner", quota=10))
    assert len(placed(settle(state))) == 3


@pytest.mark.parametrize("how", ["ends", "node", "class", "quota", "gone", "shrinks"])
def test_it_is_requeued_when_guarantees_change(how):
    state = lab(1, [queue("owner", quota=4), queue("guest"), queue("third")])
    for i in range(4):
        state.upsert_pod(firm(f"third-{i}", "third"))
    settle(state)
    state.upsert_pod(firm("late", "guest", created=9.0))
    assert refused(settle(state))["late"].code is ReasonCode.QUOTA_EXCEEDED
    if how == "ends":
        state.remove_pod("uid-third-0")
    elif how == "node":
        state.upsert_node(node("more", gpus=8))
    elif how == "class":
        state.upsert_class(ServiceClass("firm"))
    elif how == "quota":
        state.upsert_queue(queue("owner", quota=3))
    elif how == "gone":
        state.remove_queue("owner")
    else:
        state.upsert_queue(queue("guest", quota=1))  # now it is guaranteed something itself, more than there is
    assert "late" in placed(settle(state))
    invariants.check(state)


def test_a_pool_is_guaranteed_by_itself():
    fast = QueueResource(GPU, 4000, pool="h100")
    state = cluster(
        [node("h", gpus=8, labels={"fairlead.dev/pool": "h100"}), node("a", gpus=8)],
        [Queue("owner", resources=(fast,)), queue("guest")],
    )
    state.upsert_class(FIRM)
    h100 = {"fairlead.dev/pool": "h100"}
    for i in range(5):
        state.upsert_pod(firm(f"pinned-{i}", "guest", created=float(i), selector=h100))
    assert "nvidia.com/gpu of pool 'h100' (own quota: 0)" in refused(settle(state))["pinned-4"].message
    for i in range(16):
        state.upsert_pod(firm(f"guest-{i:02}", "guest", created=10.0 + i))
    told = refused(settle(state))
    assert held(state, "guest") == 12, "four of the pool are the owner's"
    assert {reason.code for reason in told.values()} == {ReasonCode.QUOTA_EXCEEDED}
    for i in range(4):
        state.upsert_pod(pod(f"owner-{i}", queue="owner", created=30.0, selector=h100))
    assert len(placed(settle(state))) == 4
    invariants.check(state)


def test_its_start_is_foretold():
    state = lab(1, [queue("owner", quota=4), queue("guest")])
    for i in range(4):
        state.upsert_pod(firm(f"first-{i}", "guest", time_limit=1000.0 * (i + 1)))
    state.upsert_pod(firm("late", "guest", created=9.0))
    settle(state)
    assert forecast(state, 0.0)["uid-late"] == 1000.0, "and not now, though four are free"


NAMES = ("a", "b", "b1", "b2")


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=4, max_size=4),
    st.lists(
        st.tuples(st.sampled_from(("a", "b1", "b2")), st.booleans(), st.integers(1, 4), st.integers(0, 9)),
        min_size=1,
        max_size=30,
    ),
)
def test_a_guarantee_can_always_be_called_in(quotas, jobs):
    """Whatever runs, a queue that asks for all that it is guaranteed gets it, where guarantees fit into the cluster."""
    a, b, b1, b2 = quotas
    b = max(b, b1 + b2)
    state = lab(
        2, [queue("a", quota=a), queue("b", quota=b), queue("b1", quota=b1, parent="b"), queue("b2", quota=b2, parent="b")]
    )
    live = []
    for number, (name, never, gpus, leaves) in enumerate(jobs):
        make = firm if never else pod
        state.upsert_pod(make(f"job-{number}", queue=name, gpus=gpus, created=float(number)))
        live.append(f"uid-job-{number}")
        settle(state)
        invariants.check(state)
        if leaves < 3:
            state.remove_pod(live.pop(leaves % len(live)))
    if a + b > 16:
        return
    for name, quota in (("a", a), ("b1", b1), ("b2", b2)):
        for i in range(quota):
            state.upsert_pod(pod(f"owed-{name}-{i}", queue=name, created=1000.0))
    now = 2000.0
    while play(state, now):
        now += 600.0  # searches that were in vain have had their rest
    invariants.check(state)
    for name, quota in (("a", a), ("b1", b1), ("b2", b2)):
        assert held(state, name) >= quota, name
    assert not [each for each in run(state, now) if isinstance(each, Place | Preempt)]


def test_a_childs_quota_beyond_its_parents_reclaims_from_no_other():
    """Whether or not a class exists whose work borrows nothing guaranteed: what is beyond the parent's quota is not guaranteed."""

    def part(name, quota, parent="", weight=None):
        return Queue(name, parent, 0, (QueueResource(GPU, quota * 1000, weight=weight),))

    queues = [part("d0", 1, weight=1), part("d1", 1, weight=1), part("q0", 3, "d0"), part("q1", 1, "d1")]
    for classes in ((), (ServiceClass("firm", mode="Never", borrows=False),)):
        state = cluster([node("n", gpus=4)], queues)
        for each in classes:
            state.upsert_class(each)
        for name in ("q0", "q1"):
            for i in range(2):
                state.upsert_pod(pod(f"{name}-{i}", queue=name, at="n"))
        state.upsert_pod(pod("more", queue="q0", created=1.0))
        assert preempted(run(state)) == [], classes


def test_non_preemptible_work_of_a_sibling_still_raises_the_guarantee_of_a_parent_beside_such_a_quota():
    queues = [queue("d0", quota=2), queue("a", quota=2, parent="d0"), queue("b", quota=1, parent="d0"), queue("d1", quota=2)]
    state = lab(1, queues)
    promises, d0 = state.queues.guarantees, state.queues.queues["d0"]
    assert (promises.claim(d0, GPU), promises.guaranteed_to(d0, GPU)) == (3000, 2000)
    for i in range(4):
        state.upsert_pod(firm(f"b-{i}", "b"))
    settle(state)
    assert held(state, "b") == 4, "one within its quota, three that nobody is guaranteed"
    assert (promises.claim(d0, GPU), promises.guaranteed_to(d0, GPU)) == (6000, 5000)

"""Between a decision and its end: victims that are leaving, plans that are given up, gangs that lose members.

Each of these was once wrong and found by the deterministic simulation.
"""

import msgspec
import pytest

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core import invariants
from fairlead.core.model.pods import AffinityTerm, HostPort
from fairlead.core.model.selectors import Requirement
from fairlead.core.pods.tasks import TaskState
from fairlead.core.schedule import schedule
from tests.builders import GPU, Evict, cluster, confirm, group, node, placed, pod, preempted, queue, refused, run, settle


def free(state, name="n"):
    nodes = state.nodes
    return nodes.free[nodes.resources[GPU]].item(nodes.rows[name])


def used(state, name="default"):
    return state.queues.queues[name].used.get(GPU, 0)


def test_a_queue_is_charged_for_victims_until_they_are_gone():
    state = cluster([node("n", gpus=8)], [queue("team", limit=8)], [pod("low", queue="team", gpus=8)])
    settle(state)
    state.upsert_pod(pod("high", queue="team", priority=5, gpus=2))
    (plan,) = run(state)
    assert preempted([plan]) == [["low"]]
    assert used(state, "team") == 8000, "the victim still runs"
    state.upsert_node(node("other", gpus=8))
    state.upsert_pod(pod("next", queue="team", created=9, gpus=4))
    assert "next" not in placed(run(state))
    invariants.check(state)
    state.remove_pod("uid-low")
    assert set(placed(run(state))) == {"high", "next"}
    assert used(state, "team") == 6000
    invariants.check(state)


def test_what_is_left_of_a_victims_shared_device_stays_closed():
    state = cluster([node("n", gpus=1)], pods=[pod("low", milli=750)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, milli=500))
    assert preempted(run(state)) == [["low"]]
    assert used(state) == 750
    state.upsert_pod(pod("small", created=9, milli=500))
    assert placed(run(state)) == {}, "half of the device is promised, a quarter is still in use"
    state.remove_pod("uid-low")
    assert set(placed(run(state))) == {"high", "small"}
    invariants.check(state)


def test_victims_of_a_plan_given_up_are_counted_again():
    state = cluster([node("n", gpus=4)], pods=[pod(f"low-{i}", created=i) for i in range(4)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, gpus=3))
    assert len(preempted(run(state))[0]) == 3
    state.evictions.failed("uid-low-3", 10.0)
    assert free(state) == 0, "all four still run"
    assert used(state) == 4000
    assert state.tasks["uid-high"].state is TaskState.WAITING
    invariants.check(state)


def test_a_beneficiary_that_goes_leaves_its_place_closed_until_its_victims_are_gone():
    state = cluster([node("n", gpus=2)], pods=[pod("low", gpus=2)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, gpus=2))
    assert preempted(run(state)) == [["low"]]
    state.remove_pod("uid-high")
    state.upsert_pod(pod("late", created=9))
    assert placed(run(state)) == {}
    invariants.check(state)
    state.remove_pod("uid-low")
    assert placed(run(state)) == {"late": "n"}


def test_pods_on_a_node_that_has_gone_count_for_their_queue():
    state = cluster([node("n", gpus=4), node("m", gpus=4)], [queue("team", limit=4)], [pod("a", queue="team", gpus=4)])
    settle(state)
    where = state.nodes.names[state.tasks["uid-a"].row]
    state.upsert_pod(msgspec.structs.replace(state.tasks["uid-a"].pod, node=where))
    state.remove_node(where)
    state.upsert_pod(pod("b", queue="team"))
    assert refused(run(state))["b"].code == "LimitExceeded"
    invariants.check(state)
    state.upsert_node(node(where, gpus=4))
    assert used(state, "team") == 4000
    invariants.check(state)


def test_a_terminating_member_is_no_member():
    members = [pod(f"old-{i}", group="g", at="n") for i in range(2)]
    state = cluster([node("n", gpus=8)], pods=members, groups=[group("g", 2)])
    run(state)
    for each in members:
        state.upsert_pod(msgspec.structs.replace(each, terminating=True))
    state.upsert_pod(pod("new-0", group="g"))
    assert placed(run(state)) == {}, "one new member of two is not enough"
    state.upsert_pod(pod("new-1", group="g"))
    assert set(placed(run(state))) == {"new-0", "new-1"}


def test_a_gang_is_taken_down_again_if_it_was_not_the_first_time():
    state = cluster([node("n", gpus=8)], pods=[pod("a", group="g", at="n")], groups=[group("g", 2)])
    run(state, 100.0)
    first = [each for each in run(state, 161.0) if isinstance(each, Evict)]
    assert len(first) == 1
    assert not [each for each in run(state, 200.0) if isinstance(each, Evict)]
    again = [each for each in run(state, 222.0) if isinstance(each, Evict)]
    assert [victim.pod.name for victim in again[0].victims] == ["a"]


def test_each_fault_of_a_gang_has_a_grace_of_its_own():
    state = cluster([node("n", gpus=8)], pods=[pod(f"m{i}", group="g", at="n") for i in range(2)], groups=[group("g", 2)])
    run(state, 0.0)
    state.remove_pod("uid-m0")
    run(state, 100.0)
    state.upsert_pod(pod("m2", group="g", at="n"))
    run(state, 120.0)
    state.remove_pod("uid-m1")
    run(state, 500.0)
    assert not [each for each in run(state, 530.0) if isinstance(each, Evict)]
    assert [each for each in run(state, 561.0) if isinstance(each, Evict)]


def test_devices_that_come_back_are_counted_for_who_was_there():
    state = cluster([node("n", gpus=4)], pods=[pod("a", gpus=8, at="n")])
    assert len(state.tasks["uid-a"].devices) == 4
    state.upsert_node(node("n", gpus=8))
    assert len(state.tasks["uid-a"].devices) == 8
    invariants.check(state)


def test_a_pod_that_is_bound_now_may_be_preempted_now():
    state = cluster([node("n", gpus=1)], pods=[pod("low")])
    run(state)  # assumed, its binding is being written
    state.upsert_pod(pod("high", priority=5))
    assert preempted(run(state)) == []
    state.pods.bound("uid-low")
    assert preempted(run(state)) == [["low"]]


def test_a_job_blocked_by_a_limit_and_by_capacity_is_tried_when_capacity_is_freed():
    state = cluster(
        [node("n", gpus=4), node("m", gpus=4)],
        [queue("team", limit=4), queue("rest")],
        [pod("low", queue="team", gpus=2, created=1), pod("wide-a", queue="rest", gpus=4), pod("wide-b", queue="rest", gpus=2)],
    )
    settle(state)
    state.upsert_pod(pod("high", queue="team", priority=5, gpus=4))
    assert preempted(run(state)) == []
    row = state.tasks["uid-wide-a"].row
    state.remove_pod("uid-wide-a")
    assert preempted(run(state)) == [["low"]]
    assert state.tasks["uid-high"].row == row
    invariants.check(state)


def test_a_running_pod_moves_to_its_queue_when_that_is_known():
    state = cluster([node("n")], [queue("team", limit=1)], [pod("a", at="n")])
    state.upsert_pod(pod("a", at="n", queue="team"))
    assert (used(state), used(state, "team")) == (0, 1000)
    state.upsert_pod(pod("b", queue="team"))
    assert refused(run(state))["b"].code == "LimitExceeded"
    invariants.check(state)


def test_an_unknown_queue_that_came_in_time_is_not_complained_of():
    state = cluster([node("n")])
    state.upsert_pod(pod("a", queue="team"))
    state.upsert_queue(queue("team", limit=0))
    assert refused(run(state))["a"].code == "LimitExceeded"


def test_a_held_place_that_others_took_meanwhile_is_given_up():
    state = cluster([node("n", gpus=8)], pods=[pod("low", gpus=8)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, gpus=8))
    assert preempted(run(state)) == [["low"]]
    state.upsert_pod(pod("outsider", gpus=2, at="n", ours=False))
    state.remove_pod("uid-low")
    assert placed(run(state)) == {}, "only six devices are left"
    assert state.tasks["uid-high"].state is TaskState.WAITING
    state.remove_pod("uid-outsider")
    assert placed(run(state)) == {"high": "n"}
    invariants.check(state)


def test_a_pod_that_goes_while_others_start_is_not_started():
    """Events are applied between two transactions: the places of both are redeemed in one pass, and the second goes meanwhile."""
    state = cluster([node("n", gpus=2)], pods=[pod("low-0"), pod("low-1")])
    settle(state)
    for each in range(2):
        state.upsert_pod(pod(f"high-{each}", priority=5))
    assert preempted(run(state)) == [["low-0"], ["low-1"]]
    for each in range(2):
        state.remove_pod(f"uid-low-{each}")
    decided = []
    for each in schedule(state, 1.0):
        decided.append(each)
        if placed([each]) == {"high-0": "n"}:
            state.remove_pod("uid-high-1")
    assert placed(decided) == {"high-0": "n"}
    invariants.check(state)
    assert free(state) == 1


def test_a_member_that_lost_its_held_place_waits_for_the_victims_with_its_gang():
    """Else it would run beside the victims, and their queue hold more than it may."""
    nodes = [node("a", gpus=8), node("b", gpus=8)]
    state = cluster(nodes, [queue("team", limit=16)], [pod(f"low-{i}", queue="team", gpus=8) for i in range(2)], [group("g", 2)])
    settle(state)
    for i in range(2):
        state.upsert_pod(pod(f"high-{i}", queue="team", group="g", priority=5, gpus=8))
    assert preempted(run(state)) == [["low-0", "low-1"]]
    state.upsert_node(node("c", gpus=8))
    lost = next(task for task in state.tasks.values() if task.state is TaskState.HELD)
    state.remove_node(state.nodes.names[lost.row])
    assert placed(run(state)) == {}
    assert used(state, "team") == 16_000, "a victim whose node is gone is charged as long as it is there"
    state.remove_pod("uid-low-0")
    state.remove_pod("uid-low-1")
    assert set(placed(run(state))) == {"high-0", "high-1"}
    invariants.check(state)


def test_all_victims_of_a_refused_plan_stay_though_no_pod_waits_for_them_any_more():
    state = cluster([node("n", gpus=2)], pods=[pod(f"low-{i}") for i in range(2)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, gpus=2))
    assert preempted(run(state)) == [["low-0", "low-1"]]
    state.remove_pod("uid-high")
    state.evictions.failed("uid-low-0", 10.0)
    assert {state.tasks[f"uid-low-{i}"].state for i in range(2)} == {TaskState.BOUND}
    assert free(state) == 0
    invariants.check(state)


def test_a_plan_fails_by_a_victim_that_has_gone_meanwhile():
    """Its dry run got no answer, and it ended by itself before that was known: the other victims were never evicted."""
    state = cluster([node("n", gpus=2)], pods=[pod(f"low-{i}") for i in range(2)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, gpus=2))
    assert preempted(run(state)) == [["low-0", "low-1"]]
    state.remove_pod("uid-low-0")
    state.evictions.failed("uid-low-0", 10.0)
    assert state.tasks["uid-low-1"].state is TaskState.BOUND
    assert state.tasks["uid-high"].state is TaskState.WAITING
    assert free(state) == 1
    assert not state.in_flight.plans
    invariants.check(state)


def test_a_victim_that_is_leaving_still_holds_its_port_and_keeps_others_away():
    port, term = HostPort("0.0.0.0", "TCP", 80), AffinityTerm("host", (Requirement("app", "In", ("a",)),), ("ns",))  # noqa: S104

    def marked(made, **fields):
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, **fields), labels=(("app", "a"),))

    low = marked(pod("low", gpus=8), ports=(port,), pod_anti_affinity=(term,))
    state = cluster([node("n", gpus=8, labels={"host": "n"})], pods=[low])
    settle(state)
    state.upsert_pod(pod("high", priority=5, gpus=4))
    assert preempted(run(state)) == [["low"]]
    state.upsert_pod(marked(pod("port", gpus=0, created=1), ports=(port,)))
    state.upsert_pod(marked(pod("kin", gpus=0, created=2), pod_anti_affinity=(term,)))
    state.upsert_pod(msgspec.structs.replace(low, node="n", terminating=True))
    assert placed(run(state)) == {}
    invariants.check(state)
    state.remove_pod("uid-low")
    assert placed(run(state)) == {"high": "n", "port": "n"}, "one of the two keeps the other away"
    assert not state.in_flight.lingering
    invariants.check(state)


def near(made):
    term = AffinityTerm("pool", (Requirement("app", "In", ("a",)),), ("ns",))
    spec = msgspec.structs.replace(made.spec, pod_affinity=(term,))
    return msgspec.structs.replace(made, spec=spec, labels=(("app", "a"),))


def test_what_is_first_asked_about_while_victims_are_tried_is_counted_as_it_is():
    """A limit refused the pod before its affinity was checked: its victim met it, and was off its node."""
    pods = [near(pod("low", queue="team", gpus=1, at="n")), pod("other", queue="team", priority=9, gpus=1, at="n")]
    state = cluster([node("n", labels={"pool": "p"})], [queue("team", limit=2)], pods)
    state.upsert_pod(near(pod("high", queue="team", priority=5, gpus=2)))
    assert preempted(run(state)) == []
    invariants.check(state)
    state.upsert_pod(near(pod("small", queue="team", priority=6, gpus=1)))
    assert preempted(run(state)) == [["low"]]
    invariants.check(state)
    state.remove_pod("uid-low")
    state.remove_pod("uid-other")
    assert placed(run(state)) == {"small": "n"}
    invariants.check(state)
    state.remove_pod("uid-small")
    assert placed(run(state)) == {"high": "n"}


def test_a_count_begun_while_something_is_tried_is_counted_anew_afterwards():
    state = cluster([node("n", labels={"pool": "p"})], pods=[near(pod("low", at="n")), near(pod("waits", gpus=9))])
    task = state.tasks["uid-waits"]
    outer = state.log.mark()
    state.placement.unassign(state.tasks["uid-low"])
    inner = state.log.mark()
    assert task.ranking.relations
    state.log.rollback(inner)
    state.log.rollback(outer)
    invariants.check(state)
    assert not task.ranking.relations[0].refuses(state.nodes.rows["n"])


def test_a_limit_may_be_relieved_by_a_victim_where_the_preemptor_does_not_fit():
    """While it was being bound it could not be preempted, and once it was bound, only its own node was checked."""
    nodes = [node("small", gpus=1, cpu=2000), node("big", gpus=8)]
    state = cluster(nodes, [queue("team", limit=1)], [pod("low", queue="team", cpu=2000)])
    first = run(state)
    assert placed(first) == {"low": "small"}
    state.upsert_pod(pod("high", queue="team", priority=5, cpu=8000))
    assert preempted(run(state)) == []
    state.pods.bound("uid-low")
    assert preempted(run(state)) == [["low"]]
    invariants.check(state)


def test_victims_of_another_queue_are_charged_to_their_own_until_they_are_gone():
    queues = [queue("top", limit=16), queue("mine", parent="top"), queue("theirs", parent="top", limit=8)]
    low = pod("low", queue="theirs", gpus=8)
    state = cluster([node("n", gpus=8, labels={"host": "n"}), node("other", gpus=4, cpu=500)], queues, [low])
    settle(state)
    state.upsert_pod(pod("high", queue="mine", priority=5, gpus=6, profile=KUBERNETES_PROFILE, selector={"host": "n"}))
    assert preempted(run(state)) == [["low"]]
    invariants.check(state)
    assert (used(state, "theirs"), used(state, "mine"), used(state, "top")) == (8000, 6000, 8000)
    state.upsert_node(node("other", gpus=8))
    state.upsert_pod(pod("next", queue="theirs", created=9, gpus=4))
    assert "next" not in placed(run(state)), "twelve of at most eight would run there"
    # The tree changes in between, and the beneficiary gives up: the victim still runs.
    state.upsert_queue(queue("theirs", limit=8))
    invariants.check(state)
    state.upsert_queue(queue("theirs", parent="top", limit=8))
    state.remove_pod("uid-high")
    invariants.check(state)
    assert (used(state, "theirs"), used(state, "mine")) == (8000, 0)
    state.remove_pod("uid-low")
    assert set(placed(run(state))) == {"next"}
    invariants.check(state)
    assert (used(state, "theirs"), used(state, "top")) == (4000, 4000)


def test_each_queue_is_charged_for_its_own_victims_beyond_what_the_beneficiary_is_charged_for():
    """One pod takes the places of two of its own queue and one of another, which hold more pods than it is."""
    queues = [queue("top", limit=16), queue("mine", parent="top"), queue("theirs", parent="top")]
    low = [pod("a", queue="theirs"), pod("b", queue="mine"), pod("c", queue="mine")]
    state = cluster([node("n", gpus=3)], queues, low)
    settle(state)
    state.upsert_pod(pod("high", queue="mine", priority=5, gpus=3, profile=KUBERNETES_PROFILE))
    assert preempted(run(state)) == [["a", "b", "c"]]
    pods = {name: state.queues.queues[name].used["pods"] for name in ("mine", "theirs", "top")}
    assert pods == {"mine": 2, "theirs": 1, "top": 3}
    assert [used(state, name) for name in ("mine", "theirs", "top")] == [3000, 1000, 3000]
    invariants.check(state)
    state.remove_pod("uid-high")
    state.remove_pod("uid-b")
    assert [used(state, name) for name in ("mine", "theirs", "top")] == [1000, 1000, 2000]
    invariants.check(state)


def test_a_queue_is_charged_for_all_victims_of_shared_devices():
    state = cluster([node("n", gpus=2)], pods=[pod(f"low-{i}", milli=500, cpu=16_000) for i in range(4)])
    settle(state)
    state.upsert_pod(pod("high", priority=5, milli=500, cpu=64_000))
    assert len(preempted(run(state))[0]) == 4
    assert used(state) == 2000
    invariants.check(state)
    state.remove_pod("uid-low-0")
    assert 1500 <= used(state) <= 2000
    invariants.check(state)


def test_a_victim_whose_node_goes_twice_is_not_bound_again():
    state = cluster(
        [node("n", gpus=2), node("m", gpus=2)], pods=[pod("low", gpus=2, at="n"), pod("full", gpus=2, at="m", priority=9)]
    )
    state.upsert_pod(pod("high", priority=5, gpus=2))
    assert preempted(run(state)) == [["low"]]
    for _ in range(2):
        state.remove_node("n")
        invariants.check(state)
        state.upsert_node(node("n", gpus=2))
    state.remove_node("n")
    state.remove_pod("uid-high")
    state.remove_pod("uid-full")
    assert placed(run(state)) == {}, "it runs on n, or is gone with it"
    assert used(state) == 2000
    invariants.check(state)


def test_a_limit_lowered_meanwhile_holds_for_places_that_were_held():
    state = cluster([node("n", gpus=8)], [queue("team", limit=8)], [pod("low", queue="team", gpus=6)])
    settle(state)
    state.upsert_pod(pod("high", queue="team", priority=5, gpus=8))
    assert preempted(run(state)) == [["low"]]
    state.upsert_queue(queue("team", limit=4))
    state.remove_pod("uid-low")
    assert placed(run(state)) == {}
    assert used(state, "team") == 0
    invariants.check(state)
    state.upsert_queue(queue("team", limit=8))
    assert set(placed(run(state))) == {"high"}


@pytest.mark.parametrize("end", ["gone", "refused", "back"])
def test_a_victim_whose_node_goes_is_charged_until_it_is_gone(end):
    """The beneficiary waits again, so no other is charged for it."""
    state = cluster([node("a", gpus=8)], [queue("q", limit=8)])
    state.upsert_pod(pod("victim", queue="q", gpus=8))
    confirm(state, run(state))
    state.upsert_pod(pod("high", queue="q", gpus=8, priority=5))
    assert preempted(run(state)) == [["victim"]]
    state.remove_node("a")
    state.upsert_node(node("b", gpus=8))
    invariants.check(state)
    assert placed(run(state, 1.0)) == {}, "the victim still holds what the queue may"
    if end == "gone":
        state.remove_pod("uid-victim")
        assert placed(run(state, 2.0)) == {"high": "b"}
    elif end == "refused":
        state.evictions.failed("uid-victim", 2.0)
        invariants.check(state)
        assert placed(run(state, 2.0)) == {}
        assert state.tasks["uid-victim"].state.value == "bound"
    else:
        state.upsert_node(node("a", gpus=8))
        invariants.check(state)
        state.evictions.failed("uid-victim", 2.0)
        assert state.tasks["uid-victim"].state.value == "bound"
        assert state.tasks["uid-victim"].row == state.nodes.rows["a"]
    invariants.check(state)
    for uid in list(state.tasks):
        state.remove_pod(uid)
    invariants.check(state)
    assert state.queues.queues["q"].used.get("nvidia.com/gpu", 0) == 0

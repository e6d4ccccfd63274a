from collections import Counter

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place
from tests.builders import GPU, cluster, group, node, placed, pod, queue, refused, run, settle


def started(done):
    return [each.bindings[0].pod.name for each in done if isinstance(each, Place)]


def test_the_smaller_share_of_quota_goes_first():
    pods = [pod(f"{team}-{i}", queue=team, created=float(i)) for team in ("a", "b") for i in range(12)]
    state = cluster([node("n", gpus=9)], [queue("a", quota=6), queue("b", quota=3)], pods)
    counts = Counter(name.partition("-")[0] for name in placed(run(state)))
    assert counts == {"a": 6, "b": 3}


def test_a_queue_without_quota_comes_after_those_within_theirs():
    pods = [pod(f"{team}-{i}", queue=team) for team in ("a", "z") for i in range(4)]
    state = cluster([node("n", gpus=4)], [queue("a"), queue("z", quota=4)], pods)
    assert {name[0] for name in placed(run(state))} == {"z"}


def test_priorities_of_queues_come_before_shares():
    pods = [pod(f"{team}-{i}", queue=team) for team in ("low", "high") for i in range(3)]
    state = cluster([node("n", gpus=3)], [queue("low", quota=8), queue("high", quota=3, priority=5)], pods)
    assert {name.partition("-")[0] for name in placed(run(state))} == {"high"}


def test_inside_a_queue_priority_then_age_then_name():
    pods = [pod("b", created=1), pod("a", created=1), pod("old", created=0), pod("urgent", created=9, priority=5)]
    state = cluster([node("n")], pods=pods)
    assert started(run(state)) == ["urgent", "old", "a", "b"]


def test_a_job_that_does_not_fit_blocks_no_other():
    state = cluster([node("n", gpus=2)], pods=[pod("big", gpus=8, created=0), pod("small", created=1)])
    assert placed(run(state)) == {"small": "n"}


def test_unless_the_head_blocks():
    state = cluster([node("n", gpus=2)], pods=[pod("big", gpus=8, created=0), pod("small", created=1)], head_blocks=True)
    assert not placed(run(state))
    state.remove_pod("uid-big")
    assert placed(run(state)) == {"small": "n"}


def test_a_head_that_blocks_is_the_head_by_what_its_user_holds():
    pods = [pod("of-a", gpus=2, user="a", at="n"), pod("of-b", user="b", at="n"), pod("small", user="a", created=1)]
    pods += [pod("big", gpus=8, user="b", created=0), pod("later", user="b", created=2)]
    state = cluster([node("n", gpus=4)], pods=pods, head_blocks=True, fair_users=True)
    assert not placed(run(state))
    state.remove_pod("uid-of-a")
    assert placed(run(state)) == {"small": "n"}, "user a holds less than user b by now; big still keeps later waiting"
    assert not placed(run(state, 60.0))


def test_nothing_passes_a_head_that_blocks_when_something_else_is_tried_again():
    pods = [pod("runs", gpus=2, at="n"), pod("later", gpus=4, created=2)]
    state = cluster([node("n", gpus=4)], pods=pods, head_blocks=True)
    assert not placed(run(state))
    state.upsert_pod(pod("big", gpus=8, created=1))
    assert set(refused(run(state, 1.0))) == {"big"}
    state.remove_pod("uid-runs")
    state.upsert_pod(pod("last", gpus=1, created=3))
    assert not placed(run(state, 2.0)), "there is a place for later by now"
    state.upsert_pod(pod("first", gpus=1, created=0))
    assert placed(run(state, 3.0)) == {"first": "n"}
    state.remove_pod("uid-big")
    state.remove_pod("uid-first")
    assert placed(settle(state)) == {"later": "n"}


def test_limits_cap_and_release():
    state = cluster([node("n")], [queue("q", limit=2)], [pod(f"p{i}", queue="q", created=float(i)) for i in range(4)])
    done = settle(state)
    assert len(placed(done)) == 2
    reason = refused(done)["p3"]
    assert reason.code is ReasonCode.LIMIT_EXCEEDED
    assert "holds 2 of at most 2" in reason.message
    state.remove_pod("uid-p0")
    assert placed(settle(state)) == {"p2": "n"}
    state.upsert_queue(queue("q", limit=9))
    assert placed(run(state)) == {"p3": "n"}
    invariants.check(state)


def test_fractions_are_charged_in_parts():
    state = cluster([node("n")], [queue("q", limit=1)], [pod(f"h{i}", queue="q", milli=400) for i in range(3)])
    assert len(placed(run(state))) == 2


def test_limits_on_an_ancestor_hold_for_its_children():
    queues = [queue("parent", limit=1), queue("child", parent="parent")]
    state = cluster([node("n")], queues, [pod("a", queue="child"), pod("b", queue="child")])
    assert len(placed(run(state))) == 1
    invariants.check(state)


def test_a_cycle_is_refused_and_the_old_policy_stays():
    state = cluster([node("n")], [queue("a"), queue("b", parent="a")])
    refusal = state.upsert_queue(queue("a", parent="b"))
    assert refusal.code is ReasonCode.INVALID_SPEC
    assert state.queues.queues["a"].parent is None


def test_percentages_follow_the_nodes():
    half = Queue("q", resources=(QueueResource(GPU, limit_percent=50_000),))
    state = cluster([node("n", gpus=4)], [half], [pod(f"p{i}", queue="q") for i in range(8)])
    assert len(placed(settle(state))) == 2
    state.upsert_node(node("m", gpus=4))
    assert len(placed(settle(state))) == 2


def test_a_removed_queue_keeps_what_runs_and_lets_the_rest_wait():
    state = cluster([node("n", gpus=1)], [queue("q")], [pod("a", queue="q"), pod("b", queue="q")])
    settle(state)
    state.remove_queue("q")
    assert refused(run(state))["b"].code is ReasonCode.UNKNOWN_QUEUE
    state.upsert_queue(queue("q"))
    state.remove_pod("uid-a")
    assert placed(run(state)) == {"b": "n"}
    invariants.check(state)


def test_a_gang_whose_group_names_a_queue_that_is_not_there_leaves_its_line():
    """It stayed in the line of the queue that it was in before, and every pass failed on it."""
    members = [pod(f"m{number}", group="g", queue="a", gpus=4) for number in range(2)]
    state = cluster([node("n", gpus=2)], [queue("a", quota=8)], members, [group("g", 1)])
    assert placed(settle(state)) == {}, "once a member has a place its queue stays"
    state.upsert_group(group("g", 1, queue="nowhere"))
    state.upsert_node(node("m", gpus=4))
    done = run(state)
    assert {each.code for each in refused(done).values()} == {ReasonCode.UNKNOWN_QUEUE}
    assert placed(done) == {}
    assert state.queues.waiting.next() is None
    invariants.check(state)


def test_a_member_that_its_gang_can_do_without_is_told_for_what_it_waits():
    members = [pod(f"m{number}", group="g", gpus=8) for number in range(2)]
    members.append(pod("more", group="g", elastic=True, priority=-1))
    state = cluster([node("n", gpus=8)], [], members, [group("g", 2)])
    told = refused(run(state))
    assert "elastic replica" in told["more"].message
    assert "needs 2 identical pods" in told["m0"].message

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions import free_capacity
from fairlead.core.model.transactions import Place, Preempt
from fairlead.core.preemption.search import preempt
from tests.builders import cluster, group, node, placed, pod, preempted, queue, refused, run, settle, start


def full(nodes, priority=1, reclaim=True, **more):
    """A cluster whose nodes are full of one-GPU pods."""
    pods = [pod(f"low-{n}-{i}", priority=priority, created=float(i), **more) for n in range(nodes) for i in range(2)]
    state = cluster([node(f"n{n}", gpus=2) for n in range(nodes)], pods=pods, reclaim=reclaim)
    settle(state)
    return state


def test_the_fewest_and_latest_are_evicted_and_the_place_is_held():
    state = full(2)
    state.upsert_pod(pod("high", priority=10))
    (plan,) = run(state)
    assert isinstance(plan, Preempt)
    assert [victim.pod.name for victim in plan.victims] == ["low-0-1"] or [victim.pod.name for victim in plan.victims] == [
        "low-1-1"
    ]
    invariants.check(state)
    state.upsert_pod(pod("greedy", priority=5, created=99))
    (other,) = run(state)
    assert isinstance(other, Preempt), "the held place is not up for grabs"
    state.remove_pod(plan.victims[0].pod.uid)
    assert placed(run(state)) == {"high": plan.beneficiaries[0].node}


def test_who_brings_its_queue_exactly_to_its_limit_gets_the_place_that_was_cleared_for_it():
    state = cluster([node("n", gpus=4)], [queue("q", limit=4)], [pod("low", queue="q", gpus=4, priority=1)])
    settle(state)
    state.upsert_pod(pod("high", queue="q", gpus=4, priority=10))
    assert preempted(run(state)) == [["low"]]
    state.remove_pod("uid-low")
    assert placed(run(state)) == {"high": "n"}


def test_no_pod_is_evicted_in_vain():
    state = full(2)
    state.upsert_pod(pod("too-big", priority=10, gpus=3))
    done = run(state)
    assert not preempted(done)
    assert "too-big" in refused(done)
    invariants.check(state)


@pytest.mark.parametrize("more", [{"priority": 1}, {"priority": 10, "never_preempts": True}, {"priority": 10, "queue": "other"}])
def test_only_higher_priority_of_the_same_queue_that_wants_to(more):
    state = full(1, reclaim=False)
    state.upsert_queue(queue("other"))
    state.upsert_pod(pod("p", **more))
    assert not preempted(run(state))


def test_the_lowest_priority_is_preempted_first():
    pods = [pod("mid", priority=5, at="a"), pod("low", priority=1, at="b")]
    state = cluster([node("a", gpus=1), node("b", gpus=1)], pods=[*pods, pod("high", priority=9)])
    assert preempted(run(state)) == [["low"]]


def test_a_gang_is_preempted_whole_and_its_optional_members_first():
    members = [pod(f"g-{i}", group="g", priority=1, created=float(i)) for i in range(4)]
    state = cluster([node("n", gpus=4)], pods=members, groups=[group("g", 2)])
    settle(state)
    state.upsert_pod(pod("one", priority=5))
    assert preempted(run(state)) == [["g-3"]]
    state.upsert_pod(pod("three", priority=5, gpus=3))
    (second,) = preempted(run(state))
    assert set(second) == {"g-0", "g-1", "g-2"}
    invariants.check(state)


def test_a_gang_frees_capacity_for_itself():
    state = full(3)
    for index in range(4):
        state.upsert_pod(pod(f"g-{index}", group="g", priority=9))
    state.upsert_group(group("g", 4))
    (plan,) = run(state)
    assert isinstance(plan, Preempt)
    assert len(plan.victims) == 4
    assert len(plan.beneficiaries) == 4
    invariants.check(state)
    for victim in plan.victims[:-1]:
        state.remove_pod(victim.pod.uid)
    assert len(placed(run(state))) <= 4
    state.remove_pod(plan.victims[-1].pod.uid)
    run(state)
    assert all(state.tasks[f"uid-g-{index}"].row >= 0 for index in range(4))


def test_a_refused_eviction_gives_the_plan_up():
    state = full(1)
    state.upsert_pod(pod("high", priority=10))
    (plan,) = run(state, now=0.0)
    state.evictions.failed(plan.victims[0].pod.uid, 0.0)
    invariants.check(state)
    assert state.tasks["uid-high"].row < 0
    assert not preempted(run(state, now=0.5))
    assert preempted(run(state, now=1.0))


def test_it_settles():
    state = full(3)
    for index in range(3):
        state.upsert_pod(pod(f"high-{index}", priority=10))
    for _ in range(3):
        for each in run(state):
            if isinstance(each, Preempt):
                for victim in each.victims:
                    state.remove_pod(victim.pod.uid)
                    state.upsert_pod(pod(f"{victim.pod.name}-again", priority=1))
            elif isinstance(each, Place):
                for binding in each.bindings:
                    state.pods.bound(binding.pod.uid)
    for _ in range(5):
        assert not [each for each in run(state) if isinstance(each, (Place, Preempt))]


def test_limits_hold_while_preempting():
    state = cluster([node("n", gpus=4)], [queue("q", limit=1)], [pod("low", queue="q", priority=1)])
    settle(state)
    state.upsert_pod(pod("high", queue="q", priority=5))
    assert preempted(run(state)) == [["low"]]
    assert state.queues.queues["q"].used["nvidia.com/gpu"] == 1000


def test_what_a_victim_still_occupies_is_not_given_away():
    state = cluster([node("n", gpus=8, cpu=64_000)], pods=[pod("low", gpus=8, cpu=60_000, priority=1)])
    settle(state)
    state.upsert_pod(pod("high", gpus=1, cpu=1000, priority=9))
    assert preempted(run(state)) == [["low"]]
    invariants.check(state)
    state.upsert_pod(pod("next", gpus=1, cpu=1000, priority=0, created=5))
    assert not placed(run(state)), "the victim is still there"
    state.remove_pod("uid-low")
    assert placed(run(state)) == {"high": "n", "next": "n"}
    invariants.check(state)


def test_several_preemptors_of_one_node_do_not_wait_for_each_other():
    pods = [pod(f"low-{i}", priority=1, created=float(i)) for i in range(4)]
    state = cluster([node("n", gpus=4)], pods=pods)
    settle(state)
    for index in range(4):
        state.upsert_pod(pod(f"high-{index}", priority=9, created=float(index)))
    assert sorted(name for names in preempted(run(state)) for name in names) == ["low-0", "low-1", "low-2", "low-3"]
    invariants.check(state)


def test_a_node_lost_with_victims_on_it():
    state = cluster([node("n", gpus=8)], pods=[pod("low", gpus=8, priority=1)])
    settle(state)
    state.upsert_pod(pod("high", gpus=1, priority=9))
    run(state)
    state.remove_node("n")
    state.remove_pod("uid-low")
    state.upsert_node(node("m"))
    assert placed(run(state)) == {"high": "m"}
    invariants.check(state)


def test_searches_in_vain_become_rarer_and_a_free_place_is_never_waited_for(monkeypatch):
    searches = []

    def search(state, unit, **how):
        searches.append(unit.tasks[0].pod.name)
        return preempt(state, unit, **how)

    monkeypatch.setattr(free_capacity, "preempt", search)
    others = [pod(f"other-{n}", queue="other", gpus=1, at="n", ours=False) for n in range(7)]
    state = cluster([node("n", gpus=8)], [queue("default", limit=4)], [*others, pod("hog", gpus=4, priority=5)])
    state.upsert_node(node("m", gpus=4))
    state.upsert_pod(pod("low", gpus=0, at="n"))
    settle(state)
    state.upsert_pod(pod("high", gpus=4, priority=5, created=9.0))
    run(state, 0.0)
    for number, each in enumerate(others):  # capacity is free, victims exist, and still the limit is in the way
        state.remove_pod(each.uid)
        run(state, 0.01 * number)
    assert len(searches) == 3
    due = state.next_due
    assert due == pytest.approx(0.12, abs=0.011)
    run(state, due)
    assert len(searches) == 4, "what was put off is done when the rest is over"
    assert state.next_due is None, "and then nothing is due until something happens"
    state.remove_pod("uid-hog")
    assert placed(run(state, due))["high"], "a rest is from searching, not from starting"


def test_a_place_that_is_cleared_for_one_unit_costs_no_other_its_place():
    """It fits as things stand, but the place is another's: there is nothing that eviction could bring."""
    state = cluster([node("n", gpus=4)], [queue("a", quota=4), queue("b")], [pod("low", queue="b", gpus=2, at="n")])
    ahead = msgspec.structs.replace(pod("ahead", queue="a", priority=9, gpus=2, group="g"), nominated="n")
    state.upsert_pod(ahead)  # its gang does not exist, so that it waits
    state.upsert_pod(pod("next", queue="a", priority=1, gpus=2))
    done = run(state)
    assert preempted(done) == []
    assert refused(done)["next"].is_capacity
    invariants.check(state)
    state.remove_pod("uid-ahead")
    assert placed(run(state)) == {"next": "n"}


@pytest.mark.parametrize("priorities", [(0,), (0, 0), (0, 1)])
def test_a_gang_never_preempts_its_own_members(priorities):
    """Members that come later may have a higher priority than those that run."""
    members = len(priorities)
    state = cluster([node("n", gpus=2)], groups=[group("g", members)])
    for i, priority in enumerate(priorities):
        state.upsert_pod(pod(f"first-{i}", group="g", gpus=2 // members, priority=priority))
    assert len(start(state)) == members
    state.upsert_pod(pod("later", group="g", priority=9))
    assert not preempted(run(state, 2.0))
    state.remove_pod("uid-later")
    state.upsert_pod(pod("other", priority=9))
    assert preempted(run(state, 3.0)) == [[f"first-{i}" for i in range(members)]]

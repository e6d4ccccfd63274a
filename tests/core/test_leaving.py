"""Terminating pods free capacity: no pod is evicted for a unit that fits once they are gone."""

import random

import msgspec
import pytest

from fairlead.core import invariants
from fairlead.core.actions.leaving import enough_leaves
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Refuse, Warn
from fairlead.core.queues.reservations import Hold
from tests.builders import GPU, cluster, confirm, group, node, placed, pod, preempted, queue, run, settle


def world(gpus=2, nodes=1, **more):
    state = cluster([node(f"n{number}", gpus=gpus) for number in range(nodes)], [queue("q0", quota=1), queue("q1", quota=1)])
    for name in "ab":
        state.upsert_pod(pod(name, queue="q0", **more))
    settle(state)
    return state


def leave(state, name, at=0.0):
    old = state.tasks[f"uid-{name}"].pod
    state.upsert_pod(msgspec.structs.replace(old, terminating=True, leaves=at))


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("leaves", [0.0, 30.0])
def test_who_waits_is_given_what_is_leaving(name, leaves):
    state = world()
    leave(state, name, leaves)
    state.upsert_pod(pod("c", queue="q1", created=1.0))
    assert not preempted(run(state, 1.0))
    state.remove_pod(f"uid-{name}")
    assert placed(run(state, 20.0)) == {"c": "n0"}
    invariants.check(state)


def test_a_pod_that_does_not_leave_in_time_is_counted_on_no_longer():
    state = world()
    leave(state, "b", 30.0)
    state.upsert_pod(pod("c", queue="q1", created=1.0))
    assert not preempted(run(state, 1.0))
    assert state.next_due == 150.0
    assert not preempted(run(state, 149.0))
    assert preempted(run(state, 150.0)) == [["a"]]


def test_the_same_for_priorities_in_a_queue():
    state = cluster([node("n", gpus=2)])
    for name in "ab":
        state.upsert_pod(pod(name))
    settle(state)
    leave(state, "b", 30.0)
    state.upsert_pod(pod("high", priority=5, created=1.0))
    assert not preempted(run(state, 1.0))
    state.upsert_pod(pod("higher", gpus=2, priority=6, created=1.0))
    assert not any("b" in names for names in preempted(run(state, 2.0)))


def test_the_same_for_gangs_and_pods_of_other_schedulers():
    state = cluster([node("n", gpus=4)], [queue("q0", quota=1), queue("q1", quota=2)], groups=[group("g", 2, "q1")])
    state.upsert_pod(pod("other", ours=False, gpus=1, at="n"))
    for name in "abc":
        state.upsert_pod(pod(name, queue="q0"))
    confirm(state, run(state))
    leave(state, "other", 30.0)
    leave(state, "b", 30.0)
    for number in range(2):
        state.upsert_pod(pod(f"g-{number}", queue="q1", group="g", created=1.0))
    assert not preempted(run(state, 1.0))
    state.remove_pod("uid-other")
    state.remove_pod("uid-b")
    assert set(placed(run(state, 31.0))) == {"g-0", "g-1"}


# -- what is missing beyond it -----------------------------------------------------------------


def four(*, owner=2, limit=None):
    """Four GPUs with a pod on each, all of them lent; the owner has two, or so many."""
    resources = (QueueResource(GPU, owner * 1000, limit),)
    state = cluster([node("n", gpus=4)], [queue("lender", quota=4 - owner), Queue("owner", resources=resources)])
    for name in "abcd":
        state.upsert_pod(pod(name, queue="lender"))
    settle(state)
    return state


def test_only_what_is_missing_beyond_what_leaves_is_evicted():
    state = four()
    leave(state, "b", 30.0)
    state.upsert_pod(pod("big", queue="owner", gpus=2, created=1.0))
    ((victim,),) = preempted(run(state, 1.0))
    assert victim != "b"
    state.remove_pod(f"uid-{victim}")
    assert not placed(run(state, 10.0)), "its other GPU is not free yet"
    state.remove_pod("uid-b")
    assert placed(run(state, 30.0)) == {"big": "n"}
    invariants.check(state)


def test_of_what_leaves_a_plan_waits_only_for_what_fills_its_place():
    state = cluster([node("n", gpus=4), node("m", gpus=0)], [queue("q0", quota=2), queue("q1", quota=2)])
    for name in "abcd":
        state.upsert_pod(pod(name, queue="q0", at="n"))
    state.upsert_pod(pod("far", ours=False, at="m", gpus=0))
    leave(state, "far", 40.0)
    leave(state, "b", 20.0)
    state.upsert_pod(pod("big", queue="q1", gpus=2, created=1.0))
    ((victim,),) = preempted(run(state, 1.0))
    held = state.tasks["uid-big"]
    assert held.waits_for == {f"uid-{victim}", "uid-b"}
    state.remove_pod("uid-b")
    state.remove_pod(f"uid-{victim}")
    assert placed(run(state, 31.0)) == {"big": "n"}


def test_a_plan_is_made_anew_when_what_was_to_leave_does_not():
    state = four()
    leave(state, "b", 30.0)
    state.upsert_pod(pod("big", queue="owner", gpus=2, created=1.0))
    ((first,),) = preempted(run(state, 1.0))
    state.remove_pod(f"uid-{first}")
    told = [each for each in run(state, 149.0) if isinstance(each, Refuse)]
    assert [each.reason.message.partition(":")[0] for each in told] == ["1 pod(s) are being evicted for it or terminating"]
    decided = run(state, 151.0)
    assert [each.message.partition(" and ")[0] for each in decided if isinstance(each, Warn)] == ["it was terminating already"]
    ((second,),) = preempted(decided)
    assert second not in {"b", first}
    state.remove_pod(f"uid-{second}")
    assert placed(run(state, 160.0)) == {"big": "n"}, "beside the pod that stays"
    invariants.check(state)


def test_no_unit_plans_with_what_a_unit_ahead_of_it_waits_for():
    state = cluster([node("n", gpus=3)], [queue("q0", quota=0), queue("q1", quota=3)])
    for name in "abc":
        state.upsert_pod(pod(name, queue="q0"))
    settle(state)
    leave(state, "b", 30.0)
    state.upsert_pod(pod("first", queue="q1", priority=9, created=1.0))
    state.upsert_pod(pod("second", queue="q1", gpus=2, created=2.0))
    assert preempted(run(state, 2.0)) == [["a", "c"]] or preempted(run(state, 2.0)) == [["c", "a"]]
    state.remove_pod("uid-b")
    assert placed(run(state, 30.0)) == {"first": "n"}


def test_a_limit_that_what_leaves_still_fills_is_waited_for():
    state = cluster([node("n", gpus=4)], [queue("q", limit=2)])
    for name in "ab":
        state.upsert_pod(pod(name, queue="q"))
    settle(state)
    leave(state, "a", 30.0)
    state.upsert_pod(pod("big", queue="q", gpus=2, priority=5, created=1.0))
    assert preempted(run(state, 1.0)) == [["b"]]
    state.remove_pod("uid-b")
    assert not placed(run(state, 5.0))
    state.remove_pod("uid-a")
    assert placed(run(state, 30.0)) == {"big": "n"}


@pytest.mark.parametrize("first", range(0, 1200, 200))
def test_one_job_evicts_the_same_as_if_what_leaves_were_gone(first):
    """Random worlds, each with and without the pods that are leaving; the judge is the world without them."""
    beyond = 0
    for seed in range(first, first + 200):
        source = random.Random(seed)
        sizes = [source.choice([2, 4, 8]) for _ in range(source.randint(1, 3))]
        pods = []
        for number, size in enumerate(sizes):
            left = size
            while left > 0 and source.random() < 0.95:
                gpus = min(left, source.choice([1, 1, 2, 4]))
                left -= gpus
                ours = source.random() < 0.85
                name, queue_ = f"p{len(pods)}", source.choice(["q0", "q0", "q1"])
                pods.append(pod(name, queue=queue_, gpus=gpus, at=f"n{number}", ours=ours, priority=source.randint(0, 2)))
        leaving = {each.name for each in pods if source.random() < 0.3}
        asked = source.choice([1, 2, 2, 4])
        count = source.choice([1, 1, 2])
        total = sum(sizes)
        quota = source.randint(0, total)
        wanted = [
            pod(f"w{index}", queue="q1", gpus=asked, priority=1, created=9.0, group="g" if count > 1 else "")
            for index in range(count)
        ]
        evicted = []
        for gone in (False, True):
            nodes = [node(f"n{number}", gpus=size) for number, size in enumerate(sizes)]
            state = cluster(nodes, [queue("q0", quota=total - quota), queue("q1", quota=quota)], groups=[group("g", count, "q1")])
            for each in pods:
                if not (gone and each.name in leaving):
                    state.upsert_pod(each)
            run(state, 0.0)
            for name in sorted(leaving) if not gone else ():
                leave(state, name, 40.0)
            for each in wanted:
                state.upsert_pod(each)
            decided = run(state, 10.0)
            invariants.check(state)
            evicted.append(sorted(name for names in preempted(decided) for name in names))
            if gone:
                continue
            beyond += bool(evicted[0]) and bool(state.tasks["uid-w0"].waits_for & {f"uid-{name}" for name in leaving})
            # All leave in some order: the job has its place, and nothing more is evicted.
            for name in source.sample(sorted({*leaving, *evicted[0]}), len({*leaving, *evicted[0]})):
                state.remove_pod(f"uid-{name}")
                after = run(state, 20.0)
                assert not evicted[0] or not preempted(after), seed
                confirm(state, after)
                invariants.check(state)
            if evicted[0]:
                assert all(state.tasks[each.uid].row >= 0 for each in wanted), seed
        assert evicted[0] == evicted[1], seed
    assert beyond >= 10


def test_nodes_reserved_for_a_unit_are_not_closed_to_it_in_the_trial():
    state = world()
    state.upsert_pod(pod("c", queue="q0", created=1.0))
    run(state, 1.0)
    task, unit = state.tasks["uid-c"], state.tasks["uid-c"].unit
    state.reserved.keep(Hold("ns/c", [0], 1000.0, unit=unit))
    assert enough_leaves(state, unit, [(state.tasks["uid-a"], 90.0)]) == 90.0
    assert task.unit is unit
    assert task.row == -1
    invariants.check(state)

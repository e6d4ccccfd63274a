"""Victims that do not end block no unit for ever, and no pod is preempted again and again for it."""

import random

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.actions.ahead import Ahead
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt, Refuse, Warn
from fairlead.core.pods.tasks import Unit
from fairlead.core.schedule import schedule
from tests.builders import cluster, confirm, first, group, node, placed, pod, preempted, queue, refused, run
from tests.core.test_backoff import Twins


def warned(transactions, event="EvictionTimedOut"):
    return sorted(each.name for one in transactions if isinstance(one, Warn) and one.event == event for each in one.pods)


def full(nodes=4, **policy):
    """Every node is filled with one pod of a queue that borrows."""
    state = cluster(
        [node(f"n{number}") for number in range(nodes)],
        [queue("vision", quota=16), queue("borrow", quota=0)],
        [pod(f"b{number}", "borrow", at=f"n{number}", gpus=8, created=number) for number in range(nodes)],
        **policy,
    )
    run(state, 0.0)
    return state


def leaving(state, uid, **more):
    """The cluster reports that a pod is terminating."""
    state.upsert_pod(msgspec.structs.replace(state.tasks[uid].pod, terminating=True, **more))


def evict(state, now=10.0, name="v"):
    state.upsert_pod(pod(name, "vision", gpus=8, created=now))
    decided = run(state, now)
    (names,) = preempted(decided)
    (victim,) = names
    leaving(state, f"uid-{victim}")
    return victim


def test_a_victim_that_does_not_go_is_waited_for_so_long_and_its_beneficiary_takes_another():
    state = full()
    first = evict(state)
    assert not [each for each in run(state, 159.0) if isinstance(each, Preempt | Place)]
    # 30 s of grace and 120 s more are over at 160.
    assert state.next_due is not None
    assert state.next_due <= 160.0
    decided = run(state, 160.0)
    assert warned(decided) == [first]
    ((second,),) = preempted(decided)
    assert second != first
    assert state.queues.queues["borrow"].used["nvidia.com/gpu"] == 32_000  # both still run
    state.remove_pod(f"uid-{second}")
    assert placed(confirm(state, run(state, 161.0))).keys() == {"v"}
    assert not preempted(run(state, 10_000.0))


def test_a_member_that_goes_while_others_start_in_free_places_is_not_started():
    """Events are applied between two transactions; `g-2` is beyond what the gang needs, so the others start without it."""
    pods = [pod(f"b{number}", "borrow", at=f"n{number}", gpus=8, created=number) for number in range(8)]
    queues = [queue("vision", quota=64), queue("borrow", quota=0)]
    state = cluster([node(f"n{number}") for number in range(8)], queues, pods, groups=[group("g", 2, "vision")])
    run(state, 0.0)
    state.upsert_pod(pod("v", "vision", gpus=8, created=10.0))
    for member in range(3):
        state.upsert_pod(pod(f"g-{member}", "vision", gpus=8, group="g", created=11.0))
    victims = {name for names in preempted(run(state, 12.0)) for name in names}
    for name in victims:
        leaving(state, f"uid-{name}")
    run(state, 12.5)
    for each in pods:
        if each.name not in victims:
            state.remove_pod(each.uid)
    decided = []
    for each in schedule(state, 13.0):
        decided.append(each)
        if "v" in placed([each]):
            state.remove_pod("uid-g-2")
    assert placed(decided).keys() == {"v", "g-0", "g-1"}
    invariants.check(state)


def test_a_place_that_is_free_is_taken_before_the_victims_time_is_over():
    state = full()
    first = evict(state)
    other = next(f"b{number}" for number in range(4) if f"b{number}" != first)
    where = state.tasks[f"uid-{other}"].pod.node
    state.remove_pod(f"uid-{other}")
    decided = confirm(state, run(state, 11.0))
    assert placed(decided) == {"v": where}
    assert state.queues.queues["vision"].used["nvidia.com/gpu"] == 8_000
    assert state.queues.queues["borrow"].used["nvidia.com/gpu"] == 24_000
    state.remove_pod(f"uid-{first}")
    run(state, 12.0)
    assert state.queues.queues["borrow"].used["nvidia.com/gpu"] == 16_000


def test_a_node_that_joins_is_a_free_place_too():
    state = full()
    evict(state)
    state.upsert_node(node("new"))
    assert placed(run(state, 11.0)) == {"v": "new"}


def test_a_gang_moves_only_what_runs_in_its_victims_places():
    state = full()
    state.upsert_group(group("g", 2, "vision"))
    for number in range(2):
        state.upsert_pod(pod(f"g{number}", "vision", group="g", gpus=8, created=10.0))
    (names,) = preempted(run(state, 10.0))
    assert len(names) == 2
    for name in names:
        leaving(state, f"uid-{name}")
    gone, stays = names
    free = state.tasks[f"uid-{gone}"].pod.node
    state.remove_pod(f"uid-{gone}")
    assert not placed(run(state, 11.0))
    state.upsert_node(node("new"))
    assert sorted(placed(confirm(state, run(state, 12.0))).values()) == sorted([free, "new"])
    state.remove_pod(f"uid-{stays}")
    assert state.queues.queues["vision"].used["nvidia.com/gpu"] == 16_000


def test_no_unit_is_passed_for_a_free_place():
    state = full()
    state.upsert_queue(queue("first", quota=8, priority=5))
    evict(state)
    state.upsert_pod(pod("f", "first", gpus=8, created=11.0))
    state.upsert_node(node("new"))
    assert placed(run(state, 11.0)) == {"f": "new"}


def test_the_reason_names_the_victims_that_are_waited_for():
    state = full()
    victim = evict(state)
    assert not refused(run(state, 11.0))
    told = refused(run(state, 16.0))
    assert told["v"].code is ReasonCode.WAITING_FOR_VICTIMS
    assert f"ns/{victim}" in told["v"].message
    assert "since 1970-01-01T00:00:10Z" in told["v"].message
    assert not [each for each in run(state, 17.0) if isinstance(each, Refuse)]


def test_a_gang_has_one_reason():
    state = full()
    state.upsert_group(group("g", 2, "vision"))
    for number in range(2):
        state.upsert_pod(pod(f"g{number}", "vision", group="g", gpus=8, created=10.0))
    run(state, 10.0)
    (told,) = [each for each in run(state, 20.0) if isinstance(each, Refuse)]
    assert (sorted(each.name for each in told.pods), told.group) == (["g0", "g1"], "ns/g")
    assert told.reason.numbers == {"victims": 2}


@pytest.mark.parametrize(("grace", "given"), [(30, None), (0, None), (10**9, 3600)])
def test_the_grace_of_evictions_is_bounded(grace, given):
    state = cluster(
        [node("n")],
        [queue("vision", quota=8), queue("borrow", quota=0)],
        [msgspec.structs.replace(pod("b", "borrow", at="n", gpus=8), grace=grace)],
    )
    run(state)
    state.upsert_pod(pod("v", "vision", gpus=8, created=1.0))
    (plan,) = [each for each in run(state, 1.0) if isinstance(each, Preempt)]
    assert dict(plan.graces).get("uid-b") == given
    assert state.timers.of("departures") is not None
    state.departures.unreported(100.0)
    assert state.timers.of("departures") == 1.0 + min(grace, 3600) + 120


def test_a_victim_that_does_not_answer_has_a_longer_pause_each_time():
    """Its eviction was written, but it neither ends nor goes: one victim is evicted at most a few times in an hour."""
    state = full(nodes=1)
    state.upsert_pod(pod("v", "vision", gpus=8, created=0.0))
    plans = 0
    now = 0.0
    while now < 3600.0:
        plans += len(preempted(run(state, now)))
        due = state.next_due
        now = max(now + 1.0, due if due is not None else now + 60.0)
    assert 1 <= plans <= 5


def as_one(tasks):
    return Unit(tuple(tasks), len(tasks), tasks[0].gang)


def _asked(seed):
    """For all that waits at some times in a random world: whether something goes before it, were it held; checked each."""
    rnd, twins = random.Random(seed), Twins(seed)
    if seed % 3 == 0:
        twins.both("upsert_class", ServiceClass("prompt", levels=(100.0,), express=1))
    asks = Ahead(twins.states[0])
    for _ in range(20):
        for _ in range(5):
            twins.comes()
        if rnd.random() < 0.5:
            twins.step()
        (state,) = twins.states
        state.settle(twins.now)
        waiting = state.queues.waiting
        asks.forget()
        classes = [each for node in state.queues.queues.values() for each in node.pending_classes.values() if each.first()]
        for held in [each.first() for each in classes]:
            rows = sorted(rnd.sample(range(state.nodes.count), rnd.randint(1, state.nodes.count)))
            mine = waiting.order_key(held, held=True)[0]
            fitting = [each.first() for each in classes if any(one.fits_row(row) for one in each.rankings for row in rows)]
            ahead = any(waiting.order_key(first)[0] < mine for first in fitting)
            assert asks.goes_before(as_one(list(held.tasks)), rows) == ahead, f"seed {seed} at {twins.now}"
            yield ahead


def test_whether_what_waits_goes_before_held_tasks_is_as_by_the_order_of_all_that_waits():
    found = [ahead for seed in range(0, 24, 2) for ahead in _asked(seed)]
    assert 0 < sum(found) < len(found)


def test_what_goes_first_follows_a_policy_that_is_edited_between_two_held_jobs():
    """Nothing is charged and no share is another, yet what waits in `low` goes before the held job since then."""
    state = cluster([node("n"), node("m")], [queue("mine", quota=2, priority=5), queue("low", quota=2)], reservations=0)
    state.upsert_pod(pod("held", "mine", at="n", gpus=2))
    state.upsert_pod(pod("waits", "low", created=1.0))
    first(state, 1.0)
    asks, held, rows = Ahead(state), as_one([state.tasks["uid-held"]]), [state.nodes.rows["m"]]
    assert not asks.goes_before(held, rows)
    state.upsert_queue(queue("low", quota=2, priority=9))
    asks.forget()
    assert asks.goes_before(held, rows)


def test_what_goes_first_follows_what_is_released_once_all_was_forgotten():
    """A held job is about to move, so all is forgotten; its new place comes to nothing then, and others hold less since."""
    state = cluster([node("n"), node("m")], [queue("mine", quota=4), queue("low", quota=4)], reservations=0)
    state.upsert_pod(pod("held", "mine", at="n", gpus=2))
    state.upsert_pod(pod("runs", "low", at="n", gpus=4))
    state.upsert_pod(pod("waits", "low", created=1.0))
    first(state, 1.0)
    asks, held, rows = Ahead(state), as_one([state.tasks["uid-held"]]), [state.nodes.rows["m"]]
    assert not asks.goes_before(held, rows)
    asks.forget()
    state.remove_pod("uid-runs")
    assert asks.goes_before(held, rows)


@pytest.mark.parametrize("member_first", [False, True])
def test_a_gang_of_which_a_member_was_deleted_takes_free_places_once_it_is_complete_again(member_first):
    """Its victim has an hour to end; the place that becomes free is for the member that is left."""
    nodes = [node("n0"), node("n1"), node("n2", gpus=1, labels={"h": "n2"})]
    runs = [pod("victim", "borrow", gpus=8, at="n0", grace=3600), pod("other", "red", gpus=8, at="n1")]
    state = cluster(nodes, [queue("red", quota=20), queue("borrow", quota=0)], runs, [group("g", 2, "red")], max_grace=3600)
    run(state, 0.5)
    state.upsert_pod(pod("wide", "red", gpus=8, group="g", created=1.0))
    state.upsert_pod(pod("thin", "red", group="g", created=1.0, selector={"h": "n2"}))
    assert preempted(run(state, 1.0)) == [["victim"]]
    leaving(state, "uid-victim", leaves=3601.0)
    state.remove_pod("uid-thin")
    assert not placed(run(state, 2.0))
    again = pod("thin-again", "red", group="g", created=3.0, selector={"h": "n2"})
    if member_first:
        state.upsert_pod(again)
        assert not placed(run(state, 3.0))
    state.remove_pod("uid-other")
    found = placed(confirm(state, run(state, 4.0)))
    if not member_first:
        assert not found, "the gang is incomplete"
        state.upsert_pod(again)
        found = placed(confirm(state, run(state, 5.0)))
    assert found == {"wide": "n1", "thin-again": "n2"}

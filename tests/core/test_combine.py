"""One plan that both reclaims and moves: no more is evicted than is lacking where the rest can be consolidated."""

import random
from itertools import combinations

import pytest

from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Preempt
from tests.builders import cluster, group, held, node, placed, pod, preempted, queue, run
from tests.core.moving import LATE, move, packs


def two_nodes(quotas=(4, 4), **policy):
    """j0 (2) on one node, j1 (2) and j2 (1) on the other, all of q0; q1 wants a whole node."""
    state = cluster([node(f"n{i}", gpus=4) for i in range(2)], [queue("q0", quotas[0]), queue("q1", quotas[1])], **policy)
    for number, (gpus, on) in enumerate([(2, "n0"), (2, "n1"), (1, "n1")]):
        state.upsert_pod(pod(f"j{number}", "q0", gpus=gpus, at=on, started=0.0, created=float(number)))
    return state


def moving():
    """The same once j0, which is of a job now, is asked to move for a pod that takes all of its node."""
    state = two_nodes()
    state.remove_pod("uid-j0")
    state.upsert_pod(pod("j0", "q0", gpus=2, at="n0", started=0.0, owner="uid-job"))
    state.upsert_pod(pod("wide", "q1", gpus=4, created=LATE))
    (plan,) = run(state, LATE)
    assert plan.moved == ("uid-j0",)
    return state


@pytest.mark.parametrize("policy", [{}, {"reservations": 0, "patience": 0.0, "move_patience": 0.0}])
def test_the_smallest_is_evicted_and_another_moves_so_that_all_devices_are_busy(policy):
    state = two_nodes(**policy)
    state.upsert_pod(pod("wide", "q1", gpus=4, created=LATE))
    decided = run(state, LATE)
    (plan,) = decided
    assert isinstance(plan, Preempt)
    assert {each.pod.name for each in plan.victims} == {"j0", "j2"}
    assert plan.moved == ("uid-j0",)
    invariants.check(state)
    assert held(state, "q0") == 4 + 1, "what leaves is charged until it is gone"
    again = move(state, decided, LATE)
    decided = run(state, LATE + 1)
    assert set(placed(decided)) == {"wide", *again}
    assert (held(state, "q0"), held(state, "q1")) == (4, 4)
    invariants.check(state)
    assert not preempted(run(state, LATE + 2))


def test_a_place_that_is_given_up_stays_closed_while_a_victim_still_fills_it():
    """The job of a pod that moves is suspended before the victim in whose stead it would run is gone."""
    state = moving()
    (kept,) = state.in_flight.kept.values()
    assert kept.after == ("uid-j2",)
    state.moves.give_up({"uid-job"})
    assert state.in_flight.kept == {}
    for number in range(3):
        state.upsert_pod(pod(f"small{number}", "q0", gpus=1, created=LATE + 1))
    before = placed(run(state, LATE + 1))
    assert len(before) <= 1, "one device is free beside j1 and j2"
    invariants.check(state)
    state.remove_pod("uid-j2")
    assert len(before) + len(placed(run(state, LATE + 2))) == 2
    invariants.check(state)


def test_no_device_is_free_that_a_victim_has_which_stays():
    """The replacement of a pod that moves had come; its place was to be left by that victim."""
    state = moving()
    state.upsert_pod(pod("again", "q0", gpus=2, created=LATE, owner="uid-job", never_preempts=True))
    state.evictions.failed("uid-j2", LATE)
    for number in range(8):
        state.upsert_pod(pod(f"half{number}", "q1", milli=500, created=1.0, never_preempts=True))
    on = list(placed(run(state, LATE + 1)).values())
    assert sorted(on) == ["n0"] * 4 + ["n1"] * 2, "two devices are free beside j0, one beside j1 and j2"
    assert not invariants.over_allocated(state)
    invariants.check(state)


def test_no_pod_is_evicted_where_moves_suffice():
    state = cluster([node(f"n{i}", gpus=4) for i in range(2)], [queue("q0", 4), queue("q1", 4)])
    state.upsert_pod(pod("fixed", "q0", gpus=1, at="n0", started=0.0, stays=True))
    state.upsert_pod(pod("two", "q0", gpus=2, at="n1", started=0.0, stays=True))
    state.upsert_pod(pod("low", "q0", gpus=1, priority=-1, at="n0", started=0.0))
    state.upsert_pod(pod("wide", "q0", gpus=3, created=LATE))
    decided = run(state, LATE)
    (plan,) = decided
    assert set(plan.moved) == {each.pod.uid for each in plan.victims}, "a pod of lower priority runs on elsewhere"
    invariants.check(state)


@pytest.mark.parametrize("how", ["class", "stays", "budget", "none"])
def test_without_moves_it_is_as_it_was(how):
    state = two_nodes(moves_per_minute=0 if how == "none" else 20)
    state.upsert_class(ServiceClass("fixed", movable=False))
    if how == "budget":
        state.upsert_budget(DisruptionBudget("ns", "b", (Requirement("app", "In", ("a",)),), 1))
    more = {"class": {"service_class": "fixed"}, "stays": {"stays": True}, "budget": {"labels": (("app", "a"),)}, "none": {}}[how]
    for number, (gpus, on) in enumerate([(2, "n0"), (2, "n1"), (1, "n1")]):
        state.remove_pod(f"uid-j{number}")
        state.upsert_pod(pod(f"j{number}", "q0", gpus=gpus, at=on, started=0.0, created=float(number), **more))
    state.upsert_pod(pod("wide", "q1", gpus=4, created=LATE))
    (plan,) = run(state, LATE)
    assert not plan.moves
    assert [each.pod.name for each in plan.victims] == ["j0"]
    invariants.check(state)


def test_no_more_work_is_lost_with_moves_than_without():
    state = two_nodes()
    state.upsert_class(ServiceClass("saves", checkpoint_interval=7200.0))
    for number, (gpus, on) in enumerate([(2, "n0"), (2, "n1"), (1, "n1")]):
        state.remove_pod(f"uid-j{number}")
        state.upsert_pod(pod(f"j{number}", "q0", gpus=gpus, at=on, started=0.0, created=float(number), service_class="saves"))
    state.upsert_pod(pod("wide", "q1", gpus=4, created=LATE))
    (plan,) = run(state, LATE)
    assert not plan.moves, "two devices' work is lost with one that falls, three devices' with moves"


def test_a_gang_of_another_queue_gets_its_place_by_both():
    state = cluster([node(f"n{i}", gpus=4) for i in range(3)], [queue("q0", 4), queue("q1", 8)], groups=[group("g", 2, "q1")])
    for number, (gpus, on) in enumerate([(2, "n0"), (2, "n1"), (1, "n1"), (2, "n2"), (1, "n2")]):
        state.upsert_pod(pod(f"j{number}", "q0", gpus=gpus, at=on, started=0.0, created=float(number)))
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", "q1", gpus=4, group="g", created=LATE))
    decided = run(state, LATE)
    plans = [each for each in decided if isinstance(each, Preempt)]
    fallen = {each.pod.name for plan in plans for each in plan.victims if each.pod.uid not in plan.moved}
    devices = {"j0": 2, "j1": 2, "j2": 1, "j3": 2, "j4": 1}
    assert sum(devices[name] for name in fallen) == 4, "no more than is lacking"
    invariants.check(state)
    move(state, decided, LATE)
    run(state, LATE + 1)
    assert held(state, "q1") == 8
    assert held(state, "q0") == 4


def least_evicted(devices, pods, size, allowed, most):
    """By trying all: how few devices must be evicted so that the unit fits, if at most so many others move; None: it cannot be.

    pods: (node, devices) each; allowed: how many devices may be evicted.
    """
    best = None
    for fallen in [each for count in range(4) for each in combinations(range(len(pods)), count)]:
        amount = sum(pods[index][1] for index in fallen)
        if amount > allowed or (best is not None and amount >= best):
            continue
        others = [index for index in range(len(pods)) if index not in fallen]
        for moved in [each for count in range(most + 1) for each in combinations(others, count)]:
            free = [devices] * NODES
            for index in others:
                if index not in moved:
                    free[pods[index][0]] -= pods[index][1]
            items = sorted([size, *(pods[index][1] for index in moved)], reverse=True)
            if packs([[1000] * each for each in free], [(each, 1000) for each in items]):
                best = amount
                break
    return best


NODES = 3


def test_as_little_is_evicted_as_trying_all_finds():
    better = worse = compared = 0
    for seed in range(200):
        rnd = random.Random(seed)
        quota = rnd.choice([3, 4])
        state = cluster([node(f"n{i}", gpus=4) for i in range(NODES)], [queue("q0", 4 * NODES - quota), queue("q1", quota)])
        pods, free = [], [4] * NODES
        for number in range(12):
            gpus, on = rnd.choice([1, 1, 2, 3]), rnd.randrange(NODES)
            if free[on] >= gpus:
                free[on] -= gpus
                pods.append((on, gpus))
                state.upsert_pod(pod(f"p{number}", "q0", gpus=gpus, at=f"n{on}", started=0.0, created=float(number)))
        size = rnd.choice([quota, quota, 2])
        state.upsert_pod(pod("unit", "q1", gpus=size, created=LATE))
        beyond = sum(gpus for _, gpus in pods) - (4 * NODES - quota)
        least = least_evicted(4, pods, size, max(0, beyond), 3)
        decided = run(state, LATE)
        invariants.check(state)
        plans = [each for each in decided if isinstance(each, Preempt)]
        if not plans:
            continue
        (plan,) = plans
        fallen = sum(state.tasks[each.pod.uid].shape.gpus for each in plan.victims if each.pod.uid not in plan.moved)
        compared += 1
        better += bool(plan.moved)
        if least is not None:
            worse += fallen > least
        move(state, decided, LATE)
        run(state, LATE + 1)
        assert held(state, "q1") == size, f"seed {seed}"
        assert not any(task.row < 0 for task in state.tasks.values()), f"seed {seed}: all that move have places"
        invariants.check(state)
        assert not preempted(run(state, LATE + 2)), f"seed {seed}: it comes to rest"
    assert compared > 50
    assert better > 20
    assert not worse, f"{worse} of {compared}"


def test_no_member_moves_of_a_gang_that_the_plan_ends():
    """Beyond its minimum it may move by itself; with members that it needs evicted it would be of no use where it goes."""
    both = 0
    for seed in range(400):
        rnd = random.Random(seed)
        quota = rnd.choice([3, 4])
        queues = [queue("q0", 4 * NODES - quota), queue("q1", quota)]
        state = cluster([node(f"n{i}", gpus=4) for i in range(NODES)], queues, groups=[group(name, 2, "q0") for name in "gh"])
        free = [4] * NODES
        for number in range(12):
            gpus, on, gang = rnd.choice([1, 1, 2, 3]), rnd.randrange(NODES), rnd.choice(["", "g", "h"])
            if free[on] >= gpus:
                free[on] -= gpus
                state.upsert_pod(pod(f"p{number}", "q0", gpus=gpus, at=f"n{on}", started=0.0, created=float(number), group=gang))
        state.upsert_pod(pod("unit", "q1", gpus=rnd.choice([quota, quota, 2]), created=LATE))
        gangs = {uid: (task.gang.key, len(task.gang.placed())) for uid, task in state.tasks.items() if task.pod.group}
        for plan in [each for each in run(state, LATE) if isinstance(each, Preempt)]:
            lost = [gangs[each.pod.uid] for each in plan.victims if each.pod.uid in gangs and each.pod.uid not in plan.moved]
            ended = {gang for gang, placed in lost if placed - sum(each[0] == gang for each in lost) < 2}
            assert not ended & {gangs[uid][0] for uid in plan.moved if uid in gangs}, seed
            both += bool(ended) and bool(plan.moved)
        invariants.check(state)
    assert both, "some plans end a gang and move others"

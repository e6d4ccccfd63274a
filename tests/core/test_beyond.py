"""Members beyond their gang's minimum: placed after every gang has its minimum, and the first to be evicted, one by one."""

import random

import pytest

from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.selectors import Requirement
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, queue, run, settle


def gang(state, name, size, minimum, **more):
    state.upsert_group(group(name, minimum, more.get("queue", "")))
    for index in range(size):
        state.upsert_pod(pod(f"{name}-{index}", group=name, **more))


def started(state, now=0.0):
    decided = run(state, now)
    confirm(state, decided)
    invariants.check(state)
    return set(placed(decided))


def evicted(state, now=0.0):
    return sorted(name for names in preempted(run(state, now)) for name in names)


def test_each_gang_gets_its_minimum_before_any_gets_more():
    state = cluster([node("n", gpus=8)])
    for name in "abc":
        gang(state, name, 8, 2, created=ord(name))
    assert started(state) == {"a-0", "a-1", "b-0", "b-1", "c-0", "c-1", "a-2", "a-3"}


def ends(state, name, at, **more):
    state.upsert_pod(pod(name, at="n", finished=True, succeeded=at, **more))


def test_members_that_come_in_the_places_of_those_that_succeeded_are_not_beyond_the_minimum():
    """The next step of a workflow, the next pods of a Job with more completions than run at a time: they wait by their age."""
    state = cluster([node("n", gpus=2)])
    gang(state, "flow", 2, 2, created=0.0)
    assert started(state) == {"flow-0", "flow-1"}
    for name in ("flow-2", "flow-3", "flow-4"):
        state.upsert_pod(pod(name, group="flow", created=0.0))
    for number in range(2):
        state.upsert_pod(pod(f"younger-{number}", created=5.0))
    assert not started(state, 6.0)
    ends(state, "flow-0", 10.0, group="flow", created=0.0)
    assert started(state, 10.0) == {"flow-2"}
    ends(state, "flow-1", 20.0, group="flow", created=0.0)
    assert started(state, 20.0) == {"flow-3"}, "two at a time, as its minimum is"
    state.upsert_pod(pod("older", created=-1.0))
    ends(state, "flow-2", 30.0, group="flow", created=0.0)
    assert started(state, 30.0) == {"older"}
    ends(state, "older", 40.0)
    assert started(state, 40.0) == {"flow-4"}
    ends(state, "flow-3", 50.0, group="flow", created=0.0)
    assert started(state, 50.0) == {"younger-0"}


def test_more_than_the_minimum_at_a_time_is_beyond_it_though_some_have_succeeded():
    state = cluster([node("n", gpus=3)])
    gang(state, "flow", 2, 2, created=0.0)
    state.upsert_pod(pod("older", created=-1.0))
    assert started(state) == {"flow-0", "flow-1", "older"}
    ends(state, "flow-0", 10.0, group="flow", created=0.0)
    for name in ("flow-2", "flow-3"):
        state.upsert_pod(pod(name, group="flow", created=0.0))
    ends(state, "older", 10.0)
    state.upsert_pod(pod("younger", created=5.0))
    assert started(state, 11.0) == {"flow-2", "younger"}


def test_what_is_beyond_goes_before_needed_members_and_single_pods_highest_index_first():
    state = cluster([node("n", gpus=12)])
    gang(state, "a", 4, 2)
    gang(state, "b", 4, 2, priority=1)
    for number in range(4):
        state.upsert_pod(pod(f"single-{number}", priority=-1))
    settle(state)
    expected = ["a-3", "a-2", "b-3", "b-2", "single-3"]
    for wanted in range(1, 5):
        state.upsert_pod(pod(f"high-{wanted}", priority=9, created=5.0))
        assert evicted(state) == [expected[wanted - 1]]


@pytest.mark.parametrize("entitled", ["share", "priority"])
def test_gangs_shrink_one_by_one(entitled):
    owner = {"queue": "owner"} if entitled == "share" else {"queue": "lender", "priority": 5}
    state = cluster([node("n", gpus=8)], [queue("owner", quota=4), queue("lender", quota=4)])
    for name in "ab":
        gang(state, name, 4, 2, queue="lender")
    settle(state)
    gone = []
    for number in range(4):
        state.upsert_pod(pod(f"mine-{number}", created=5.0, **owner))
        gone += evicted(state)
    assert sorted(gone[:2]) == ["a-3", "b-3"]
    assert sorted(gone[2:]) == ["a-2", "b-2"]


@pytest.mark.parametrize(
    "label",
    [
        ("training.kubeflow.org/replica-type", "launcher"),
        ("training.kubeflow.org/job-role", "master"),
        ("ray.io/node-type", "head"),
        ("fairlead.dev/role", "Launcher"),
    ],
)
def test_what_leads_a_gang_is_needed_whatever_its_index(label):
    state = cluster([node("n", gpus=4)], groups=[group("g", 1)])
    for index in range(4):
        state.upsert_pod(pod(f"g-{index}", group="g", labels=(label,) if index == 3 else (), created=float(index)))
    assert "g-3" in started(state)
    state.upsert_pod(pod("high", priority=5, gpus=3, created=9.0))
    assert evicted(state) == ["g-0", "g-1", "g-2"]


def test_indexes_are_numbers_and_labels_count_before_names():
    state = cluster([node("n", gpus=12)], groups=[group("g", 2), group("h", 1)])
    for index in range(10):
        state.upsert_pod(pod(f"g-{index + 2}", group="g"))
    for index, name in enumerate(["x", "y"]):
        labels = (("batch.kubernetes.io/job-completion-index", str(100 + index)),)
        state.upsert_pod(pod(f"h-{name}", group="h", labels=labels))
    settle(state)
    for expected in ("h-y", "g-11", "g-10", "g-9"):
        state.upsert_pod(pod(f"for-{expected}", priority=5, created=9.0))
        assert evicted(state) == [expected], "h-x is rank 0 of its gang"


@pytest.mark.parametrize("seed", range(60))
def test_no_gang_loses_a_needed_member_while_others_can_do_without_some(seed):
    rng = random.Random(seed)
    state = cluster([node(f"n{number}", gpus=4) for number in range(3)], [queue("q", quota=6), queue("p", quota=6)])
    sizes = {}
    for name in "abcd":
        sizes[name] = minimum, size = rng.randint(1, 3), rng.randint(1, 3)
        gang(state, name, minimum + size, minimum, queue="q", priority=rng.choice([0, 1]), created=rng.random())
    settle(state)
    running = {name: state.gangs[f"ns/{name}"].placed() for name in sizes}
    beyond = sum(max(0, len(tasks) - sizes[name][0]) for name, tasks in running.items())
    for number in range(6):
        state.upsert_pod(pod(f"p-{number}", queue="p", created=9.0))
    gone = [name for names in preempted(run(state)) for name in names]
    for name, tasks in running.items():
        left = len(tasks) - sum(each.startswith(f"{name}-") for each in gone)
        assert left >= sizes[name][0] or not tasks or len(gone) > beyond


LAUNCHER = (("training.kubeflow.org/replica-type", "launcher"),)


@pytest.mark.parametrize(
    ("minimum", "rows", "leader"),
    [(3, "0011", None), (1, "110", None), (1, "110", 1), (2, "0110", 3)],
    ids=["too few would be left", "rank 0 is evicted", "the launcher is evicted", "the launcher, and too few are left"],
)
@pytest.mark.parametrize("gang_wants", [False, True])
def test_what_is_of_no_use_alone_goes_with_the_members_that_are_needed(minimum, rows, leader, gang_wants):
    """Whatever row a member beyond the minimum is on: nothing keeps devices without its rank 0, its launcher or its minimum."""
    state = cluster(
        [node("n0", gpus=4), node("n1", gpus=4)], groups=[group("g", minimum), group("high", 2)], moves_per_minute=0.0
    )
    for index, row in enumerate(rows):
        labels = LAUNCHER if index == leader else ()
        state.upsert_pod(pod(f"g-{index}", group="g", gpus=2, at=f"n{row}", started=0.0, labels=labels))
    if len(rows) < 4:
        state.upsert_pod(pod("stays", gpus=2, at="n0", started=0.0, priority=9))
    for index in range(2 if gang_wants else 1):
        gang = "high" if gang_wants else ""
        wants = 3 if gang_wants and len(rows) == 4 else 4
        if gang_wants and len(rows) < 4:
            wants = 2
        state.upsert_pod(pod(f"high-{index}", group=gang, gpus=wants, priority=5, created=5.0))
    decided = run(state, 10.0)
    (victims,) = preempted(decided)
    gone = {name for name in victims if name.startswith("g-")}
    left = {f"g-{index}" for index in range(len(rows))} - gone
    assert not left or (len(left) >= minimum and f"g-{leader or 0}" in left)
    invariants.check(state)


def test_a_budget_that_forbids_it_keeps_only_what_the_plan_does_not_need():
    state = cluster([node("n0", gpus=4), node("n1", gpus=4)], groups=[group("g", 3)], moves_per_minute=0.0)
    for index, row in enumerate("0011"):
        labels = (("app", "kept"),) if index == 3 else ()
        state.upsert_pod(pod(f"g-{index}", group="g", gpus=2, at=f"n{row}", started=0.0, labels=labels))
    state.upsert_budget(DisruptionBudget("ns", "kept", (Requirement("app", "In", ("kept",)),), 0))
    state.upsert_pod(pod("high", gpus=4, priority=5, created=5.0))
    assert evicted(state, 10.0) == ["g-0", "g-1", "g-2"]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_plan_leaves_a_part_of_a_gang_that_cannot_go_on(first):
    """Random clusters full of elastic gangs, some with a launcher of any index; a pod or a gang takes by priority or by share."""
    ended = 0
    for seed in range(first, first + 50):
        rng = random.Random(f"rest {seed}")
        gpus, count, by_share = rng.choice([4, 6, 8]), rng.randint(2, 3), rng.random() < 0.5
        queues = [queue("a", quota=gpus), queue("b", quota=gpus * (count - 1))]
        state = cluster([node(f"n{row}", gpus=gpus) for row in range(count)], queues, moves_per_minute=0.0)
        free, sizes = [gpus] * count, {}
        for name in rng.sample("stuvwxyz", 6):
            size, leader = rng.choice([1, 2]), rng.choice([None, rng.randrange(5)])
            rows = []
            for _ in range(rng.randint(2, 5)):
                rows += rng.choices([row for row in range(count) if free[row] >= size] or [-1])
                if rows[-1] < 0:
                    rows.pop()
                    break
                free[rows[-1]] -= size
            if not rows:
                continue
            leader = leader if leader is not None and leader < len(rows) else None
            sizes[name] = minimum, *_ = rng.randint(1, len(rows)), len(rows), leader or 0
            state.upsert_group(group(name, minimum, "a"))
            for index, row in rng.sample(list(enumerate(rows)), len(rows)):
                labels = LAUNCHER if index == leader else ()
                state.upsert_pod(pod(f"{name}-{index}", "a", group=name, gpus=size, at=f"n{row}", started=0.0, labels=labels))
        members = rng.choice([1, 1, 2])
        state.upsert_group(group("taker", members, "b" if by_share else "a"))
        for index in range(members):
            more = {"queue": "b"} if by_share else {"queue": "a", "priority": 2}
            state.upsert_pod(pod(f"taker-{index}", group="taker", gpus=rng.choice([2, gpus // 2, gpus]), created=9.0, **more))
        gone = {name for names in preempted(run(state, 10.0)) for name in names}
        for name, (minimum, size, leader) in sizes.items():
            left = {f"{name}-{index}" for index in range(size)} - gone
            assert not left or (len(left) >= minimum and f"{name}-{leader}" in left), (seed, name, gone)
            ended += not left
        invariants.check(state)
    assert ended >= 5

"""Members beyond their gang's minimum: placed after every gang has its minimum, and the first to be evicted, one by one."""

import random

import pytest

from fairlead.core import invariants
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

"""Trees of any depth: guarantees, limits and weights on every level, and reclaim between queues that are far apart."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core import invariants
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt
from tests.builders import GPU, cluster, confirm, group, held, node, play, pod, preempted, queue, run, settle


def fill(state, name, count, gpus=1, created=0.0, **more):
    for i in range(count):
        state.upsert_pod(pod(f"{name}-{i}-{created:g}", queue=name, gpus=gpus, created=created, **more))


def test_who_has_no_rival_below_its_parent_takes_back_what_is_its_parents():
    state = cluster([node("n", gpus=8)], [queue("guest"), queue("team", quota=4), queue("only", quota=4, parent="team")])
    fill(state, "guest", 8)
    play(state)
    fill(state, "only", 4, created=1.0)
    play(state)
    assert (held(state, "only"), held(state, "guest")) == (4, 4)
    invariants.check(state)


def test_a_limit_makes_what_is_below_it_scarce():
    queues = [queue("team", quota=4, limit=4), queue("one", parent="team"), queue("two", quota=3, parent="team")]
    state = cluster([node("n", gpus=8)], queues)
    fill(state, "one", 6)
    play(state)
    assert held(state, "one") == 4, "the cluster has more, their parent has not"
    fill(state, "two", 6, created=1.0)
    play(state)
    assert held(state, "two") == 3
    assert not [each for _ in range(5) for each in run(state) if isinstance(each, Place | Preempt)]


def test_what_a_queue_above_holds_itself_is_not_divided_among_those_below():
    queues = [queue("team", limit=8), Queue("one", "team", 0, (QueueResource(GPU, weight=1),))]
    queues.append(Queue("two", "team", 0, (QueueResource(GPU, weight=1),)))
    state = cluster([node("n", gpus=16)], queues)
    fill(state, "team", 4)
    fill(state, "one", 8, created=1.0)
    play(state)
    fill(state, "two", 8, created=2.0)
    play(state)
    assert {name: held(state, name) for name in ("team", "one", "two")} == {"team": 8, "one": 2, "two": 2}


def test_a_guarantee_is_met_by_a_sibling_where_the_parent_cannot_get_its_share_for_fragmentation():
    state = cluster(
        [node("n", gpus=8), node("m", gpus=8)],
        [queue("a"), queue("b"), *(queue(f"b{i}", quota=i - 1, parent="b") for i in (1, 2))],
    )
    for i, gpus in enumerate((4, 4, 4)):
        state.upsert_pod(pod(f"a-{i}", queue="a", gpus=gpus))
    state.upsert_pod(pod("b1", queue="b1", gpus=4))
    play(state)
    state.upsert_pod(pod("b2", queue="b2", created=1.0))
    assert preempted(run(state)) == [["b1"]], "it holds what is guaranteed to nobody; a would lose more than it owes"


@st.composite
def trees(draw):
    """(nodes of 8 GPUs, queues, leaf -> quota): all guarantees together fit into the cluster."""
    nodes = draw(st.integers(1, 3))
    queues: list[Queue] = []
    leaves: dict[str, int] = {}

    def grow(parent: str, budget: int) -> None:
        for letter in "abc"[: draw(st.integers(1, 3))]:
            name, quota = parent + letter, draw(st.integers(0, budget))
            budget -= quota
            limit = draw(st.one_of(st.none(), st.none(), st.none(), st.integers(max(quota, 1), 8 * nodes)))
            weight = draw(st.sampled_from([None, None, 1, 2, 3]))
            given = QueueResource(GPU, quota * 1000, None if limit is None else limit * 1000, weight=weight)
            queues.append(Queue(name, parent, draw(st.sampled_from([0, 0, 1])), (given,)))
            if len(name) < 3 and draw(st.booleans()):
                grow(name, quota)
            else:
                leaves[name] = quota

    grow("", 8 * nodes)
    return nodes, queues, leaves


JOBS = st.lists(
    st.tuples(
        st.integers(0, 26), st.sampled_from([1, 1, 2, 3, 4, 8]), st.sampled_from([1, 1, 1, 2, 3]), st.booleans(), st.booleans()
    ),
    max_size=30,
)


@settings(max_examples=120, deadline=None)
@given(trees(), JOBS)
def test_every_guarantee_can_be_called_in_at_any_time(tree, jobs):
    """Whatever runs, preemptible or not; and then nothing moves any more."""
    nodes, queues, leaves = tree
    state = cluster([node(f"n{i}", gpus=8) for i in range(nodes)], queues, search_backoff_limit=0.0)
    state.upsert_class(ServiceClass("firm", mode="Never", borrows=False))
    names = sorted(leaves)
    for number, (where, gpus, members, firm, ends) in enumerate(jobs):
        name, gang = names[where % len(names)], f"g{number}" if members > 1 else ""
        if gang:
            state.upsert_group(group(gang, members, name))
        for i in range(members):
            more = {"service_class": "firm"} if firm else {}
            state.upsert_pod(
                pod(f"j{number}-{i}", queue=name, group=gang, gpus=min(gpus, 2) if gang else gpus, created=float(number), **more)
            )
        play(state)
        invariants.check(state)
        if ends:
            running = sorted(task.pod.uid for task in state.tasks.values() if task.row >= 0)
            for uid in running[:1]:
                state.remove_pod(uid)
    for name, quota in leaves.items():
        fill(state, name, quota, created=1000.0, priority=1)
    play(state)
    invariants.check(state)
    assert {name: held(state, name) for name, quota in leaves.items() if held(state, name) < quota} == {}
    assert not [each for _ in range(5) for each in run(state) if isinstance(each, Place | Preempt)]


def test_weights_may_be_parts_of_the_over_quota_capacity():
    def part(name, percent=None, weight=None):
        return Queue(name, "", 0, (QueueResource(GPU, weight=weight, weight_percent=percent),))

    state = cluster([node("n", gpus=16)], [part("half", 50_000), part("one", weight=1), part("three", weight=3), part("none")])
    for name in ("half", "one", "three", "none"):
        fill(state, name, 16)
    play(state)
    assert {name: held(state, name) for name in ("half", "one", "three", "none")} == {"half": 8, "one": 1, "three": 5, "none": 2}
    state.upsert_queue(part("half", 100_000))
    state.queues.settle(0.0)
    assert state.queues.fair.share["half"] == {GPU: 16_000}


@pytest.mark.parametrize("movable", [True, False])
def test_a_guarantee_is_met_though_free_capacity_is_fragmented(movable):
    """By amounts there is enough for all: pods are moved if possible; else, after a while, work over quota is preempted."""
    state = cluster([node(f"n{i}", gpus=8) for i in range(3)], [queue("owner", quota=8), queue("guest")], move_patience=60.0)
    state.upsert_class(ServiceClass("plain", movable=movable))
    for i in range(3):
        state.upsert_pod(pod(f"guest-{i}", queue="guest", gpus=4 if movable else 5, service_class="plain", controlled=True))
        settle(state)
        if movable:
            state.upsert_pod(pod(f"filler-{i}", queue="guest", gpus=4, service_class="plain"))
            settle(state)
    if movable:
        for i in range(2):
            state.remove_pod(f"uid-filler-{i}")
    state.upsert_pod(pod("mine", queue="owner", gpus=8, created=1.0))
    assert not preempted(settle(state, 2.0))
    decided = run(state, 61.5)
    assert [each.moves for each in decided if isinstance(each, Preempt)] == [movable]
    assert len(preempted(decided)[0]) == 1
    confirm(state, decided)
    for name in preempted(decided)[0]:
        old = state.tasks[f"uid-{name}"].pod
        state.remove_pod(old.uid)
        state.upsert_pod(msgspec.structs.replace(old, uid=old.uid + "+", name=old.name + "+", node=""))
    play(state, 62.0)
    assert held(state, "owner") == 8
    assert not [each for _ in range(5) for each in run(state, 200.0) if isinstance(each, Place | Preempt)]
    invariants.check(state)

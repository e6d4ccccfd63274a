"""Past use: it counts half after a half-life, shifts shares, decides among users, and survives a restart."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core.model.queues import Queue, QueueResource, UsageRecord
from tests.builders import GPU, cluster, confirm, node, pod, run

DAY = 86_400.0


def weighted(name):
    return Queue(name, "", 0, (QueueResource(GPU, weight=1),))


def shares(state):
    return {name: fair[GPU] // 1000 for name, fair in state.queues.fair.share.items() if GPU in fair}


def restarted(state, now, queues, **policy):
    """A scheduler that starts now and observes what is in the cluster, statuses of queues included."""
    records = {name: state.queues.fair.usage.checkpoint(name, now) for name in state.queues.queues}
    fresh = cluster(
        [each for each in state.nodes.objects if each is not None],
        [msgspec.structs.replace(each, usage=records[each.name]) for each in queues],
        **policy,
    )
    for task in state.tasks.values():
        place = state.nodes.names[task.row] if task.row >= 0 else ""
        fresh.upsert_pod(msgspec.structs.replace(task.pod, node=place, started=task.started or None))
    run(fresh, now)
    return fresh


def test_it_counts_half_after_a_half_life_and_shifts_shares():
    state = cluster([node("n", gpus=8)], [weighted("a"), weighted("b")], usage_half_life=DAY)
    for i in range(8):
        state.upsert_pod(pod(f"a-{i}", queue="a", never_preempts=True))
    confirm(state, run(state))
    for i in range(8):
        state.upsert_pod(pod(f"b-{i}", queue="b", created=DAY, never_preempts=True))
    run(state, DAY)
    usage = state.queues.fair.usage
    assert usage.part_of("a", DAY, 8) == pytest.approx(0.5), "all of it, for one half-life"
    assert shares(state)["b"] > shares(state)["a"], "who used more is due less"
    assert usage.part_of("a", 40 * DAY, 8) == pytest.approx(1.0)


def test_use_goes_on_from_a_record_of_a_clock_that_was_ahead():
    record = UsageRecord(8 * DAY, 3 * DAY, (("ann", 8 * DAY),))
    state = cluster([node("n", gpus=8)], [msgspec.structs.replace(weighted("a"), usage=record)], usage_half_life=DAY)
    run(state, 0.0)
    usage = state.queues.fair.usage
    first = usage.part_of("a", 0.0, 8)
    run(state, DAY)
    assert usage.part_of("a", DAY, 8) == pytest.approx(first / 2)
    assert usage.users["a"]["ann"].read(DAY, DAY) == pytest.approx(4 * DAY)


def test_among_equals_less_recent_usage_goes_first():
    state = cluster([node("n", gpus=1)], [Queue("q")], usage_half_life=DAY)
    state.upsert_pod(pod("heavy", queue="q", user="heavy"))
    confirm(state, run(state))
    state.remove_pod("uid-heavy")
    run(state, DAY)
    state.upsert_pod(pod("again", queue="q", user="heavy", created=DAY))
    state.upsert_pod(pod("light", queue="q", user="light", created=DAY + 1))
    (placed,) = run(state, DAY + 2)[:1]
    assert placed.bindings[0].pod.name == "light"


def test_a_restart_forgets_nothing_but_what_came_after_the_checkpoint():
    queues = [weighted("a"), weighted("b")]
    state = cluster([node("n", gpus=8)], queues, usage_half_life=DAY)
    for i in range(6):
        state.upsert_pod(pod(f"a-{i}", queue="a", user=f"u{i % 2}"))
    confirm(state, run(state))
    run(state, DAY)
    fresh = restarted(state, DAY, queues, usage_half_life=DAY)
    for name in "ab":
        old, new = (each.queues.fair.usage.part_of(name, 1.5 * DAY, 8) for each in (state, fresh))
        assert new == pytest.approx(old, abs=1e-4)
    run(state, 1.5 * DAY)
    run(fresh, 1.5 * DAY)
    assert fresh.queues.queues["a"].users.past == pytest.approx(state.queues.queues["a"].users.past, abs=5)
    # What this scheduler knows itself goes before what it wrote earlier and reads back.
    fresh.upsert_queue(msgspec.structs.replace(queues[0], usage=UsageRecord(1.0, 1.0)))
    assert fresh.queues.fair.usage.part_of("a", 1.5 * DAY, 8) > 0.3


def test_usage_decays_while_no_scheduler_runs():
    written = UsageRecord(8 * DAY, 0.0, (("ann", 8 * DAY),))
    queues = [msgspec.structs.replace(weighted("a"), usage=written), weighted("b")]
    state = cluster([node("n", gpus=8)], queues, usage_half_life=DAY)
    usage = state.queues.fair.usage
    run(state, 2 * DAY)
    at_once = 8 * DAY * math.log(2) / DAY / 8
    assert usage.part_of("a", 2 * DAY, 8) == pytest.approx(at_once / 4), "two half-lives after it was written"
    assert usage.part_of("a", 3 * DAY, 8) == pytest.approx(at_once / 8)
    assert state.queues.queues["a"].users.past["ann"] == pytest.approx(8000 * at_once / 4, abs=1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 4), st.floats(1, 1e5)), min_size=1, max_size=15
    ),
    st.floats(600, 1e6),
)
def test_whenever_it_is_restarted_usage_is_the_same(jobs, half_life):
    queues = [weighted("a"), weighted("b")]
    # Of run times only the latest survive, and since when a queue's first is passed is reckoned anew: it must not matter.
    policy = {"usage_half_life": half_life, "reservations": 0, "share_wait": 0}
    state = cluster([node("n", gpus=8)], queues, **policy)
    now = 0.0
    for number, (queue, user, gpus, length) in enumerate(jobs):
        state.upsert_pod(pod(f"p{number}", queue=queue, user=user, gpus=gpus, created=now, never_preempts=True))
        for _ in range(3):
            confirm(state, run(state, now))
        now += length
        running = sorted(uid for uid, task in state.tasks.items() if task.row >= 0)
        if number % 2 and running:
            run(state, now)
            state.remove_pod(running[0])
    for _ in range(3):
        confirm(state, run(state, now))
    fresh = restarted(state, now, queues, **policy)
    for queue in "ab":
        for later in (now, now + half_life):
            old, new = (each.queues.fair.usage.part_of(queue, later, 8) for each in (state, fresh))
            assert new == pytest.approx(old, abs=1e-3 + 10 / half_life)
    assert set(shares(fresh)) == set(shares(state))
    assert all(abs(shares(fresh)[name] - share) <= 1 for name, share in shares(state).items())


def test_usage_of_equals_converges_within_two_half_lives():
    """One had everything for ten half-lives; then both want everything, in jobs of a hundredth of one."""
    hour = 3600.0
    state = cluster([node("n", gpus=8)], [weighted("a"), weighted("b")], usage_half_life=hour)
    step, number = hour / 100, 0
    for tick in range(1200):
        now = tick * step
        for uid, task in list(state.tasks.items()):
            if task.row >= 0:
                state.remove_pod(uid)
        for queue in "a" if tick < 1000 else "ab":
            for _ in range(8 - sum(task.queue == queue for task in state.tasks.values())):
                state.upsert_pod(pod(f"{queue}-{number}", queue=queue, created=now, never_preempts=True))
                number += 1
        confirm(state, run(state, now))
        if tick == 999:
            assert state.queues.fair.usage.part_of("a", now, 8) > 0.99
    usage = state.queues.fair.usage
    assert abs(usage.part_of("a", 1200 * step, 8) - usage.part_of("b", 1200 * step, 8)) < 0.1

"""Nothing starts that would be reclaimed at once, and no tie between queues is decided by their names."""

import itertools
import random

import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.selectors import Requirement
from tests.builders import GPU, cluster, group, held, node, placed, play, pod, preempted, queue, refused, run, settle

QUIET = {"reservations": 0, "patience": 0.0}


def part(name, quota, parent="", weight=None, priority=0):
    return Queue(name, parent, priority, (QueueResource(GPU, quota * 1000, weight=weight),))


def test_a_job_beyond_its_share_waits_for_an_entitled_one_and_no_pod_is_evicted():
    state = cluster([node("n", gpus=4)], [queue("q0", 2), queue("q1", 2)], **QUIET)
    state.upsert_pod(pod("a", queue="q0", at="n"))
    state.upsert_pod(pod("b", queue="q1", at="n"))
    state.upsert_pod(pod("big", queue="q0", gpus=2, created=1.0))
    state.upsert_pod(pod("mine", queue="q1", created=2.0))
    decided = [each for now in range(5) for each in settle(state, float(now))]
    assert (preempted(decided), placed(decided)) == ([], {"mine": "n"})
    invariants.check(state)


@pytest.mark.parametrize("priority", [0, 1])
def test_it_has_that_reason_and_starts_once_the_other_waits_no_longer(priority):
    """Also where its queue is served first, whatever the shares."""
    state = cluster([node("n", gpus=3), node("m", gpus=1)], [part("q0", 1, priority=priority), part("q1", 3)], **QUIET)
    state.upsert_pod(pod("a", queue="q0", at="m"))
    state.upsert_pod(pod("b", queue="q1", at="n"))
    state.upsert_pod(pod("big", queue="q0", gpus=2, created=1.0))
    state.upsert_pod(pod("mine", queue="q1", created=2.0, gpus=2))
    state.upsert_pod(pod("other", queue="q1", created=3.0, gpus=2))
    decided = settle(state)
    assert (preempted(decided), placed(decided)) == ([], {"mine": "n"})
    state.remove_pod("uid-mine")
    state.remove_pod("uid-other")
    assert placed(settle(state, 1.0)) == {"big": "n"}
    state.remove_pod("uid-big")
    state.upsert_pod(pod("small", queue="q0", created=4.0))
    state.upsert_pod(pod("wide", queue="q1", gpus=2, created=5.0))
    state.queues.upsert(part("q0", 1, priority=1))
    decided = settle(state, 2.0)
    reason = refused(decided)["small"]
    assert placed(decided) == {"wide": "n"}
    assert reason.code in (ReasonCode.FAIR_SHARE, ReasonCode.RESOURCES)
    invariants.check(state)


def test_the_refusal_names_queues_and_numbers():
    state = cluster([node("n", gpus=3), node("m", gpus=2)], [part("q0", 1, priority=1), part("q1", 4)], **QUIET)
    state.upsert_pod(pod("a", queue="q0", at="n"))
    state.upsert_pod(pod("b", queue="q1", at="m"))
    state.upsert_pod(pod("more", queue="q0", created=1.0))
    state.upsert_pod(pod("mine", queue="q1", gpus=3, created=2.0))
    decided = settle(state)
    assert placed(decided) == {}, "on m, it would have mine take the place of a"
    reason = refused(decided)["more"]
    assert reason.code is ReasonCode.FAIR_SHARE
    assert reason.numbers == {"used": 1000, "share": 1000, "requested": 1000}
    assert reason.message == (
        "with 1 more, queue 'q0' would hold 2 nvidia.com/gpu, above its fair share of 1, and a pending job of queue 'q1' would "
        "reclaim that at once"
    )


def test_what_no_reclaim_could_place_does_not_idle_the_cluster():
    state = cluster([node("n", gpus=4), node("m", gpus=4)], [queue("q0", 4), queue("q1", 4)], **QUIET)
    for number in range(5):
        state.upsert_pod(pod(f"small-{number}", queue="q0", created=float(number)))
    state.upsert_pod(pod("huge", queue="q1", gpus=8, created=9.0))
    play(state)
    assert held(state, "q0") == 5


def test_each_of_those_that_wait_is_counted_though_one_alone_would_fit():
    """Two jobs hide behind a head that is too large; the place that a third queue would take is enough for one of them."""
    state = cluster([node("n", gpus=4)], [part("q0", 0, priority=1), part("q1", 4)], **QUIET)
    for number in range(3):
        state.upsert_pod(pod(f"guest-{number}", queue="q0", created=0.0))
    state.upsert_pod(pod("head", queue="q1", gpus=8, created=1.0))
    for number in range(2):
        state.upsert_pod(pod(f"mine-{number}", queue="q1", gpus=2, created=2.0))
    decided = [each for now in range(5) for each in settle(state, float(now))]
    assert preempted(decided) == []
    assert held(state, "q1") == 4


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_names_of_queues_decide_nothing(order):
    """The larger guarantee first, then whose head was created first."""
    names = [("x", "y", "z")[each] for each in order]
    state = cluster([node("n", gpus=1)], [part(names[0], 1), part(names[1], 1), part(names[2], 0)], **QUIET)
    for number, (name, created) in enumerate(zip(names, (2.0, 1.0, 0.0), strict=True)):
        state.upsert_pod(pod(f"p{number}", queue=name, created=created))
    assert placed(run(state)) == {"p1": "n"}


def test_a_guarantee_that_is_larger_goes_first_at_equal_shares():
    for names in (("a", "b"), ("b", "a")):
        state = cluster([node("n", gpus=2)], [part(names[0], 1), part(names[1], 2)], **QUIET)
        state.upsert_pod(pod("small", queue=names[0], created=0.0))
        state.upsert_pod(pod("large", queue=names[1], gpus=2, created=1.0))
        assert placed(run(state)) == {"large": "n"}


def test_siblings_are_compared_with_their_own_heads_and_their_parent_with_that_of_the_first():
    queues = [part("d0", 4), part("d1", 4), part("a", 3, "d0"), part("b", 1, "d0"), part("c", 4, "d1")]
    state = cluster([node("n", gpus=4)], queues, **QUIET)
    state.upsert_pod(pod("a", queue="a", gpus=3, created=1.0))
    state.upsert_pod(pod("b0", queue="b", created=0.0))
    state.upsert_pod(pod("b1", queue="b", created=0.5))
    state.upsert_pod(pod("c", queue="c", gpus=2, created=2.0))
    order = [next(iter(placed([each]))) for each in run(state) if placed([each])]
    assert order[0] == "a", "d0 would hold three quarters of its due with its first, d1 all of its"


def test_a_gang_is_held_back_as_a_whole():
    state = cluster([node("n", gpus=4)], [part("q0", 2, priority=1), part("q1", 2)], groups=[group("g", 3, "q0")], **QUIET)
    for number in range(3):
        state.upsert_pod(pod(f"g-{number}", queue="q0", group="g", created=0.0))
    for number in range(2):
        state.upsert_pod(pod(f"mine-{number}", queue="q1", created=1.0))
    decided = [each for now in range(5) for each in settle(state, float(now))]
    assert (preempted(decided), held(state, "q0"), held(state, "q1")) == ([], 0, 2)
    invariants.check(state)


def test_a_blocked_class_is_listed_until_it_is_tried_again_and_found_again_by_a_recount():
    state = cluster([node("n", gpus=3), node("m", gpus=2)], [part("q0", 1, priority=1), part("q1", 4)], **QUIET)
    state.upsert_pod(pod("a", queue="q0", at="n"))
    state.upsert_pod(pod("b", queue="q1", at="m"))
    state.upsert_pod(pod("more", queue="q0", created=1.0))
    state.upsert_pod(pod("mine", queue="q1", gpus=3, created=2.0))
    settle(state)
    (pending_class,) = state.queues.waiting.held_back
    assert (pending_class.queue.name, pending_class.held_back.tasks[0].pod.name, state.queues.waiting.releases) == (
        "q0",
        "mine",
        False,
    )
    state.queues.waiting.held_back.clear()
    assert invariants.violations(state) == [f"{pending_class.composition} is not listed as held back"]
    state.isolation.recovery.recount()
    assert state.queues.waiting.held_back == {pending_class}
    invariants.check(state)
    state.remove_pod("uid-mine")
    assert state.queues.waiting.releases
    assert set(placed(run(state, 1.0))) == {"more"}
    assert not state.queues.waiting.held_back
    state.queues.waiting.held_back.add(pending_class)
    assert invariants.violations(state) == [f"{pending_class.composition} is listed as held back"]


@pytest.mark.parametrize("protected", [False, True])
def test_a_budget_lets_no_job_start_before_one_that_would_take_its_place(protected):
    """It cannot be evicted once it runs, so it must not begin: the job within its quota is behind a larger one of its queue."""
    queues = [queue("guest", quota=0), queue("owner", quota=4), queue("other", quota=4)]
    state = cluster([node("n", gpus=8)], queues)
    state.upsert_pod(pod("runs", "owner", gpus=2, at="n"))
    state.upsert_pod(pod("others", "other", gpus=4, at="n"))
    if protected:
        state.upsert_budget(DisruptionBudget("ns", "b", (Requirement("app", "In", ("a",)),), 0))
    state.upsert_pod(pod("large", "owner", gpus=4, created=1.0))
    state.upsert_pod(pod("small", "owner", gpus=2, created=2.0))
    state.upsert_pod(pod("guarded", "guest", gpus=2, created=0.5, labels=(("app", "a"),)))
    decided = run(state, 3.0)
    assert placed(decided) == {"small": "n"}
    assert refused(decided)["guarded"].code in (ReasonCode.FAIR_SHARE, ReasonCode.RESOURCES)
    invariants.check(state)


@pytest.mark.parametrize("seed", range(150))
def test_gangs_whose_members_are_in_several_queues_leave_the_state_in_order(seed):
    """Such a gang waits in the queue of its first member; it is not asked whether it would reclaim from itself."""
    rnd = random.Random(seed)
    names = ["red", "green", "blue"]
    nodes = [node(f"n{number}", gpus=rnd.choice([2, 4])) for number in range(rnd.randint(1, 3))]
    state = cluster(nodes, [queue(name, rnd.randint(0, 3)) for name in names], **QUIET)
    number = 0
    for now in range(12):
        for _ in range(rnd.randint(0, 3)):
            number += 1
            size, key = rnd.choice([1, 1, 2, 3]), f"g{number}"
            if size > 1:
                state.upsert_group(group(key, size))
            for member in range(size):
                given = {"gpus": rnd.choice([0, 1, 1, 2]), "cpu": rnd.choice([100, 1000]), "created": float(now)}
                state.upsert_pod(pod(f"{key}-{member}", rnd.choice(names), group=key if size > 1 else "", **given))
        for _ in range(3):
            run(state, float(now))
            invariants.check(state)
        for uid in [uid for uid in sorted(state.tasks) if rnd.random() < 0.15]:
            state.remove_pod(uid)

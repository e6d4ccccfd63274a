"""Several preemption reasons: a victim of one does not preempt in return for another, and no unit is blocked by a job that could not preempt it."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import invariants
from fairlead.core.actions.conditions import CONDITIONS, Check
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.preemption.policy import PreemptionPolicy
from tests.builders import GPU, cluster, confirm, group, held, node, play, pod, preempted, queue, run

HOUR = 3600.0
NONE = Reason(ReasonCode.RESOURCES, "")


KINDS = st.builds(
    lambda scope, levels, express: ServiceClass(
        "", "Suspend", scope, checkpoint_interval=1800, levels=levels, express=express if levels else 0
    ),
    st.sampled_from(["Queue", "Parent", "Cluster"]),
    st.sampled_from([(), (HOUR,), (HOUR, 10 * HOUR)]),
    st.integers(0, 2),
)
MIXED = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from([0.0, HOUR, 10 * HOUR]),
        st.sampled_from(["", "ann", "bob"]),
        st.sampled_from([1, 1, 2, 4]),
        st.sampled_from([1, 1, 1, 2, 3]),
    ),
    min_size=1,
    max_size=40,
)


def mixed(kinds, actions, weight, users, alike):
    """A cluster to which jobs come, one by one; given after each, once it is at rest."""
    queues = [
        Queue("left"),
        Queue("a", "left", 0, (QueueResource(GPU, 4000, weight=weight),), users_reclaim=users),
        Queue("b", "left", 0, (QueueResource(GPU, 2000, 8000, weight=weight),), users_reclaim=users),
        Queue("c", "", 0, (QueueResource(GPU, 6000, weight=weight),), users_reclaim=users),
        Queue("d", "", 1, (QueueResource(GPU, None, 3000),)),
    ]
    state = cluster([node("n", gpus=8), node("m", gpus=4)], queues)
    for number, kind in enumerate(kinds):
        state.upsert_class(msgspec.structs.replace(kind, name=f"kind-{number}"))
    for number, (name, kind, priority, attained, user, gpus, members) in enumerate(actions):
        more = {"priority": priority, "service_class": f"kind-{kind}", "attained": attained, "user": user}
        gang = f"{name}-{number}" if members > 1 and not alike else ""
        if gang:
            state.upsert_group(group(gang, members, name))
        for index in range(members if gang else 1):
            state.upsert_pod(pod(f"{name}-{number}.{index}", queue=name, group=gang, gpus=1 if alike else gpus, **more))
        play(state)
        invariants.check(state)
        yield state


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(KINDS, min_size=3, max_size=3), MIXED, st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_classes_of_any_reach_come_to_rest(kinds, actions, weight, users, alike):
    """A victim for one reason does not preempt in return for another, however many are between."""
    for _ in mixed(kinds, actions, weight, users, alike):
        pass


def with_upstream(seed):
    """Jobs of profile `kubernetes` and others come, one by one; at rest after each. The quotas leave something to borrow."""
    rnd = random.Random(f"upstream {seed}")
    tree, weight = rnd.random() < 0.5, rnd.choice([None, 1, 5])
    queues = [
        Queue(name, "left" if tree and name in "ab" else "", 0, (QueueResource(GPU, quota, weight=weight),))
        for name, quota in {"a": 2000, "b": 1000, "c": 3000, "d": None}.items()
    ]
    state = cluster([node("n", gpus=8), node("m", gpus=4)], [Queue("left"), *queues])
    for number in range(14):
        name, priority, gpus = rnd.choice("abcd"), rnd.randint(0, 2), rnd.choice([1, 1, 2, 4])
        upstream, members = rnd.random() < 0.4, rnd.choice([1, 1, 1, 2, 3])
        gang = f"{name}-{number}" if members > 1 and not upstream else ""
        if gang:
            state.upsert_group(group(gang, members, name))
        for index in range(members if gang else 1):
            profile = {"profile": KUBERNETES_PROFILE} if upstream else {}
            state.upsert_pod(pod(f"{name}-{number}.{index}", name, priority, gang, gpus=gpus, **profile))
        play(state)
        invariants.check(state)


@pytest.mark.parametrize("seed", range(150))
def test_priorities_across_queues_and_shares_come_to_rest(seed):
    """Pods of profile `kubernetes` preempt by priority whatever the shares: nobody reclaims what they, or others in turn, take back."""
    with_upstream(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150, 4000))
def test_priorities_across_queues_and_shares_come_to_rest_in_many_worlds(seed):
    with_upstream(seed)


def test_what_is_guaranteed_is_reclaimed_from_pods_of_profile_kubernetes_of_any_priority():
    """They may not take it back; beyond the quota they would."""
    queues = [Queue(name, "", 0, (QueueResource(GPU, quota),)) for name, quota in (("a", 4000), ("b", 2000))]
    state = cluster([node("n", gpus=8)], queues)
    for number in range(5):
        state.upsert_pod(pod(f"b-{number}", "b", 5, at="n", profile=KUBERNETES_PROFILE))
    for number in range(3):
        state.upsert_pod(pod(f"a-{number}", "a", at="n"))
    run(state)
    state.upsert_pod(pod("fourth", "a", created=1.0))
    [[victim]] = preempted(run(state, 2.0))
    assert victim.startswith("b-")
    state.remove_pod(f"uid-{victim}")
    confirm(state, run(state, 3.0))
    state.upsert_pod(pod("fifth", "a", created=4.0))
    assert not preempted(run(state, 5.0))
    state.upsert_pod(pod("fifth-of-high-priority", "a", 5, created=6.0))
    assert preempted(run(state, 7.0))


def ask_all(state):
    """Ask for each pending class whom it may preempt, and every requeue condition; returns the classes that were found blocked."""
    waiting, rows, queues = state.queues.waiting, list(state.nodes.rows.values()), set(state.queues.queues)
    before, found = dict(waiting.blocked_by), []
    for pending_class in [each for leaf in state.queues.queues.values() for each in leaf.pending_classes.values()]:
        unit = pending_class.first()
        if unit is None:
            continue
        preemption = PreemptionPolicy(state, unit)
        for task in state.tasks.values():
            preemption.reason_for(task)
        check = Check(state, pending_class, unit, pending_class.unschedulable or NONE, rows, queues)
        for condition in CONDITIONS:
            if condition.matters(check):
                condition.helps(check, pending_class.seen)
        found += [pending_class] if preemption.blocking.blocked_by or check.blocking.blocked_by else []
    assert waiting.blocked_by == before
    return found


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(KINDS, min_size=3, max_size=3), MIXED, st.sampled_from([None, 1]), st.booleans(), st.booleans())
def test_questions_record_nothing(kinds, actions, weight, users, alike):
    for state in mixed(kinds, actions, weight, users, alike):
        ask_all(state)


def test_what_blocks_a_class_is_answered_to_those_who_ask_and_recorded_by_the_search():
    state = cluster([node("n", gpus=2)], [queue("owner", quota=2), queue("guest")])
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    for index in range(2):
        state.upsert_pod(pod(f"runs-{index}", queue="guest", priority=2))
    confirm(state, run(state))
    state.upsert_pod(pod("next", queue="guest", priority=1, service_class="urgent", created=1.0))
    state.upsert_pod(pod("mine", queue="owner", created=2.0))
    assert play(state) == 0
    recorded = dict(state.queues.waiting.blocked_by)
    assert [each.queue.name for each in recorded] == ["owner"]
    state.queues.waiting.blocked_by.clear()
    assert ask_all(state) == list(recorded)
    assert not state.queues.waiting.blocked_by


def test_work_that_would_preempt_in_return_by_priority_is_not_reclaimed_for_shares():
    state = cluster([node("n", gpus=2)], [queue("poor", quota=2), queue("rich")])
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    state.upsert_pod(pod("mine", queue="poor"))
    state.upsert_pod(pod("also", queue="poor", created=1.0))
    confirm(state, run(state))
    state.upsert_pod(pod("theirs", queue="rich", priority=1, service_class="urgent", created=2.0))
    decided = run(state)
    assert preempted(decided) == [["also"]]
    confirm(state, decided)
    state.remove_pod("uid-also")
    confirm(state, run(state))
    state.upsert_pod(pod("also+", queue="poor", created=1.0))
    assert not preempted(run(state)), "its queue is below its share, but it would lose it again"
    state.upsert_class(ServiceClass("urgent", mode="Suspend"))
    assert preempted(run(state)) == [["theirs"]]


def rivals(limit=None, service="urgent", poor="", **asked):
    """Two of `high` wait, as urgent as `rich` that holds everything, and then two of `poor` that deserves it."""
    queues = [Queue("high", "", 0, (QueueResource(GPU, None, limit),)), queue("poor", quota=2), queue("rich")]
    state = cluster([node("n", gpus=4), node("m", gpus=0)], queues)
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    state.upsert_class(ServiceClass("firm", mode="Never"))
    for index in range(4):
        state.upsert_pod(pod(f"rich-{index}", queue="rich", priority=2, created=float(index)))
    confirm(state, run(state))
    for index in range(2):
        state.upsert_pod(pod(f"high-{index}", queue="high", priority=2, service_class=service, created=10.0, **asked))
    for index in range(2):
        state.upsert_pod(pod(f"poor-{index}", queue="poor", service_class=poor, created=20.0))
    play(state)
    return state


def test_no_unit_preempts_what_a_pending_job_would_preempt_from_it():
    state = rivals()
    assert {name: held(state, name) for name in ("high", "poor", "rich")} == {"high": 1, "poor": 0, "rich": 3}


@pytest.mark.parametrize(
    "more",
    [
        {"limit": 0},
        {"selector": {"pool": "other"}},
        {"gpus": 3},
        {"service": ""},
        {"never_preempts": True},
        {"poor": "firm"},
    ],
    ids=["at its limit", "not there", "too large", "in its own queue only", "takes from nobody", "what it gets stays"],
)
def test_who_cannot_take_it_stands_in_nobodys_way(more):
    state = rivals(**more)
    assert held(state, "poor") == 2


def test_a_blocked_class_is_requeued_once_the_blocking_job_is_at_its_limit():
    queues = [queue("high"), queue("poor", quota=2), queue("rich")]
    state = cluster([node("n", gpus=4)], queues)
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    for index in range(4):
        state.upsert_pod(pod(f"rich-{index}", queue="rich", priority=2, created=float(index)))
    confirm(state, run(state))
    state.upsert_pod(pod("high", queue="high", priority=2, service_class="urgent", gpus=2, created=10.0))
    state.upsert_pod(pod("poor", queue="poor", gpus=2, created=20.0))
    play(state)
    assert (held(state, "high"), held(state, "poor")) == (0, 0)
    state.upsert_queue(queue("high", limit=1))
    play(state)
    assert held(state, "poor") == 2


def test_what_a_gang_leaves_over_counts_as_well():
    state = cluster([node("n", gpus=2)], [queue("owner", quota=2), queue("guest")])
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    state.upsert_group(group("gang", 2, "guest"))
    for index in range(2):
        state.upsert_pod(pod(f"gang-{index}", queue="guest", group="gang", priority=2))
    confirm(state, run(state))
    state.upsert_pod(pod("next", queue="guest", priority=1, gpus=2, service_class="urgent", created=1.0))
    state.upsert_pod(pod("mine", queue="owner", created=2.0))
    assert play(state) == 0, "next would take it, with what the gang leaves over, and the gang would come back for that"


def test_a_limit_that_the_victim_relieves_blocks_no_unit():
    queues = [queue("owner", quota=1), queue("guest", limit=1)]
    state = cluster([node("n", gpus=1)], queues)
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    state.upsert_pod(pod("runs", queue="guest", priority=2))
    confirm(state, run(state))
    state.upsert_pod(pod("next", queue="guest", priority=1, service_class="urgent", created=1.0))
    state.upsert_pod(pod("mine", queue="owner", created=2.0))
    assert play(state) == 0, "once the first has gone its queue's limit lets next take it, and the first comes back for that"


def test_a_pending_class_of_wider_scope_is_requeued_once_a_victim_runs():
    state = cluster([node("n", gpus=1)], [queue("high"), queue("low", quota=1)])
    state.upsert_class(ServiceClass("urgent", mode="Suspend", scope="Cluster"))
    state.upsert_pod(pod("runs", queue="low"))
    begun = run(state)
    state.upsert_pod(pod("waits", queue="high", priority=1, service_class="urgent", created=1.0))
    assert not preempted(run(state)), "nobody falls while it is being bound"
    confirm(state, begun)
    assert preempted(run(state)) == [["runs"]]


def test_shares_follow_jobs_that_are_deleted_while_they_wait():
    queues = [Queue(name, "", 0, (QueueResource(GPU, 0, weight=1),)) for name in "abc"]
    state = cluster([node("n", gpus=6)], queues)
    for name in "ab":
        for index in range(6):
            state.upsert_pod(pod(f"{name}-{index}", queue=name, created=float(index)))
    play(state)
    state.upsert_pod(pod("large", queue="c", gpus=4, created=9.0))
    play(state)
    assert {name: state.queues.fair.share[name][GPU] for name in "abc"} == {"a": 2000, "b": 2000, "c": 2000}
    state.remove_pod("uid-large")
    run(state)
    assert {name: state.queues.fair.share[name][GPU] for name in "ab"} == {"a": 3000, "b": 3000}

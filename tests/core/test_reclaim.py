"""Reclaim across queues, attained service, minimum run times: what preempts what, and what is never preempted."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.pods import AffinityTerm
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Place, Preempt, Refuse
from fairlead.core.model.units import WHOLE
from fairlead.core.schedule import has_work
from fairlead.simulation.judged import evictions
from fairlead.simulation.judged.world import Job
from tests.builders import GPU, cluster, confirm, group, held, node, placed, play, pod, preempted, queue, run, settle, spec

HOUR = 3600.0


def weighted(name, weight, parent="", quota=None):
    return Queue(name, parent, 0, (QueueResource(GPU, None if quota is None else quota * 1000, weight=weight),))


def test_what_is_lent_is_taken_back_and_no_more():
    state = cluster([node("n", gpus=8)], [queue("owner", quota=6), queue("guest", quota=2)])
    for i in range(8):
        state.upsert_pod(pod(f"guest-{i}", queue="guest", created=float(i)))
    play(state)
    assert held(state, "guest") == 8, "nobody else wants it"
    for i in range(9):
        state.upsert_pod(pod(f"owner-{i}", queue="owner", created=100.0 + i))
    play(state)
    assert (held(state, "owner"), held(state, "guest")) == (6, 2)
    invariants.check(state)
    for _ in range(5):
        assert not [each for each in run(state) if isinstance(each, Place | Preempt)], "nothing moves any more"


def test_siblings_settle_this_among_themselves():
    queues = [weighted("a", 1), weighted("b", 1), weighted("a1", 1, "a"), weighted("a2", 3, "a")]
    state = cluster([node("n", gpus=8), node("m", gpus=8)], queues)
    for name in ("a1", "b"):
        for i in range(16):
            state.upsert_pod(pod(f"{name}-{i}", queue=name, created=float(i)))
    play(state)
    assert (held(state, "a1"), held(state, "b")) == (8, 8)
    for i in range(16):
        state.upsert_pod(pod(f"a2-{i}", queue="a2", created=50.0))
    play(state)
    assert {name: held(state, name) for name in ("a1", "a2", "b")} == {"a1": 2, "a2": 6, "b": 8}
    invariants.check(state)


def test_nothing_is_reclaimed_in_vain():
    state = cluster([node("n", gpus=4), node("m", gpus=4)], [queue("owner", quota=8), queue("guest")])
    for i in range(8):
        state.upsert_pod(pod(f"guest-{i}", queue="guest"))
    play(state)
    state.upsert_pod(pod("wide", queue="owner", gpus=8))
    assert not preempted(run(state)), "no node has eight"
    assert held(state, "guest") == 8


def test_a_gang_is_reclaimed_as_a_whole_and_not_for_half():
    state = cluster([node("n", gpus=4)], [queue("owner", quota=2), queue("guest", quota=2)], groups=[group("g", 4)])
    for i in range(4):
        state.upsert_pod(pod(f"g-{i}", queue="guest", group="g"))
    play(state)
    state.upsert_pod(pod("mine", queue="owner"))
    (names,) = preempted(run(state))
    assert sorted(names) == ["g-0", "g-1", "g-2", "g-3"]


def test_a_queue_above_its_own_share_reclaims_nothing():
    state = cluster([node("n", gpus=8)], [queue("a", quota=4), queue("b", quota=4)])
    for name in ("a", "b"):
        for i in range(4):
            state.upsert_pod(pod(f"{name}-{i}", queue=name))
    play(state)
    state.upsert_pod(pod("more", queue="a", priority=1000))
    (names,) = preempted(run(state))
    assert [name[0] for name in names] == ["a"], "of its own queue, by priority"


@pytest.mark.parametrize(("mode", "minimum", "falls"), [("Requeue", 0, True), ("Never", 0, False), ("Requeue", 600, False)])
def test_classes_define_what_is_preemptible_and_when(mode, minimum, falls):
    state = cluster([node("n", gpus=1)], [queue("owner", quota=1), queue("guest")])
    state.upsert_class(ServiceClass("held", mode=mode, min_runtime=minimum))
    state.upsert_pod(pod("guest", queue="guest", service_class="held"))
    confirm(state, run(state, 1000.0))
    state.upsert_pod(pod("mine", queue="owner", created=1001.0))
    assert bool(preempted(run(state, 1001.0))) == falls
    if minimum:
        assert state.next_due == 1600.0, "then it may"
        assert preempted(run(state, 1600.0)) == [["guest"]]


@pytest.mark.parametrize(("limit", "decision"), [(0.0, Preempt), (600.0, Evict)])
def test_a_pod_that_began_earlier_than_it_was_bound_may_go_earlier(limit, decision):
    """The clock of its node is behind the scheduler's: it counts, for its least run time as for its time limit."""
    state = cluster([node("n", gpus=1)], [queue("owner", quota=1), queue("guest")])
    state.upsert_class(ServiceClass("held", min_runtime=600.0))
    state.upsert_pod(pod("guest", queue="guest", service_class="held", time_limit=limit))
    confirm(state, run(state, 1000.0))
    if not limit:
        state.upsert_pod(pod("mine", queue="owner", created=1001.0))
    assert not preempted(run(state, 1001.0))
    state.upsert_pod(pod("guest", queue="guest", service_class="held", time_limit=limit, at="n", started=700.0))
    assert not preempted(run(state, 1002.0))
    assert state.next_due is not None
    assert state.next_due <= 1300.0
    assert [type(each) for each in run(state, 1300.0) if isinstance(each, Preempt | Evict)] == [decision]


@pytest.mark.parametrize("held", [{"min_runtime": 600.0}, {"levels": (600.0,), "checkpoint_interval": 60.0}])
def test_a_pod_that_began_so_much_earlier_that_it_may_go_at_once_goes(held):
    state = cluster([node("n", gpus=1)], [queue("owner", quota=1), queue("guest")], reclaim="levels" not in held)
    state.upsert_class(ServiceClass("held", **held))
    state.upsert_pod(pod("guest", queue="guest", service_class="held"))
    confirm(state, run(state, 1000.0))
    like = {"queue": "guest", "service_class": "held"} if "levels" in held else {"queue": "owner"}
    state.upsert_pod(pod("mine", created=1001.0, **like))
    assert not preempted(run(state, 1001.0))
    state.upsert_pod(pod("guest", queue="guest", service_class="held", at="n", started=300.0))
    assert preempted(run(state, 1002.0)) == [["guest"]]


def test_a_class_may_reach_beyond_its_queue():
    queues = [queue("top"), queue("mine", parent="top"), queue("near", parent="top"), queue("far")]
    for scope, victim in (("Queue", None), ("Parent", "near"), ("Cluster", "far")):
        state = cluster([node("n", gpus=2)], queues, reclaim=False)
        state.upsert_class(ServiceClass("boss", scope=scope))
        state.upsert_pod(pod("near", queue="near", priority=1))
        state.upsert_pod(pod("far", queue="far"))
        settle(state)
        state.upsert_pod(pod("mine", queue="mine", priority=9, service_class="boss"))
        assert preempted(run(state)) == ([[victim]] if victim else [])


LEVELS = ServiceClass("sliced", mode="Suspend", checkpoint_interval=1800, levels=(HOUR, 10 * HOUR))


def sliced(name, **more):
    return pod(name, service_class="sliced", **more)


def test_less_attained_service_goes_first_and_preempts_more():
    state = cluster([node("n", gpus=1)])
    state.upsert_class(LEVELS)
    state.upsert_pod(sliced("old"))
    confirm(state, run(state, 0.0))
    state.upsert_pod(sliced("new", created=10.0))
    assert not preempted(run(state, 10.0))
    assert state.next_due == HOUR
    assert preempted(run(state, HOUR)) == [["old"]]
    state.remove_pod("uid-old")
    state.upsert_pod(sliced("old+", attained=HOUR))
    confirm(state, run(state, HOUR))
    assert placed([*run(state, HOUR)]) == {}
    assert held(state, "default") == 1
    # Equals do not take from each other: the one that comes back waits until the other has had as much.
    assert not preempted(run(state, HOUR + 60))
    assert preempted(run(state, 2 * HOUR)) == []


def test_a_time_slice_ends_just_after_a_checkpoint_where_the_class_has_max_loss():
    state = cluster([node("n", gpus=1)])
    state.upsert_class(msgspec.structs.replace(LEVELS, levels=(600.0,), max_loss=60.0))
    state.upsert_pod(sliced("old"))
    confirm(state, run(state, 0.0))
    state.upsert_pod(sliced("new", created=900.0))
    assert not preempted(run(state, 900.0)), "it has attained more, but a quarter of an hour's work would be lost"
    assert not preempted(run(state, 1799.0))
    assert state.next_due == 1800.0, "nobody has to ask for it"
    assert preempted(run(state, 1800.0)) == [["old"]]
    # What comes just too late waits for the next one; priorities do not wait.
    state = cluster([node("n", gpus=1)])
    state.upsert_class(msgspec.structs.replace(LEVELS, levels=(600.0,), max_loss=60.0))
    state.upsert_pod(sliced("old"))
    confirm(state, run(state, 0.0))
    run(state, 1800.0)
    state.upsert_pod(sliced("new", created=1861.0))
    assert not preempted(run(state, 1861.0))
    assert state.next_due == 3600.0
    state.upsert_pod(pod("boss", priority=5, created=1862.0))
    assert preempted(run(state, 1862.0)) == [["old"]]


def two_halves(interval):
    """Queue `full` runs four pods of one device since 0, of which two are beyond its share; `poor` is guaranteed one device."""
    queues = [weighted("full", 1, quota=1), weighted("poor", 1, quota=1)]
    state = cluster([node("n", gpus=4)], queues)
    state.upsert_class(msgspec.structs.replace(LEVELS, levels=(600.0,), max_loss=60.0, checkpoint_interval=interval))
    for name in "abcd":
        state.upsert_pod(sliced(name, queue="full"))
    confirm(state, run(state, 0.0))
    return state


@pytest.mark.parametrize(("interval", "due"), [(1800.0, 1800.0), (7200.0, 900.0 + HOUR)])
def test_what_is_fair_beyond_a_guarantee_waits_for_a_checkpoint_and_no_longer_than_for_a_share(interval, due):
    state = two_halves(interval)
    state.upsert_pod(sliced("guaranteed", queue="poor", created=900.0))
    first = preempted(run(state, 900.0))
    assert len(first) == 1, "what is guaranteed is due at once, whatever is lost"
    state.remove_pod(f"uid-{first[0][0]}")
    confirm(state, run(state, 900.0))
    state.upsert_pod(sliced("fair", queue="poor", created=901.0))
    state.upsert_pod(sliced("more", queue="poor", created=902.0))
    assert not preempted(run(state, 902.0)), "work of a quarter of an hour would be lost"
    assert not preempted(run(state, due - 1.0))
    assert state.next_due is not None
    assert state.next_due <= due + 2.0, "it looks again by itself"
    assert len(preempted(run(state, due + 2.0))) == 1, "two each are fair"


@pytest.mark.parametrize(("max_loss", "victim"), [(0.0, "long"), (60.0, "saved")])
def test_among_work_beyond_express_the_victim_loses_least_where_time_slices_end_at_checkpoints(max_loss, victim):
    state = cluster([node("n", gpus=2)], [weighted("rich", 1, quota=1), weighted("poor", 1, quota=1)], reservations=0)
    state.upsert_class(msgspec.structs.replace(LEVELS, express=1, max_loss=max_loss))
    state.upsert_pod(sliced("long", queue="rich", at="n", started=-900.0, attained=20 * HOUR))
    state.upsert_pod(sliced("saved", queue="rich", at="n", started=-1900.0, attained=5 * HOUR))
    state.upsert_pod(sliced("owner", queue="poor", created=0.0))
    assert preempted(run(state, 0.0)) == [[victim]]


def test_what_is_fair_beyond_a_guarantee_is_due_at_once_where_no_class_waits_for_checkpoints():
    state = two_halves(1800.0)
    state.upsert_class(msgspec.structs.replace(LEVELS, levels=(600.0,)))
    state.upsert_pod(sliced("guaranteed", queue="poor", created=900.0))
    state.upsert_pod(sliced("fair", queue="poor", created=900.0))
    assert len(preempted(run(state, 900.0))) == 2


def test_who_comes_back_saves_its_work_later_since_it_must_load_it_first():
    state = cluster([node("n", gpus=1)])
    state.upsert_class(msgspec.structs.replace(LEVELS, levels=(600.0,), max_loss=60.0))
    state.upsert_pod(sliced("back", attained=HOUR))
    confirm(state, run(state, 0.0))
    state.upsert_pod(sliced("new", created=900.0))
    assert not preempted(run(state, 900.0))
    assert state.next_due == 1860.0
    assert not preempted(run(state, 1800.0)), "half an hour of work is done a minute later"
    assert preempted(run(state, 1860.0)) == [["back"]]


def test_the_cheapest_loss_since_a_checkpoint_is_preempted():
    state = cluster([node("a", gpus=1), node("b", gpus=1)])
    state.upsert_class(LEVELS)
    state.upsert_pod(sliced("first"))
    confirm(state, run(state, 0.0))
    state.upsert_pod(sliced("second", created=1000.0))
    confirm(state, run(state, 1000.0))
    state.upsert_pod(sliced("third", created=2000.0))
    # At 5400 the first has just saved its work, the second 800 s ago.
    assert not preempted(run(state, 2000.0))
    assert preempted(run(state, 5400.0)) == [["first"]]


ACTIONS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([1, 1, 2, 4, 8]), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(ACTIONS, st.sampled_from([None, 1, 3]))
def test_it_always_comes_to_rest_within_limits_and_shares(actions, weight):
    queues = [
        Queue("left"),
        Queue("a", "left", 0, (QueueResource(GPU, 4000, weight=weight),)),
        Queue("b", "left", 0, (QueueResource(GPU, 2000, 8000, weight=weight),)),
        Queue("c", "", 0, (QueueResource(GPU, 6000, weight=1 if weight else None),)),
        Queue("d", "", 1, (QueueResource(GPU, None, 3000),)),
    ]
    state = cluster([node("n", gpus=8), node("m", gpus=8), node("o", gpus=4)], queues)
    running = []
    for number, (name, gpus, priority, ends) in enumerate(actions):
        state.upsert_pod(pod(f"{name}-{number}", queue=name, gpus=gpus, priority=priority, created=float(number)))
        if ends:
            running = sorted(uid for uid, task in state.tasks.items() if task.row >= 0)
            if running:
                state.remove_pod(running[number % len(running)])
        play(state, float(number))
        invariants.check(state)
        for queue_node in state.queues.queues.values():
            for resource, limit in queue_node.limits.items():
                assert queue_node.used.get(resource, 0) <= limit
        # Nothing that fits waits: work conservation.
        for queue_node in state.queues.queues.values():
            for pending_class in queue_node.pending_classes.values():
                unit = pending_class.first()
                if unit is None:
                    continue
                task = unit.tasks[0]
                fits = task.ranking.best() >= 0 and state.queues.limits.over_limit(task) is None
                assert not fits, f"{task} fits and waits"
    assert not has_work(state)


def test_who_may_use_a_queue_and_a_class():
    closed = Queue("closed", namespaces=(Requirement("team", "In", ("vision",)),), classes=("batch",))
    state = cluster([node("n", gpus=8)], [closed, Queue("default")])
    state.upsert_class(ServiceClass("batch"))
    state.upsert_pod(pod("a", queue="closed", service_class="batch"))
    state.upsert_pod(pod("b", queue="closed"))
    state.upsert_pod(pod("c"))
    assert set(placed(decided := run(state))) == {"c"}
    assert {each.reason.code for each in decided if isinstance(each, Refuse)} == {"NotAllowed"}
    state.upsert_namespace(Namespace("ns", (("team", "vision"),)))
    assert set(placed(run(state))) == {"a"}
    state.upsert_queue(msgspec.structs.replace(closed, classes=None))
    assert set(placed(run(state))) == {"b"}
    # What runs goes on; what comes is judged by what holds now.
    state.upsert_queue(closed)
    state.upsert_namespace(Namespace("ns", (("team", "speech"),)))
    state.upsert_pod(pod("d", queue="closed", service_class="batch"))
    assert placed(run(state)) == {}
    assert held(state, "closed") == 2
    invariants.check(state)


def test_a_gangs_class_is_its_groups():
    state = cluster([node("n", gpus=2)], [queue("owner", quota=2), queue("guest")])
    state.upsert_class(ServiceClass("held", mode="Never"))
    state.upsert_group(Group("ns", "g", 2, service_class="held"))
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", queue="guest", group="g"))
    play(state)
    state.upsert_pod(pod("mine", queue="owner"))
    assert not preempted(run(state))
    state.upsert_group(Group("ns", "g", 2))
    assert not preempted(run(state)), "it keeps the class that it started with"


@pytest.mark.parametrize("together", [False, True])
def test_who_could_not_help_stands_in_nobodys_way(together):
    """The guest's cheapest pods are where the owner cannot run; they do not help, and the dearer ones are evicted."""
    nodes = [node(name, gpus=2, labels={"pool": name}) for name in "ah"]
    groups = [group("theirs", 2, "guest"), *([group("ours", 2, "owner")] if together else [])]
    state = cluster(nodes, [queue("guest", quota=2), queue("owner", quota=2)], groups=groups)
    for i in range(2):
        state.upsert_pod(pod(f"dear-{i}", queue="guest", group="theirs", at="h", created=1.0, started=1.0))
        state.upsert_pod(pod(f"cheap-{i}", queue="guest", at="a", created=9.0, started=9.0))
    for i in range(2 if together else 1):
        gang = {"group": "ours"} if together else {}
        state.upsert_pod(pod(f"mine-{i}", queue="owner", created=10.0, selector={"pool": "h"}, **gang))
    assert preempted(run(state, 20.0)) == [["dear-0", "dear-1"]]


@pytest.mark.parametrize("queue", ["q", "other"])
def test_what_is_express_takes_nothing_from_higher_priority(queue):
    """Else that would take it back at once."""
    state = cluster([node("n", gpus=1)], [Queue("q"), Queue("other")], reclaim=False)
    state.upsert_class(msgspec.structs.replace(LEVELS, express=1))
    state.upsert_pod(sliced("old", queue="q", priority=1))
    confirm(state, run(state, 0.0))
    state.upsert_pod(sliced("new", queue=queue, created=HOUR))
    assert not preempted(run(state, 2 * HOUR))


def test_what_is_express_goes_before_all_shares():
    state = cluster([node("n", gpus=1)], [queue("poor", quota=1), queue("rich")])
    state.upsert_class(msgspec.structs.replace(LEVELS, express=1))
    state.upsert_pod(sliced("long", queue="poor", attained=5 * HOUR))
    state.upsert_pod(sliced("short", queue="rich", created=5.0))
    assert set(placed(run(state))) == {"short"}
    # It is not reclaimed for a share as long as it is express, and is as soon as it is not.
    state = cluster([node("n", gpus=1)], [queue("poor", quota=1), queue("rich")])
    state.upsert_class(msgspec.structs.replace(LEVELS, express=1))
    state.upsert_pod(sliced("short", queue="rich"))
    confirm(state, run(state, 0.0))
    state.upsert_pod(sliced("long", queue="poor", attained=5 * HOUR))
    assert not preempted(run(state, HOUR - 1))
    assert preempted(run(state, HOUR)) == [["short"]]


def test_a_queue_below_its_quota_again_is_requeued():
    nodes = [node("x", gpus=3, labels={"zone": "x"}), node("y", gpus=5)]
    state = cluster(nodes, [weighted("a", 1, quota=4), weighted("b", 1, quota=2)])
    for number in range(4):
        state.upsert_pod(pod(f"a-{number}", "a", at="y"))
    for number in range(3):
        state.upsert_pod(pod(f"b-{number}", "b", at="x"))
    state.upsert_pod(pod("b-more", "b", gpus=2, created=1.0))
    state.upsert_pod(pod("large", "a", gpus=5, created=1.0))
    state.upsert_pod(pod("wants", "a", created=2.0, selector={"zone": "x"}))
    assert preempted(run(state, 10.0)) == [], (
        "beyond its quota it may have what is left over, and nobody holds more than his part"
    )
    state.upsert_node(node("z", gpus=0))
    assert preempted(run(state, 10.5)) == [], "looked at once more, in vain"
    state.remove_pod("uid-a-0")
    assert len(preempted(run(state, 11.0))) == 1, "on another node; but now it is within its quota, and b lives on what was lent"


def test_a_gang_reclaims_more_than_amounts_need_where_capacity_is_fragmented():
    """The cheapest victims lie on one node each: it takes as many again until the gang has whole nodes, and its share covers that."""
    state = cluster([node(f"n{n}", gpus=2) for n in range(8)], [weighted("a", 1), weighted("b", 1)])
    for i in range(2):
        for n in range(8):
            state.upsert_pod(pod(f"a-{i}-{n}", queue="a", at=f"n{n}", created=100.0 * i + n))
    for name in ("g", "h"):
        state.upsert_group(group(name, 2))
        for i in range(2):
            state.upsert_pod(pod(f"{name}-{i}", queue="b", group=name, gpus=2, created=1000.0))
    play(state)
    assert (held(state, "a"), held(state, "b")) == (8, 8), "each falls whose place is needed, nobody else"
    invariants.check(state)
    assert not preempted(run(state)), "nothing moves any more"


def test_rows_are_cleared_for_a_gang_within_what_is_reclaimable():
    """No pod is evicted where the list ends before whole nodes are free, and more than is reclaimable would have to be evicted."""
    state = cluster([node(f"n{n}", gpus=4) for n in range(4)], [weighted("a", 3), weighted("b", 1)])
    for i in range(4):
        for n in range(4):
            state.upsert_pod(pod(f"a-{i}-{n}", queue="a", at=f"n{n}", created=100.0 * i + n))
    state.upsert_group(group("g", 2))
    for i in range(2):
        state.upsert_pod(pod(f"g-{i}", queue="b", group="g", gpus=4, created=1000.0))
    assert not preempted(run(state)), "8 GPUs are wanted, 4 are owed"
    state.upsert_queue(weighted("b", 3))
    (plan,) = preempted(run(state))
    assert len(plan) == 8
    assert len({name.split("-")[2] for name in plan}) == 2, "two whole nodes"


def test_a_gang_that_stays_together_has_one_zone_cleared():
    near = AffinityTerm("zone", (Requirement("job", "In", ("g",)),), ("ns",))
    state = cluster(
        [node(f"n{n}", gpus=2, labels={"zone": f"z{n % 3}"}) for n in range(12)], [weighted("a", 1), weighted("b", 1)]
    )
    for i in range(2):
        for n in range(12):
            state.upsert_pod(pod(f"a-{i}-{n}", queue="a", at=f"n{n}", created=100.0 * i + n))
    state.upsert_group(group("g", 3))
    for i in range(3):
        member = pod(
            f"g-{i}", queue="b", group="g", created=1000.0, spec_=msgspec.structs.replace(spec(gpus=2), pod_affinity=(near,))
        )
        state.upsert_pod(msgspec.structs.replace(member, labels=(("job", "g"),)))
    (plan,) = [each for each in run(state) if isinstance(each, Preempt)]
    assert len(plan.victims) == 6
    assert len({int(each.node[1:]) % 3 for each in plan.beneficiaries}) == 1


@pytest.mark.parametrize("seed", range(60))
def test_what_is_larger_than_the_cluster_is_no_request_even_before_it_is_tried(seed):
    """Else others would lose, or not get, in its first pass what it can never use."""
    plain, burdened = (evictions.made("gangs 1/2/4", seed) for _ in range(2))
    burdened.submit(Job("huge", "q0", 8 * WHOLE, burdened.gpus // (8 * WHOLE) + 1, created=99.0))
    for each in (plain, burdened):
        each.play()
    assert burdened.evicted == []
    assert burdened.places == plain.places

"""Reservations: no stream of small jobs starves a big one, and windows of administrators begin on empty nodes."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.queues import Queue, QueueResource, RunTimeRecord
from fairlead.core.model.selectors import Requirement
from fairlead.core.model.service_classes import ServiceClass
from tests.builders import cluster, confirm, group, node, placed, pod, preempted, refused, run, start
from tests.builders import queue as queue_of

HOUR = 3600.0


def kept(state):
    return {hold.key: (sorted(state.nodes.names[row] for row in hold.rows), hold.start) for hold in state.reserved.holds.values()}


def test_a_stream_of_small_jobs_does_not_starve_a_big_one():
    state = cluster([node("a", gpus=4), node("b", gpus=4)], [Queue("q")], groups=[Group("ns", "big", 2, "q")], patience=600.0)
    number, ends, started = 0, [], None
    for now in range(0, int(8 * HOUR), 60):
        ends.sort()
        while ends and ends[0][0] <= now:
            state.remove_pod(ends.pop(0)[1])
        for _ in range(2):
            state.upsert_pod(pod(f"small-{number}", queue="q", created=float(now)))
            number += 1
        if now == HOUR:
            for i in range(2):
                state.upsert_pod(pod(f"big-{i}", queue="q", group="big", gpus=4, created=float(now)))
        for name in start(state, float(now)):
            if name.startswith("big"):
                started = now
            ends.append((now + 600, f"uid-{name}"))
        invariants.check(state)
        if started is not None:
            break
    assert started is not None, "it starves"
    assert started <= HOUR + 600 + 700, "its patience, and what ran then"


def test_others_run_there_meanwhile_if_they_end_in_time_or_take_the_rest():
    state = cluster([node("a", gpus=4), node("b", gpus=8)], [Queue("q")], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=2, at="a", time_limit=HOUR, started=0.0))
    state.upsert_pod(pod("longer", queue="q", gpus=7, at="b", time_limit=9 * HOUR, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=4, created=1.0))
    state.upsert_pod(pod("short", queue="q", gpus=2, created=2.0, time_limit=HOUR / 2))
    state.upsert_pod(pod("endless", queue="q", gpus=2, created=3.0))
    assert start(state, 10.0) == {"short": "a"}, "it is gone when the big one begins"
    assert kept(state) == {"pod/uid-big": (["a"], HOUR)}
    decided = run(state, 11.0)
    assert refused(decided) == {}, "told already"
    # A job that comes now: on b nothing is reserved, so what fits there starts whatever its length.
    state.upsert_pod(pod("small", queue="q", gpus=1, created=20.0))
    assert start(state, 20.0) == {"small": "b"}
    state.remove_pod("uid-short")
    state.upsert_pod(pod("another", queue="q", gpus=1, created=30.0))
    decided = run(state, 30.0)
    assert placed(decided) == {}
    reason = refused(decided)["another"]
    assert reason.code == "Reservation"
    assert "reserved for pod/ns/big, which starts in about 3570 s; the run time of this pod is unknown" in reason.message
    state.remove_pod("uid-long")
    assert start(state, 40.0) == {"big": "a"}, "sooner than was thought"
    assert set(kept(state)) == {"pod/uid-endless"}, "the next in line"
    invariants.check(state)


def test_capacity_left_at_the_start_is_free_for_all():
    state = cluster([node("a", gpus=8)], [Queue("q")], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=5, at="a", time_limit=HOUR, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=6, created=1.0))
    for i in range(3):
        state.upsert_pod(pod(f"endless-{i}", queue="q", created=2.0 + i))
    assert set(start(state, 10.0)) == {"endless-0", "endless-1"}, "two of eight are over when the big one runs"
    state.remove_pod("uid-long")
    assert start(state, 20.0) == {"big": "a"}
    invariants.check(state)


def test_who_is_not_bound_by_a_reservation():
    state = cluster([node("a", gpus=4)], [Queue("q"), Queue("first", priority=5)], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=2, at="a", time_limit=HOUR, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=4, created=1.0))
    start(state, 2.0)
    state.upsert_pod(pod("equal", queue="q", created=3.0))
    state.upsert_pod(pod("better", queue="q", created=4.0, priority=1))
    state.upsert_pod(pod("band", queue="first", created=5.0))
    assert set(start(state, 6.0)) == {"better", "band"}


def test_a_missed_start_is_planned_anew_without_letting_go():
    state = cluster([node("a", gpus=4), node("b", gpus=4)], [Queue("q")], groups=[Group("ns", "big", 2, "q")], patience=0.0)
    state.upsert_pod(pod("one", queue="q", gpus=1, at="a", expected=HOUR, started=0.0))
    state.upsert_pod(pod("two", queue="q", gpus=1, at="b", expected=HOUR, started=0.0))
    for i in range(2):
        state.upsert_pod(pod(f"big-{i}", queue="q", group="big", gpus=4, created=1.0))
    start(state, 2.0)
    assert kept(state) == {"gang/ns/big": (["a", "b"], HOUR)}
    state.upsert_pod(pod("small", queue="q", created=3.0))
    assert start(state, HOUR + 5) == {}
    ((rows, begins),) = kept(state).values()
    assert rows == ["a", "b"]
    assert begins > HOUR + 5
    # The gang is made a unit anew: what is kept stays kept.
    state.upsert_group(Group("ns", "big", 2, "q", expected=60.0))
    assert start(state, HOUR + 6) == {}
    assert set(kept(state)) == {"gang/ns/big"}
    # It leaves: others may have it at once.
    for i in range(2):
        state.remove_pod(f"uid-big-{i}")
    assert start(state, HOUR + 7) == {"small": "a"}
    assert not state.reserved.holds


def test_nodes_come_and_go_under_a_reservation():
    state = cluster([node("a", gpus=4), node("b", gpus=8)], [Queue("q")], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=2, at="a", time_limit=HOUR, started=0.0))
    state.upsert_pod(pod("longer", queue="q", gpus=8, at="b", time_limit=9 * HOUR, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=4, created=1.0))
    start(state, 2.0)
    assert kept(state) == {"pod/uid-big": (["a"], HOUR)}
    state.remove_node("a")
    start(state, 3.0)
    assert kept(state) == {"pod/uid-big": (["b"], 9 * HOUR)}
    state.upsert_node(node("c", gpus=4))
    assert start(state, 4.0) == {"big": "c"}
    assert not state.reserved.holds
    invariants.check(state)


def test_run_times_are_learned_and_plan_without_killing():
    state = cluster([node("a", gpus=8)], [Queue("q")])
    for i in range(6):
        state.upsert_pod(pod(f"old-{i}", queue="q", user="ann", at="a", started=0.0))
        run(state, 100.0 * (i + 1))
        state.remove_pod(f"uid-old-{i}")
    state.upsert_pod(pod("next", queue="q", user="ann"))
    state.upsert_pod(pod("bobs", queue="q", user="bob"))
    state.upsert_pod(pod("wide", queue="q", user="ann", gpus=4))
    totals = {name: state.runtimes.total(state.tasks[f"uid-{name}"]) for name in ("next", "bobs", "wide")}
    assert totals == {"next": 400.0, "bobs": 400.0, "wide": 400.0}
    start(state, 700.0)
    task = state.tasks["uid-next"]
    task.started = 0.0
    assert state.runtimes.remaining(task, 150.0) == 250.0, "the median of those that ran longer"
    assert state.runtimes.remaining(task, 590.0) == 590.0, "too few did: as long again"
    state.upsert_pod(pod("said", queue="q", user="ann", expected=50.0))
    assert state.runtimes.total(state.tasks["uid-said"]) == 50.0


def test_run_times_survive_a_restart():
    state = cluster([node("a", gpus=8)], [Queue("q"), Queue("other")])
    for i in range(30):
        state.upsert_pod(pod(f"old-{i}", queue="q", user="ann" if i % 3 else "bob", gpus=1 + i % 2, at="a", started=0.0))
        run(state, 100.0 * (i + 1))
        state.remove_pod(f"uid-old-{i}")
    assert state.runtimes.changed == {"q"}
    records = state.runtimes.written("q")
    assert {(each.user, each.devices, len(each.seconds)) for each in records} == {
        *(("ann", 1000, 10), ("ann", 2000, 10), ("bob", 1000, 5), ("bob", 2000, 5))
    }
    fresh = cluster([node("a", gpus=8)], [msgspec.structs.replace(Queue("q"), run_times=records), Queue("other")])
    asked = [pod("anns", queue="q", user="ann"), pod("bobs", queue="q", user="bob", gpus=2), pod("new", queue="q", user="eve")]
    asked += [pod("others", queue="other", gpus=2), pod("wide", queue="other", gpus=8)]
    for each in (state, fresh):
        for one in asked:
            each.upsert_pod(one)
    totals = [{name: each.runtimes.total(task) for name, task in each.tasks.items()} for each in (state, fresh)]
    assert totals[0] == totals[1]
    assert None not in totals[0].values()
    assert fresh.runtimes.written("q") == records
    # What it knows itself goes before what it wrote earlier and reads back.
    fresh.upsert_queue(msgspec.structs.replace(Queue("q"), run_times=(RunTimeRecord("ann", "", 1000, (5,) * 10),)))
    assert fresh.runtimes.written("q") == records


def test_of_run_times_the_latest_survive_and_no_more_than_a_status_holds():
    state = cluster([node("a", gpus=8)], [Queue("q")])
    for i in range(90):
        state.upsert_pod(pod(f"old-{i}", queue="q", user=f"u{i % 60}", at="a", started=0.0))
        run(state, 10.0 * (i + 1))
        state.remove_pod(f"uid-old-{i}")
    records = state.runtimes.written("q")
    assert len(records) == 50
    assert (records[-1].user, records[-1].seconds) == ("u29", (300, 900))
    assert "u30" not in {each.user for each in records}


WINDOW = Reservation("upgrade", 10 * HOUR, 12 * HOUR, nodes=(Requirement("rack", "In", ("1",)),))


@pytest.mark.parametrize(("limit", "starts"), [(HOUR, True), (2 * HOUR, True), (2.5 * HOUR, False), (4.5 * HOUR, False)])
def test_nothing_starts_that_may_run_when_a_window_begins_though_it_would_end_within_it(limit, starts):
    state = cluster([node("n", labels={"rack": "1"})])
    state.upsert_reservation(WINDOW)
    state.upsert_pod(pod("p", time_limit=limit))
    assert bool(placed(run(state, 8 * HOUR))) == starts, "it begins in two hours and ends in four"


def test_maintenance_begins_on_empty_nodes_because_of_time_limits_and_no_pod_is_evicted():
    state = cluster([node("a", gpus=4, labels={"rack": "1"}), node("b", gpus=1)], [Queue("q")], share_wait=0.0)
    state.upsert_class(ServiceClass("short", time_limit=HOUR))
    state.upsert_reservation(WINDOW)
    state.upsert_pod(pod("endless", queue="q", user="x", gpus=2))
    state.upsert_pod(pod("short", queue="q", gpus=2, service_class="short"))
    state.upsert_pod(pod("expected", queue="q", gpus=2, expected=60.0))
    decided = run(state, 0.0)
    confirm(state, decided)
    assert placed(decided) == {"short": "a"}
    assert {name: reason.code for name, reason in refused(decided).items()} == {
        "endless": "Reservation",
        "expected": "Reservation",
    }
    assert "this pod has no time limit" in refused(decided)["endless"].message
    assert state.timers.of("reservations") == 10 * HOUR
    state.upsert_pod(pod("late", queue="q", gpus=2, service_class="short"))
    assert start(state, 8.5 * HOUR) == {"late": "a"}
    state.upsert_pod(pod("later", queue="q", gpus=4, service_class="short"))
    assert start(state, 9.5 * HOUR) == {}
    assert start(state, 11 * HOUR) == {}
    state.remove_pod("uid-late")
    state.remove_pod("uid-short")
    assert start(state, 11.5 * HOUR) == {}
    assert set(start(state, 12 * HOUR)) == {"endless", "expected"}
    # It is withdrawn, or moved: units that waited for it are tried again.
    state.upsert_reservation(msgspec.structs.replace(WINDOW, start=20 * HOUR, end=21 * HOUR))
    for name in ("endless", "expected"):
        state.remove_pod(f"uid-{name}")
    assert start(state, 13 * HOUR) == {"later": "a"}
    state.remove_pod("uid-later")
    state.upsert_pod(pod("free", queue="q", gpus=2))
    assert start(state, 13 * HOUR) == {}
    state.remove_reservation("upgrade")
    assert start(state, 13 * HOUR) == {"free": "a"}
    invariants.check(state)


def test_capacity_is_reserved_for_a_queue_and_no_more_than_requested():
    reservation = Reservation("course", HOUR, 3 * HOUR, queue="school", resources=(("nvidia.com/gpu", 6),))
    state = cluster(
        [node("a", gpus=4), node("b", gpus=4), node("c", gpus=4)], [Queue("school"), Queue("class", "school"), Queue("q")]
    )
    state.upsert_reservation(reservation)
    for i in range(3):
        state.upsert_pod(pod(f"other-{i}", queue="q", gpus=4))
    assert start(state, 0.0) == {"other-0": "c"}
    state.upsert_pod(pod("lesson", queue="class", gpus=4))
    assert set(start(state, 2 * HOUR)) == {"lesson"}
    assert set(start(state, 3 * HOUR)) == {"other-1"}


def test_an_amount_is_reserved_only_on_nodes_that_have_some_of_it_and_again_once_more_nodes_do():
    reservation = Reservation("course", HOUR, 3 * HOUR, queue="school", resources=(("nvidia.com/gpu", 8),))
    state = cluster([node("a", gpus=0), node("b", gpus=4), node("c", gpus=0), node("d", gpus=4)], [Queue("school")])
    state.upsert_reservation(reservation)
    assert kept(state) == {"reservation/course": (["b", "d"], HOUR)}
    assert state.reserved.doubt("course") is None
    state.upsert_node(node("c", gpus=4))  # its device plugin has registered
    run(state, 1.0)
    assert kept(state) == {"reservation/course": (["b", "c"], HOUR)}
    version = state.reserved.version
    state.upsert_node(node("e", gpus=4))
    run(state, 2.0)
    assert state.reserved.version == version, "the same rows: nothing that is kept out is tried again"


def test_what_an_administrator_should_know_of_a_reservation():
    state = cluster([node("a", gpus=4, labels={"rack": "1"})], [Queue("school")])

    def doubt(**given):
        state.upsert_reservation(Reservation("r", HOUR, 3 * HOUR, **{"queue": "school", **given}))
        return state.reserved.doubt("r")

    assert doubt() is None
    assert doubt(queue="") is None
    assert doubt(queue="scool") == (False, "QueueNotFound", "queue 'scool' does not exist: no pod may use the nodes")
    nowhere = (Requirement("rack", "In", ("2",)),)
    assert doubt(nodes=nowhere) == (False, "NoNodes", "it selects no node: nothing is reserved")
    message = "no node that it selects has what it asks for: nothing is reserved"
    assert doubt(resources=(("nvidia.com/gpuu", 4),)) == (False, "NoNodes", message)
    assert doubt(resources=(("nvidia.com/gpu", 4),)) is None
    message = "the nodes that it selects have 4 nvidia.com/gpu of the 6 that it asks for"
    assert doubt(resources=(("nvidia.com/gpu", 6),)) == (True, "TooFewNodes", message)
    state.upsert_node(node("b", gpus=4))
    run(state, 1.0)
    assert state.reserved.doubt("r") is None
    doubt(nodes=nowhere)
    run(state, 3 * HOUR)
    assert state.reserved.doubt("r") is None, "it is over"
    state.remove_reservation("r")
    assert state.reserved.lacking == {}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 6), st.integers(1, 3), st.integers(0, 1), st.integers(1, 30)),
        min_size=1,
        max_size=40,
    ),
    st.integers(0, 3),
)
def test_whatever_comes_starts_in_the_end(jobs, reservations):
    """Every job starts once those before it have ended, and a pass after which nothing happened decides nothing."""
    state = cluster([node("n", gpus=6), node("m", gpus=6)], [Queue("a"), Queue("b")], reservations=reservations, patience=50.0)
    ends = []
    for number, (queue, gpus, members, priority, length) in enumerate(jobs):
        name = f"j{number}"
        size = min(members, 12 // gpus if gpus <= 3 else 2)
        more = {"expected": float(length)} if number % 2 else {}
        if size > 1:
            state.upsert_group(Group("ns", name, size, queue))
        for member in range(size):
            group = name if size > 1 else ""
            created = float(number * 5)
            state.upsert_pod(
                pod(f"{name}-{member}", queue=queue, gpus=gpus, group=group, priority=priority, created=created, **more)
            )
    now, lengths = 0.0, {f"j{number}": job[4] for number, job in enumerate(jobs)}
    for _ in range(400):
        for _ in range(30):
            decided = run(state, now)
            if not decided:
                break
            confirm(state, decided)
            invariants.check(state)
            for each in decided:
                for victim in getattr(each, "victims", ()):
                    old = state.tasks[victim.pod.uid].pod
                    state.remove_pod(old.uid)
                    state.upsert_pod(msgspec.structs.replace(old, node="", uid=f"{old.uid}+"))
        else:
            raise AssertionError("it never comes to rest")
        ends = [task for task in state.tasks.values() if task.row >= 0]
        if not state.tasks:
            return
        done = min(ends, key=lambda task: (lengths[task.pod.name.split("-")[0]], task.pod.uid), default=None)
        assert done is not None, "nothing runs and something waits"
        now += lengths[done.pod.name.split("-")[0]]
        mates = [task for task in ends if task.gang is not None and task.gang is done.gang] or [done]
        for task in mates:
            state.remove_pod(task.pod.uid)
    raise AssertionError("it does not end")


def test_victims_on_nodes_that_were_kept_are_taken_once_they_are_kept_no_longer():
    state = cluster([node("a", gpus=4, labels={"kept": "yes"}), node("b", gpus=4)], [Queue("q")], reservations=0)
    state.upsert_pod(pod("low", queue="q", gpus=4, at="a", started=0.0))
    state.upsert_pod(pod("equal", queue="q", gpus=4, at="b", priority=9, started=0.0))
    state.upsert_reservation(Reservation("later", HOUR, 2 * HOUR, (Requirement("kept", "In", ("yes",)),)))
    state.upsert_pod(pod("high", queue="q", gpus=4, priority=9, created=1.0))
    assert "Insufficient" in refused(run(state, 10.0))["high"].message, "nothing is free; what may fall is kept for others"
    assert run(state, 11.0) == []
    state.remove_reservation("later")
    assert preempted(run(state, 12.0)) == [["low"]]


def test_a_class_blocked_for_its_unknown_run_time_is_requeued_once_it_is_known():
    state = cluster([node("a", gpus=4), node("b", gpus=1)], [Queue("q")], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=2, at="a", time_limit=HOUR, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=4, created=1.0))
    state.upsert_pod(pod("unknown", queue="q", gpus=2, created=2.0))
    assert refused(run(state, 3.0))["unknown"].code == "Reservation"
    for i in range(6):
        begun = 10.0 + 20 * i
        state.upsert_pod(pod(f"small-{i}", queue="q", gpus=1, at="b", created=begun, started=begun))
        assert start(state, begun + 10.0) == {}, "b is too small for it, whoever ends there"
        state.remove_pod(f"uid-small-{i}")
        if "unknown" in start(state, begun + 11.0):
            return
    raise AssertionError("such jobs run for ten seconds, and it waits for an hour")


def test_who_ends_before_a_start_that_was_put_off_begins_at_once():
    state = cluster([node("a", gpus=4)], [Queue("q")], patience=0.0)
    state.upsert_pod(pod("long", queue="q", gpus=1, at="a", expected=HOUR, started=0.0))
    state.upsert_pod(pod("big", queue="q", gpus=4, created=1.0))
    state.upsert_pod(pod("medium", queue="q", created=2.0, time_limit=HOUR / 2))
    assert set(start(state, HOUR * 0.75)) == set(), "the big one is thought to begin before it would end"
    assert kept(state) == {"pod/uid-big": (["a"], HOUR)}
    assert start(state, HOUR + 5) == {"medium": "a"}, "what runs is late, by as long as it ran: nobody came or went"


def hopeless(**more):
    """Endless pods on every node, and a gang that needs all nodes whole, beside another queue."""
    state = cluster(
        [node(f"n{number}") for number in range(4)],
        [Queue("mal"), Queue("ann")],
        [pod(f"endless-{number}", queue=more.get("by", "ann"), at=f"n{number}", started=0.0) for number in range(4)],
        groups=[Group("ns", "big", 4, "mal")],
        patience=15.0,
    )
    for number in range(4):
        state.upsert_pod(pod(f"big-{number}", queue="mal", group="big", gpus=8, created=1.0))
    return state


def keeping(state, until, step=30.0):
    """For how many seconds of a time something is kept."""
    seconds, now = 0.0, 16.0
    while now < until:
        run(state, now)
        seconds += step if state.reserved.holds else 0.0
        now += step
    return seconds


def test_a_reservation_that_comes_to_nothing_is_given_up_with_growing_pauses():
    state = hopeless()
    first = keeping(state, HOUR)
    assert 0.0 < first < HOUR / 2
    state = hopeless()
    assert keeping(state, 24 * HOUR, step=60.0) < 4 * HOUR


def test_others_start_once_a_reservation_is_given_up():
    state = hopeless()
    run(state, 20.0)
    assert state.reserved.holds
    state.upsert_pod(pod("small", queue="ann", created=21.0))
    started, now = None, 21.0
    while started is None and now < HOUR:
        started = now if "small" in start(state, now) else None
        now = max(now + 1.0, state.next_due or now + 60.0)
    assert started is not None


def test_what_its_own_queue_keeps_out_reserves_against_that_queue_alone():
    state = hopeless(by="mal")
    run(state, 20.0)
    assert state.reserved.holds
    state.upsert_pod(pod("other", queue="ann", created=21.0))
    state.upsert_pod(pod("same", queue="mal", created=21.0))
    assert set(start(state, 21.0)) == {"other"}


def test_what_a_limit_keeps_out_reserves_nothing():
    state = hopeless()
    state.upsert_queue(Queue("mal", "", 0, (QueueResource("nvidia.com/gpu", None, 8_000),)))
    assert keeping(state, HOUR) == 0.0


def test_work_beyond_its_quota_keeps_nothing_from_work_within_its_own():
    state = hopeless()
    state.upsert_queue(Queue("vision", "", 0, (QueueResource("nvidia.com/gpu", 16_000, None),)))
    run(state, 20.0)
    assert state.reserved.holds
    state.upsert_pod(pod("v", queue="vision", gpus=4, created=21.0))
    assert set(start(state, 21.0)) == {"v"}


@pytest.mark.parametrize("sizes", [(4,), (2, 2), (1, 1, 2), (3, 1)])
def test_a_gang_within_its_guarantee_takes_what_is_reserved_for_a_lender_as_a_single_pod_does(sizes):
    """Its first members, once they have places, do not change whether the lender's hold gives way to the others."""
    queues = [queue_of("a", quota=4), queue_of("b", quota=4), queue_of("c", quota=0)]
    nodes = [node("n0", gpus=4), node("n1", gpus=4)]
    state = cluster(nodes, queues, groups=[group("big", 2, "b"), group("g", len(sizes), "a")])
    state.upsert_pod(pod("runs", queue="c", gpus=4, at="n0", expected=1000.0))
    for number in range(2):
        state.upsert_pod(pod(f"big-{number}", queue="b", group="big", gpus=4, created=1.0))
    run(state, 700.0)
    assert [hold.unit.gang.key for hold in state.reserved.of_units()] == ["ns/big"]
    for number, gpus in enumerate(sizes):
        state.upsert_pod(pod(f"g-{number}", queue="a", group="g", gpus=gpus, created=701.0))
    assert placed(run(state, 702.0)) == {f"g-{number}": "n1" for number in range(len(sizes))}


def test_what_is_weighed_holds_until_the_end_of_its_trial_and_again_after_one_within_it():
    queues = [queue_of("a", quota=4), queue_of("b", quota=4), queue_of("c", quota=0)]
    state = cluster([node("n0", gpus=4), node("n1", gpus=4)], queues, groups=[group("big", 2, "b")])
    state.upsert_pod(pod("runs", queue="c", gpus=4, at="n0", expected=1000.0))
    for number in range(2):
        state.upsert_pod(pod(f"big-{number}", queue="b", group="big", gpus=4, created=1.0))
    run(state, 700.0)
    state.upsert_pod(pod("mine", queue="a", gpus=4, created=701.0))
    state.begin(702.0)
    state.settle(702.0)
    state.queues.settle(702.0)
    task, reserved = state.tasks["uid-mine"], state.reserved
    (hold,) = reserved.of_units()
    assert reserved.against(task) == []
    with reserved.weighed(task.unit):
        state.queues.charge(task, 1, 0)
        with reserved.weighed(hold.unit):
            assert reserved.against(task) == [hold], "its queue holds all of its quota"
        assert reserved.against(task) == [], "as when its trial began"
    assert reserved.against(task) == [hold]

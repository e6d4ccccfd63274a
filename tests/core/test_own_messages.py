"""Every message about a unit is about itself: of its pending class others wait with other names, users and run times."""

import random
import re

import msgspec
import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.core import explain
from fairlead.core.model.groups import Group
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.transactions import Evict, Overdue, Refuse, Unread
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.explanations import explained, pending
from fairlead.scheduler.outputs import GroupStatus, QueueStatus
from tests.builders import cluster, confirm, group, node, pod, refused, run
from tests.core.worlds import World

NAMES = re.compile(r"\b(?:ns/)?((?:alike|p|g)\d+)(?:-\d+)?\b")
SPEAKS_OF_OTHERS = (ReasonCode.WAITING_FOR_VICTIMS, ReasonCode.NODE_CLOSED)
"""Codes whose messages name other pods on purpose: those whose end is waited for."""
RUNS = re.compile(r"this pod may run for (\d+) s")


def root(name):
    return re.sub(r"(-\d+)?\+*$", "", name)


def wrong(reason, mine):
    """What a message reports of others as if it were of these."""
    named = set(NAMES.findall(reason.message)) - mine
    if reason.code is ReasonCode.RESERVATION:
        holder = re.search(r"reserved for \w+/(\S+),", reason.message)
        assert holder is not None, reason.message
        keeper = root(holder[1].removeprefix("uid-").removeprefix("ns/"))
        assert keeper not in mine, f"{mine} waits since nodes are kept for itself: {reason.message}"
        named -= {keeper}
    return named if reason.code not in SPEAKS_OF_OTHERS else set()


def judged(decided):
    """The faults of all messages of a pass."""
    found = []
    for each in decided:
        if isinstance(each, Refuse | Evict | Unread) and each.reason is not None:
            refs = each.pods if isinstance(each, Refuse) else (each.pod,) if isinstance(each, Unread) and each.pod else ()
            refs = refs or tuple(victim.pod for victim in getattr(each, "victims", ()))
            for ref in refs:
                mine = {root(ref.name)} | ({root(each.group.partition("/")[2])} if each.group else set())
                if wrong(each.reason, mine):
                    found.append((ref.name, each.reason.message))
        elif isinstance(each, Overdue):
            found += [(each.pods[0].name, each.message)] if NAMES.search(each.message) else []
    return found


@pytest.mark.parametrize("seed", range(40))
def test_in_random_worlds_every_message_names_its_own_object(seed):
    world = World(seed, patience=0.0, reservations=3, gang_grace=20.0)
    for _ in range(60):
        world.disturb()
        assert judged(world.step(30.0)) == []
        state = world.state
        for node_ in state.queues.queues.values():
            for pending_class in node_.pending_classes.values():
                for unit in pending_class.units:
                    reason = pending_class.limited.get(unit.user) or pending_class.unschedulable
                    if reason is not None:
                        own = explain.own(state, unit, reason)
                        assert not wrong(own, {root(unit.key.partition("/")[2])}), own.message


def alike(seed, gangs):
    """A full cluster in which many of one pending class wait behind one for which nodes are kept. Expected run time by name."""
    rnd = random.Random(seed)
    state = cluster([node("a", gpus=8), node("b", gpus=8)], [Queue("q")], patience=0.0, reservations=3)
    for where, gpus, span in (("a", 4, 3600.0), ("b", 8, 36_000.0)):
        state.upsert_pod(pod(f"runs-{where}", queue="q", gpus=gpus, at=where, time_limit=span, started=0.0, user="old"))
    state.upsert_pod(pod("big", queue="q", gpus=8, created=-1.0, user="u"))
    spans = {}
    for number in range(8):
        name, span = f"alike{number}", float(rnd.choice([0, 5000, 9000, 16000]))
        spans[name] = span
        if gangs:
            state.upsert_group(msgspec.structs.replace(group(name, 2, "q"), expected=span, time_limit=span))
        for member in range(2 if gangs else 1):
            more = {"group": name} if gangs else {"expected": span, "time_limit": span}
            state.upsert_pod(pod(f"{name}-{member}", queue="q", gpus=2, created=float(number), user=f"u{number % 3}", **more))
    return state, spans


@pytest.mark.parametrize("gangs", [False, True], ids=["pods", "gangs"])
@pytest.mark.parametrize("seed", range(20))
def test_run_times_are_its_own_and_no_unit_waits_for_its_own_reservation(seed, gangs):
    state, spans = alike(seed, gangs)
    reserved = 0
    for now in (10.0, 20.0, 400.0):
        decided = run(state, now)
        confirm(state, decided)
        assert judged(decided) == []
        for name, reason in refused(decided).items():
            if reason.code is ReasonCode.RESERVATION:
                reserved += 1
                said = RUNS.search(reason.message)
                assert (float(said[1]) if said else 0.0) == spans[root(name)], (name, reason.message)
    assert reserved, "nodes are reserved for the big one"
    pending_classes = {
        id(task.unit.pending_class) for task in state.tasks.values() if task.unit is not None and task.pod.name != "big"
    }
    assert len(pending_classes) == 1, "they share a pending class"
    # Nor is it reported in answers, in statuses and in lists.
    for task in state.tasks.values():
        if task.unit is not None:
            told = explained(state, [task], task.gang, "x", 400.0, None)
            mine = root(task.pod.name)
            others = set(NAMES.findall(told.message or "")) - {mine}
            assert not others or told.code == "Reservation", told.message
            if told.code == "Reservation":
                assert f"/{mine}," not in told.message
                assert f"uid-{mine}-0," not in told.message


def test_statuses_of_groups_and_queues_and_the_list_of_pending_jobs_name_their_own():
    outputs = []
    core = CoreLoop(Policy(patience=9e9), outputs.extend)
    from fairlead.cluster.port import Synced, Upsert

    events = [Upsert(node("n", gpus=4)), Upsert(Queue("q")), Upsert(Queue("r"))]
    for number in range(6):
        where = "qr"[number % 2]
        events.append(Upsert(Group("ns", f"alike{number}", 3, where)))
        events += [
            Upsert(pod(f"alike{number}-{member}", queue=where, group=f"alike{number}", gpus=2, created=float(number)))
            for member in range(3)
        ]
    core.apply([*events, Synced()], 100.0)
    core.decide(100.0)
    core.decide(120.0)
    groups = {each.group: each.reason for each in outputs if isinstance(each, GroupStatus) and each.reason is not None}
    assert len(groups) == 6
    for key, reason in groups.items():
        assert set(NAMES.findall(reason.message)) == {key.partition("/")[2]}
    for each in outputs:
        if isinstance(each, QueueStatus) and each.reason is not None:
            assert NAMES.findall(each.reason.message)[0] in {"q": "alike0", "r": "alike1"}[each.queue]
    for job in pending(core, "ns"):
        assert set(NAMES.findall(job.message)) <= {job.name}

"""One unit's failure affects only that unit: an exception at any call that serves it leaves all others as if it did not exist.

The sites are found by tracing: every function of the core that is entered while the unit is served. At each of them an exception
is raised on the first, a middle and the last entry, in worlds of all kinds.
"""

import inspect
import random
import sys
from collections import Counter
from functools import partial

import msgspec
import pytest

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.api.reasons import ReasonCode
from fairlead.core import invariants
from fairlead.core.actions import assume, kept_places, requeue, serve
from fairlead.core.actions import reserve as reserve_module
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import AffinityTerm, ClaimUse, SpreadConstraint
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Fault, Place, Preempt
from fairlead.core.nodes.storage import BINDS_LATE, Claim, StorageClass, Volume
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.queues.queue_node import PendingClass
from fairlead.core.queues.users import UserAmounts
from fairlead.core.state.isolation import Isolation
from fairlead.core.state.pending import Pending
from fairlead.core.state.recovery import StateRecovery
from fairlead.core.state.snapshot import snapshot
from tests.builders import GIB, GPU, cluster, confirm, group, node, pod, queue, run, spec

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
POISON = "poison"
NOW = 1000.0


def nodes(count, gpus=8, **more):
    return [node(f"n{i}", gpus=gpus, labels={HOST: f"n{i}", ZONE: f"z{i % 2}"}, **more) for i in range(count)]


def near(key, app):
    return AffinityTerm(key, (Requirement("app", "In", (app,)),), ("ns",), None)


def labelled(made, app):
    return msgspec.structs.replace(made, labels=(("app", app),))


def wishing(gpus=1, **wishes):
    return msgspec.structs.replace(spec(gpus=gpus), **wishes)


def others(count=4, created=50.0, **more):
    """Innocent pods, some of which come before the unit, some after."""
    return [pod(f"other-{i}", created=created + 20.0 * i, **more) for i in range(count)]


# Each world: (state without the unit, the unit's pods, the pods that wait beside it). The unit's pods are named poison-*.


def singles():
    return cluster(nodes(3)), [pod("poison-0", gpus=3, created=80.0)], others()


def a_gang():
    members = [pod(f"poison-{i}", gpus=4, group=POISON, created=80.0) for i in range(3)]
    return cluster(nodes(3), groups=[group(POISON, 3)]), members, others()


def a_gang_of_two_shapes():
    members = [pod(f"poison-{i}", gpus=1 + i, group=POISON, created=80.0) for i in range(3)]
    return cluster(nodes(3), groups=[group(POISON, 2)]), members, others()


def no_room():
    state = cluster(nodes(2, gpus=2), patience=0.0)
    return state, [pod("poison-0", gpus=9, created=80.0)], others(6)


def a_gang_without_room():
    members = [pod(f"poison-{i}", gpus=8, group=POISON, created=80.0) for i in range(3)]
    busy = [pod("busy", gpus=8, at="n0", started=0.0, expected=5000.0)]
    return cluster(nodes(3), pods=busy, groups=[group(POISON, 3)], patience=0.0), members, others()


def preempting():
    low = [pod(f"low-{i}", gpus=4, priority=0, at=f"n{i // 2}", controlled=True) for i in range(4)]
    state = cluster([*nodes(2), node("small", gpus=4)], pods=low)
    return state, [pod("poison-0", gpus=8, priority=9, created=80.0)], others(4)


def a_gang_that_preempts():
    low = [pod(f"low-{i}", gpus=8, at=f"n{i}", group="low") for i in range(2)]
    state = cluster([*nodes(2), node("small", gpus=4)], pods=low, groups=[group("low", 2), group(POISON, 2)])
    return state, [pod(f"poison-{i}", gpus=8, priority=9, group=POISON, created=80.0) for i in range(2)], others(4)


def reclaiming():
    queues = [queue("mine", quota=8), queue("theirs", quota=8), queue("beside")]
    theirs = [pod(f"theirs-{i}", "theirs", gpus=8, at=f"n{i}", controlled=True) for i in range(2)]
    state = cluster([*nodes(2), node("small", gpus=4)], queues, theirs)
    return state, [pod("poison-0", "mine", gpus=8, created=80.0)], others(3, queue="theirs")


def consolidating():
    held = [pod(f"held-{i}-{j}", gpus=1, at=f"n{i}", controlled=True, started=0.0) for i in range(4) for j in range(3)]
    state = cluster(nodes(4, gpus=4), [Queue("default")], held, moves_per_minute=60, move_patience=0.0, reservations=0)
    return state, [pod("poison-0", gpus=2, created=80.0)], [pod("other-0", gpus=0, created=900.0), pod("other-1", gpus=9)]


def suspending():
    low = [
        pod(f"low-{i}", gpus=4, at=f"n{i // 2}", service_class="batch", owner="uid-job", root="batch/v1/Job/low", started=0.0)
        for i in range(4)
    ]
    state = cluster([*nodes(2), node("small", gpus=4)], patience=9e9)
    state.upsert_class(ServiceClass("batch", mode="Suspend", grace=60))
    for each in low:
        state.upsert_pod(each)
    return state, [pod("poison-0", gpus=8, priority=9, created=80.0)], others(4)


def elastic():
    members = [pod(f"poison-{i}", group=POISON, elastic=i > 0, never_preempts=i > 0, created=80.0) for i in range(3)]
    return cluster(nodes(2, gpus=4), groups=[Group("ns", POISON, 1)]), members, others(4)


def as_upstream():
    low = [pod(f"low-{i}", gpus=4, at=f"n{i // 2}") for i in range(4)]
    state = cluster([*nodes(2), node("small", gpus=4)], pods=low)
    return state, [pod("poison-0", gpus=8, priority=9, created=80.0, profile=KUBERNETES_PROFILE)], others(4)


def volumes():
    state = cluster(nodes(3))
    for item in (StorageClass("local", "kubernetes.io/no-provisioner", BINDS_LATE), StorageClass("made", "csi", BINDS_LATE)):
        state.upsert_storage(item)
    for i in range(3):
        on = (SelectorTerm((Requirement(HOST, "In", (f"n{i}",)),)),)
        state.upsert_storage(Volume(f"v{i}", "local", 10 * GIB, ("ReadWriteOnce",), available=True, nodes=on))
    for name in ("mine", "yours"):
        state.upsert_storage(Claim(f"ns/{name}", f"uid-{name}", "local", access_modes=("ReadWriteOnce",), size=5 * GIB))
    state.storage_known()
    mounts = [msgspec.structs.replace(spec(gpus=1), claims=(ClaimUse(f"ns/{name}"),)) for name in ("mine", "yours")]
    return state, [pod("poison-0", spec_=mounts[0], created=80.0)], [*others(2), pod("other-9", spec_=mounts[1], created=200.0)]


def neighbours():
    wishes = wishing(
        2,
        preferred_pods=((100, near(HOST, "cache")), (-50, near(ZONE, "web"))),
        pod_anti_affinity=(near(HOST, "web"),),
        spread=(SpreadConstraint(ZONE, 1, (Requirement("app", "In", ("web",)),)),),
    )
    there = [labelled(pod("cache", at="n1"), "cache"), labelled(pod("web", at="n0"), "web")]
    unit = [labelled(pod(f"poison-{i}", spec_=wishes, created=80.0), "web") for i in range(1)]
    beside = [labelled(pod("other-0", spec_=wishing(1, pod_affinity=(near(ZONE, "cache"),)), created=90.0), "cache")]
    return cluster(nodes(4), pods=there), unit, [*beside, *(labelled(each, "db") for each in others(3, created=100.0))]


def a_gang_that_keeps_together():
    wishes = wishing(4, pod_affinity=(near(ZONE, "gang"),))
    unit = [labelled(pod(f"poison-{i}", spec_=wishes, group=POISON, created=80.0), "gang") for i in range(3)]
    return cluster(nodes(4), groups=[group(POISON, 3)]), unit, others(3)


def parts_of_devices():
    return cluster(nodes(2)), [pod("poison-0", gpus=1, milli=300, created=80.0)], others(3, milli=500)


def limits():
    limited = Queue("default", "", 0, (QueueResource(GPU, 2000, 4000),), per_user=UserLimits(resources=((GPU, 3000),), running=9))
    state = cluster(nodes(2), [limited, queue("quota", quota=8)])
    state.upsert_class(ServiceClass("firm", mode="Never", borrows=False))
    unit = [pod("poison-0", gpus=2, user="eve", service_class="firm", created=80.0)]
    return state, unit, [*others(2, user="adam"), pod("other-8", "quota", created=90.0)]


def over_its_limit():
    state = cluster(nodes(2), [Queue("default", "", 0, (QueueResource(GPU, None, 4000),)), queue("beside")])
    return state, [pod("poison-0", gpus=5, created=80.0)], others(3)


def pools():
    amounts = (QueueResource(GPU, None, 4000, pool="h100"), QueueResource(GPU, 2000, None))
    labels = {"nvidia.com/gpu.product": "h100"}
    state = cluster(
        [node("h", labels=labels), node("a", labels={"nvidia.com/gpu.product": "a100"})], [Queue("default", "", 0, amounts)]
    )
    return state, [pod("poison-0", gpus=3, created=80.0)], others(3)


WORLDS = {
    made.__name__: made
    for made in (
        singles,
        a_gang,
        a_gang_of_two_shapes,
        no_room,
        a_gang_without_room,
        preempting,
        a_gang_that_preempts,
        reclaiming,
        consolidating,
        suspending,
        elastic,
        as_upstream,
        volumes,
        neighbours,
        a_gang_that_keeps_together,
        parts_of_devices,
        limits,
        over_its_limit,
        pools,
    )
}


class InjectedError(Exception):
    """Raised by the test, nowhere else."""


class Tap:
    """Watches the functions of the core that are entered while the unit is served; raises at one of them.

    at: (dotted name, which entry); None: only counts.
    """

    def __init__(self, monkeypatch, at=None):
        self.entered = Counter()
        self.at = at
        self.fired = False
        monkeypatch.setattr(serve, "_serve", partial(self._steps, serve._serve))

    def also(self, monkeypatch):
        """Watches other steps of a pass that are about the unit, too."""
        for name in ("_redeem", "_place_returned"):
            monkeypatch.setattr(kept_places, name, partial(self._steps, getattr(kept_places, name)))
        monkeypatch.setattr(requeue, "_check", partial(self._asks, requeue._check))
        for name in ("plan", "_qualifies"):
            monkeypatch.setattr(reserve_module, name, partial(self._asks, getattr(reserve_module, name)))
        settles = Pending._settle_gang
        monkeypatch.setattr(Pending, "_settle_gang", lambda *arguments: self._asks(settles, *arguments))
        return self

    def _asks(self, original, *arguments):
        if not is_poison(*arguments):
            return original(*arguments)
        sys.setprofile(self._profile)
        try:
            return original(*arguments)
        finally:
            sys.setprofile(None)

    def _steps(self, original, *arguments):
        serves = original(*arguments)
        if not is_poison(*arguments):
            yield from serves
            return
        while True:
            sys.setprofile(self._profile)
            try:
                made = next(serves, None)
            finally:
                sys.setprofile(None)
            if made is None:
                return
            yield made

    def _profile(self, frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("fairlead.core.") or module == "fairlead.core.state.isolation":
            return
        name = f"{module}.{frame.f_code.co_qualname}"
        if frame.f_code.co_flags & inspect.CO_GENERATOR and self.entered[name]:
            return  # it may be on its way to be closed, where nothing can be raised
        self.entered[name] += 1
        if self.at == (name, self.entered[name]) and not self.fired:
            self.fired = True
            raise InjectedError


def made_with(world, *, unit):
    state, mine, beside = WORLDS[world]()
    for each in sorted([*beside, *(mine if unit else ())], key=lambda each: each.created):
        state.upsert_pod(each)
    return state


def sites(monkeypatch, world):
    """(dotted name, entry): the first, a middle and the last entry of every function."""
    with monkeypatch.context() as patch:
        tap = Tap(patch)
        run(made_with(world, unit=True), NOW)
    return [(name, entry) for name, count in sorted(tap.entered.items()) for entry in sorted({1, (count + 1) // 2, count})]


def of_the_unit(each):
    names = [ref.name for ref in getattr(each, "pods", ())]
    names += [binding.pod.name for binding in (*getattr(each, "bindings", ()), *getattr(each, "beneficiaries", ()))]
    return any(name.startswith(POISON) for name in names)


def without_unit(snapshot):
    return {**snapshot, "tasks": {uid: told for uid, told in snapshot["tasks"].items() if POISON not in uid}}


def check(monkeypatch, world, at):
    """Everything that must hold when an exception comes at one site."""
    absent = made_with(world, unit=False)
    expected = run(absent, NOW)
    state = made_with(world, unit=True)
    with monkeypatch.context() as patch:
        tap = Tap(patch, at)
        decided = run(state, NOW)
    where = f"{world}: {at}"
    assert tap.fired, f"{where} was not reached"
    faults = [each for each in decided if isinstance(each, Fault)]
    assert faults, where
    assert state.log.depth == 0, where
    assert not state.log.entries, where
    invariants.check(state)
    if not any(isinstance(each, Place | Preempt) and of_the_unit(each) for each in decided):
        beside = [each for each in decided if not isinstance(each, Fault) and not of_the_unit(each)]
        assert beside == [each for each in expected if not isinstance(each, Fault)], where
        assert without_unit(snapshot(state)) == without_unit(snapshot(absent)), where
        mine = [task for task in state.tasks.values() if task.pod.name.startswith(POISON)]
        hit = [task for task in mine if task.state is TaskState.UNUSABLE]
        assert hit == mine, where
        assert all(task.reported is ReasonCode.INTERNAL_ERROR for task in hit), where
        assert {ref.uid for fault in faults for ref in fault.pods} >= {task.pod.uid for task in hit}, where
    caught = [error for each in state.isolation.caught for error in each.errors]
    assert any(isinstance(error, InjectedError) for error in caught), where
    return state, decided


@pytest.mark.parametrize("world", WORLDS)
def test_an_exception_at_any_call_that_serves_a_unit_is_that_units(monkeypatch, world):
    """A sample; all sites are behind the marker `slow`."""
    every = sites(monkeypatch, world)
    assert len(every) > 20
    for at in random.Random(world).sample(every, min(15, len(every))):
        check(monkeypatch, world, at)


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_an_exception_at_every_call_that_serves_a_unit_is_that_units(monkeypatch, world):
    for at in sites(monkeypatch, world):
        check(monkeypatch, world, at)


def later(monkeypatch, world, at=None):
    """A second pass, after capacity was freed; returns the tap, the state and what was decided."""
    state = made_with(world, unit=True)
    first = confirm(state, run(state, NOW))
    victims = [victim for each in first if isinstance(each, Preempt) for victim in each.victims]
    for victim in victims:
        state.remove_pod(victim.pod.uid)
    if not victims:
        state.upsert_node(node("late", gpus=16, labels={HOST: "late", ZONE: "z0"}))
    known = [name for name in sorted(state.queues.queues) if state.queues.tree.knows(name)]
    state.upsert_pod(pod("other-late", "default" if "default" in known else known[0], gpus=1, created=NOW))
    for gang in list(state.gangs.values()):
        state.tables.unsettle(gang)
    with monkeypatch.context() as patch:
        tap = Tap(patch, at).also(patch)
        decided = confirm(state, run(state, NOW + 200.0))
    return tap, state, decided


def check_later(monkeypatch, world, at):
    tap, state, decided = later(monkeypatch, world, at)
    where = f"{world}, later: {at}"
    assert tap.fired, where
    assert _told(decided) or any(isinstance(each, Fault) for each in decided), where
    assert not [name for name in _told(decided) if not name.startswith(POISON)], where
    assert not state.log.entries, where
    invariants.check(state)
    confirm(state, run(state, NOW + 201.0))
    mine = [task for task in state.tasks.values() if task.pod.name.startswith(POISON)]
    full = any(task.row >= 0 for task in mine) or world in ("no_room", "over_its_limit", "limits", "pools")
    assert full or state.tasks["uid-other-late"].row >= 0, where
    for seconds in (270.0, 271.0):
        assert not [each for each in confirm(state, run(state, NOW + seconds)) if isinstance(each, Fault)], where
        invariants.check(state)
    assert not any(task.state is TaskState.UNUSABLE for task in mine), where


def sites_later(monkeypatch, world):
    tap, _, _ = later(monkeypatch, world)
    return [(name, entry) for name, count in sorted(tap.entered.items()) for entry in sorted({1, (count + 1) // 2, count})]


@pytest.mark.parametrize("world", WORLDS)
def test_the_same_in_a_later_pass(monkeypatch, world):
    """Held places used, unschedulable classes requeued, gangs settled, reservations planned: a sample, all behind `slow`."""
    every = sites_later(monkeypatch, world)
    for at in random.Random(world).sample(every, min(8, len(every))):
        check_later(monkeypatch, world, at)


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_the_same_at_every_call_of_a_later_pass(monkeypatch, world):
    for at in sites_later(monkeypatch, world):
        check_later(monkeypatch, world, at)


@pytest.mark.parametrize("world", WORLDS)
def test_it_is_served_once_the_fault_is_gone(monkeypatch, world):
    """After the pause the unit gets what it would have got, or the reason that it would have been given."""
    every = sites(monkeypatch, world)
    for at in random.Random(world).sample(every, min(3, len(every))):
        state, decided = check(monkeypatch, world, at)
        confirm(state, decided)
        assert state.next_due is not None
        assert state.next_due <= NOW + 60.0
        again = run(state, NOW + 60.0)
        assert not [each for each in again if isinstance(each, Fault)]
        mine = [task for task in state.tasks.values() if task.pod.name.startswith(POISON)]
        assert all(task.reported is not ReasonCode.INTERNAL_ERROR or task.row >= 0 or task.unit for task in mine), at
        assert not any(task.state is TaskState.UNUSABLE for task in mine), at
        invariants.check(state)


# -- everything else of a pass that one object's data can reach ------------------------------------------


def breaks(monkeypatch, owner, name, about):
    """A function that raises for what `about` selects, after it has done its work."""
    original = getattr(owner, name)

    def broken(*arguments, **more):
        found = original(*arguments, **more)
        if about(*arguments):
            raise InjectedError
        return found

    monkeypatch.setattr(owner, name, broken)


def is_poison(*arguments):
    """Whether any of a call's arguments speaks of the unit."""
    found = False
    for each in arguments:
        if isinstance(each, Task):
            found = found or each.pod.name.startswith(POISON)
        elif isinstance(each, Unit | list | PendingClass | Gang):
            parts = each.units if isinstance(each, PendingClass) else each if isinstance(each, list) else each.tasks
            found = found or is_poison(*(parts.values() if isinstance(parts, dict) else parts))
    return found


def test_the_unit_that_makes_the_order_raise_is_found_and_set_aside(monkeypatch):
    state = made_with("singles", unit=True)
    breaks(monkeypatch, UserAmounts, "key", is_poison)
    decided = run(state, NOW)
    assert {ref.name for each in decided if isinstance(each, Fault) for ref in each.pods} == {"poison-0"}
    assert sorted(name for name in _placed(decided)) == [f"other-{i}" for i in range(4)]
    invariants.check(state)


def test_several_that_make_the_order_raise_are_all_found(monkeypatch):
    state = made_with("singles", unit=True)
    for number in range(1, 4):
        state.upsert_pod(pod(f"poison-{number}", gpus=1 + number, created=80.0))
    breaks(monkeypatch, UserAmounts, "key", is_poison)
    decided = run(state, NOW)
    assert _told(decided) == {f"poison-{number}" for number in range(4)}
    assert sorted(_placed(decided)) == [f"other-{i}" for i in range(4)]
    invariants.check(state)
    monkeypatch.undo()
    assert sorted(_placed(run(state, NOW + 60))) == [f"poison-{number}" for number in range(4)]
    invariants.check(state)


def _placed(decided):
    return [binding.pod.name for each in decided if isinstance(each, Place) for binding in each.bindings]


def _told(decided):
    return {ref.name for each in decided if isinstance(each, Fault) for ref in each.pods}


STEPS = {
    "a gang that becomes a unit": ("a_gang", Gang, "units"),
    "a room that is waked": ("no_room", requeue, "_check"),
    "a reservation that is planned": ("a_gang_without_room", reserve_module, "plan"),
    "a refusal": ("no_room", serve, "refuse"),
    "how a job stands": ("a_gang_without_room", reserve_module, "_qualifies"),
}


@pytest.mark.parametrize("step", STEPS)
def test_other_steps_fail_for_one_unit_alone(monkeypatch, step):
    world, owner, name = STEPS[step]
    state, absent = made_with(world, unit=True), made_with(world, unit=False)
    run(absent, NOW)
    if name == "_check":
        confirm(state, run(state, NOW))
        confirm(absent, run(absent, NOW))
        for each in (state, absent):
            each.upsert_node(node("late", gpus=1))
    breaks(monkeypatch, owner, name, is_poison)
    decided, expected = run(state, NOW + 1), run(absent, NOW + 1)
    assert {each.partition("-")[0] for each in _told(decided)} == {POISON}
    assert state.log.depth == 0
    invariants.check(state)
    if world != "a_gang_without_room":
        assert set(_placed(expected)) <= set(_placed(decided)) | {f"other-{i}" for i in range(9)}
    mine = [task for task in state.tasks.values() if task.pod.name.startswith(POISON)]
    assert all(task.state is TaskState.UNUSABLE and task.row < 0 for task in mine)
    monkeypatch.undo()
    run(state, NOW + 70)
    assert not any(task.state is TaskState.UNUSABLE for task in mine)
    invariants.check(state)


def test_a_place_that_is_held_is_given_up_when_redeeming_it_raises(monkeypatch):
    state = made_with("preempting", unit=True)
    state.policy = msgspec.structs.replace(state.policy, moves_per_minute=0)  # else a place is reserved for one that moves
    decided = run(state, NOW)
    (plan,) = [each for each in decided if isinstance(each, Preempt)]
    confirm(state, decided)
    for victim in plan.victims:
        state.remove_pod(victim.pod.uid)
    breaks(monkeypatch, kept_places, "_still_fits", lambda state, task: is_poison(task))
    again = run(state, NOW + 1)
    assert _told(again) == {"poison-0"}
    assert state.tasks["uid-poison-0"].row < 0
    invariants.check(state)
    monkeypatch.undo()
    assert _placed(run(state, NOW + 70)) == ["poison-0"]
    invariants.check(state)


def test_time_limits_of_others_are_enforced_and_its_own_is_not_forgotten(monkeypatch):
    running = [pod(f"{name}", at="n0", gpus=1, started=0.0, time_limit=100.0) for name in ("poison-0", "long", "poison-1")]
    state = cluster(nodes(1), pods=running)
    state.begin(1.0)
    breaks(monkeypatch, type(state.services.limits), "enforced", lambda _, task: is_poison(task))
    decided = run(state, NOW)
    assert [victim.pod.name for each in decided if isinstance(each, Evict) for victim in each.victims] == ["long"]
    assert any(each.site == "time-limits" for each in decided if isinstance(each, Fault))
    monkeypatch.undo()
    later = run(state, NOW + 61)
    assert {v.pod.name for each in later if isinstance(each, Evict) for v in each.victims} >= {"poison-0", "poison-1"}


def test_what_cannot_recover_is_cut_out(monkeypatch):
    """The recovery raises, too: the unit is taken out of the state's tables, and the pass goes on."""
    state = made_with("a_gang_that_preempts", unit=True)
    breaks(monkeypatch, assume, "assume", lambda state, unit, *_: is_poison(unit))
    monkeypatch.setattr(Isolation, "_widened", _boom)
    decided = run(state, NOW)
    assert _told(decided) == {"poison-0", "poison-1"}
    assert sorted(_placed(decided)) == [f"other-{i}" for i in range(4)]
    invariants.check(state)
    assert {type(error) for each in state.isolation.caught for error in each.errors} == {InjectedError}
    assert len(state.isolation.caught[0].errors) == 2


def test_at_the_worst_one_pass_is_given_up(monkeypatch):
    state = made_with("singles", unit=True)
    breaks(monkeypatch, serve, "allocate", lambda state, unit: is_poison(unit))
    monkeypatch.setattr(StateRecovery, "recount", _boom)
    monkeypatch.setattr(StateRecovery, "cut_out", _boom)
    with pytest.raises(InjectedError):
        run(state, NOW)
    monkeypatch.undo()
    state.isolation.half_applied()
    assert _told(run(state, NOW + 1)) == {"poison-0"}
    assert {uid for uid, task in state.tasks.items() if task.row >= 0} == {f"uid-other-{i}" for i in range(4)}
    invariants.check(state)
    assert _placed(run(state, NOW + 60)) == ["poison-0"]
    invariants.check(state)


def _boom(*_):
    raise InjectedError


@pytest.mark.parametrize("group_", [False, True])
def test_a_change_of_its_object_has_it_tried_at_once(monkeypatch, group_):
    world = "a_gang" if group_ else "singles"
    state = made_with(world, unit=True)
    with monkeypatch.context() as patch:
        breaks(patch, serve, "allocate", lambda state, unit: is_poison(unit))
        confirm(state, run(state, NOW))
        assert _told(run(state, NOW + 1)) == set(), "not before its pause is over"
    if group_:
        state.upsert_group(group(POISON, 2))
    else:
        state.upsert_pod(pod("poison-0", gpus=2, created=80.0))
    placed = _placed(run(state, NOW + 2))
    assert placed
    assert all(name.startswith(POISON) for name in placed)
    invariants.check(state)


def test_pauses_double_up_to_an_hour_and_begin_anew_after_a_while(monkeypatch):
    state = made_with("singles", unit=True)
    with monkeypatch.context() as patch:
        breaks(patch, serve, "allocate", lambda state, unit: is_poison(unit))
        now, pauses = NOW, []
        for _ in range(9):
            confirm(state, run(state, now))
            due = state.timers.of("isolation")
            pauses.append(round(due - now))
            now = due
    assert pauses == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert _placed(confirm(state, run(state, now))) == ["poison-0"]
    run(state, now + 7200.0)
    assert state.isolation._records == {}


def test_a_trial_that_was_not_ended_is_reported_and_what_is_freed_afterwards_is_noted():
    state = cluster([node("n", gpus=1)], pods=[pod("runs", gpus=1, at="n")])
    state.upsert_pod(pod("waits", gpus=1, created=1.0))
    run(state, NOW)
    state.log.mark()
    state.upsert_pod(pod("waits-too", gpus=1, created=2.0))
    faults = [each for each in run(state, NOW + 1) if isinstance(each, Fault)]
    assert len(faults) == 1
    assert faults[0].site == "trials"
    assert not [each for each in run(state, NOW + 2) if isinstance(each, Fault)]
    assert "uid-waits-too" in state.tasks, "what was done is kept"
    state.remove_pod("uid-runs")
    assert [each.bindings[0].pod.name for each in run(state, NOW + 3) if isinstance(each, Place)] == ["waits"]
    invariants.check(state)

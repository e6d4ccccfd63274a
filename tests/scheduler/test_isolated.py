"""What the core's loop contains: events, statuses, forecasts, snapshots, questions, and passes that fail as a whole."""

import asyncio

import pytest

from fairlead.api.reasons import ReasonCode
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.lease import Elector
from fairlead.cluster.port import Gone, Synced, Upsert
from fairlead.core import invariants
from fairlead.core.actions import serve
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.transactions import Fault, Place, Refuse
from fairlead.core.pods.tasks import TaskState
from fairlead.core.queues.lines import QueueLines
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.state.bound import BoundPods
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.in_flight import InFlight
from fairlead.core.state.leftovers import Leftovers
from fairlead.core.state.pending import Pending
from fairlead.core.state.placement import Placement
from fairlead.core.state.snapshot import snapshot
from fairlead.scheduler import app, core_loop, explanations, metrics_snapshot
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.counters import Counters
from fairlead.scheduler.decision_log import LogWriter, Player
from fairlead.scheduler.echoes import Echoes
from fairlead.scheduler.inline_core import InlineCore
from fairlead.scheduler.outputs import GroupStatus, QueueStatus, ReservationStatus, Trouble
from fairlead.scheduler.reports import expected_starts
from fairlead.scheduler.reports.groups import GroupReports
from fairlead.scheduler.reports.queues import QueueReports
from fairlead.scheduler.reports.reservations import ReservationReports
from fairlead.scheduler.standby import Standby
from tests.builders import group, node, pod, queue


class BoomError(Exception):
    """Raised by the test, nowhere else."""


def boom(*_, **__):
    raise BoomError


def loop(recorder=None, **policy):
    outputs = []
    core = CoreLoop(Policy(**policy), outputs.extend, recorder)
    core.apply([Upsert(node("n")), Synced()], 100.0)
    core.decide(100.0)
    return core, outputs


def of(outputs, kind):
    return [each for each in outputs if isinstance(each, kind)]


def placed(outputs):
    return {binding.pod.name for each in of(outputs, Place) for binding in each.bindings}


def breaking(monkeypatch, owner, name, about):
    """A method that raises, after it has done its work, for what `about` selects; returns what switches that off."""
    original = getattr(owner, name)
    on = [True]

    def broken(*arguments, **more):
        found = original(*arguments, **more)
        if on[0] and about(*arguments):
            raise BoomError
        return found

    monkeypatch.setattr(owner, name, broken)
    return lambda: on.__setitem__(0, False)


EVENTS = {
    "a pod that waits": (Pending, "wait", lambda state, task, **_: task.pod.name == "bad", pod("bad")),
    "a pod that is placed": (BoundPods, "place", lambda state, task: task.pod.name == "bad", pod("bad", at="n")),
    "a pod's amounts, half counted": (Placement, "assign", lambda state, task, *_: task.pod.name == "bad", pod("bad", at="n")),
    "a node": (ClusterState, "upsert_node", lambda state, made: made.name == "bad", node("bad")),
    "a queue": (ClusterState, "upsert_queue", lambda state, made: made.name == "bad", Queue("bad")),
    "a group": (ClusterState, "upsert_group", lambda state, made: made.name == "bad", group("bad", 2)),
}


@pytest.mark.parametrize("what", EVENTS)
def test_an_event_that_cannot_be_applied_affects_no_other(monkeypatch, what):
    owner, name, about, made = EVENTS[what]
    core, outputs = loop()
    core.apply([Upsert(Queue("default")), Upsert(pod("before", created=1.0))], 101.0)
    mend = breaking(monkeypatch, owner, name, about)
    core.apply([Upsert(made), Upsert(pod("after", created=2.0))], 102.0)
    core.decide(103.0)
    assert placed(outputs) >= ({"before", "after"} if made != pod("bad", at="n") else set())
    invariants.check(core.state)
    assert core.counters.faults["event"] >= 1
    assert of(outputs, Trouble)
    bad = core.state.tasks.get("uid-bad")
    if bad is not None:
        assert bad.pod.error.code is ReasonCode.INTERNAL_ERROR
    # It is tried again after a pause, on the clock of passes.
    mend()
    assert core.next_due <= 162.0
    core.decide(161.0)
    assert core._again
    core.decide(162.0)
    assert not core._again
    invariants.check(core.state)
    assert "bad" not in core.state.nodes.poisoned
    if bad is not None:
        assert core.state.tasks["uid-bad"].pod == made
        assert placed(outputs) >= {"before", "after"}
    if what == "a node":
        assert not core.state.nodes.poisoned
        core.apply([Upsert(pod("there", gpus=8, created=9.0)), Upsert(pod("here", gpus=8, created=9.0))], 163.0)
        core.decide(163.0)
        assert {"there", "here"} & placed(outputs)


@pytest.mark.parametrize(
    ("owner", "where"),
    [(Placement, "unassign"), (Placement, "part"), (InFlight, "gone"), (Leftovers, "release")],
)
def test_a_pod_that_goes_half_way_is_gone(monkeypatch, owner, where):
    core, outputs = loop()
    core.apply([Upsert(pod("goes", gpus=8, at="n")), Upsert(pod("waits", gpus=8))], 101.0)
    core.decide(101.0)
    assert placed(outputs) == set()
    mend = breaking(monkeypatch, owner, where, lambda *_: True)
    core.apply([Gone("pod", "uid-goes")], 102.0)
    mend()
    invariants.check(core.state)
    core.decide(103.0)
    assert placed(outputs) == {"waits"}


def test_a_newer_event_takes_the_place_of_one_that_is_to_be_tried_again(monkeypatch):
    core, outputs = loop()
    mend = breaking(monkeypatch, Pending, "wait", lambda state, task, **_: task.pod.name == "bad")
    core.apply([Upsert(pod("bad"))], 101.0)
    mend()
    core.apply([Upsert(pod("bad", gpus=2))], 102.0)
    assert not core._again
    core.decide(103.0)
    assert placed(outputs) == {"bad"}
    core.apply([Gone("pod", "uid-bad")], 104.0)
    invariants.check(core.state)


def test_pauses_double(monkeypatch):
    core, _ = loop()
    breaking(monkeypatch, Pending, "wait", lambda state, task, **_: task.pod.name == "bad")
    core.apply([Upsert(pod("bad"))], 1000.0)
    dues = []
    for _ in range(9):
        (again,) = core._again.values()
        dues.append(again.due)
        core.decide(again.due)
    assert [round(after - before) for before, after in zip([1000.0, *dues], dues, strict=False)] == [
        60, 120, 240, 480, 960, 1920, 3600, 3600, 3600,
    ]  # fmt: skip


def test_one_status_that_cannot_be_built_does_not_keep_the_others(monkeypatch):
    core, outputs = loop()
    core.apply([Upsert(queue(name, quota=1)) for name in ("a", "bad", "c")], 101.0)
    core.apply([Upsert(Reservation(name, 200.0, 300.0)) for name in ("ra", "rbad")], 101.0)
    core.apply([Upsert(group(name, 2)) for name in ("ga", "gbad")], 101.0)
    core.apply([Upsert(pod("p", queue="a")), Upsert(pod("m", group="ga")), Upsert(pod("w", group="gbad"))], 101.0)
    for reports, about in (
        (QueueReports, lambda _, made, now: made.name == "bad"),
        (ReservationReports, lambda _, given, now: given.name == "rbad"),
        (GroupReports, lambda _, key: key == "ns/gbad"),
    ):
        breaking(monkeypatch, reports, "_status", about)
    core.decide(120.0)
    assert {each.queue for each in of(outputs, QueueStatus)} == {"a", "c"}
    assert {each.reservation for each in of(outputs, ReservationStatus)} == {"ra"}
    assert {each.group for each in of(outputs, GroupStatus)} == {"ns/ga"}
    assert core.counters.faults["status"] == 3
    assert core.counters.failing == 0


@pytest.mark.parametrize(
    ("owner", "name", "site"), [(expected_starts, "forecast", "forecast"), (metrics_snapshot, "take", "snapshot")]
)
def test_forecasts_and_snapshots_fail_alone(monkeypatch, owner, name, site):
    core, outputs = loop(patience=0.0)
    core.snapshots.rest = 1.0
    monkeypatch.setattr(owner, name, boom)
    core.apply([Upsert(group("g", 2)), *(Upsert(pod(f"m{i}", group="g", gpus=8)) for i in range(2)), Upsert(pod("p"))], 101.0)
    core.decide(102.0)
    assert placed(outputs) == {"p"}
    assert of(outputs, GroupStatus)
    assert core.counters.faults == {site: 1}
    assert core.counters.failing == 0
    invariants.check(core.state)


def test_what_cannot_be_counted_is_decided_all_the_same(monkeypatch):
    core, outputs = loop()
    monkeypatch.setattr(Counters, "decided", boom)
    core.apply([Upsert(pod("p"))], 101.0)
    core.decide(102.0)
    assert placed(outputs) == {"p"}
    assert core.counters.faults == {"count": 1}


def test_a_question_that_raises_leaves_no_trace():
    core, outputs = loop()
    core.apply([Upsert(pod("p", gpus=8))], 101.0)

    def asks(asked):
        asked.state.log.mark()
        task = asked.state.tasks["uid-p"]
        asked.state.placement.assign(task, 0, ())
        raise BoomError

    before = snapshot(core.state)
    with pytest.raises(BoomError):
        core.answer(asks)
    assert core.state.log.depth == 0
    assert snapshot(core.state) == before
    core.decide(102.0)
    assert placed(outputs) == {"p"}


def test_a_unit_that_fails_is_said_and_logged(monkeypatch):
    core, outputs = loop()
    original = serve.allocate

    def allocate(state, unit):
        if unit.tasks[0].pod.name == "bad":
            raise BoomError
        return original(state, unit)

    monkeypatch.setattr(serve, "allocate", allocate)
    core.apply([Upsert(pod(name, created=number)) for number, name in enumerate(("a", "bad", "c"))], 101.0)
    core.decide(102.0)
    assert placed(outputs) == {"a", "c"}
    (fault,) = of(outputs, Fault)
    assert [ref.name for ref in fault.pods] == ["bad"]
    assert fault.reason.code is ReasonCode.INTERNAL_ERROR
    assert "BoomError" in fault.reason.message
    assert "retried in 60 s, or when its object changes" in fault.reason.message
    assert core.counters.faults == {"serve": 1}
    assert not of(outputs, Refuse), "it is said once"
    told = explanations.live(core, "pod", "ns", "bad", 110.0)
    assert (told.code, told.state) == ("InternalError", "Waiting")
    assert told.advice
    # Again: the pauses double; a change of its object is tried at once.
    core.decide(162.0)
    assert [each.reason.message.partition("retried in ")[2][:5] for each in of(outputs, Fault)] == ["60 s,", "120 s"]
    core.apply([Upsert(pod("bad", gpus=2, created=1.0))], 163.0)
    monkeypatch.setattr(serve, "allocate", original)
    core.decide(164.0)
    assert "bad" in placed(outputs)
    invariants.check(core.state)


def test_a_thousand_replicas_of_it_cost_three_faults(monkeypatch):
    core, outputs = loop()
    original = serve.allocate

    def allocate(state, unit):
        if unit.tasks[0].pod.name.startswith("bad"):
            raise BoomError
        return original(state, unit)

    monkeypatch.setattr(serve, "allocate", allocate)
    core.apply([Upsert(pod(f"bad-{number}", created=number, gpus=2)) for number in range(1000)], 101.0)
    core.apply([Upsert(pod("last", created=2000.0))], 101.0)
    core.decide(102.0)
    assert placed(outputs) == {"last"}
    assert len(of(outputs, Fault)) == 3
    assert sum(len(each.pods) for each in of(outputs, Fault)) == 1000
    assert all(task.state is TaskState.UNUSABLE for task in core.state.tasks.values() if task.pod.name != "last")


def test_passes_that_fail_as_a_whole_end_readiness_and_the_first_that_succeeds_restores_it(monkeypatch):
    core, outputs = loop()
    core.apply([Upsert(pod("p"))], 101.0)
    monkeypatch.setattr(core_loop, "schedule", boom)
    pauses = []
    for _ in range(8):
        with pytest.raises(BoomError):
            core.decide(102.0)
        pauses.append(round(core.pause(), 1))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert (core.counters.failed, core.counters.failing) == (8, 8)
    assert core.stale, "nothing was decided yet"
    monkeypatch.undo()
    core.decide(103.0)
    assert placed(outputs) == {"p"}
    assert (core.counters.failed, core.counters.failing, core.pause()) == (8, 0, 0.0)


class Ready:
    """As much of a scheduler as readiness asks."""

    def __init__(self, core):
        self.core = core
        self.client = Client(Config("http://nowhere"))
        self._standby = None
        self.elector = Elector(self.client, namespace="kube-system", name="fairlead-scheduler", healthy=lambda: True)

    _unready = app.Scheduler._unready
    _unfit = app.Scheduler._unfit


async def test_readiness_of_the_inline_core(monkeypatch):
    core = InlineCore(Policy(), lambda _: None, clock=lambda: 100.0, speed=1e6)
    ready = Ready(core)
    core.start()
    assert ready._unready()
    assert ready._unfit()
    ready.elector.waiting, ready._standby = True, Standby()
    assert (bool(ready._unready()), bool(ready._unfit())) == (True, True)  # it does not know the cluster yet
    ready._standby.take([Synced()])
    assert (bool(ready._unready()), ready._unfit()) == (True, "")
    ready.elector.waiting, ready._standby = False, None
    core.send([Upsert(node("n")), Synced()])
    core._pass()
    assert ready._unready() == ready._unfit() == ""
    monkeypatch.setattr(core_loop, "schedule", boom)
    for expected in (True, True, False):
        core._pass()
        assert (ready._unready() == "") is expected
    assert "3 passes failed" in ready._unready()
    monkeypatch.undo()
    core._pass()
    assert ready._unready() == ""
    core.stop()
    await asyncio.sleep(0)


def test_contained_faults_replay_byte_by_byte(monkeypatch, tmp_path):
    original = serve.allocate

    def allocate(state, unit):
        if unit.tasks[0].pod.name == "bad":
            raise BoomError(object())
        return original(state, unit)

    monkeypatch.setattr(serve, "allocate", allocate)
    breaking(monkeypatch, Pending, "wait", lambda state, task, **_: task.pod.name == "worse")
    with (tmp_path / "log").open("wb") as file:
        core, outputs = loop(LogWriter(file, Policy()))
        core.apply([Upsert(pod(name, created=number)) for number, name in enumerate(("a", "bad", "worse", "c"))], 101.0)
        for now in (102.0, 161.0, 162.5, 300.0, 400.0):
            core.decide(now)
    assert of(outputs, Fault)
    result = Player(tmp_path / "log").play()
    assert (result.identical, result.passes) == (True, 6)


def test_what_cannot_be_compared_is_applied_with_the_rest_of_its_batch(monkeypatch):
    core, outputs = loop()
    breaking(monkeypatch, Echoes, "is_echo", lambda _, event: isinstance(event, Upsert) and event.object.name == "bad")
    core.apply([Upsert(pod("bad")), Upsert(pod("good"))], 101.0)
    core.decide(102.0)
    assert placed(outputs) == {"bad", "good"}
    assert core.counters.faults == {"event": 1}


def test_what_cannot_be_recorded_ends_the_recording_and_nothing_else(monkeypatch, tmp_path):
    with (tmp_path / "log").open("wb") as file:
        core, outputs = loop(LogWriter(file, Policy()))
        monkeypatch.setattr(LogWriter, "observed", boom)
        core.apply([Upsert(pod("good"))], 101.0)
        core.decide(102.0)
    assert "good" in placed(outputs)
    assert core.counters.faults.get("recorder") == 1
    assert Player(tmp_path / "log").play().identical, "what was recorded before is whole"


def test_a_line_that_cannot_be_looked_at_still_leads_to_a_pass(monkeypatch):
    core, outputs = loop()
    core.apply([Upsert(pod("bad", created=1.0)), Upsert(pod("good", created=2.0))], 101.0)
    breaking(monkeypatch, QueueNode, "unit_key", lambda _, unit: unit.tasks[0].pod.name == "bad")
    first = QueueLines.first

    def asked_its_key(lines):
        unit = first(lines)
        return unit if unit is None or unit.pending_class.queue.unit_key(unit) else None

    monkeypatch.setattr(QueueLines, "first", asked_its_key)
    core.state.queues.waiting.order.touch_all()  # no head is remembered
    assert core.has_work
    core.decide(102.0)
    assert placed(outputs) == {"good"}
    assert [ref.name for each in of(outputs, Fault) for ref in each.pods] == ["bad"]
    assert not core.has_work
    monkeypatch.setattr(ClusterState, "next_due", property(boom))
    core.apply([Upsert(pod("later"))], 103.0)
    assert core.next_due is None or core.next_due > 0.0
    core.decide(104.0)
    assert placed(outputs) == {"good", "later"}

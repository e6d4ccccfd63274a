"""The core thread and the applier, with a scripted cluster."""

import asyncio
import random
import threading

import msgspec
import pytest

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.cluster.port import Allocated, BindFailed, Bound, EvictFailed, Gone, Outcome, Synced, Upsert
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.transport import Unreachable
from fairlead.core.model.policy import Policy
from fairlead.core.model.transactions import Binding, DeviceChoice, Evict, Place, PodRef, Preempt, Refuse, VolumeChoice
from fairlead.scheduler.app import stuck
from fairlead.scheduler.applier import Applier
from fairlead.scheduler.core_thread import CoreThread
from fairlead.scheduler.outputs import GroupStatus, Trouble
from fairlead.scheduler.writing.lines import EVENT, STATUS, URGENT, Lines
from tests.builders import group, node, pod


class Deliveries:
    """Collects what the core thread delivers; waits without sleeping."""

    def __init__(self):
        self.outputs = []
        self.changed = threading.Condition()

    def __call__(self, outputs):
        with self.changed:
            self.outputs += outputs
            self.changed.notify_all()

    def wait_for(self, kind, count=1):
        with self.changed:
            assert self.changed.wait_for(lambda: sum(isinstance(each, kind) for each in self.outputs) >= count, timeout=10)
            return [each for each in self.outputs if isinstance(each, kind)]


def start():
    deliveries = Deliveries()
    thread = CoreThread(Policy(), deliveries, clock=lambda: 100.0)
    thread.start()
    return thread, deliveries


def end(thread):
    thread.stop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(("back", "why"), [(0.0, ""), (59.0, ""), (7200.0, "the clock was set back by 7200 s")])
def test_a_core_whose_clock_is_set_back_far_must_begin_anew(back, why):
    clock, deliveries = [10_000.0], Deliveries()
    thread = CoreThread(Policy(), deliveries, clock=lambda: clock[0])
    thread.start()
    clock[0] = 20_000.0
    thread.send([Upsert(pod("p")), Upsert(node("n")), Synced()])
    deliveries.wait_for(Place)
    clock[0] -= back
    assert stuck(thread).startswith(why)
    assert bool(stuck(thread)) == bool(why)
    clock[0] = 20_000.0
    assert not stuck(thread), "it has made up for that"
    end(thread)


def test_nothing_is_decided_before_everything_is_known():
    thread, deliveries = start()
    thread.send([Upsert(pod("p")), Upsert(node("n"))])
    thread.send([Gone("pod", "nobody")])
    thread.send([Synced()])
    (place,) = deliveries.wait_for(Place)
    assert place.bindings[0].node == "n"
    assert isinstance(deliveries.outputs[0], Place)
    end(thread)


def test_one_bad_event_is_told_and_the_loop_goes_on(monkeypatch):
    thread, deliveries = start()
    real = thread.state.upsert_pod
    monkeypatch.setattr(thread.state, "upsert_pod", lambda each: 1 / 0 if each.name == "poison" else real(each))
    thread.send([Synced(), Upsert(node("n")), Upsert(pod("poison")), Upsert(pod("fine"))])
    deliveries.wait_for(Place)
    (trouble,) = deliveries.wait_for(Trouble)
    assert trouble.pod.name == "poison"
    assert thread.counters.errors == 1
    end(thread)


def test_a_failing_pass_does_not_end_the_thread(monkeypatch):
    thread, deliveries = start()
    real = thread.state.queues.waiting.next
    calls = []

    def flaky():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("boom")
        return real()

    monkeypatch.setattr(thread.state.queues.waiting, "next", flaky)
    thread.send([Synced(), Upsert(node("n")), Upsert(pod("p"))])
    deliveries.wait_for(Place)
    end(thread)


def test_group_status_is_told_when_it_changes():
    thread, deliveries = start()
    members = [pod(f"m{index}", group="g") for index in range(2)]
    thread.send([Upsert(group("g", 2)), *(Upsert(each) for each in members), Synced()])
    (waiting,) = deliveries.wait_for(GroupStatus)
    assert (waiting.phase, waiting.scheduled) == ("Pending", 0)
    thread.send([Upsert(node("n"))])
    deliveries.wait_for(Place)
    thread.send([Bound("uid-m0"), Bound("uid-m1")])
    done = deliveries.wait_for(GroupStatus, 2)[-1]
    assert (done.phase, done.scheduled, done.reason) == ("Scheduled", 2, None)
    end(thread)


class Script:
    """A cluster that records the order of writes and has scripted answers."""

    def __init__(self, answers=()):
        self.answers = dict(answers)
        self.writes = []

    def answer(self, what):
        self.writes.append(what)
        answer = self.answers.get(what, (Outcome.DONE, ""))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def bind(self, binding, epoch):
        await asyncio.sleep(0)
        return self.answer(("bind", binding.pod.name))

    async def bind_volumes(self, binding):
        await asyncio.sleep(0)
        return self.answer(("volumes", binding.pod.name))

    async def evict(self, ref, *, dry_run, grace=None):
        await asyncio.sleep(0)
        return self.answer(("dry" if dry_run else "evict", ref.name))

    async def nominate(self, ref, node, reason=None):
        self.answer(("nominate", ref.name, node))

    async def condition(self, ref, kind, reason, message):
        self.answer(("condition", ref.name, kind, message))

    async def refuse(self, ref, reason, **more):
        self.answer(("refuse", ref.name))

    async def group_status(self, key, status):
        self.answer(("group", key, status.scheduled))

    async def queue_status(self, queue, status):
        self.answer(("queue", queue, status.pending))

    async def event(self, regarding, reason, note, *, warning=False, action=""):
        self.answer(("event", getattr(regarding, "name", regarding), reason))


def ref(name):
    return PodRef(f"uid-{name}", "ns", name)


def binding(name):
    return Binding(ref(name), "n")


async def apply(script, *outputs, writers=2):
    reported = []
    applier = Applier(script, reported.extend, lambda: 1, writers=writers)
    task = asyncio.ensure_future(applier.run())
    applier.submit(list(outputs))
    while not (applier.idle and applier.outcomes.idle):
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return reported, applier


async def test_bindings_go_before_conditions_and_these_before_events():
    script = Script()
    reason = Reason(ReasonCode.RESOURCES, "full")
    await apply(script, Refuse((ref("w"),), reason), Place((binding("a"), binding("b")), ""), writers=1)
    assert [each[0] for each in script.writes] == ["bind", "bind", "refuse", "event", "event", "event"]


def test_no_write_waits_longer_than_half_a_minute_for_urgent_ones():
    async def story():
        loop = asyncio.get_running_loop()
        begun, done = loop.time(), []

        async def urgent():
            await asyncio.sleep(1.0)
            lines.enter(URGENT, urgent)  # there is always one more

        async def event():
            done.append(loop.time() - begun)

        lines = Lines(2, lambda: False)
        for _ in range(4):
            lines.enter(URGENT, urgent)
        lines.enter(EVENT, event)
        writers = asyncio.ensure_future(lines.run())
        await asyncio.sleep(60.0)
        writers.cancel()
        await asyncio.gather(writers, return_exceptions=True)
        assert done == [pytest.approx(31.0, abs=1.0)]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


class Claims(Script):
    """A cluster whose claims are written when it is said so, and whose devices are ready when it is."""

    def __init__(self):
        super().__init__()
        self.settle, self.ready = asyncio.Event(), asyncio.Event()

    async def allocate_claims(self, binding, settled):
        if binding.pod.name == "slow":
            await self.settle.wait()
            settled()
            await self.ready.wait()
        return Allocated(Outcome.DONE)


def test_events_wait_for_claims_that_are_written_and_not_for_devices_that_become_ready():
    """A pod is bound as soon as its claims are written: to the API server an event is as much work as each of these writes."""

    async def story():
        script = Claims()
        applier = Applier(script, lambda _: None, lambda: 1, writers=2)
        writers = asyncio.ensure_future(applier.run())
        choice = (DeviceChoice("ns/c", None),)
        applier.submit([Place(tuple(msgspec.structs.replace(binding(name), claims=choice) for name in ("fast", "slow")))])
        await asyncio.sleep(5.0)
        assert script.writes == [("bind", "fast")]
        script.settle.set()
        await asyncio.sleep(5.0)
        assert script.writes[1:] == [("event", "fast", "Scheduled")]
        script.ready.set()
        await asyncio.sleep(5.0)
        assert script.writes[2:] == [("bind", "slow"), ("event", "slow", "Scheduled")]
        writers.cancel()
        await asyncio.gather(writers, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


class Counted(Lines):
    """Counts how often a writer asks for work."""

    choices = 0

    def _choose(self):
        self.choices += 1
        return super()._choose()


@pytest.mark.parametrize("seed", range(20))
def test_everything_is_written_and_writers_are_called_only_for_what_they_may_do(seed):
    """Work of all lines enters at random while the core is busy at times."""

    async def story():
        draw = random.Random(seed)
        loop = asyncio.get_running_loop()
        busy, flying, most, done, entered = [False], [0], [0], [], 0
        lines = Counted(writers := draw.choice((1, 3, 64, 200)), lambda: busy[0])

        async def write():
            flying[0] += 1
            most[0] = max(most[0], flying[0])
            await asyncio.sleep(draw.choice((0, 0.001, 0.01)))
            flying[0] -= 1
            done.append(loop.time())

        task = asyncio.ensure_future(lines.run())
        for _ in range(draw.randrange(1, 20)):
            busy[0] = draw.random() < 0.5
            for _ in range(draw.choice((1, 5, 400))):
                lines.enter(draw.choice((URGENT, URGENT, STATUS, EVENT)), write)
                entered += 1
            await asyncio.sleep(draw.choice((0, 0.005, 0.1, 2)))
        busy[0] = False
        await asyncio.sleep(60)
        assert len(done) == entered
        assert lines.idle
        assert most[0] <= writers
        assert lines.choices <= 2 * entered + 3 * writers
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


def test_writers_rest_while_the_core_is_busy():
    async def story():
        async def write():
            done.append(1)

        done, busy = [], [True]
        lines = Counted(64, lambda: busy[0])
        task = asyncio.ensure_future(lines.run())
        await asyncio.sleep(0)
        for _ in range(1000):
            lines.enter(EVENT, write)
        await asyncio.sleep(20)
        assert not done
        assert lines.choices < 64 + 5
        busy[0] = False
        await asyncio.sleep(1)
        assert len(done) == 1000
        assert lines.choices < 64 + 5 + 1000 + 2 * 64
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())


async def test_outcomes_are_reported():
    script = Script({("bind", "b"): (Outcome.REFUSED, "no"), ("bind", "c"): (Outcome.GONE, "")})
    reported, applier = await apply(script, Place((binding("a"), binding("b"), binding("c")), ""))
    assert sorted(reported, key=lambda each: each.uid) == [Bound("uid-a"), BindFailed("uid-b", "no"), BindFailed("uid-c", "")]
    assert applier.counters.bound == 1


async def test_whatever_goes_wrong_with_a_write_the_core_is_told():
    wrong = ValueError("not an answer"), Unreachable("nobody there")
    for error in wrong:
        script = Script({("volumes", "a"): error, ("bind", "b"): error, ("evict", "v"): error, ("nominate", "high", "n"): error})
        mounting = msgspec.structs.replace(binding("a"), volumes=(VolumeChoice("ns/c", "disk"),))
        reported, _ = await apply(script, Place((mounting, binding("b")), ""), Preempt((binding("v"),), (binding("high"),)))
        told = {type(each): each.uid for each in reported if each.uid in {"uid-b", "uid-v"}}
        assert told == {BindFailed: "uid-b", EvictFailed: "uid-v"}
        assert [each.uid for each in reported if each.uid == "uid-a"] == ["uid-a"]
        assert ("bind", "a") not in script.writes
        assert all(str(error) in each.message for each in reported)


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (ReasonCode.TIME_LIMIT, "TimeLimit"),
        (ReasonCode.START_TIMEOUT, "StartTimeout"),
        (ReasonCode.GANG_INCOMPLETE, "GangIncomplete"),
        (ReasonCode.SUSPENDED, "SuspendTimedOut"),
        (ReasonCode.WAITING_FOR_VICTIMS, "GraceShortened"),
    ],
)
async def test_an_eviction_has_the_event_of_its_reason(code, event):
    """On the PodGroup of a gang, once; else on each pod."""
    script = Script()
    victims = (binding("a"), binding("b"))
    await apply(script, Evict(victims, "ns/g", Reason(code, "why")), writers=1)
    assert [each for each in script.writes if each[0] == "event"] == [("event", "ns/g", event)]
    script = Script()
    await apply(script, Evict(victims, "", Reason(code, "why")), writers=1)
    assert [each for each in script.writes if each[0] == "event"] == [("event", "a", event), ("event", "b", event)]


async def test_victims_go_only_if_all_may():
    plan = Preempt((binding("v1"), binding("v2")), (binding("high"),))
    script = Script()
    reported, _ = await apply(script, plan)
    assert [each[0] for each in script.writes[:5]] == ["dry", "dry", "nominate", "evict", "evict"]
    assert not reported
    script = Script({("dry", "v2"): (Outcome.REFUSED, "budget")})
    reported, applier = await apply(script, plan)
    assert not [each for each in script.writes if each[0] == "evict"]
    assert reported == [EvictFailed("uid-v2", "budget")]
    assert applier.counters.plans_released == 1


async def test_the_new_place_of_a_pod_that_moves_is_noted_before_it_is_evicted():
    plan = Preempt((binding("v1"), binding("v2")), (binding("high"),), moved=("uid-v2",), moved_to=("n7",))
    script = Script()
    await apply(script, plan)
    assert next(each for each in script.writes if each[0] in ("condition", "evict")) == ("condition", "v2", "MovesTo", "n7")
    script = Script({("condition", "v2", "MovesTo", "n7"): Unreachable("nobody there")})
    reported, _ = await apply(script, plan)
    assert [each[1] for each in script.writes if each[0] == "evict"] == ["v1", "v2"], "it moves all the same"
    assert not reported


async def test_group_statuses_of_one_moment_are_one_write():
    script = Script()
    await apply(script, *(GroupStatus("ns/g", "Pending", count, None) for count in range(3)))
    assert script.writes == [("group", "ns/g", 2)]


class Slow(Script):
    """The first write about something arrives after all that are sent while it is on its way."""

    def __init__(self):
        super().__init__()
        self.on_the_way = 0
        self.at_once = 0

    async def refuse(self, ref, reason, **more):
        first = not self.on_the_way
        self.on_the_way += 1
        self.at_once = max(self.at_once, self.on_the_way)
        for _ in range(20 if first else 1):
            await asyncio.sleep(0)
        self.on_the_way -= 1
        self.answer(("refuse", ref.name, reason.message))


async def test_what_is_said_last_about_a_pod_is_what_stays():
    slow, reported = Slow(), []
    applier = Applier(slow, reported.extend, lambda: 1, writers=4, write_events=False)
    task = asyncio.ensure_future(applier.run())
    for message in ("no such class", "not allowed", "full"):
        applier.submit([Refuse((ref("w"),), Reason(ReasonCode.RESOURCES, message))])
        for _ in range(5):
            await asyncio.sleep(0)
    while not applier.idle:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert slow.at_once == 1
    assert slow.writes == [("refuse", "w", "no such class"), ("refuse", "w", "full")]


async def test_a_pod_that_is_bound_is_not_said_to_wait_any_more():
    script = Script()
    applier = Applier(script, lambda _: None, lambda: 1, writers=1, write_events=False)
    applier.submit([Refuse((ref("w"),), Reason(ReasonCode.RESOURCES, "full"))])
    applier.submit([Place((binding("w"),), "")])
    task = asyncio.ensure_future(applier.run())
    while not applier.idle:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert script.writes == [("bind", "w")]


@pytest.mark.parametrize("then", ["it answers", "newer", "bound"])
def test_a_status_that_was_not_taken_is_written_again_unless_it_is_overtaken(then):
    answers = {("refuse", "w"): Unreachable("no answer"), ("group", "ns/g", 1): Unreachable("no answer")}
    script = Script(answers)

    async def story():
        applier = Applier(script, lambda _: None, lambda: 1, writers=2, write_events=False)
        task = asyncio.ensure_future(applier.run())
        applier.submit([Refuse((ref("w"),), Reason(ReasonCode.RESOURCES, "full")), GroupStatus("ns/g", "Pending", 1, None)])
        await asyncio.sleep(10.0)
        assert script.writes.count(("refuse", "w")) == script.writes.count(("group", "ns/g", 1)) == 4  # after 0, 1, 3, 7 s
        if then == "it answers":
            script.answers.clear()
        elif then == "newer":
            applier.submit([GroupStatus("ns/g", "Scheduled", 2, None)])
        else:
            applier.submit([Place((binding("w"),), "")])
        script.writes.clear()
        await asyncio.sleep(3600.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
    if then == "it answers":
        assert sorted(script.writes) == [("group", "ns/g", 1), ("refuse", "w")]
    elif then == "newer":
        assert ("group", "ns/g", 1) not in script.writes
        assert script.writes.count(("group", "ns/g", 2)) == 1
        assert script.writes.count(("refuse", "w")) > 50  # once a minute
    else:
        assert ("refuse", "w") not in script.writes


async def test_events_are_bounded(monkeypatch):
    monkeypatch.setattr("fairlead.scheduler.writing.events._MOST_EVENTS", 1)
    _, applier = await apply(Script(), Place(tuple(binding(f"p{index}") for index in range(6)), ""), writers=6)
    assert applier.counters.events_dropped > 0
    assert applier.counters.events + applier.counters.events_dropped == 6


async def test_an_event_that_is_said_again_while_it_waits_is_written_once_and_in_its_order():
    script = Script()
    notes = []

    async def event(regarding, reason, note, *, warning=False, action=""):
        notes.append((getattr(regarding, "name", regarding), reason, note))

    script.event = event
    applier = Applier(script, lambda _: None, lambda: 1, writers=4)
    for number in range(1000):  # nothing is written yet
        applier.submit([Refuse((ref("a"), ref("b")), Reason(ReasonCode.RESOURCES, f"full {number}"), "ns/g")])
        applier.events.put(ref("a"), "Preempted", "for c")
    applier.submit([Refuse((ref("b"),), Reason(ReasonCode.RESOURCES, "full again"))])
    applier.submit([Refuse((ref("a"),), Reason(ReasonCode.RESOURCES, "full again"))])
    assert applier.lines.length(EVENT) == 3
    task = asyncio.ensure_future(applier.run())
    while not applier.idle:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert sorted(notes, key=lambda each: each[0]) == [
        ("a", "Preempted", "for c"),
        ("a", "FailedScheduling", "full again"),
        ("b", "FailedScheduling", "full again"),
        ("ns/g", "FailedScheduling", "full 999"),
    ]
    assert applier.counters.events == 4
    assert applier.events.idle


async def test_events_of_a_pod_are_written_on_after_one_could_not_be():
    script = Script({("event", "a", "Preempted"): Unreachable("no answer")})
    applier = Applier(script, lambda _: None, lambda: 1, writers=4)
    applier.events.put(ref("a"), "Preempted", "for c")
    applier.events.put(ref("a"), "Rescheduled", "elsewhere")
    task = asyncio.ensure_future(applier.run())
    while not applier.idle:
        await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert script.writes == [("event", "a", "Preempted"), ("event", "a", "Rescheduled")]
    assert applier.events.idle


@pytest.mark.parametrize(
    ("said", "by_budget"),
    [
        ("Cannot evict pod as it would violate the pod's disruption budget.", True),
        ("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", True),
        ("the server does not answer", False),
    ],
)
def test_the_api_server_s_answer_to_an_eviction_is_read_at_the_port(said, by_budget):
    assert EvictFailed("uid", said).by_budget is by_budget

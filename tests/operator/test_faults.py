"""Exceptions raised by name at each place that one object's data reaches: the others are handled, and the operator goes on."""

import asyncio
import itertools

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.node_pool import NodePoolSpec
from fairlead.api.kinds.queue import QueueSpec
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.translate import Change
from fairlead.observability.store import History
from fairlead.operator import budgets, gangs, provisioning, recorder, suspensions, targets, upstream
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.node_intervals import NodeIntervals, NodeView
from fairlead.operator.accounting.observations import PodObserved
from fairlead.operator.accounting.owners import Owners
from fairlead.operator.faults import Faults, pause
from fairlead.operator.jobs import controller, hardware
from fairlead.operator.jobs.pods import PodSeen
from fairlead.operator.workloads.job import JOB
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import World
from tests.operator.observed import entries, pod
from tests.operator.worlds import events_on, in_a_world

BAD, GOOD = "vision/bad", "vision/good"


class Fault(Exception):
    """One that nothing expects."""


def first_kind(operator):
    return next(iter(operator.gangs._kinds.values()))


def named(kind, key):
    return f"{kind.api_version} {kind.plural} {key}"


HEARD = {
    "jobs.observed": (controller.Jobs, "_job_changed", lambda op: op.jobs.jobs_informer),
    "jobs.pods": (controller.Jobs, "_pod_changed", lambda op: op.jobs.pods_informer),
    "jobs.classes": (controller.Jobs, "_class_changed", lambda op: op.jobs.classes_informer),
    "nodes.observed": (hardware.Hardware, "_changed", lambda op: op.jobs.hardware.informer),
    "targets.observed": (targets.Targets, "_changed", lambda op: op.targets.informer),
    "suspensions.observed": (suspensions.Suspensions, "_observed", lambda op: op.suspensions.informer(JOB)),
    "gangs.observed": (gangs.Gangs, "_observed", lambda op: op.gangs._informer(first_kind(op))),
    "upstream.observed": (upstream.Upstream, "_observed", lambda op: op.upstream.informer),
    "provisioning.observed": (provisioning.Provisioning, "_groups_changed", lambda op: op.provisioning.groups),
    "provisioning.requests": (provisioning.Provisioning, "_requests_changed", lambda op: op.provisioning.requests),
}
LOOKS = {
    "jobs": (controller.Jobs, "_reconcile", lambda op: op.jobs.queue),
    "nodes": (hardware.Hardware, "_reconcile", lambda op: op.jobs.hardware.queue),
    "targets": (targets.Targets, "_reconcile", lambda op: op.targets.queue),
    "suspensions": (suspensions.Suspensions, "_reconcile", lambda op: op.suspensions.queue),
    "gangs": (gangs.Gangs, "_reconcile", lambda op: op.gangs.queue),
    "upstream": (upstream.Upstream, "_reconcile", lambda op: op.upstream.queue),
    "provisioning": (provisioning.Provisioning, "_reconcile", lambda op: op.provisioning.queue),
}


@pytest.mark.parametrize("site", HEARD)
def test_what_one_object_breaks_when_it_is_heard_of_is_not_the_others(site, monkeypatch):
    owner, method, informer = HEARD[site]
    seen = []

    def failing(*given):
        change = given[-1]
        seen.append(change.key)
        if change.key == BAD and seen.count(BAD) < 3:
            raise Fault(change.key)

    monkeypatch.setattr(owner, method, failing)

    async def story(_, operator):
        seen.clear()
        operator.faults.counts.clear()
        informer(operator).report([Change(BAD, None), Change(GOOD, None)])
        assert seen == [BAD, GOOD]
        assert operator.faults.counts == {site: 1}
        await asyncio.sleep(pause(1) + pause(2) + 1)
        assert seen == [BAD, GOOD, BAD, BAD], "it is tried again, later each time"
        assert operator.faults.counts == {site: 2}

    in_a_world(story)


@pytest.mark.parametrize("site", LOOKS)
def test_what_one_object_breaks_when_it_is_looked_at_is_not_the_others(site, monkeypatch):
    owner, method, queue = LOOKS[site]
    seen = []

    async def failing(_, key):
        seen.append(key)
        if BAD in key and len([each for each in seen if BAD in each]) < 3:
            raise Fault(key)

    monkeypatch.setattr(owner, method, failing)

    async def story(_, operator):
        seen.clear()
        operator.faults.counts.clear()
        kind = {"gangs": first_kind(operator), "suspensions": JOB}.get(site)
        keys = [named(kind, each) if kind is not None else each for each in (BAD, GOOD)]
        if site == "provisioning":  # its kind is not served here
            operator.idle = asyncio.create_task(queue(operator).run())
        for key in keys:
            queue(operator).add(key)
        await asyncio.sleep(0.1)
        assert seen == keys
        assert operator.faults.counts == {site: 1}
        await asyncio.sleep(pause(1) + pause(2) + 1)
        assert seen == [*keys, keys[0], keys[0]]

    in_a_world(story)


def test_a_job_that_fails_is_told_so_and_another_gets_its_pods(monkeypatch):
    before = controller.plan

    def failing(job, *given):
        if job.metadata.name == "bad":
            raise Fault("of its making")
        return before(job, *given)

    monkeypatch.setattr(controller, "plan", failing)

    async def story(world, operator):
        roles = [{"name": "worker", "template": {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}}]
        for name in ("bad", "good"):
            world.create(
                {"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": {"name": name}, "spec": {"roles": roles}}, "vision"
            )
        await asyncio.sleep(1.0)
        assert list(operator.jobs.cache.pods(GOOD)) == ["good-worker-0-0"]
        told = events_on(world, "bad")
        assert [(each["reason"], each["type"]) for each in told] == [("InternalError", "Warning")]
        assert "Fault: of its making" in (told[0].get("note") or told[0]["message"])
        assert b'fairlead_operator_faults_total{site="jobs"} 1.0' in await operator._render()

    in_a_world(story)


def test_jobs_that_cannot_be_measured_or_lose_a_node_badly_stop_no_others(monkeypatch):
    def windows(job):
        if job.metadata.name == "bad":
            raise Fault
        return (60.0,)

    monkeypatch.setattr(controller, "windows", windows)

    class Array:
        def observed(self, _):
            raise Fault

    async def story(_, operator):
        jobs = operator.jobs
        for name in ("bad", "good"):
            body = {"metadata": {"name": name, "namespace": "vision"}, "spec": {"roles": [{"name": "w", "template": {}}]}}
            jobs.jobs_informer.report([Change(f"vision/{name}", msgspec.convert(body, AIJob))])
        assert operator.faults.counts == {"jobs.idleness": 1}
        looked = []
        jobs._again = looked.append
        assert list(jobs._windows()) == [60.0]
        jobs._measured()
        assert looked == [GOOD]
        for key in (BAD, GOOD):
            jobs.cache.put_pod(key, f"{key}-pod", PodSeen(f"{key.partition('/')[2]}-pod", 0, "Running", "n"))
        jobs.arrays._runs = {BAD: ("", Array())}
        looked.clear()
        jobs._node_lost("n")
        assert looked == [BAD, GOOD]
        assert operator.faults.counts["jobs.nodes"] == 1

    in_a_world(story)


def test_a_part_that_fails_outside_of_any_object_is_begun_again():
    began = []

    async def story(_, operator):
        async def part():
            began.append(operator.client_time())
            if len(began) < 4:
                raise Fault
            await asyncio.Event().wait()

        operator.client_time = asyncio.get_running_loop().time
        task = asyncio.create_task(operator.faults.kept("gangs.watch", part))
        await asyncio.sleep(60.0)
        task.cancel()
        assert [round(b - a) for a, b in itertools.pairwise(began)] == [1, 2, 4]
        assert operator.faults.counts["gangs.watch"] == 3

    in_a_world(story)


# -- the history ---------------------------------------------------------------------------------


def kept(history):
    faults = []
    found = Accounting(history, report=lambda *fault: faults.append((fault[0], fault[1], type(fault[2]))))
    return found, faults


@pytest.mark.parametrize(("owner", "method"), [(Accounting, "_pod"), (Owners, "job_of"), (Accounting, "_read")])
def test_accounting_leaves_out_what_fails(owner, method, history, monkeypatch):
    before = getattr(owner, method)

    def failing(self, given, *more):
        name = given.key if isinstance(given, PodObserved) else getattr(given, "name", "") or given.metadata.name
        if name.endswith("bad"):
            raise Fault
        return before(self, given, *more)

    monkeypatch.setattr(owner, method, failing)
    found, faults = kept(history)
    found.apply([pod(name, node="a", bound=10, phase="Running") for name in ("bad", "good")], 12.0)
    found.write(12.0)
    assert [entry.job.name for entry in entries(history)] == ["good"]
    assert set(faults) == {("history.records", BAD, Fault)}


def test_a_row_that_the_database_refuses_is_left_out(history, monkeypatch):
    before = History.write

    def failing(self, jobs, runs, **more):
        if any(each.name == "bad" for each in (*jobs, *runs)):
            raise OverflowError
        before(self, jobs, runs, **more)

    monkeypatch.setattr(History, "write", failing)
    found, faults = kept(history)
    found.apply([pod(name, node="a", bound=10, phase="Running") for name in ("bad", "good")], 12.0)
    found.write(12.0)
    assert [entry.job.name for entry in entries(history)] == ["good"]
    assert faults == [("history.rows", BAD, OverflowError)] * 2
    found.write(13.0)
    assert len(faults) == 2, "it is not tried again for ever"


def test_a_node_that_fails_keeps_no_other_from_its_price(monkeypatch):
    before = NodeIntervals._follow

    def failing(self, name, now):
        if name == "bad":
            raise Fault
        before(self, name, now)

    faults = []
    found = NodeIntervals(lambda *fault: faults.append(fault[:2]))
    view = msgspec.convert({"metadata": {"name": "x", "uid": "u"}}, NodeView)
    for name in ("bad", "good"):
        found.node(name, view, 1.0)
    monkeypatch.setattr(NodeIntervals, "_follow", failing)
    spec = {"price": {"perNodeHour": 2.0}}
    found.pool("p", msgspec.convert(spec, NodePoolSpec), 2.0)
    assert found.intervals.open["good"].price == 2_000_000
    assert faults == [("history.stays", "bad")]


def in_a_recorder(tmp_path, story):
    async def run():
        world = World(nodes=1, seed=1)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now) as client:
            faults = Faults(client)
            found = recorder.Recorder(client, f"sqlite:///{tmp_path}/history.db", faults=faults)
            found.history.take_over()
            await story(found, faults)

    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


@pytest.mark.parametrize("method", ["_note", "_groups_changed", "_namespaces_changed"])
def test_the_recorder_hears_of_others(method, tmp_path, monkeypatch):
    seen = []

    def failing(_, given):
        seen.append(given.key)
        if given.key == BAD:
            raise Fault

    monkeypatch.setattr(recorder.Recorder, method, failing)

    async def story(found, faults):
        place = {"_note": 0, "_groups_changed": 4, "_namespaces_changed": 5}[method]
        found._informers[place].report([Change(BAD, None), Change(GOOD, None)])
        assert seen == [BAD, GOOD]
        assert faults.counts == {"history.observed": 1}

    in_a_recorder(tmp_path, story)


@pytest.mark.parametrize(("owner", "method"), [(Accounting, "apply"), (Accounting, "write"), (Accounting, "close_others")])
def test_an_error_in_the_history_never_ends_the_operator(owner, method, tmp_path, monkeypatch):
    def failing(*_):
        raise Fault

    monkeypatch.setattr(owner, method, failing)

    async def story(found, faults):
        task = asyncio.create_task(found.run())
        await asyncio.sleep(0)
        found._missing.clear()
        found._note(pod("good", node="a", bound=10, phase="Running"))
        while not faults.counts:
            await asyncio.sleep(1.0)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert set(faults.counts) <= {"history", "history.records"}

    in_a_recorder(tmp_path, story)


def test_a_queue_that_cannot_be_reckoned_leaves_the_others_their_budgets(history, monkeypatch):
    def failing(_, period, __):
        if period == "1d":
            raise Fault
        return {"good": {"USD": 5.0}}

    monkeypatch.setattr(budgets, "_costs", failing)
    faults = []
    given = {
        name: msgspec.convert({"budget": {"amount": 10, "period": period}}, QueueSpec)
        for name, period in (("bad", "1d"), ("good", "30d"))
    }
    spent, *_ = budgets.reckon(history, given, 100.0, lambda *fault: faults.append(fault[:2]))
    assert spent == {("good", "USD"): 5.0}
    assert faults == [("budgets", "bad")]


def test_a_queue_that_cannot_be_told_leaves_the_others_their_conditions(tmp_path, monkeypatch):
    told = []

    async def failing(_, queue):
        told.append(queue)
        if queue == "bad":
            raise Fault

    monkeypatch.setattr(budgets.Budgets, "_report", failing)
    monkeypatch.setattr(budgets, "reckon", lambda *_: ({}, {}, {}))

    async def story(found, faults):
        reckoned = budgets.Budgets(found.client, found.history, faults=faults)
        reckoned._queues = {"bad": QueueSpec(), "good": QueueSpec()}
        await reckoned._reckon()
        assert told == ["bad", "good"]
        assert faults.counts == {"budgets.condition": 1}

    in_a_recorder(tmp_path, story)

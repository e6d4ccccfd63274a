"""The lease: what a leader does when it is refused, when answers are slow, and when its other requests queue."""

import asyncio

import msgspec
import pytest
import structlog

from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.lease import Elector
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock, VirtualLoop
from fairlead.cluster.simulated.faults import Fault, FaultPlan
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire

LEASE = ("kube-system", "fairlead-scheduler")


class Story:
    """A server, and one who leads."""

    def __init__(self, latency=0.0):
        self.loop = asyncio.get_running_loop()
        self.api = ApiServer(Clock(start=1e9, loop=self.loop), seed=1)
        self.plan = FaultPlan(1)
        self.transport = SimulatedTransport(Wire(self.api), self.plan, latency=latency)
        self.client = Client(Config("http://simulated"), transport=self.transport, clock=self.api.clock.now)
        self.healthy = True
        self.ended = None

    async def __aenter__(self):
        await self.client.__aenter__()
        self.elector = self.another()
        self.began = asyncio.Event()
        self.leading = asyncio.ensure_future(self._lead())
        await self.began.wait()
        return self

    def another(self):
        return Elector(self.client, namespace=LEASE[0], name=LEASE[1], healthy=lambda: self.healthy)

    async def _lead(self):
        async def work():
            self.began.set()
            await self.loop.create_future()

        await self.elector.lead(work)
        self.ended = self.loop.time()

    async def __aexit__(self, *_):
        self.plan.starting = None
        self.leading.cancel()
        await asyncio.gather(self.leading, return_exceptions=True)
        await self.client.__aexit__(None, None, None)

    @property
    def renewed(self):
        return self.api.store.get("coordination.k8s.io/leases", LEASE).object["spec"]["renewTime"]


def virtual(story):
    """Run it on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.UNAUTHORIZED])
@pytest.mark.parametrize("seconds", [5.0, 12.0, 30.0, 55.0])
def test_a_leader_keeps_its_lease_while_the_server_has_not_loaded_the_roles(fault, seconds):
    async def story():
        async with Story() as each:
            each.plan.starting = fault
            await asyncio.sleep(seconds)
            assert each.ended is None
            each.plan.starting = None
            before = each.renewed
            await asyncio.sleep(3)
            assert each.ended is None
            assert each.renewed > before
            assert each.elector.epoch == 1

    virtual(story)


def test_a_standby_waits_for_a_lease_that_another_holds():
    async def story():
        async with Story() as each:
            standby = each.another()
            task = asyncio.ensure_future(standby.lead(each.loop.create_future))
            for fault, waits in ((None, True), (Fault.FORBIDDEN, False), (None, True)):
                each.plan.starting = fault
                await asyncio.sleep(5)
                assert (standby.waiting, each.elector.waiting) == (waits, False)
            each.leading.cancel()
            await asyncio.sleep(5)
            assert (standby.waiting, standby.epoch) == (False, 2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    virtual(story)


def test_a_refusal_for_good_ends_it_and_says_which_right_is_missing():
    async def story():
        async with Story() as each:
            begun = each.loop.time()
            each.plan.starting = Fault.FORBIDDEN
            with structlog.testing.capture_logs() as logs:
                await asyncio.sleep(70)
            assert 58 <= each.ended - begun <= 65
            [told] = [line for line in logs if line["event"] == "the lease is refused"]
            assert "leases.coordination.k8s.io" in told["hint"]
            assert "RBAC" in told["error"]

    virtual(story)


def test_past_the_renew_deadline_a_refused_leader_writes_nothing_until_it_is_renewed():
    """Another may have taken the lease by another server that has its roles."""

    async def story():
        async with Story() as each:
            body = msgspec.json.encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}})
            each.plan.starting = Fault.FORBIDDEN
            await asyncio.sleep(5)
            with pytest.raises(ApiError):  # still ours
                await each.client.post("/api/v1/namespaces", body)
            await asyncio.sleep(10)
            write = asyncio.ensure_future(each.client.post("/api/v1/namespaces", body))
            await asyncio.sleep(10)
            assert not write.done()
            each.plan.starting = None
            await asyncio.sleep(3)
            assert write.done()
            assert each.api.store.get("namespaces", ("", "later")) is not None

    virtual(story)


def test_who_was_refused_and_finds_another_leader_ends_at_once():
    async def story():
        async with Story() as each:
            each.plan.starting = Fault.FORBIDDEN
            await asyncio.sleep(20)
            record = each.api.store.get("coordination.k8s.io/leases", LEASE).object
            spec = {**record["spec"], "holderIdentity": "another", "leaseTransitions": 2}
            each.api.store.put(
                "coordination.k8s.io/leases", LEASE, {**record, "metadata": dict(record["metadata"]), "spec": spec}
            )
            each.plan.starting = None
            await asyncio.sleep(6)
            assert each.ended is not None

    virtual(story)


def test_another_process_waits_for_as_long_as_the_lease_is_renewed():
    async def story():
        async with Story() as each:
            began, second = asyncio.Event(), each.another()

            async def work():
                began.set()
                await each.loop.create_future()

            standby = asyncio.ensure_future(second.lead(work))
            await asyncio.sleep(300)
            assert not began.is_set(), "the lease is renewed, though its holder and epoch stay the same"
            assert each.ended is None
            each.healthy = False
            await began.wait()
            assert each.ended is not None
            assert second.epoch == 2
            standby.cancel()
            await asyncio.gather(standby, return_exceptions=True)

    virtual(story)


@pytest.mark.parametrize("seconds", [5, 60])
def test_a_lease_is_stale_after_the_duration_that_its_holder_wrote(seconds):
    """Not after one's own: the processes may be configured differently, as during an upgrade."""

    async def story():
        async with Story() as each:
            record = each.api.store.get("coordination.k8s.io/leases", LEASE).object
            spec = {**record["spec"], "holderIdentity": "gone", "leaseDurationSeconds": seconds}
            each.api.store.put(
                "coordination.k8s.io/leases", LEASE, {**record, "metadata": dict(record["metadata"]), "spec": spec}
            )
            began, second, since = asyncio.Event(), each.another(), each.loop.time()
            assert second.duration == 15.0

            async def work():
                began.set()
                await each.loop.create_future()

            standby = asyncio.ensure_future(second.lead(work))
            await began.wait()
            waited = each.loop.time() - since
            assert seconds <= waited <= seconds + 2 * second.retry
            standby.cancel()
            await asyncio.gather(standby, return_exceptions=True)

    virtual(story)


def test_unavailability_ends_it_at_the_renew_deadline_as_before():
    async def story():
        async with Story() as each:
            begun = each.loop.time()
            each.transport.partition.cut = True
            await asyncio.sleep(30)
            assert each.ended - begun <= 12.1

    virtual(story)


def test_slow_answers_do_not_cost_the_lease():
    """Four seconds and a half for each request, for two minutes: less than half the renew deadline."""

    async def story():
        async with Story(latency=2.25) as each:
            await asyncio.sleep(120)
            assert each.ended is None

    virtual(story)


def test_a_core_that_stands_still_ends_it_though_it_is_refused():
    async def story():
        async with Story() as each:
            begun = each.loop.time()
            each.plan.starting = Fault.FORBIDDEN
            await asyncio.sleep(5)
            each.healthy = False
            await asyncio.sleep(30)
            assert each.ended - begun <= 14

    virtual(story)


def holder(api):
    record = api.store.get("coordination.k8s.io/leases", LEASE)
    return record.object["spec"].get("holderIdentity") if record is not None else None


@pytest.mark.parametrize("there", [False, True])
def test_one_that_ends_while_it_acquires_or_renews_leaves_the_lease_to_others(there):
    """Whatever was on its way at that moment: every twentieth of a second over the acquisition and two renewals."""

    async def story():
        held, kept = 0, 0
        for moment in range(120):
            each = Story(latency=0.3)
            async with each.client:
                if there:
                    first = asyncio.ensure_future(each.another().lead(asyncio.Event().wait))
                    await asyncio.sleep(3)
                    first.cancel()
                    await asyncio.gather(first, return_exceptions=True)
                second = asyncio.ensure_future(each.another().lead(asyncio.Event().wait))
                await asyncio.sleep(moment / 20)
                second.cancel()
                held += bool(holder(each.api))
                await asyncio.gather(second, return_exceptions=True)
                await asyncio.sleep(1)
                kept += bool(holder(each.api))
        assert (held > 90, kept) == (True, 0)

    virtual(story)


async def test_the_lease_waits_behind_no_other_request():
    """A server that answers nothing but the lease: every connection of the pool is taken, and the lease is renewed."""
    from aiohttp import web

    stuck = asyncio.Event()
    written = []

    async def answer(request):
        if "leases" not in request.path:
            await stuck.wait()
            return web.json_response({})
        if request.method == "GET":
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        written.append(request.path)
        return web.json_response(await request.json())

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with Client(Config(f"http://127.0.0.1:{port}"), connections=4, timeout=60.0) as client:
        flood = [asyncio.ensure_future(client.get(f"/api/v1/pods/{number}")) for number in range(50)]
        elector = Elector(client, namespace=LEASE[0], name=LEASE[1], healthy=lambda: True, retry=0.05)
        leading = asyncio.ensure_future(elector.lead(lambda: asyncio.get_running_loop().create_future()))
        async with asyncio.timeout(30):
            while len(written) < 4:
                await asyncio.sleep(0.01)
        assert not any(each.done() for each in flood)
        for each in (*flood, leading):
            each.cancel()
        stuck.set()
        await asyncio.gather(*flood, leading, return_exceptions=True)
    await runner.cleanup()


def test_a_client_pauses_for_a_server_that_asks_it_but_not_its_lease():
    """A 429 says when to come again: it holds what the client sends, the lease's line is apart."""

    async def story():
        async with Story() as each:
            each.client._pause_until = each.loop.time() + 30.0
            await asyncio.sleep(20)
            assert each.ended is None
            with pytest.raises((ApiError, Unreachable, TimeoutError)):
                await asyncio.wait_for(each.client.get("/api/v1/nodes"), 1.0)

    virtual(story)


def test_a_list_that_is_refused_while_the_server_starts_is_tried_soon_and_named_when_it_is_for_good():
    from fairlead.cluster import views
    from fairlead.cluster.kubernetes.informer import Informer

    async def story():
        async with Story() as each:
            for seconds in (40.0, 70.0):
                each.plan.starting = Fault.FORBIDDEN
                synced = asyncio.Event()
                informer = Informer(each.client, "/api/v1/nodes", views.Node, lambda _: None, synced.set)
                with structlog.testing.capture_logs() as logs:
                    running = asyncio.ensure_future(informer.run())
                    await asyncio.sleep(seconds)
                    hints = [line for line in logs if "charts/rbac.yaml" in line.get("hint", "")]
                    assert bool(hints) == (seconds > 60)
                    assert not synced.is_set()
                    each.plan.starting = None
                    await asyncio.sleep(2.1 if seconds < 60 else 15.1)
                assert synced.is_set()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    virtual(story)

"""`Informer.current`: what was written before the call has been reported when it returns."""

import asyncio

import pytest

from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock, VirtualLoop
from fairlead.cluster.simulated.faults import Fault, FaultPlan
from fairlead.cluster.simulated.transport import Partition, SimulatedTransport
from fairlead.cluster.simulated.wire import Wire

MANY, FEW = 501, 3


class Story:
    """Namespaces, and an informer of them."""

    def __init__(self, count):
        self.loop = asyncio.get_running_loop()
        self.api = ApiServer(Clock(start=1e9, loop=self.loop), seed=1)
        for number in range(count):
            self.create(f"n-{number}")
        self.plan, self.partition = FaultPlan(1), Partition()
        transport = SimulatedTransport(Wire(self.api), self.plan, latency=0.001, partition=self.partition)
        self.client = Client(Config("http://simulated"), transport=transport)
        self.seen = set()
        self.informer = Informer(self.client, "/api/v1/namespaces", views.OnlyMetadata, self.report, lambda: None)

    def report(self, changes):
        self.seen |= {change.view.metadata.name for change in changes if change.view is not None}

    def create(self, name):
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api.create(self.api.served("v1", "namespaces"), "", manifest)

    async def current(self):
        """Seconds that it takes."""
        begun = self.loop.time()
        await self.informer.current()
        return self.loop.time() - begun


def virtual(count, story):
    async def run():
        each = Story(count)
        async with each.client:
            running = asyncio.create_task(each.informer.run())
            try:
                await story(each)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


@pytest.mark.parametrize("count", [FEW, MANY])
def test_where_nothing_moves_a_list_proves_it(count):
    async def story(each):
        await asyncio.sleep(1.0)
        each.partition.cut_paths = "namespaces"  # the watch loses what comes now
        each.create("last")
        await asyncio.sleep(1.0)
        each.partition.heal()
        assert "last" not in each.seen
        assert await each.current() < 1.5
        assert "last" in each.seen
        assert each.informer.relists == 1

    virtual(count, story)


def test_a_watch_of_many_that_moves_is_not_listed_again():
    async def story(each):
        await asyncio.sleep(1.0)
        waiting = asyncio.create_task(each.current())
        await asyncio.sleep(0.05)
        each.create("next")
        assert await waiting < 0.2
        assert each.informer.relists == 0

    virtual(MANY, story)


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_list_that_began_before_proves_nothing(count):
    async def story(each):
        await asyncio.sleep(0.0015)  # the first list is answered, and on its way
        each.create("last")
        await each.current()
        assert "last" in each.seen

    virtual(count, story)


def test_a_server_that_refuses_is_asked_again():
    async def story(each):
        await asyncio.sleep(1.0)
        each.plan.starting = Fault.UNAVAILABLE
        waiting = asyncio.create_task(each.current())
        await asyncio.sleep(5.0)
        assert not waiting.done()
        each.plan.starting = None
        assert await waiting < 30.0

    virtual(MANY, story)

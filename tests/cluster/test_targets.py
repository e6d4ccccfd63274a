"""Targets of PodGroups: their epochs only rise, whatever becomes of the writes on their way."""

import asyncio
import random

import pytest

from fairlead.api import crds
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.port import Outcome
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock, VirtualLoop
from fairlead.cluster.simulated.faults import Fault, FaultPlan, Rates
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.core.model.groups import Member
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.transactions import Resume, Suspension
from testbed import objects

NS, GROUPS = "ns", "fairlead.dev/podgroups"
MEMBERS = (Member(2, Pod("", NS, "", PodSpec(), labels=(("a", "b"),))),)


class Scripted(FaultPlan):
    """Faults of the first writes, in their order."""

    def __init__(self, *faults):
        super().__init__(0)
        self.faults = list(faults)

    def for_request(self, *, write):
        return self.faults.pop(0) if write and self.faults else None


class World:
    """A PodGroup on a simulated API server, and the epochs that were written into it."""

    def __init__(self, plan):
        self.plan = plan
        self.api = ApiServer(Clock(start=1000.0, loop=asyncio.get_running_loop()))
        for each in crds.definitions():
            self.api.create(self.api.served("apiextensions.k8s.io/v1", "customresourcedefinitions"), "", each)
        self.api.create(self.api.served("v1", "namespaces"), "", {"metadata": {"name": NS}})
        self.api.create(self.api.served("fairlead.dev/v1alpha1", "podgroups"), NS, objects.pod_group("g", 2))
        self.written = []
        self.api.store.listen(GROUPS, lambda change: self.written.append(self.target["epoch"]))
        transport = SimulatedTransport(Wire(self.api), plan, latency=0.002)
        self.client = Client(Config("http://simulated"), transport=transport)
        self.cluster = KubernetesCluster(self.client)

    @property
    def target(self):
        return self.api.store.get(GROUPS, (NS, "g")).object["status"]["target"]

    async def means(self, epoch, *, runs):
        if runs:
            return (await self.cluster.resume(Resume(f"{NS}/g", epoch, (), ())))[0]
        return (await self.cluster.suspend(Suspension(f"{NS}/g", epoch, (("batch/v1/Job/j", "uid"),), MEMBERS, ("u",))))[0]


def play(story, plan):
    async def run():
        world = World(plan)
        async with world.client:
            return await story(world)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


@pytest.mark.parametrize("fault", [Fault.APPLIED, Fault.LOST], ids=str)
def test_a_suspension_without_an_answer_is_not_written_over_the_resumption_after_it(fault):
    async def story(world):
        first = asyncio.ensure_future(world.means(12, runs=False))
        await asyncio.sleep(0.1)
        assert await world.means(13, runs=True) is Outcome.DONE
        outcome = await first
        return outcome, world.target, world.written

    outcome, target, written = play(story, Scripted(fault))
    assert outcome is Outcome.DONE
    assert (target["state"], target["epoch"]) == ("Running", 13)
    assert written == sorted(written)


def test_what_was_never_sent_is_refused_where_a_later_target_stands():
    async def story(world):
        assert await world.means(13, runs=False) is Outcome.DONE
        return await world.means(12, runs=True), await world.means(13, runs=True), await world.means(13, runs=False)

    assert play(story, Scripted()) == (Outcome.REFUSED, Outcome.REFUSED, Outcome.DONE)


@pytest.mark.parametrize("seed", range(60))
def test_epochs_only_rise_whatever_becomes_of_writes(seed):
    """Targets follow each other while those before are still on their way, some of which are lost, late, or have no answer."""
    plan = FaultPlan(seed, Rates(write=80.0, request=60.0))
    plan.on = True

    async def story(world):
        rnd, written = random.Random(seed), []
        for epoch in range(1, 20):
            written.append(asyncio.ensure_future(world.means(epoch, runs=rnd.random() < 0.5)))
            await asyncio.sleep(rnd.choice([0.0, 0.003, 0.5, 9.0]))
        outcomes = dict(enumerate(await asyncio.gather(*written), 1))
        done = [epoch for epoch, outcome in outcomes.items() if outcome is Outcome.DONE]
        return world.written, world.target["epoch"], max(done)

    written, stands, last = play(story, plan)
    assert written == sorted(set(written))
    assert stands >= last

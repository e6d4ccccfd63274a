"""An API server that is silent, refuses, or cuts every connection for 40 seconds, at any time: scheduler and operator live on."""

import asyncio
import logging
import random

import pytest
import structlog

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.faults import Fault, FaultPlan, Rates
from fairlead.cluster.simulated.transport import Partition, SimulatedTransport
from fairlead.operator.app import Operator
from fairlead.operator.app import Options as OperatorOptions
from fairlead.scheduler.app import Scheduler, Simulation
from fairlead.scheduler.options import Options
from fairlead.simulation.world import World

TROUBLE = 40.0
CATCH_UP = 120.0
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 100))]
BREAKDOWNS = {
    "silent": Fault.LOST,
    "applied without an answer": Fault.APPLIED,
    "429": Fault.TOO_MANY,
    "500": Fault.INTERNAL,
    "503": Fault.UNAVAILABLE,
    "403": Fault.FORBIDDEN,
    "cut": None,
}


class Story:
    """A world whose API server breaks down at will, and what runs against it."""

    def __init__(self, seed, *, elect):
        self.random = random.Random(seed)
        self.loop = asyncio.get_running_loop()
        self.errors = []
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self.plan = FaultPlan(seed, Rates())
        self.world = World(nodes=4, seed=1, plan=self.plan)
        self.partition = Partition()
        self.elect = elect
        self.clients = []

    async def start(self):
        made = []
        for _ in range(2):
            transport = SimulatedTransport(self.world.wire, self.plan, partition=self.partition)
            client = Client(Config("http://simulated"), transport=transport, clock=self.world.clock.now)
            self.clients.append(await client.__aenter__())
        self.scheduler = Scheduler(
            self.clients[0], Options(address="", leader_elect=self.elect), simulation=Simulation(1.0), identity="a-scheduler"
        )
        self.operator = Operator(self.clients[1], OperatorOptions(leader_elect=self.elect, address=""))
        self.parts = {"scheduler": self.scheduler, "operator": self.operator}
        made = {name: asyncio.create_task(part.run(), name=name) for name, part in self.parts.items()}
        self.running = made

    def break_down(self, kind):
        self.plan.starting = BREAKDOWNS[kind]
        self.partition.cut = kind == "cut"

    def mend(self):
        self.plan.starting = None
        self.partition.heal()

    def job(self, name, workers=2):
        gpu = {"nvidia.com/gpu": "1"}
        container = {"name": "main", "image": "none", "resources": {"requests": gpu, "limits": gpu}}
        roles = [{"name": "worker", "replicas": workers, "template": {"spec": {"containers": [container]}}}]
        self.world.create(
            {
                "apiVersion": "fairlead.dev/v1alpha1",
                "kind": "AIJob",
                "metadata": {"name": name, "namespace": "vision"},
                "spec": {"roles": roles},
            },
            "vision",
        )

    def objects(self, resource):
        return {key[1]: record.object for key, record in self.world.api.store.records(resource) if key[0] == "vision"}

    def behind(self):
        """What is not as it should be."""
        pods = self.objects("pods")
        found = [f"pod {name} has no node" for name, pod in pods.items() if not pod["spec"].get("nodeName")]
        for name, job in self.objects("fairlead.dev/aijobs").items():
            phase = (job.get("status") or {}).get("phase")
            found += [f"job {name} is {phase}"] if phase not in ("Running", "Succeeded") else []
        for name, group in self.objects("fairlead.dev/podgroups").items():
            phase = (group.get("status") or {}).get("phase")
            found += [f"group {name} is {phase}"] if phase not in ("Scheduled", "Running", "Finished") else []
        return found

    async def end(self):
        for part in self.parts.values():
            part.stop()
        ended = await asyncio.wait_for(asyncio.gather(*self.running.values(), return_exceptions=True), 60.0)
        assert ended == [None, None]
        for client in self.clients:
            await client.__aexit__(None, None, None)
        await asyncio.sleep(30.0)


def tell(seed, story, *, elect):
    """Run a story on virtual time: nothing in it logs a traceback, or fails outside of a task."""

    async def run():
        each = Story(seed, elect=elect)
        await story(each)
        assert each.errors == []
        assert each.operator.faults.counts == {}

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))  # other tests silence it
    with structlog.testing.capture_logs() as logs, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(run())
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert [line for line in logs if line.get("exc_info")] == []
    return logs


@pytest.mark.parametrize("kind", BREAKDOWNS)
@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_lease_forty_seconds_of_it_at_any_time_end_nothing(kind, seed):
    """At the start, in between, and while it terminates."""
    forty_seconds_of_it(kind, seed)


@pytest.mark.parametrize(("kind", "seed"), [("403", 17), ("403", 944685164)])
def test_a_status_that_was_refused_is_written_later(kind, seed):
    """Worlds that failed once: a pod group whose pods ran stayed Pending."""
    forty_seconds_of_it(kind, seed)


def forty_seconds_of_it(kind, seed):

    async def story(each):
        first = each.random.choice([0.0, each.random.uniform(0.0, 2.0), each.random.uniform(2.0, 30.0)])
        if not first:
            each.break_down(kind)
        await each.start()
        each.job("before")
        await asyncio.sleep(first)
        for number in range(2):
            each.break_down(kind)
            each.job(f"during-{number}")
            await asyncio.sleep(TROUBLE)
            each.mend()
            each.job(f"after-{number}")
            await asyncio.sleep(CATCH_UP)
            assert each.behind() == []
            assert all(not part.failed for part in each.parts.values())
            assert not any(task.done() for task in each.running.values())
        each.job("last")
        await asyncio.sleep(each.random.uniform(0.0, 1.0))
        each.break_down(kind)
        await asyncio.sleep(each.random.uniform(0.0, 9.0))
        await each.end()

    tell(seed, story, elect=False)


@pytest.mark.parametrize("kind", BREAKDOWNS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_leader_ends_by_its_lost_lease_and_by_nothing_else(kind, seed):
    """Forty seconds are longer than the renew deadline; a refusal is waited out."""

    async def story(each):
        await each.start()
        each.job("before")
        await asyncio.sleep(each.random.uniform(10.0, 40.0))
        each.break_down(kind)
        each.job("during")
        await asyncio.sleep(TROUBLE)
        each.mend()
        if kind == "403":
            await asyncio.sleep(CATCH_UP)
            assert each.behind() == []
        else:
            await asyncio.sleep(20.0)
            assert all(part.failed for part in each.parts.values())
        await each.end()

    logs = tell(seed, story, elect=True)
    lost = [line for line in logs if line["event"] == "the lease was lost"]
    assert len(lost) == (0 if kind == "403" else 2)


def test_readiness_says_that_the_api_server_does_not_answer():
    async def story(each):
        await each.start()
        await asyncio.sleep(20.0)
        assert [part._unready() for part in each.parts.values()] == ["", ""]
        each.break_down("503")
        each.partition.cut = True
        each.job("during")
        for _ in range(5):
            for client in each.clients:
                await asyncio.gather(client.get("/api/v1/nodes"), return_exceptions=True)
            await asyncio.sleep(5.0)
        for part in each.parts.values():
            assert "has answered no request for 2" in part._unready()
        each.mend()
        await asyncio.sleep(CATCH_UP)
        assert [part._unready() for part in each.parts.values()] == ["", ""]
        await each.end()

    tell(1, story, elect=False)


@pytest.mark.parametrize("seconds", [40.0, 400.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_who_waits_for_the_lease_waits_on(seconds, seed):
    """Before it leads nothing can be lost."""

    async def story(each):
        each.break_down(each.random.choice(["silent", "503", "cut", "429"]))
        await each.start()
        each.job("early")
        await asyncio.sleep(seconds)
        assert all("not leading" in part._unready() for part in each.parts.values())
        each.mend()
        await asyncio.sleep(CATCH_UP)
        assert each.behind() == []
        await each.end()

    tell(seed, story, elect=True)

"""A standby knows the cluster, writes nothing, and takes over with all that the leader before it wrote."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from fairlead.cluster.kinds import KINDS, OF_OBJECT
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.port import Gone, Judged, StorageKnown, Synced, Upsert
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.transport import Chunks, Opened
from fairlead.core.model.service_classes import ServiceClass
from fairlead.scheduler.standby import Standby
from fairlead.simulation.world import Process, World
from tests.builders import group, node, pod, queue

DURATION = 15.0


class Held(SimulatedTransport):
    """Watches of pods can be held: what they deliver arrives once `flows` is set."""

    def __init__(self, wire, partition):
        super().__init__(wire, partition=partition)
        self.flows = asyncio.Event()
        self.flows.set()

    @asynccontextmanager
    async def stream(self, path, **asked):
        async with super().stream(path, **asked) as opened:
            chunks = _Waiting(opened.chunks, self.flows) if path == "/api/v1/pods" else opened.chunks
            yield Opened(opened.status, opened.body, chunks)


class _Waiting(Chunks):
    def __init__(self, chunks, flows):
        self.chunks, self.flows = chunks, flows

    async def readany(self):
        chunk = await self.chunks.readany()
        await self.flows.wait()
        return chunk


class Story:
    """A world of one node, and schedulers in it."""

    def __init__(self):
        self.world = World(nodes=1, seed=1)
        self.gpus = self.world.gpus
        self.running = []

    async def start(self, number):
        process = Process(self.world, number)
        process.transport = Held(self.world.wire, process.partition)
        process.client = Client(Config("http://simulated"), transport=process.transport, clock=self.world.clock.now)
        process.start()
        self.running.append(process)
        await asyncio.sleep(5.0)
        return process

    async def end(self):
        for each in self.running:
            await each.stop()

    def pods(self, *names, gpus=1):
        for name in names:
            asked = {"nvidia.com/gpu": str(gpus)}
            container = {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}
            spec = {"schedulerName": "fairlead", "containers": [container]}
            manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision"}, "spec": spec}
            self.world.create(manifest, "vision")

    def bound(self):
        return {key[1] for key, record in self.world.api.store.records("pods") if record.object["spec"].get("nodeName")}

    def holder(self):
        lease = self.world.api.store.get("coordination.k8s.io/leases", ("kube-system", "fairlead-scheduler"))
        return lease.object["spec"]["holderIdentity"]


def virtual(story):
    async def run():
        each = Story()
        await story(each)
        await each.end()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


async def until(what, limit=60.0):
    """Seconds until it is so."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not what():
        assert loop.time() - begun < limit
        await asyncio.sleep(0.01)
    return loop.time() - begun


def test_a_standby_is_ready_writes_nothing_and_decides_at_once_when_the_leader_is_killed():
    async def story(each):
        leader, standby = await each.start(1), await each.start(2)
        each.pods("before")
        await until(lambda: each.bound() == {"before"})
        await asyncio.sleep(60.0)
        assert standby.scheduler._unfit() == ""
        assert "not leading" in standby.scheduler._unready()
        assert (standby.client.writes, len(standby.core.state.tasks)) == (0, 0)
        await leader.kill()
        each.pods("after")
        assert await until(lambda: each.bound() == {"before", "after"}) < DURATION + 1.5
        assert standby.scheduler._unready() == ""

    virtual(story)


def test_a_lease_that_is_released_is_taken_within_two_seconds():
    async def story(each):
        leader, _ = await each.start(1), await each.start(2)
        leader.scheduler.stop()
        await until(lambda: each.holder() == "")
        each.pods("after")
        assert await until(lambda: each.bound() == {"after"}) < 2.0

    virtual(story)


def test_what_the_leader_bound_last_is_observed_before_the_first_decision():
    """The watch of the standby lags behind: it knows neither the pods that were bound last, nor their bindings."""

    async def story(each):
        leader, standby = await each.start(1), await each.start(2)
        standby.transport.flows.clear()
        each.pods(*(f"early-{number}" for number in range(each.gpus)))
        await until(lambda: len(each.bound()) == each.gpus)
        await leader.kill()
        each.pods("late")
        await until(lambda: each.holder() == "scheduler-2")
        await asyncio.sleep(10.0)
        assert standby.scheduler._unready() == ""
        assert (standby.core.counters.placed, len(each.bound())) == (0, each.gpus)
        assert len(standby.core.state.tasks) == each.gpus + 1
        standby.transport.flows.set()

    virtual(story)


def test_decisions_are_written_before_the_lease_is_released():
    async def story(each):
        leader = await each.start(1)
        each.pods(*(f"pod-{number}" for number in range(each.gpus)))
        await until(lambda: leader.core.counters.placed == each.gpus)
        leader.scheduler.stop()
        await until(lambda: each.holder() == "")
        assert len(each.bound()) == each.gpus

    virtual(story)


def test_writes_that_do_not_end_keep_the_lease_for_a_few_seconds_only():
    """Bindings are not answered, and whether they took effect is asked for in vain."""

    async def story(each):
        leader = await each.start(1)
        await each.start(2)
        leader.partition.cut_paths = "/pods/"
        each.pods("lost")
        await until(lambda: leader.core.counters.placed == 1)
        await asyncio.sleep(1.0)
        leader.scheduler.stop()
        assert await until(lambda: each.holder() != "scheduler-1") < 8.0
        await until(lambda: each.bound() == {"lost"})

    virtual(story)


def test_a_scheduler_that_finds_the_lease_free_lists_once():
    async def story(each):
        only = await each.start(1)
        assert {each._lists_begun for each in only.scheduler.kubernetes.informers.values()} == {1}

    virtual(story)


async def listed(world):
    """What a list delivers now, kept as a standby keeps it."""
    kept = Standby()
    async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now) as client:
        running = asyncio.create_task(KubernetesCluster(client).run(kept.take))
        await until(lambda: kept.synced)
        await asyncio.sleep(1.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return kept


@pytest.mark.parametrize("seed", range(3))
def test_a_standby_of_hours_has_what_a_list_delivers(seed):
    """In a day with jobs that come, run and end, and with queues and nodes that change."""

    async def story(each):
        await each.start(1)
        standby = await each.start(2)
        source, made = random.Random(seed), 0
        for _ in range(40):
            for _ in range(source.randint(0, 4)):
                made += 1
                each.pods(f"pod-{made}", gpus=source.choice([1, 2, 4]))
            for key, _ in list(each.world.api.store.records("pods")):
                if source.random() < 0.3:
                    each.world.api.delete(each.world.api.served("v1", "pods"), *key)
            await asyncio.sleep(source.uniform(0.0, 60.0))
        await asyncio.sleep(5.0)
        known = {repr(event) for event in standby.scheduler._standby.events()}
        assert known == {repr(event) for event in (await listed(each.world)).events()}

    virtual(story)


def test_the_latest_of_each_object_is_kept_in_the_order_of_the_first_lists():
    standby = Standby()
    low, high = pod("p", priority=1), pod("p", priority=2)
    standby.take([Upsert(low), Upsert(pod("gone")), Upsert(group("g", 1)), Upsert(queue("q")), Judged("queues", "q", "bad")])
    standby.take(
        [Upsert(queue("left")), Judged("queues", "left", ""), StorageKnown(), Upsert(node("n")), Upsert(ServiceClass("c"))]
    )
    standby.take([Gone("pod", "uid-gone"), Gone("queue", "left"), Upsert(high), Synced()])
    events = standby.events()
    kinds = [OF_OBJECT[type(event.object)] for event in events if isinstance(event, Upsert)]
    assert kinds == sorted(kinds, key=KINDS.index)
    assert [event for event in events if not isinstance(event, Upsert)] == [
        Judged("queues", "q", "bad"),
        StorageKnown(),
        Synced(),
    ]
    assert [event.object for event in events if isinstance(event, Upsert) and event.object.name == "p"] == [high]
    assert len(standby) == len(kinds) == 5

"""A standby of the operator knows the AIJobs, writes nothing, and goes on where the leader before it ended."""

import asyncio

import pytest

from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import Partition, SimulatedTransport
from fairlead.operator.app import Operator, Options
from fairlead.operator.workqueue import WorkQueue
from fairlead.simulation.world import World
from testbed import objects

DURATION = 15.0


class Process:
    """One operator with its connection."""

    def __init__(self, world):
        self.partition = Partition()
        self.transport = SimulatedTransport(world.wire, partition=self.partition)
        self.client = Client(Config("http://simulated"), transport=self.transport, clock=world.clock.now)
        self.operator = Operator(self.client, Options(address=""))
        self.task = asyncio.create_task(self.run())

    async def run(self):
        async with self.client:
            await self.operator.run()

    async def kill(self):
        self.partition.cut = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self):
        self.operator.stop()
        await self.task


class Story:
    def __init__(self):
        self.world = World(nodes=1, seed=1)

    async def start(self):
        process = Process(self.world)
        await asyncio.sleep(5.0)
        return process

    def job(self, name):
        self.world.create({**objects.ai_job(name), "metadata": {"name": name, "namespace": "vision"}}, "vision")

    def pods(self):
        return sorted(key[1] for key, _ in self.world.api.store.records("pods"))


def virtual(story):
    async def run():
        await story(Story())

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


async def seconds_until(what):
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not what():
        assert loop.time() < begun + 60.0
        await asyncio.sleep(0.01)
    return loop.time() - begun


def of(*names):
    return [f"{name}-worker-{number}-0" for name in names for number in range(2)]


def test_a_standby_is_ready_writes_nothing_and_makes_pods_at_once_when_the_leader_is_killed():
    async def story(each):
        first, second = await each.start(), await each.start()
        each.job("before")
        await seconds_until(lambda: each.pods() == of("before"))
        await asyncio.sleep(60.0)
        assert second.operator._unfit() == ""
        assert "not leading" in second.operator._unready()
        assert second.client.writes == 0
        assert not second.operator.jobs.cache.jobs
        await first.kill()
        each.job("late")
        assert await seconds_until(lambda: each.pods() == of("before", "late")) < DURATION + 1.5
        assert second.operator._unready() == ""
        assert second.operator.jobs.counters.created == 2
        await second.stop()

    virtual(story)


def test_a_lease_that_is_released_is_taken_within_two_seconds():
    async def story(each):
        first, second = await each.start(), await each.start()
        await first.stop()
        each.job("late")
        assert await seconds_until(lambda: each.pods() == of("late")) < 2.0
        await second.stop()

    virtual(story)


def test_a_work_queue_ends_what_it_has_begun_and_begins_nothing_more():
    async def story(_):
        begun, ended = [], []
        goes_on = asyncio.Event()

        async def reconcile(key):
            begun.append(key)
            await goes_on.wait()
            ended.append(key)

        queue = WorkQueue(reconcile, workers=1)
        running = asyncio.create_task(queue.run())
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(0)
        await seconds_until(lambda: begun)
        draining = asyncio.create_task(queue.drain())
        await asyncio.sleep(1.0)
        assert not draining.done()
        goes_on.set()
        await draining
        await asyncio.sleep(1.0)
        assert (begun, ended) == (["a"], ["a"])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    virtual(story)


@pytest.mark.parametrize("relisted", [False, True])
def test_what_an_informer_held_is_reported_as_a_list_does(relisted):
    async def story(each):
        client = Client(Config("http://simulated"), transport=SimulatedTransport(each.world.wire))
        reported, synced = [], []
        async with client:
            informer = Informer(
                client, "/api/v1/namespaces", views.OnlyMetadata, reported.extend, lambda: synced.append(len(reported))
            )
            informer.hold()
            running = asyncio.create_task(informer.run())
            await seconds_until(lambda: informer.listed)
            for name in ("kept", "gone"):
                each.world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await asyncio.sleep(1.0)
            each.world.api.store.remove("namespaces", ("", "gone"))
            await informer.current()
            if relisted:
                informer.relist()
                await asyncio.sleep(1.0)
            assert (reported, synced) == ([], [])
            informer.release()
            names = [change.view.metadata.name for change in reported]
            assert "kept" in names
            assert "gone" not in names
            assert synced == [len(names)]
            each.world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}})
            await informer.current()
            assert [change.view.metadata.name for change in reported] == [*names, "new"]
            assert len(synced) == 1
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    virtual(story)

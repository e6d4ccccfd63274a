"""The recorder adds up the days that are over, one at a time, and takes the database over when its operator leads."""

import asyncio

import pytest

from fairlead.cluster.kubernetes.client import ApiError, Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.observability.history import HistoryError, SchemaError, Stay, Wanted
from fairlead.observability.store import History
from fairlead.operator.app import Operator, Options
from fairlead.operator.recorder import Recorder
from fairlead.simulation import device_work
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import World
from tests.observability.histories import everything, execute

DAY = 86400.0


def test_days_that_are_over_are_added_up(database):

    async def story():
        world = World(nodes=1, seed=1)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now) as client:
            recorder = Recorder(client, database, keep=10 * DAY)
            recorder.history.take_over()
            now = world.clock.now()
            stay = {"uid": "s", "node": "n", "node_uid": "n", "pool": "p", "price": None, "currency": "", "kind": ""}
            recorder.history.write((), (), now, [Stay(**stay, gpus=8.0, cpus=64.0, started_at=now - 3.5 * DAY)])
            for number in range(8):  # without a loop's threads, of which a virtual one has none
                recorder._record([], now + number)
            days = recorder.history.held_by_days(now - 3 * DAY, now)[2]
            assert [each.day for each in days] == [now // DAY - each for each in (3, 2)], (
                "the one that ended just now is settled later"
            )
            recorder._record([], now + DAY)
            assert len(recorder.history.held_by_days(now - 3 * DAY, now + DAY)[2]) == 3
            recorder.history.close()

    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story())
    History(database, create=False).close()


class Inline(Recorder):
    """Its database is called without another thread."""

    async def _aside(self, call, *arguments):
        call(*arguments)


def on_virtual_time(story):
    async def run():
        world = World(nodes=1, seed=1)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now) as client:
            await story(world, client)

    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_a_database_that_is_away_at_the_takeover_is_taken_over_later(database, monkeypatch):
    take_over, away = History.take_over, [HistoryError("away"), RuntimeError("a bug"), HistoryError("away"), None]

    def sometimes(store):
        if (what := away.pop(0)) is not None:
            raise what
        take_over(store)

    async def story(world, client):
        recorder = Inline(client, database)
        monkeypatch.setattr(History, "take_over", sometimes)
        running = asyncio.gather(recorder.run(), recorder.open())
        await asyncio.sleep(12.0)
        world.api.create(world.api.served("v1", "pods"), "default", bound("p"))
        assert (recorder.rows, recorder.failures) == (0, 3)
        await asyncio.sleep(8.0)
        assert [each.job.name for each in recorder.history.jobs(Wanted(), client.clock())] == ["p"], "it was observed before"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_virtual_time(story)
    assert away == []


def test_what_a_previous_leader_took_last_is_taken_back(database):
    async def story(world, client):
        recorder = Inline(client, database)
        running = asyncio.gather(recorder.run(), recorder.open())
        await asyncio.sleep(12.0)
        History(database).close()  # by one that waited for it, and ends
        world.api.create(world.api.served("v1", "pods"), "default", bound("p"))
        await asyncio.sleep(30.0)
        assert recorder.failures > 0
        assert recorder.history.jobs(Wanted(), client.clock()) == [], "it may be this one that leads no more"
        await asyncio.sleep(60.0)
        assert [each.job.name for each in recorder.history.jobs(Wanted(), client.clock())] == ["p"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_virtual_time(story)


def bound(name):
    container = {"name": "main", "image": "i"}
    spec = {"schedulerName": "fairlead", "nodeName": "node-0", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_a_replica_that_waits_changes_nothing(database):
    async def story(_, client):
        leader = History(database)
        leader.write((), (), 5.0)
        before = everything(database)
        waits = Operator(client, Options(history=database, address=""))
        assert everything(database) == before
        leader.write((), (), 6.0)
        leader.close()
        waits.recorder.history.close()

    on_virtual_time(story)


def test_a_schema_that_was_upgraded_meanwhile_ends_the_operator_that_leads(database):
    """In the middle of a rolling upgrade the old version waits, and its leader ends."""

    async def story(_, client):
        History(database).close()
        operator = Operator(client, Options(history=database, address="", leader_elect=False))
        execute(database, "UPDATE history_version SET version_num = '5'")
        with pytest.raises(SchemaError, match="schema version 5, this program knows versions up to 4"):
            await operator.run()
        operator.recorder.history.close()

    on_virtual_time(story)


def test_devices_of_claims_are_recorded(database):
    async def story(world, client):
        device_work.install(world, 2)
        recorder = Inline(client, database)
        running = asyncio.gather(recorder.run(), recorder.open())
        await asyncio.sleep(12.0)
        stays = {stay.node: stay.gpus for stay in recorder.history.open_stays()}
        assert stays[f"{device_work.POOL}-000"] == 4.0
        assert stays[f"{device_work.POOL}-001"] == 8.0
        name = f"{device_work.POOL}-001"
        spec = {**bound("p")["spec"], "nodeName": name, "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
        made = world.api.create(world.api.served("v1", "pods"), "default", {**bound("p"), "spec": spec})
        claims = world.api.served("resource.k8s.io/v1", "resourceclaims")
        claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
        claim = world.api.create(claims, "default", {**claim, "spec": device_work.spec_of("gpu")})
        results = [{"request": "gpu", "driver": device_work.DRIVER, "pool": name, "device": "gpu-3"}]
        users = [{"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
        world.api.update(claims, "default", "c", {**claim, "status": status}, subresource="status")
        await asyncio.sleep(5.0)
        (entry,) = recorder.history.jobs(Wanted(), client.clock())
        assert (entry.job.name, entry.runs) == ("p", 1)
        assert entry.gpu_seconds > 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_virtual_time(story)


def test_without_rights_on_devices_the_rest_is_recorded(database):
    async def story(world, client):
        asked = client.get

        async def get(path, **query):
            if "resource.k8s.io" in path:
                raise ApiError(403, "Forbidden", "not yours")
            return await asked(path, **query)

        client.get = get
        world.api.create(world.api.served("v1", "pods"), "default", bound("p"))
        recorder = Inline(client, database)
        running = asyncio.gather(recorder.run(), recorder.open())
        await asyncio.sleep(15.0)
        assert [each.job.name for each in recorder.history.jobs(Wanted(), client.clock())] == ["p"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_virtual_time(story)

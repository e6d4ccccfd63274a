"""The recorder adds up the days that are over, one at a time, and asks again later."""

import asyncio

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.observability.history import Stay
from fairlead.observability.store import History
from fairlead.operator.recorder import Recorder
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import World

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

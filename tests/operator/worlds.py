"""The operator in a simulated cluster, on virtual time."""

from __future__ import annotations

import asyncio

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.operator.app import Operator, Options
from fairlead.simulation.chaos import silence
from fairlead.simulation.world import World


def in_a_world(story, options=None):
    """Run `story(world, operator)` on virtual time, the operator running."""

    async def run():
        world = World(nodes=1, seed=1)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now) as client:
            operator = Operator(client, options or Options(leader_elect=False, address=""))
            running = asyncio.create_task(operator.run())
            await asyncio.sleep(5.0)
            await story(world, operator)
            assert not running.done(), "the operator goes on"
            operator.stop()
            await running

    silence()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def events_on(world, name):
    events = world.api.catalog.of_kind("events.k8s.io/v1", "Event")
    found = [record.object for _, record in world.api.store.records(events.table)]
    return [each for each in found if (each.get("regarding") or each.get("involvedObject"))["name"] == name]

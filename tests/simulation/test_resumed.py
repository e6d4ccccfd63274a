"""An AIJob that resumes after some of its members had succeeded: it starts all over, with all of its places."""

import asyncio

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from tests.simulation.lives import Live, job, live, role
from tests.simulation.test_paused import of, service_class


def deleted(world, name):
    world.api.delete(world.api.served(names.API_VERSION, "aijobs"), "vision", name, {"propagationPolicy": "Background"})


@pytest.mark.parametrize("collected", [False, True], ids=["pods stay", "pods that succeeded are gone"])
def test_it_starts_at_once_with_those_that_had_succeeded(collected):
    """Where what these ask for is not known any more it resumes earlier, and waits in line for what it lacks."""

    async def story():
        found = Live(kills=False)
        world = found.world
        for each in (*service_class("batch", 10, "Suspend"), *service_class("urgent", 1000, "Requeue")):
            world.create(each)
        roles = role("short", 2, seconds=30), role("long", 4, seconds=3000)
        world.create(job(*roles, name="low", serviceClass="batch"), "vision")
        await found.until(lambda: aijobs.status(world, "low").get("succeeded") == 2, 300)
        for each in [each for each in aijobs.pods(world) if each["status"]["phase"] == "Succeeded"] if collected else []:
            world.api.delete(world.api.served("v1", "pods"), "vision", each["metadata"]["name"])
        for name, members in (("high", 5), ("higher", 3)):
            world.create(job(role("worker", members, seconds=9000), name=name, serviceClass="urgent"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Suspended" and aijobs.phase(world, "higher") == "Running", 300)
        deleted(world, "high")
        await asyncio.sleep(20.0)
        phase, waiting = aijobs.phase(world, "low"), [each for each in of(world, "low") if not each["spec"].get("nodeName")]
        world.create(job(role("worker", 5, seconds=30), name="next", serviceClass="batch"), "vision")
        await asyncio.sleep(20.0)
        bound = sum(bool(each["spec"].get("nodeName")) for each in of(world, "next"))
        await found.until(lambda: aijobs.phase(world, "next") == "Succeeded", 300)
        deleted(world, "higher")
        since = world.clock.now()
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        assert world.clock.now() - since < 60.0
        return phase, len(waiting), bound, aijobs.status(world, "low").get("attempt")

    assert live(story) == (("Pending", 6, 5, 1) if collected else ("Suspended", 0, 5, 1))

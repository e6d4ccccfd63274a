"""An AIJob that the scheduler has suspended and that its user pauses as well: nothing waits for it, or is reserved for it."""

import asyncio

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from tests.simulation.lives import Live, alive, job, live, role


def service_class(name, value, mode):
    yield {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"{name}-priority"},
        "value": value,
    }
    spec = {"priorityClassName": f"{name}-priority", "preemption": {"mode": mode}}
    yield {"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": name}, "spec": spec}


def _pause(world, name, *, suspend):
    resource = world.api.served(names.API_VERSION, "aijobs")
    world.api.patch(resource, "vision", name, "application/merge-patch+json", {"spec": {"suspend": suspend}})


def _annotations(world, name):
    record = world.api.store.get("fairlead.dev/podgroups", ("vision", name))
    return record.object["metadata"].get("annotations") or {}


def of(world, name):
    return [pod for pod in alive(world) if pod["metadata"]["name"].startswith(f"{name}-")]


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "as it resumes"])
def test_the_next_job_starts_at_once_and_the_paused_one_goes_on_when_it_is_resumed(late):
    async def story():
        found = Live(kills=False)
        world = found.world
        for each in (*service_class("batch", 10, "Suspend"), *service_class("urgent", 1000, "Requeue")):
            world.create(each)
        world.create(job(role("worker", 8, seconds=300), name="low", serviceClass="batch"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        world.create(job(role("worker", 8, seconds=9000), name="high", serviceClass="urgent"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Suspended" and len(of(world, "high")) == 8, 120)
        assert _annotations(world, "low").get(names.PAUSED_ANNOTATION) is None
        if not late:
            _pause(world, "low", suspend=True)
            await asyncio.sleep(2.0)
            assert _annotations(world, "low")[names.PAUSED_ANNOTATION] == "true"
        world.create(job(role("worker", 8, seconds=30), name="next", serviceClass="batch"), "vision")
        await asyncio.sleep(1.0)
        world.api.delete(world.api.served(names.API_VERSION, "aijobs"), "vision", "high", {"propagationPolicy": "Background"})
        if late:
            _pause(world, "low", suspend=True)
        since = world.clock.now()
        while not all(pod["spec"].get("nodeName") for pod in of(world, "next")) or len(of(world, "high")):
            await asyncio.sleep(0.5)
        waited = world.clock.now() - since
        await found.until(lambda: aijobs.phase(world, "next") == "Succeeded", 120)
        assert of(world, "low") == []
        _pause(world, "low", suspend=False)
        await found.until(lambda: aijobs.phase(world, "low") == "Succeeded", 900)
        assert _annotations(world, "low").get(names.PAUSED_ANNOTATION) is None
        return waited

    assert live(story) < 45.0, "the grace of those that leave, and no two minutes more"

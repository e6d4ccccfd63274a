"""Workloads of several kinds whose names are alike: each has its own PodGroup, and a target state of one is no other's."""

import asyncio

from fairlead.simulation import aijobs
from testbed import objects
from tests.simulation.lives import Live, alive, job, live, role
from tests.simulation.test_paused import service_class


def _of_class(manifest, name, seconds=9000):
    template = manifest["spec"]["template"]
    template["metadata"] = {
        "labels": {"fairlead.dev/service-class": name},
        "annotations": {"fairlead.dev/simulated-duration": f"{seconds}s"},
    }
    manifest["metadata"]["namespace"] = "vision"
    return manifest


def test_a_job_beside_an_ai_job_of_the_name_of_its_group_is_suspended_alone():
    """Four GPUs each: `high` takes those of the Job, which came later; the AIJob goes on."""

    async def story():
        found = Live(kills=False)
        world = found.world
        for each in (*service_class("batch", 10, "Suspend"), *service_class("urgent", 1000, "Requeue")):
            world.create(each)
        world.create(job(role("worker", 4, seconds=9000), name="job-x", serviceClass="batch"), "vision")
        await found.until(lambda: aijobs.phase(world, "job-x") == "Running", 60)
        world.create(_of_class(objects.job("x", pods=4), "batch"), "vision")
        await found.until(lambda: len([pod for pod in alive(world) if pod["spec"].get("nodeName")]) == 8, 60)
        world.create(job(role("worker", 4, seconds=9000), name="high", serviceClass="urgent"), "vision")
        jobs = world.api.served("batch/v1", "jobs")
        await found.until(lambda: world.api.get(jobs, "vision", "x").object["spec"].get("suspend"), 120)
        await found.until(lambda: aijobs.phase(world, "high") == "Running", 120)
        assert aijobs.phase(world, "job-x") == "Running"
        await asyncio.sleep(60.0)
        assert aijobs.phase(world, "job-x") == "Running"
        world.api.delete(
            world.api.served("fairlead.dev/v1alpha1", "aijobs"), "vision", "high", {"propagationPolicy": "Background"}
        )
        await found.until(lambda: not world.api.get(jobs, "vision", "x").object["spec"].get("suspend"), 300)
        assert aijobs.status(world, "job-x").get("interruptions", 0) == 0

    live(story)


def test_an_ai_job_is_not_suspended_by_a_group_of_its_name_that_is_not_its_own():
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(job(role("worker", 4, seconds=9000), name="x"), "vision")
        await found.until(lambda: aijobs.phase(world, "x") == "Running", 60)
        groups = world.api.served("fairlead.dev/v1alpha1", "podgroups")
        mine = world.api.get(groups, "vision", "x").object["metadata"]["ownerReferences"]
        other = [{**mine[0], "kind": "Job", "apiVersion": "batch/v1", "uid": "other", "controller": False}]
        merge = "application/merge-patch+json"
        world.api.patch(groups, "vision", "x", merge, {"metadata": {"ownerReferences": other}})
        target = {"state": "Suspended", "epoch": 7, "owners": [{**other[0]}]}
        world.api.patch(groups, "vision", "x", merge, {"status": {"target": target}}, subresource="status")
        await asyncio.sleep(30.0)
        assert aijobs.phase(world, "x") == "Running"

    live(story)

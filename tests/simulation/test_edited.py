"""AIJobs whose roles are edited while they are suspended: what resumes are the new roles, and no place is reserved for the old ones."""

import asyncio
import random

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from fairlead.simulation.world import OperatorProcess
from tests.simulation.lives import Live, job, live, role
from tests.simulation.test_paused import of, service_class
from tests.simulation.test_resumed import deleted

MERGE = "application/merge-patch+json"


def sized(count, gpus=1, seconds=60, name="worker"):
    made = role(name, count, seconds=seconds)
    for container in made["template"]["spec"]["containers"]:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return made


def edit(world, name, **spec):
    world.api.patch(world.api.served(names.API_VERSION, "aijobs"), "vision", name, MERGE, {"spec": spec})


def gpus_of(world, name):
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in of(world, name)]
    return sorted(int(each["nvidia.com/gpu"]) for each in limits)


def kept(found):
    return [task.pod.name for task in found.scheduler.core.state.tasks.values() if task.pod.placeholder and task.row >= 0]


async def until_kept(found):
    async with asyncio.timeout(600.0):
        while not kept(found):
            await asyncio.sleep(0.05)


def operator_again(found):
    found.operator = OperatorProcess(found.world)
    found.operator.start()


def classes(world):
    for each in (*service_class("batch", 10, "Suspend"), *service_class("urgent", 1000, "Requeue")):
        world.create(each)


@pytest.mark.parametrize(
    "roles",
    [[sized(3)], [sized(1, gpus=3)], [sized(2), sized(1, name="other")]],
    ids=["fewer", "others", "one more role"],
)
def test_a_job_that_became_smaller_resumes_in_the_capacity_that_there_is(roles):
    """Eight GPUs, of which `high` has five."""

    async def story():
        found = Live(kills=False)
        world = found.world
        classes(world)
        world.create(job(sized(8, seconds=9000), name="low", serviceClass="batch"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        world.create(job(sized(5, seconds=9000), name="high", serviceClass="urgent"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Suspended" and aijobs.phase(world, "high") == "Running", 200)
        await asyncio.sleep(100.0)
        assert aijobs.phase(world, "low") == "Suspended"
        edit(world, "low", roles=roles)
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        assert sum(gpus_of(world, "low")) == 3
        await found.until(lambda: aijobs.phase(world, "low") == "Succeeded", 200)
        assert kept(found) == []

    live(story)


def test_places_that_were_reserved_for_the_old_roles_are_free_at_once():
    """It is edited in the moment in which it resumes: `next` has them long before two minutes are over."""

    async def story():
        found = Live(kills=False)
        world = found.world
        classes(world)
        world.create(job(sized(8, seconds=9000), name="low", serviceClass="batch"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        world.create(job(sized(8, seconds=9000), name="high", serviceClass="urgent"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Suspended" and aijobs.phase(world, "high") == "Running", 200)
        world.create(job(sized(4, seconds=30), name="next", serviceClass="batch"), "vision")
        await asyncio.sleep(5.0)
        await found.operator.kill()  # so the pods that the places are for are not created
        deleted(world, "high")
        await until_kept(found)
        edit(world, "low", roles=[sized(1, gpus=4, seconds=9000)])
        operator_again(found)
        since = world.clock.now()
        while not of(world, "next") or not all(pod["spec"].get("nodeName") for pod in of(world, "next")):
            await asyncio.sleep(0.5)
        assert world.clock.now() - since < 60.0
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        assert gpus_of(world, "low") == [4]

    live(story)


def test_a_job_that_became_larger_while_it_resumed_starts_whole():
    async def story():
        found = Live(kills=False)
        world = found.world
        classes(world)
        world.create(job(sized(4, seconds=9000), name="low", serviceClass="batch"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Running", 60)
        world.create(job(sized(8, seconds=200), name="high", serviceClass="urgent"), "vision")
        await found.until(lambda: aijobs.phase(world, "low") == "Suspended", 200)
        await found.operator.kill()
        await until_kept(found)
        world.create({**aijobs.single("other"), "metadata": {"name": "other", "namespace": "vision"}}, "vision")
        edit(world, "low", roles=[sized(8, seconds=9000)])
        operator_again(found)
        for _ in range(200):
            await asyncio.sleep(1.0)
            assert sum(bool(pod["spec"].get("nodeName")) for pod in of(world, "low")) in (0, 8)
        world.api.delete(world.api.served("v1", "pods"), "vision", "other")
        await found.until(lambda: aijobs.phase(world, "low") == "Running" and len(of(world, "low")) == 8, 200)

    live(story)


@pytest.mark.parametrize("seed", range(12))
def test_edits_at_random_moments(seed):
    """Whatever comes between: a job runs at last with the roles that it has then, and nothing stays reserved."""
    draw = random.Random(seed)

    def roles():
        found = [sized(draw.randint(1, 4), gpus=draw.choice([1, 1, 2]), seconds=400)]
        if draw.random() < 0.4:
            found.append(sized(draw.randint(1, 2), seconds=400, name="other"))
        return found if sum(each["replicas"] * _gpus(each) for each in found) <= 8 else roles()

    async def story():
        found = Live(kills=False)
        world = found.world
        classes(world)
        latest = roles()
        world.create(job(*latest, name="low", serviceClass="batch"), "vision")
        await asyncio.sleep(draw.uniform(0.0, 20.0))
        others = 0
        for _ in range(draw.randint(3, 12)):
            what = draw.choice(["high", "high", "end", "edit", "edit", "edit", "pause"])
            if what == "high":
                others += 1
                seconds = draw.randint(10, 200)
                high = sized(draw.randint(1, 8), seconds=seconds)
                world.create(job(high, name=f"high{others}", serviceClass="urgent"), "vision")
            elif what == "end" and others:
                deleted_if_there(world, f"high{draw.randint(1, others)}")
            elif what == "edit" and aijobs.phase(world, "low") not in ("Succeeded", "Failed"):
                latest = roles()
                edit(world, "low", roles=latest)
            elif what == "pause":
                edit(world, "low", suspend=draw.random() < 0.5)
            await asyncio.sleep(draw.choice([0.1, 1.0, 3.0, 15.0, 60.0, 150.0]))
        edit(world, "low", suspend=False)
        if aijobs.phase(world, "low") == "Suspended":
            latest = roles()
            edit(world, "low", roles=latest)
            others += 1000
        for number in range(1, others % 1000 + 1):
            deleted_if_there(world, f"high{number}")
        for _ in range(900):
            await asyncio.sleep(1.0)
            if aijobs.phase(world, "low") == "Running" and not _leaving(world, "low"):
                break
            if aijobs.phase(world, "low") == "Succeeded":
                break
        else:
            raise AssertionError(aijobs.status(world, "low"))
        if others >= 1000 and aijobs.phase(world, "low") == "Running":
            wanted = sorted(gpus for each in latest for gpus in [_gpus(each)] * each["replicas"])
            assert gpus_of(world, "low") == wanted
        await found.until(lambda: aijobs.phase(world, "low") == "Succeeded", 1500)
        await asyncio.sleep(130.0)
        assert kept(found) == []
        world.create(job(sized(8, seconds=30), name="last"), "vision")
        await found.until(lambda: aijobs.phase(world, "last") == "Succeeded", 300)

    live(story)


def _gpus(made):
    return made["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]


def _leaving(world, name):
    return any(pod["metadata"].get("deletionTimestamp") for pod in of(world, name))


def deleted_if_there(world, name):
    if world.api.store.get("fairlead.dev/aijobs", ("vision", name)) is not None:
        deleted(world, name)

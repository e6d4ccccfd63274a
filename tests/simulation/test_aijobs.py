"""AIJobs on the simulated cluster: what a killed operator changes (nothing), and what elastic jobs and arrays make of a cluster."""

import asyncio
import time

import pytest

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.simulation import aijobs
from fairlead.simulation.charged import ChargedLoop, at_the_expense_of
from fairlead.simulation.world import OperatorProcess, Process, World


@pytest.mark.parametrize("faults", [False, True])
def test_every_job_comes_to_the_end_that_it_would_have_come_to(faults):
    found = aijobs.kills(5, seed=7, faults=faults)
    assert found.differences == []
    assert (found.kills, found.jobs) == (5, 12)


def test_an_elastic_job_uses_what_is_free_and_changes_its_size_no_oftener_than_it_must():
    found = aijobs.elastic(minutes=5.0, seed=3)
    assert found.used >= 0.95
    assert found.resizes <= found.changes
    assert (found.restarts, found.lost_units, found.phase) == (0, 0, "Running")


def test_an_array_works_itself_off():
    with asyncio.Runner(loop_factory=ChargedLoop) as runner:
        found = runner.run(aijobs.work_off(100, 16, 1.0))
    assert found.ideal == 7.0
    assert found.makespan >= 7.0


def test_who_is_charged_pays_with_everybodys_time():
    loops = []

    async def story():
        loop = asyncio.get_running_loop()
        loops.append(loop)
        done = asyncio.Event()

        async def work():
            sum(range(300_000))
            loop.free(lambda: sum(range(3_000_000)))()
            done.set()

        begun = loop.time()
        at_the_expense_of("worker", lambda: loops.append(asyncio.create_task(work())))
        await done.wait()
        return loop.time() - begun

    begun = time.thread_time()
    with asyncio.Runner(loop_factory=ChargedLoop) as runner:
        taken = runner.run(story())
    charged = loops[0].charged
    assert set(charged) == {"worker"}
    assert 0 < charged["worker"] <= taken + 1e-9
    assert charged["worker"] < (time.thread_time() - begun) / 2, "what the world does is free"


async def cluster(nodes):
    world = World(nodes=0, seed=1)
    for number in range(nodes):
        world.create(aijobs.node(f"n{number}", 8))
    Process(world, 0).start()
    OperatorProcess(world).start()
    await asyncio.sleep(5.0)
    return world


def live(story):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())


def places(world, job):
    return {pod["spec"].get("nodeName") for pod in aijobs.pods(world, job) if not pod["metadata"].get("deletionTimestamp")}


def test_a_lost_node_does_not_hold_its_gang_and_costs_nothing():
    async def story():
        world = await cluster(3)
        world.create(aijobs.ai_job("train", 16, seconds=None, restart={"limit": 0}), "vision")
        await aijobs.until(lambda: aijobs.phase(world, "train") == "Running", 60)
        bad = min(places(world, "train"))
        begun = asyncio.get_running_loop().time()
        world.kubelet.lose(bad)
        await aijobs.until(lambda: aijobs.status(world, "train").get("attempt") == 1, 60)
        await aijobs.until(lambda: aijobs.phase(world, "train") == "Running", 30)
        taken = asyncio.get_running_loop().time() - begun
        told = aijobs.status(world, "train")
        noted = world.api.store.get("nodes", ("", bad)).object["metadata"]["annotations"]["fairlead.dev/failures"]
        return taken, bad in places(world, "train"), told.get("restarts", 0), noted

    taken, there_still, restarts, noted = live(story)
    assert taken < 40.0 + 15.0, "the node is noticed after 40 s, and ten more are waited"
    assert (there_still, restarts) == (False, 0)
    assert noted.endswith("(lost)")


def test_gangs_are_kept_off_a_node_whose_kubelet_refuses_pods_until_its_time_is_over():
    async def story():
        world = await cluster(2)
        label, bad = "fairlead.dev/quarantined", "n0"

        def labels(name):
            return world.api.store.get("nodes", ("", name)).object["metadata"].get("labels") or {}

        world.kubelet.refuses = lambda pod: "UnexpectedAdmissionError" if pod["spec"]["nodeName"] == bad else ""
        for user in ("ann", "bob"):
            refused = aijobs.ai_job(f"job-{user}", 2, seconds=10)
            refused["metadata"]["annotations"] = {"fairlead.dev/user": user}
            world.create(refused, "vision")
        await aijobs.until(lambda: label in labels(bad), 120)
        world.kubelet.refuses = lambda _: ""
        await aijobs.until(lambda: aijobs.phase(world, "job-ann") == aijobs.phase(world, "job-bob") == "Succeeded", 120)
        world.create(aijobs.ai_job("gang", 8, seconds=60), "vision")
        world.create(aijobs.ai_job("wide", 9, seconds=60), "vision")
        world.create(aijobs.ai_job("alone", 1, seconds=60), "vision")
        await aijobs.until(lambda: aijobs.phase(world, "gang") == "Running", 60)
        await aijobs.until(lambda: aijobs.phase(world, "alone") == "Running", 60)
        found = places(world, "gang"), places(world, "alone"), aijobs.phase(world, "wide")
        await aijobs.until(lambda: label not in labels(bad), 7 * 3600)
        await aijobs.until(lambda: aijobs.phase(world, "wide") == "Running", 60)
        return bad, *found

    bad, gang, alone, wide = live(story)
    assert bad not in gang
    assert alone == {bad}, "one pod by itself may run there"
    assert wide == "Pending"

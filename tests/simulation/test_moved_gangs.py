"""An AIJob that moves as a whole so that another fits, on the simulated cluster with both processes."""

import pytest

from fairlead.api import names
from fairlead.simulation import aijobs
from tests.simulation.lives import Live, alive, live
from tests.simulation.test_endings import job

GPU = "nvidia.com/gpu"


def service_class(name, consolidation):
    spec = {"preemption": {"consolidation": consolidation}, "checkpointInterval": "2m"}
    return {"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": name}, "spec": spec}


def named(name, roles, service, gpus=1):
    made = job(roles, serviceClass=service)
    made["metadata"]["name"] = name
    for each in made["spec"]["roles"]:
        resources = each["template"]["spec"]["containers"][0]["resources"]
        for part in ("requests", "limits"):
            if GPU in resources.get(part, {}):
                resources[part] = {**resources[part], GPU: str(gpus)}
    return made


@pytest.mark.parametrize(("consolidation", "moves"), [("Whole", True), ("Pods", False)])
def test_a_gang_moves_as_a_whole_and_goes_on(consolidation, moves):
    async def story():
        found = Live(kills=False)
        world = found.world
        world.create(service_class("fixed", "Never"))
        world.create(service_class("gang", consolidation))

        def where(name):
            return sorted(
                (pod["metadata"]["uid"], pod["spec"].get("nodeName", ""))
                for pod in alive(world)
                if pod["metadata"]["name"].startswith(name)
            )

        for name in ("one", "two"):  # three of four on each node, of which one ends
            world.create(named(name, {"long": (2, 20_000), "short": (1, 400)}, "fixed"), "vision")
            await found.until(lambda name=name: aijobs.phase(world, name) == "Running", 60)
        world.create(named("gang", {"worker": (2, 20_000)}, "gang"), "vision")
        await found.until(lambda: aijobs.phase(world, "gang") == "Running", 60)
        before = where("gang")
        assert len({node for _, node in before}) == 2
        await found.until(lambda: len(where("one")) == len(where("two")) == 2, 900)
        world.create(named("wide", {"worker": (1, 20_000)}, "fixed", gpus=2), "vision")
        if not moves:
            await found.until(lambda: True, 60)
            assert aijobs.phase(world, "wide") == "Pending"
            assert where("gang") == before
            return
        await found.until(lambda: aijobs.phase(world, "wide") == "Running" and aijobs.phase(world, "gang") == "Running", 900)
        after = where("gang")
        assert len({node for _, node in after}) == 1, "both members on the node that has two pieces"
        assert not {uid for uid, _ in before} & {uid for uid, _ in after}, "all of it stopped and started"
        record = world.api.store.get("fairlead.dev/aijobs", ("vision", "gang")).object["status"]
        assert not record.get("restarts"), "no attempt of its own is counted"

    live(story)

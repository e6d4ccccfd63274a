"""AIJobs on the simulated cluster, on virtual time, with its processes killed in between."""

from __future__ import annotations

import asyncio

from fairlead.api import names
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.resources import PODS
from fairlead.simulation import aijobs
from fairlead.simulation.world import OperatorProcess, Process, World


def template(seconds):
    made = aijobs.single("any")["spec"]
    return {"metadata": {"annotations": {names.SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}}, "spec": made}


def role(name, count, failure="", seconds=60):
    made = template(seconds)
    if failure:
        made["metadata"]["annotations"][names.SIMULATED_START_FAILURE_ANNOTATION] = failure
    return {"name": name, "replicas": count, "template": made}


def job(*roles, name="job", **spec):
    metadata = {"name": name, "namespace": "vision"}
    return {"apiVersion": names.API_VERSION, "kind": "AIJob", "metadata": metadata, "spec": {"roles": [*roles], **spec}}


def group_status(world, name="job"):
    return world.api.store.get("fairlead.dev/podgroups", ("vision", name)).object.get("status") or {}


def alive(world):
    ended = ("Succeeded", "Failed")
    return [pod for pod in aijobs.pods(world) if (pod.get("status") or {}).get("phase") not in ended]


class Live:
    """A cluster of 8 GPUs and its processes. kills: whether both are killed, and succeeded pods deleted, every 100 s."""

    def __init__(self, *, kills):
        self.world = World(nodes=0, seed=1)
        self.kills = kills
        for number in range(2):
            self.world.create(aijobs.node(f"n{number}", 4))
        self._start()

    def _start(self):
        self.scheduler, self.operator = Process(self.world, 0), OperatorProcess(self.world)
        self.scheduler.start()
        self.operator.start()

    async def until(self, condition, limit):
        loop = asyncio.get_running_loop()
        over = loop.time() + limit
        while not condition() and loop.time() < over:
            await asyncio.sleep(50.0)
            if self.kills:
                await self.scheduler.kill()
                await self.operator.kill()
                self._start()
                await asyncio.sleep(30.0)
                for pod in aijobs.pods(self.world):
                    if (pod.get("status") or {}).get("phase") == "Succeeded":
                        self.world.api.delete(self.world.api.served("v1", PODS), "vision", pod["metadata"]["name"])
        assert condition()


def live(story):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story())

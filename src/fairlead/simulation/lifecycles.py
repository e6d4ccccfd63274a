"""How fast the simulated cluster lives: pods created, decided, bound, run, ended and deleted, per second of wall time.

The scheduler in it is the production core and applier on the port, on virtual time; no HTTP, no bytes.
"""

from __future__ import annotations

import asyncio
import gc
import time

import msgspec

from fairlead.api import names
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock, VirtualLoop
from fairlead.cluster.simulated.cluster import SimulatedCluster
from fairlead.cluster.simulated.kubelet import Kubelet
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.cluster.simulated.store import Change, Object
from fairlead.core.model.policy import Policy
from fairlead.scheduler.applier import Applier
from fairlead.scheduler.inline_core import InlineCore
from fairlead.simulation.world import GPU, START

_ARRIVALS, _BATCH = 1000.0, 10  # pods a virtual second; pods at one moment
_LENGTH = "5s"


class Lifecycles(msgspec.Struct):
    """The result."""

    pods: int
    nodes: int
    completed: int
    wall_seconds: float
    virtual_seconds: float
    lifecycles_per_second: float


def run(pods: int, nodes: int) -> Lifecycles:
    """`pods` single pods through `nodes` nodes."""
    collecting = gc.isenabled()
    gc.disable()  # full collections walk every object again and again, and nothing here makes cycles
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(_run(pods, nodes))
    finally:
        if collecting:
            gc.enable()


async def _run(pods: int, nodes: int) -> Lifecycles:
    loop = asyncio.get_running_loop()
    api = ApiServer(Clock(start=START, loop=loop), history=100)  # no client watches from the past
    Kubelet(api)
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    for number in range(nodes):
        api.create(
            api.served("v1", "nodes"),
            "",
            {"metadata": {"name": f"n{number:04d}"}, "status": {"capacity": amounts, "allocatable": amounts}},
        )
    cluster = SimulatedCluster(api)
    applier = Applier(cluster, lambda events: core.send(events), lambda: None, writers=64, write_events=False)  # noqa: PLW0108
    core = InlineCore(Policy(), applier.submit, clock=api.clock.now)
    core.start()
    tasks = [asyncio.create_task(cluster.run(core.send)), asyncio.create_task(applier.run())]
    await asyncio.sleep(5)  # the nodes report that they are ready
    done = asyncio.Event()
    completed = 0
    resource = api.served("v1", "pods")

    def ended(change: Change) -> None:
        nonlocal completed
        if change.kind == "DELETED":
            completed += 1
            if completed == pods:
                done.set()
        elif change.record.object["status"].get("phase") == "Succeeded":
            loop.call_soon(api.delete, resource, *change.key)

    api.store.listen(PODS, ended)
    begun, virtual = time.perf_counter(), loop.time()
    for first in range(0, pods, _BATCH):
        for number in range(first, min(pods, first + _BATCH)):
            api.create(resource, "default", _pod(number))
        await asyncio.sleep(_BATCH / _ARRIVALS)
    await done.wait()
    wall = time.perf_counter() - begun
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return Lifecycles(pods, api.store.count(NODES), completed, wall, loop.time() - virtual, completed / wall)


def _pod(number: int) -> Object:
    requests = {"cpu": "1", "memory": "4Gi", GPU: "1"}
    return {
        "metadata": {"name": f"pod-{number:06d}", "annotations": {names.SIMULATED_DURATION_ANNOTATION: _LENGTH}},
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "x:1", "resources": {"requests": requests, "limits": {GPU: "1"}}}],
        },
    }

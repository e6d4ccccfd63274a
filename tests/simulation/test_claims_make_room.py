"""Jobs with ResourceClaims on the simulated cluster, with its drivers: one plan evicts one job and moves another."""

from __future__ import annotations

import asyncio

from fairlead.api import names
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.devices import Model
from fairlead.cluster.simulated.resources import CLAIMS
from fairlead.simulation import aijobs
from fairlead.simulation.world import Process, World
from tests.simulation.lives import live

GPU = "nvidia.com/gpu"


def job(name, queue, count, seconds):
    """A Job of one pod with so many GPUs by a claim of the template of that number."""
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}
    spec = {
        "schedulerName": names.SCHEDULER_NAME,
        "restartPolicy": "Never",
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": f"gpus-{count}"}],
    }
    metadata = {
        "labels": {names.QUEUE_LABEL: queue, "job": name},
        "annotations": {names.SIMULATED_DURATION_ANNOTATION: f"{seconds}s"},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {"parallelism": 1, "template": {"metadata": metadata, "spec": spec}},
    }


class Lab:
    """Two nodes of four GPUs, two queues of four."""

    def __init__(self):
        self.world = world = World(nodes=0, seed=1)
        for name in ("n1", "n2"):
            world.add_host(name, {"kubernetes.io/hostname": name}, {"cpu": "96", "memory": "1Ti", "pods": "110"})
        world.kubelet.drivers.install(dict.fromkeys(("n1", "n2"), Model("plain", 4)))
        for name in ("q0", "q1"):
            spec = {"resources": [{"name": GPU, "quota": 4}]}
            world.create({"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec})
        for count in (1, 2, 4):
            request = {"name": "gpu", "exactly": {"deviceClassName": devices.GPU_CLASS, "count": count}}
            spec = {"spec": {"devices": {"requests": [request]}}}
            metadata = {"name": f"gpus-{count}", "namespace": "vision"}
            made = {"apiVersion": devices.API_VERSION, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}
            world.create(made, "vision")
        self.scheduler = Process(world, 0)
        self.scheduler.start()

    async def submit(self, *jobs):
        for each in jobs:
            self.world.create(each, "vision")
            await asyncio.sleep(5)

    def running(self):
        """Job -> its node, of pods that run."""
        return {
            pod["metadata"]["labels"]["job"]: pod["spec"]["nodeName"]
            for pod in aijobs.pods(self.world)
            if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }

    def held(self):
        """(node, device) of all claims, one for each claim that has it."""
        return [
            (each["pool"], each["device"])
            for _, record in self.world.api.store.sorted(CLAIMS, "vision")
            for each in ((record.object.get("status") or {}).get("allocation") or {"devices": {}})["devices"].get("results", ())
        ]


def test_a_smaller_job_is_evicted_and_another_moves_so_that_no_gpu_is_idle():
    async def story():
        lab = Lab()
        await asyncio.sleep(30)
        await lab.submit(job("filler", "q0", 2, 60), *(job(f"j{at}", "q0", count, 50_000) for at, count in enumerate((2, 2, 1))))
        await asyncio.sleep(300)
        before = lab.running()
        assert set(before) == {"j0", "j1", "j2"}
        assert before["j1"] == before["j2"] != before["j0"]
        await lab.submit(job("wide", "q1", 4, 50_000))
        await asyncio.sleep(900)
        after = lab.running()
        assert set(after) == {"j0", "j1", "wide"}, "the smallest waits, and the others have all GPUs"
        assert after["j0"] == after["j1"] != after["wide"]
        assert len(lab.held()) == len(set(lab.held())) == 8
        assert not lab.world.kubelet.drivers.refusals
        await lab.scheduler.stop()

    live(story)

"""What a simulated day asks of those who use its cluster: what they submit, what befalls them, what they may expect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fairlead.api import names
from fairlead.cluster.simulated.devices import MIG_CLASS
from fairlead.cluster.simulated.store import Object
from fairlead.core.nodes.extended_resources import IMPLICIT
from fairlead.simulation.workload import FAILS, Job
from fairlead.simulation.world import GPU, POOL_LABEL

SHARED_CLAIM = "shared"
"""A job's claim for all of its pods together; others are by templates of the team."""
CLASS_RESOURCE = "example.com/accelerator"
"""An extended resource that a DeviceClass serves, and on some nodes a device plugin."""
REQUESTED: Mapping[str, tuple[str, int]] = {
    "accelerator": (CLASS_RESOURCE, 1),
    "accelerators": (CLASS_RESOURCE, 2),
    "implicit": (IMPLICIT + MIG_CLASS, 1),
}
"""Kinds of devices that a job's pods have by extended resources: the resource, and how many of it."""
Strike = Callable[[], Awaitable[None]]
"""Something that goes wrong, or that a user does."""


class Users:
    """The users of a simulated cluster; without more than this nothing befalls them and they ask for nothing.

    submitted, finished: the names of their jobs so far, and of those that came to their end; restarts: how often one was started
    again.
    """

    submitted: set[str]
    finished: set[str]
    restarts: int

    def strikes(self) -> list[tuple[str, Strike]]:
        """What may go wrong for them, beyond what goes wrong in the cluster."""
        return []

    def start(self) -> None:
        """What they have running beside the scheduler begins."""

    async def stop(self) -> None:
        """It ends."""

    @property
    def done(self) -> bool:
        """Whether nothing is left that must come to its end before the day is over."""
        return True

    def unfinished(self) -> list[str]:
        """What is left, in words."""
        return []

    def wrong(self) -> list[str]:
        """What must not be once all is quiet, in words."""
        return []


def claimed(job: Job) -> Object:
    """The claim of a job's pods: one for each by a template, or the job's own."""
    if job.claim == SHARED_CLAIM:
        return {"name": "devices", "resourceClaimName": job.name}
    return {"name": "devices", "resourceClaimTemplateName": job.claim}


def template(job: Job) -> Object:
    """What a pod of a job asks for and where it may run, and how long it does, as a pod template."""
    requests = {"cpu": f"{job.cpu_milli}m", "memory": f"{8 * job.gpus}Gi"}
    limits: dict[str, str] = {}
    annotations = {names.SIMULATED_DURATION_ANNOTATION: f"{job.duration:.3f}s"}
    if job.fault == FAILS:
        annotations[names.SIMULATED_OUTCOME_ANNOTATION] = "Failed"
    elif job.fault:
        annotations[names.SIMULATED_START_FAILURE_ANNOTATION] = job.fault
    if job.claim in REQUESTED:
        resource, count = REQUESTED[job.claim]
        requests[resource] = limits[resource] = str(count)
    elif job.claim:
        pass  # devices by claims are no resource of the node
    elif job.milli == 1000:
        requests[GPU] = limits[GPU] = str(job.gpus)
    else:
        annotations[names.GPU_FRACTION_ANNOTATION] = f"{job.milli / 1000:g}"
    if job.shared:
        annotations[names.SHARED_RESOURCES_ANNOTATION] = job.shared
    resources: Object = {"requests": requests, "limits": limits}
    spec: Object = {"containers": [{"name": "main", "image": f"{job.kind}:1", "resources": resources}]}
    if job.claim and job.claim not in REQUESTED:
        resources["claims"] = [{"name": "devices"}]
        spec["resourceClaims"] = [claimed(job)]
    if job.pool:
        spec["nodeSelector"] = {POOL_LABEL: job.pool}
    return {"metadata": {"annotations": annotations}, "spec": spec}

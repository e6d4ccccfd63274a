"""Work that needs devices: which nodes have them, the templates of teams, and jobs whose pods have claims or request resources.

A job's claim is by a template of its team, so that each of its pods has a claim of its own, or one
claim that all of its pods share. Or its pods request an extended resource that a class of devices serves, and on some nodes a
device plugin.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from fairlead.api.names import HOSTNAME_LABEL
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.devices import DRIVER, GPU_CLASS, MIG_CLASS, Model
from fairlead.cluster.simulated.store import Object
from fairlead.simulation.users import CLASS_RESOURCE, REQUESTED, SHARED_CLAIM
from fairlead.simulation.workload import TEAMS, Job
from fairlead.simulation.world import GPU, POOL_LABEL, World

POOL = "devices"
MODELS = (Model("mig", 4, "H100-80GB"), Model("plain", 8, "A100-80GB"), Model("mig", 2, "A30"), Model("shared", 4, "H100-80GB"))
"""What the nodes have, in turn."""


def _asks(expression: str = "", name: str = GPU_CLASS, **more: Any) -> Object:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return {"deviceClassName": name, **({"selectors": selectors} if selectors else {}), **more}


def _profile(name: str) -> str:
    return f"device.attributes['{DRIVER}'].profile.startsWith('{name}.')"


_WHOLE_GPU = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu' && !device.allowMultipleAllocations"
_WHOLE = f"!device.allowMultipleAllocations && device.driver == '{DRIVER}'"
_REQUESTS: dict[str, list[Object]] = {
    "gpu": [{"name": "gpu", "exactly": _asks(_WHOLE)}],
    "two": [{"name": "gpu", "exactly": _asks(_WHOLE, count=2)}],
    "small": [{"name": "gpu", "exactly": _asks(_profile("1g"), MIG_CLASS)}],
    "half": [{"name": "gpu", "exactly": _asks(_profile("2g"), MIG_CLASS)}],
    "any": [
        {
            "name": "gpu",
            "firstAvailable": [{"name": "whole", **_asks(_WHOLE)}, {"name": "part", **_asks(_profile("2g"), MIG_CLASS)}],
        }
    ],
    "share": [
        {"name": "gpu", "exactly": _asks("device.allowMultipleAllocations", capacity={"requests": {"memory": "20Gi"}})},
    ],
}
KINDS = (*_REQUESTS, SHARED_CLAIM, *REQUESTED)
_PLUGIN_AT, _ADVERTISED = 3, 4  # of the extended resource, on every fourth node by a device plugin beside the driver
CLASS = "accelerator"
"""The class that serves the extended resource."""


def class_body() -> Object:
    """The class that serves an extended resource by whole GPUs."""
    spec = {"selectors": [{"cel": {"expression": _WHOLE_GPU}}], "extendedResourceName": CLASS_RESOURCE}
    return {"apiVersion": devices.API_VERSION, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}


def spec_of(kind: str) -> Object:
    """The spec of a claim of that kind."""
    return {"devices": {"requests": _REQUESTS["gpu" if kind == SHARED_CLAIM else kind]}}


def install(world: World, count: int) -> None:
    """Add so many nodes with devices, and the templates of all teams."""
    for number in range(count):
        name = f"{POOL}-{number:03d}"
        labels = {HOSTNAME_LABEL: name, POOL_LABEL: POOL}
        amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "0"}
        if number % 4 == _PLUGIN_AT:
            amounts[CLASS_RESOURCE] = str(_ADVERTISED)
        world.add_host(name, labels, amounts)
    world.kubelet.drivers.install({f"{POOL}-{number:03d}": MODELS[number % len(MODELS)] for number in range(count)})
    world.create(class_body())
    for team in TEAMS:
        for kind in _REQUESTS:
            world.create(
                {
                    "apiVersion": devices.API_VERSION,
                    "kind": "ResourceClaimTemplate",
                    "metadata": {"name": kind, "namespace": team},
                    "spec": {"spec": spec_of(kind)},
                },
                team,
            )


def with_claims(jobs: list[Job], seed: int) -> list[Job]:
    """The jobs, some of which need devices by claims instead of whole GPUs of device plugins."""
    draw = random.Random(f"claims {seed}")
    made = []
    for job in jobs:
        kind, chosen = draw.choice(KINDS), draw.random() < 0.3
        if chosen and job.milli == 1000:
            job = msgspec.structs.replace(job, claim=kind, pods=min(job.pods, 4), gpus=1, cpu_milli=2000, pool="")  # noqa: PLW2901
        made.append(job)
    return made

"""The demo's MIG pool: nodes whose driver publishes GPUs and their partitions, and jobs that ask for partitions by claims."""

from __future__ import annotations

import random

import msgspec

from fairlead.api.names import HOSTNAME_LABEL
from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.devices import DRIVER, MIG_CLASS, Model
from fairlead.simulation.workload import TEAMS, Job
from fairlead.simulation.world import POOL_LABEL, PRODUCT_LABEL, World

POOL = "mig"
MODEL = Model("mig", 4, "A100-40GB")
TEMPLATES = {"mig-1g": "1g.5gb", "mig-3g": "3g.20gb"}
"""ResourceClaimTemplate of each team -> the profile that it asks for."""
_PART = 1 / 12  # of interactive jobs
_LARGE = 0.25  # of these
_LONGER = 4.0  # times as long as others: few are enough to show


def install(world: World, count: int) -> None:
    """Add so many nodes, and the templates of all teams."""
    found = world.pools.setdefault(POOL, [])
    for number in range(count):
        name = f"{POOL}-{number:03d}"
        labels = {HOSTNAME_LABEL: name, POOL_LABEL: POOL, PRODUCT_LABEL: "A100-MIG"}
        amounts = {"cpu": "96", "memory": "1Ti", "pods": "110"}
        world.add_host(name, labels, amounts)
        found.append(name)
    world.gpus += MODEL.gpus * count
    world.kubelet.drivers.install(dict.fromkeys(found, MODEL))
    for team in TEAMS if count else ():
        for name, profile in TEMPLATES.items():
            expression = f"device.attributes['{DRIVER}'].profile == '{profile}'"
            request = {"deviceClassName": MIG_CLASS, "selectors": [{"cel": {"expression": expression}}]}
            spec = {"devices": {"requests": [{"name": "part", "exactly": request}]}}
            made = {
                "apiVersion": devices.API_VERSION,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": team},
            }
            world.create({**made, "spec": {"spec": spec}}, team)


def with_partitions(jobs: list[Job], seed: int) -> list[Job]:
    """The jobs, some interactive ones of which ask for a partition by a claim instead of a fraction."""
    draw = random.Random(f"partitions {seed}")
    made = []
    for job in jobs:
        chosen, large = draw.random() < _PART, draw.random() < _LARGE
        if chosen and job.kind == "interactive":
            claim = "mig-3g" if large else "mig-1g"
            job = msgspec.structs.replace(job, claim=claim, milli=1000, gpus=1, cpu_milli=2000, duration=_LONGER * job.duration)  # noqa: PLW2901
        made.append(job)
    return made

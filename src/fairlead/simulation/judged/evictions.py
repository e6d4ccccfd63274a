"""Needless evictions: quotas add up to the cluster and all jobs are there from the start, so that no eviction is needed.

A job that is entitled to a place could have had it before it was given to another. Judged besides: no job waits beside
free GPUs within its quota, or where no job of another queue waits.
"""

from __future__ import annotations

import random

from fairlead.core.model.units import WHOLE
from fairlead.simulation.judged.results import Found, Kind
from fairlead.simulation.judged.world import Job, Share, World, fits

_SIZES = {"1": (1,), "1/2/4": (1, 2, 4), "1/2/4/8": (1, 2, 4, 8)}
_STRUCTURES = ("flat", "two levels", "deep", "gangs", "fractions")
_FRACTIONS = (250, 300, 500, 700)
_GPUS_PER_NODE = 8
_DEEPEST = 4


def made(variety: str, seed: int) -> World:
    """The world of a seed, nothing decided yet."""
    structure, _, sizes = variety.rpartition(" ")
    rnd = random.Random(f"{variety}/{seed}")
    nodes = [_GPUS_PER_NODE] * rnd.randint(1, 3)
    queues = _tree(rnd, sum(nodes), {"two levels": 2, "deep": rnd.randint(3, _DEEPEST)}.get(structure, 1))
    world = World(nodes, queues)
    above = {each.parent for each in queues}
    leaves = [each.name for each in queues if each.name not in above]
    wanted, number = sum(nodes) * WHOLE * rnd.uniform(0.8, 2.5), 0
    while wanted > 0:
        size = rnd.choice(_SIZES[sizes]) * WHOLE
        members = 1
        if structure == "gangs" and rnd.random() < 0.4:
            members = rnd.randint(2, 4)
        if structure == "fractions" and rnd.random() < 0.5:
            size = rnd.choice(_FRACTIONS)
        job = Job(f"j{number}", rnd.choice(leaves), size, members, created=float(number))
        world.submit(job)
        wanted -= job.amount
        number += 1
    return world


def _tree(rnd: random.Random, gpus: int, levels: int) -> list[Share]:
    """Queues whose quotas add up to the cluster, and below each to its own."""
    queues: list[Share] = []

    def grow(parent: str, quota: int, left: int) -> None:
        count = rnd.randint(2, 4 if left == levels else 3)
        cuts = sorted(rnd.randint(0, quota) for _ in range(count - 1))
        weighted = rnd.random() < 0.5
        for number, (low, high) in enumerate(zip([0, *cuts], [*cuts, quota], strict=True)):
            name = f"{parent}q{number}"
            weight = rnd.randint(1, 3) if weighted else None
            queues.append(Share(name, (high - low) * WHOLE, parent, weight))
            if left > 1 and (left == levels or rnd.random() < 0.7):
                grow(name, high - low, left - 1)

    grow("", gpus, levels)
    return queues


def play(variety: str, seed: int) -> Found:
    """Play one world and judge it."""
    world = made(variety, seed)
    world.play()
    evicted = sum(len(plan) for plan in world.evicted)
    idle = [job for job in world.waiting if _should_run(world, job)]
    note = f"evicted {world.evicted}" if evicted else f"{[job.name for job in idle]} wait beside free GPUs" if idle else ""
    return Found(evicted, len(world.places) + len(idle), len(idle), note)


def _should_run(world: World, job: Job) -> bool:
    """Whether there is a free place for a job that no other job has a claim to."""
    if not fits(world.free(), job):
        return False
    within = all(world.held(each.name) + job.amount <= each.quota for each in world.path(job.queue))
    return within or all(other.queue == job.queue for other in world.waiting)


KIND = Kind(tuple(f"{structure} {sizes}" for structure in _STRUCTURES for sizes in _SIZES), play)

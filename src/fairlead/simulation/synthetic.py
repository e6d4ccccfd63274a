"""Jobs made up to see who gets what: eight queues in a two-level tree that all have more to do than there are GPUs.

Weights are 1 to 8: `north` holds w1 to w4, `south` w5 to w8, and each of the two weighs what its queues do together.
"""

from __future__ import annotations

import math
import random

from fairlead.core.model.queues import Queue, QueueResource
from fairlead.simulation.traces import TraceJob

HOURS = 48.0
"""For so long every queue has something waiting."""

_HALVES = {"north": (1, 2, 3, 4), "south": (5, 6, 7, 8)}
_GPUS = "nvidia.com/gpu"
_SIZES = ((1, 0.6), (2, 0.15), (4, 0.12), (8, 0.1), (16, 0.03))
_MEDIAN, _SIGMA, _SHORTEST, _LONGEST = 1800.0, 1.0, 60.0, 4 * 3600.0
_BACKLOG = 2.5  # times what a queue can get done, so that it never runs dry


def tree() -> tuple[Queue, ...]:
    """The queues, without quota."""
    queues = []
    for half, weights in _HALVES.items():
        queues.append(Queue(half, resources=(QueueResource(_GPUS, weight=sum(weights)),)))
        queues += [Queue(f"w{weight}", half, resources=(QueueResource(_GPUS, weight=weight),)) for weight in weights]
    return tuple(queues)


def shares() -> dict[str, float]:
    """Queue -> the part of the cluster that it deserves while all wait."""
    total = sum(sum(weights) for weights in _HALVES.values())
    return {f"w{weight}": weight / total for weights in _HALVES.values() for weight in weights}


def tenants(seed: int, gpus: int, hours: float = HOURS) -> list[TraceJob]:
    """The jobs, by submission: a tenth of each queue's at once, the others over the first half of the time."""
    draw = random.Random(f"tenants {seed}")
    jobs = []
    for queue, part in shares().items():
        work = 0.0
        while work < _BACKLOG * part * gpus * hours * 3600:
            size = min(gpus, draw.choices([size for size, _ in _SIZES], [weight for _, weight in _SIZES])[0])
            duration = min(_LONGEST, max(_SHORTEST, draw.lognormvariate(math.log(_MEDIAN), _SIGMA)))
            at = 0.0 if draw.random() < 0.1 else draw.uniform(0, hours * 1800)
            jobs.append((at, duration, size, queue))
            work += size * duration
    jobs.sort()
    return [TraceJob(f"job-{number:06d}", at, duration, size, queue) for number, (at, duration, size, queue) in enumerate(jobs)]

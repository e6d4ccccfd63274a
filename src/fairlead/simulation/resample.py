"""Other months of the same cluster: whole days of a job trace, drawn with replacement for each queue by itself.

A block bootstrap with days as blocks (Kuensch, Annals of Statistics, 1989): what a queue submits within a day stays together
and at its time of day, and days of different queues are put beside each other that never met. So a policy can be judged
on months that it was not chosen on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from fairlead.simulation.traces import TraceJob

DAY = 86_400.0


def resample(jobs: Sequence[TraceJob], seed: int, days: int) -> list[TraceJob]:
    """`days` days of jobs, by (submission, run time, GPUs); the same for the same jobs, seed and days.

    Days are counted from the first submission of the trace, those without jobs of a queue included. Each queue has a stream
    of draws of its own, so leaving out a queue changes no other. A job that is drawn twice is two jobs. Raises `ValueError`
    for less than a day.
    """
    if days < 1:
        raise ValueError(f"days must be at least 1, not {days}")
    if not jobs:
        return []
    first = min(job.submitted for job in jobs)
    begun = int((max(job.submitted for job in jobs) - first) // DAY) + 1
    by_day: dict[str, dict[int, list[TraceJob]]] = {}
    for job in jobs:
        by_day.setdefault(job.queue, {}).setdefault(int((job.submitted - first) // DAY), []).append(job)
    drawn = []
    for queue, found in sorted(by_day.items()):
        draw = random.Random(f"resample {seed} {queue}")
        for day in range(days):
            source = draw.randrange(begun)
            shift = (day - source) * DAY - first
            drawn += [(job.submitted + shift, job.duration, job.gpus, queue, job.name) for job in found.get(source, ())]
    drawn.sort()
    return [
        TraceJob(f"job-{number:07d}", at, duration, gpus, queue) for number, (at, duration, gpus, queue, _) in enumerate(drawn)
    ]

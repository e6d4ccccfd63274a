"""How long a job is thought to run, when it is submitted: the truth, its owner's limit, or what was learned from others.

`limit`: owners ask for more than they need, by a factor drawn from 1 to 5 for each job, and then for the next usual
limit. `learned`: the mean of the logarithms of run times of jobs that have ended, of the same queue and size, else of the
same size, else of all; older ones count half after a hundred newer ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Literal, get_args

from fairlead.simulation.traces import TraceJob

Durations = Literal["exact", "limit", "learned"]
DURATIONS: tuple[Durations, ...] = get_args(Durations)

_LIMITS = tuple(hours * 3600.0 for hours in (0.5, 1, 2, 4, 8, 12, 24, 48, 72, 168, 336, 720, 1440))
_MOST_ASKED = 5.0
_HALF_LIFE = 100.0
_ENOUGH = 5.0  # ended jobs of a kind before they are believed
_UNKNOWN = 3600.0


class Estimates:
    """Estimates in seconds; `ended` reports each job that has run."""

    def __init__(self, jobs: Sequence[TraceJob], kind: Durations, seed: int = 0) -> None:
        self.jobs = jobs
        self.kind = kind
        self._limits: list[float] = []
        if kind == "limit":
            draw = random.Random(seed)
            asked = [job.duration * draw.uniform(1.0, _MOST_ASKED) for job in jobs]
            self._limits = [next((limit for limit in _LIMITS if limit >= each), each) for each in asked]
        self._means: dict[tuple[str, int], tuple[float, float]] = {}  # kind of job -> (weight, mean of logarithms)

    def of(self, index: int) -> float:
        """How long a job is thought to run that is submitted now."""
        job = self.jobs[index]
        if self.kind == "exact":
            return job.duration
        if self.kind == "limit":
            return self._limits[index]
        for kind in self._kinds(job):
            weight, mean = self._means.get(kind, (0.0, 0.0))
            if weight >= _ENOUGH:
                return math.exp(mean)
        return _UNKNOWN

    def stated(self, index: int) -> float | None:
        """The estimate of a job's owner; None where there is none and it must be learned."""
        return None if self.kind == "learned" else self.of(index)

    def ended(self, index: int) -> None:
        """A job has run to its end."""
        if self.kind != "learned":
            return
        job = self.jobs[index]
        value = math.log(max(1.0, job.duration))
        for kind in self._kinds(job):
            weight, mean = self._means.get(kind, (0.0, 0.0))
            weight *= 0.5 ** (1 / _HALF_LIFE)
            self._means[kind] = weight + 1, (mean * weight + value) / (weight + 1)

    @staticmethod
    def _kinds(job: TraceJob) -> tuple[tuple[str, int], ...]:
        return (job.queue, job.gpus), ("", job.gpus), ("", 0)

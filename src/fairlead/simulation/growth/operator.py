"""What a change of a pod costs the operator, by AIJobs; with what the simulated API server does for it."""

from __future__ import annotations

import asyncio

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.simulation.lab import quiet
from fairlead.simulation.operating import Operated


class PodEvents:
    """Jobs end, and others begin, again and again; the unit is a change of a pod."""

    def __init__(self, jobs: int, *, dependent: bool) -> None:
        quiet()
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self._operated = self._runner.run(_begun(jobs, dependent=dependent))

    def prepare(self, round_: int) -> None:
        """Nothing."""

    def run(self, round_: int) -> int:
        """Some jobs end, others begin."""
        before = self._operated.changes
        self._runner.run(self._operated.step())
        return self._operated.changes - before

    def close(self) -> None:
        """The operator ends."""
        self._runner.run(self._operated.stop())
        self._runner.close()


async def _begun(jobs: int, *, dependent: bool) -> Operated:
    operated = Operated(jobs, dependent=dependent)
    operated.start()
    await operated.begun()
    return operated


def independent(jobs: int) -> PodEvents:
    """No job waits for another."""
    return PodEvents(jobs, dependent=False)


def dependent(jobs: int) -> PodEvents:
    """Every second job waits for the one before it."""
    return PodEvents(jobs, dependent=True)

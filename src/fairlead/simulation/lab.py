"""The demo's lab: a simulated cluster in which three teams work, scheduled by the production scheduler.

Stepped by its loop: in real time (or faster) beside an HTTP server for kubectl, or on a virtual loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from pathlib import Path

import msgspec
import structlog

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.faults import FaultPlan
from fairlead.core import invariants
from fairlead.core.model.policy import Policy
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import TaskState
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.core_loop import Recorder
from fairlead.scheduler.decision_log import LogWriter
from fairlead.scheduler.options import Options
from fairlead.simulation import mig_pool
from fairlead.simulation.tenants import Tenants
from fairlead.simulation.workload import TEAMS, Job, day
from fairlead.simulation.world import POOLS, START, Process, World

DAY = 86_400.0
_SAMPLE = 60.0
_WAITING = 4  # part of a day's jobs that wait at most, where day follows day


class LabSummary(msgspec.Struct):
    """What happened. waits in seconds, over started jobs."""

    nodes: int
    gpus: int
    jobs: int
    started: int
    finished: int
    waiting: int
    preemptions: int
    gangs_started: int
    mean_wait_seconds: float
    p99_wait_seconds: float
    gpu_utilization: float
    by_kind: dict[str, int]
    by_team_gpu_hours: dict[str, float]
    simulated_hours: float


class Lab:
    """Make it on a running loop, `start` it, and let the loop run. speed: simulated seconds per second of the loop.

    mig: how many of the nodes are of the MIG pool.
    """

    def __init__(
        self,
        *,
        nodes: int,
        jobs: int,
        seed: int,
        speed: float = 1.0,
        start: float = START,
        recorder: Recorder | None = None,
        mig: int = 0,
    ) -> None:
        self.jobs_a_day = jobs
        self.seed = seed
        self.mig = mig
        self.world = World(nodes=nodes - mig, seed=seed, speed=speed, start=start, plan=FaultPlan(seed))
        mig_pool.install(self.world, mig)
        self.log: deque[str] = deque(maxlen=8)
        self.tenants = Tenants(self.world, self._day(0), notice=self.log.append)
        # The lease counts real seconds; in the lab no other process wants it.
        options = Options(address="", lease_duration=3600.0, lease_renew=3000.0, lease_retry=1200.0, writers=64)
        self.process = Process(self.world, 0, options=options, recorder=recorder)
        self.team_seconds: dict[str, float] = dict.fromkeys(TEAMS, 0.0)
        self.gpu_seconds = 0.0
        self.days = 1
        self._sampled = 0.0

    @property
    def now(self) -> float:
        """Seconds since the first day began."""
        return self.tenants.now

    @property
    def state(self) -> ClusterState:
        """The scheduler's state, to be read."""
        return self.process.core.state

    def start(self, *, endless: bool = False) -> None:
        """Begin. endless: another day follows each."""
        self.process.start()
        self.world.clock.call_later(_SAMPLE, self._sample)
        if endless:  # a lab that asks for more than it has would have ever more jobs that wait
            self.tenants.most_waiting = max(1, self.jobs_a_day // _WAITING)
            self.world.clock.call_later(DAY, self._next_day)

    def _day(self, number: int) -> list[Job]:
        made = day(self.seed + number, self.jobs_a_day, tuple(pool.name for pool in POOLS))
        if self.mig:
            made = mig_pool.with_partitions(made, self.seed + number)
        if not number:
            return made
        return [msgspec.structs.replace(job, name=f"{job.name}-d{number + 1}") for job in made]

    def _next_day(self) -> None:
        self.tenants.forget()
        self.tenants.add(self._day(self.days))
        self.days += 1
        self.world.clock.call_later(DAY, self._next_day)

    def _sample(self) -> None:
        """Add up what was held since the last sample."""
        elapsed, self._sampled = self.now - self._sampled, self.now
        for team, milli in self.held().items():
            self.gpu_seconds += elapsed * milli / WHOLE
            self.team_seconds[team] = self.team_seconds.get(team, 0.0) + elapsed * milli / WHOLE
        self.world.clock.call_later(_SAMPLE, self._sample)

    def held(self) -> dict[str, int]:
        """Thousandths of GPUs that each queue's pods hold now."""
        if not self.process.deciding:
            return {}
        queues = self.state.queues.queues
        return {name: node.used["nvidia.com/gpu"] for name, node in queues.items() if node.used.get("nvidia.com/gpu")}

    def counts(self) -> dict[str, tuple[int, int]]:
        """Queue -> (pods that run, pods that wait)."""
        found: dict[str, list[int]] = {}
        if self.process.deciding:
            for task in self.state.tasks.values():
                if task.pod.ours:
                    found.setdefault(task.queue, [0, 0])[task.state is not TaskState.BOUND] += 1
        return {name: (each[0], each[1]) for name, each in found.items()}

    def summary(self) -> LabSummary:
        """The time until now in numbers; walks the invariants first."""
        invariants.check(self.state)
        tenants = self.tenants
        waits = sorted(at - tenants.runs[name].job.submitted for name, at in tenants.first_start.items())
        started = [tenants.runs[name].job for name in tenants.first_start]
        return LabSummary(
            nodes=len(self.world.manifests),
            gpus=self.world.gpus,
            jobs=len(tenants.submitted),
            started=len(tenants.first_start),
            finished=len(tenants.finished),
            waiting=len(tenants.submitted) - len(tenants.first_start),
            preemptions=tenants.restarts,
            gangs_started=sum(job.pods > 1 for job in started),
            mean_wait_seconds=sum(waits) / len(waits) if waits else 0.0,
            p99_wait_seconds=waits[int(0.99 * len(waits))] if waits else 0.0,
            gpu_utilization=self.gpu_seconds / (self.world.gpus * self.now) if self.now else 0.0,
            by_kind=dict(sorted(Counter(job.kind for job in started).items())),
            by_team_gpu_hours={team: round(seconds / 3600, 1) for team, seconds in self.team_seconds.items()},
            simulated_hours=self.now / 3600,
        )


def quiet() -> None:
    """The scheduler's log lines are not what one watches a lab for."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def record(path: Path, *, nodes: int, jobs: int, seed: int, hours: float) -> LabSummary:
    """A lab's hours on virtual time, the scheduler's decision log written to a file."""

    async def main(writer: LogWriter) -> LabSummary:
        lab = Lab(nodes=nodes, jobs=jobs, seed=seed, recorder=writer)
        lab.start()
        await asyncio.sleep(hours * 3600)
        summary = lab.summary()
        await lab.process.kill()
        return summary

    quiet()
    with path.open("wb") as file, asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(LogWriter(file, Policy())))

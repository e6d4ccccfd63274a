"""Deterministic simulation: a cluster, its users, the scheduler and every kind of fault on one seeded clock.

Faults come in storms; between them the cluster must settle. Everything that happens, down to the order
of two tasks on the loop, follows from the seed, so a failing seed is a bug report.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from itertools import count
from pathlib import Path

import msgspec
import structlog

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.faults import FaultPlan
from fairlead.cluster.simulated.resources import CLAIMS, SLICES
from fairlead.scheduler.core_loop import Recorder
from fairlead.scheduler.decision_log import LogWriter
from fairlead.simulation.administrators import Administrators
from fairlead.simulation.audit import LATE, Auditor
from fairlead.simulation.device_audit import DeviceAuditor
from fairlead.simulation.device_storms import DeviceStorms
from fairlead.simulation.device_work import install, with_claims
from fairlead.simulation.neighbours import plan as plans
from fairlead.simulation.neighbours.agents import Agents
from fairlead.simulation.neighbours.audit import NeighbourAuditor
from fairlead.simulation.neighbours.storms import NeighbourStorms
from fairlead.simulation.researchers import Researchers
from fairlead.simulation.schedulers import POLICY, Schedulers
from fairlead.simulation.storms import Storms
from fairlead.simulation.tenants import Tenants
from fairlead.simulation.users import Users
from fairlead.simulation.windows import WindowJudge
from fairlead.simulation.workload import TEAMS, Job, crowded
from fairlead.simulation.world import POOLS, Process, World

_HOUR = 3600.0
_EVERY, _FIRST, _STORM, _CALM = 5.5 * _HOUR, 1 * _HOUR, 45 * 60.0, 15 * 60.0
_SOON = 1.0  # seconds within which what is due is awaited before the settled state is judged
_WAITS = 30  # so often at most: something is always due somewhere
_STILL = 10.0  # seconds without a write, by the slower clock, before the settled state is judged: a search rests as long
_PATIENCE = 2 * _HOUR
_DRAIN = 96 * _HOUR  # in which whatever was submitted must come to its end, in workloads that guarantee it


class Outcome(msgspec.Struct):
    """What a run came to. digest: equal for equal runs. devices: counts of claims and drivers, where nodes have devices.

    neighbours: counts of what concerns those beside a pod, on days that have any of it. windows: how many bindings were judged
    by windows that administrators had reserved.
    """

    seed: int
    virtual_hours: float
    jobs_submitted: int
    jobs_finished: int
    bindings: int
    passes: int
    restarts: int
    scheduler_starts: int
    settled_checks: int
    fault_kinds: int
    faults: dict[str, int]
    violations: list[str]
    digest: str
    wall_seconds: float
    devices: dict[str, int] = {}
    neighbours: dict[str, int] = {}
    windows: int = 0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. faults: whether any happen at all. workload: one of `WORKLOADS`.

    devices: so many nodes more, with devices that jobs of workload `pods` need by claims. administrators: whether these work.
    """

    nodes: int = 50
    jobs: int = 300
    hours: float = 24.0
    faults: bool = True
    workload: str = "pods"
    devices: int = 0
    administrators: bool = False


WORKLOADS = ("pods", "aijobs")
"""Pods and PodGroups of a small job controller; AIJobs and Jobs of classes of service, with the operator beside the scheduler."""


def run(seed: int, settings: Settings | None = None, record: Path | None = None) -> Outcome:
    """One seed, from the beginning to the end. record: write the first scheduler's decision log there."""
    settings = settings or Settings()
    silence()

    async def main(recorder: Recorder | None) -> Outcome:
        return await Run(seed, settings, recorder).run()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        if record is None:
            return runner.run(main(None))
        with record.open("wb") as file:
            return runner.run(main(LogWriter(file, POLICY)))


def run_quietly(work: tuple[int, Settings]) -> Outcome:
    """One seed for a pool of processes."""
    collect_rarely()
    return run(*work)


def silence() -> None:
    """No log: faults fill it."""
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet, logger_factory=structlog.ReturnLoggerFactory())


def collect_rarely() -> None:
    """For a process of its own: little here is garbage that only the collector finds, some 5 MB of each day."""
    if next(_DAYS) % _COLLECT_EVERY == 0:
        gc.collect()
        gc.freeze()  # as the scheduler does once everything has been observed
        gc.set_threshold(1_000_000, 50, 1000)  # 6 % of a day's time


_COLLECT_EVERY = 64
_DAYS = count()  # that this process has run


class Run:
    """One seed's run."""

    def __init__(self, seed: int, settings: Settings, recorder: Recorder | None) -> None:
        self.seed = seed
        self.settings = settings
        self.random = random.Random(f"chaos {seed}")
        self.plan = FaultPlan(seed)
        self.world = World(nodes=settings.nodes, seed=seed, plan=self.plan, limits=1.6, latency=0.002)
        self.auditor = Auditor(self.world)
        self.device_auditor: DeviceAuditor | None = None
        if settings.devices:
            self.auditor.watch(CLAIMS, SLICES)
            self.device_auditor = DeviceAuditor(self.world.api.store, self.world.clock.now, self.auditor.wrong, late=LATE)
            install(self.world, settings.devices)
        self.plan_of_neighbours = plans.drawn(seed, lasting=settings.workload == "aijobs")
        if self.plan_of_neighbours.any:
            plans.install(self.plan_of_neighbours, self.world)
        self.users = self._users()
        events = seed % 25 == 0  # they are a third of all writes
        self.schedulers = Schedulers(self.world, self.auditor, self.random, recorder=recorder, events=events)
        self.storms = Storms(self.world, self.auditor, self.random, self.plan)
        self.device_storms = DeviceStorms(self.world, seed, self.storms.afterwards, self.auditor.disturbed)
        self.neighbours = NeighbourStorms(self.world, self.plan_of_neighbours, self.storms.afterwards)
        self.administrators: Administrators | None = None
        self.window_judge: WindowJudge | None = None
        if settings.administrators:
            alone = not self.plan_of_neighbours.any
            self.administrators = Administrators(self.world, seed, self.auditor, self.storms.afterwards, relabels=alone)
            self.window_judge = WindowJudge(self.world, self.auditor, self.schedulers.latest)
        self.agents: Agents | None = None
        self.neighbour_auditor: NeighbourAuditor | None = None
        if self.plan_of_neighbours.any:
            clock, wrong = self.world.clock.now, self.auditor.wrong
            self.neighbour_auditor = NeighbourAuditor(self.world.api.store, clock, wrong, late=LATE)
            self.auditor.judges.append(self.neighbour_auditor.settled)
        if self.plan_of_neighbours.pairs:
            self.agents = Agents(self.world, seed, self.auditor.wrong, self.auditor.calm)
            self.auditor.judges.append(self.agents.settled)
        self.checks = 0

    def _users(self) -> Users:
        jobs = self._jobs()
        return Researchers(self.world, jobs, self.seed) if self.settings.workload == "aijobs" else Tenants(self.world, jobs)

    def _jobs(self) -> list[Job]:
        settings = self.settings
        jobs = crowded(self.seed, settings.jobs, settings.hours * _HOUR, tuple(pool.name for pool in POOLS))
        jobs = with_claims(jobs, self.seed) if settings.devices else jobs
        return plans.with_neighbours(jobs, self.plan_of_neighbours, self.world)

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return asyncio.get_running_loop().time()

    async def run(self) -> Outcome:
        """Storms and calms until the time is over, then a last calm."""
        begun = time.perf_counter()
        asyncio.get_running_loop().set_exception_handler(self._failed)
        horizon = self.settings.hours * _HOUR
        await self.schedulers.start()
        self.users.start()
        storm = _FIRST
        while storm + _STORM + _CALM < horizon and self.settings.faults:
            await self._until(storm)
            await self._storm()
            await self._until(storm + _STORM + _CALM)
            await self._settle()
            storm += _EVERY
        await self._until(horizon)
        await self._settle()
        if not self.users.done:
            await self._drain()
        for process in self.schedulers.processes:
            self.schedulers.account(process)
            await process.stop()
        await self.users.stop()
        counts = self.plan.counts + self.storms.faults
        return Outcome(
            seed=self.seed,
            virtual_hours=self.now / _HOUR,
            jobs_submitted=len(self.users.submitted),
            jobs_finished=len(self.users.finished),
            bindings=self.auditor.bindings,
            passes=self.schedulers.passes,
            restarts=self.users.restarts,
            scheduler_starts=len(self.schedulers.processes),
            settled_checks=self.checks,
            fault_kinds=len(counts),
            faults=dict(sorted(counts.items())),
            violations=self.auditor.violations,
            digest=self.auditor.digest,
            wall_seconds=time.perf_counter() - begun,
            devices=self._devices(),
            neighbours=self._neighbours(),
            windows=self.window_judge.judged if self.window_judge is not None else 0,
        )

    def _devices(self) -> dict[str, int]:
        """How much happened with devices."""
        if self.device_auditor is None:
            return {}
        drivers, controllers = self.world.kubelet.drivers, self.world.controllers
        return {
            "claims_made": controllers.claims.made,
            "allocations": self.device_auditor.allocations,
            "judged": self.device_auditor.judged,
            "extended": self.device_auditor.extended,
            "driver_restarts": drivers.restarts,
            "prepare_refusals": len(drivers.refusals),
            "evicted_by_taint": controllers.device_evictions.evicted,
        }

    def _neighbours(self) -> dict[str, int]:
        """How much happened between neighbours."""
        if self.neighbour_auditor is None:
            return {}
        return {"judged": self.neighbour_auditor.judged, "pairs": self.agents.pairs if self.agents is not None else 0}

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """An exception that nothing caught is a violation."""
        self.auditor.violations.append(f"uncaught: {context.get('message')}: {context.get('exception')!r}")

    async def _until(self, at: float) -> None:
        """Time passes; a scheduler that ended by itself is started again, as a kubelet would."""
        while (left := at - self.now) > 0:
            await asyncio.sleep(min(left, 20.0))
            if self.process.ended:
                await self.schedulers.start()

    @property
    def process(self) -> Process:
        """The scheduler that should lead."""
        return self.schedulers.current

    # -- calm ----------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """No more disturbances and no limits: whatever was submitted comes to its end."""
        for team in TEAMS:
            self.storms.set_limit(team, self.world.gpus)
        end = self.now + _DRAIN
        while not self.users.done and self.now < end:
            await self._until(self.now + 600.0)
        self.auditor.violations += self.users.unfinished()
        await self._settle()

    async def _settle(self) -> None:
        """Wait for a moment at which nothing is on its way, then judge."""
        deadline, waited = self.now + _PATIENCE, 0
        while self.now < deadline:
            await self._until(self.now + 1.0)
            still = (self.world.clock.now() - self.auditor.changed_at) * min(1.0, self.process.rate) >= _STILL
            scheduler = self.process.scheduler
            if (
                still
                and self.process.deciding
                and scheduler is not None
                and scheduler.applier.idle
                and not self.process.core.busy
            ):
                due = self.process.core.state.next_due
                if due is None or due > self.process.client.clock() + _SOON or waited >= _WAITS:
                    break
                waited += 1  # what is decided within the second is judged when it is
        else:
            self.auditor.violations.append(
                f"seed {self.seed}: not settled within {_PATIENCE / 60:g} minutes at {self.world.clock.text()}"
            )
            return
        self.checks += 1
        self.auditor.settled(self.process)
        self.auditor.violations += [f"{self.world.clock.text()} settled: {each}" for each in self.users.wrong()]
        if self.device_auditor is not None:
            self.auditor.violations += [f"{self.world.clock.text()} {each}" for each in self.device_auditor.settled()]

    # -- storm ---------------------------------------------------------------------------------

    async def _storm(self) -> None:
        """Everything goes wrong for a while, then all of it is repaired."""
        of_devices = self.device_storms.strikes() if self.settings.devices else []
        others = [*self.schedulers.strikes(), *self.users.strikes(), *of_devices, *self.neighbours.strikes()]
        others += self.administrators.strikes() if self.administrators is not None else []
        await self.storms.rage(_STORM, others, self._until)
        if self.process.ended or self.process.partition.cut:
            self.process.partition.cut = False
            await self._until(self.now + 1.0)


def replay_command(seed: int, settings: Settings) -> str:
    """The command that repeats a run."""
    command = (
        f"fairlead simulate faults --seeds {seed} --nodes {settings.nodes} --jobs {settings.jobs} --hours {settings.hours:g}"
    )
    command += f" --devices {settings.devices}" if settings.devices else ""
    command += " --administrators" if settings.administrators else ""
    return command if settings.workload == "pods" else f"{command} --workload {settings.workload}"

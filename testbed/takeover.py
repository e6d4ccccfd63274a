"""kill -9 of the leaders, again and again, while work arrives: the numbers behind `fairlead bench takeover`.

Two schedulers and two operators run on a real control plane as an installation runs them, with its times of the lease. Counted
are seconds from a kill to the first binding under a later epoch than that of the scheduler that was killed.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import load
from fairlead.scheduler.options import Options
from testbed import arrivals, replicas
from testbed.arrivals import Arrivals
from testbed.controlplane import ControlPlane
from testbed.replicas import PROCESSES, Replicas, ReplicasError

CONTROLLERS = "serviceaccount-controller,garbage-collector-controller"
FLAGS = ("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",)
_NODES, _GPUS = 30, 8
_EVERY = 0.5  # seconds between arrivals: singles each time, a gang or a job every second time
_SINGLES, _GANG, _WORKERS = 2, 4, 2
_KEPT = 15.0  # seconds for which what has nodes keeps them
_LIMIT = 90.0


class Spread(msgspec.Struct):
    """Seconds, over all kills."""

    p50: float
    max: float
    each: list[float]


class TakeoverBench(msgspec.Struct):
    """What came of it. first_binding_seconds: from a kill to the first binding of the next leader.

    first_job_seconds: to the first pod of an AIJob that was created after the kill. bound_twice: pods that were seen on a second
    node, or on one that was full. partial_gangs: gangs and AIJobs of which only some members had nodes in the end; unbound: pods
    that had none.
    """

    kills: int
    lease_seconds: float
    first_binding_seconds: Spread
    first_job_seconds: Spread
    bound_twice: int
    partial_gangs: int
    unbound: int
    pods: int
    errors: list[str]

    @property
    def holds(self) -> bool:
        """Whether every kill was survived in time: the lease's duration and two seconds."""
        late = self.first_binding_seconds.max > self.lease_seconds + 2.0
        return not (late or self.bound_twice or self.partial_gangs or self.unbound or self.errors)


def run(count: int, seed: int, progress: Callable[[str], None]) -> TakeoverBench:
    """Kill scheduler and operator so many times on a fresh control plane. Raises `ReplicasError`."""
    return asyncio.run(_run(count, random.Random(seed), progress))


async def _run(count: int, source: random.Random, progress: Callable[[str], None]) -> TakeoverBench:
    plane = ControlPlane(CONTROLLERS, flags=FLAGS)
    with TemporaryDirectory(prefix="fairlead-") as logs:
        try:
            await asyncio.to_thread(prepare, plane)
            async with Client(load(str(plane.kubeconfig)), timeout=60) as client:
                await arrivals.nodes(client, _NODES, _GPUS)
                work = Arrivals(client, _GPUS)
                async with work.observed(), replicas.running(plane, Path(logs)) as processes:
                    return await _killed(work, processes, count, source, progress)
        finally:
            await asyncio.to_thread(plane.stop)


def prepare(plane: ControlPlane) -> None:
    """A control plane with the definitions and the rights of both processes."""
    plane.start()
    plane.install("fairlead-scheduler")
    plane.grant("fairlead-operator")


async def _killed(
    work: Arrivals, processes: Replicas, count: int, source: random.Random, progress: Callable[[str], None]
) -> TakeoverBench:
    arriving = asyncio.create_task(_arrive(work))
    bindings: list[float] = []
    jobs: list[float] = []
    try:
        for number in range(count):
            await asyncio.sleep(source.uniform(1.0, 4.0))
            epochs = {process: await processes.kill_leader(process) for process in PROCESSES}
            killed = time.monotonic()
            bindings.append(await _first_binding(work, killed, epochs["scheduler"]))
            jobs.append(await _first_job(work, killed))
            progress(f"kill {number + 1} of {count}: first binding {bindings[-1]:.2f} s, first pod of a job {jobs[-1]:.2f} s")
            for process in PROCESSES:
                await processes.until_ready(processes.start(process))
    finally:
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
    await work.settled()
    complete = await work.until(lambda: not work.waiting() and not work.partial(), _LIMIT)
    partial = [] if complete else work.partial()
    twice = [*work.twice, *work.over_allocated]
    for each in [*twice, *partial]:
        progress(each)
    return TakeoverBench(
        kills=count,
        lease_seconds=Options().lease_duration,
        first_binding_seconds=_spread(bindings),
        first_job_seconds=_spread(jobs),
        bound_twice=len(twice),
        partial_gangs=len(partial),
        unbound=len(work.waiting()),
        pods=len(work.pods),
        errors=processes.errors(),
    )


async def _arrive(work: Arrivals) -> None:
    number = 0
    while True:
        for _ in range(_SINGLES):
            work.single()
        if number % 4 == 0:
            work.gang(_GANG)
        elif number % 4 == 2:
            work.job(_WORKERS)
        if number % 4 == 3:
            await work.retire(_KEPT)
        number += 1
        await asyncio.sleep(_EVERY)


async def _first_binding(work: Arrivals, killed: float, epoch: int) -> float:
    found: list[float] = []

    def bound() -> bool:
        found[:] = [each.bound for each in work.pods.values() if each.bound is not None and each.epoch > epoch]
        return bool(found)

    if not await work.until(bound, _LIMIT):
        raise ReplicasError(f"no pod was bound within {_LIMIT:g} s of the kill of the scheduler")
    return round(min(found) - killed, 3)


async def _first_job(work: Arrivals, killed: float) -> float:
    def made() -> bool:
        later = {name for name, at in work.jobs.items() if at > killed}
        return any(each.group in later for each in work.pods.values())

    if not await work.until(made, _LIMIT):
        raise ReplicasError(f"no pod of a job was made within {_LIMIT:g} s of the kill of the operator")
    return round(time.monotonic() - killed, 3)


def _spread(seconds: list[float]) -> Spread:
    return Spread(round(statistics.median(seconds), 3), max(seconds), seconds)

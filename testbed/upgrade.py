"""A rolling upgrade while pods arrive, beside the same load without one: the numbers behind `fairlead bench upgrade`.

Two replicas of scheduler and operator are replaced as their Deployments do it: one new process more, which has to be ready, then
SIGTERM to an old one, until all are new. Everything shares this machine's cores: the API server, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.rules import strict
from fairlead.cluster.kubernetes.client import Client, encode
from fairlead.cluster.kubernetes.config import load
from testbed import arrivals, replicas
from testbed.arrivals import NAMESPACE, PODS, Arrivals, Seen
from testbed.controlplane import ControlPlane
from testbed.replicas import PROCESSES, Replica, Replicas, ReplicasError
from testbed.takeover import CONTROLLERS, FLAGS, prepare

_NODES, _GPUS = 300, 100
_JOBS, _WORKERS = 20, 2
_LIMIT = 120.0
_WARM = 5.0  # seconds of load before what is counted


class Course(msgspec.Struct):
    """One run of the load. disturbed: what became of AIJobs that ran before it, and of pods that arrived."""

    seconds: float
    pods: int
    pods_per_second: float
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    disturbed: list[str]


class Process(msgspec.Struct):
    """What a process was seen to use: a leader, and a standby, while pods arrived."""

    process: str
    leads: bool
    cpu_percent: float
    memory_mb: float


class UpgradeBench(msgspec.Struct):
    """jobs_disturbed: AIJobs that ran before the upgrade and lost a pod, and pods that were not bound, or more than once."""

    rate: float
    jobs_disturbed: int
    p50_seconds: float
    p99_seconds: float
    upgrade: Course
    without: Course
    processes: list[Process]
    errors: list[str]

    @property
    def holds(self) -> bool:
        """Whether nothing was disturbed, and pods were bound in time."""
        return not self.jobs_disturbed and self.p99_seconds <= 3.0 and not self.errors


def run(rate: float, progress: Callable[[str], None]) -> UpgradeBench:
    """The load without an upgrade, then with one, on a fresh control plane. Raises `ReplicasError`."""
    return asyncio.run(_run(rate, progress))


async def _run(rate: float, progress: Callable[[str], None]) -> UpgradeBench:
    plane = ControlPlane(CONTROLLERS, flags=FLAGS)
    with TemporaryDirectory(prefix="fairlead-") as logs:
        try:
            await asyncio.to_thread(prepare, plane)
            async with Client(load(str(plane.kubeconfig)), timeout=60) as client:
                await arrivals.nodes(client, _NODES, _GPUS)
                work = Arrivals(client, _GPUS)
                async with work.observed(), replicas.running(plane, Path(logs)) as processes:
                    return await _compared(work, processes, rate, progress)
        finally:
            await asyncio.to_thread(plane.stop)


async def _compared(work: Arrivals, processes: Replicas, rate: float, progress: Callable[[str], None]) -> UpgradeBench:
    await _jobs_run(work)
    used: list[Process] = []

    async def nothing() -> None:
        used.extend(await _used(processes, 15.0))

    async def replaced() -> None:
        old = [(process, replica) for process in PROCESSES for replica in list(processes.running[process])]
        for process, replica in old:
            await processes.replace(replica)
            progress(f"{process}: one is replaced")

    without = await _course(work, rate, nothing, progress)
    upgrade = await _course(work, rate, replaced, progress)
    return UpgradeBench(
        rate=rate,
        jobs_disturbed=len(upgrade.disturbed),
        p50_seconds=upgrade.p50_seconds,
        p99_seconds=upgrade.p99_seconds,
        upgrade=upgrade,
        without=without,
        processes=used,
        errors=processes.errors(),
    )


async def _jobs_run(work: Arrivals) -> None:
    """AIJobs that run from before until after."""
    for _ in range(_JOBS):
        work.job(_WORKERS)
    await work.settled()
    if not await work.until(lambda: len(work.pods) == _JOBS * _WORKERS and not work.waiting(), _LIMIT):
        raise ReplicasError(f"{len(work.pods)} pods of jobs, {len(work.waiting())} of them without nodes")
    ready = [{"type": each, "status": "True"} for each in ("Ready", "ContainersReady")]
    container = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
    running = encode({"status": {"phase": "Running", "conditions": ready, "containerStatuses": [container]}})
    for each in list(work.pods.values()):
        await work.client.patch(f"{PODS}/{each.name}/status", running, "application/merge-patch+json")
    deadline = time.monotonic() + _LIMIT
    while wrong := await _restarted(work):
        if time.monotonic() > deadline:
            raise ReplicasError(f"jobs do not run: {wrong[0]}")
        await asyncio.sleep(0.2)


async def _course(
    work: Arrivals, rate: float, meanwhile: Callable[[], Awaitable[None]], progress: Callable[[str], None]
) -> Course:
    """Pods arrive while something is done; counted are those that were asked for from its begin to its end."""
    members = {uid for uid, each in work.pods.items() if each.group}
    arriving = asyncio.create_task(_arrive(work, rate))
    try:
        await asyncio.sleep(_WARM)
        begun = time.monotonic()
        await meanwhile()
        ended = time.monotonic()
    finally:
        arriving.cancel()
        await asyncio.gather(arriving, return_exceptions=True)
    await work.settled()
    await work.until(lambda: not work.waiting(), _LIMIT)
    counted = [each for each in work.pods.values() if each.asked is not None and begun <= each.asked <= ended]
    waits = sorted(_wait(each) for each in counted)
    disturbed = [f"{each.name} was not bound" for each in counted if each.bound is None]
    disturbed += [f"{work.pods[uid].name} is gone" for uid in members if work.pods[uid].gone]
    disturbed += await _restarted(work)
    disturbed += [*work.twice, *work.over_allocated]
    for each in disturbed:
        progress(each)
    found = Course(
        seconds=round(ended - begun, 1),
        pods=len(counted),
        pods_per_second=round(len(counted) / (ended - begun), 1),
        p50_seconds=round(waits[len(waits) // 2], 3),
        p99_seconds=round(waits[len(waits) * 99 // 100], 3),
        max_seconds=round(waits[-1], 3),
        disturbed=disturbed,
    )
    progress(f"{found.pods} pods in {found.seconds} s: p50 {found.p50_seconds} s, p99 {found.p99_seconds} s")
    return found


def _wait(pod: Seen) -> float:
    return (pod.bound if pod.bound is not None else time.monotonic()) - (pod.asked or 0.0)


async def _arrive(work: Arrivals, rate: float) -> None:
    begun, number = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begun) * rate)
        while number < due:
            work.single()
            number += 1
        await asyncio.sleep(0.01)


async def _restarted(work: Arrivals) -> list[str]:
    """AIJobs that are not in their first attempt any more, or do not run."""
    found = []
    for name in work.jobs:
        path = f"/apis/fairlead.dev/v1alpha1/namespaces/{NAMESPACE}/aijobs/{name}"
        job = msgspec.json.decode(await work.client.get(path), type=strict(AIJob))
        status = job.status
        if status is None or status.phase != "Running" or status.attempt or status.restarts:
            found.append(f"AIJob {name}: {status}")
    return found


async def _used(processes: Replicas, seconds: float) -> list[Process]:
    """What each process uses in so many seconds."""
    before: dict[int, float] = {}
    every = [(process, replica) for process in PROCESSES for replica in processes.running[process]]
    for _, replica in every:
        before[replica.popen.pid] = replica.spent()[0]
    await asyncio.sleep(seconds)
    leaders: dict[str, Replica] = {process: (await processes.leader(process))[0] for process in PROCESSES}
    found = []
    for process, replica in every:
        cpu, memory = replica.spent()
        percent = 100 * (cpu - before[replica.popen.pid]) / seconds
        found.append(Process(process, leaders[process] is replica, round(percent, 1), round(memory, 1)))
    return found

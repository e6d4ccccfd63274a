"""AIJobs on a real API server: the numbers behind `fairlead bench job --scenario start|worker-kill|suspend`.

Scheduler and operator are processes of their own, KWOK plays the kubelets, and the API server is otherwise idle. What is timed is
seen by a watch.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.rules import strict
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client, encode
from fairlead.cluster.kubernetes.config import load
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from testbed import objects
from testbed.controlplane import SCHEDULER_USER, ControlPlane, scheduler_command

SCENARIOS = ("start", "worker-kill", "suspend")
_OPERATOR = "fairlead-operator"
_GPUS = 8
_LIMIT = 60.0
_MERGE = "application/merge-patch+json"
_JOBS = "/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs"
_PODS = "/api/v1/namespaces/default/pods"


class JobBench(msgspec.Struct):
    """Seconds of each step, each time, and `p50` and `p99` of each. restarts: what each job's budget was charged."""

    scenario: str
    workers: int
    repeats: int
    seconds: dict[str, list[float]]
    p50: dict[str, float]
    p99: dict[str, float]
    restarts: list[int]


class JobsError(RuntimeError):
    """A run that does not count, and why."""


def run(scenario: str, workers: int, repeats: int, progress: Callable[[str], None]) -> JobBench:
    """Time one scenario on a fresh control plane, again and again. Raises `JobsError`."""
    return asyncio.run(_run(scenario, workers, repeats, progress))


async def _run(scenario: str, workers: int, repeats: int, progress: Callable[[str], None]) -> JobBench:
    play = {"start": _start, "worker-kill": _worker_kill, "suspend": _suspend}[scenario]
    steps: dict[str, list[float]] = {}
    restarts = []
    async with _running(workers) as watched:
        for number in range(repeats):
            job = _Job(watched, f"job-{number}", workers)
            for step, seconds in (await play(job)).items():
                steps.setdefault(step, []).append(round(seconds, 3))
            restarts.append(job.restarts)
            await job.delete()
            progress(
                f"{scenario} {number + 1} of {repeats}: {', '.join(f'{name} {each[-1]:.2f} s' for name, each in steps.items())}"
            )
    p99 = {name: sorted(each)[min(len(each) - 1, int(0.99 * len(each)))] for name, each in steps.items()}
    p50 = {name: round(statistics.median(each), 3) for name, each in steps.items()}
    return JobBench(scenario, workers, repeats, steps, p50, p99, restarts)


class _Watched:
    """The jobs and pods of the namespace, as a watch tells of them."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.jobs: dict[str, AIJob] = {}
        self.pods: dict[str, views.Pod] = {}
        self._changed = asyncio.Event()
        self.informers = (
            Informer(client, _JOBS, strict(AIJob), self._hear(self.jobs), lambda: None),
            Informer(client, _PODS, views.Pod, self._hear(self.pods), lambda: None),
        )

    def _hear(self, known: dict[str, Any]) -> Callable[[list[Change[Any]]], None]:
        def heard(changes: list[Change[Any]]) -> None:
            for change in changes:
                name = change.key.partition("/")[2]
                if change.view is None:
                    known.pop(name, None)
                else:
                    known[name] = change.view
            self._changed.set()

        return heard

    async def until(self, condition: Callable[[], bool]) -> float:
        """When it was seen to hold. Raises `JobsError`."""
        try:
            async with asyncio.timeout(_LIMIT):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            told = {name: job.status for name, job in self.jobs.items()}
            raise JobsError(f"it did not come that far in {_LIMIT:g} s: {told}") from error
        return time.monotonic()


@asynccontextmanager
async def _running(workers: int) -> AsyncIterator[_Watched]:
    plane = ControlPlane(
        controllers="serviceaccount-controller,garbage-collector-controller",
        kwok=True,
        flags=["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"],
    )
    processes: list[subprocess.Popen[bytes]] = []
    watching: list[asyncio.Task[None]] = []
    try:
        await asyncio.to_thread(plane.start)
        await asyncio.to_thread(_prepare, plane, workers)
        scheduler = scheduler_command(plane.user("scheduler", SCHEDULER_USER))
        operator = [sys.executable, "-m", "fairlead", "operator", "--kubeconfig", str(plane.user(_OPERATOR, _OPERATOR))]
        async with Client(load(str(plane.kubeconfig)), timeout=60) as client:
            watched = _Watched(client)
            watching.extend(asyncio.create_task(each.run()) for each in watched.informers)
            processes.extend(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for command in (scheduler, [*operator, "--no-leader-elect", "--address", ""])
            )
            warm = _Job(watched, "warm", 1)
            await warm.begin()
            await warm.until("Running")
            await warm.delete()
            yield watched
    finally:
        for task in watching:
            task.cancel()
        await plane.stop_with(processes)


def _prepare(plane: ControlPlane, workers: int) -> None:
    plane.install(SCHEDULER_USER)
    plane.grant(_OPERATOR)
    for number in range(nodes_for(workers)):
        plane.request("POST", "/api/v1/nodes", objects.node(_node(number), gpus=_GPUS))


def nodes_for(workers: int) -> int:
    """How many nodes hold so many workers, all full."""
    return -(-workers // _GPUS)


def _node(number: int) -> str:
    return f"n{number:03d}"


class _Job:
    def __init__(self, watched: _Watched, name: str, workers: int) -> None:
        self.watched, self.client, self.name, self.workers = watched, watched.client, name, workers
        self.restarts = 0

    async def begin(self) -> float:
        """Create it; returns when."""
        begun = time.monotonic()
        made = objects.ai_job(self.name, workers=self.workers, gpus=1)
        made["spec"]["checkpoint"] = {"path": "/checkpoints"}
        await self.client.post(_JOBS, encode(made))
        return begun

    async def until(self, phase: str, attempt: int = 0) -> float:
        """When it was seen in a phase; of an attempt that is no earlier."""

        def reached() -> bool:
            job = self.watched.jobs.get(self.name)
            status = job.status if job is not None else None
            if status is not None:
                self.restarts = status.restarts
            return status is not None and status.phase == phase and status.attempt >= attempt

        return await self.watched.until(reached)

    def pods(self) -> list[views.Pod]:
        """Its pods."""
        return [pod for name, pod in self.watched.pods.items() if name.startswith(f"{self.name}-")]

    async def patch(self, path: str, patch: dict[str, Any]) -> float:
        """Change something; returns when."""
        begun = time.monotonic()
        await self.client.patch(path, encode(patch), _MERGE)
        return begun

    async def pardon(self) -> None:
        """Forget what failed on nodes, as their administrator might."""
        marks = dict.fromkeys((names.FAILURES_ANNOTATION, names.QUARANTINED_UNTIL_ANNOTATION))
        metadata = {"annotations": marks, "labels": {names.QUARANTINED_LABEL: None}}
        for number in range(nodes_for(self.workers)):
            await self.patch(f"/api/v1/nodes/{_node(number)}", {"metadata": metadata})

    async def delete(self) -> None:
        """It goes with its pods, and is waited for."""
        await self.client.delete(f"{_JOBS}/{self.name}")
        await self.watched.until(lambda: not self.pods())


async def _start(job: _Job) -> dict[str, float]:
    begun = await job.begin()
    return {"running": await job.until("Running") - begun}


async def _worker_kill(job: _Job) -> dict[str, float]:
    """A worker is killed with signal 9. Its node is pardoned at once: killed on it again and again, jobs would be kept off it."""
    await job.pardon()
    await job.begin()
    await job.until("Running")
    ended = {"exitCode": 137, "reason": "Error"}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": ended}}
    status = {"phase": "Failed", "containerStatuses": [container]}
    begun = await job.patch(f"{_PODS}/{job.name}-worker-{job.workers // 2}-0/status", {"status": status})
    running = await job.until("Running", attempt=1) - begun
    pod = msgspec.json.decode(await job.client.get(f"{_PODS}/{job.name}-worker-0-1"))
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    if job.restarts != 1 or env.get("FAIRLEAD_CHECKPOINT_PATH") != "/checkpoints":
        raise JobsError(f"not one restart with its checkpoint: {job.restarts} restarts, {env}")
    return {"running again": running}


async def _suspend(job: _Job) -> dict[str, float]:
    await job.begin()
    await job.until("Running")
    begun = await job.patch(f"{_JOBS}/{job.name}", {"spec": {"suspend": True}})
    suspended = await job.until("Suspended")
    free = await job.watched.until(lambda: not job.pods())
    resumed = await job.patch(f"{_JOBS}/{job.name}", {"spec": {"suspend": False}})
    decided = await job.watched.until(lambda: any(pod.spec.node_name for pod in job.pods()))
    running = await job.until("Running", attempt=1)
    return {
        "suspend decided": suspended - begun,
        "GPUs free": free - begun,
        "resume decided": decided - resumed,
        "running again": running - resumed,
    }

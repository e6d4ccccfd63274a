"""AIJobs on the simulated cluster: how long arrays take, what elastic ones make of capacity, what a killed operator costs.

Scheduler and operator are the production ones, on the wire format of the simulated API server.
"""

from __future__ import annotations

import asyncio
import gc
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.faults import FaultPlan
from fairlead.cluster.simulated.http import Server
from fairlead.cluster.simulated.kubelet import Timing
from fairlead.cluster.simulated.resources import PODS
from fairlead.scheduler.options import Options as SchedulerOptions
from fairlead.simulation.charged import ChargedLoop, at_the_expense_of
from fairlead.simulation.world import GPU, OperatorProcess, Process, World

Manifest = dict[str, Any]
Report = Callable[[int, int], None]

_NAMESPACE = "vision"
_JOBS = "fairlead.dev/aijobs"


class ArrayRun(msgspec.Struct):
    """The result: seconds; `efficiency` is the ideal makespan by that which was reached.

    operator_rss_mb: the most that an operator in a process of its own held, working off the same array over HTTP.
    """

    tasks: int
    parallelism: int
    task_seconds: float
    makespan: float
    ideal: float
    efficiency: float
    scheduler_cpu_seconds: float
    operator_cpu_seconds: float
    operator_rss_mb: float


def array(tasks: int = 10_000, parallelism: int = 500, seconds: float = 1.0) -> ArrayRun:
    """An array of tasks of one GPU on just as many GPUs as may run at a time, on a clock that is charged with our CPU time."""
    memory = asyncio.run(_operator_memory(tasks, parallelism))
    collecting = gc.isenabled()
    gc.disable()  # as in the scheduler's own process, where everything old is frozen
    try:
        with asyncio.Runner(loop_factory=ChargedLoop) as runner:
            return msgspec.structs.replace(runner.run(work_off(tasks, parallelism, seconds)), operator_rss_mb=memory)
    finally:
        if collecting:
            gc.enable()


async def _operator_memory(tasks: int, parallelism: int) -> float:
    """MiB that an operator held at most, in a process of its own, in real time with tasks that are over at once."""
    world = World(nodes=0, seed=1, timing=Timing(start=0.0, stop=0.0))
    for number in range(-(-parallelism // 8)):
        world.create(node(f"n{number:04d}", 8))
    process = Process(world, 0)
    process.start()
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        async with Server(world.wire) as server:
            path = server.write_kubeconfig(Path(folder) / "kubeconfig")
            flags = ["--kubeconfig", str(path), "--no-leader-elect", "--address", "", "--log-level", "error"]
            operator = await asyncio.create_subprocess_exec(sys.executable, "-m", "fairlead", "operator", *flags)
            try:
                array = {"indexes": f"0-{tasks - 1}", "parallelism": parallelism}
                world.create(ai_job("sweep", 1, array=array, seconds=0.1), _NAMESPACE)
                await until(lambda: phase(world, "sweep") in ("Succeeded", "Failed"), limit=60 + tasks / 20)
                usage = Path(f"/proc/{operator.pid}/status").read_text()  # noqa: ASYNC240 - it is in memory
            finally:
                operator.terminate()
                await operator.wait()
                await process.kill()
    return round(int(re.findall(r"VmHWM:\s+(\d+) kB", usage)[0]) / 1024, 1)


async def work_off(tasks: int, parallelism: int, seconds: float) -> ArrayRun:
    """The same on the running `ChargedLoop`, without the memory."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, ChargedLoop):
        raise TypeError("an array is measured on a ChargedLoop")
    world = World(nodes=0, seed=1, timing=Timing(start=0.0, stop=0.0))
    world.wire.handle = loop.free(world.wire.handle)  # type: ignore[method-assign]
    for number in range(-(-parallelism // 8)):
        world.create(node(f"n{number:04d}", 8))
    at_the_expense_of("scheduler", Process(world, 0).start)
    at_the_expense_of("operator", OperatorProcess(world).start)
    await asyncio.sleep(5.0)
    begun = loop.time()
    charged = dict(loop.charged)
    world.create(ai_job("sweep", 1, array={"indexes": f"0-{tasks - 1}", "parallelism": parallelism}, seconds=seconds), _NAMESPACE)
    await until(lambda: phase(world, "sweep") in ("Succeeded", "Failed"), limit=100 * tasks * seconds / parallelism + 600)
    makespan = loop.time() - begun
    ideal = -(-tasks // parallelism) * seconds
    return ArrayRun(
        tasks,
        parallelism,
        seconds,
        round(makespan, 3),
        ideal,
        round(ideal / makespan, 4),
        round(loop.charged["scheduler"] - charged.get("scheduler", 0.0), 3),
        round(loop.charged["operator"] - charged.get("operator", 0.0), 3),
        0.0,
    )


# -- elastic ---------------------------------------------------------------------------------------


class Elastic(msgspec.Struct):
    """The result.

    used: part of the GPUs that others left free on which the job ran. lost_units: units of work that were under way on members
    which ended without having been asked to; one that is asked finishes its unit first.
    """

    least: int
    most: int
    changes: int
    used: float
    resizes: int
    resizes_per_change: float
    restarts: int
    lost_units: int
    phase: str


def elastic(least: int = 4, most: int = 16, every: float = 30.0, minutes: float = 20.0, seed: int = 1) -> Elastic:
    """An elastic job on `most` GPUs of which others, who go before it, take some and give them back, all `every` seconds."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_elastic(least, most, every, minutes, seed))


async def _elastic(least: int, most: int, every: float, minutes: float, seed: int) -> Elastic:
    draw = random.Random(seed)
    loop = asyncio.get_running_loop()
    world = World(nodes=0, seed=seed)
    for number in range(-(-most // 8)):
        world.create(node(f"n{number:04d}", min(8, most - 8 * number)))
    Process(world, 0).start()
    OperatorProcess(world).start()
    await asyncio.sleep(5.0)
    roles = {"replicas": least, "minReplicas": least, "maxReplicas": most}
    world.create(ai_job("train", least, role=roles, seconds=None), _NAMESPACE)
    await until(lambda: phase(world, "train") == "Running", limit=120)
    await asyncio.sleep(10.0)
    before = status(world, "train").get("resizes", 0)
    used = free = 0.0
    others: list[str] = []
    changes = 0
    end = loop.time() + minutes * 60
    lost = _Lost(world)
    while loop.time() < end:
        target = draw.randint(0, most - least)
        if target != len(others):
            changes += 1
        while len(others) > target:
            world.api.delete(world.api.served("v1", "pods"), _NAMESPACE, others.pop(draw.randrange(len(others))))
        while len(others) < target:
            name = f"other-{changes}-{len(others)}"
            world.create(single(name, priority="urgent"), _NAMESPACE)
            others.append(name)
        for _ in range(int(every)):
            await asyncio.sleep(1.0)
            taken = sum(1 for pod in pods(world) if pod["metadata"]["name"] in others and _phase(pod) == "Running")
            running = sum(1 for pod in pods(world, "train") if _phase(pod) == "Running")
            used += running
            free += most - taken
    after = status(world, "train")
    resizes = after.get("resizes", 0) - before
    return Elastic(
        least,
        most,
        changes,
        round(used / free, 4),
        resizes,
        round(resizes / changes, 3),
        after.get("restarts", 0) + after.get("interruptions", 0),
        lost.units,
        after.get("phase", ""),
    )


class _Lost:
    """Listens for members that end without having been asked to."""

    def __init__(self, world: World) -> None:
        self.units = 0
        world.api.store.listen(PODS, self._changed)

    def _changed(self, change: Any) -> None:
        pod = change.record.object
        if _phase(pod) == "Failed" and names.JOB_LABEL in (pod["metadata"].get("labels") or {}):
            self.units += 1


# -- killed operators ------------------------------------------------------------------------------


class Kills(msgspec.Struct):
    """The result. differences: jobs that did not come to the end that they come to undisturbed, and how."""

    kills: int
    runs: int
    jobs: int
    differences: list[str]


def kills(count: int = 50, seed: int = 1, report: Report | None = None, *, faults: bool = False) -> Kills:
    """Kill the operator at random moments, some in each run, while jobs of all kinds start, fail, wait, shrink and end.

    faults: the API server refuses, loses and delays besides.
    """
    expected = _ends(0, ())
    draw = random.Random(seed)
    differences: list[str] = []
    left, runs = count, 0
    while left:
        moments = sorted(draw.uniform(0.0, _BUSY) for _ in range(min(_A_RUN, left)))
        found = _ends(seed + runs, moments, faults=faults)
        differences += [
            f"run {runs}, {name}: {found.get(name)} instead of {end}, killed at {', '.join(f'{each:.3f}' for each in moments)}"
            for name, end in expected.items()
            if found.get(name) != end
        ]
        left -= len(moments)
        runs += 1
        if report is not None:
            report(count - left, count)
    return Kills(count, runs, len(expected), differences)


_BUSY = 150.0  # seconds in which something happens all the time
_A_RUN = 5  # kills in one run
_DOWN = 1.0  # seconds until the next operator begins


def _ends(seed: int, moments: Iterable[float], *, faults: bool = False) -> dict[str, str]:
    """To which end each job comes."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_live_through(seed, list(moments), FaultPlan(seed) if faults else None))


async def _live_through(seed: int, moments: list[float], faults: FaultPlan | None) -> dict[str, str]:
    loop = asyncio.get_running_loop()
    world = World(nodes=0, seed=seed, plan=faults)
    for number in range(8):
        world.create(node(f"n{number:04d}", 8))
    Process(world, 0, options=SchedulerOptions(leader_elect=False, address="")).start()  # no fault takes its lease
    operator = OperatorProcess(world)
    operator.start()
    await asyncio.sleep(5.0)
    if faults is not None:
        faults.on = True
    begun = loop.time()
    story = asyncio.create_task(_story(world))
    for moment in moments:
        await asyncio.sleep(max(0.0, begun + moment - loop.time()))
        await operator.kill()
        await asyncio.sleep(_DOWN)
        operator = OperatorProcess(world)
        operator.start()
    await story
    jobs = [record.object["metadata"]["name"] for _, record in world.api.store.records(_JOBS)]
    await until(lambda: all(phase(world, name) in ("Succeeded", "Failed") for name in jobs), limit=1200)
    return {name: _end_of(world, name) for name in sorted(jobs)}


def _end_of(world: World, name: str) -> str:
    last = status(world, name)
    found = f"{last['phase']} after {last.get('restarts', 0)} restarts"
    if last.get("completedIndexes"):
        found += f", elements {last['completedIndexes']}"
    if last.get("failedIndexes"):
        found += f", but not {last['failedIndexes']}"
    return found


async def _story(world: World) -> None:
    """Jobs of all kinds, and what happens to them."""
    elastic_role = {"replicas": 2, "minReplicas": 2, "maxReplicas": 8}
    for made in (
        ai_job("plain", 8, seconds=60),
        ai_job("fails-once", 4, seconds=80, restart={"limit": 2, "backoff": "5s"}),
        ai_job("doomed", 2, seconds=80, restart={"limit": 0}),
        ai_job("comforts", 1, seconds=5, dependsOn=[{"job": "doomed", "when": "afternotok"}]),
        ai_job("never", 1, seconds=5, dependsOn=[{"job": "doomed", "when": "afterok"}]),
        ai_job("paused", 4, seconds=70),
        ai_job("elastic", 2, seconds=100, role=elastic_role),
        ai_job("sweep", 1, seconds=4, array={"indexes": "0-59", "parallelism": 8}, restart={"limit": 0}),
        ai_job("after", 1, seconds=3, array={"indexes": "0-59"}, dependsOn=[{"job": "sweep", "when": "aftercorr"}]),
        ai_job("prepare", 1, seconds=20),
        ai_job("train", 4, seconds=40, dependsOn=[{"job": "prepare", "when": "afterok"}]),
        ai_job("evaluate", 1, seconds=10, dependsOn=[{"job": "train", "when": "afterok"}]),
    ):
        world.create(made, _NAMESPACE)
    await asyncio.gather(
        _crash(world, "fails-once", "fails-once-worker-1"),
        _crash(world, "doomed", "doomed-worker-0"),
        _crash(world, "sweep", "sweep-7-worker-0"),
    )
    await asyncio.sleep(10.0)
    _suspend(world, "paused", suspend=True)
    for number in range(24):
        world.create(single(f"other-{number}", "urgent"), _NAMESPACE)
    await asyncio.sleep(20.0)
    _suspend(world, "paused", suspend=False)
    await asyncio.sleep(15.0)
    for number in range(24):
        world.api.delete(world.api.served("v1", "pods"), _NAMESPACE, f"other-{number}")


async def _crash(world: World, job: str, member: str) -> None:
    """A member's containers fail once it runs, in whichever attempt."""

    def running() -> list[str]:
        found = (pod for pod in pods(world, job) if _phase(pod) == "Running")
        return [pod["metadata"]["name"] for pod in found if pod["metadata"]["name"].rpartition("-")[0] == member]

    await until(lambda: bool(running()), 300)
    world.kubelet.end((_NAMESPACE, running()[0]), failed=True)


def _suspend(world: World, name: str, *, suspend: bool) -> None:
    record = world.api.store.get(_JOBS, (_NAMESPACE, name))
    if record is not None and phase(world, name) not in ("Succeeded", "Failed"):
        patch = {"spec": {"suspend": suspend}}
        world.api.patch(world.api.served(names.API_VERSION, "aijobs"), _NAMESPACE, name, "application/merge-patch+json", patch)


# -- what there is ---------------------------------------------------------------------------------


def node(name: str, gpus: int) -> Manifest:
    """A node."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def _template(seconds: float | None) -> Manifest:
    requests = {"cpu": "1", "memory": "4Gi", GPU: "1"}
    annotations = {names.SIMULATED_DURATION_ANNOTATION: f"{seconds:g}s"} if seconds is not None else {}
    container = {"name": "main", "image": "train:1", "resources": {"requests": requests, "limits": {GPU: "1"}}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def ai_job(name: str, workers: int, *, seconds: float | None, role: Manifest | None = None, **spec: Any) -> Manifest:
    """An AIJob of workers with one GPU each. seconds: how long they run; None: until they are ended."""
    roles = [{"name": "worker", "replicas": workers, **(role or {}), "template": _template(seconds)}]
    return {
        "apiVersion": names.API_VERSION,
        "kind": "AIJob",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"roles": roles, **spec},
    }


def single(name: str, priority: str = "") -> Manifest:
    """A pod of one GPU that runs until it is ended."""
    made = _template(None)
    made["spec"] |= {"schedulerName": names.SCHEDULER_NAME, **({"priorityClassName": priority} if priority else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": _NAMESPACE}, "spec": made["spec"]}


def _phase(pod: Manifest) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def pods(world: World, job: str = "") -> list[Manifest]:
    """The pods, of one job or all."""
    return [
        record.object
        for _, record in world.api.store.records(PODS)
        if not job or (record.object["metadata"].get("labels") or {}).get(names.JOB_LABEL) == job
    ]


def status(world: World, name: str) -> Manifest:
    """An AIJob's status."""
    record = world.api.store.get(_JOBS, (_NAMESPACE, name))
    found: Manifest = (record.object.get("status") or {}) if record is not None else {}
    return found


def phase(world: World, name: str) -> str:
    """Its phase."""
    return str(status(world, name).get("phase", "Pending"))


async def until(condition: Callable[[], bool], limit: float) -> None:
    """Wait for a condition, which is polled. Raises `TimeoutError`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    while not condition():
        if loop.time() > end:
            raise TimeoutError(f"it did not come about in {limit:g} simulated seconds")
        await asyncio.sleep(0.05)

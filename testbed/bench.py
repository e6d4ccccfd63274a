"""Schedulers side by side on a real API server: the numbers behind `fairlead bench cluster`.

Every run has a fresh etcd and the same nodes, pods, identity and TLS. An observer, the same for
all, watches bindings and counts events. A run counts only after bindings, and one Scheduled event
per pod, have been read back from the API server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import psutil
import yaml

from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.kubernetes.config import load
from testbed import build, claims, objects, workloads
from testbed.at_once import await_all
from testbed.controlplane import SCHEDULER_USER, ControlPlane, scheduler_command
from testbed.topology import racks

ROOT = Path(__file__).parent.parent
IN_FLIGHT = (16, 64, 256)
SCHEDULERS = ("fairlead", "kube-scheduler", "bare-binder", "bare-binder-events", "bare-binder-go")
WORKLOADS = workloads.KINDS
_PROBE_RATE = 10.0
_LOOK, _IDLE = 5.0, 30.0
_CREATE_AT_ONCE = 32
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class BenchError(RuntimeError):
    """A run that does not count, and why."""


class Latency(msgspec.Struct):
    """Milliseconds from creation (or, for pods created first, from the scheduler's start) to binding."""

    p50: float
    p99: float


class Run(msgspec.Struct):
    """One run. start_seconds: from starting the process to its first binding; event_writes_per_pod: what of
    the writes are events; idle_cpu_percent: of one core, while
    nothing but pods that fit nowhere waited.
    """

    pods_per_second: float
    pods_per_second_events: float | None
    latency_ms: Latency
    cpu_seconds: float
    rss_mb: float
    api_writes_per_pod: float
    start_seconds: float
    event_writes_per_pod: float = 0.0
    in_flight: int | None = None
    idle_cpu_percent: float | None = None


class Summary(msgspec.Struct):
    """Medians over the runs of one scheduler."""

    pods_per_second: float
    pods_per_second_events: float | None
    latency_ms: Latency
    cpu_seconds: float
    rss_mb: float
    api_writes_per_pod: float
    idle_cpu_percent: float | None
    runs: list[Run]


class ClusterBench(msgspec.Struct):
    """All of it. ratios: Fairlead's median paired ratio to each other; notes: what to mind."""

    nodes: int
    pods: int
    gang: int
    arrival_rate: float | None
    workload: str
    repeats: int
    schedulers: dict[str, Summary]
    ratios: dict[str, float]
    notes: list[str]


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What every scheduler is given."""

    nodes: int
    pods: int
    gang: int = 1
    arrival_rate: float | None = None
    kind: str = "pods"
    events: bool = True


def compare(workload: Workload, schedulers: Iterable[str], repeats: int, progress: Callable[[str], None]) -> ClusterBench:
    """Run all schedulers, alternating, `repeats` times. Raises `BenchError`."""
    names = list(schedulers)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for repeat in range(repeats):
        for name in names:
            flights = IN_FLIGHT if name.startswith("bare-binder") and workload.kind != "preempt" else (None,)
            best: Run | None = None
            for in_flight in flights:
                progress(f"{name}{f' ({in_flight} in flight)' if in_flight else ''}, round {repeat + 1} of {repeats}")
                run = one_run(workload, name, in_flight)
                if best is None or (_rate(run, name) or 0) > (_rate(best, name) or 0):
                    best = run
            if best is not None:
                runs[name].append(best)
    return ClusterBench(
        nodes=workload.nodes,
        pods=workload.pods,
        gang=workload.gang,
        arrival_rate=workload.arrival_rate,
        workload=workload.kind,
        repeats=repeats,
        schedulers={name: _summary(each) for name, each in runs.items()},
        ratios=_ratios(runs),
        notes=_notes(runs),
    )


def one_run(workload: Workload, name: str, in_flight: int | None = None) -> Run:
    """One scheduler on a control plane of its own. Raises `BenchError`."""
    import uvloop  # noqa: PLC0415 - nothing else here needs it

    return uvloop.run(_run(workload, name, in_flight))


def _rate(run: Run, name: str) -> float | None:
    return run.pods_per_second_events if name == "bare-binder-events" else run.pods_per_second


def _summary(runs: list[Run]) -> Summary:
    def median(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    def certain(values: Iterable[float]) -> float:
        return statistics.median(values)

    return Summary(
        pods_per_second=certain(run.pods_per_second for run in runs),
        pods_per_second_events=median(run.pods_per_second_events for run in runs),
        latency_ms=Latency(certain(run.latency_ms.p50 for run in runs), certain(run.latency_ms.p99 for run in runs)),
        cpu_seconds=certain(run.cpu_seconds for run in runs),
        rss_mb=certain(run.rss_mb for run in runs),
        api_writes_per_pod=certain(run.api_writes_per_pod for run in runs),
        idle_cpu_percent=median(run.idle_cpu_percent for run in runs),
        runs=runs,
    )


def _ratios(runs: dict[str, list[Run]]) -> dict[str, float]:
    ours = runs.get("fairlead", [])
    ratios = {}
    for name, theirs in runs.items():
        if name == "fairlead":
            continue
        pairs = [
            (_rate(mine, name) or 0) / other for mine, their in zip(ours, theirs, strict=False) if (other := _rate(their, name))
        ]
        if pairs:
            ratios[name] = statistics.median(pairs)
    return ratios


def _notes(runs: dict[str, list[Run]]) -> list[str]:
    notes = [
        "etcd runs with --unsafe-no-fsync",
        "pods_per_second: from the first to the last binding; for preempt, from the first change of any pod",
    ]
    for python, go in zip(runs.get("bare-binder", []), runs.get("bare-binder-go", []), strict=False):
        if python.pods_per_second < 0.6 * go.pods_per_second:
            notes.append(
                f"bare-binder ({python.pods_per_second:.0f}/s) is below 0.6x bare-binder-go ({go.pods_per_second:.0f}/s): "
                "the Python client, not the API server, limits this run"
            )
    return notes


# -- one run -----------------------------------------------------------------------------------


async def _run(workload: Workload, name: str, in_flight: int | None) -> Run:
    # Admission would taint new nodes as not ready; here nobody would take the taint away.
    plane = ControlPlane(
        flags=[
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--event-ttl=3h",
            *workloads.server_flags(workload.kind),
        ]
    )
    await asyncio.to_thread(plane.start)
    try:
        async with Client(load(str(plane.kubeconfig)), timeout=60) as client:
            return await _Measurement(plane, client, workload, name, in_flight).run()
    finally:
        await asyncio.to_thread(plane.stop)


class _Measurement:
    def __init__(self, plane: ControlPlane, client: Client, workload: Workload, name: str, in_flight: int | None) -> None:
        self.plane = plane
        self.client = client
        self.workload = workload
        self.name = name
        self.in_flight = in_flight
        self.bound: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.progress_at = time.monotonic()
        self.all_bound = asyncio.Event()
        self.touched = 0.0
        self.expected = workloads.placed(workload.kind, workload.pods)
        self.scheduler = workloads.scheduler_name(workload.kind, name)

    async def run(self) -> Run:
        await self._prepare()
        version = json.loads(await self.client.get("/api/v1/pods", limit="1"))["metadata"]["resourceVersion"]
        observer = asyncio.ensure_future(self._observe(version))
        touch: asyncio.Future[None] | None = None
        writes_before, events_before = await self._writes()
        if self.rate is None:
            await self._create_pods()
            writes_before, events_before = await self._writes()
        if self.workload.kind == "preempt":
            touch = asyncio.ensure_future(self._first_touch())
            await asyncio.sleep(1.0)
        started = time.monotonic()
        process = self._start()
        usage = asyncio.ensure_future(_usage(process.pid))
        idle: float | None = None
        try:
            if self.workload.kind == "unschedulable":
                idle = await self._idle(process)
            if self.rate is not None:
                await self._arrive(process)
            await self._wait(process)
            last_event = await self._events_done(process)
            if self.workload.kind == "relist":
                await self._relist(process)
            writes_after, events_after = await self._writes()
            writes, event_writes = writes_after - writes_before, events_after - events_before
            if self.rate is not None:
                writes -= self.expected + self._groups()
        finally:
            usage.cancel()
            observer.cancel()
            await asyncio.gather(observer, return_exceptions=True)
            if touch is not None:
                touch.cancel()
                await asyncio.gather(touch, return_exceptions=True)
            await asyncio.gather(usage, return_exceptions=True)
            _stop(process)
        await self._verify(last_event is not None)
        first, last = min(self.bound.values()), max(self.bound.values())
        began = first
        if self.workload.kind == "preempt":
            began = self.touched  # victims go long before the first binding
        count = len(self.bound)
        since = self.created if self.rate is not None else dict.fromkeys(self.bound, started)
        waits = sorted(1000 * (at - since[pod]) for pod, at in self.bound.items())
        cpu_seconds, rss = _measured.pop(process.pid, (0.0, 0.0))
        return Run(
            pods_per_second=(count - 1) / max(1e-9, last - began),
            pods_per_second_events=(count - 1) / max(1e-9, max(last_event, last) - began) if last_event else None,
            latency_ms=Latency(waits[count // 2], waits[int(0.99 * count)]),
            cpu_seconds=cpu_seconds,
            rss_mb=rss,
            api_writes_per_pod=writes / count,
            event_writes_per_pod=event_writes / count,
            start_seconds=first - started,
            in_flight=self.in_flight,
            idle_cpu_percent=idle,
        )

    @property
    def rate(self) -> float | None:
        """Pods created a second while the scheduler runs; None: all before it starts."""
        return _PROBE_RATE if self.workload.kind == "unschedulable" else self.workload.arrival_rate

    # -- set-up --------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        for manifest in [*objects.definitions(), *objects.rights(SCHEDULER_USER)]:
            await self._create(manifest)
        workload = self.workload
        gpus = max(8, -(-workload.pods // workload.nodes) + 6 if workload.pods > 8 * workload.nodes else 8)
        await self._all(
            self._create(workloads.node(workload.kind, number, gpus, workload.nodes)) for number in range(workload.nodes)
        )
        for priority in workloads.priorities(workload.kind):
            await self._create(priority)
        before = workloads.before(workload.kind, workload.nodes, workload.pods, self.scheduler)
        await self._all(self._create(each) for each in before)
        await self._served("/apis/fairlead.dev/v1alpha1/podgroups")
        await self._served("/apis/fairlead.dev/v1alpha1/queues")
        for queue in workloads.queues(workload.kind, workload.nodes, gpus):
            await self._create(queue)
        if workload.gang > 1 and workload.arrival_rate is None:
            await self._all(self._create(each) for each in self._group_manifests())

    async def _create_pods(self) -> None:
        await self._all(self._create(self._pod(number)) for number in range(self.expected))

    def _group_manifests(self) -> list[dict[str, Any]]:
        workload = self.workload
        return [
            workloads.group(
                workload.kind, f"gang-{number:05d}", min(workload.gang, workload.pods - number * workload.gang), self.scheduler
            )
            for number in range(self._groups())
        ]

    def _groups(self) -> int:
        return -(-self.workload.pods // self.workload.gang) if self.workload.gang > 1 else 0

    def _pod(self, number: int) -> dict[str, Any]:
        group = f"gang-{number // self.workload.gang:05d}" if self.workload.gang > 1 else ""
        return workloads.pod(self.workload.kind, number, self.scheduler, group)

    async def _create(self, manifest: dict[str, Any]) -> None:
        await self.client.post(objects.path(manifest), encode(manifest))

    async def _served(self, path: str) -> None:
        for _ in range(200):
            with contextlib.suppress(ApiError):
                await self.client.get(path)
                return
            await asyncio.sleep(0.1)
        raise BenchError(f"{path} is not served")

    async def _all(self, work: Iterable[Awaitable[None]]) -> None:
        await await_all(work, _CREATE_AT_ONCE)

    # -- the scheduler under test --------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        folder = Path(self.plane.kubeconfig).parent
        kubeconfig = self.plane.user("scheduler", SCHEDULER_USER)
        flight = str(self.in_flight or 64)
        if self.name == "fairlead":
            events = "--events" if self.workload.events else "--no-events"
            command = scheduler_command(kubeconfig, events)
        elif self.name == "kube-scheduler":
            config = folder / "kube-scheduler.yaml"
            config.write_text(
                yaml.safe_dump(
                    {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "KubeSchedulerConfiguration",
                        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
                        "leaderElection": {"leaderElect": False},
                    }
                )
            )
            command = [str(build.binary("kube-scheduler")), f"--config={config}", "--secure-port=0"]
            command += workloads.scheduler_flags(self.workload.kind)
        elif self.name == "bare-binder-go":
            certificate, key = folder / "scheduler.crt", folder / "scheduler.key"
            command = [
                str(build.binary("bare-binder-go")),
                f"-server={self.plane.url}",
                f"-ca={self.plane.authority.path}",
                f"-cert={certificate}",
                f"-key={key}",
                f"-in-flight={flight}",
            ]
        else:
            command = [sys.executable, "-m", "testbed.bare_binder", "--kubeconfig", str(kubeconfig), "--in-flight", flight]
            if self.name == "bare-binder-events":
                command.append("--events")
            if self.workload.kind == "preempt":
                command += ["--victims", str(workloads.VICTIMS)]
        self.log = folder / f"{self.name}.log"
        with self.log.open("wb") as file:
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdout=file, stderr=file, cwd=ROOT, env=environment
            )

    # -- observing -----------------------------------------------------------------------------

    async def _observe(self, version: str) -> None:
        """Note when each pod leaves the set of unbound pods; looks at bytes, decodes nothing else.

        The API server ends watches that it finds slow: then the next one continues where this ended.
        """
        form = re.compile(rb'^\{"type":"DELETED".{1,160}?"name":"(pod-\d+)"')
        position = re.compile(rb'"resourceVersion":"(\d+)"')
        while len(self.bound) < self.expected:
            query = {"watch": "true", "fieldSelector": "spec.nodeName=", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self.client.stream("/api/v1/pods", query, 3600, accept=_METADATA_ONLY) as stream:
                rest = b""
                while chunk := await stream.readany():
                    now = time.monotonic()
                    lines = (rest + chunk).split(b"\n")
                    rest = lines.pop()
                    for line in lines:
                        found = form.match(line)
                        if found:
                            self.bound.setdefault(found[1].decode(), now)
                            self.progress_at = now
                    seen = position.search(lines[-1]) if lines else None
                    if seen:
                        version = seen[1].decode()
                    if len(self.bound) >= self.expected:
                        self.all_bound.set()
                        return

    async def _first_touch(self) -> None:
        """Note when the scheduler first changes any pod."""
        version = json.loads(await self.client.get("/api/v1/pods", limit="1"))["metadata"]["resourceVersion"]
        query = {"watch": "true", "resourceVersion": version}
        async with self.client.stream("/api/v1/pods", query, 3600, accept=_METADATA_ONLY) as stream:
            await stream.readany()
            self.touched = time.monotonic()

    async def _arrive(self, process: subprocess.Popen[bytes]) -> None:
        """Create pods one by one at the given rate, once the scheduler is up."""
        await asyncio.sleep(4.0)
        groups = self._group_manifests()
        rate = self.rate or 1.0
        start = time.monotonic()
        pending: set[asyncio.Future[None]] = set()

        async def create(number: int) -> None:
            manifest = self._pod(number)
            self.created[manifest["metadata"]["name"]] = time.monotonic()
            await self._create(manifest)

        for number in range(self.expected):
            delay = start + number / rate - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            if groups and number % self.workload.gang == 0:
                await self._create(groups[number // self.workload.gang])
            task = asyncio.ensure_future(create(number))
            pending.add(task)
            task.add_done_callback(pending.discard)
        await asyncio.gather(*pending)

    async def _wait(self, process: subprocess.Popen[bytes]) -> None:
        self.progress_at = time.monotonic()
        while not self.all_bound.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.all_bound.wait(), 0.5)
            ended = process.poll() is not None and time.monotonic() - self.progress_at > 5
            if not self.all_bound.is_set() and (
                ended or time.monotonic() - self.progress_at > workloads.quiet(self.workload.kind)
            ):
                tail = self.log.read_text(errors="replace")[-2000:]
                raise BenchError(f"{self.name} bound {len(self.bound)} of {self.expected} pods and stopped:\n{tail}")

    async def _events_done(self, process: subprocess.Popen[bytes]) -> float | None:
        """When the last event was counted, None for those that write none."""
        if self.name in ("bare-binder", "bare-binder-go") or (self.name == "fairlead" and not self.workload.events):
            return None
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.workload.kind in ("preempt", "unschedulable"):
                reasons = ("Scheduled", "Preempted") if self.workload.kind == "preempt" else ("Scheduled",)
                lists = [self._list("/api/v1/events", fieldSelector=f"reason={reason}") for reason in reasons]
                counts = [len([each async for each in found]) for found in lists]
                count = counts[0] if counts[-1] >= (len(reasons) - 1) * workloads.VICTIMS * self.expected else 0
            else:
                reply = json.loads(await self.client.get("/apis/events.k8s.io/v1/events", limit="1"))
                count = len(reply["items"]) + reply["metadata"].get("remainingItemCount", 0)
            if count >= self.expected:
                return time.monotonic()
            await asyncio.sleep(0.05)
        raise BenchError(f"{self.name} wrote {count} of {self.expected} events")

    async def _idle(self, process: subprocess.Popen[bytes]) -> float:
        """Wait until the scheduler has said its word on every pod, then see what it does while nothing happens."""
        child = psutil.Process(process.pid)
        before = -1.0
        while (now := sum(child.cpu_times()[:2])) - before > 0.05 * _LOOK or now < 0.5:
            before = now
            await asyncio.sleep(_LOOK)
        await asyncio.sleep(_IDLE)
        return 100 * (sum(child.cpu_times()[:2]) - now) / _IDLE

    async def _relist(self, process: subprocess.Popen[bytes]) -> None:
        """Have the scheduler list everything anew, and give it time to do so."""
        child = psutil.Process(process.pid)
        if self.name == "fairlead":
            process.send_signal(signal.SIGUSR1)
        before = sum(child.cpu_times()[:2])
        while True:
            await asyncio.sleep(2.0)
            now = sum(child.cpu_times()[:2])
            if now - before < 0.2:
                return
            before = now

    async def _verify(self, with_events: bool) -> None:
        """Read back what the API server holds."""
        waiting = [pod async for pod in self._list("/api/v1/pods") if not pod["spec"].get("nodeName")]
        unbound = [pod for pod in waiting if pod["metadata"]["name"].startswith("pod-")]
        if unbound:
            raise BenchError(f"{self.name}: {len(unbound)} pods have no node after all")
        if self.workload.kind == "racks":
            pods = [each async for each in self._list("/api/v1/pods")]
            apart = racks.problems(pods, self.workload.gang, self.workload.nodes)
            if apart:
                raise BenchError(f"{self.name}: {len(apart)} gangs are in several racks, e.g. {apart[:3]}")
        if self.workload.kind in claims.KINDS:
            pods = [each async for each in self._list("/api/v1/pods")]
            held = [each async for each in self._list("/apis/resource.k8s.io/v1/resourceclaims")]
            wrong_claims = claims.problems(self.workload.kind, pods, held)
            if wrong_claims:
                raise BenchError(f"{self.name}: {len(wrong_claims)} things are wrong with claims, e.g. {wrong_claims[:3]}")
        if with_events:
            told: dict[str, int] = {}
            async for event in self._list("/apis/events.k8s.io/v1/events"):
                if event.get("reason") == "Scheduled":
                    told[event["regarding"]["name"]] = told.get(event["regarding"]["name"], 0) + 1
            wrong = [pod for pod in self.bound if told.get(pod, 0) != 1]
            if wrong:
                raise BenchError(f"{self.name}: {len(wrong)} pods have not exactly one Scheduled event, e.g. {wrong[:3]}")

    async def _list(self, path: str, **query: str) -> Any:
        token = ""
        while True:
            page = json.loads(await self.client.get(path, limit="2000", **query, **({"continue": token} if token else {})))
            for item in page["items"]:
                yield item
            token = page["metadata"].get("continue", "")
            if not token:
                return

    async def _writes(self) -> tuple[float, float]:
        """Requests that change something, as the API server counts them; and those of them that are for events."""
        text = (await self.client.get("/metrics")).decode()
        counted = re.compile(
            r'^apiserver_request_total\{[^}]*verb="(?:POST|PUT|PATCH|DELETE|APPLY)"[^}]*\} ([0-9.e+]+)$', re.MULTILINE
        )
        mine = [line for line in counted.finditer(text) if 'resource="leases"' not in line[0] and 'group="rbac' not in line[0]]
        events = sum(float(line[1]) for line in mine if 'resource="events"' in line[0])
        return sum(float(line[1]) for line in mine), events


_measured: dict[int, tuple[float, float]] = {}


async def _usage(pid: int) -> None:
    """Follow a process's CPU time and peak RSS until cancelled."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        while True:
            status = Path(f"/proc/{pid}/status").read_text()
            peak = re.search(r"VmHWM:\s+(\d+) kB", status)
            if peak:
                _measured[pid] = (sum(process.cpu_times()[:2]), int(peak[1]) / 1024)
            await asyncio.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""One run: jobs come to the production pass, run, are measured, and end. Slowdowns are taken of what the cluster really has.

A job runs at `1 / s` of its speed where pressures on the kind that it waits for most add up to `s` capacities; its slowdown is
the mean of that over its time. A minute after its start it is measured, with an error. Nothing is declared.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

import msgspec

from fairlead.core import invariants
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.interference.stream import GPUS, Job

_MEASURED_AFTER = 60.0
_ERROR = 0.1  # of what is measured, either way
_CAPACITY = 1000
_GPU = "nvidia.com/gpu"
_SERVICE = "latency-critical"
_STARTED = 1.0  # seconds since the epoch at which nothing has arrived


class Run(msgspec.Struct):
    """Of jobs that count: mean and 95th percentile of slowdowns, mean wait in seconds; of their time: the part of GPUs that ran.

    limits_broken: how often a node with a service had GPUs of another job.
    """

    mean_slowdown: float
    p95_slowdown: float
    mean_excess: float
    allocation: float
    mean_wait: float
    jobs: int
    limits_broken: int


class _Running(msgspec.Struct):
    job: Job
    node: str
    began: float
    lost: float = 0.0  # seconds, weighted by slowdowns


class World:
    """The cluster beside the scheduler. learns: whether measurements reach the scheduler."""

    def __init__(self, jobs: Sequence[Job], nodes: int, seed: int, *, learns: bool) -> None:
        self._jobs = jobs
        self._by_name = {job.name: job for job in jobs}
        self._learns = learns
        self._rnd = random.Random(seed)
        self._state = ClusterState(Policy())
        self._nodes = [f"n{number:03}" for number in range(nodes)]
        for name in self._nodes:
            self._state.upsert_node(Node(name, {"cpu": 128_000, "memory": 1 << 40, "pods": 110, _GPU: GPUS}))
        self._state.upsert_class(ServiceClass(_SERVICE, isolation="Node", movable=False))
        self._running: dict[str, _Running] = {}
        self._on: dict[str, dict[str, _Running]] = {name: {} for name in self._nodes}
        self._pods: dict[str, Pod] = {}
        self._due: list[tuple[float, int, str]] = []  # when, 0: it is measured, 1: it ends; and which
        self._now = _STARTED
        self._slowdowns: dict[str, float] = {}
        self._waits: dict[str, float] = {}
        self._held = 0.0  # GPU-seconds in the time that counts
        self._broken = 0

    def play(self, progress: Callable[[int, int], None] | None = None) -> Run:
        """All jobs, from the first to the end of the last. The first quarter of them is not counted."""
        jobs = self._jobs
        first, last = jobs[len(jobs) // 4].arrives + _STARTED, jobs[-1].arrives + _STARTED
        arrived = 0
        while arrived < len(jobs) or self._due:
            arrives = jobs[arrived].arrives + _STARTED if arrived < len(jobs) else float("inf")
            now = min(arrives, self._due[0][0] if self._due else float("inf"))
            self._advance(now, first, last)
            while arrived < len(jobs) and jobs[arrived].arrives + _STARTED <= now:
                self._arrive(jobs[arrived])
                arrived += 1
            while self._due and self._due[0][0] <= now:
                _, what, name = heappop(self._due)
                (self._end if what else self._measure)(name)
            self._pass()
            if progress is not None:
                progress(arrived, len(jobs))
        invariants.check(self._state)
        counted = [job.name for job in jobs[len(jobs) // 4 :]]
        slowdowns = sorted(self._slowdowns[name] for name in counted)
        mean = sum(slowdowns) / len(slowdowns)
        return Run(
            mean,
            slowdowns[int(0.95 * (len(slowdowns) - 1))],
            mean - 1,
            self._held / ((last - first) * GPUS * len(self._nodes)) if last > first else 0.0,
            sum(self._waits[name] for name in counted) / len(counted),
            len(counted),
            self._broken,
        )

    def _advance(self, now: float, first: float, last: float) -> None:
        passed = now - self._now
        counts = max(0.0, min(now, last) - max(self._now, first))
        for here in self._on.values():
            if not here:
                continue
            used = [sum(each.job.pressure[kind] for each in here.values()) for kind in range(4)]
            for each in here.values():
                slowed = max((used[kind] for kind, amount in enumerate(each.job.pressure) if amount), default=0)
                each.lost += passed * max(1.0, slowed / _CAPACITY)
                self._held += counts * each.job.gpus
        self._now = now

    def _arrive(self, job: Job) -> None:
        requests = (("cpu", 4000 * job.gpus), ("memory", job.gpus << 34), (_GPU, job.gpus), ("pods", 1))
        pod = Pod(
            f"uid-{job.name}",
            "research",
            job.name,
            PodSpec(requests, gpus=job.gpus),
            created=self._now,
            user=job.user,
            service_class=_SERVICE if job.service else "",
            stays=True,
        )
        self._pods[job.name] = pod
        self._state.upsert_pod(pod)

    def _measure(self, name: str) -> None:
        if not self._learns or name not in self._running:
            return
        found = tuple(round(amount * self._rnd.uniform(1 - _ERROR, 1 + _ERROR)) for amount in self._running[name].job.pressure)
        self._pods[name] = msgspec.structs.replace(self._pods[name], measured=found, measured_at=self._now)
        self._state.upsert_pod(self._pods[name])

    def _end(self, name: str) -> None:
        run = self._running.pop(name)
        del self._on[run.node][name]
        self._slowdowns[name] = run.lost / run.job.lasts
        self._state.remove_pod(self._pods.pop(name).uid)

    def _pass(self) -> None:
        for transaction in schedule(self._state, self._now, None):
            if not isinstance(transaction, Place):
                continue
            for binding in transaction.bindings:
                name, job = binding.pod.name, self._by_name[binding.pod.name]
                self._state.pods.bound(binding.pod.uid)
                self._pods[name] = msgspec.structs.replace(self._pods[name], node=binding.node)
                run = self._running[name] = self._on[binding.node][name] = _Running(job, binding.node, self._now)
                self._waits[name] = self._now - job.arrives - _STARTED
                heappush(self._due, (self._now + job.lasts, 1, name))
                if self._learns:
                    heappush(self._due, (self._now + _MEASURED_AFTER, 0, name))
                self._broken += self._breaks(run)

    def _breaks(self, new: _Running) -> bool:
        others = [each.job for each in self._on[new.node].values() if each.job is not new.job]
        return any(new.job.service or other.service for other in others)

"""Replay of a job trace through the production pass: arrivals and completions on a virtual clock.

One pool of equal nodes. A job of up to one node's GPUs is one pod; a larger one is a gang of
whole-node pods and one for the remainder. Run times are those of the trace; nothing fails and
nothing is preempted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from fairlead.core import invariants
from fairlead.core.model import Group, Node, Pod, PodSpec, Policy
from fairlead.core.schedule import schedule
from fairlead.core.state import ClusterState
from fairlead.core.transactions import Place
from fairlead.simulation.events import EventQueue
from fairlead.simulation.traces import TraceJob

_GPU = "nvidia.com/gpu"

Order = Literal["fifo", "sjf"]


class Spread(msgspec.Struct):
    """Mean, median and 99th percentile (the value at index floor(0.99 n)) in seconds."""

    mean: float
    p50: float
    p99: float


class JobsResult(msgspec.Struct):
    """What a replay measured. utilization: GPU time used / (GPUs x makespan)."""

    policy: str
    gpus: int
    jobs: int
    wait_seconds: Spread
    jct_seconds: Spread
    utilization: float
    makespan_seconds: float
    never_started: int


def simulate(
    jobs: Sequence[TraceJob],
    *,
    nodes: int,
    gpus_per_node: int,
    policy: Order,
    progress: Callable[[int, int], None] | None = None,
) -> JobsResult:
    """Replay `jobs` on `nodes` x `gpus_per_node` GPUs.

    policy: `fifo` serves by submission and its head blocks; `sjf` serves the shortest first, knowing
    run times, and lets shorter jobs pass a head that does not fit.
    progress: called with (jobs finished, jobs in all).
    """
    replay = _Replay(jobs, nodes, gpus_per_node, policy)
    replay.run(progress)
    return replay.result()


class _Replay:
    def __init__(self, jobs: Sequence[TraceJob], nodes: int, gpus_per_node: int, policy: Order) -> None:
        self.jobs = jobs
        self.policy = policy
        self.gpus_per_node = gpus_per_node
        self.gpus = nodes * gpus_per_node
        self.state = ClusterState(Policy(strategy="binpack", preempt=False, head_blocks=policy == "fifo"))
        for number in range(nodes):
            self.state.upsert_node(Node(f"node-{number:05d}", {_GPU: gpus_per_node, "pods": 1 << 30}))
        self.events: EventQueue[tuple[bool, int]] = EventQueue()
        self.started: dict[int, float] = {}
        self.finished: dict[int, float] = {}

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        events, state = self.events, self.state
        for index, job in enumerate(self.jobs):
            events.push(job.submitted, (True, index))
        while len(events):
            now = events.next_time
            while len(events) and events.next_time == now:
                arrives, index = events.pop()
                if arrives:
                    self._submit(index)
                else:
                    self._finish(index)
            for transaction in schedule(state, events.now):
                if isinstance(transaction, Place):
                    self._start(transaction)
            if progress is not None:
                progress(len(self.finished), len(self.jobs))
        invariants.check(state)

    def _submit(self, index: int) -> None:
        job = self.jobs[index]
        sizes = [self.gpus_per_node] * (job.gpus // self.gpus_per_node)
        if job.gpus % self.gpus_per_node:
            sizes.append(job.gpus % self.gpus_per_node)
        order = job.duration if self.policy == "sjf" else job.submitted
        group = job.name if len(sizes) > 1 else ""
        if group:
            self.state.upsert_group(Group("trace", group, min_member=len(sizes), created=order))
        for member, size in enumerate(sizes):
            spec = PodSpec(((_GPU, size), ("pods", 1)), gpus=size)
            self.state.upsert_pod(Pod(f"{index}/{member}", "trace", f"{job.name}-{member}", spec, group=group, created=order))

    def _start(self, placed: Place) -> None:
        index = int(placed.bindings[0].pod.uid.partition("/")[0])
        for binding in placed.bindings:
            self.state.bound(binding.pod.uid)
        self.started[index] = self.events.now
        self.events.push(self.events.now + self.jobs[index].duration, (False, index))

    def _finish(self, index: int) -> None:
        job = self.jobs[index]
        for member in range(-(-job.gpus // self.gpus_per_node)):
            self.state.remove_pod(f"{index}/{member}")
        if job.gpus > self.gpus_per_node:
            self.state.remove_group(f"trace/{job.name}")
        self.finished[index] = self.events.now

    def result(self) -> JobsResult:
        waits = [self.started[index] - self.jobs[index].submitted for index in self.finished]
        times = [self.finished[index] - self.jobs[index].submitted for index in self.finished]
        makespan = max(self.finished.values(), default=0.0)
        used = sum(self.jobs[index].duration * self.jobs[index].gpus for index in self.finished)
        return JobsResult(
            policy=self.policy,
            gpus=self.gpus,
            jobs=len(self.jobs),
            wait_seconds=_spread(waits),
            jct_seconds=_spread(times),
            utilization=used / (self.gpus * makespan) if makespan else 0.0,
            makespan_seconds=makespan,
            never_started=len(self.jobs) - len(self.started),
        )


def _spread(values: list[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(0.0, 0.0, 0.0)
    return Spread(sum(ordered) / len(ordered), ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))])

"""Replay of a job trace through the production pass: arrivals and completions on a virtual clock.

A job of up to one node's GPUs is one pod; a larger one is a gang of whole-node pods and one for the remainder. Run times are
those of the trace and nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fairlead.core import invariants
from fairlead.core.model import WHOLE, Group, Node, Pod, PodSpec, Policy, Queue, QueueResource
from fairlead.core.schedule import schedule
from fairlead.core.state import ClusterState
from fairlead.core.transactions import Place
from fairlead.simulation.charges import Charges, Run
from fairlead.simulation.durations import Estimates
from fairlead.simulation.events import EventQueue
from fairlead.simulation.traces import TraceJob

_GPU = "nvidia.com/gpu"


def simulate(
    jobs: Sequence[TraceJob],
    *,
    nodes: int,
    gpus_per_node: int,
    quotas: Mapping[str, float] | None,
    charges: Charges,
    estimates: Estimates,
    progress: Callable[[int, int], None] | None = None,
) -> list[Run]:
    """What becomes of each job, in the order of `jobs`. quotas: queue -> GPUs; None: all jobs in queue `default`."""
    replay = _Replay(jobs, nodes, gpus_per_node, quotas, charges, estimates)
    replay.run(progress)
    return replay.runs


class _Replay:
    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: int,
        gpus_per_node: int,
        quotas: Mapping[str, float] | None,
        charges: Charges,
        estimates: Estimates,
    ) -> None:
        self.jobs = jobs
        self.gpus_per_node = gpus_per_node
        self.estimates = estimates
        self.runs = [Run(job.duration, job.gpus, charges) for job in jobs]
        self.queued = quotas is not None
        self.state = ClusterState(Policy(strategy="binpack", preempt=False))
        for number in range(nodes):
            self.state.upsert_node(Node(f"node-{number:05d}", {_GPU: gpus_per_node, "pods": 1 << 30}))
        for name, gpus in (quotas or {}).items():
            self.state.upsert_queue(Queue(name, resources=(QueueResource(_GPU, quota=int(gpus * WHOLE)),)))
        self.events: EventQueue[tuple[bool, int]] = EventQueue()
        self.finished = 0

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
                progress(self.finished, len(self.jobs))
        invariants.check(state)

    def _submit(self, index: int) -> None:
        job = self.jobs[index]
        sizes = [self.gpus_per_node] * (job.gpus // self.gpus_per_node)
        if job.gpus % self.gpus_per_node:
            sizes.append(job.gpus % self.gpus_per_node)
        queue = job.queue if self.queued else "default"
        group = job.name if len(sizes) > 1 else ""
        if group:
            self.state.upsert_group(Group("trace", group, min_member=len(sizes), queue=queue, created=job.submitted))
        for member, size in enumerate(sizes):
            spec = PodSpec(((_GPU, size), ("pods", 1)), gpus=size)
            uid, name = f"{index}/{member}", f"{job.name}-{member}"
            self.state.upsert_pod(Pod(uid, "trace", name, spec, queue=queue, group=group, created=job.submitted))

    def _start(self, placed: Place) -> None:
        index = int(placed.bindings[0].pod.uid.partition("/")[0])
        for binding in placed.bindings:
            self.state.bound(binding.pod.uid)
        self.events.push(self.runs[index].start(self.events.now), (False, index))

    def _finish(self, index: int) -> None:
        job = self.jobs[index]
        for member in range(-(-job.gpus // self.gpus_per_node)):
            self.state.remove_pod(f"{index}/{member}")
        if job.gpus > self.gpus_per_node:
            self.state.remove_group(f"trace/{job.name}")
        self.runs[index].finish(self.events.now)
        self.estimates.ended(index)
        self.finished += 1

"""Replay of a job trace through the production pass: arrivals, completions and suspensions on a virtual clock.

A job of up to one node's GPUs is one pod; a larger one is a gang of whole-node pods and one for the remainder. Run times are
those of the trace and nothing fails. A preempted job is charged as `charges` defines, and waits again with what it attained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fairlead.core import invariants
from fairlead.core.forecast import forecast
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Place, Preempt, Transaction
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.charges import Charges, Run
from fairlead.simulation.durations import Estimates
from fairlead.simulation.events import EventQueue
from fairlead.simulation.traces import TraceJob

_GPU = "nvidia.com/gpu"
_HOUR = 3600.0
_FORESEEN_EVERY = 600.0  # seconds between two forecasts of starts

BATCH = ServiceClass(
    "batch",
    mode="Suspend",
    checkpoint_interval=1800.0,
    levels=tuple(hours * _HOUR for hours in (0.25, 1, 4, 16, 64, 256, 1024)),
    express=3,
    max_loss=60.0,
)
"""The class of all jobs: by attained GPU-hours, those with less than four from any queue's, just after checkpoints."""


POLICY = Policy(strategy="binpack", reservations=0)
"""What goes with time slicing: a job that attained little preempts for its place, so nothing is reserved."""


PATIENT = ServiceClass("batch", mode="Suspend", checkpoint_interval=1800.0)
"""The class of all jobs without time slicing."""

RESERVING = Policy(strategy="binpack")
"""What goes without time slicing: reservations, backfill behind them, and moves, as they are by default."""


def simulate(  # noqa: PLR0913 - each is given by name
    jobs: Sequence[TraceJob],
    *,
    nodes: int,
    gpus_per_node: int,
    queues: Sequence[Queue],
    charges: Charges,
    estimates: Estimates,
    service: ServiceClass = BATCH,
    policy: Policy | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Run]:
    """What becomes of each job, in the order of `jobs`. queues: the tree; none: all jobs in queue `default`."""
    replay = _Replay(jobs, nodes, gpus_per_node, queues, charges, estimates, service, policy or POLICY)
    replay.run(progress)
    return replay.runs


class _Replay:
    def __init__(
        self,
        jobs: Sequence[TraceJob],
        nodes: int,
        gpus_per_node: int,
        queues: Sequence[Queue],
        charges: Charges,
        estimates: Estimates,
        service: ServiceClass,
        policy: Policy,
    ) -> None:
        self.jobs = jobs
        self.gpus_per_node = gpus_per_node
        self.estimates = estimates
        self.runs = [Run(job.duration, job.gpus, charges) for job in jobs]
        self.queued = bool(queues)
        self.service = service.name
        self.state = ClusterState(policy)
        self.state.upsert_class(service)
        for number in range(nodes):
            self.state.upsert_node(Node(f"node-{number:05d}", {_GPU: gpus_per_node, "pods": 1 << 30}))
        for queue in queues:
            self.state.upsert_queue(queue)
        self.events: EventQueue[tuple[str, int]] = EventQueue()
        self.unasked: list[int] = []  # jobs that have come since starts were forecast
        self.due = math.inf  # when a pass is due although nothing happens
        self.finished = 0

    def run(self, progress: Callable[[int, int], None] | None) -> None:
        events = self.events
        for index, job in enumerate(self.jobs):
            events.push(job.submitted, ("arrives", index))
        if self.jobs:
            events.push(min(job.submitted for job in self.jobs) + _FORESEEN_EVERY, ("foresee", 0))
        while len(events):
            now = events.next_time
            while len(events) and events.next_time == now:
                self._happens(*events.pop())
            self._decide()
            if progress is not None:
                progress(self.finished, len(self.jobs))
        invariants.check(self.state)

    def _happens(self, what: str, index: int) -> None:
        if what == "arrives":
            self._submit(index)
            self.unasked.append(index)
        elif what == "pass":
            self.due = math.inf
        elif what == "foresee":
            self._foresee()
        elif self.runs[index].running and self.runs[index].ends == self.events.now:
            self._finish(index)

    def _foresee(self) -> None:
        """When those that came of late and wait for their first start are expected to get it."""
        waiting = [index for index in self.unasked if self.runs[index].started < 0]
        self.unasked.clear()
        if waiting:
            now = self.events.now
            expected = self.state.foretold.intervals(self.state, forecast(self.state, now), now)
            for index in waiting:
                run = self.runs[index]
                run.asked = True
                if (found := expected.get(self._job(index))) is not None:
                    run.expected, run.earliest, run.latest = found.start, found.earliest, found.latest
        if len(self.events):  # else nothing happens any more
            self.events.push(self.events.now + _FORESEEN_EVERY, ("foresee", 0))

    def _job(self, index: int) -> str:
        """What the core calls a job."""
        if self.jobs[index].gpus > self.gpus_per_node:
            return f"trace/{self.jobs[index].name}"
        return f"{index}/0/{self.runs[index].suspensions}"

    def _decide(self) -> None:
        """Passes until nothing moves: victims free their places at once."""
        state, now = self.state, self.events.now
        moved = True
        while moved:
            moved = False
            for transaction in schedule(state, now):
                moved |= self._apply(transaction)
        due = state.next_due
        if due is not None and due < self.due:
            self.due = max(due, now)
            self.events.push(self.due, ("pass", 0))

    def _apply(self, transaction: Transaction) -> bool:
        if isinstance(transaction, Place):
            index = self._index(transaction.bindings[0].pod.uid)
            for binding in transaction.bindings:
                self.state.pods.bound(binding.pod.uid)
            self.events.push(self.runs[index].start(self.events.now), ("ends", index))
            return False
        if isinstance(transaction, Preempt):
            for index in sorted({self._index(victim.pod.uid) for victim in transaction.victims}):
                self._suspend(index)
            return True
        return False

    @staticmethod
    def _index(uid: str) -> int:
        return int(uid.partition("/")[0])

    def _sizes(self, index: int) -> list[int]:
        gpus = self.jobs[index].gpus
        rest = gpus % self.gpus_per_node
        return [self.gpus_per_node] * (gpus // self.gpus_per_node) + ([rest] if rest else [])

    def _submit(self, index: int) -> None:
        job, run = self.jobs[index], self.runs[index]
        sizes = self._sizes(index)
        queue = job.queue if self.queued else "default"
        group = job.name if len(sizes) > 1 else ""
        if group:
            self.state.upsert_group(Group("trace", group, min_member=len(sizes), queue=queue, created=job.submitted))
        for member, size in enumerate(sizes):
            self.state.upsert_pod(
                Pod(
                    f"{index}/{member}/{run.suspensions}",
                    "trace",
                    f"{job.name}-{member}",
                    PodSpec(((_GPU, size), ("pods", 1)), gpus=size),
                    queue=queue,
                    group=group,
                    created=job.submitted,
                    service_class=self.service,
                    attained=run.held * job.gpus,
                    expected=self._stated(index),
                )
            )

    def _stated(self, index: int) -> float:
        """The run time that is left by its owner's estimate; 0 where it is to be learned."""
        stated = self.estimates.stated(index)
        return 0.0 if stated is None else max(1.0, stated - self.runs[index].done)

    def _suspend(self, index: int) -> None:
        self._remove(index)
        self.runs[index].suspend(self.events.now)
        self._submit(index)

    def _finish(self, index: int) -> None:
        self._remove(index)
        if self.jobs[index].gpus > self.gpus_per_node:
            self.state.remove_group(f"trace/{self.jobs[index].name}")
        self.runs[index].finish(self.events.now)
        self.estimates.ended(index)
        self.finished += 1

    def _remove(self, index: int) -> None:
        for member in range(len(self._sizes(index))):
            self.state.remove_pod(f"{index}/{member}/{self.runs[index].suspensions}")

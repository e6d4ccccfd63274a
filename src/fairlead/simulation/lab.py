"""The demo's lab: 64 nodes in several GPU pools, and a day's jobs through the production pass.

Preempted jobs go back to their queue and start over; gangs start and end together.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from fairlead.core import invariants
from fairlead.core.model import WHOLE, Group, Node, Pod, PodSpec, Policy, Queue, QueueResource
from fairlead.core.schedule import schedule
from fairlead.core.state import ClusterState
from fairlead.core.transactions import Place, Preempt, Refuse
from fairlead.simulation.events import EventQueue
from fairlead.simulation.workload import TEAMS, Job, day

GPU = "nvidia.com/gpu"
POOL_LABEL = "fairlead.dev/pool"
_GIB = 1 << 30


class Pool(msgspec.Struct, frozen=True):
    """Nodes of one make. share: of the lab's nodes, in tenths."""

    name: str
    share: int
    gpus: int
    cpu_milli: int
    shares_gpus: bool = False


POOLS = (Pool("h100", 3, 8, 128_000), Pool("a100", 5, 8, 96_000), Pool("t4", 2, 4, 96_000, shares_gpus=True))


class LabSummary(msgspec.Struct):
    """What happened in the day. waits in seconds, over started jobs."""

    nodes: int
    gpus: int
    jobs: int
    started: int
    finished: int
    waiting: int
    preemptions: int
    gangs_started: int
    mean_wait_seconds: float
    p99_wait_seconds: float
    gpu_utilization: float
    by_kind: dict[str, int]
    by_team_gpu_hours: dict[str, float]
    simulated_hours: float


class Lab:
    """Step it with `step`; look at it between steps. now: seconds into the day."""

    def __init__(self, *, nodes: int, jobs: int, seed: int) -> None:
        self.state = ClusterState(Policy())
        self.pools: dict[str, list[str]] = {pool.name: [] for pool in POOLS}
        for number in range(nodes):
            self._add_node(number, nodes)
        self.gpus = self.state.nodes.total(GPU)
        for team, tenths in zip(TEAMS, (5, 3, 2), strict=True):
            self.state.upsert_queue(Queue(team, resources=(QueueResource(GPU, quota=self.gpus * WHOLE * tenths // 10),)))
        self.jobs = {job.name: job for job in day(seed, jobs, tuple(pool.name for pool in POOLS))}
        self.events: EventQueue[tuple[str, str, int]] = EventQueue()
        for job in self.jobs.values():
            self.events.push(job.submitted, ("submit", job.name, 0))
        self.submitted: set[str] = set()
        self.started: dict[str, float] = {}
        self.first_start: dict[str, float] = {}
        self.finished: set[str] = set()
        self.attempts: Counter[str] = Counter()
        self.preemptions = 0
        self.used_milli = 0
        self.gpu_seconds = 0.0
        self.team_seconds: dict[str, float] = dict.fromkeys(TEAMS, 0.0)
        self.log: deque[str] = deque(maxlen=8)
        self._at = 0.0

    @property
    def now(self) -> float:
        """Seconds into the day."""
        return self.events.now

    def run_until(self, until: float) -> None:
        """Let everything up to a time happen."""
        while (at := self.events.next_time) is not None and at <= until:
            self._integrate(at)
            while len(self.events) and self.events.next_time == at:
                self._happen(*self.events.pop())
            self._schedule()
        self._integrate(until)

    def summary(self) -> LabSummary:
        """The day in numbers; walks the invariants first."""
        invariants.check(self.state)
        waits = sorted(at - self.jobs[name].submitted for name, at in self.first_start.items())
        return LabSummary(
            nodes=len(self.state.nodes),
            gpus=self.gpus,
            jobs=len(self.submitted),
            started=len(self.first_start),
            finished=len(self.finished),
            waiting=len(self.submitted) - len(self.finished) - len(self.started),
            preemptions=self.preemptions,
            gangs_started=sum(self.jobs[name].pods > 1 for name in self.first_start),
            mean_wait_seconds=sum(waits) / len(waits) if waits else 0.0,
            p99_wait_seconds=waits[int(0.99 * len(waits))] if waits else 0.0,
            gpu_utilization=self.gpu_seconds / (self.gpus * self._at) if self._at else 0.0,
            by_kind=dict(sorted(Counter(self.jobs[name].kind for name in self.first_start).items())),
            by_team_gpu_hours={team: round(self.team_seconds[team] / 3600, 1) for team in TEAMS},
            simulated_hours=self._at / 3600,
        )

    # -- inside --------------------------------------------------------------------------------

    def _add_node(self, number: int, of: int) -> None:
        place = 10 * number / of
        bounds = 0
        for pool in POOLS:
            bounds += pool.share
            if place < bounds:
                break
        name = f"{pool.name}-{len(self.pools[pool.name]):03d}"
        self.pools[pool.name].append(name)
        allocatable = {"cpu": pool.cpu_milli, "memory": 1024 * _GIB, "pods": 110, GPU: pool.gpus}
        self.state.upsert_node(Node(name, allocatable, {POOL_LABEL: pool.name}, shares_gpus=pool.shares_gpus))

    def _happen(self, what: str, name: str, attempt: int) -> None:
        if what == "submit":
            self.submitted.add(name)
            self._submit(name)
        elif self.attempts[name] == attempt and name in self.started:
            self._stop(name)
            self.finished.add(name)

    def _submit(self, name: str) -> None:
        job = self.jobs[name]
        self.attempts[name] += 1
        if job.pods > 1:
            self.state.upsert_group(Group(job.team, name, min_member=job.pods, created=job.submitted))
        requests: list[tuple[str, int]] = [("cpu", job.cpu_milli), ("memory", 8 * job.gpus * _GIB), ("pods", 1)]
        if job.milli == WHOLE:
            requests.append((GPU, job.gpus))
        selector = ((POOL_LABEL, job.pool),) if job.pool else ()
        spec = PodSpec(tuple(sorted(requests)), job.gpus, job.milli, node_selector=selector)
        for member in range(job.pods):
            uid = f"{name}/{member}/{self.attempts[name]}"
            group = name if job.pods > 1 else ""
            self.state.upsert_pod(
                Pod(
                    uid,
                    job.team,
                    f"{name}-{member}",
                    spec,
                    queue=job.team,
                    group=group,
                    priority=job.priority,
                    created=job.submitted,
                )
            )

    def _stop(self, name: str) -> None:
        job = self.jobs[name]
        for member in range(job.pods):
            self.state.remove_pod(f"{name}/{member}/{self.attempts[name]}")
        if job.pods > 1:
            self.state.remove_group(f"{job.team}/{name}")
        del self.started[name]
        self.used_milli -= job.pods * job.gpus * job.milli

    def _schedule(self) -> None:
        again = True
        while again:
            again = False
            for transaction in schedule(self.state, self.now):
                if isinstance(transaction, Place):
                    self._start(transaction)
                elif isinstance(transaction, Preempt):
                    self._preempt(transaction)
                    again = True
                elif isinstance(transaction, Refuse):
                    self.log.append(f"{transaction.pods[0].key} waits: {transaction.reason.message}")

    def _start(self, placed: Place) -> None:
        name = placed.bindings[0].pod.uid.partition("/")[0]
        job = self.jobs[name]
        for binding in placed.bindings:
            self.state.bound(binding.pod.uid)
        self.started[name] = self.now
        self.first_start.setdefault(name, self.now)
        self.used_milli += job.pods * job.gpus * job.milli
        self.events.push(self.now + job.duration, ("finish", name, self.attempts[name]))
        where = ", ".join(sorted({binding.node for binding in placed.bindings})[:3])
        self.log.append(f"{job.team}/{name} starts on {where}")

    def _preempt(self, plan: Preempt) -> None:
        """Victims leave at once and their jobs queue again from the start."""
        for name in sorted({victim.pod.uid.partition("/")[0] for victim in plan.victims}):
            self.preemptions += 1
            self.log.append(f"{self.jobs[name].team}/{name} gives way to {plan.beneficiaries[0].pod.key}")
            self._stop(name)
            self._submit(name)

    def _integrate(self, until: float) -> None:
        elapsed = until - self._at
        if elapsed <= 0:
            return
        self._at = until
        self.gpu_seconds += elapsed * self.used_milli / WHOLE
        for name in self.started:
            job = self.jobs[name]
            self.team_seconds[job.team] += elapsed * job.pods * job.gpus * job.milli / WHOLE


def job_of(lab: Lab, uid: str) -> Job:
    """The job that a pod belongs to."""
    return lab.jobs[uid.partition("/")[0]]

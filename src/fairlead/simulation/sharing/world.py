"""Jobs through the production pass on a cluster whose class lets two share a GPU, with speeds of measured pairs.

The cluster is full all the time: a job that ends is followed by a new one, and some wait. Each runs as fast as its kind does
beside that of its partner, and reports it a while after its partner came or left, with an error. A pod that does not run beside
the one it joins fails after a few seconds, and comes again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from fairlead.api.names import ALONE, GPU_SHARING_LABEL, OWN_AGENT
from fairlead.core import invariants
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Place
from fairlead.core.pairs.speeds import SETTLED
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.sharing.throughputs import Throughputs

_PER_NODE = 4
_GPU = "nvidia.com/gpu"
_LASTS = 3600.0  # seconds, the mean of a job alone
_FAILS_AFTER = 30.0
_FIRST, _AGAIN = SETTLED + 10.0, 300.0  # seconds after a partner came or left, and between two reports
_ERROR = 0.05  # of what is measured, either way
_LOST = 180.0  # seconds of work that a job loses when it is evicted
_STARTED = 1.0


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gives, without its first quarter.

    worth_per_gpu: relative speeds of all jobs over the GPUs of the cluster. p95_slowdown: of the slower job of each pair, by
    time; null where that pair does not run. failed, parted: pods per started job that failed beside another, and that were
    evicted. longest_wait: seconds that a job waited at most, of all that started or still wait.
    """

    worth_per_gpu: float
    p95_slowdown: float | None
    jobs: int
    failed: float
    parted: float
    mean_wait: float
    longest_wait: float


class _Job(msgspec.Struct):
    kind: int
    name: str
    left: float  # seconds of work alone
    came: float
    tries: int = 0
    uid: str = ""
    gpu: int = -1
    reports_at: float = 0.0
    fails_at: float = 0.0
    speed: float = 1.0


class World:
    """The cluster beside the scheduler. learns: whether speeds reach it."""

    def __init__(self, table: Throughputs, *, gpus: int, waiting: int, seed: int, learns: bool = True) -> None:
        self._table, self._learns = table, learns
        self._rnd = random.Random(seed)
        self._state = ClusterState(Policy())
        labels = {GPU_SHARING_LABEL: OWN_AGENT}
        for number in range(-(-gpus // _PER_NODE)):
            amounts = {"cpu": 128_000, "memory": 1 << 40, "pods": 110, _GPU: min(_PER_NODE, gpus - number * _PER_NODE)}
            self._state.upsert_node(Node(f"n{number:03}", amounts, labels=labels, shares_gpus=True))
        self._state.upsert_class(ServiceClass("small", sharing="Pairs", movable=False))
        self._gpus, self._now = gpus, _STARTED
        self._jobs: dict[str, _Job] = {}  # by UID
        self._on: dict[int, list[_Job]] = {}
        self._made = self._started = self._failed = self._parted = self._new_gpus = 0
        self._worth = 0.0
        self._slowed: list[tuple[float, float]] = []  # (slowdown, seconds)
        self._waits: list[float] = []
        for _ in range(2 * gpus + waiting):
            self._come(self._rnd.random())

    def play(self, seconds: float, progress: Callable[[int, int], None] | None = None) -> Passed:
        """So many seconds."""
        counted = _STARTED + seconds / 4
        end, shown = _STARTED + seconds, 0
        while self._now < end:
            self._pass()
            self._advance(min(end, self._next()), counted)
            self._happen()
            if progress is not None and int(100 * (self._now - _STARTED) / seconds) > shown:
                shown = int(100 * (self._now - _STARTED) / seconds)
                progress(shown, 100)
        invariants.check(self._state)
        waits = self._waits + [self._now - job.came for job in self._jobs.values() if job.gpu < 0]
        slowdown = _p95(self._slowed)
        return Passed(
            worth_per_gpu=self._worth / (self._gpus * (end - counted)),
            p95_slowdown=slowdown if slowdown < float("inf") else None,
            jobs=self._started,
            failed=self._failed / max(1, self._started),
            parted=self._parted / max(1, self._started),
            mean_wait=sum(self._waits) / max(1, len(self._waits)),
            longest_wait=max(waits, default=0.0),
        )

    # -- jobs ----------------------------------------------------------------------------------

    def _come(self, part: float = 1.0) -> None:
        """A new job; part: of its time that is left, so that not all end together."""
        kind = self._rnd.randrange(len(self._table.kinds))
        job = _Job(kind, f"k{kind}-{self._made}", part * min(4 * _LASTS, self._rnd.expovariate(1 / _LASTS)), self._now)
        self._made += 1
        self._submit(job)

    def _submit(self, job: _Job) -> None:
        job.uid, job.tries, job.gpu = f"uid-{job.name}-{job.tries}", job.tries + 1, -1
        self._jobs[job.uid] = job
        requests = (("cpu", 4000), ("memory", 1 << 34), (_GPU, 1), ("pods", 1))
        self._state.upsert_pod(
            Pod(job.uid, "research", job.name, PodSpec(requests, gpus=1), created=self._now, service_class="small")
        )

    def _pass(self) -> None:
        for transaction in schedule(self._state, self._now, None):
            if isinstance(transaction, Place):
                for binding in transaction.bindings:
                    job, mate = self._jobs[binding.pod.uid], self._jobs.get(binding.partner)
                    self._new_gpus += binding.partner == ALONE
                    job.gpu = mate.gpu if mate is not None else self._new_gpus
                    self._on.setdefault(job.gpu, []).append(job)
                    self._waits.append(self._now - job.came)
                    self._started += 1
                    self._state.pods.bound(job.uid)
                    self._seen(job, node=binding.node, partner=binding.partner, started=self._now)
                    self._met(job.gpu)
            elif isinstance(transaction, Evict):
                for victim in transaction.victims:
                    job = self._jobs[victim.pod.uid]
                    self._parted += 1
                    job.left, job.came = job.left + _LOST, self._now
                    self._leave(job)
                    self._submit(job)

    def _seen(self, job: _Job, **changes: object) -> None:
        pod = self._state.tasks[job.uid].pod
        # As it is translated: what the state wrote into its spec is not in the object.
        spec = msgspec.structs.replace(pod.spec, paired=())
        self._state.upsert_pod(msgspec.structs.replace(pod, spec=spec, **changes))

    def _met(self, gpu: int) -> None:
        """Who is on a GPU has changed."""
        there = self._on.get(gpu, [])
        for job in there:
            other = next((each for each in there if each is not job), None)
            job.reports_at, job.fails_at = self._now + _FIRST, 0.0
            job.speed = float(self._table.speed[job.kind, other.kind]) if other is not None else 1.0
        if len(there) == 2 and there[1].speed == 0:
            there[1].fails_at = self._now + _FAILS_AFTER

    def _leave(self, job: _Job) -> None:
        self._on[job.gpu].remove(job)
        del self._jobs[job.uid]
        self._state.remove_pod(job.uid)
        self._met(job.gpu)

    # -- time ----------------------------------------------------------------------------------

    def _running(self) -> list[_Job]:
        return [job for there in self._on.values() for job in there]

    def _next(self) -> float:
        times = []
        for job in self._running():
            if job.speed:
                times.append(self._now + job.left / job.speed)
            if job.fails_at:
                times.append(job.fails_at)
            if self._learns:
                times.append(job.reports_at)
        return min(times, default=float("inf"))

    def _advance(self, now: float, counted: float) -> None:
        passed, counts = now - self._now, max(0.0, now - max(self._now, counted))
        for there in self._on.values():
            for job in there:
                job.left -= passed * job.speed
                self._worth += counts * job.speed
            if len(there) == 2 and counts:
                slower = min(job.speed for job in there)
                self._slowed.append((1 / slower if slower else float("inf"), counts))
        self._now = now

    def _happen(self) -> None:
        for job in self._running():
            if job.fails_at and job.fails_at <= self._now:
                self._failed += 1
                self._seen(job, finished=True)
                self._leave(job)
                job.came = self._now
                self._submit(job)
            elif job.left <= 1e-6:
                self._seen(job, finished=True, succeeded=self._now)
                self._leave(job)
                self._come()
            elif self._learns and job.reports_at <= self._now:
                job.reports_at += _AGAIN
                self._seen(job, speed=10.0 * job.speed * self._rnd.uniform(1 - _ERROR, 1 + _ERROR), speed_at=self._now)


def _p95(weighted: list[tuple[float, float]]) -> float:
    """The 95th percentile of values with weights."""
    total, seen = sum(weight for _, weight in weighted), 0.0
    for value, weight in sorted(weighted):
        seen += weight
        if seen >= 0.95 * total:
            return value
    return 1.0

"""A small random cluster in memory, of one theme: its pods run for their jobs' durations and come back when evicted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from fairlead.api.names import AI_PROFILE
from fairlead.cluster.port import BindFailed, Bound, ClusterEvent, EvictFailed, Gone, Synced, Upsert
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Node, Reservation
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.transactions import Evict, Place, Preempt
from fairlead.core.model.units import WHOLE
from fairlead.scheduler.core_loop import CoreLoop, Recorder
from fairlead.scheduler.outputs import Output
from fairlead.simulation.events import EventQueue

GPU = "nvidia.com/gpu"
_GIB = 1 << 30
START = 1_000_000.0
HOUR = 3600.0


class Theme(msgspec.Struct, frozen=True, kw_only=True):
    """What a small random cluster is about.

    gpus: of each node; racks: how many racks nodes lie in; queues: (name, parent, quota, weight, limit), GPUs. classes: of which
    each job has one. sizes: (GPUs, members) of jobs, drawn alike; fractions: parts of a device in thousandths. spare: chance that
    a gang has members beyond its minimum. priorities: drawn alike. users: how many. load: how much of the cluster is asked for.
    faults: chance that a write fails. nodes_fail: seconds between failures of nodes, 0: none. edits: whether queues are edited.
    """

    gpus: Sequence[int] = (8, 8, 8, 8)
    racks: int = 0
    queues: Sequence[tuple[str, str, int | None, int | None, int | None]] = ()
    classes: Sequence[ServiceClass] = ()
    sizes: Sequence[tuple[int, int]] = ((1, 1), (2, 1), (4, 1), (8, 1))
    fractions: Sequence[int] = ()
    spare: float = 0.0
    priorities: Sequence[int] = (0,)
    users: int = 3
    per_user: UserLimits | None = None
    users_reclaim: bool = False
    load: float = 2.5
    hours: float = 24.0
    mean_hours: float = 1.0
    faults: float = 0.0
    nodes_fail: float = 0.0
    edits: bool = False
    budgets: int = 0
    reservations: Sequence[Reservation] = ()
    profile: str = AI_PROFILE
    policy: Policy = Policy()


class Job(NamedTuple):
    name: str
    queue: str
    user: str
    service_class: str
    spec: PodSpec
    members: int
    least: int
    priority: int
    seconds: float
    labels: tuple[tuple[str, str], ...]


class Cluster:
    """A cluster in memory whose pods run for their jobs' durations and come back when they are evicted."""

    def __init__(self, theme: Theme, seed: int, recorder: Recorder, jobs: Sequence[tuple[float, Job]] | None = None) -> None:
        self.theme = theme
        self.rnd = random.Random(f"decisions/{seed}")
        self.core = CoreLoop(theme.policy, self._take, recorder)
        self.queue: EventQueue[Callable[[], None]] = EventQueue()
        self.observed: list[ClusterEvent] = []
        self.pods: dict[str, Pod] = {}
        self.jobs: dict[str, Job] = {}  # by pod UID
        self.left: dict[str, float] = {}  # job -> seconds of work that are left
        self.began: dict[str, float] = {}  # pod UID -> when it began
        self.number = 0
        self.due = float("inf")
        self._set_up()
        for at, job in self._drawn() if jobs is None else jobs:
            self.queue.push(START + at, lambda job=job: self._submit(job))  # type: ignore[misc]
        if theme.nodes_fail:
            self.queue.push(START + theme.nodes_fail, self._node_fails)
        if theme.edits:
            self.queue.push(START + 2 * HOUR, self._edit_queue)

    def _set_up(self) -> None:
        theme = self.theme
        self.nodes = {f"node-{number:03d}": self._node(number, gpus) for number, gpus in enumerate(theme.gpus)}
        self._observe(*map(Upsert, self.nodes.values()), *map(Upsert, theme.classes))
        for name, parent, quota, weight, limit in theme.queues:
            self._observe(Upsert(self._queue(name, parent, quota, weight, limit)))
        self._observe(*map(Upsert, theme.reservations))
        for number in range(theme.budgets):
            self._observe(Upsert(DisruptionBudget("ns", f"budget-{number}", (), 1)))
        self._observe(Synced())

    def _node(self, number: int, gpus: int) -> Node:
        theme = self.theme
        return Node(
            f"node-{number:03d}",
            {GPU: gpus, "cpu": 64_000, "memory": 256 * _GIB, "pods": 110},
            {"kubernetes.io/hostname": f"node-{number:03d}"}
            | ({"topology.kubernetes.io/rack": f"rack-{number % theme.racks}"} if theme.racks else {}),
            shares_gpus=bool(theme.fractions),
        )

    def _queue(self, name: str, parent: str, quota: int | None, weight: int | None, limit: int | None) -> Queue:
        theme = self.theme
        amounts = [None if each is None else each * WHOLE for each in (quota, limit)]
        leaf = not any(each[1] == name for each in theme.queues)
        return Queue(
            name,
            parent,
            resources=(QueueResource(GPU, amounts[0], amounts[1], weight=weight),),
            per_user=theme.per_user if leaf else None,
            users_reclaim=theme.users_reclaim and leaf,
        )

    def _drawn(self) -> Iterable[tuple[float, Job]]:
        theme, rnd = self.theme, self.rnd
        above = {each[1] for each in theme.queues}
        leaves = [each[0] for each in theme.queues if each[0] not in above] or ["default"]
        wanted = sum(theme.gpus) * theme.hours * HOUR * theme.load
        number = 0
        while wanted > 0:
            gpus, members = rnd.choice(theme.sizes)
            milli = rnd.choice(theme.fractions) if theme.fractions and gpus == 1 and rnd.random() < 0.6 else WHOLE
            least = members
            if members > 1 and rnd.random() < theme.spare:
                members += rnd.randint(1, 3)
            seconds = min(rnd.expovariate(1 / (theme.mean_hours * HOUR)) + 60.0, 12 * HOUR)
            requests = {"cpu": 1000, "pods": 1} | ({GPU: gpus} if milli == WHOLE else {})
            spec = PodSpec(tuple(sorted(requests.items())), gpus=gpus, gpu_milli=milli)
            labels = (("app", f"app-{number % 5}"),)
            user, queue = f"user-{rnd.randrange(theme.users)}", rnd.choice(leaves)
            service = rnd.choice(theme.classes).name if theme.classes else ""
            job = Job(f"job-{number}", queue, user, service, spec, members, least, rnd.choice(theme.priorities), seconds, labels)
            yield rnd.uniform(0.0, theme.hours * 0.8 * HOUR), job
            wanted -= gpus * milli / WHOLE * members * seconds
            number += 1

    # -- what happens --------------------------------------------------------------------------

    def run(self) -> None:
        """Until nothing happens any more, or time is up."""
        until = START + self.theme.hours * HOUR
        self._decide(START)
        while (now := self.queue.next_time) is not None and now <= until:
            while len(self.queue) and self.queue.next_time == now:
                self.queue.pop()()
            self._decide(now)

    def _decide(self, now: float) -> None:
        if self.observed:
            observed, self.observed = self.observed, []
            self.core.apply(observed, now)
        self.core.decide(now)
        due = self.core.next_due
        if due is not None and (due := max(due, now + 0.001)) < self.due:
            self.due = due
            self.queue.push(due, self._due_now)

    def _due_now(self) -> None:
        self.due = float("inf")

    def _observe(self, *events: ClusterEvent) -> None:
        self.observed += events

    @property
    def now(self) -> float:
        return max(START, self.queue.now)

    def _submit(self, job: Job) -> None:
        self.left.setdefault(job.name, job.seconds)
        if job.members > 1:
            self._observe(Upsert(self._group(job)))
        for index in range(job.members):
            self._make(job, index)

    def _group(self, job: Job) -> Group:
        return Group("ns", job.name, job.least, job.queue, self.now, job.service_class, expected=job.seconds)

    def _make(self, job: Job, index: int) -> None:
        self.number += 1
        uid = f"uid-{self.number:06d}"
        self.pods[uid], self.jobs[uid] = self._pod(job, index, uid), job
        self._observe(Upsert(self.pods[uid]))

    def _pod(self, job: Job, index: int, uid: str) -> Pod:
        return Pod(
            uid,
            "ns",
            f"{job.name}-{index}",
            job.spec,
            queue=job.queue,
            group=job.name if job.members > 1 else "",
            priority=job.priority,
            created=float(int(self.now)),
            labels=job.labels,
            owner=f"owner-{job.name}",
            user=job.user,
            service_class=job.service_class,
            expected=job.seconds,
            profile=self.theme.profile,
            elastic=index >= job.least,
        )

    def _take(self, outputs: list[Output]) -> None:
        for each in outputs:
            if isinstance(each, Place):
                for binding in each.bindings:
                    self.queue.push(self.now + 1.0, lambda binding=binding: self._bind(binding.pod.uid, binding.node))  # type: ignore[misc]
            elif isinstance(each, Preempt | Evict):
                for victim in each.victims:
                    self.queue.push(self.now + 1.0, lambda uid=victim.pod.uid: self._evict(uid))  # type: ignore[misc]

    def _bind(self, uid: str, node: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or node not in self.nodes or self.rnd.random() < self.theme.faults:
            if pod is not None:
                self._observe(BindFailed(uid, "the server does not answer"))
            return
        self.pods[uid] = pod = msgspec.structs.replace(pod, node=node, started=self.now)
        self._observe(Bound(uid), Upsert(pod))
        self.began[uid] = self.now
        self.queue.push(self.now + self.left[self.jobs[uid].name], lambda: self._end(uid))

    def _evict(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or pod.terminating:
            return
        if self.rnd.random() < self.theme.faults:
            self._observe(EvictFailed(uid, "the server does not answer"))
            return
        self.pods[uid] = msgspec.structs.replace(pod, terminating=True, leaves=self.now + 30.0)
        self._observe(Upsert(self.pods[uid]))
        self.queue.push(self.now + self.rnd.uniform(1.0, 30.0), lambda: self._gone(uid, back=True))

    def _end(self, uid: str) -> None:
        if uid in self.pods and not self.pods[uid].terminating:
            self._gone(uid, back=False)

    def _gone(self, uid: str, *, back: bool) -> None:
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        job = self.jobs.pop(uid)
        self._observe(Gone("pod", uid))
        if back:
            begun = self.began.get(uid)
            if begun is not None and job.members == 1:
                self.left[job.name] = max(60.0, self.left[job.name] - (self.now - begun))
            self._make(job, int(pod.name.rpartition("-")[2]))
        elif job.members > 1 and not any(other.group == job.name for other in self.pods.values()):
            self._observe(Gone("group", f"ns/{job.name}"))

    def _node_fails(self) -> None:
        self._fail(self.rnd.choice(sorted(self.nodes)), 0.2 * self.theme.nodes_fail)
        self.queue.push(self.now + self.rnd.uniform(0.5, 1.5) * self.theme.nodes_fail, self._node_fails)

    def _fail(self, name: str, seconds: float) -> None:
        """A node is cordoned, or is gone with its pods, for so long."""
        if self.rnd.random() < 0.5:
            self._observe(Upsert(msgspec.structs.replace(self.nodes[name], unschedulable=True)))
        else:
            self._observe(*self._without(name))
            for uid in sorted(uid for uid, pod in self.pods.items() if pod.node == name):
                self._gone(uid, back=True)
        self.queue.push(self.now + seconds, lambda: self._observe(*self._with(name)))

    def _with(self, name: str) -> list[ClusterEvent]:
        """What is observed when a node comes."""
        return [Upsert(self.nodes[name])]

    def _without(self, name: str) -> list[ClusterEvent]:
        """What is observed when a node goes."""
        return [Gone("node", name)]

    def _edit_queue(self) -> None:
        name, parent, quota, weight, limit = self.rnd.choice(list(self.theme.queues))
        quota = None if quota is None else self.rnd.randint(0, 2 * quota)
        self._observe(Upsert(self._queue(name, parent, quota, self.rnd.randint(1, 4) if weight else None, limit)))
        self.queue.push(self.now + self.rnd.uniform(1.0, 3.0) * HOUR, self._edit_queue)

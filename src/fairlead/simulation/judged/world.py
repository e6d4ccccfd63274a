"""A small cluster around the core: jobs are submitted, what is decided is carried out at once, until nothing moves.

Nothing of the scheduler's own reckoning is used by the judges: jobs, queues and places are kept here in plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place, Preempt, Transaction
from fairlead.core.model.units import WHOLE
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState

GPU = "nvidia.com/gpu"
_NAMESPACE = "judged"
_GIB = 1 << 30
_PASSES = 200
_LATER = (1.0, 12.0)  # seconds after which a search in vain is repeated
_CPU = 100


class Job(msgspec.Struct):
    """What is submitted together. gpus: of each member, in thousandths; members > 1: a gang that needs all of them."""

    name: str
    queue: str
    gpus: int = WHOLE
    members: int = 1
    created: float = 0.0
    priority: int = 0

    @property
    def amount(self) -> int:
        """What it holds when it runs, in thousandths of a GPU."""
        return self.gpus * self.members


class Share(msgspec.Struct):
    """One queue: thousandths of a GPU that it is guaranteed. weight None: over-quota capacity goes by what each still wants."""

    name: str
    quota: int
    parent: str = ""
    weight: int | None = None
    priority: int = 0


class World:
    """Nodes, queues and jobs. nodes: GPUs of each. policy: settings besides; reservations and moves are off."""

    def __init__(self, nodes: Sequence[int], queues: Sequence[Share], **policy: object) -> None:
        self.nodes = {f"n{number}": gpus for number, gpus in enumerate(nodes)}
        self.queues = {each.name: each for each in queues}
        self.jobs: dict[str, Job] = {}
        self.places: dict[str, list[str]] = {}  # job -> nodes of its members that run
        self.evicted: list[list[str]] = []  # jobs, plan by plan
        self.now = 0.0
        settings = {"reservations": 0, "patience": 0.0, "moves_per_minute": 0.0, **policy}
        self.state = ClusterState(msgspec.convert(settings, Policy))
        for name, gpus in self.nodes.items():
            capacity = {"cpu": _CPU * 1000, "memory": _CPU * 8 * _GIB, "pods": 1000, GPU: gpus}
            self.state.upsert_node(Node(name, capacity, shares_gpus=True))
        for each in queues:
            given = QueueResource(GPU, quota=each.quota, weight=each.weight)
            self.state.upsert_queue(Queue(each.name, each.parent, each.priority, (given,)))

    @property
    def gpus(self) -> int:
        """All of the cluster's, in thousandths."""
        return sum(self.nodes.values()) * WHOLE

    def path(self, name: str) -> list[Share]:
        """A queue and those above it."""
        found = [self.queues[name]]
        while found[-1].parent:
            found.append(self.queues[found[-1].parent])
        return found

    def submit(self, job: Job) -> None:
        """Let a job wait."""
        self.jobs[job.name] = job
        self._wait(job)

    def _wait(self, job: Job, again: str = "") -> None:
        group = job.name if job.members > 1 else ""
        if group:
            self.state.upsert_group(Group(_NAMESPACE, group, job.members, job.queue, created=job.created))
        whole = job.gpus % WHOLE == 0
        count = job.gpus // WHOLE if whole else 1
        requests = {"cpu": 100, "memory": _GIB, "pods": 1, **({GPU: count} if whole else {})}
        spec = PodSpec(tuple(sorted(requests.items())), gpus=count, gpu_milli=WHOLE if whole else job.gpus)
        for number in range(job.members):
            name = f"{job.name}.{number}{again}"
            pod = Pod(name, _NAMESPACE, name, spec, queue=job.queue, group=group, priority=job.priority, created=job.created)
            self.state.upsert_pod(pod)

    def end(self, name: str) -> None:
        """A job has run to its end, or is deleted."""
        self.jobs.pop(name)
        self.places.pop(name, None)
        for uid in [task.pod.uid for task in self.state.tasks.values() if _job(task.pod.name) == name]:
            self.state.remove_pod(uid)

    def play(self) -> None:
        """Pass after pass until nothing more is decided, and would not be a little later. Who is evicted waits again."""
        for _ in range(_PASSES):
            if not self._settled():
                continue
            if not any(self._decide(self.now + later) for later in _LATER):
                return
        raise AssertionError(f"it never comes to rest: {self.evicted[-10:]}")

    def _settled(self) -> bool:
        return not self._decide(self.now)

    def _decide(self, now: float) -> bool:
        """One pass. Whether anything was placed or evicted."""
        self.now = now
        decided = [each for each in schedule(self.state, now) if isinstance(each, Place | Preempt)]
        for each in decided:
            self._carry_out(each)
        return bool(decided)

    def _carry_out(self, decided: Transaction) -> None:
        if isinstance(decided, Place):
            for binding in decided.bindings:
                self.state.pods.bound(binding.pod.uid)
                self.places.setdefault(_job(binding.pod.name), []).append(binding.node)
        elif isinstance(decided, Preempt):
            names = sorted({_job(victim.pod.name) for victim in decided.victims})
            self.evicted.append(names)
            old = [self.state.tasks[victim.pod.uid].pod for victim in decided.victims]
            for each in old:
                self.state.remove_pod(each.uid)
            for name in names:
                self.places.pop(name, None)
                gone = [each.uid for each in old if _job(each.name) == name]
                if len(gone) == self.jobs[name].members:
                    self._wait(self.jobs[name], again=f"+{len(self.evicted)}")

    # -- what a judge asks ---------------------------------------------------------------------

    @property
    def waiting(self) -> list[Job]:
        """Jobs of which not all members run."""
        return [job for job in self.jobs.values() if len(self.places.get(job.name, ())) < job.members]

    def held(self, name: str) -> int:
        """What a queue and those below it hold, in thousandths of a GPU."""
        return sum(
            self.jobs[job].gpus * len(places)
            for job, places in self.places.items()
            if any(each.name == name for each in self.path(self.jobs[job].queue))
        )

    def free(self) -> dict[str, list[int]]:
        """Node -> what is left of each of its GPUs, in thousandths, as the core deals them."""
        left = {}
        for name in self.nodes:
            row = self.state.nodes.rows[name]
            left[name] = list(self.state.nodes.devices.states[self.state.nodes.device.item(row)])
        return left


def _job(pod: str) -> str:
    return pod.partition(".")[0]


def fits(free: dict[str, list[int]], job: Job) -> bool:
    """Whether all members of a job have a place in what is free."""
    places = 0
    for left in free.values():
        if job.gpus % WHOLE:
            places += sum(each // job.gpus for each in left)
        else:
            places += sum(each == WHOLE for each in left) * WHOLE // job.gpus
    return places >= job.members

"""A cluster for measurements: the production loop around the core, its nodes, queues and pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.cluster.port import ClusterEvent, Gone, Synced, Upsert
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.units import WHOLE
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import Output

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
_GIB = 1 << 30
LATE = 1e5  # when what waits was created; what runs, before


class Cluster:
    """Nodes of 8 GPUs, and the loop that schedules on them. now: its clock, seconds since the epoch."""

    def __init__(self, policy: Policy | None = None) -> None:
        self.loop = CoreLoop(policy or Policy(), self._delivered)
        self.state = self.loop.state
        self.now = 1e6

    def _delivered(self, outputs: list[Output]) -> None:
        """Nothing is written."""

    def take(self, *events: ClusterEvent) -> None:
        """Events arrive, a second after the ones before."""
        self.now += 1.0
        self.loop.apply(list(events), self.now)

    def upsert(self, *objects: Any) -> None:
        """Objects come or change."""
        self.take(*[Upsert(each) for each in objects])

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        self.take(Gone("pod", uid))

    def decide(self) -> None:
        """Passes until there is nothing more to decide."""
        self.loop.decide(self.now)
        while self.loop.has_work:
            self.loop.decide(self.now)

    def start(self) -> None:
        """All objects that exist have been delivered: decide for the first time."""
        self.take(Synced())
        self.decide()

    @property
    def placed(self) -> int:
        """How many pods have got a node."""
        return self.loop.counters.placed


def node(number: int, **more: Any) -> Node:
    """A node of 8 GPUs."""
    return Node(f"node-{number:06d}", {"cpu": 128_000, "memory": 2048 * _GIB, "pods": 110, GPU: GPUS_PER_NODE}, **more)


def small_node(name: str, **more: Any) -> Node:
    """A node without GPUs that is too small for anything here."""
    return Node(name, {"cpu": 10, "memory": _GIB, "pods": 10}, **more)


def queue(name: str, quota: int | None = None, **more: Any) -> Queue:
    """A queue. quota: GPUs."""
    return Queue(name, resources=() if quota is None else (QueueResource(GPU, quota=quota * WHOLE),), **more)


def spec(gpus: int = 1, shape: int = 0, **more: Any) -> PodSpec:
    """What a pod asks for; each shape asks for other CPUs and memory."""
    return PodSpec((("cpu", 1000 + 10 * shape), ("memory", (4 + shape % 16) * _GIB), (GPU, gpus), ("pods", 1)), gpus=gpus, **more)


def pod(name: str, *, gpus: int = 1, shape: int = 0, queue: str = "q", **more: Any) -> Pod:
    """A pod that waits, or runs where `node` is given; its UID is its name."""
    more.setdefault("spec", spec(gpus, shape))
    return Pod(name, "bench", name, queue=queue, **{"created": 0.0, **more})


def running(nodes: int, queues: Sequence[str] = ("q",), **more: Any) -> list[Pod]:
    """Pods of one GPU on every GPU, `run-0` and so on, their queues in round_."""
    return [
        pod(
            f"run-{number}",
            queue=queues[number % len(queues)],
            node=f"node-{number // GPUS_PER_NODE:06d}",
            created=float(number),
            started=float(number),
            **more,
        )
        for number in range(nodes * GPUS_PER_NODE)
    ]


def full(nodes: int, queues: Sequence[Queue], policy: Policy | None = None, fill: Sequence[str] = ()) -> Cluster:
    """A cluster on which every GPU is taken. fill: the queues of what runs, in round_; none: all of them."""
    cluster = empty(nodes, queues, policy)
    cluster.upsert(*running(nodes, fill or [each.name for each in queues]))
    cluster.decide()
    return cluster


def empty(nodes: int, queues: Sequence[Queue], policy: Policy | None = None) -> Cluster:
    """A cluster on which nothing runs."""
    cluster = Cluster(policy)
    cluster.upsert(*[node(number) for number in range(nodes)])
    cluster.upsert(*queues)
    cluster.start()
    return cluster

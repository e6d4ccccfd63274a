"""A cluster for measurements: the production loop around the core, its nodes, queues and pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairlead.cluster.port import ClusterEvent, Gone, Synced, Upsert
from fairlead.core.model.pods import Pod
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.outputs import Output
from fairlead.simulation.machines import GPUS_PER_NODE, node, spec

LATE = 1e5  # when what waits was created; what runs, before


class Cluster:
    """Nodes of 8 GPUs, and the loop that schedules on them.

    now: its clock, seconds since the epoch. step: seconds between events.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.loop = CoreLoop(policy or Policy(), self._delivered)
        self.state = self.loop.state
        self.now = 1e6
        self.step = 1.0

    def _delivered(self, outputs: list[Output]) -> None:
        """Nothing is written."""

    def take(self, *events: ClusterEvent) -> None:
        """Events arrive, a step after the ones before."""
        self.now += self.step
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


def pod(name: str, *, gpus: int = 1, shape: int = 0, queue: str = "q", **more: Any) -> Pod:
    """A pod that waits, or runs where `node` is given; its UID is its name."""
    more.setdefault("spec", spec(gpus, shape))
    return Pod(name, "bench", name, queue=queue, **{"created": 0.0, **more})


def running(nodes: int, queues: Sequence[str] = ("q",), **more: Any) -> list[Pod]:
    """Pods of one GPU on every GPU, `run-0` and so on, their queues one after the other."""
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
    """A cluster on which every GPU is taken. fill: the queues of what runs, one after the other; none: all of them."""
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

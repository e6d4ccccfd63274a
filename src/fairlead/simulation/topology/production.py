"""The stream of the floors protocol through the production pass: queues, backfill and reservations, the leaf as preferred level.

The gangs of a seed, with their arrivals and run times, are those of best fit's run in one line: both get the same work. A
member is a pod that asks for all GPUs of a node. The pass may start gangs in another order, and never moves or evicts one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import NetworkLevel, Node, NodePool
from fairlead.core.model.pods import Closeness, Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place, Preempt, Transaction
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.events import EventQueue
from fairlead.simulation.topology.fabric import LEVELS, Fabric
from fairlead.simulation.topology.floors import LEAF, Run

GPUS = 8
UNIT = 60.0
"""Seconds of the protocol's unit of time: a gang a minute arrives, and at a load of 0.92 runs for 2.7 hours in the mean."""

QUEUES = {"research": 5, "products": 3, "students": 2}
"""Queues, and the tenths of all nodes that are their quota; so many tenths of the gangs are theirs, too."""

_GPU = "nvidia.com/gpu"
_NAMESPACE = "fabric"


class Gang(NamedTuple):
    """One gang of the stream: nodes, arrival and run time in units, and whether it is counted."""

    nodes: int
    arrived: float
    runs: float
    counted: bool
    queue: str


def stream(run: Run, seed: int) -> list[Gang]:
    """The gangs of a run of the protocol, in the order of their arrivals, each in a queue drawn from the seed."""
    draw = Random(seed)
    names, weights = list(QUEUES), list(QUEUES.values())
    return [
        Gang(nodes, arrived, end - start, counted, draw.choices(names, weights)[0])
        for (nodes, start, end, counted), arrived in zip(run.intervals, run.arrivals, strict=True)
    ]


def policy(preferred_wait: float) -> Policy:
    """How the pass decides: as by default, but without moves and preemption, which would end or disturb running gangs.

    preferred_wait: seconds that a gang waits at most for as few leaves as it needs.
    """
    return Policy(preempt=False, reclaim=False, moves_per_minute=0.0, preferred_wait=preferred_wait)


def simulate(fabric: Fabric, gangs: list[Gang], policy: Policy, progress: Callable[[], None] | None = None) -> Run:
    """All gangs through the production pass. Raises `ValueError` where a gang starts in part, is evicted, or never starts."""
    world = _World(fabric, gangs, policy)
    world.play(progress)
    return world.run


class _World:
    def __init__(self, fabric: Fabric, gangs: list[Gang], policy: Policy) -> None:
        self.gangs = gangs
        self.leaf_of: dict[str, int] = {}
        self.state = ClusterState(policy)
        self.run = Run(intervals=[(0, 0.0, 0.0, False)] * len(gangs), arrivals=[each.arrived for each in gangs])
        self.events: EventQueue[tuple[str, int]] = EventQueue()
        self.due = math.inf
        self.started = 0
        self._furnish(fabric)

    def _furnish(self, fabric: Fabric) -> None:
        """Nodes with the labels of the levels, the pool that names these, and queues."""
        state = self.state
        levels = tuple(NetworkLevel(name.lower(), f"net/{name.lower()}") for name in LEVELS)
        state.upsert_pool(NodePool("fabric", levels=levels))
        number = 0
        for leaf, (size, block) in enumerate(zip(fabric.sizes, fabric.blocks, strict=True)):
            labels = {levels[0].label: block, levels[1].label: f"leaf-{leaf:03d}"}
            for _ in range(size):
                name = f"node-{number:05d}"
                number += 1
                self.leaf_of[name] = leaf
                state.upsert_node(Node(name, {_GPU: GPUS, "pods": 110}, labels))
        whole = sum(QUEUES.values())
        for name, tenths in QUEUES.items():
            quota = fabric.hosts * GPUS * 1000 * tenths // whole
            state.upsert_queue(Queue(name, resources=(QueueResource(_GPU, quota=quota),)))

    def play(self, progress: Callable[[], None] | None) -> None:
        """From the first arrival to the last end."""
        events = self.events
        for index, gang in enumerate(self.gangs):
            events.push(gang.arrived * UNIT, ("arrives", index))
        ended = 0
        while (now := events.next_time) is not None:
            while events.next_time == now:
                what, index = events.pop()
                if what == "arrives":
                    self._submit(index)
                    if progress is not None and index % 1000 == 0:
                        progress()
                elif what == "ends":
                    self._end(index)
                    ended += 1
                else:
                    self.due = math.inf
            self._decide(now)
        invariants.check(self.state)
        if ended != len(self.gangs):
            raise ValueError(f"{len(self.gangs) - ended} of {len(self.gangs)} gangs never started")

    def _submit(self, index: int) -> None:
        gang, now = self.gangs[index], self.events.now
        name = f"gang-{index:05d}"
        closeness = Closeness(preferred=LEVELS[1].lower())
        self.state.upsert_group(Group(_NAMESPACE, name, gang.nodes, queue=gang.queue, created=now, closeness=closeness))
        for member in range(gang.nodes):
            self.state.upsert_pod(
                Pod(
                    f"{index}/{member}",
                    _NAMESPACE,
                    f"{name}-{member}",
                    PodSpec(((_GPU, GPUS), ("pods", 1)), gpus=GPUS),
                    queue=gang.queue,
                    group=name,
                    created=now,
                )
            )

    def _end(self, index: int) -> None:
        gang = self.gangs[index]
        for member in range(gang.nodes):
            self.state.remove_pod(f"{index}/{member}")
        self.state.remove_group(f"{_NAMESPACE}/gang-{index:05d}")

    def _decide(self, now: float) -> None:
        for transaction in schedule(self.state, now):
            self._apply(transaction)
        due = self.state.next_due
        if due is not None and due < self.due:
            self.due = max(due, now)
            self.events.push(self.due, ("pass", 0))

    def _apply(self, transaction: Transaction) -> None:
        if isinstance(transaction, Preempt):
            raise ValueError(f"the pass evicts {transaction.victims[0].pod.key}")  # noqa: TRY004
        if not isinstance(transaction, Place):
            return
        index = int(transaction.bindings[0].pod.uid.partition("/")[0])
        gang, now = self.gangs[index], self.events.now / UNIT
        leaves = {self.leaf_of[binding.node] for binding in transaction.bindings}
        if len(transaction.bindings) != gang.nodes:
            raise ValueError(f"gang {index} starts with {len(transaction.bindings)} of {gang.nodes} members")
        for binding in transaction.bindings:
            self.state.pods.bound(binding.pod.uid)
        self.run.intervals[index] = (gang.nodes, now, now + gang.runs, gang.counted)
        self.events.push((now + gang.runs) * UNIT, ("ends", index))
        if gang.counted:
            self.run.over_ideal.append(len(leaves) / math.ceil(gang.nodes / LEAF))
            self.run.by_size.setdefault(gang.nodes, []).append(len(leaves))
            self.run.waits.append(now - gang.arrived)

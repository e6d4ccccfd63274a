"""A snapshot of queues and pools in numbers, for the metrics: taken between passes, read by scrapes.

It is taken on the core's thread, at most every few seconds, from what is counted anyway; the one thing that visits every
waiting job is the longest wait. A scrape reads the latest snapshot and never waits for the core.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from fairlead.core.model.charges import labelled, split, units_of
from fairlead.core.model.selectors import matches
from fairlead.core.model.units import WHOLE
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.state.cluster import ClusterState

SNAPSHOT_ACTION = "snapshot"
"""Label `action` of the time that snapshots take, and the site of their faults."""
NO_POOL = "none"
"""Where nodes are counted that are in no pool."""


class QueueSnapshot(msgspec.Struct, frozen=True):
    """One queue. allocated, quota, limit, fair_share: by resource, in the resource's own unit, descendants' included.

    jobs, pods, gpus: that wait in it itself. oldest: when the job was made that has waited longest; deadline: when the first
    wait is longer than its class allows; seconds since the epoch, None where there is none. usage: decayed device-seconds.
    """

    name: str
    allocated: dict[str, float]
    quota: dict[str, float]
    limit: dict[str, float]
    fair_share: dict[str, float]
    jobs: int
    pods: int
    gpus: float
    oldest: float | None
    deadline: float | None
    usage: float


class PoolSnapshot(msgspec.Struct, frozen=True):
    """One pool. gpus: devices of its nodes; allocated: of them, in parts, too; fragmented: free on nodes that are used in part.

    idle: nodes with devices of which none is used.
    """

    name: str
    nodes: int
    idle: int
    gpus: float
    allocated: float
    fragmented: float


class SharedSnapshot(msgspec.Struct, frozen=True):
    """What the nodes of a pool share: how much is declared, and how much pods take."""

    pool: str
    name: str
    declared: int
    used: int


class MetricsSnapshot(msgspec.Struct, frozen=True):
    """Everything at one time. reasons: code -> jobs that wait for it, as it was reported last.

    outside: resource -> devices that pods without a queue hold. not_starting: gangs that have, or had, their nodes and did not
    start.
    """

    at: float
    queues: tuple[QueueSnapshot, ...] = ()
    pools: tuple[PoolSnapshot, ...] = ()
    reasons: dict[str, int] = {}
    outside: dict[str, float] = {}
    not_starting: int = 0
    shared: tuple[SharedSnapshot, ...] = ()


class MetricsSnapshots:
    """The latest snapshot, for the metrics where they are served. rest: seconds between two; 0: none are taken."""

    def __init__(self) -> None:
        self.latest = MetricsSnapshot(0.0)
        self.rest = 0.0
        self._due = 0.0
        self._stale = False

    @property
    def next_due(self) -> float | None:
        """When one more is taken, after the last change."""
        return self._due if self._stale else None

    def renew(self, state: ClusterState, now: float) -> bool:
        """The state may have changed. Whether a snapshot was taken: not too often."""
        if not self.rest:
            return False
        self._stale = now < self._due
        if self._stale:
            return False
        self._due = now + self.rest
        self.latest = take(state, now)
        return True


def take(state: ClusterState, now: float) -> MetricsSnapshot:
    """The state as it is."""
    queues = state.queues
    reasons: Counter[str] = Counter()
    shown = tuple(_queue(state, node, now, reasons) for _, node in sorted(queues.queues.items()) if node.exists or node.used)
    held = state.belonging.outside()
    outside = {name: held.get(name, 0) / WHOLE for name in state.nodes.gpus_known}
    return MetricsSnapshot(now, shown, tuple(_pools(state)), dict(reasons), outside, state.starts.failing, _shared(state))


def _shared(state: ClusterState) -> tuple[SharedSnapshot, ...]:
    shared = state.nodes.shared
    return tuple(
        SharedSnapshot(pool, name, amount, shared.used.get((pool, name), 0))
        for pool, declared in sorted(shared.declared.items())
        for name, amount in declared.items()
    )


def _queue(state: ClusterState, node: QueueNode, now: float, reasons: Counter[str]) -> QueueSnapshot:
    jobs, milli, oldest, deadline = 0, 0, None, None
    for pending_class in node.pending_classes.values():
        if not pending_class.waiting:
            continue
        jobs += pending_class.waiting
        milli += state.queues.waiting.devices_waited_for(pending_class)
        reasons[str(pending_class.unschedulable.code) if pending_class.unschedulable is not None else "Waiting"] += (
            pending_class.waiting
        )
        for unit in pending_class.units:
            first = unit.tasks[0]
            created = unit.created
            oldest = created if oldest is None else min(oldest, created)
            longest = state.services.of(first).max_wait
            if longest:
                late = created + longest
                deadline = late if deadline is None else min(deadline, late)
    return QueueSnapshot(
        node.name,
        _plain(node.used),
        _plain(node.quota),
        _plain(node.limits),
        _plain(state.queues.fair.share.get(node.name, {})),
        jobs,
        node.pods_waiting,
        milli / WHOLE,
        oldest,
        deadline,
        _usage(state, node.name, now),
    )


def _usage(state: ClusterState, queue: str, now: float) -> float:
    record = state.queues.fair.usage.checkpoint(queue, now)
    return record.value if record is not None else 0.0


def _plain(amounts: dict[str, int]) -> dict[str, float]:
    """From base units to the resource's own: cores, bytes, devices."""
    return {key: amount / (1000 if split(key)[0] == "cpu" else units_of(key)) for key, amount in amounts.items() if amount}


def _pools(state: ClusterState) -> list[PoolSnapshot]:
    nodes, given, parts = state.nodes, state.queues.tree.pools.given, state.queues.tree.parts
    rows_of: dict[str, list[int]] = {pool: [] for pool in given}
    for row in nodes.rows.values():
        node = nodes.objects[row]
        labels = node.labels if node is not None else {}
        mine = [pool for pool, selector in given.items() if matches(selector, labels)]
        if not mine:
            mine = [labelled(labels) or NO_POOL]
        for pool in mine:
            rows_of.setdefault(pool, []).append(row)
    free = np.array([sum(each) for each in nodes.devices.states], np.int64)
    whole = np.array([len(each) * WHOLE for each in nodes.devices.states], np.int64)
    found = []
    for pool, rows in sorted(rows_of.items()):
        kinds = nodes.device[np.array(rows, np.int64)]
        total, left = whole[kinds], free[kinds]
        if parts.varies or nodes.partitions:
            for at, row in enumerate(rows):
                if parts.has(row):
                    offered, used = parts.on(row)
                    total[at], left[at] = offered, offered - used
        if nodes.claimed.any:
            for at, row in enumerate(rows):
                more, used = nodes.claimed.more(row), nodes.claimed.used(row).milli
                total[at], left[at] = total[at] + more, left[at] + more - used
        partly = (left > 0) & (left < total)
        found.append(
            PoolSnapshot(
                pool,
                len(rows),
                int(((left == total) & (total > 0)).sum()),
                float(total.sum()) / WHOLE,
                float((total - left).sum()) / WHOLE,
                float(left[partly].sum()) / WHOLE,
            )
        )
    return found

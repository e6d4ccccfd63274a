"""The gauges of a scheduler: its latest snapshot as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.core.model.charges import split
from fairlead.observability.metrics import Values
from fairlead.scheduler.metrics_snapshot import MetricsSnapshot, PoolSnapshot, QueueSnapshot

_HELD: dict[str, Callable[[QueueSnapshot], dict[str, float]]] = {
    "fairlead_queue_allocated": lambda queue: queue.allocated,
    "fairlead_queue_quota": lambda queue: queue.quota,
    "fairlead_queue_limit": lambda queue: queue.limit,
    "fairlead_queue_fair_share": lambda queue: queue.fair_share,
}
_OF_QUEUE: dict[str, Callable[[QueueSnapshot], float | None]] = {
    "fairlead_queue_usage_device_seconds": lambda queue: queue.usage,
    "fairlead_queue_pending_jobs": lambda queue: queue.jobs,
    "fairlead_queue_pending_pods": lambda queue: queue.pods,
    "fairlead_queue_pending_gpus": lambda queue: queue.gpus,
    "fairlead_queue_oldest_pending_timestamp_seconds": lambda queue: queue.oldest,
    "fairlead_queue_next_deadline_timestamp_seconds": lambda queue: queue.deadline,
}
_OF_POOL: dict[str, Callable[[PoolSnapshot], float]] = {
    "fairlead_pool_nodes": lambda pool: pool.nodes,
    "fairlead_pool_nodes_idle": lambda pool: pool.idle,
    "fairlead_pool_gpus": lambda pool: pool.gpus,
    "fairlead_pool_gpus_allocated": lambda pool: pool.allocated,
    "fairlead_pool_gpus_fragmented": lambda pool: pool.fragmented,
}


def of_snapshot(snapshot: MetricsSnapshot) -> Values:
    """The values of a snapshot. Queues that have nothing of a kind have no value of it: no job waits, no limit is set."""
    for name, held in _HELD.items():
        yield name, {(queue.name, *split(key)): amount for queue in snapshot.queues for key, amount in held(queue).items()}
    for name, read in _OF_QUEUE.items():
        yield name, dict(_given((queue.name, read(queue)) for queue in snapshot.queues))
    for name, count in _OF_POOL.items():
        yield name, {(pool.name,): count(pool) for pool in snapshot.pools}
    yield "fairlead_pool_shared_resource", {(each.pool, each.name): float(each.declared) for each in snapshot.shared}
    yield "fairlead_pool_shared_resource_used", {(each.pool, each.name): float(each.used) for each in snapshot.shared}
    yield "fairlead_gpus_outside_queues", {(name,): held for name, held in snapshot.outside.items()}
    yield "fairlead_gangs_not_starting", float(snapshot.not_starting)
    yield "fairlead_pending_jobs", {(code,): float(count) for code, count in snapshot.reasons.items()}


def _given(values: Iterable[tuple[str, float | None]]) -> Iterable[tuple[tuple[str, ...], float]]:
    return (((name,), value) for name, value in values if value is not None)

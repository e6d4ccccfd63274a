"""Queues, a row each: quota, limit, fair share, what they hold, how much runs and waits."""

from __future__ import annotations

from fairlead.core.model.charges import units_of
from fairlead.core.model.queues import QueueResource
from fairlead.core.pods.tasks import TaskState
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.overview.rows import Amount, Share, Shares


def shares(state: ClusterState) -> Shares:
    """Every queue, by name."""
    running: dict[str, int] = {}
    pending: dict[str, int] = {}
    for task in state.tasks.values():
        if task.charged and not task.pod.spare:
            count = running if task.state is TaskState.BOUND else pending
            count[task.queue] = count.get(task.queue, 0) + 1
    found = [
        Share(
            name,
            node.policy.parent,
            node.policy.priority,
            state.queues.fair.dominant_share(node),
            running.get(name, 0),
            pending.get(name, 0),
            _amounts(node, state.queues.fair.share.get(name, {})),
        )
        for name, node in sorted(state.queues.queues.items())
    ]
    outside = {key: held / units_of(key) for key, held in sorted(state.belonging.outside().items())}
    return Shares(found, outside, next(iter(state.nodes.gpus_known), "cpu"))


def _amounts(node: QueueNode, fair: dict[str, int]) -> list[Amount]:
    quotas, limits = node.quota, node.limits
    return [
        Amount(
            each,
            node.used.get(each, 0) / units_of(each),
            quotas[each] / units_of(each) if each in quotas else None,
            limits[each] / units_of(each) if each in limits else None,
            _weight(node.named.get(each)),
            fair[each] / units_of(each) if each in fair else None,
            node.foreign.get(each, 0) / units_of(each),
        )
        for each in sorted({*quotas, *limits, *fair, *(key for key, value in node.used.items() if value)})
    ]


def _weight(given: QueueResource | None) -> int | str | None:
    """As it was written."""
    if given is None or given.weight_percent is None:
        return given.weight if given is not None else None
    return f"{given.weight_percent / 1000:g}%"

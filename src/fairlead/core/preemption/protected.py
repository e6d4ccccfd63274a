"""Whom pods of profile `kubernetes` may not take, whatever their priority: what its queue is guaranteed, and
non-preemptible pods.

Upstream evicts any pod of lower priority. Pods of profile `ai` keep their places against that if their class has mode `Never`, or
if their queue, or one above it, holds no more than its quota of what they ask for: of devices, where they ask for any.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fairlead.api.names import AI_PROFILE
from fairlead.core.model.charges import Charge, split
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.default_preemption import by_importance
from fairlead.core.queues.queue_node import QueueNode

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState

Taken = dict[tuple[str, str], int]
"""(queue, resource) -> base units that are preempted already."""


def unprotected(state: ClusterState, tasks: Iterable[Task]) -> list[Task]:
    """Those of tasks on one row that may be preempted together: of a queue over quota the least important, until it is within."""
    free: list[Task] = []
    bound: list[Task] = []
    for task in tasks:
        if not task.pod.ours and task.charged:
            continue  # a queue pays for it: the scheduler that placed it decides when it ends
        if task.pod.profile != AI_PROFILE or not task.pod.ours:
            free.append(task)
        elif state.services.of(task).mode != "Never":
            bound.append(task)
    taken: Taken = {}
    for task in reversed(by_importance(bound)):
        path = state.queues.queues[task.queue].path
        charge = state.queues.tree.charge_at(task.shape, task.row)
        if any(_within(state, node, task, charge, taken) for node in path):
            continue
        for node in path:
            for resource, amount in charge if node.quota else ():
                taken[node.name, resource] = taken.get((node.name, resource), 0) + amount
        free.append(task)
    return free


def may_stay(state: ClusterState, queue: QueueNode, demand: Charge, takers: QueueNode) -> bool:
    """Whether a queue, or one above it, holds no more than its quota of what is asked for with so much more.

    takers: the queue of those who would take it. What comes in their place leaves those above both as they are.
    """
    devices = any(split(name)[0] in state.nodes.gpu_resources for name, _ in demand)

    def more(node: QueueNode) -> list[tuple[str, int]]:
        return [(name, 0 if node in takers.path else amount) for name, amount in demand]

    return any(_holds_within(state, node, more(node), devices=devices) for node in queue.path)


def _within(state: ClusterState, node: QueueNode, task: Task, charge: Charge, taken: Taken) -> bool:
    """Whether a queue holds no more than its quota of what a task asks for, without what is preempted already."""
    if not node.quota:
        return False
    less = [(name, -taken.get((node.name, name), 0)) for name, _ in charge]
    return _holds_within(state, node, less, devices=bool(task.shape.gpus and state.nodes.gpu_resources))


def _holds_within(state: ClusterState, node: QueueNode, more: Sequence[tuple[str, int]], *, devices: bool) -> bool:
    """Whether a queue holds no more than its quota with so much more. devices: only these count."""
    counts = [(name, amount) for name, amount in more if node.quota.get(name)]
    if devices:
        counts = [(name, amount) for name, amount in counts if split(name)[0] in state.nodes.gpu_resources]
    return bool(counts) and all(node.used.get(name, 0) + amount <= node.quota[name] for name, amount in counts)


def stamp(state: ClusterState) -> tuple[object, ...]:
    """Differs when others may be protected."""
    never = frozenset(name for name, service in state.services.classes.items() if service.mode == "Never")
    beyond = tuple(
        (name, resource)
        for name, node in state.queues.queues.items()
        for resource, quota in node.quota.items()
        if node.used.get(resource, 0) > quota
    )
    return never, beyond, state.belonging.payers

"""Whom pods of profile `kubernetes` may not take, whatever their priority: what its queue is guaranteed, and
non-preemptible pods.

Upstream evicts any pod of lower priority. Pods of profile `ai` keep their places against that if their class has mode `Never`, or
if their queue, or one above it, holds no more than its quota of what they ask for: of devices, where they ask for any.
"""

from __future__ import annotations

from collections.abc import Iterable
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
    asked = [name for name, _ in demand]
    devices = [name for name in asked if split(name)[0] in state.nodes.gpu_resources]
    for node in queue.path:
        more = [(name, amount) for name, amount in demand if node.quota.get(name) and name in (devices or asked)]
        beside = node not in takers.path
        if more and all(node.used.get(name, 0) + beside * amount <= node.quota[name] for name, amount in more):
            return True
    return False


def _within(state: ClusterState, node: QueueNode, task: Task, charge: Charge, taken: Taken) -> bool:
    """Whether a queue holds no more than its quota of what a task asks for, without what is preempted already."""
    if not node.quota:
        return False
    devices = state.nodes.gpu_resources if task.shape.gpus else ()
    names = [name for name, _ in charge if node.quota.get(name) and (not devices or split(name)[0] in devices)]
    return bool(names) and all(node.used.get(name, 0) - taken.get((node.name, name), 0) <= node.quota[name] for name in names)


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

"""Defragment: from time to time, nodes that hold little are emptied into fragments that are free elsewhere.

No job waits for it, so it must be configured (`Policy.defragment`): how often, in which hours, how many pods at most, and
only while more than a part of what is free is fragmented. Nodes with the fewest devices in use give first, so that the
fewest pods make the most whole nodes; each pod has a new place before it goes, on a node that is in use anyway, and a node
is emptied of all its device pods or left alone. Devices of claims: `defragment_devices`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairlead.core.actions.defragment_devices import Emptied, empty_devices
from fairlead.core.allocation import closed_to
from fairlead.core.model.arrays import Ints
from fairlead.core.model.causes import Cause
from fairlead.core.model.policy import Defragment
from fairlead.core.model.transactions import Binding, Preempt, Transaction
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Placeholder, Task
from fairlead.core.preemption.removal import Removal
from fairlead.core.state.cluster import ClusterState

_DAY = 86_400.0


def next_run(policy: Defragment, now: float) -> float:
    """When the next run is due, seconds since the epoch, if the last was now."""
    at = now + policy.every
    if policy.begins == policy.ends:
        return at
    lasts = (policy.ends - policy.begins) % _DAY
    return at if (at - policy.begins) % _DAY < lasts else at + (policy.begins - at) % _DAY


def defragment(state: ClusterState, policy: Defragment) -> Iterator[Emptied]:
    """Empty nodes while the budget lasts; the placeholders are in place when a node is yielded, its pods still on it."""
    nodes = state.nodes
    left = policy.moves
    given: set[int] = set()
    for resource in nodes.gpu_resources:
        column = nodes.resources.get(resource)
        if column is None:
            continue
        count = nodes.count
        free: Ints = np.maximum(nodes.free[column][:count], 0)
        alloc = nodes.alloc[column][:count]
        usable = nodes.open[:count] & (alloc > 0)
        fragmented = usable & (free > 0) & (free < alloc)
        total = int(free[usable].sum())
        if not total or int(free[fragmented].sum()) < policy.threshold * total:
            continue
        donors = sorted((int(alloc[row] - free[row]), nodes.names[row], row) for row in np.flatnonzero(fragmented).tolist())
        for _, _, row in donors:
            tasks = [task for task in nodes.pods[row].values() if task.shape.gpus]
            if len(tasks) > left or not tasks or row in given:
                continue
            emptied = _empty(state, row, tasks, column, given)
            if emptied is not None:
                left -= len(tasks)
                given.add(row)
                yield emptied
    yield from empty_devices(state, policy, left)


def _empty(state: ClusterState, row: int, tasks: list[Task], column: int, given: set[int]) -> Emptied | None:
    moves = state.moves
    if any(task.shape.gpu_milli < WHOLE or task.pod.uid in state.in_flight.kept or not moves.is_movable(task) for task in tasks):
        return None
    mark, removal = state.log.mark(), Removal(state)
    removal.take(tasks)
    placeholders: dict[str, Placeholder] = {}
    for task in sorted(tasks, key=lambda each: (-each.shape.gpus, each.pod.key)):
        target = _target(state, task, column, {row, *given})
        if target < 0:
            state.log.rollback(mark)
            for made in placeholders.values():
                state.shapes.release(made.ranking)
            return None
        made = placeholders[task.pod.uid] = state.moves.placeholder(task)
        state.placement.place(made, target)
    removal.put_back(tasks)
    state.log.commit()
    return Emptied(row, tasks, placeholders)


def _target(state: ClusterState, task: Task, column: int, not_these: set[int]) -> int:
    """The node in use with the smallest piece that the pod fits; -1 if there is none."""
    nodes = state.nodes
    fits = task.ranking.keys() >= 0
    fits &= nodes.free[column][: nodes.count] < nodes.alloc[column][: nodes.count]
    fits[list(not_these)] = False
    closed = closed_to(state, task)
    if closed is not None:
        fits &= ~closed
    rows = np.flatnonzero(fits)
    if not len(rows):
        return -1
    free = nodes.free[column][rows]
    least = rows[free == free.min()]
    return int(least[nodes.name_ranks.column[least].argmax()])


def empty_nodes(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Now and then nodes that hold little are emptied, where that is asked for."""
    policy, moves = state.policy.defragment, state.moves
    if policy is None:
        return
    if moves.defragments_at is None:
        moves.defragments_at = next_run(policy, now)
    if now < moves.defragments_at:
        return
    moves.defragments_at = next_run(policy, now)
    found = defragment(state, policy)
    while True:
        state.log.mark()
        emptied = next(found, None)
        if emptied is None:
            state.log.commit()
            return
        for task in emptied.moved:
            moves.keep(task, emptied.placeholders[task.pod.uid], now)
        made = _emptied(state, emptied)
        state.log.commit()
        yield made


def _emptied(state: ClusterState, emptied: Emptied) -> Preempt:
    names, moved = state.nodes.names, tuple(sorted(task.pod.uid for task in emptied.moved))
    node = names[emptied.row]
    return Preempt(
        tuple(Binding(task.ref, node) for task in emptied.moved),
        (),
        moved=moved,
        moved_to=tuple(names[emptied.placeholders[uid].row] for uid in moved),
        why=Cause(emptied=node, gpu=emptied.gpu),
        graces=state.departures.graces(emptied.moved),
    )

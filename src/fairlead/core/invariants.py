"""What must hold after every step, walked over the whole state; slow, for tests and the ends of runs."""

from __future__ import annotations

from collections import Counter

from fairlead.core.model import WHOLE
from fairlead.core.state import ClusterState
from fairlead.core.tasks import PLACED, TaskState


def violations(state: ClusterState) -> list[str]:
    """Everything that is wrong, in words; empty when all invariants hold."""
    return [*_accounts(state), *_devices(state), *_queues(state), *_gangs(state), *_lost(state)]


def check(state: ClusterState) -> None:
    """Raise `AssertionError` naming every invariant that is broken."""
    wrong = violations(state)
    if wrong:
        raise AssertionError("; ".join(wrong[:20]))


def _accounts(state: ClusterState) -> list[str]:
    """No resource is given out twice: free = allocatable - what the pods there ask for."""
    wrong = []
    nodes = state.nodes
    for name, row in nodes.rows.items():
        used: Counter[int] = Counter()
        placed_here = False
        for task in nodes.pods[row].values():
            placed_here |= task.state in (TaskState.ASSUMED, TaskState.HELD)
            if task.row != row:
                wrong.append(f"{task!r} is listed on {name} but says it is on row {task.row}")
            for column, amount in task.shape.demand:
                used[column] += amount
        for resource, column in nodes.resources.items():
            free = nodes.free[column].item(row)
            if free != nodes.alloc[column].item(row) - used[column]:
                wrong.append(f"{name}: free {resource} is {free}, pods there use {used[column]}")
    return wrong


def over_allocated(state: ClusterState) -> list[str]:
    """Nodes that hold more than they have; possible only when others bind there too."""
    nodes = state.nodes
    return [
        f"{name}: {resource} is over-allocated by {-nodes.free[column].item(row)}"
        for name, row in nodes.rows.items()
        for resource, column in nodes.resources.items()
        if nodes.free[column].item(row) < 0
    ]


def _devices(state: ClusterState) -> list[str]:
    """No device is given out twice."""
    wrong = []
    nodes = state.nodes
    for name, row in nodes.rows.items():
        free = nodes.devices.states[nodes.device.item(row)]
        used = [0] * len(free)
        for task in nodes.pods[row].values():
            if len(set(task.devices)) != len(task.devices):
                wrong.append(f"{task!r} holds a device twice")
            for device in task.devices:
                used[device] += task.shape.gpu_milli
        if any(left != WHOLE - taken for left, taken in zip(free, used, strict=True)):
            wrong.append(f"{name}: devices have {free} free while pods use {used}")
    return wrong


def _queues(state: ClusterState) -> list[str]:
    """Each queue holds what its pods and its descendants' pods ask for."""
    held: dict[str, Counter[str]] = {name: Counter() for name in state.queues.queues}
    for task in state.tasks.values():
        if task.row >= 0 and task.pod.ours:
            for node in state.queues.queues[task.queue].path:
                for resource, amount in task.shape.charge:
                    held[node.name][resource] += amount
    wrong = []
    for name, node in state.queues.queues.items():
        wrong += [
            f"queue {name} is charged {node.used.get(resource, 0)} {resource}, its pods hold {held[name][resource]}"
            for resource in {*held[name], *node.used}
            if node.used.get(resource, 0) != held[name][resource]
        ]
    return wrong


def _gangs(state: ClusterState) -> list[str]:
    """Of each gang at least the minimum is placed, or nothing, unless a fault is being repaired."""
    wrong = []
    for key, gang in state.gangs.items():
        placed = len(gang.placed())
        if gang.group is not None and 0 < placed < gang.min_member and gang.fault_at is None:
            wrong.append(f"gang {key} has {placed} of {gang.min_member} members placed")
    return wrong


def _lost(state: ClusterState) -> list[str]:
    """Every pod is placed, waits in a queue or a gang, or has a reason why it cannot."""
    wrong = []
    for task in state.tasks.values():
        if task.state in PLACED and task.row < 0 and task.pod.node in state.nodes.rows:
            wrong.append(f"{task!r} has a place but no row")
        if task.state is TaskState.WAITING and task.row >= 0:
            wrong.append(f"{task!r} waits and has a row")
        if task.state is TaskState.WAITING and task.unit is None and task.gang is None and not task.not_before:
            wrong.append(f"{task!r} waits in no queue")
    return wrong

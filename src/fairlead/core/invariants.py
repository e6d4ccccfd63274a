"""What must hold after every step, walked over the whole state; slow, for tests and the ends of runs."""

from __future__ import annotations

from collections import Counter

import numpy as np

from fairlead.core.meters import Meter
from fairlead.core.model import WHOLE
from fairlead.core.state import ClusterState
from fairlead.core.tasks import PLACED, TaskState
from fairlead.core.undo import UndoLog


def violations(state: ClusterState) -> list[str]:
    """Everything that is wrong, in words; empty when all invariants hold."""
    return [*_accounts(state), *_surroundings(state), *_devices(state), *_queues(state), *_gangs(state), *_lost(state)]


def check(state: ClusterState) -> None:
    """Raise `AssertionError` naming every invariant that is broken."""
    wrong = violations(state)
    if wrong:
        raise AssertionError("; ".join(wrong[:20]))


def _accounts(state: ClusterState) -> list[str]:
    """No resource is given out twice: free = allocatable - what the pods there ask for."""
    wrong = []
    nodes = state.nodes
    used = np.zeros((len(nodes.free), nodes.capacity), np.int64)
    for name, row in nodes.rows.items():
        for task in nodes.pods[row].values():
            if task.row != row:
                wrong.append(f"{task!r} is listed on {name} but says it is on row {task.row}")
            for column, amount in task.shape.demand:
                used[column, row] += amount
    rows = np.fromiter(nodes.rows.values(), np.int64, len(nodes.rows))
    for resource, column in nodes.resources.items():
        off = nodes.free[column][rows] != nodes.alloc[column][rows] - used[column][rows]
        wrong += [
            f"{nodes.names[row]}: free {resource} is {nodes.free[column].item(row)}, pods there use {used[column].item(row)}"
            for row in rows[off].tolist()
        ]
    return wrong


def _surroundings(state: ClusterState) -> list[str]:
    """What pods mean to others is counted where they are, or linger."""
    if not state.pairs.active:
        return []
    wanted: dict[int, Counter[int]] = {}
    seen = [(task, row) for row in state.nodes.rows.values() for task in state.nodes.pods[row].values()]
    seen += [(state.tasks[uid], row) for uid, row in state.lingering.items()]
    sets = {}
    held: dict[int, Counter[int]] = {}
    terms = {}
    for task, row in seen:
        for term, _ in task.shape.held if task.shape.labels is not None else ():
            terms[id(term)] = term
            held.setdefault(id(term), Counter())[row] += 1
        if task.shape.labels is not None:
            sets[id(task.shape.labels)] = task.shape.labels
            wanted.setdefault(id(task.shape.labels), Counter())[row] += 1
    wrong = state.pairs.miscounted()
    for number, term in terms.items():
        if {row: count for row, count in term.rows.items() if count} != held[number]:
            wrong.append(f"pods that hold {term.term} are counted {term.rows}, not {held[number]}")
    for number, labels in sets.items():
        counted = Counter(labels.rows)
        counted.update(labels.leaving)
        if +counted != wanted[number]:
            wrong.append(f"pods with labels {labels.labels} of {labels.namespace} are counted {+counted}, not {wanted[number]}")
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
            devices = task.devices
            if len(devices) > 1 and len(set(devices)) != len(devices):
                wrong.append(f"{task!r} holds a device twice")
            for device in devices:
                used[device] += task.shape.gpu_milli
        if any(used) or free.count(WHOLE) != len(free):
            expected = tuple([WHOLE - taken for taken in used])
            if free != expected:
                wrong.append(f"{name}: devices have {free} free while pods use {used}")
    return wrong


def _queues(state: ClusterState) -> list[str]:
    """Each queue holds what its pods and its descendants' pods ask for."""
    held: dict[str, Counter[str]] = {name: Counter() for name in state.queues.queues}
    wrong = []
    stand_ins = [
        task for row in state.nodes.rows.values() for uid, task in state.nodes.pods[row].items() if uid not in state.tasks
    ]
    strays = {uid for tasks in state.strays.values() for uid in tasks}
    for task in [*state.tasks.values(), *stand_ins]:
        if (task.row >= 0 or task.pod.uid in strays) and task.pod.ours:
            for node in state.queues.queues[task.queue].path:
                for resource, amount in state.queues.charge_at(task.shape, task.row):
                    held[node.name][resource] += amount
    for uid, debt in state.queues.owed.items():
        if state.tasks[uid].state is not TaskState.EVICTING:
            wrong.append(f"queue {debt.queue} is charged for {uid} as for a victim, but it is none")
        above = state.queues.queues[debt.beneficiary].path
        for node in state.queues.queues[debt.queue].path:
            if node not in above:
                held[node.name].update(dict(debt.charge))
    for name, node in state.queues.queues.items():
        wrong += [
            f"queue {name} counts {room.waiting} units of {room.composition}, {alive} wait"
            for room in node.rooms.values()
            if room.waiting != (alive := sum(1 for _ in room.units))
        ]
        wrong += [
            f"queue {name} is charged {node.used.get(resource, 0)} {resource}, its pods hold {held[name][resource]}"
            for resource in {*held[name], *node.used}
            if node.used.get(resource, 0) != held[name][resource]
        ]
    return wrong + _meters(state)


def _meters(state: ClusterState) -> list[str]:
    """What users hold, and which jobs run, is counted as it is."""
    wrong = []
    for name, node in state.queues.queues.items():
        if node.meter is None:
            continue
        fresh = Meter(UndoLog(), node.policy)
        for each in state.queues.queues.values():
            for task in each.placed.values() if node in each.path else ():
                fresh.charge(task, task.shape.charge, 1)
        for debt in state.queues.owed.values():
            if node in state.queues.queues[debt.queue].path:
                fresh.charge(debt.victim, debt.charge, 1)
        for what in ("held", "pods", "running"):
            kept = {key: count for key, count in getattr(node.meter, what).items() if count}
            found = {key: count for key, count in getattr(fresh, what).items() if count}
            if kept != found:
                wrong.append(f"queue {name} counts {what} as {kept}, not {found}")
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

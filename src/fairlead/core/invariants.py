"""What must hold after every step, walked over the whole state; slow, for tests and the ends of runs."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.api.pressure import KINDS
from fairlead.core.model.undo import UndoLog
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.tenants import Tenants
from fairlead.core.pods.shapes import Shape
from fairlead.core.pods.tasks import PLACED, Placeholder, Task, TaskState
from fairlead.core.queues.meters import Meter
from fairlead.core.queues.queue_node import PendingClass
from fairlead.core.state.cluster import ClusterState

Placed = dict[int, list[Task]]
"""The pods that are listed on each row."""


def violations(state: ClusterState) -> list[str]:
    """Everything that is wrong, in words; empty when all invariants hold."""
    return Walk().violations(state)


_PLACE = attrgetter("row", "shape", "devices")


class _Place(NamedTuple):
    """Who was where when a state was walked."""

    placed: Placed
    sizes: list[int]
    tasks: list[Task]
    held: list[tuple[int, Shape, tuple[int, ...]]]
    columns: npt.NDArray[np.int64]
    names: tuple[tuple[str, int], ...]


class Walk:
    """Walks a state again and again. What has not changed since it was found right is not checked again."""

    def __init__(self) -> None:
        self._last: _Place | None = None
        self._around: tuple[int, bool, int] | None = None
        self._charges: tuple[object, ...] | None = None

    def violations(self, state: ClusterState) -> list[str]:
        """Everything that is wrong, in words; empty when all invariants hold."""
        nodes = state.nodes
        placed = {row: list(nodes.pods[row].values()) for row in nodes.rows.values()}
        changed = self._changed(state, placed)
        around = state.pairs.stamp, state.pairs.active, len(state.in_flight.lingering)
        wrong = _accounts(state, changed) + _devices(state, changed)
        if changed or around != self._around:
            wrong += _surroundings(state, placed) + _placeholders(state, placed) + _seats(state, placed)
            wrong += _numa(state, placed)
            wrong += _neighbours(state, placed)
        self._around = around
        charges = _charges(state)
        if changed or charges != self._charges:
            wrong += _queues(state, placed) + _guarantees(state)
        self._charges = charges
        if wrong:
            self._last = self._around = self._charges = None  # all of it is checked again
        listed = [*_pending_classes(state), *_gangs(state), *_owned(state), *_waits(state), *_lost(state), *_listed(state)]
        if state.log.depth:
            wrong.append(f"a trial was not ended: the undo log is {state.log.depth} deep")
        return [*wrong, *_free(state), *_payers(state), *listed, *_claims(state)]

    def _changed(self, state: ClusterState, placed: Placed) -> Placed:
        """The rows on which pods, amounts or devices are not as they were."""
        nodes = state.nodes
        tasks = [task for there in placed.values() for task in there]
        held, sizes = list(map(_PLACE, tasks)), list(map(len, placed.values()))
        amounts = [
            part[: nodes.count] for column in nodes.resources.values() for part in (nodes.free[column], nodes.alloc[column])
        ]
        columns = np.array([*amounts, nodes.device[: nodes.count]], dtype=np.int64)
        last, here = self._last, _Place(placed, sizes, tasks, held, columns, tuple(nodes.rows.items()))
        self._last = here
        if last is None or last.columns.shape != columns.shape or last.names != here.names:
            return placed
        moved = set(np.flatnonzero((columns != last.columns).any(axis=0)).tolist())
        if not moved and last.sizes == sizes and last.tasks == tasks and last.held == held:
            return {}
        changed = {}
        at = was_at = 0
        for row, there in placed.items():
            end, was_end = at + len(there), was_at + len(last.placed[row])
            if row in moved or there != last.placed[row] or held[at:end] != last.held[was_at:was_end]:
                changed[row] = there
            at, was_at = end, was_end
        return changed


def _placeholders(state: ClusterState, placed: Placed) -> list[str]:
    """What is on a row is a known pod, or a placeholder, which is no pod."""
    there = [task for tasks in placed.values() for task in tasks]
    wrong = [
        f"{task!r} is on a row, and is neither a known pod nor a placeholder"
        for task in there
        if not isinstance(task, Placeholder) and state.tasks.get(task.pod.uid) is not task
    ]
    return wrong + [
        f"{task!r} is a placeholder, and is taken for a pod"
        for task in there
        if isinstance(task, Placeholder) and (task.state is not TaskState.PLACEHOLDER or task.pod.uid in state.tasks)
    ]


def _seats(state: ClusterState, placed: Placed) -> list[str]:
    """Where members of gangs are that are to be close to one another is counted as they are placed."""
    tasks = (task for there in placed.values() for task in there)
    return state.network.problems(
        (task.shape.spec.near, task.row) for task in tasks if task.shape.spec.near is not None and not task.pod.terminating
    )


def _numa(state: ClusterState, placed: Placed) -> list[str]:  # noqa: ARG001 - as the others
    """What is free of NUMA nodes is what pods there do not have."""
    return state.numa.problems()


def _neighbours(state: ClusterState, placed: Placed) -> list[str]:
    """What pods use of what those of a node share, and whose pods are where, are counted as they are placed."""
    nodes, wrong = state.nodes, []
    for row, there in placed.items():
        used = [sum(task.shape.spec.pressure[kind] for task in there if task.shape.spec.pressure) for kind in range(len(KINDS))]
        if nodes.contention.pods[:, row].tolist() != used:
            wrong.append(f"node {nodes.names[row]} counts pressures {nodes.contention.pods[:, row].tolist()}, not {used}")
    wrong += nodes.shared.problems(
        (task.shape.spec.shared, row) for row, there in placed.items() for task in there if task.shape.spec.shared
    )
    if not nodes.tenants.active:
        return wrong
    fresh = Tenants(UndoLog(), nodes.capacity)
    for row, there in placed.items():
        for task in there:
            fresh.add(task.shape, row, 1)
    for uid, row in state.in_flight.lingering.items():
        fresh.add(state.tasks[uid].shape, row, 1)
    jobs = {task.shape.spec.isolated for there in placed.values() for task in there} - {""}
    for what, counted, right in [
        ("tenants", nodes.tenants.counted(), fresh.counted()),
        *((f"tenants of {job}", nodes.tenants.counted_of(job), fresh.counted_of(job)) for job in sorted(jobs)),
    ]:
        if counted != right:
            wrong.append(f"{what} are counted as {counted}, not {right}")
    return wrong


def _free(state: ClusterState) -> list[str]:
    """What is counted as free of all devices is so, row by row."""
    nodes = state.nodes
    rows = [row for row in nodes.rows.values() if nodes.open[row]]
    free = sum(max(0, sum(nodes.devices.states[nodes.device.item(row)])) for row in rows)
    counted = state.moves.free.total()
    return [f"{free} milli of devices are free, {counted} are counted"] if counted != free else []


def _claims(state: ClusterState) -> list[str]:
    """Devices of claims are held as pods with places use them, and given once."""
    if not state.device_claims.used:
        return []
    there = [task for row in state.nodes.rows.values() for task in state.nodes.pods[row].values() if task.pod.claims]
    starting = [task.pod for task in there if task.state is TaskState.ASSUMED]
    return state.device_claims.problems([task.pod for task in there], starting)


def _listed(state: ClusterState) -> list[str]:
    """Tasks are listed by what they have: queue, user, labels."""
    tables = state.tables
    by_queue: dict[str, dict[str, Task]] = {}
    for uid, task in state.tasks.items():
        if task.pod.ours:
            by_queue.setdefault(task.queue, {})[uid] = task
    wrong = ["tasks are not listed by the queues that they are in"] if by_queue != tables.by_queue else []
    return [*wrong, *tables.census.problems(), *tables.labelled.problems()]


def _charges(state: ClusterState) -> tuple[object, ...]:
    """What queues are charged for, besides the pods on known rows, and what they are charged."""
    queues = state.queues
    used = {name: (node.path, dict(node.used), node.policy) for name, node in queues.queues.items()}
    return used, tuple(queues.accounts.debts), [tuple(tasks) for tasks in state.placement.strays.values()], len(state.tasks)


def check(state: ClusterState) -> None:
    """Raise `AssertionError` naming every invariant that is broken."""
    wrong = violations(state)
    if wrong:
        raise AssertionError("; ".join(wrong[:20]))


def _accounts(state: ClusterState, placed: Placed) -> list[str]:
    """No resource is given out twice: free = allocatable - what the pods there ask for."""
    wrong = []
    nodes = state.nodes
    columns = [(resource, column, nodes.alloc[column], nodes.free[column]) for resource, column in nodes.resources.items()]
    for row, tasks in placed.items():
        used: dict[int, int] = {}
        for task in tasks:
            if task.row != row:
                wrong.append(f"{task!r} is listed on {nodes.names[row]} but has row {task.row}")
            for column, amount in task.shape.taken:
                used[column] = used.get(column, 0) + amount
        for resource, column, alloc, free in columns:
            given = alloc.item(row) - free.item(row)
            if given != used.get(column, 0):
                there = used.get(column, 0)
                wrong.append(f"{nodes.names[row]}: {given} {resource} are given out, pods there use {there}")
    return wrong


def _surroundings(state: ClusterState, placed: Placed) -> list[str]:
    """What pods mean to others is counted where they are, or linger."""
    if not state.pairs.active:
        return []
    wanted: dict[int, dict[int, int]] = {}
    sets = {}
    held: dict[int, dict[int, int]] = {}
    terms = {}
    around = [(row, task) for row, tasks in placed.items() for task in tasks]
    around += ((row, state.tasks[uid]) for uid, row in state.in_flight.lingering.items())
    shapes = {task.shape.number: task.shape for _, task in around}
    for (number, row), count in Counter([(task.shape.number, row) for row, task in around]).items():
        shape = shapes[number]
        labels = shape.labels
        if labels is None:
            continue
        for term, _ in shape.held:
            terms[id(term)] = term
            rows = held.setdefault(id(term), {})
            rows[row] = rows.get(row, 0) + count
        sets[id(labels)] = labels
        rows = wanted.setdefault(id(labels), {})
        rows[row] = rows.get(row, 0) + count
    wrong = state.pairs.miscounted()
    for number, term in terms.items():
        if {row: count for row, count in term.rows.items() if count} != held[number]:
            wrong.append(f"pods that hold {term.term} are counted {term.rows}, not {held[number]}")
    for number, labels in sets.items():
        counted = dict(labels.rows)
        for row, count in labels.leaving.items():
            counted[row] = counted.get(row, 0) + count
        counted = {row: count for row, count in counted.items() if count}
        if counted != wanted[number]:
            wrong.append(f"pods with labels {labels.labels} of {labels.namespace} are counted {counted}, not {wanted[number]}")
    return wrong


def over_allocated(state: ClusterState) -> list[str]:
    """Nodes that hold more than they have; possible only when others bind there too.

    What devices of ResourceClaims serve is not among the amounts that a node has.
    """
    nodes = state.nodes
    return [
        f"{name}: {resource} is over-allocated by {-nodes.free[column].item(row)}"
        for name, row in nodes.rows.items()
        for resource, column in nodes.resources.items()
        if nodes.free[column].item(row) < 0 and (nodes.alloc[column].item(row) or not _served(state, row, resource))
    ]


def _served(state: ClusterState, row: int, resource: str) -> bool:
    """Whether pods on a row have devices for a resource."""
    needs = (need for task in state.nodes.pods[row].values() for need in task.shape.spec.devices)
    return any(each.resource == resource for need in needs for each in need.served)


def _devices(state: ClusterState, placed: Placed) -> list[str]:
    """No device is given out twice."""
    wrong = []
    nodes = state.nodes
    for row, tasks in placed.items():
        has = nodes.devices.states[nodes.device.item(row)]
        left = [WHOLE] * len(has)
        for task in tasks:
            devices = task.devices
            if len(devices) > 1 and len(set(devices)) != len(devices):
                wrong.append(f"{task!r} holds a device twice")
            for device in devices:
                left[device] -= task.shape.gpu_milli
        if has != tuple(left):
            wrong.append(f"{nodes.names[row]}: devices have {has} free where pods leave {tuple(left)}")
    return wrong


_CHARGE = attrgetter("queue", "shape.number")
_CHARGE_AT = attrgetter("queue", "shape.number", "row")


def _queues(state: ClusterState, placed: Placed) -> list[str]:
    """Each queue holds what its pods and its descendants' pods ask for."""
    strays = {uid for tasks in state.placement.strays.values() for uid in tasks}
    charged = [task for task in state.tasks.values() if task.row >= 0 and task.charged]
    if strays:
        charged += [task for task in map(state.tasks.get, strays) if task is not None and task.row < 0 and task.charged]
    known = state.tasks
    charged += [task for tasks in placed.values() for task in tasks if task.pod.uid not in known and task.charged]
    shapes = {task.shape.number: task.shape for task in charged}
    by_row = state.queues.tree.by_row
    alike = Counter(map(_CHARGE_AT if by_row else _CHARGE, charged))
    held: dict[str, Counter[str]] = {name: Counter() for name in state.queues.queues}
    for (queue, number, *on), count in alike.items():
        row = on[0] if on else 0
        charge = state.queues.tree.charge_at(shapes[number], row)
        for node in state.queues.queues[queue].path:
            for resource, amount in charge:
                held[node.name][resource] += amount * count
    wrong = []
    debts: dict[str, Counter[str]] = {name: Counter() for name in state.queues.queues}
    for uid, debt in state.queues.accounts.debts.items():
        if state.tasks[uid].state is not TaskState.EVICTING:
            wrong.append(f"queue {debt.queue} is charged for {uid} as for a victim, but it is none")
        for node, charge in state.queues.accounts.charges_of(debt):
            held[node.name].update(dict(charge))
            debts[node.name].update(dict(charge))
    for name, node in state.queues.queues.items():
        mine, leaving = held[name], debts[name]
        wrong += [
            f"queue {name} counts {node.leaving.get(resource, 0)} {resource} as leaving, its victims hold {leaving[resource]}"
            for resource in {*leaving, *node.leaving}
            if node.leaving.get(resource, 0) != leaving[resource]
        ]
        wrong += [
            f"queue {name} is charged {node.used.get(resource, 0)} {resource}, its pods hold {mine[resource]}"
            for resource in {*mine, *node.used}
            if node.used.get(resource, 0) != mine[resource]
        ]
    return wrong + _running(state, charged) + _foreign(state, charged) + _meters(state)


_THERE = (TaskState.BOUND, TaskState.ASSUMED)


def _running(state: ClusterState, charged: list[Task]) -> list[str]:
    """No queue is charged for less than what its pods on nodes hold: victims are there until they are gone."""
    if not state.in_flight.lingering:
        return []
    running = [(task, task.row) for task in charged if task.pod.ours and task.state in _THERE]
    running += [(task, row) for uid, row in state.in_flight.lingering.items() if (task := state.tasks[uid]).pod.ours]
    held: dict[str, Counter[str]] = {name: Counter() for name in state.queues.queues}
    for task, row in running:
        for node in state.queues.queues[task.queue].path:
            held[node.name].update(dict(state.queues.tree.charge_at(task.shape, row)))
    return [
        f"queue {name} is charged {node.used.get(resource, 0)} {resource}, its pods that run or leave hold {amount}"
        for name, node in state.queues.queues.items()
        for resource, amount in held[name].items()
        if amount > node.used.get(resource, 0)
    ]


def _foreign(state: ClusterState, charged: list[Task]) -> list[str]:
    """Of what queues hold it is known how much pods of other schedulers do, who are listed apart."""
    held: dict[str, Counter[str]] = {name: Counter() for name in state.queues.queues}
    listed: dict[str, set[str]] = {name: set() for name in state.queues.queues}
    for task in charged:
        if not task.pod.ours:
            listed[task.queue].add(task.pod.uid)
            for node in state.queues.queues[task.queue].path:
                held[node.name].update(dict(state.queues.tree.charge_at(task.shape, task.row)))
    wrong = []
    for name, node in state.queues.queues.items():
        if {resource: amount for resource, amount in node.foreign.items() if amount} != +held[name]:
            wrong.append(f"queue {name} counts {node.foreign} as held by pods of others, these hold {held[name]}")
        if set(node.guests) != listed[name]:
            wrong.append(f"queue {name} lists {sorted(node.guests)} of others, it is charged for {sorted(listed[name])}")
    return wrong


def _payers(state: ClusterState) -> list[str]:
    """Pods of other schedulers are charged to the queue that their namespace names."""
    return [
        f"{task!r} is charged to queue {task.queue!r}, not to {payer!r}"
        for task in state.tasks.values()
        if not task.pod.ours and task.queue != (payer := state.belonging.payer(task))
    ]


def _pending_classes(state: ClusterState) -> list[str]:
    """Each pending class counts its units; the unschedulable classes that are held back for others are listed."""
    queues = state.queues
    held_back = {each for each in queues.waiting.unschedulable if each.held_back is not None}
    listed = queues.waiting.held_back
    wrong = [f"{each.composition} is listed as held back" for each in sorted(listed - held_back, key=PendingClass.order)]
    wrong += [f"{each.composition} is not listed as held back" for each in sorted(held_back - listed, key=PendingClass.order)]
    return wrong + [
        f"queue {name} counts {pending_class.waiting} units of {pending_class.composition}, {alive} wait"
        for name, node in state.queues.queues.items()
        for pending_class in node.pending_classes.values()
        if pending_class.waiting != (alive := sum(1 for _ in pending_class.units))
    ]


def _meters(state: ClusterState) -> list[str]:
    """What users hold, and which jobs run, is counted as it is."""
    wrong = []
    for name, node in state.queues.queues.items():
        if node.meter is None:
            continue
        fresh = Meter(UndoLog(), node.policy)
        for each in state.queues.queues.values():
            for task in each.charged if node in each.path else ():
                fresh.charge(task, state.queues.tree.charge_at(task.shape, task.row), 1)
        for debt in state.queues.accounts.debts.values():
            if node in state.queues.queues[debt.queue].path:
                fresh.charge(debt.victim, debt.measured, 1)
        for what in ("held", "foreign", "pods", "running"):
            kept = {key: count for key, count in getattr(node.meter, what).items() if count}
            found = {key: count for key, count in getattr(fresh, what).items() if count}
            if kept != found:
                wrong.append(f"queue {name} counts {what} as {kept}, not {found}")
    return wrong


def _guarantees(state: ClusterState) -> list[str]:
    """Claims are the sums of quotas and non-preemptible work."""
    kept = state.queues.guarantees
    if not kept.classes:
        return []
    placed = [task for node in state.queues.queues.values() for task in node.charged]
    recounted = kept.copy(UndoLog())
    recounted.hold_again(state.queues.queues, ((task, state.queues.tree.charge_at(task.shape, task.row)) for task in placed))
    counted, right = (
        {key: claim for key, claim in [*each.below.items(), *each.claimed.items()] if claim} for each in (kept, recounted)
    )
    return [] if counted == right else [f"claims of queues are counted as {counted}, not {right}"]


def _gangs(state: ClusterState) -> list[str]:
    """Of each gang at least the minimum is placed, or nothing, unless a fault is being repaired.

    A suspended job may be known to come back as less: all that is known of it has places, then, and no pod has.
    """
    wrong = []
    for key, gang in state.gangs.items():
        if gang.group is None or gang.fault_at is not None:
            continue
        placed = gang.placed()
        if 0 < len(placed) < gang.needed:
            known = [task for task in gang.tasks.values() if task.pod.placeholder and not task.pod.spare]
            if len(placed) < len(known) or any(task not in known for task in placed):
                wrong.append(f"gang {key} has {len(placed)} of {gang.needed} members placed")
    return wrong


def _owned(state: ClusterState) -> list[str]:
    """Pods that are not listed under their owners."""
    tasks = {uid: task for uid, task in state.tasks.items() if task.pod.owner}
    listed = {task.pod.uid for task in state.tables.owned.of({task.pod.owner for task in tasks.values()})}
    return [f"{task} is not listed under its owner" for uid, task in sorted(tasks.items()) if uid not in listed]


def _waits(state: ClusterState) -> list[str]:
    """Tasks and victims that do not know of each other."""
    known = state.in_flight.waits
    waits = [(task, wait) for task in state.tasks.values() for wait in task.waits]
    wrong = [f"{task} is not among those that wait" for task, wait in waits if task.pod.uid not in wait.tasks]
    for wait in {id(wait): wait for _, wait in waits}.values():
        wrong += [f"{uid} is not known to be waited for" for uid in sorted(wait.victims) if wait not in known.get(uid, ())]
    for uid, each in known.items():
        wrong += [f"{uid} is waited for no more" for wait in each if uid not in wait.victims]
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

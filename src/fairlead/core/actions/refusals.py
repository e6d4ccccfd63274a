"""Refusals: why work that waits has no place, and which jobs wait longer than their class of service allows.

Each reason is published once, in one refusal for all single pods to which it applies, and in one for each gang.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import explain
from fairlead.core.model.transactions import Overdue, Refuse, Transaction
from fairlead.core.pods.tasks import Task, Unit, refusal_told
from fairlead.core.queues.tree import Room
from fairlead.core.state.cluster import ClusterState


def refuse(state: ClusterState, units: list[Unit], reason: Reason) -> Iterator[Transaction]:
    """One refusal for all single pods of a room to which the same is said, one for each gang."""
    singles: dict[str, tuple[Reason, list[Task]]] = {}
    own_of = explain.owner(state, reason)
    for unit in sorted(units):
        own = own_of(unit) if any(task.told != reason.code for task in unit.tasks) else reason
        told = [task for task in unit.tasks if refusal_told(task, own)]
        if len(unit.tasks) == 1:
            singles.setdefault(own.message, (own, []))[1].extend(told)
        elif told:
            yield Refuse(tuple(task.ref for task in told), own, unit.gang.key if unit.gang else "")
    for own, told in singles.values():
        if told:
            yield Refuse(tuple(task.ref for task in told), own)


def notify(state: ClusterState) -> Iterator[Transaction]:
    """The reasons of pods that no pass serves, and of units that came after their pending class was refused."""
    for tasks, reason in state.notices.take():
        waiting = [task for task in tasks if state.tasks.get(task.pod.uid) is task]
        if reason.code is not ReasonCode.INTERNAL_ERROR:
            waiting = [task for task in waiting if state.isolation.why(task.pod.uid) is None]
        with state.isolation.guard("notices", waiting):
            told = [task for task in waiting if refusal_told(task, reason)]
            if told:
                gang = told[0].gang
                yield Refuse(tuple(task.ref for task in told), reason, gang.key if gang else "")
    for room in sorted(state.queues.waiting.parked, key=Room.order):
        if room.untold and room.parked is not None:
            with state.isolation.guard("notices", room):
                yield from refuse(state, state.queues.waiting.to_tell(room), room.parked)
    for room in sorted(state.queues.waiting.limited, key=Room.order):
        with state.isolation.guard("notices", room):
            late = [unit for unit in room.untold if unit.alive and unit.user in room.limited]
            room.untold = [unit for unit in room.untold if unit.user not in room.limited]
            for unit in late:
                yield from refuse(state, [unit], room.limited[unit.user])


def report_overdue(state: ClusterState) -> Iterator[Transaction]:
    """Jobs that wait longer than their class of service allows: once for each."""
    overdue, state.pending.overdue = state.pending.overdue, []
    jobs: dict[str, list[Task]] = {}
    for task in overdue:
        if task.pod.uid in state.tasks and task.row < 0:
            jobs.setdefault(task.job, []).append(task)
    for _, tasks in sorted(jobs.items()):
        with state.isolation.guard("overdue", tasks):
            first = tasks[0]
            service = state.services.of(first)
            message = f"it has waited longer than the {service.max_wait:g} s that ServiceClass {service.name!r} allows"
            group = first.gang.key if first.gang is not None else ""
            yield Overdue(tuple(task.ref for task in tasks), service.name, message, group)

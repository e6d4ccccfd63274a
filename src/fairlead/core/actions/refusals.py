"""Refusals: why work that waits has no place, and which jobs wait longer than their class of service allows.

Each reason is published once, in one refusal for all single pods to which it applies, and in one for each gang.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import explain
from fairlead.core.actions.deallocate import deallocate, idle_claims
from fairlead.core.model.transactions import Overdue, Refuse, Transaction
from fairlead.core.pods.tasks import Task, Unit, note_reported
from fairlead.core.state.cluster import ClusterState


def refuse(state: ClusterState, units: list[Unit], reason: Reason) -> Iterator[Transaction]:
    """One refusal for all single pods of a pending class that have the same reason, one for each gang."""
    singles: dict[str, tuple[Reason, list[Task]]] = {}
    own_of = explain.owner(state, reason)
    for unit in sorted(units):
        own = own_of(unit) if any(task.reported != reason.code for task in unit.tasks) else reason
        reported = [task for task in unit.tasks if note_reported(task, own)]
        if len(unit.tasks) == 1:
            singles.setdefault(own.message, (own, []))[1].extend(reported)
        elif reported:
            yield _refusal(reported, own, unit.gang.key if unit.gang else "")
    for own, reported in singles.values():
        if reported:
            yield _refusal(reported, own)


def _refusal(tasks: list[Task], reason: Reason, group: str = "") -> Refuse:
    """No place is held for these: whatever node was nominated for them is not any more. Upstream's rules keep a nomination."""
    nominated = [task for task in tasks if task.pod.profile != KUBERNETES_PROFILE and (task.nominated or task.pod.nominated)]
    for task in nominated:
        task.nominated = False
    return Refuse(tuple(task.ref for task in tasks), reason, group, tuple(task.pod.uid for task in nominated))


def notify(state: ClusterState) -> Iterator[Transaction]:
    """The reasons of pods that no pass serves, and of units that came after their pending class was refused."""
    for tasks, reason in state.notices.take():
        waiting = [task for task in tasks if state.tasks.get(task.pod.uid) is task]
        if reason.code is not ReasonCode.INTERNAL_ERROR:
            waiting = [task for task in waiting if state.isolation.why(task.pod.uid) is None]
        with state.isolation.guard("notices", waiting):
            if reason.code is ReasonCode.GANG_INCOMPLETE:
                yield from deallocate(idle_claims(state, waiting))
            reported = [task for task in waiting if note_reported(task, reason)]
            if reported:
                gang = reported[0].gang
                yield _refusal(reported, reason, gang.key if gang else "")
    for pending_class in state.queues.waiting.with_unreported():
        if pending_class.unschedulable is not None:
            with state.isolation.guard("notices", pending_class):
                yield from refuse(state, state.queues.waiting.to_report(pending_class), pending_class.unschedulable)
    for reason, unit in state.queues.waiting.late_units():
        with state.isolation.guard("notices", unit):
            yield from refuse(state, [unit], reason)


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

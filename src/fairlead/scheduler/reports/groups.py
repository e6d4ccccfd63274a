"""Statuses of pod groups: those that changed since they were written last, and where only counts did, not too often."""

from __future__ import annotations

import math

from fairlead.api.reasons import Reason
from fairlead.core import explain
from fairlead.core.model.groups import SparePlaces
from fairlead.core.pods.tasks import Gang, Task, TaskState
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state.cluster import ClusterState
from fairlead.scheduler.faults import Faults
from fairlead.scheduler.outputs import GroupStatus
from fairlead.scheduler.reports.expected_starts import ExpectedStarts

_COUNTS_REST = 1.0  # seconds between two statuses of a group that differ in counts only


class GroupReports:
    """Which groups may have changed, and what was written of each."""

    def __init__(self, state: ClusterState, starts: ExpectedStarts, faults: Faults) -> None:
        self.next_due: float | None = None
        """When counts that changed are written."""
        self._state = state
        self._starts = starts
        self._faults = faults
        self._changed: set[str] = set()
        self._reported: dict[str, GroupStatus] = {}
        self._reported_at: dict[str, float] = {}

    def mark(self, key: str) -> None:
        """A group may have changed."""
        self._changed.add(key)

    def mark_of(self, uid: str) -> None:
        """The group of a pod, if it has one, may have changed."""
        task = self._state.tasks.get(uid)
        if task is not None and task.gang is not None:
            self._changed.add(task.gang.key)

    def forget(self, key: str) -> None:
        """A group's object is gone."""
        self._reported.pop(key, None)
        self._reported_at.pop(key, None)

    def due(self, now: float) -> list[GroupStatus]:
        """What is to be written now."""
        statuses: list[GroupStatus] = []
        later: set[str] = set()
        self._changed |= self._state.spares.take_changed()
        for key in sorted(self._changed):
            try:
                status = self._status(key)
            except Exception as error:  # noqa: BLE001 - one status stops no other status
                self._faults.note("status", f"group {key}", error)
                continue
            if status is None:
                continue
            since = now - self._reported_at.get(key, -math.inf)
            if 0 <= since < _COUNTS_REST and status.counts_only(self._reported.get(key)):
                later.add(key)
                continue
            self._reported[key], self._reported_at[key] = status, now
            statuses.append(status)
        self._changed = later
        self.next_due = min((self._reported_at[key] + _COUNTS_REST for key in later), default=None)
        return statuses

    def _status(self, key: str) -> GroupStatus | None:
        """The status of a group that is to be written; None: nothing new."""
        gang = self._state.gangs.get(key)
        if gang is None or gang.group is None:
            return None
        if not gang.group.ours:
            self.forget(key)  # another release writes it; should it be ours again, all of it is written
            return None
        bound = sum(task.state is TaskState.BOUND and not task.pod.spare for task in gang.tasks.values())
        held = [
            task
            for task in gang.tasks.values()
            if task.state is TaskState.HELD and task.reported is not None and not task.pod.spare
        ]
        expected = self._starts.interval(key) if not gang.placed() else None
        start, earliest, latest = expected if expected is not None else (None, None, None)
        completed = gang.completions.record if gang.completions is not None else None
        reason = self._reason(gang, bound, held)
        phase = self._phase(gang, bound)
        chosen = self._state.alternatives.chosen.get(key)
        spares = self._spares(gang)
        status = GroupStatus(key, phase, bound, reason, start, completed, gang.failed_starts, earliest, latest, chosen, spares)
        reported = self._reported.get(key)
        if reported is not None and reported.urgent() == status.urgent() and reported.foretells() == status.foretells():
            return None
        if reported is not None and len(gang.placed()) > bound + len(held):
            return None  # bindings are on their way: one write when they are through
        return status

    def _spares(self, gang: Gang) -> SparePlaces | None:
        spares = self._state.spares
        wanted = spares.wanted(gang)
        nodes = spares.nodes(gang) if wanted else ()
        return SparePlaces(wanted, nodes) if wanted and (nodes or gang.bound()) else None

    def _reason(self, gang: Gang, bound: int, held: list[Task]) -> Reason | None:
        """Why it waits, or what is wrong with it. held: its members whose places wait for victims."""
        state, reason = self._state, gang.reason
        if reason is None and not bound:
            waiting = next((task.unit for task in gang.tasks.values() if task.unit is not None), None)
            pending_class = pending_class_of(waiting) if waiting is not None else None
            shared = pending_class.unschedulable if pending_class is not None else None
            reason = explain.own(state, waiting, shared) if waiting is not None and shared is not None else None
        if reason is None and held:
            reason = state.departures.reason(held)
        return reason or state.starts.stay.get(gang.key) or state.belonging.differs(gang.key)

    def _phase(self, gang: Gang, bound: int) -> str:
        if gang.key in self._state.suspended.targets:
            return "Suspended"
        return gang.end or ("Scheduled" if bound >= gang.needed else "Pending")

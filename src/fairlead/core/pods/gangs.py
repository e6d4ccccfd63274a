"""Gangs: pods that start together. Of a gang at least `min_member` run, or none.

A gang turns its waiting members into units: one unit of all that are needed while too few are
placed, single units for the others once enough are; these come after all who wait with their priority,
so that each gang gets its minimum before any gets more. What cannot be a unit yet has a reason.
"""

from __future__ import annotations

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.objects import FailedStarts, Group
from fairlead.core.pods.completions import Completions
from fairlead.core.pods.members import first_to_start
from fairlead.core.pods.tasks import PLACED, Task, TaskState, Unit, stands_in


class Gang:
    """The pods that carry one pod-group label, and the PodGroup if there is one."""

    __slots__ = ("completions", "failed_starts", "fault_at", "group", "key", "reason", "tasks")

    def __init__(self, key: str) -> None:
        self.key = key
        self.group: Group | None = None
        self.tasks: dict[str, Task] = {}
        self.fault_at: float | None = None
        self.reason: Reason | None = None
        self.completions: Completions | None = None
        self.failed_starts: FailedStarts | None = None

    def placed(self) -> list[Task]:
        """Members that have a node and stay: one that is on its way out is no member any more."""
        return [task for task in self.tasks.values() if task.state in PLACED and not task.pod.terminating]

    def bound(self) -> list[Task]:
        """Members that the cluster runs and that stay."""
        return [task for task in self.tasks.values() if task.state is TaskState.BOUND and not task.pod.terminating]

    @property
    def min_member(self) -> int:
        """How many must run together, those that have succeeded included."""
        return self.group.min_member if self.group else 1

    @property
    def forgotten(self) -> bool:
        """Whether nothing is left of it: no PodGroup, no member, no pod of one that succeeded."""
        return self.group is None and not self.tasks and not self.completions

    @property
    def succeeded(self) -> int:
        """How many members have run to their end."""
        return self.completions.total if self.completions is not None else 0

    @property
    def needed(self) -> int:
        """How many must run together now."""
        return self.min_member if self.completions is None else max(0, self.min_member - self.completions.total)

    def spares(self) -> bool:
        """Whether it runs with more members than it needs."""
        return self.group is not None and len(self.placed()) > self.needed

    def broken(self) -> bool:
        """Some members run, but too few, and no write is under way."""
        bound = len(self.bound())
        return 0 < bound < self.needed and len(self.placed()) == bound

    def units(self, now: float, rests: Reason | None = None) -> tuple[list[Unit], Reason | None]:
        """Fresh units for the waiting members, and why there are none for those left out. rests: why none is placed now."""
        waiting = [task for task in self.tasks.values() if task.state is TaskState.WAITING]
        for task in waiting:
            if task.unit is not None:
                task.unit.retire()
                task.unit = None
            task.beyond = False
        if not waiting:
            return [], None
        if self.group is None:
            message = (
                f"PodGroup {self.key} does not exist: create it, drop the label fairlead.dev/pod-group, or, if it is that of a "
                "workload such as a JobSet, see that `fairlead operator` runs"
            )
            return [], Reason(ReasonCode.GANG_INCOMPLETE, message)
        if rests is not None:
            return [], rests
        waiting.sort(key=lambda task: task.rank)
        ready = [task for task in waiting if task.not_before <= now]
        placed = len(self.placed())
        need = self.needed - placed
        if need <= 0:
            for task in ready:
                task.beyond = True
            return [Unit((task,), 1, self) for task in ready], None
        if len(waiting) < need and any(stands_in(task.pod.uid) for task in waiting):
            need = len(waiting)  # of a suspended job no more is known; what it needs beyond that has no place kept for it
        if len(waiting) < need:
            members = placed + len(waiting) + self.succeeded
            message = f"PodGroup {self.key} has {members} of the {self.group.min_member} pods it needs"
            numbers = {"members": members, "min_member": self.group.min_member}
            return [], Reason(ReasonCode.GANG_INCOMPLETE, message, numbers)
        if len(ready) < need:
            return [], Reason(ReasonCode.BACKOFF, f"PodGroup {self.key} waits after a failed binding")
        if len(ready) > need and any(stands_in(task.pod.uid) for task in ready):
            wanted = sum(not task.pod.surplus for task in ready)  # a job resumes once, with all that find places
            return [Unit(tuple(ready[: max(need, wanted)]), need, self)], None
        if len(ready) > need:
            ready = first_to_start(ready)
        return [Unit(tuple(ready[:need]), need, self)], None

    def later(self, now: float) -> tuple[Task, ...]:
        """Members that are no part of its units yet, since the others come first."""
        waiting = (task for task in self.tasks.values() if task.state is TaskState.WAITING)
        return tuple(task for task in waiting if task.unit is None and task.not_before <= now)

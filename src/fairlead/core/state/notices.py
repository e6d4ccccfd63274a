"""Notices: why tasks wait that no pass serves, kept until they are reported.

A batch of events may set one task aside several times, and let it wait in line again. Only what still holds is reported, since
the pass has reported by then: an older reason after a newer one would stay on the pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from fairlead.api.reasons import Reason
from fairlead.core.pods.tasks import Task, TaskState


class _Notice(msgspec.Struct):
    tasks: tuple[Task, ...]
    reason: Reason
    states: tuple[TaskState, ...]  # of the tasks when it was noted

    @property
    def oldest(self) -> tuple[float, str]:
        return min(((task.pod.created, task.pod.uid) for task in self.tasks), default=(0.0, ""))


class Notices:
    """Reported once per pass, after everything else."""

    def __init__(self) -> None:
        self._noted: list[_Notice] = []

    def add(self, tasks: Sequence[Task], reason: Reason) -> None:
        """These tasks wait for this reason."""
        self._noted.append(_Notice(tuple(tasks), reason, tuple(task.state for task in tasks)))

    def take(self) -> Iterator[tuple[list[Task], Reason]]:
        """Each reason with the tasks of which it still holds, those of the oldest pod first.

        It holds no more if something was noted of the task since, if its state is another, or if it waits in line.
        """
        noted, self._noted = self._noted, []
        latest = {task.pod.uid: number for number, notice in enumerate(noted) for task in notice.tasks}
        # In a fixed order, in whichever their gangs were processed.
        for number, notice in sorted(enumerate(noted), key=lambda each: each[1].oldest):
            noted_states = zip(notice.tasks, notice.states, strict=True)
            yield (
                [
                    task
                    for task, state in noted_states
                    if latest[task.pod.uid] == number and task.state is state and task.unit is None and task.row < 0
                ],
                notice.reason,
            )

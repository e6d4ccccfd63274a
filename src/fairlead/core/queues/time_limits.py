"""Time limits of pods: which limit applies to a pod, and which pods have run as long as they may."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fairlead.core.model.agenda import Agenda, Timers
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.attained import begun

_ASK_AGAIN = 60.0  # seconds until an eviction for a time limit is asked for once more


class TimeLimits:
    """The limits of tasks, and when those that run reach theirs. class_of: the service class of a task."""

    def __init__(self, class_of: Callable[[Task], ServiceClass], timers: Timers) -> None:
        self._class_of = class_of
        self._ends: Agenda[str] = timers.agenda("time limits")  # UIDs: when a pod has run as long as it may

    def of(self, task: Task) -> float:
        """Seconds that a task may run: as it asks, no longer than its class allows and its kubelet lets it."""
        return min(self.enforced(task), task.pod.deadline or math.inf)

    def enforced(self, task: Task) -> float:
        """The same without what its kubelet enforces; infinite if there is none."""
        return min(self.asked(task), self._class_of(task).longest or math.inf)

    def asked(self, task: Task) -> float:
        """Seconds that a task asks to run: the smaller of its gang's limit and its own, or its class's default."""
        group, own = task.gang.group if task.gang is not None else None, task.pod.time_limit
        if group is not None and group.time_limit:
            return min(own, group.time_limit) if own else group.time_limit
        return own or self._class_of(task).time_limit or math.inf

    def watch(self, task: Task) -> None:
        """A task runs: note when it will have run as long as it may."""
        self._note(task, begun(task) + self.enforced(task))

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._ends.drop(uid)

    def reached(self, tasks: dict[str, Task], now: float) -> Iterator[Task]:
        """Those that run and have run as long as they may; each once, and again after a while if it is still there."""
        for uid in self._ends.due(now):
            task = tasks.get(uid)
            if task is None or task.row < 0:
                continue
            try:
                ends = begun(task) + self.enforced(task)
            except Exception:
                self._note(task, now + _ASK_AGAIN)  # a fault of ours: its limit is not forgotten for that
                raise
            if ends <= now:
                yield task
                ends = now + _ASK_AGAIN
            self._note(task, ends)

    def _note(self, task: Task, ends: float) -> None:
        if math.isfinite(ends):
            self._ends.put(task.pod.uid, ends)
        else:
            self._ends.drop(task.pod.uid)

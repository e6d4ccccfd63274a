"""Attained service: the device-seconds that jobs have had, before and since their suspensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.core.pods.tasks import Task


class AttainedService:
    """What jobs had attained before their present pods, and what they have attained in all.

    carried: UID of what makes a job's pods -> (device-seconds, when it was created first) of the job, where it came back from a
    suspension.
    """

    def __init__(self) -> None:
        self.carried: dict[str, tuple[float, float]] = {}

    def before(self, task: Task) -> float:
        """Device-seconds that its job had before this pod: as it declares, or as was remembered when it was suspended."""
        return task.pod.attained or self.carried.get(task.pod.owner, (0.0, 0.0))[0]

    def first_came(self, task: Task) -> float:
        """When its job came first, as far as it is known."""
        return self.carried.get(task.pod.owner, (0.0, task.pod.created))[1]

    def of(self, task: Task, now: float) -> float:
        """Device-seconds that its job has had."""
        return self._sum(task, running_with(task), now)

    def of_evicted(self, tasks: Sequence[Task], now: float) -> float:
        """The same of a job whose pods are evicted together, and have lost their places already."""
        first = tasks[0]
        if first.gang is None or first.gang.group is None:
            return self.of(first, now)
        return self._sum(first, {each.pod.uid: each for each in (*running_with(first), *tasks)}.values(), now)

    def _sum(self, task: Task, running: Iterable[Task], now: float) -> float:
        return self.before(task) + sum((now - begun(each)) * each.shape.devices for each in running)


def begun(task: Task) -> float:
    """Since when a task runs, as far as known."""
    if task.pod.started is not None:
        return task.pod.started
    return task.started or task.pod.created


def running_with(task: Task) -> Iterable[Task]:
    """A task and those of its gang that run."""
    if task.gang is None or task.gang.group is None:
        return (task,)
    return [each for each in task.gang.tasks.values() if each.row >= 0]

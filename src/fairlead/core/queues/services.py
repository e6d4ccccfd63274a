"""Classes of service as they apply to what runs: how much it attained, what would be lost with it, from when it is preemptible.

All of it depends on the time, which is that of the latest pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fairlead.core.model.agenda import Agenda, Timers
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.attained import AttainedService, begun, running_with
from fairlead.core.queues.time_limits import TimeLimits

_PLAIN = ServiceClass("")
_RESTART = 60.0  # seconds of its devices that a suspended pod is thought to need until it works again
_MOVES_AFTER = 10 * _RESTART  # seconds that a pod has had its devices before a move may cost it a restart
LATE = 4
"""Urgency of what has waited longer than its class allows."""
_MOMENT = 1.0  # seconds; sooner than this nothing is checked again


class Services:
    """The classes, and what follows from them for tasks now. starts: how many pods have come to run; each may be a victim."""

    def __init__(self, timers: Timers) -> None:
        self.classes: dict[str, ServiceClass] = {}
        self.now = 0.0
        self.starts = 0
        self.attained = AttainedService()
        self.limits = TimeLimits(self.of, timers)
        self._levels: dict[str | tuple[str, str], int] = {}  # of what runs, in this pass
        self._due: Agenda[str] = Agenda()  # uids: when a pod becomes preemptible for a unit for which it was not

    def upsert(self, service: ServiceClass) -> bool:
        """A class came or changed; whether it did."""
        if self.classes.get(service.name) == service:
            return False
        self.classes[service.name] = service
        self.starts += 1
        return True

    def remove(self, name: str) -> bool:
        """A class is gone: its pods are served as those without one. Whether there was one."""
        if self.classes.pop(name, None) is None:
            return False
        self.starts += 1
        return True

    def non_preemptible(self) -> frozenset[str]:
        """The classes whose work is non-preemptible and borrows nothing that is guaranteed."""
        return frozenset(name for name, service in self.classes.items() if service.mode == "Never" and not service.borrows)

    @property
    def any_express(self) -> bool:
        """Whether there may be express work."""
        return any(service.express for service in self.classes.values())

    def knows(self, name: str) -> bool:
        """Whether there is such a class."""
        return name in self.classes

    def begin(self, now: float) -> None:
        """A pass begins."""
        self.now = now
        self._levels.clear()

    def of(self, task: Task) -> ServiceClass:
        """The class of a task."""
        name = task.pod.service_class if task.gang is None else task.service_class  # asked some ten times per pod
        return self.classes.get(name, _PLAIN)

    def urgency(self, task: Task) -> int:
        """How many quarters of the longest wait that its class allows are over for a task, at most 4."""
        longest = self.of(task).max_wait
        return max(0, min(LATE, int((self.now - task.pod.created) * LATE / longest))) if longest else 0

    def next_urgency(self, task: Task) -> float | None:
        """When the next quarter is over; None after the last."""
        longest = self.of(task).max_wait
        return task.pod.created + (task.urgency + 1) * longest / LATE if longest and task.urgency < LATE else None

    def is_preemptible(self, task: Task) -> bool:
        """Whether a task that runs may be preempted at all by now."""
        service = self.of(task)
        return service.mode != "Never" and not (service.min_runtime and self.now < begun(task) + service.min_runtime)

    def time_slice_over(self, task: Task) -> bool:
        """Whether a task that runs gives up its place to work that attained less by now: not while that costs too much work."""
        service = self.of(task)
        return not service.time_slice or service.ends_time_slice(self.now - self.works_since(task))

    def preemptibility(self, task: Task) -> tuple[bool, bool, int]:
        """What decides who may preempt a task that runs, as of now: whether it may be at all, its time slice, and its level."""
        level = self.of(task).level(self.attained.of(task, self.now))
        return self.is_preemptible(task), self.time_slice_over(task), level

    def level(self, task: Task) -> int:
        """On which level of attained service a task that runs, with its gang, is now."""
        service = self.of(task)
        if not service.levels:
            return 0
        key = task.pod.uid if task.gang is None else (task.gang.key, service.name)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = service.level(self.attained.of(task, self.now))
        return level

    def victim_level(self, task: Task) -> int:
        """The same as victims are compared: where time slices end at checkpoints, all that is no longer express is on one level.

        What is evicted from it takes the place of another only when a time slice there is over, and little work is lost by that.
        """
        service = self.of(task)
        if not service.levels:
            return 0  # as most, and all that run are asked
        level = self.level(task)
        return min(level, max(service.express, 1)) if service.time_slice else level

    def may_move(self, task: Task) -> bool:
        """Whether a move takes little of the time that a task has had its devices, where time slices end at checkpoints.

        Little is lost with what has just begun, so it would be chosen first; but a job of seconds would take ten times as long.
        """
        return not self.of(task).time_slice or self._had(task) >= _MOVES_AFTER

    def _had(self, task: Task) -> float:
        """For how many seconds a task, or its job before it, has had its devices."""
        rate = sum(each.shape.devices for each in running_with(task))
        return self.attained.of(task, self.now) / rate if rate else self.now - begun(task)

    def lost_with(self, task: Task) -> float:
        """Device-seconds of work that would be lost with a task: since its last checkpoint, and until it works again."""
        interval = self.of(task).checkpoint_interval
        if not interval:
            return 0.0
        return (self._unsaved(task, interval) + _RESTART) * task.shape.devices

    def time_slice_cost(self, task: Task) -> float:
        """Seconds of work on each of its devices that the end of a time slice costs at most, with the restart; infinite: any."""
        service = self.of(task)
        return service.max_loss + _RESTART if service.time_slice else math.inf

    def _unsaved(self, task: Task, interval: float) -> float:
        """Seconds of work since a task's last checkpoint, of which there is one every `interval` seconds of work."""
        return max(0.0, self.now - self.works_since(task)) % interval

    def works_since(self, task: Task) -> float:
        """Since when a task works: one that comes back must load its checkpoint first."""
        return begun(task) + (_RESTART if self.attained.before(task) else 0.0)

    def runs(self, task: Task) -> None:
        """A task has come to run: others may take it now, or from some time on."""
        self.starts += 1
        self.watch(task)
        self.limits.watch(task)

    def began_earlier(self, task: Task) -> None:
        """A task runs for longer than was assumed when it was bound, by its node's clock."""
        self.watch(task)
        self.limits.watch(task)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self.limits.forget(uid)
        self._due.drop(uid)

    @property
    def next_due(self) -> float | None:
        """When the next of those that run becomes preemptible for a unit for which it was not."""
        return self._due.next

    def due(self, tasks: dict[str, Task]) -> Iterator[Task]:
        """Those that have run long enough, or attained enough, to be preempted."""
        for uid in self._due.due(self.now):
            task = tasks.get(uid)
            if task is not None and task.row >= 0:
                yield task
                self.watch(task)

    def watch(self, task: Task) -> None:
        """Note when a task that runs becomes preemptible for a unit for which it is not now."""
        service, start = self.of(task), begun(task)
        times = [start + service.min_runtime] if service.min_runtime and start + service.min_runtime > self.now else []
        if service.time_slice and (young := _MOVES_AFTER - self._had(task)) > 0:
            times.append(self.now + young)
        rate = sum(each.shape.devices for each in running_with(task)) if service.levels else 0
        if rate:
            attained = self.attained.of(task, self.now)
            times += [self.now + (level - attained) / rate for level in service.levels if level > attained][:1]
            if interval := service.time_slice:
                times.append(max(self.now + interval - self._unsaved(task, interval), self.works_since(task) + interval))
        if times:
            self._due.put(task.pod.uid, max(min(times), self.now + _MOMENT))

"""Classes of service as they apply to what runs: how much it attained, what would be lost with it, from when it may fall.

All of it depends on the time, which is that of the latest pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fairlead.core.model.agenda import Agenda
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import Task

_PLAIN = ServiceClass("")
_RESTART = 60.0  # seconds of its devices that a suspended pod is thought to need until it works again
LATE = 4
"""Urgency of what has waited longer than its class allows."""
_ASK_AGAIN = 60.0  # seconds until an eviction for a time limit is asked for once more
_MOMENT = 1.0  # seconds; sooner than this nothing is looked at again


class Services:
    """The classes, and what they say of tasks now. starts: how many pods have come to run; each may fall for somebody."""

    def __init__(self) -> None:
        self.classes: dict[str, ServiceClass] = {}
        self.now = 0.0
        self.starts = 0
        # UID of what makes a job's pods -> (device-seconds, since when) of the job, where it came back from a suspension
        self.carried: dict[str, tuple[float, float]] = {}
        self._levels: dict[str, int] = {}  # of what runs, in this pass
        self._ends = Agenda()  # uids: when a pod has run as long as it may
        self._due = Agenda()  # uids: when a pod may fall for somebody for whom it did not

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

    def firm(self) -> frozenset[str]:
        """The classes whose work falls for nobody and borrows nothing that is promised."""
        return frozenset(name for name, service in self.classes.items() if service.mode == "Never" and not service.borrows)

    def knows(self, name: str) -> bool:
        """Whether there is such a class."""
        return name in self.classes

    def begin(self, now: float) -> None:
        """A pass begins."""
        self.now = now
        self._levels.clear()

    def of(self, task: Task) -> ServiceClass:
        """The class of a task."""
        return self.classes.get(task.service_class, _PLAIN)

    def time_limit(self, task: Task) -> float:
        """Seconds that a task may run: as it asks, no longer than its class allows and its kubelet lets it."""
        return min(self.enforced_limit(task), task.pod.deadline or math.inf)

    def enforced_limit(self, task: Task) -> float:
        """The same without what its kubelet enforces; infinite if there is none."""
        return min(self.asked_limit(task), self.of(task).longest or math.inf)

    def asked_limit(self, task: Task) -> float:
        """Seconds that a task asks to run: the smaller of its gang's limit and its own, or its class's default."""
        group, own = task.gang.group if task.gang is not None else None, task.pod.time_limit
        if group is not None and group.time_limit:
            return min(own, group.time_limit) if own else group.time_limit
        return own or self.of(task).time_limit or math.inf

    def over_time(self, tasks: dict[str, Task]) -> Iterator[Task]:
        """Those that run and have run as long as they may; each is said once, and again after a while if it is still there."""
        for uid in self._ends.due(self.now):
            task = tasks.get(uid)
            if task is None or task.row < 0:
                continue
            try:
                ends = begun(task) + self.enforced_limit(task)
            except Exception:
                self._watch_limit(task, self.now + _ASK_AGAIN)  # a fault of ours: its limit is not forgotten for that
                raise
            if ends <= self.now:
                yield task
                ends = self.now + _ASK_AGAIN
            self._watch_limit(task, ends)

    def _watch_limit(self, task: Task, ends: float) -> None:
        if math.isfinite(ends):
            self._ends.put(task.pod.uid, ends)
        else:
            self._ends.drop(task.pod.uid)

    def urgency(self, task: Task) -> int:
        """How many quarters of the longest wait that its class allows are over for a task, at most 4."""
        longest = self.of(task).max_wait
        return max(0, min(LATE, int((self.now - task.pod.created) * LATE / longest))) if longest else 0

    def next_urgency(self, task: Task) -> float | None:
        """When the next quarter is over; None after the last."""
        longest = self.of(task).max_wait
        return task.pod.created + (task.urgency + 1) * longest / LATE if longest and task.urgency < LATE else None

    def may_fall(self, task: Task) -> bool:
        """Whether a task that runs may fall at all by now."""
        service = self.of(task)
        return service.mode != "Never" and not (service.min_runtime and self.now < begun(task) + service.min_runtime)

    def gives_turns(self, task: Task) -> bool:
        """Whether a task that runs gives up its place to whoever attained less by now: not while that costs too much work."""
        service = self.of(task)
        return not service.turn_interval or service.ends_turn(self.now - self.works_since(task))

    def level(self, task: Task) -> int:
        """On which level of attained service a task that runs, with its gang, stands now."""
        service = self.of(task)
        if not service.levels:
            return 0
        key = task.pod.uid if task.gang is None else task.gang.key
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = service.level(self.attained(task))
        return level

    def victim_level(self, task: Task) -> int:
        """The same as victims are compared: where turns wait for checkpoints, all that is not express any more is on one level.

        What is evicted from it takes the place of another only when it is its turn, and little work is lost by that.
        """
        service = self.of(task)
        if not service.levels:
            return 0  # as most, and all that run are asked
        level = self.level(task)
        return min(level, max(service.express, 1)) if service.turn_interval else level

    def lost_with(self, task: Task) -> float:
        """Device-seconds of work that would be lost with a task: since its last checkpoint, and until it works again."""
        interval = self.of(task).checkpoint_interval
        if not interval:
            return 0.0
        return (self._unsaved(task, interval) + _RESTART) * task.shape.gpus

    def turn_costs(self, task: Task) -> float:
        """Seconds of work on each of its devices that a turn costs at most, the restart included; infinite: any."""
        service = self.of(task)
        return service.max_loss + _RESTART if service.turn_interval else math.inf

    def _unsaved(self, task: Task, interval: float) -> float:
        """Seconds of work since a task's last checkpoint, of which there is one every `interval` seconds of work."""
        return max(0.0, self.now - self.works_since(task)) % interval

    def works_since(self, task: Task) -> float:
        """Since when a task works: one that comes back must load its checkpoint first."""
        return begun(task) + (_RESTART if self.before(task) else 0.0)

    def runs(self, task: Task) -> None:
        """A task has come to run: others may take it now, or from some time on."""
        self.starts += 1
        self.watch(task)
        self._watch_limit(task, begun(task) + self.enforced_limit(task))

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._ends.drop(uid)
        self._due.drop(uid)

    @property
    def next_end(self) -> float | None:
        """When the next of those that run has run as long as it may."""
        return self._ends.next

    @property
    def next_due(self) -> float | None:
        """When the next of those that run may fall for somebody for whom it did not."""
        return self._due.next

    def due(self, tasks: dict[str, Task]) -> Iterator[Task]:
        """Those that have run long enough, or attained enough, to fall for somebody."""
        for uid in self._due.due(self.now):
            task = tasks.get(uid)
            if task is not None and task.row >= 0:
                yield task
                self.watch(task)

    def watch(self, task: Task) -> None:
        """Note when a task that runs may fall for somebody for whom it may not now."""
        service, start = self.of(task), begun(task)
        times = [start + service.min_runtime] if service.min_runtime and start + service.min_runtime > self.now else []
        rate = sum(each.shape.gpus for each in _mates(task)) if service.levels else 0
        if rate:
            attained = self.attained(task)
            times += [self.now + (level - attained) / rate for level in service.levels if level > attained][:1]
            if interval := service.turn_interval:
                times.append(max(self.now + interval - self._unsaved(task, interval), self.works_since(task) + interval))
        if times:
            self._due.put(task.pod.uid, max(min(times), self.now + _MOMENT))

    def before(self, task: Task) -> float:
        """Device-seconds that its job had before this pod: as it says, or as was remembered when it was suspended."""
        return task.pod.attained or self.carried.get(task.pod.owner, (0.0, 0.0))[0]

    def first_came(self, task: Task) -> float:
        """When its job came first, as far as it is known."""
        return self.carried.get(task.pod.owner, (0.0, task.pod.created))[1]

    def attained(self, task: Task) -> float:
        """Device-seconds that its job has had."""
        return self._attained(task, _mates(task))

    def attained_by(self, falling: Sequence[Task]) -> float:
        """The same of a job whose pods fall together, and have lost their places already."""
        first = falling[0]
        if first.gang is None or first.gang.group is None:
            return self.attained(first)
        return self._attained(first, {each.pod.uid: each for each in (*_mates(first), *falling)}.values())

    def _attained(self, task: Task, running: Iterable[Task]) -> float:
        return self.before(task) + sum((self.now - begun(each)) * each.shape.gpus for each in running)


def begun(task: Task) -> float:
    """Since when a task runs, as far as known."""
    if task.pod.started is not None:
        return task.pod.started
    return task.started or task.pod.created


def _mates(task: Task) -> Iterable[Task]:
    """A task and those of its gang that run."""
    if task.gang is None or task.gang.group is None:
        return (task,)
    return [each for each in task.gang.tasks.values() if each.row >= 0]

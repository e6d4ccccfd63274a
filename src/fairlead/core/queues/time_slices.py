"""Time slices: when work that runs gives up its place to work that attained less. For forecasts, which play the cluster forward.

`ServiceClass.preempts_by_service` decides who goes first, for evictions now and here for times to come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.attained import begun
from fairlead.core.queues.services import Services

_MOST = 48
"""So many times a task is asked in one forecast; what would happen after them depends on too much."""
_INSTANT = 1e-6  # seconds by which times that were computed differently may differ


class TimeSlice:
    """A task that runs, or a gang of them, that may lose its place for attained service. over: it has no place any more."""

    def __init__(self, tasks: tuple[Task, ...], services: Services) -> None:
        first = tasks[0]
        self.tasks = tasks
        self.over = False
        self.service: ServiceClass = services.of(first)
        self.queue = first.queue
        self.priority = max(task.pod.priority for task in tasks)
        self.rows = frozenset(task.row for task in tasks)
        self._now = services.now
        self._attained = services.attained.of(first, services.now)
        self._rate = sum(task.shape.devices for task in tasks)
        self._since = max(services.works_since(task) for task in tasks)
        self._earliest = max(begun(task) for task in tasks) + self.service.min_runtime
        self._interval = self.service.time_slice
        passed = max(0.0, self._now - self._since) // self._interval if self._interval else 0.0
        self._next = int(passed) + 1  # checkpoint at which it is asked next
        self._last = self._next + _MOST

    def level(self, at: float) -> int:
        """Its level of attained service at a time to come, if it runs until then."""
        return self.service.level(self._attained + self._rate * (at - self._now))

    def open(self, at: float) -> bool:
        """Whether it gives its place up at a time to come without losing too much."""
        return at + _INSTANT >= self._earliest and self.service.ends_time_slice(at - self._since + _INSTANT, _INSTANT)

    def next(self, after: float) -> float | None:
        """When it may give its place up to a unit to which it did not before, asked in order of time; None: no more."""
        if self._next >= self._last:
            return None
        if self._interval:
            at = self._since + self._next * self._interval
            self._next += 1
            return max(at, after)
        had = self._attained + self._rate * (after - self._now) + _INSTANT * self._rate
        level = next((each for each in self.service.levels if each > had), None)
        if level is None or not self._rate:
            return None
        self._next += 1
        return max(self._now + (level - self._attained) / self._rate, self._earliest)

    def gives_to(self, unit: Unit, taker: ServiceClass, at: float, *, near: bool) -> bool:
        """Whether it gives its place up to a unit that waits, if it is evicted at all then.

        taker: the unit's class; near: whether its scope reaches this task's queue.
        """
        return self.priority <= unit.priority and taker.preempts_by_service(unit.level, self.level(at), near=near)


def time_slices(running: Iterable[Task], services: Services) -> list[TimeSlice]:
    """Those that may ever give up their places so; none where no class lets them."""
    if not any(service.levels for service in services.classes.values()):
        return []
    gangs: dict[str, list[Task]] = {}
    for task in running:
        service = services.of(task)
        if service.levels and service.mode != "Never" and task.pod.ours and not task.pod.terminating:
            whole = task.gang is not None and task.gang.group is not None
            gangs.setdefault(task.gang.key if whole and task.gang is not None else task.pod.uid, []).append(task)
    return [TimeSlice(tuple(tasks), services) for tasks in gangs.values()]


def first_times(each: Iterable[TimeSlice], now: float) -> list[tuple[float, int, TimeSlice]]:
    """A heap's worth of (when it is asked first, order, time slice)."""
    times = ((one.next(now), number, one) for number, one in enumerate(each))
    return [(at, number, one) for at, number, one in times if at is not None and math.isfinite(at)]

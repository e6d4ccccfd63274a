"""Preemption classes: work of a queue that is equivalent for preemption, compared as one. There are few, however much runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.queue_node import PendingClass, QueueNode

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


class PreemptionClass(NamedTuple):
    """Work of a queue that is equivalent for preemption.

    preempts: whether it takes from any other; preemptible: whether it may be preempted. upstream: a pod of profile `kubernetes`,
    which takes from what has a lower priority in any queue, and for no other reason.
    """

    queue: QueueNode
    priority: int
    level: int
    service: ServiceClass
    preempts: bool
    preemptible: bool
    upstream: bool = False

    @property
    def express(self) -> bool:
        """Whether it takes from any queue."""
        return self.level < self.service.express

    @property
    def far(self) -> bool:
        """Whether it takes from other queues whatever the shares."""
        return self.preempts and (self.express or self.service.scope != "Queue" or self.upstream)

    def reaches(self, queue: QueueNode) -> bool:
        """Whether its service class lets it take work of a queue that ranks lower."""
        return self.queue.within_scope(self.service.scope, queue)

    def outranks(self, other: PreemptionClass) -> bool:
        """Whether it would take from another class that runs, if it waited, whatever the shares; or but for its quota."""
        if self.upstream:
            return self.preempts and other.priority < self.priority and (other.preemptible or other.upstream)
        if not self.preempts or not other.preemptible or other.priority > self.priority:
            return False
        near = self.reaches(other.queue)
        return (near and other.priority < self.priority) or self.service.preempts_by_service(self.level, other.level, near=near)


def preemption_classes(state: ClusterState) -> PreemptionClasses:
    """What runs and what waits, by preemption class, in this pass."""
    return state.pass_caches.get(PreemptionClasses)


class PreemptionClasses:
    """What runs and what waits, by preemption class, as things stand in one pass."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[tuple[object, ...], PreemptionClass] = {}  # so that what is alike is one object
        self._running: dict[str, list[PreemptionClass]] = {}
        self._least: dict[int, Task] = {}  # id of a class -> its smallest that runs
        self._waiting: dict[str, list[tuple[PreemptionClass, PendingClass, Unit]]] = {}
        self._wanted: dict[tuple[int, bool], bool] = {}  # (id of a class, whether it is an elastic replica)
        self._far: dict[str, bool] = {}  # queue -> whether something of it waits that takes from others
        self._wide: set[str] | None = None

    @property
    def cross(self) -> bool:
        """Whether anything takes from other queues whatever the shares."""
        return bool(self.wide) or bool(self._state.pods.upstream)

    @property
    def wide(self) -> set[str]:
        """The service classes that take from other queues whatever the shares; none where that comes to an end by itself.

        So does express work that all ranks alike: it takes from what is not express, and is not preempted by it.
        """
        if self._wide is None:
            classes = self._state.services.classes
            far = {name for name, service in classes.items() if service.scope != "Queue"}
            express = {name for name, service in classes.items() if service.express}
            if express and not far and len({(classes[name].levels, classes[name].express) for name in express}) == 1:
                express = express if len(self._priorities()) > 1 else set()
            self._wide = far | express
        return self._wide

    def _priorities(self) -> set[int]:
        """Of all that runs or waits."""
        queues = self._state.queues.queues.values()
        running = {each for queue in queues for each, count in queue.priorities.items() if count}
        firsts = (
            pending_class.first() for queue in queues for pending_class in queue.pending_classes.values() if pending_class.waiting
        )
        return running | {first.priority for first in firsts if first is not None}

    def of(self, task: Task, level: int) -> PreemptionClass:
        """The class of a task."""
        upstream = task.pod.profile == KUBERNETES_PROFILE and (task.gang is None or task.gang.needed <= 1)
        key = task.queue, task.pod.priority, level, task.service_class, task.pod.never_preempts, upstream
        found = self._known.get(key)
        if found is None:
            service, queue = self._state.services.of(task), self._state.queues.queues[task.queue]
            found = PreemptionClass(
                queue, task.pod.priority, level, service, not task.pod.never_preempts, service.mode != "Never", upstream
            )
            self._known[key] = found
        return found

    def of_unit(self, unit: Unit) -> PreemptionClass:
        """The class of a unit that waits, by its first member and the highest priority in it."""
        work = self.of(unit.tasks[0], unit.level)
        return work if work.priority == unit.priority else work._replace(priority=unit.priority)

    def running(self, queue: QueueNode) -> list[PreemptionClass]:
        """What runs in one queue itself."""
        found = self._running.get(queue.name)
        if found is None:
            level = self._state.services.level
            found = self._running[queue.name] = []
            for task in queue.placed.values():
                work = self.of(task, level(task))
                least = self._least.get(id(work))
                if least is None:
                    found.append(work)
                if least is None or task.shape.device_milli < least.shape.device_milli:
                    self._least[id(work)] = task
        return found

    def least(self, work: PreemptionClass) -> Task | None:
        """The smallest task of a class that runs, by devices; None: none does."""
        return self._least.get(id(work))

    def everywhere(self) -> Iterator[PreemptionClass]:
        """What runs in any queue."""
        for _, queue in sorted(self._state.queues.queues.items()):
            yield from self.running(queue)

    def waiting(self, queue: QueueNode) -> list[tuple[PreemptionClass, PendingClass, Unit]]:
        """What waits in one queue itself, where, and the first of it."""
        found = self._waiting.get(queue.name)
        if found is None:
            firsts = (
                (pending_class, pending_class.first())
                for pending_class in queue.pending_classes.values()
                if pending_class.waiting
            )
            found = [(self.of_unit(first), pending_class, first) for pending_class, first in firsts if first is not None]
        elif not all(first.alive for _, _, first in found):
            nexts = (
                (work, pending_class, first if first.alive else pending_class.first()) for work, pending_class, first in found
            )
            found = [(work, pending_class, first) for work, pending_class, first in nexts if first is not None]
        self._waiting[queue.name] = found
        return found

    def is_wanted(self, work: PreemptionClass, *, elastic: bool) -> bool:
        """Whether an unschedulable job would take from work of a class that has begun to run. Asked between passes."""
        key = id(work), elastic
        found = self._wanted.get(key)
        if found is None:
            rivals = self._unschedulable if elastic or self._any_far else self._of(work.queue.pending_classes.values())
            found = self._wanted[key] = any(
                (elastic and each.priority >= work.priority) or each.outranks(work) for each in rivals
            )
        return found

    @cached_property
    def _any_far(self) -> bool:
        """Whether work of some service class may take from other queues whatever the shares."""
        return any(service.scope != "Queue" or service.express for service in self._state.services.classes.values())

    @cached_property
    def _unschedulable(self) -> list[PreemptionClass]:
        """The classes of all that has no place, each once."""
        return self._of(self._state.queues.waiting.unschedulable)

    def _of(self, pending_classes: Iterable[PendingClass]) -> list[PreemptionClass]:
        """The classes of those that have no place, each once."""
        firsts = (each.first() for each in pending_classes if each.unschedulable is not None)
        works = (self.of_unit(first) for first in firsts if first is not None)
        alike = {
            (each.queue.name, each.priority, each.level, each.service.name, each.preempts, each.upstream): each for each in works
        }
        return list(alike.values())

    def waits_far(self, queue: QueueNode) -> bool:
        """Whether something waits in a queue that takes from others whatever the shares."""
        found = self._far.get(queue.name)
        if found is None:
            found = self._far[queue.name] = any(work.far for work, _, _ in self.waiting(queue))
        return found

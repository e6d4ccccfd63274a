"""What keeps work from taking places in circles, where several grounds meet.

Each ground alone comes to rest: who took on it is not taken from on it. But where classes reach beyond their queue, or express
work takes from any, one queue may lose to a third on another ground what it took from a second for its share, and so on round. So
nobody falls for shares who would come back on another ground, or whose falling would push on somebody who does; and nobody takes
from another queue what somebody who waits would take from him.

Work is looked at by kind, all of a queue that stands alike as one: there are few, however many run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from fairlead.core.model import ServiceClass
from fairlead.core.queues import Charge, QueueNode
from fairlead.core.tasks import Task, Unit

if TYPE_CHECKING:
    from fairlead.core.state import ClusterState


class Kind(NamedTuple):
    """Work of a queue that stands alike. preempts: whether it takes from anybody; falls: whether it may fall."""

    queue: QueueNode
    priority: int
    level: int
    service: ServiceClass
    preempts: bool
    falls: bool

    @property
    def express(self) -> bool:
        """Whether it takes from any queue."""
        return self.level < self.service.express

    def reaches(self, queue: QueueNode) -> bool:
        """Whether its class lets it take work of lower standing of a queue."""
        return self.queue.within_scope(self.service.scope, queue)

    def outranks(self, other: Kind) -> bool:
        """Whether it would take from another kind that runs, if it waited, whatever the shares."""
        if not self.preempts or not other.falls or other.priority > self.priority:
            return False
        near = self.reaches(other.queue)
        if near and other.priority < self.priority:
            return True
        return (
            bool(self.service.levels) and self.level < other.level and (near or self.level < self.service.express <= other.level)
        )


class Kinds:
    """What runs and what waits, by kind, as things stand in one pass."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[tuple[object, ...], Kind] = {}  # so that what is alike is one object
        self._running: dict[str, list[Kind]] = {}
        self._waiting: list[tuple[Kind, Unit, Charge]] | None = None
        self._wide: set[str] | None = None

    def forget(self) -> None:
        """Look at everything afresh."""
        self._known.clear()
        self._running.clear()
        self._waiting = self._wide = None

    @property
    def wide(self) -> set[str]:
        """The classes that take from other queues whatever the shares; none where that comes to rest by itself.

        So does express work that all stands alike: it takes from what is not express, and does not fall to it.
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
        """Of whatever runs or waits."""
        queues = self._state.queues.queues.values()
        running = {each for queue in queues for each, count in queue.priorities.items() if count}
        firsts = (room.first() for queue in queues for room in queue.rooms.values() if room.waiting)
        return running | {first.priority for first in firsts if first is not None}

    def of(self, task: Task, level: int) -> Kind:
        """The kind of a task."""
        key = task.queue, task.pod.priority, level, task.service_class, task.pod.never_preempts
        found = self._known.get(key)
        if found is None:
            service, queue = self._state.services.of(task), self._state.queues.queues[task.queue]
            found = Kind(queue, task.pod.priority, level, service, not task.pod.never_preempts, service.mode != "Never")
            self._known[key] = found
        return found

    def running(self, queue: QueueNode) -> list[Kind]:
        """What runs in one queue itself."""
        found = self._running.get(queue.name)
        if found is None:
            level = self._state.services.level
            kinds = (self.of(task, level(task)) for task in queue.placed.values())
            found = self._running[queue.name] = list({id(kind): kind for kind in kinds}.values())
        return found

    def everywhere(self) -> Iterator[Kind]:
        """What runs in any queue."""
        for _, queue in sorted(self._state.queues.queues.items()):
            yield from self.running(queue)

    def waiting(self) -> list[tuple[Kind, Unit, Charge]]:
        """What waits of wide classes, the first of those that are alike, and what it asks for."""
        if self._waiting is None:
            self._waiting = [
                (self.of(first.tasks[0], first.level), first, room.demand)
                for _, queue in sorted(self._state.queues.queues.items())
                for room in queue.rooms.values()
                if room.waiting and (first := room.first()) is not None and first.tasks[0].service_class in self.wide
            ]
        return self._waiting


class Circle:
    """One unit that would take from other queues, and who takes from it in turn."""

    def __init__(self, state: ClusterState, unit: Unit, demand: Charge) -> None:
        self._state = state
        self._kinds = state.kinds
        self._unit = unit
        self._offered = dict(demand)  # what somebody else would find in its place
        self._kind = self._kinds.of(unit.tasks[0], unit.level)._replace(priority=unit.priority)
        self._standing: list[Kind] | None = None  # of the unit and its queue
        self._firm: list[Kind] | None = None
        self._keeps: dict[int, bool] = {}  # id of a kind -> whether it keeps its place
        self._in_vain: bool | None = None

    @property
    def in_vain(self) -> bool:
        """Whether what it took from another queue somebody who waits would take from it."""
        if self._in_vain is None:
            taker = self._before() or self._above()
            self._in_vain = taker is not None
            if taker is not None and self._unit.room is not None:
                self._state.queues.behind[self._unit.room] = taker
        return self._in_vain

    def _before(self) -> Unit | None:
        """Somebody of its own queue who goes before it and could do with its place."""
        unit, queue = self._unit, self._kind.queue
        evens = queue.policy.users_reclaim and self._state.policy.reclaim
        for room in queue.rooms.values():
            if room.waiting and self._enough(room.demand) and (first := room.first()) is not None:
                if first.priority > unit.priority:
                    return first
                even = evens and first.priority == unit.priority and first.user != unit.user
                if even and queue.place(first) < queue.place(unit):
                    return first
        return None

    def _above(self) -> Unit | None:
        """Somebody of another queue who is of higher priority and could do with its place."""
        mine = self._kind
        for kind, other, demand in self._kinds.waiting():
            if kind.priority > mine.priority and kind.reaches(mine.queue) and self._enough(demand):
                return other
        return None

    def _enough(self, demand: Charge) -> bool:
        return all(amount <= self._offered.get(name, 0) for name, amount in demand)

    def keeps(self, task: Task, level: int) -> bool:
        """Whether a task of another queue, on a level of service, keeps its place for all that this unit's share is owed."""
        kind = self._kinds.of(task, level)
        keeps = self._keeps.get(id(kind))
        if keeps is None:
            keeps = self._returns(kind) or (kind.preempts and any(self._could_take(kind, firm) for firm in self._keeping()))
            self._keeps[id(kind)] = keeps
        if keeps or not self._unit.tasks[0].pod.surplus or task.pod.surplus:
            return keeps
        return kind.preempts and kind.priority >= self._kind.priority and kind.reaches(self._kind.queue)

    def spares(self, kind_priority: int) -> bool:
        """Whether express work of a priority keeps its place: for all but other express work, of no lower priority."""
        return not (self._kind.express and self._kind.priority >= kind_priority)

    def _returns(self, kind: Kind) -> bool:
        """Whether work that fell for this unit would take from it, or from others of its queue, whatever the shares."""
        if kind.express and self.spares(kind.priority):
            return True
        if not kind.express and kind.service.scope == "Queue":
            return False  # the hot path
        if self._standing is None:
            self._standing = [self._kind._replace(falls=True), *self._kinds.running(self._kind.queue)]
        return any(kind.outranks(each) for each in self._standing)

    def _keeping(self) -> list[Kind]:
        """Whatever would return, and whoever could take from that, and so on."""
        if self._firm is None:
            firm: list[Kind] = []
            rest: list[Kind] = []
            for kind in self._kinds.everywhere():
                (firm if self._returns(kind) else rest).append(kind)
            for each in firm:  # which grows
                pushing = [kind for kind in rest if kind.preempts and self._could_take(kind, each)]
                firm += pushing
                rest = [kind for kind in rest if kind not in pushing] if pushing else rest
            self._firm = firm
        return self._firm

    def _could_take(self, kind: Kind, firm: Kind) -> bool:
        """Whether work of a kind that waits could take from another that runs, on any ground."""
        if kind.outranks(firm):
            return True
        if not firm.falls or firm.priority > kind.priority or (firm.express and not kind.express):
            return False
        if kind.queue is firm.queue:
            return kind.queue.policy.users_reclaim and firm.priority == kind.priority
        fair = self._state.queues.fair
        return any(
            fair.over(node) or any(node.stays(name) > node.quota.get(name, 0) for name in fair.share.get(node.name, ()))
            for node in firm.queue.path
        )

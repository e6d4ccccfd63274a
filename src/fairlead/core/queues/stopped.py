"""Stopped lines: those that a limit of their user stops in a pending class, until it may let them go on.

That is so once the user holds less where users are limited, or the limits there change; once another unit is the line's
first; or where pods may be preempted whose place the user would take. Lines that none of this concerns are not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from fairlead.core.pods.tasks import Unit

if TYPE_CHECKING:
    from fairlead.core.queues.tree import PendingClass, QueueNode


class Stop(NamedTuple):
    """One line that is stopped: a user in a pending class."""

    pending_class: PendingClass
    user: str

    def order(self) -> tuple[tuple[str, str], str]:
        """The same in every process."""
        return self.pending_class.order(), self.user


class _Kind(NamedTuple):
    """What decides, as far as it does not change, whether there may be pods whose place a user would take."""

    queue: QueueNode
    priority: int
    service_class: str
    never_preempts: bool


_Stops = dict[Stop, None]
K = TypeVar("K")
V = TypeVar("V")


class StoppedLines:
    """All that are stopped, by what may let them go on."""

    def __init__(self) -> None:
        self._kinds: dict[Stop, _Kind] = {}
        self._by_user: dict[str, _Stops] = {}
        self._by_kind: dict[_Kind, dict[Stop, Unit]] = {}
        self._always: _Stops = {}  # tried again whatever is freed in their queues

    def add(self, pending_class: PendingClass, unit: Unit) -> None:
        """A limit stops the line of a unit, which was tried."""
        stop, first = Stop(pending_class, unit.user), unit.tasks[0]
        kind = _Kind(pending_class.queue, unit.priority, first.service_class, first.pod.never_preempts)
        self._kinds[stop] = kind
        self._by_user.setdefault(unit.user, {})[stop] = None
        self._by_kind.setdefault(kind, {})[stop] = unit
        if any(task.user != unit.user or task.queue != first.queue for task in unit.tasks):
            self._always[stop] = None  # other users' limits, or those of other queues, stop it, too

    def remove(self, stop: Stop) -> None:
        """A line is stopped no longer."""
        kind = self._kinds.pop(stop, None)
        if kind is None:
            return
        self._always.pop(stop, None)
        _leave(self._by_user, stop.user, stop)
        _leave(self._by_kind, kind, stop)

    def doubt(self, pending_class: PendingClass, users: Iterable[str]) -> None:
        """Another unit is the first of a line, or of its class: it is tried again with the next that is freed there."""
        for user in users:
            stop = Stop(pending_class, user)
            if stop in self._kinds:
                self._always[stop] = None

    def of_class(self, pending_class: PendingClass) -> list[Stop]:
        """All lines of a class that are stopped."""
        return [stop for user in pending_class.limited if (stop := Stop(pending_class, user)) in self._kinds]

    def freed(self, queues: Mapping[str, QueueNode], freed: set[str], may_take: Callable[[Unit], bool]) -> list[Stop]:
        """Those that may go on, in order. freed: queues that hold less, or may hold more.

        may_take: whether there may be pods that a unit would preempt, and whose user is its own.
        """
        nodes = [queues[name] for name in sorted(freed) if name in queues]
        less = [
            (node, node.users_with_less()) for node in nodes
        ]  # also where nothing is stopped: what will be is stopped as of now
        if not self._kinds:
            return []

        def concerned(stop: Stop) -> bool:
            return any(node.name in freed for node in stop.pending_class.queue.path)

        found = {stop: None for stop in self._always if concerned(stop)}
        for node, users in less:
            stops = (stop for user in users for stop in self._by_user.get(user, ())) if users is not None else self._kinds
            found.update((stop, None) for stop in stops if node in stop.pending_class.queue.path)
        for kind, theirs in self._by_kind.items():
            if any(node.name in freed for node in kind.queue.path) and may_take(next(iter(theirs.values()))):
                found.update(dict.fromkeys(theirs))
        return sorted(found, key=Stop.order)


def _leave(table: dict[K, dict[Stop, V]], key: K, stop: Stop) -> None:
    theirs = table[key]
    del theirs[stop]
    if not theirs:
        del table[key]

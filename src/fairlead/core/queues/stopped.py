"""Stopped lines: those that a limit of their user stops in a pending class, until it may let them go on.

That is so once the user holds less where users are limited, or the limits there change; once another unit is the line's
first; where pods may be preempted whose place the user would take, also once a node with new capacity would hold what takes it;
or, where a GPU counts as less on some nodes than on others, once any node has new capacity. Lines that none of this concerns are
not tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from fairlead.api.reasons import Reason
from fairlead.core.pods.tasks import Unit


class StopQueue(Protocol):
    """A queue, as far as it decides which lines may go on."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def path(self) -> tuple[StopQueue, ...]:
        """Itself, and those above it."""

    def users_with_less(self) -> Iterable[str] | None:
        """The users who hold less than before; None: any may."""


class StopOwner(Protocol):
    """A pending class whose lines may be stopped."""

    limited: dict[str, Reason]

    @property
    def queue(self) -> StopQueue:
        """Where it waits."""

    def order(self) -> tuple[str, str]:
        """The same in every process."""


C = TypeVar("C", bound=StopOwner)
K = TypeVar("K")
V = TypeVar("V")


class Stop(NamedTuple, Generic[C]):
    """One line that is stopped: a user in a pending class."""

    pending_class: C
    user: str

    def order(self) -> tuple[tuple[str, str], str]:
        """The same in every process."""
        return self.pending_class.order(), self.user


class _Kind(NamedTuple):
    """What decides, as far as it does not change, whether there may be pods whose place a user would take."""

    queue: StopQueue
    priority: int
    service_class: str
    never_preempts: bool


class StoppedLines(Generic[C]):
    """All that are stopped, by what may let them go on."""

    def __init__(self) -> None:
        self._kinds: dict[Stop[C], _Kind] = {}
        self._by_user: dict[str, dict[Stop[C], None]] = {}
        self._by_kind: dict[_Kind, dict[Stop[C], Unit]] = {}
        self._always: dict[Stop[C], None] = {}  # tried again whatever is freed in their queues
        self._by_row: dict[Stop[C], None] = {}  # tried again where a row has new capacity

    def add(self, pending_class: C, unit: Unit, *, by_row: bool = False) -> None:
        """A limit stops the line of a unit, which was tried. by_row: on some rows only."""
        stop, first = Stop(pending_class, unit.user), unit.tasks[0]
        kind = _Kind(pending_class.queue, unit.priority, first.service_class, first.pod.never_preempts)
        self._kinds[stop] = kind
        self._by_user.setdefault(unit.user, {})[stop] = None
        self._by_kind.setdefault(kind, {})[stop] = unit
        if any(task.user != unit.user or task.queue != first.queue for task in unit.tasks):
            self._always[stop] = None  # other users' limits, or those of other queues, stop it, too
        if by_row:
            self._by_row[stop] = None

    def remove(self, stop: Stop[C]) -> None:
        """A line is stopped no longer."""
        kind = self._kinds.pop(stop, None)
        if kind is None:
            return
        self._always.pop(stop, None)
        self._by_row.pop(stop, None)
        _leave(self._by_user, stop.user, stop)
        _leave(self._by_kind, kind, stop)

    def doubt(self, pending_class: C, users: Iterable[str]) -> None:
        """Another unit is the first of a line, or of its class: it is tried again with the next that is freed there."""
        for user in users:
            stop = Stop(pending_class, user)
            if stop in self._kinds:
                self._always[stop] = None

    def of_class(self, pending_class: C) -> list[Stop[C]]:
        """All lines of a class that are stopped."""
        return [stop for user in pending_class.limited if (stop := Stop(pending_class, user)) in self._kinds]

    def may_search(self, pending_class: C, users: Iterable[str], may_take: Callable[[Unit], bool]) -> list[Stop[C]]:
        """Those of some users in a class for which a search may find something, in order. may_take: as for `freed`.

        All units of a class are of one kind, so one is asked about.
        """
        stops = (stop for user in users if (stop := Stop(pending_class, user)) in self._kinds)
        first = next(stops, None)
        if first is None or not (first in self._by_row or may_take(self._by_kind[self._kinds[first]][first])):
            return []
        return sorted((first, *stops), key=Stop.order)

    def freed(
        self,
        queues: Mapping[str, StopQueue],
        freed: set[str],
        may_take: Callable[[Unit], bool],
        helps: Callable[[Unit], bool] | None = None,
    ) -> list[Stop[C]]:
        """Those that may go on, in order. freed: queues that hold less, or may hold more.

        may_take: whether there may be pods that a unit would preempt, and whose user is its own. helps: whether rows with new
        capacity would hold a unit that preempts pods there; None: no row has any.
        """
        nodes = [queues[name] for name in sorted(freed) if name in queues]
        less = [
            (node, node.users_with_less()) for node in nodes
        ]  # also where nothing is stopped: what will be is stopped as of now
        if not self._kinds:
            return []

        def concerned(stop: Stop[C]) -> bool:
            return any(node.name in freed for node in stop.pending_class.queue.path)

        found = {stop: None for stop in self._always if concerned(stop)}
        found.update(self._by_row if helps is not None else ())
        for node, users in less:
            stops = (stop for user in users for stop in self._by_user.get(user, ())) if users is not None else self._kinds
            found.update((stop, None) for stop in stops if node in stop.pending_class.queue.path)
        for kind, theirs in self._by_kind.items():
            concerns = any(node.name in freed for node in kind.queue.path)
            if (concerns or helps is not None) and may_take(next(iter(theirs.values()))):
                found.update((stop, None) for stop, unit in theirs.items() if concerns or (helps is not None and helps(unit)))
        return sorted(found, key=Stop.order)


def _leave(table: dict[K, dict[Stop[C], V]], key: K, stop: Stop[C]) -> None:
    theirs = table[key]
    del theirs[stop]
    if not theirs:
        del table[key]

"""A queue of the tree: its policy, what it holds, and its pending classes with the units that wait in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heappush

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.charges import Charge
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.pods.tasks import Task, TaskState, Unit, demand_of
from fairlead.core.queues.lines import Line, QueueLines
from fairlead.core.queues.meters import Meter
from fairlead.core.queues.searches import Search, Seen
from fairlead.core.queues.stopped import StoppedLines
from fairlead.core.queues.users import UserAmounts, UserHeap, UserKey

Step = tuple[int, float, float, float, str]
"""A queue's position among its siblings: (-priority, share with its head, -guarantee, when the head was created, its UID)."""

QueuePosition = tuple[int, bool, tuple[Step, ...]]
"""A position among all queues: priority at the root, whether the head is no express, a step for each queue from the root down."""

Key = tuple[int, bool, Step]
"""As heaps compare siblings: priority (at the root only), whether the head is no express, its step."""

Entry = tuple[Key, int, "QueueNode"]
"""A queue among its siblings: its key, a number of the entry, the queue."""

UnitKey = tuple[int, int, int, tuple[int, int], float, str]
"""How units of one queue compare: a unit's rank, in the middle what its user holds of the queue: (devices, CPU), in milli."""


class PendingClass:
    """Waiting units of one composition in one queue, a line for each user. unschedulable: why none can be placed now.

    limited: users for whom a limit stands in the way, and the reason.
    """

    __slots__ = (
        "_by_user",
        "_core_of",
        "_order",
        "beyond_core",
        "composition",
        "core",
        "core_charge",
        "demand",
        "elastic",
        "held_back",
        "lacks_place",
        "late",
        "limited",
        "lines",
        "moved",
        "of_gangs",
        "offered",
        "pods",
        "precedence",
        "queue",
        "rankings",
        "replans_at",
        "reported",
        "search",
        "seen",
        "unreported",
        "unschedulable",
        "waiting",
    )

    def __init__(self, queue: QueueNode, composition: tuple[object, ...], unit: Unit) -> None:
        self.queue = queue
        self.composition = composition
        self.ask(unit)
        self.rankings = Counter(task.ranking for task in unit.tasks[: unit.need])  # how many of these are of each shape
        self.waiting = 0  # units that wait here and are alive
        self.elastic = False  # whether there was a unit whose gang has members beyond it
        self.of_gangs = False  # whether there was a unit of a gang
        self.beyond_core = False  # whether there was one with members that it does not need, or in other queues
        self.pods = len(unit.tasks)  # of one unit
        self.precedence = unit.rank.precedence
        self.lines: dict[str, Line] = {}
        self._by_user: UserHeap | None = None  # made once it is asked which of several users is first
        self._order: tuple[str, str] | None = None
        self.limited: dict[str, Reason] = {}
        self.unschedulable: Reason | None = None
        self.replans_at = 0.0  # no reservation is planned before
        self.seen = Seen()
        self.search = Search()
        # why it was refused last, and versions of what decides that, if it lacks nothing but a place; see `actions.backoff`
        self.lacks_place: tuple[Reason, tuple[int, int, int]] | None = None
        self.held_back: Unit | None = None  # who would reclaim from its queue at once if it started
        self.offered: UserKey | None = None  # of its entry where it stands for its lines (`lines.Level`)
        self.moved = 0  # how often that entry sank
        self.unreported: dict[Unit, None] = {}  # came since the others were given the reason
        self.late: list[Unit] = []  # came since a limit stopped their users, and are not among these
        self.reported: ReasonCode | None = None

    def ask(self, unit: Unit) -> None:
        """What its units ask for, by one of them."""
        self.demand = unit.demand  # what one unit of it asks for
        self.core_charge = demand_of(unit.tasks[: unit.need])  # what its needed members ask for
        self.core = dict(self.core_charge)
        self._core_of: tuple[frozenset[str], Charge] = frozenset(), ()
        self.queue.alike = None

    def core_of(self, names: frozenset[str]) -> Charge:
        """What its needed members ask for of some resources."""
        if self._core_of[0] != names:
            self._core_of = names, tuple([each for each in self.core_charge if each[0] in names])
        return self._core_of[1]

    def leave(self, unit: Unit) -> None:
        """One of its units waits no longer."""
        self.waiting -= 1
        if not self.waiting:
            self.queue.alike = None
            self.queue.emptied[self] = None
        self.queue.changed[self] = None
        self.queue.pods_waiting -= self.pods
        self.queue.touch()
        if unit.user in self.limited:
            self.queue.stopped.doubt(self, (unit.user,))

    def __lt__(self, other: PendingClass) -> bool:
        return self.order() < other.order()

    def order(self) -> tuple[str, str]:
        """The same in every process: by queue, then by composition."""
        if self._order is None:
            self._order = self.queue.name, repr(self.composition)
        return self._order

    def add(self, unit: Unit) -> Line:
        """Let a unit wait here, in its user's line."""
        user = unit.user
        line = self.lines.get(user)
        if line is None:
            line = self.lines[user] = Line(self, user)
        self.queue.touch()
        heappush(line.units, (unit.rank, unit))
        if line.units[0][1] is unit:
            if self._by_user is not None:
                self._by_user.put(user)
            if user in self.limited:
                self.queue.stopped.doubt(self, (user,))
        return line

    def drop(self, line: Line) -> None:
        """Nothing is left of a line."""
        if self.lines.get(line.user) is line:
            del self.lines[line.user]

    def allow(self, user: str) -> None:
        """No limit stops a user any more."""
        del self.limited[user]
        if self._by_user is not None:
            self._by_user.put(user)
        if self.late:
            self.unreported.update((unit, None) for unit in self.late if unit.user == user)
            self.late = [unit for unit in self.late if unit.user != user]

    def distrust(self) -> None:
        """Derive anew which unit is first."""
        self._by_user = self.offered = None
        for line in self.lines.values():
            line.offered = None

    @property
    def units(self) -> Iterator[Unit]:
        """All that wait here."""
        return (unit for line in self.lines.values() for _, unit in line.units if unit.alive)

    @property
    def later(self) -> Iterator[Task]:
        """Members beyond their gangs' minima that come to wait once the units here have places."""
        return (task for unit in self.units for task in unit.later if task.state is TaskState.WAITING and task.unit is None)

    def in_order(self) -> list[Unit]:
        """Those of users whom no limit stops, in the present order of service."""
        return sorted((unit for unit in self.units if unit.user not in self.limited), key=self.queue.unit_key)

    def first(self) -> Unit | None:
        """The unit to serve next, of a user whom no limit stops; drops those that are gone on the way."""
        lines = self.lines
        if len(lines) == 1:
            # Most classes are of one user, and most often its oldest still waits.
            for user, line in lines.items():
                units = line.units
                if units and units[0][1].alive:
                    return None if user in self.limited else units[0][1]
            return self._first_of(user)
        if not lines:
            return None
        if self._by_user is None:
            self._by_user = UserHeap(self.queue.users, self._first_of)
            for user in list(lines):
                self._by_user.put(user)
        return self._by_user.first()

    def _first_of(self, user: str) -> Unit | None:
        """The first of one user whom no limit stops."""
        line = self.lines.get(user)
        if line is None:
            return None
        unit = line.first()
        if unit is None:
            del self.lines[user]
            return None
        return None if user in self.limited else unit


def pending_class_of(unit: Unit) -> PendingClass | None:
    """The pending class that a unit waits in; None: in none yet, or what is only tried waits nowhere."""
    return unit.pending_class if isinstance(unit.pending_class, PendingClass) else None


class QueueNode:
    """One queue: its policy, what it and its descendants hold, and its pending classes."""

    def __init__(
        self,
        name: str,
        parent: QueueNode | None,
        stopped: StoppedLines[PendingClass],
        changed: dict[PendingClass, None],
        emptied: dict[PendingClass, None],
    ) -> None:
        self.name = name
        self.stopped = stopped
        self.changed = changed
        self.emptied = emptied
        self.parent = parent
        self.policy = Queue(name)
        self.used: dict[str, int] = {}
        self.leaving: dict[str, int] = {}  # part of what is used: of victims whose places are given away
        self.foreign: dict[str, int] = {}  # part of what is used: held by pods of other schedulers, which are never preempted
        self.pending_classes: dict[tuple[object, ...], PendingClass] = {}
        self.alike: tuple[frozenset[str], list[list[PendingClass]]] | None = None  # see `alike_in`
        self.sweep_at = 0  # at so many pending classes those in which nothing waits are dissolved
        self.path: tuple[QueueNode, ...] = (self,)
        self.quota: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        self.pool_limits: list[tuple[str, str, int]] = []  # (resource, pool, base units)
        self.named: dict[str, QueueResource] = {}
        self.exists = False
        self.pods_waiting = 0
        self.seen = False  # as an object
        self.placed: dict[str, Task] = {}  # uid -> task of this very queue that has a node
        self.guests: dict[str, Task] = {}  # uid -> pod of another scheduler for which this very queue is charged
        self.priorities: dict[int, int] = {}  # class priority -> how many of those placed
        self.blocked: Unit | None = None  # the head that has no place, and that everything after it waits for
        self.users = UserAmounts()  # what users hold of this very queue
        self.lines = QueueLines(self.users)
        self.meter: Meter | None = None  # only where there are limits by user or by job
        self.measured_anew = False  # limits by user or by job may be others, or none
        self.listed = 0  # which entry in its parent's heap is its own; 0: none
        self.head: Unit | None = None  # the unit that is served next of it and those below it, if it was not touched since
        self.touched = True
        self.stamp = 0  # another whenever something waits in it, is refused or is let go on
        self.below: list[Entry] = []  # its children, as `core.order` keeps them
        self.guarantee = 0.0  # the largest part of all that there is of a resource that its quota is

    def __repr__(self) -> str:
        return f"<QueueNode {self.name}>"

    def within_scope(self, scope: str, other: QueueNode) -> bool:
        """Whether a class of this scope (`Queue`, `Parent`, `Cluster`) lets work of this queue take that of another."""
        if other is self or scope == "Cluster":
            return True
        return scope == "Parent" and (self.parent is None or self.parent in other.path)

    def alike_in(self, names: frozenset[str]) -> list[list[PendingClass]]:
        """The pending classes in which something waits, together those whose core asks for the same of these."""
        known = self.alike
        if known is None or known[0] != names:
            groups: dict[Charge, list[PendingClass]] = {}
            for each in self.pending_classes.values():
                if each.waiting:
                    groups.setdefault(each.core_of(names), []).append(each)
            known = self.alike = names, list(groups.values())
        return known[1]

    def keeps_back(self, unit: Unit) -> bool:
        """Whether a unit comes after the head that has no place. Which comes first depends on what users hold."""
        head = self.blocked
        return head is not None and head.alive and head is not unit and self.unit_key(head) < self.unit_key(unit)

    def first_refused(self) -> tuple[Unit, Reason] | None:
        """The first of those that wait in it and were tried, and why all of its pending class have no place."""
        found: tuple[UnitKey, Unit, Reason] | None = None
        for pending_class in self.pending_classes.values():
            for user, line in pending_class.lines.items():
                unit = line.first()
                reason = pending_class.limited.get(user) or pending_class.unschedulable
                if unit is not None and reason is not None and (found is None or self.unit_key(unit) < found[0]):
                    found = self.unit_key(unit), unit, reason
        return found[1:] if found is not None else None

    @property
    def holds(self) -> dict[str, tuple[int, int]]:
        """What each user holds of this very queue: (devices, CPU), in milli."""
        return self.users.held

    def holds_of(self, resource: str) -> int:
        """What it holds of a resource."""
        return self.used.get(resource, 0)

    def over_limit(self) -> bool:
        """Whether it holds more than one of its limits."""
        return any(self.used.get(resource, 0) > limit for resource, limit in self.limits.items())

    def stays(self, resource: str) -> int:
        """What it holds of a resource and is not about to leave."""
        return self.used.get(resource, 0) - self.leaving.get(resource, 0)

    def reclaimable(self, resource: str) -> int:
        """What it holds of a resource without what can never be reclaimed."""
        return self.used.get(resource, 0) - self.foreign.get(resource, 0)

    @property
    def charged(self) -> Iterator[Task]:
        """All for which this very queue is charged."""
        yield from self.placed.values()
        yield from self.guests.values()

    def rivals(self, other: QueueNode) -> tuple[QueueNode, QueueNode] | None:
        """The two siblings below which, or as which, this queue and another one are; None if one is above the other."""
        for one, two in zip(self.path[::-1], other.path[::-1], strict=False):
            if one is not two:
                return one, two
        return None

    def touch(self) -> None:
        """What it holds, or what waits in it, has changed: for those above it, too, another unit may be next."""
        self.stamp += 1
        for node in self.path:
            node.touched = True

    def users_with_less(self) -> list[str] | None:
        """The users who hold less of what is limited since this was asked last; None: all may, or limits changed."""
        anew, self.measured_anew = self.measured_anew, False
        if self.meter is None:
            return None if anew else []
        users = sorted(self.meter.less)
        self.meter.less.clear()
        return None if anew else users

    def up_to(self, top: QueueNode) -> tuple[QueueNode, ...]:
        """This queue and those above it, up to and with one of them."""
        return self.path[: self.path.index(top) + 1]

    def unit_key(self, unit: Unit) -> UnitKey:
        """The key of a unit in this queue: by priority, urgency and level, by what its user holds, by age."""
        priority, urgency, level, created, name = unit.rank
        devices, cpu, _, _ = self.users.key(unit)
        return priority, urgency, level, (devices, cpu), created, name


def touch_all(nodes: Iterable[QueueNode]) -> None:
    """`QueueNode.touch` of many, those above them once."""
    above: dict[QueueNode, None] = {}
    for node in nodes:
        node.stamp += 1
        node.touched = True
        if node.parent is not None:
            above[node.parent] = None
    for parent in above:
        for each in parent.path:
            each.touched = True

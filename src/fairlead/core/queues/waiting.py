"""Waiting work: the pending classes of each queue, and which unit is served next.

Inside a queue, waiting units are kept in pending classes (`tree.PendingClass`): one per composition (shape, priority, size),
since every verdict about one unit of a class holds for all of them. A class whose first unit cannot be placed is set aside as a
whole until something happens that could help. In a class each user has a line: among equals the user who holds least of the
queue goes first, and a limit for one user stops that line alone. Which queue is served next `order` decides.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

from fairlead.api.reasons import Reason
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.order import QueueOrder
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import PendingClass, Place, QueueNode, QueuePosition, QueueTree


class BlockedBy(NamedTuple):
    """The job that waits and would take a place in turn, and the victims whose place that is."""

    taker: Unit
    victims: list[Task]


class Versions(NamedTuple):
    """Versions of what may help any unschedulable class."""

    pairs: int
    storage: int
    shares: int
    starts: int
    reservations: int


class Waiting:
    """All units that wait, and the order in which they are served."""

    def __init__(self, tree: QueueTree, fair: FairShares) -> None:
        self.tree = tree
        self.fair = fair
        self.order = QueueOrder(tree.queues, self._first, fair.dominant_share_with)
        self._sequence = 0
        self.unschedulable: set[PendingClass] = set()
        self.held_back: set[PendingClass] = set()  # of the unschedulable: held back for a job that waits
        self.requeue_at: dict[PendingClass, float] = {}  # pending classes that are tried again at some time, whatever happens
        self.checked = Versions(0, 0, 0, 0, 0)  # as of the last check of all unschedulable classes
        self.limited: set[PendingClass] = set()  # where limits stop some users
        self.blocked_by: dict[PendingClass, BlockedBy] = {}  # would take from others in vain -> who would take that in turn
        self.unlisted: list[tuple[PendingClass, Exception]] = []  # could not be put in order, and why
        self.backing_off: set[PendingClass] = set()  # a search for victims was due during its backoff

    def push(self, name: str, unit: Unit) -> None:
        """Let a unit wait in its queue."""
        node = self.tree.node_of(name)
        composition = unit.composition
        pending_class = node.pending_classes.get(composition)
        if pending_class is None:
            pending_class = node.pending_classes[composition] = PendingClass(node, composition, unit)
        unit.pending_class = pending_class
        pending_class.waiting += 1
        pending_class.elastic = pending_class.elastic or bool(unit.later)
        node.pods_waiting += pending_class.pods
        self.fair.touch()
        heappush(pending_class.lines.setdefault(unit.user, []), (unit.rank, unit))
        if node.blocked is not None and unit.rank < node.blocked:
            node.blocked = None
            self._reopen(node)
        pending_class.unreported.append(unit)
        if (
            pending_class.unschedulable is None
            and unit.user not in pending_class.limited
            and pending_class.lines[unit.user][0][1] is unit
        ):
            self._offer(node, pending_class)
        elif pending_class.unschedulable is not None and node.policy.users_reclaim and pending_class.first() is unit:
            self.requeue(pending_class)  # what was in vain for another user need not be for this one

    def requeue(self, pending_class: PendingClass) -> None:
        """Something happened that could help the units of this class: they are tried again."""
        self.unschedulable.discard(pending_class)
        self.held_back.discard(pending_class)
        self.requeue_at.pop(pending_class, None)
        pending_class.unschedulable = pending_class.held_back = None
        if pending_class.queue.blocked is not None:
            pending_class.queue.blocked = None
            self._reopen(pending_class.queue)
        if not pending_class.waiting:
            self._dissolve(pending_class)
        else:
            self._offer(pending_class.queue, pending_class)

    def mark_unschedulable(self, pending_class: PendingClass, reason: Reason, again_at: float | None = None) -> list[Unit]:
        """None of the units of this class can be placed for now; returns those for which the reason is to be reported.

        again_at: when they are tried again although nothing happened.
        """
        if again_at is not None:
            self.requeue_at[pending_class] = again_at
        pending_class.unschedulable = reason
        self.unschedulable.add(pending_class)
        if pending_class.held_back is not None:
            self.held_back.add(pending_class)
        if pending_class.reported != reason.code:
            pending_class.reported = reason.code
            pending_class.unreported = sorted(pending_class.units)
        return self.to_report(pending_class)

    @property
    def releases(self) -> bool:
        """Whether a pending class is held back for a job that waits no longer."""
        return any(pending_class.held_back is not None and not pending_class.held_back.alive for pending_class in self.held_back)

    def limit(self, pending_class: PendingClass, user: str, reason: Reason) -> list[Unit]:
        """A limit stops one user's line here until it allows more, others are served. Returns the line's units."""
        pending_class.limited[user] = reason
        self.limited.add(pending_class)
        self._offer(pending_class.queue, pending_class)
        theirs = sorted(unit for _, unit in pending_class.lines.get(user, ()) if unit.alive)
        pending_class.unreported = [unit for unit in pending_class.unreported if unit.user != user]
        return theirs

    def retry_limited(self, freed: set[str]) -> None:
        """These queues hold less, or may hold more: users whom limits stopped are tried again."""
        for pending_class in sorted(
            (each for each in self.limited if any(node.name in freed for node in each.queue.path)), key=PendingClass.order
        ):
            self.limited.discard(pending_class)
            pending_class.limited.clear()
            if pending_class.unschedulable is None:
                self._offer(pending_class.queue, pending_class)

    def _dissolve(self, pending_class: PendingClass) -> None:
        """No unit waits in a class any more."""
        pending_class.queue.pending_classes.pop(pending_class.composition, None)
        self.limited.discard(pending_class)
        self.blocked_by.pop(pending_class, None)

    @property
    def next_due(self) -> float | None:
        """When something is tried again although nothing happened."""
        return min(
            (*self.requeue_at.values(), *(pending_class.search.backoff_until for pending_class in self.backing_off)), default=None
        )

    def due(self, now: float) -> list[PendingClass]:
        """Pending classes that are tried again by now although nothing happened."""
        return sorted((pending_class for pending_class, at in self.requeue_at.items() if at <= now), key=PendingClass.order)

    def backoff_over(self, now: float) -> list[PendingClass]:
        """Pending classes whose backoff is over: they may search again. Each is returned once."""
        found = sorted((each for each in self.backing_off if each.search.backoff_until <= now), key=PendingClass.order)
        self.backing_off.difference_update(found)
        return found

    def to_report(self, pending_class: PendingClass) -> list[Unit]:
        """Units of an unschedulable class for which the reason is not reported yet."""
        units, pending_class.unreported = [unit for unit in pending_class.unreported if unit.alive], []
        return units

    def block(self, pending_class: PendingClass) -> None:
        """Nothing after the first unit of this class is served before it, in its queue."""
        unit = pending_class.first()
        if unit is not None:
            pending_class.queue.blocked = unit.rank

    def _reopen(self, node: QueueNode) -> None:
        if node.heads and not node.listed:
            self.order.enlist(node)

    def _offer(self, node: QueueNode, pending_class: PendingClass) -> None:
        unit = pending_class.first()
        if unit is None:
            return
        self._head(node, pending_class, unit)
        if not node.listed or node.heads[0][2] is pending_class:
            self.order.enlist(node)  # once more if it may go before others now

    def queue_position(self, unit: Unit, *, held: bool = False) -> QueuePosition:
        """The position of a unit's queue among all, with the unit as its next. held: the unit has places already."""
        share = (lambda node, _: self.fair.dominant_share(node)) if held else None
        return self.order.position(self.tree.node_of(unit.tasks[0].queue), unit, share)

    def order_key(self, unit: Unit, *, held: bool = False) -> tuple[QueuePosition, Place]:
        """What orders units of all queues: the position of its queue, then its place in it. held: see `queue_position`."""
        return self.queue_position(unit, held=held), self.tree.node_of(unit.tasks[0].queue).place(unit)

    def restart(self, changed: QueueNode | None = None) -> None:
        """Shares may be smaller: order the queues anew before serving the next.

        changed: only what this queue and those above it hold changed.
        """
        self.order.again(changed)

    def next(self) -> Unit | None:
        """The unit that is served next, or None when nothing waits that could be tried."""
        return self.order.next()

    def count_anew(self) -> None:
        """How many units and pods wait is counted anew."""
        for node in self.tree.queues.values():
            for pending_class in node.pending_classes.values():
                pending_class.waiting = sum(1 for _ in pending_class.units)
            node.pods_waiting = sum(pending_class.waiting * pending_class.pods for pending_class in node.pending_classes.values())

    def relist(self) -> None:
        """Put all lines, and all queues, in order anew: also units that an exception kept from being put back."""
        self.order.clear()
        for node in self.tree.queues.values():
            node.heads.clear()
            node.heads_outdated = False
            for pending_class in list(node.pending_classes.values()):
                pending_class.offered = None
                if not pending_class.waiting:
                    self.unschedulable.discard(pending_class)
                    self.requeue_at.pop(pending_class, None)
                    self.backing_off.discard(pending_class)
                    self._dissolve(pending_class)
                elif pending_class.unschedulable is None:
                    try:
                        self._offer(node, pending_class)
                    except Exception as error:  # noqa: BLE001 - the others stand in line all the same
                        self.unlisted.append((pending_class, error))
        self.held_back = {pending_class for pending_class in self.unschedulable if pending_class.held_back is not None}

    def devices_waited_for(self, pending_class: PendingClass) -> int:
        """For how many devices the units of a class wait, in milli."""
        return pending_class.waiting * sum(
            amount for resource, amount in pending_class.demand if resource in self.tree.nodes.gpu_resources
        )

    def _first(self, node: QueueNode) -> Unit | None:
        if node.heads_outdated:
            # A user holds less than when the heads were put in order, and may go before others now.
            node.heads_outdated = False
            node.heads.clear()
            for pending_class in node.pending_classes.values():
                if pending_class.unschedulable is None and (unit := pending_class.first()) is not None:
                    self._head(node, pending_class, unit)
        heads = node.heads
        while heads and node.blocked is None:
            place, _, pending_class = heads[0]
            unit = pending_class.first() if pending_class.unschedulable is None else None
            if unit is not None:
                present = node.place(unit)
                if present == place:
                    return unit
                if pending_class.offered == place:  # it is out of date: its user holds more now, or another unit is its first
                    self._sequence += 1
                    pending_class.offered = present
                    heapreplace(heads, (present, self._sequence, pending_class))
                    continue
            heappop(heads)
            if (
                unit is None
                and pending_class.unschedulable is None
                and pending_class.offered == place
                and not pending_class.waiting
            ):
                self._dissolve(pending_class)
        return None

    def _head(self, node: QueueNode, pending_class: PendingClass, unit: Unit) -> None:
        self._sequence += 1
        pending_class.offered = node.place(unit)
        heappush(node.heads, (pending_class.offered, self._sequence, pending_class))

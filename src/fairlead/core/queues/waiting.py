"""Waiting work: the pending classes of each queue, and which unit is served next.

Inside a queue, waiting units are kept in pending classes (`tree.PendingClass`): one per composition (shape, priority, size),
since every verdict about one unit of a class holds for all of them. A class whose first unit cannot be placed is set aside as a
whole until something happens that could help. In a class each user has a line: among equals the user who holds least of the
queue goes first, and a limit for one user stops that line alone (`lines`). Which queue is served next `order` decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fairlead.api.reasons import Reason
from fairlead.core.model.agenda import SLACK, Agenda, Timers
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.backoff import BackoffClasses
from fairlead.core.queues.backoffs import Backoffs
from fairlead.core.queues.charged import ChargedQueues
from fairlead.core.queues.followed import Followed
from fairlead.core.queues.least_keys import LeastKeys
from fairlead.core.queues.lines import Line
from fairlead.core.queues.order import QueueOrder
from fairlead.core.queues.queue_node import PendingClass, QueueNode, QueuePosition, UnitKey, pending_class_of
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.stopped import Stop
from fairlead.core.queues.tree import QueueTree
from fairlead.core.queues.without_victims import WithoutVictims

_RENEWED = 20.0
"""Reasons that are found again each second after nodes changed."""


class BlockedBy(NamedTuple):
    """The job that waits and would take a place in turn, and the victims whose place that is."""

    taker: Unit
    victims: list[Task]


class Versions(NamedTuple):
    """Versions of what may help any unschedulable class."""

    pairs: int
    storage: int
    devices: int
    shares: int
    starts: int
    reservations: int
    levels: int
    pools: int


class Waiting:
    """All units that wait, and the order in which they are served."""

    def __init__(self, tree: QueueTree, fair: FairShares, charged: ChargedQueues, timers: Timers) -> None:
        self.tree = tree
        self.fair = fair
        self.order = QueueOrder(tree.queues, self._first, fair.dominant_share_with, lambda: tree.nodes.totals_version)
        self.unschedulable: set[PendingClass] = set()
        self.gangs: set[PendingClass] = set()  # of the unschedulable: those with gangs
        self.held_back: set[PendingClass] = set()  # of the unschedulable: held back for a job that waits
        self.plannable: set[PendingClass] = set()  # of the unschedulable: capacity may be reserved for them
        self.unreported: set[PendingClass] = set()  # in which units came since the others were given the reason
        self._requeues: Agenda[PendingClass] = timers.agenda("requeues")  # when they are tried again, whatever happens
        self._stops: Agenda[Stop[PendingClass]] = timers.agenda("stopped lines")  # the same of lines that limits stop
        self.checked = Versions(0, 0, 0, 0, 0, 0, 0, 0)  # as of the last check of all unschedulable classes
        self.late: set[PendingClass] = set()  # in which units came since a limit stopped their users
        self.blocked_by: dict[PendingClass, BlockedBy] = {}  # would take from others in vain -> who would take that in turn
        self.unlisted: list[tuple[PendingClass, Exception]] = []  # could not be put in order, and why
        self.backing_off = Backoffs(timers)
        self.backoff = BackoffClasses(tree.nodes)  # of the unschedulable: those that nothing but a free place helps
        self._least = LeastKeys(tree, fair, charged)
        self.others: set[PendingClass] = set()  # of the unschedulable: all others
        # Of the unschedulable: those for which victims are not searched for.
        self.without_victims = WithoutVictims(timers, Followed(tree, fair, charged))
        self.policies = 0  # version of queues and classes of service
        self.rows_gained = False  # rows have new capacity since moves were sought for what nothing may be preempted for
        self._described = tree.nodes.described  # as of which nodes classes are tried again for their reasons

    def push(self, name: str, unit: Unit) -> None:
        """Let a unit wait in its queue."""
        node = self.tree.node_of(name)
        composition = unit.composition
        pending_class = node.pending_classes.get(composition)
        if pending_class is None:
            if len(node.pending_classes) >= node.sweep_at:
                self._sweep(node)
            for task in unit.tasks if self.tree.parts.varies else ():
                self.tree.parts.asked(task.ranking)
            pending_class = node.pending_classes[composition] = PendingClass(node, composition, unit)
        unit.pending_class = pending_class
        pending_class.waiting += 1
        if pending_class.waiting == 1:
            node.alike = None
        if pending_class.unschedulable is None:
            pending_class.search.without_victims = False  # that was so for what waited before
        node.changed[pending_class] = None
        pending_class.elastic = pending_class.elastic or bool(unit.later)
        pending_class.of_gangs = pending_class.of_gangs or unit.gang is not None
        pending_class.beyond_core = pending_class.beyond_core or _is_beyond_core(unit)
        if pending_class.of_gangs and pending_class.unschedulable is not None:
            self.gangs.add(pending_class)
        node.pods_waiting += pending_class.pods
        self.fair.touch()
        line = pending_class.add(unit)
        if node.blocked is not None and not node.keeps_back(unit):
            self.order.reopen(node)
        if unit.user in pending_class.limited:
            pending_class.late.append(unit)
            self.late.add(pending_class)
        else:
            pending_class.unreported[unit] = None
            self.unreported.add(pending_class)
        if self.backoff and pending_class in self.backoff:
            self.backoff.discard(pending_class)  # what comes is refused in the order of service
            self.others.add(pending_class)
        if pending_class.unschedulable is None and unit.user not in pending_class.limited and line.units[0][1] is unit:
            self._offer_line(pending_class.queue, line)
        elif pending_class.unschedulable is not None and node.policy.users_reclaim and pending_class.first() is unit:
            self.requeue(pending_class)  # what was in vain for another user need not be for this one

    def requeue(self, pending_class: PendingClass, *, for_a_place: bool = False) -> None:
        """Something happened that could help the units of this class: they are tried again.

        for_a_place: only in that a place may be free; whether something may be preempted for them is as it was.
        """
        pending_class.search.without_victims = pending_class.search.without_victims and for_a_place
        self._leave_unschedulable(pending_class)
        if pending_class.held_back is not None and not pending_class.held_back.alive:
            self.backing_off.end(pending_class)  # what it was held back for is gone
        pending_class.unschedulable = pending_class.held_back = None
        pending_class.queue.changed[pending_class] = None
        pending_class.queue.touch()
        if (head := pending_class.queue.blocked) is not None:
            if head.pending_class is pending_class or not head.alive:
                pending_class.queue.blocked = None
            self.order.reopen(pending_class.queue)
        if not pending_class.waiting:
            self._dissolve(pending_class)
        else:
            self._offer(pending_class)

    def _leave_unschedulable(self, pending_class: PendingClass) -> None:
        for sets in (self.unschedulable, self.gangs, self.others, self.backoff, self.held_back, self.plannable):
            sets.discard(pending_class)
        self.without_victims.discard(pending_class)
        self._requeues.drop(pending_class)

    def back_off(self, pending_class: PendingClass) -> None:
        """Nothing but a free place helps an unschedulable class for now: it is in backoff, or without victims."""
        self.others.discard(pending_class)
        if pending_class not in self.backoff:
            self.backoff.add(pending_class)

    def may_take(self, pending_class: PendingClass) -> None:
        """Something may be preempted, or moved, for a class by now: it is checked like others, and searches when it is tried."""
        pending_class.search.without_victims = False
        self.without_victims.discard(pending_class)
        if pending_class in self.backoff:
            self.backoff.discard(pending_class)
            self.others.add(pending_class)

    def retry(self, pending_class: PendingClass, at: float) -> None:
        """An unschedulable class is tried again at a time, if not before, although nothing happened."""
        known = self._requeues.at(pending_class)
        if known is None or known > at:
            self._requeues.put(pending_class, at)

    def offer_backoff(self, rows: Sequence[int], *, express: bool) -> None:
        """Rows gained capacity: classes in backoff that one of them may hold stand in line. express: there may be such work."""
        opened = self.backoff.list_rows(rows)
        for lines in opened:
            if lines.node.blocked is not None:
                self.order.reopen(lines.node)
        if express:
            for lines in opened:
                lines.node.touch()
            self.order.enlist_all([lines.node for lines in opened])
            return
        self.order.enlist_least(self._least.of(opened))

    def close_backoff(self, *, end: bool = False) -> None:
        """No row holds any class in backoff. end: all that these rows help was tried."""
        if end:
            self.backoff.rows.clear()
        closed = self.backoff.close()
        self.order.unlist([node for node in closed if node.listed and not node.below and node.lines.first() is None])

    def renew_reasons(self, now: float) -> None:
        """If a node came, went or changed: why classes have no place may be another by now, though none has one.

        They are tried again for that one after the other, so many a second: many may wait, and nodes may change all the time.
        """
        described = self.tree.nodes.described
        if described == self._described:
            return
        self._described = described
        for number, pending_class in enumerate(sorted(self.unschedulable, key=PendingClass.order), 1):
            self.retry(pending_class, now + number / _RENEWED)

    def policy_changed(self) -> None:
        """A queue, or a class of service, is another: limits may keep out what waits."""
        self.policies += 1
        self._doubt_backoff()
        self.without_victims.forget_facts()
        for group in self.without_victims.groups():
            for pending_class in list(self.without_victims.alike(group)):
                self.may_take(pending_class)

    def _doubt_backoff(self) -> None:
        """More may help classes in backoff: they are checked like others."""
        self.others.update(self.backoff)
        self.backoff.clear()

    def is_refused(self, pending_class: PendingClass) -> bool:
        """Whether a class is unschedulable, and not to be tried again in this pass."""
        return pending_class.unschedulable is not None and not self.backoff.is_eligible(pending_class)

    def mark_unschedulable(self, pending_class: PendingClass, reason: Reason, again_at: float | None = None) -> list[Unit]:
        """None of the units of this class can be placed for now; returns those for which the reason is to be reported.

        again_at: when they are tried again although nothing happened.
        """
        if again_at is not None:
            self._requeues.put(pending_class, again_at)
        pending_class.unschedulable = reason
        pending_class.queue.changed[pending_class] = None
        pending_class.queue.touch()
        pending_class.offered, pending_class.moved = None, 0
        self.unschedulable.add(pending_class)
        if pending_class.of_gangs:
            self.gangs.add(pending_class)
        self.others.add(pending_class)
        if pending_class.held_back is not None:
            self.held_back.add(pending_class)
        if pending_class.reported != reason.code:
            pending_class.reported = reason.code
            pending_class.unreported = dict.fromkeys(pending_class.units)
            pending_class.late.clear()
        if pending_class.limited:
            self.tree.stopped.doubt(pending_class, pending_class.limited)
        return self.to_report(pending_class)

    @property
    def releases(self) -> bool:
        """Whether a pending class is held back for a job that waits no longer."""
        return any(pending_class.held_back is not None and not pending_class.held_back.alive for pending_class in self.held_back)

    def note_blocked(self, pending_class: PendingClass, blocked_by: BlockedBy | None) -> None:
        """Record what was found to block a class; None: nothing was found, and what is recorded holds until it is checked.

        Classes that exist in a trial only are left out.
        """
        if blocked_by is not None and pending_class.queue.pending_classes.get(pending_class.composition) is pending_class:
            self.blocked_by[pending_class] = blocked_by

    def limit(
        self, pending_class: PendingClass, user: str, reason: Reason, again_at: float | None = None, *, by_row: bool = False
    ) -> list[Unit]:
        """A limit stops one user's line here until it allows more, others are served. Returns the line's units.

        again_at: when the line is tried again although nothing happened. by_row: the limit keeps it from some rows only, so a
        place on another may help.
        """
        line = pending_class.lines.get(user)
        theirs = sorted(unit for _, unit in line.units if unit.alive) if line is not None else []
        if not theirs:
            return []
        pending_class.limited[user] = reason
        pending_class.queue.touch()
        self.tree.stopped.add(pending_class, theirs[0], by_row=by_row)
        if again_at is not None:
            self._stops.put(Stop(pending_class, user), again_at)
        for unit in theirs:
            pending_class.unreported.pop(unit, None)
        return theirs

    def retry_stopped(self, stops: Iterable[Stop[PendingClass]]) -> None:
        """Users whom limits stopped are tried again: those of `StoppedLines.freed` or `may_search`."""
        for stop in stops:
            self._allow(stop)

    def _allow(self, stop: Stop[PendingClass]) -> None:
        pending_class, user = stop
        self._stops.drop(stop)
        self.tree.stopped.remove(stop)
        pending_class.allow(user)
        if pending_class.unreported:
            self.unreported.add(pending_class)
        pending_class.queue.touch()
        line = pending_class.lines.get(user)
        if line is not None and pending_class.unschedulable is None:
            self._offer_line(pending_class.queue, line)

    def late_units(self) -> list[tuple[Reason, Unit]]:
        """Units that came since a limit stopped their users, each with the reason; each is returned once."""
        found = []
        for pending_class in sorted(self.late, key=PendingClass.order):
            found += [(pending_class.limited[unit.user], unit) for unit in pending_class.late if unit.alive]
            pending_class.late.clear()
        self.late.clear()
        return found

    def _sweep(self, node: QueueNode) -> None:
        """Classes in which nothing waits stay, for what comes to wait in them again, until there are too many."""
        for pending_class in list(node.pending_classes.values()):
            if not pending_class.waiting and pending_class.unschedulable is None:
                self._dissolve(pending_class)
        node.sweep_at = 2 * len(node.pending_classes) + SLACK

    def _dissolve(self, pending_class: PendingClass) -> None:
        """No unit waits in a class any more."""
        self.unreported.discard(pending_class)
        known = pending_class.queue.pending_classes
        if known.get(pending_class.composition) is pending_class:
            del known[pending_class.composition]
        for stop in self.tree.stopped.of_class(pending_class):
            self._stops.drop(stop)
            self.tree.stopped.remove(stop)
        self.blocked_by.pop(pending_class, None)

    def due(self, now: float) -> list[PendingClass]:
        """Pending classes that are tried again by now although nothing happened; so are users whom limits stopped."""
        for stop in self._stops.passed(now):
            self._allow(stop)
        return self._requeues.passed(now)

    def with_unreported(self) -> list[PendingClass]:
        """Unschedulable classes in which units came since the others were given the reason, in order."""
        self.unreported = {each for each in self.unreported if each.unreported and each.waiting}
        return sorted((each for each in self.unreported if each.unschedulable is not None), key=PendingClass.order)

    def to_report(self, pending_class: PendingClass) -> list[Unit]:
        """Units of an unschedulable class for which the reason is not reported yet."""
        units = [unit for unit in (*pending_class.unreported, *pending_class.late) if unit.alive]
        pending_class.unreported.clear()
        pending_class.late.clear()
        return units

    def block(self, pending_class: PendingClass) -> None:
        """Nothing after the first unit of this class is served before it, in its queue."""
        unit = pending_class.first()
        if unit is not None:
            pending_class.queue.blocked = unit
            pending_class.queue.touch()
            self.order.blocked[pending_class.queue] = None

    def _offer(self, pending_class: PendingClass) -> None:
        """All lines of a class may be tried."""
        node = pending_class.queue
        node.lines.offer_all(pending_class)
        first = node.lines.first()
        if first is not None and (not node.listed or first.pending_class is pending_class):
            self.order.enlist(node)  # once more if it may go before others now

    def _offer_line(self, node: QueueNode, line: Line) -> None:
        """The first of a line in a queue may be tried."""
        node.lines.offer(line)
        if not node.listed or node.lines.first() is line.first():
            self.order.enlist(node)

    def order_key(self, unit: Unit, *, held: bool = False) -> tuple[QueuePosition, UnitKey]:
        """What orders units of all queues: the position of its queue with the unit as its next, then its key in the queue.

        held: the unit has places already.
        """
        node = self.tree.node_of(unit.tasks[0].queue)
        share = (lambda node, _: self.fair.dominant_share(node)) if held else None
        return self.order.position(node, unit, share), node.unit_key(unit)

    def next(self) -> Unit | None:
        """The unit that is served next, or None when nothing waits that could be tried."""
        return self.order.next()

    def count_anew(self) -> None:
        """How many units and pods wait is counted anew."""
        for node in self.tree.queues.values():
            for pending_class in node.pending_classes.values():
                pending_class.waiting = sum(1 for _ in pending_class.units)
                node.changed[pending_class] = None
            node.alike = None
            node.pods_waiting = sum(pending_class.waiting * pending_class.pods for pending_class in node.pending_classes.values())

    def relist(self) -> None:
        """Put all lines, and all queues, in order anew: also units that an exception kept from being put back."""
        self._doubt_backoff()
        self.order.clear()
        self.order.touch_all()
        for node in self.tree.queues.values():
            node.lines.clear()
            for pending_class in list(node.pending_classes.values()):
                pending_class.distrust()
                if not pending_class.waiting:
                    self._leave_unschedulable(pending_class)
                    self.backing_off.discard(pending_class)
                    self._dissolve(pending_class)
                elif pending_class.unschedulable is None:
                    try:
                        for line in pending_class.lines.values():
                            if (unit := line.first()) is not None:
                                node.unit_key(unit)  # raises here rather than where another class is put in order
                        node.lines.offer_all(pending_class)
                    except Exception as error:  # noqa: BLE001 - the others stand in line all the same
                        self.unlisted.append((pending_class, error))
            first = node.lines.first()
            if first is not None and (whose := pending_class_of(first)) is not None:
                try:
                    self.order.enlist(node)
                except Exception as error:  # noqa: BLE001 - other queues are served all the same
                    self.unlisted.append((whose, error))
        self.held_back = {pending_class for pending_class in self.unschedulable if pending_class.held_back is not None}

    def devices_waited_for(self, pending_class: PendingClass) -> int:
        """For how many devices the units of a class wait, in milli."""
        return pending_class.waiting * sum(
            amount for resource, amount in pending_class.demand if resource in self.tree.nodes.gpu_resources
        )

    def _first(self, node: QueueNode) -> Unit | None:
        """The unit that a queue itself would serve next."""
        first = self._first_in_line(node)
        return None if node.blocked is not None and first is not None and node.keeps_back(first) else first

    def _first_in_line(self, node: QueueNode) -> Unit | None:
        first = node.lines.first()
        if not self.backoff:
            return first
        other = self.backoff.first(node)
        if other is None or first is None:
            return first or other
        return other if node.unit_key(other) < node.unit_key(first) else first


def _is_beyond_core(unit: Unit) -> bool:
    """Whether a unit may be charged for more than its core, or in more queues than one."""
    tasks = unit.tasks
    return bool(unit.later) or len(tasks) > unit.need or any(task.queue != tasks[0].queue for task in tasks[1:])

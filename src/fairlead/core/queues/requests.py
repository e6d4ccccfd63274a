"""What queues ask for: what they hold, and what waits in them. The latter is counted anew only for pending classes that changed.

A class counts what its units ask for, unless no share would help it: it fits no node as nodes are, or asks for more than there
is. So what nodes offer decides, too: where that is another, all classes are counted anew. Members beyond their gangs' minima,
and what is asked of pools, depend on more than that, and are counted each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.charges import Charge
from fairlead.core.queues.queue_node import PendingClass, QueueNode
from fairlead.core.queues.tree import QueueTree

HOPELESS = frozenset(
    {
        ReasonCode.NODE_AFFINITY,
        ReasonCode.TAINTS,
        ReasonCode.TOPOLOGY,
        ReasonCode.VOLUMES,
        ReasonCode.TOO_LARGE,
        ReasonCode.INVALID_SPEC,
    }
)
"""What waits for one of these could not use a larger share."""

_KNOWN_FROM_NODES = frozenset({ReasonCode.NODE_AFFINITY, ReasonCode.TAINTS, ReasonCode.TOO_LARGE})
Amounts = dict[str, int]


def is_hopeless(pending_class: PendingClass) -> bool:
    """Whether no share would help what waits in a class.

    What follows from labels, taints and sizes of nodes is asked of the nodes as they are, not of the last refusal: they may
    have changed since. What depends on other pods and on volumes is known from the refusal only. A gang that must be in one
    domain of the network waits for what runs there, if one would hold it.
    """
    reason = pending_class.unschedulable
    why = reason.code if reason is not None else None
    if reason is not None and why is ReasonCode.TOPOLOGY:
        needed = reason.numbers.get("needed", 0)
        why = None if 0 < needed <= reason.numbers.get("ceiling", 0) else why
    if why in HOPELESS and (why not in _KNOWN_FROM_NODES or any(each.relations for each in pending_class.rankings)):
        return True
    return not all(ranking.holds(count) for ranking, count in pending_class.rankings.items())


class Requests:
    """What each queue asks for, and those below it."""

    def __init__(self, tree: QueueTree) -> None:
        self._tree = tree
        self._waiting: dict[QueueNode, Amounts] = {}  # of the queue's own classes that are counted
        self._counted: dict[PendingClass, int] = {}  # how many units of it are counted
        self._elastic: dict[PendingClass, None] = {}  # classes with members beyond their gangs' minima, or that had some
        self._nodes = (-1, -1)  # versions of nodes, of which all this was counted
        self._totals: Amounts = {}  # what there is of each resource that a class asks for

    def by_queue(self) -> dict[str, Amounts]:
        """Queue -> resource -> what it, and those below it, hold and wait for."""
        tree = self._tree
        found = {name: {resource: held for resource, held in node.used.items() if held} for name, node in tree.queues.items()}
        if tree.pools.named:
            self._nodes = (-1, -1)
            classes = (each for node in tree.queues.values() for each in node.pending_classes.values())
            self._add_each(found, [each for each in classes if each.waiting])
            return found
        self._follow()
        for node, waiting in self._waiting.items():
            for above in node.path:
                _add(found[above.name], waiting.items())
        self._add_each(found, [each for each in self._elastic if each.waiting])
        return found

    def _follow(self) -> None:
        """Count what changed."""
        tree = self._tree
        versions = tree.nodes.described, tree.nodes.classes.epoch
        changed: Iterable[PendingClass] = list(tree.changed)
        tree.changed.clear()
        totals = {resource: tree.usable(resource) for resource in self._totals}
        if versions != self._nodes or totals != self._totals:
            self._nodes, self._totals = versions, totals
            self._waiting.clear()
            self._counted.clear()
            self._elastic.clear()
            changed = [each for node in tree.queues.values() for each in node.pending_classes.values()]
        for pending_class in changed:
            self._count(pending_class)

    def _count(self, pending_class: PendingClass) -> None:
        units = (
            pending_class.waiting if pending_class.queue.pending_classes.get(pending_class.composition) is pending_class else 0
        )
        if pending_class.elastic:
            self._elastic[pending_class] = None
            if not units:
                del self._elastic[pending_class]
            units = 0
        elif units and not self._helps(pending_class, self._totals):
            units = 0
        more = units - self._counted.pop(pending_class, 0)
        if units:
            self._counted[pending_class] = units
        if more:
            waiting = self._waiting.setdefault(pending_class.queue, {})
            _add(waiting, ((resource, amount * more) for resource, amount in pending_class.demand))
            for resource, _ in pending_class.demand if more < 0 else ():
                if waiting.get(resource) == 0:
                    del waiting[resource]  # nothing is asked for, rather than none of it

    def _helps(self, pending_class: PendingClass, totals: Amounts) -> bool:
        """Whether a share may help what waits in a class."""
        return not is_hopeless(pending_class) and not self._too_large(pending_class.core.items(), totals)

    def _too_large(self, wanted: Iterable[tuple[str, int]], totals: Amounts) -> bool:
        """Whether all that can be had is less than what is needed: that is known before it was tried. totals: known ones."""
        for resource, amount in wanted:
            total = totals.get(resource)
            if total is None:
                total = totals[resource] = self._tree.usable(resource)
            if amount > total:
                return True
        return False

    def _add_each(self, found: Mapping[str, Amounts], pending_classes: list[PendingClass]) -> None:
        """Add what classes ask for, as they are now."""
        totals: Amounts = {}
        for pending_class in pending_classes:
            if not self._helps(pending_class, totals):
                continue
            asked = [(resource, amount * pending_class.waiting) for resource, amount in self._asked(pending_class)]
            for above in pending_class.queue.path:
                _add(found[above.name], asked)
            for task in pending_class.later if pending_class.elastic else ():
                beyond = self._tree.asked(task.ranking)
                if task.ranking.holds(1) and not self._too_large(beyond, totals):
                    for above in self._tree.queues[task.queue].path:
                        _add(found[above.name], beyond)

    def _asked(self, pending_class: PendingClass) -> Charge:
        """What one unit of a class asks for, of pools, too, where it can run nowhere else."""
        unit = pending_class.first() or next(pending_class.units, None) if self._tree.pools.named else None
        return pending_class.demand if unit is None else self._tree.asked_together(unit.tasks)


def _add(amounts: Amounts, more: Iterable[tuple[str, int]]) -> None:
    for resource, amount in more:
        amounts[resource] = amounts.get(resource, 0) + amount

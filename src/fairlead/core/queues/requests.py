"""What queues ask for: what they hold, and what waits in them. It is added up anew only for queues of which either changed.

A class counts what its units ask for, unless no share would help it: it fits no node as nodes are, or asks for more than there
is. So what nodes offer decides, too: where that is another, all classes are counted anew. Members beyond their gangs' minima,
and what is asked of pools, depend on more than that, and are counted each time.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.charges import Charge
from fairlead.core.queues.charged import ChargedQueues
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
_NOTHING: Amounts = {}


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
    """What each queue asks for, and those below it.

    touched: the queues of which that may be another, or which hold something else, since it was cleared, with all above them;
    None: all.
    """

    def __init__(self, tree: QueueTree, charged: ChargedQueues) -> None:
        self.touched: dict[QueueNode, None] | None = None
        self._tree = tree
        self._charged = charged
        self._place = (-1, 0)  # in what was charged
        self._hung = -1  # version of which queue is below which
        self._found: dict[str, Amounts] = {}
        self._beyond: dict[QueueNode, Amounts] = {}  # what is counted each time, of classes below a queue
        self._waiting: dict[QueueNode, Amounts] = {}  # of the classes that are counted, of a queue and those below it
        self._counted: dict[PendingClass, int] = {}  # how many units of it are counted
        self._elastic: dict[PendingClass, None] = {}  # classes with members beyond their gangs' minima, or that had some
        self._nodes = (-1, -1)  # versions of nodes, of which all this was counted
        self._totals: Amounts = {}  # what there is of each resource that a class asks for

    def by_queue(self) -> dict[str, Amounts]:
        """Queue -> resource -> what it, and those below it, hold and wait for. Good until it is asked for again."""
        tree = self._tree
        if tree.pools.named:
            self._nodes, self.touched = (-1, -1), None
            found = {name: {resource: held for resource, held in node.used.items() if held} for name, node in tree.queues.items()}
            classes = (each for node in tree.queues.values() for each in node.pending_classes.values())
            for node, amounts in self._asked_each([each for each in classes if each.waiting]).items():
                _add(found[node.name], amounts.items())
            return found
        changed = self._follow()
        beyond = self._asked_each([each for each in self._elastic if each.waiting])
        if changed is None or self._beyond or beyond:  # all, or some more
            changed = dict.fromkeys(tree.queues.values() if changed is None else (*changed, *self._beyond, *beyond))
        self._beyond = beyond
        for node in changed:
            amounts = self._found[node.name] = {resource: held for resource, held in node.used.items() if held}
            _add(amounts, self._waiting.get(node, _NOTHING).items())
            _add(amounts, beyond.get(node, _NOTHING).items())
        if self.touched is not None:
            self.touched.update(changed)
        return self._found

    def _follow(self) -> dict[QueueNode, None] | None:
        """Count what changed; returns the queues of which something did, with all above them; None: all."""
        tree, charged = self._tree, self._charged
        versions = tree.nodes.described, tree.nodes.classes.epoch
        classes: Iterable[PendingClass] = list(tree.changed)
        tree.changed.clear()
        totals = {resource: tree.usable(resource) for resource in self._totals}
        others = charged.since(self._place)
        touched = dict.fromkeys(others) if others is not None else None
        self._place = charged.place
        if tree.hung != self._hung or len(self._found) != len(tree.queues):
            self._hung, self._nodes = tree.hung, (-1, -1)
        if versions != self._nodes or totals != self._totals:
            self._nodes, self._totals, touched = versions, totals, None
            self._waiting.clear()
            self._counted.clear()
            self._elastic.clear()
            classes = [each for node in tree.queues.values() for each in node.pending_classes.values()]
        for pending_class in classes:
            if self._count(pending_class) and touched is not None:
                touched.update(dict.fromkeys(pending_class.queue.path))
        if touched is None:
            self.touched = None
        return touched

    def _count(self, pending_class: PendingClass) -> bool:
        """Count what waits in a class; whether that is more or less than before."""
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
        for node in pending_class.queue.path if more else ():
            waiting = self._waiting.setdefault(node, {})
            _add(waiting, ((resource, amount * more) for resource, amount in pending_class.demand))
            for resource, _ in pending_class.demand if more < 0 else ():
                if waiting.get(resource) == 0:
                    del waiting[resource]  # nothing is asked for, rather than none of it
        return bool(more)

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

    def _asked_each(self, pending_classes: list[PendingClass]) -> dict[QueueNode, Amounts]:
        """What classes ask for, as they are now, of each queue and those below it."""
        totals: Amounts = {}
        found: dict[QueueNode, Amounts] = {}
        for pending_class in pending_classes:
            if not self._helps(pending_class, totals):
                continue
            asked = [(resource, amount * pending_class.waiting) for resource, amount in self._asked(pending_class)]
            for above in pending_class.queue.path:
                _add(found.setdefault(above, {}), asked)
            for task in pending_class.later if pending_class.elastic else ():
                beyond = self._tree.asked(task.ranking)
                if task.ranking.holds(1) and not self._too_large(beyond, totals):
                    for above in self._tree.queues[task.queue].path:
                        _add(found.setdefault(above, {}), beyond)
        return found

    def _asked(self, pending_class: PendingClass) -> Charge:
        """What one unit of a class asks for, of pools, too, where it can run nowhere else."""
        unit = pending_class.first() or next(pending_class.units, None) if self._tree.pools.named else None
        return pending_class.demand if unit is None else self._tree.asked_together(unit.tasks)


def _add(amounts: Amounts, more: Iterable[tuple[str, int]]) -> None:
    for resource, amount in more:
        amounts[resource] = amounts.get(resource, 0) + amount

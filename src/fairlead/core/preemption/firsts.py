"""Firsts: of each queue the first unit of each pending class that a larger share could help, in the order of service.

Every trial of who would reclaim a start asks that of all queues in which something may be entitled to more. It is kept until
something comes to wait in the queue, is refused or is let go on there (`QueueNode.stamp`), its users hold something else, or
nodes change.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.search import by_upstream
from fairlead.core.queues.queue_node import PendingClass, QueueNode, UnitKey
from fairlead.core.queues.requests import HOPELESS, is_hopeless
from fairlead.core.state.cluster import ClusterState

Entry = tuple[UnitKey, int, Unit]
"""A pending class in its queue: the key of its first, a number, its first."""


class _Known(NamedTuple):
    """What was found of a queue, and of what it follows. refused: those that were refused last; others: those that were not."""

    refused: list[Entry]
    others: list[Entry]
    stamp: int
    blocked: Unit | None
    held: dict[str, tuple[int, int]]
    past: dict[str, int]


class Firsts:
    """Those of all queues that were asked about."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[QueueNode, _Known] = {}
        self._versions = (-1, -1, -1)

    def follow(self) -> None:
        """Forget everything if nodes, or which queues there are, changed."""
        nodes = self._state.nodes
        versions = self._state.queues.tree.version, nodes.described, nodes.classes.epoch
        if versions != self._versions:
            self._versions = versions
            self._known.clear()

    def of(self, node: QueueNode, *, refused: bool) -> list[Entry]:
        """Those of a queue that are not to be tried again in this pass, or the others, in order; not to be written to.

        `follow` was called since nodes changed.
        """
        known, users = self._known.get(node), node.users
        if (
            known is None
            or known.stamp != node.stamp
            or known.blocked is not node.blocked
            or known.past is not users.past
            or known.held != users.held
        ):
            known = self._find(node)
        eligible = self._state.queues.waiting.backoff.eligible(node)
        if not eligible:
            return known.refused if refused else known.others
        if refused:
            return [entry for entry in known.refused if _class_of(entry) not in eligible]
        return sorted([*known.others, *(entry for entry in known.refused if _class_of(entry) in eligible)])

    def _find(self, node: QueueNode) -> _Known:
        entries = [(node.unit_key(unit), number, unit) for number, unit in enumerate(_firsts(node))]
        entries.sort()
        refused = [entry for entry in entries if _class_of(entry).unschedulable is not None]
        others = [entry for entry in entries if _class_of(entry).unschedulable is None]
        known = _Known(refused, others, node.stamp, node.blocked, dict(node.users.held), node.users.past)
        if not any(map(_depends_on_more, node.pending_classes.values())):
            self._known[node] = known
        return known


def _class_of(entry: Entry) -> PendingClass:
    pending_class = entry[2].pending_class
    if not isinstance(pending_class, PendingClass):
        raise TypeError("the first of a pending class waits in it")
    return pending_class


def _firsts(node: QueueNode) -> list[Unit]:
    """The first of each pending class of a queue that a larger share could help."""
    found = []
    for pending_class in node.pending_classes.values():
        if not pending_class.waiting or is_hopeless(pending_class):
            continue
        first = pending_class.first()
        if first is None or by_upstream(first) or first.tasks[0].pod.never_preempts:
            continue
        if not node.keeps_back(first):
            found.append(first)
    return found


def _depends_on_more(pending_class: PendingClass) -> bool:
    """Whether other pods, or volumes, may decide whether a share could help a class."""
    reason = pending_class.unschedulable
    return reason is not None and reason.code in HOPELESS

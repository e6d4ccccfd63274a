"""Least keys: what the key of a queue among its siblings is no less than, whichever of its classes in backoff is its head.

When a row gains capacity most queues have something for it, and one of them gets it. So they stand in the order of queues with
these keys, and only those that come to be the first have their heads determined (`QueueOrder.enlist_least`).
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.core.queues.backoff_lines import BackoffLines
from fairlead.core.queues.charged import ChargedQueues
from fairlead.core.queues.followed import Followed
from fairlead.core.queues.queue_node import Key, QueueNode
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import QueueTree

_CLASSES = 8  # a queue with more of them is compared by what it holds alone


class LeastKeys:
    """Of all queues; remembered until a queue holds something else, more waits in it, or shares are others."""

    def __init__(self, tree: QueueTree, fair: FairShares, charged: ChargedQueues) -> None:
        self._fair = fair
        self._followed = Followed(tree, fair, charged)
        self._known: dict[QueueNode, tuple[Key, BackoffLines, int]] = {}  # with its lines, and how many classes had come

    def of(self, opened: Iterable[BackoffLines]) -> list[tuple[QueueNode, Key]]:
        """The key of each queue, if the first of its classes in backoff were all eligible and none is express work."""
        known, changed, found = self._known, self._followed.changed(), []
        if changed is None:
            known.clear()
        for node in changed or ():
            known.pop(node, None)
        for lines in opened:
            kept = known.get(lines.node)
            if kept is None or kept[1] is not lines or kept[2] != lines.came:
                kept = known[lines.node] = self._key(lines), lines, lines.came
            found.append((lines.node, kept[0]))
        return found

    def _key(self, lines: BackoffLines) -> Key:
        node, priority = lines.node, -lines.node.policy.priority
        step = priority, self._least(lines), -node.guarantee, lines.oldest, ""
        return priority if node.parent is None else 0, True, step

    def _least(self, lines: BackoffLines) -> float:
        """The least part of its deserved share that it would hold with one more."""
        fair, node = self._fair, lines.node
        if len(lines.classes) > _CLASSES:
            return fair.dominant_share(node)
        return min((fair.dominant_share(node, each.core) for each in lines.classes), default=0.0)

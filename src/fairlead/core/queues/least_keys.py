"""Least keys: what the key of a queue among its siblings is no less than, whichever of its classes in backoff is its head.

When a row gains capacity most queues have something for it, and one of them gets it. So they stand in the order of queues with
these keys, and only those that come to be the first have their heads determined (`QueueOrder.enlist_least`).
"""

from __future__ import annotations

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
        self._known: dict[QueueNode, tuple[float, BackoffLines, int]] = {}  # share, its lines, and how many classes had come

    def follow(self) -> None:
        """Forget what is known of queues that hold something else, or of all where policies, shares or nodes changed."""
        changed = self._followed.changed()
        for node in list(self._known) if changed is None else changed:
            self._known.pop(node, None)

    def of(self, lines: BackoffLines) -> Key:
        """A queue's key, if the first of its classes in backoff were all eligible and none is express work."""
        node = lines.node
        known = self._known.get(node)
        if known is None or known[1] is not lines or known[2] != lines.came:
            known = self._known[node] = self._least(lines), lines, lines.came
        priority = -node.policy.priority
        return priority if node.parent is None else 0, True, (priority, known[0], -node.guarantee, lines.oldest, "")

    def _least(self, lines: BackoffLines) -> float:
        """The least part of its deserved share that it would hold with one more."""
        fair, node = self._fair, lines.node
        if len(lines.classes) > _CLASSES:
            return fair.dominant_share(node)
        return min((fair.dominant_share(node, each.core) for each in lines.classes), default=0.0)

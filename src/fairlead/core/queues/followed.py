"""What follows from what a queue holds by its policy and its share: of which queues it may be another since it was asked last."""

from __future__ import annotations

from collections.abc import Collection

from fairlead.core.queues.charged import ChargedQueues
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import QueueTree


class Followed:
    """Shares, policies and what all nodes offer as of the last question, and the place in what was charged."""

    def __init__(self, tree: QueueTree, fair: FairShares, charged: ChargedQueues) -> None:
        self._tree = tree
        self._fair = fair
        self._charged = charged
        self._place = (-1, 0)
        self._share = fair.share
        self._versions = (-1, -1)

    def changed(self) -> Collection[QueueNode] | None:
        """The queues that hold something else; None: it may be any, where policies, shares or nodes changed."""
        fair, versions = self._fair, (self._tree.version, self._tree.nodes.totals_version)
        changed = self._charged.since(self._place)
        self._place = self._charged.place
        if fair.share is not self._share or versions != self._versions:
            self._share, self._versions = fair.share, versions
            return None
        return changed

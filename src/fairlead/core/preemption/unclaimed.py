"""Whether nothing that waits may reclaim what was just placed, whatever finds a free place before it: then there is no trial.

That is so where the queue of what was placed, and all above it, stay within their fair shares, if nothing can come of either
entitlement. What is placed in a trial only adds to what queues hold, and none of it to that queue itself:

- **By quota** queues reclaim from a sibling beyond its quota while they stay within theirs with what they ask for. What does not
  at first never does.
- **By share** they reclaim from a sibling beyond its share, and below that only from queues that are beyond theirs. A queue
  above may come to be, by what is placed elsewhere below it. A queue with pods of its own does not: what is placed in the trial
  stays within its queue's share. So this is out of the question where no queue below the same root holds more than its share of
  anything at first.

Where that does not follow from what is known at once, the trial decides.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.core.model.charges import Charge
from fairlead.core.preemption.trial import Trial
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.state.cluster import ClusterState


class _InnerQueues:
    """The queues that have others below them."""

    def __init__(self, state: ClusterState) -> None:
        self._tree = state.queues.tree
        self._version = -1
        self._inner: list[QueueNode] = []

    def have_pods(self) -> bool:
        """Whether any has pods of its own."""
        if self._version != self._tree.version:
            self._version = self._tree.version
            parents = {node.parent.name: node.parent for node in self._tree.queues.values() if node.parent is not None}
            self._inner = list(parents.values())
        return any(node.placed for node in self._inner)


def is_unclaimed(trial: Trial) -> bool:
    """Whether nothing can reclaim what a trial is about; the trial has just begun, and nothing was tried."""
    state = trial.state
    queues = state.queues
    if not trial.within or trial.by_class or queues.tree.pools.named or queues.guarantees.classes:
        return False  # what is charged depends on the place, or a guarantee on more than what queues hold
    return not _may_share(trial) and all(_is_harmless(trial, node) for node in trial.claiming())


def _may_share(trial: Trial) -> bool:
    """Whether the queue of what was placed, or another one below the same root, may be beyond its share of anything."""
    root, state = trial.own.path[-1], trial.state
    if any(root in node.path and node.placed for node in state.queues.lenders.beyond_shares()):
        return True
    return root is not trial.own and state.caches.get(_InnerQueues).have_pods()


def _is_harmless(trial: Trial, node: QueueNode) -> bool:
    """Whether what waits in a queue is not within its quota, and what may be placed of it stays within the queue's share."""
    fair = trial.state.queues.fair
    share, rivals = fair.share.get(node.name), trial.own.rivals(node)
    if not share or rivals is None:
        return False
    mine, contested = rivals[1], fair.contested(rivals[1])
    for group in trial.groups(node):
        charge = group[0].core_charge
        if any(each.beyond_core for each in group) or (_within_quota(node, share, charge) and not fair.within(node, charge)):
            return False
        if _within_quota(mine, contested, charge) and any(name in contested for name, _ in charge):
            return False
    return True


def _within_quota(node: QueueNode, names: Iterable[str], charge: Charge) -> bool:
    return all(node.used.get(name, 0) + amount <= node.quota.get(name, 0) for name, amount in charge if name in names)

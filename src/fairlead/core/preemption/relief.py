"""Relief: what can be preempted at most below the queues above one, by which these hold less. More may be reclaimable then.

Where queues take from each other for shares only, that is, level by level from below, what siblings hold from which the queue may
reclaim with what is preempted below them. To preempt makes no queue a lender, and most often there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import pairwise

from fairlead.core.queues.entitlement import beyond_quota, within_share
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import QueueTree

Relief = dict[str, dict[str, int]]
"""Queue -> resource -> what it would hold less."""


def of_all(own: QueueNode) -> Relief:
    """All that is not the queue's own, for whatever reason it may be preempted."""
    return {node.name: {name: node.reclaimable(name) - own.reclaimable(name) for name in node.used} for node in own.path[1:]}


def of_lenders(
    own: QueueNode,
    demand: Sequence[tuple[str, int]],
    fair: FairShares,
    tree: QueueTree,
    guaranteed: Callable[[QueueNode, Relief], Collection[str]],
) -> Relief:
    """What lenders hold. demand: what is asked for besides what the queue holds.

    guaranteed: of what is scarce for a queue on its path, if it is guaranteed that with the demand, and without so much.
    """
    asked = frozenset(name for name, _ in demand)
    lent: dict[str, int] = {}
    found: Relief = {}
    for mine, above in pairwise(own.path):
        siblings = [each for each in tree.below(above) if each is not mine]
        lenders: dict[QueueNode, None] = {}
        if within_share(fair, own.up_to(mine), demand, found):
            lenders |= dict.fromkeys(tree.lowest(siblings, lambda node: fair.over(node, None, asked)))
        if names := guaranteed(mine, found):
            lenders |= dict.fromkeys(tree.lowest(siblings, partial(_is_beyond, names)))
        for lender in lenders:
            for name in lender.used:
                lent[name] = lent.get(name, 0) + lender.reclaimable(name)
        if lent:
            found[above.name] = dict(lent)
    return found


def _is_beyond(names: Collection[str], node: QueueNode) -> bool:
    """Whether a queue holds more than its quota of one of some resources."""
    return beyond_quota([node], names, QueueNode.stays)

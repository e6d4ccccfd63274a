"""Whose resources a queue may reclaim for its share or its quota: one rule for all that reclaim.

Two queues meet at the two siblings that are them or above them. A queue reclaims from another only while it, and all above it
up to its sibling, stay within their fair shares or quotas, and while the other, and all above that, hold more than theirs. The
caller gives what is held: as things stand, without what is leaving, or in a plan that is being made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fairlead.core.queues.queue_node import QueueNode

if TYPE_CHECKING:
    from fairlead.core.queues.shares import FairShares

_NOTHING: dict[str, dict[str, int]] = {}


class Entitlement(NamedTuple):
    """A queue that may reclaim from another. mine, theirs: the siblings that are them or above them.

    claimants: the queue and those above it, up to `mine`; lenders: the other and those above it, up to `theirs`.
    """

    mine: QueueNode
    theirs: QueueNode
    claimants: tuple[QueueNode, ...]
    lenders: tuple[QueueNode, ...]


def against(queue: QueueNode, other: QueueNode) -> Entitlement | None:
    """The entitlement of a queue against another one; None if one is above the other: these share their resources."""
    rivals = queue.rivals(other)
    if rivals is None:
        return None
    mine, theirs = rivals
    return Entitlement(mine, theirs, queue.up_to(mine), other.up_to(theirs))


def within_share(
    fair: FairShares, nodes: Iterable[QueueNode], demand: Sequence[tuple[str, int]], less: Mapping[str, dict[str, int]] = _NOTHING
) -> bool:
    """Whether each of some queues stays within its fair share with so much more. less: queue -> what it would not hold."""
    return all(fair.within(node, demand, less.get(node.name)) for node in nodes)


def beyond_share(
    fair: FairShares, nodes: Iterable[QueueNode], wanted: Collection[str] | None, less: Mapping[str, dict[str, int]] = _NOTHING
) -> bool:
    """Whether each of some queues holds more than its fair share of something. less: queue -> what it would not hold.

    wanted: what the reclaiming job asks for; None: not known, it may be anything. What may run in any pool asks for none and is
    not judged by a pool's shares. So nothing that a queue holds beyond those only is its to reclaim: the queue would reclaim it
    again at once.
    """
    return all(fair.over(node, less.get(node.name), wanted) for node in nodes)


def beyond_quota(nodes: Iterable[QueueNode], names: Collection[str], held: Callable[[QueueNode, str], int]) -> bool:
    """Whether each of some queues holds more than its quota of one of some resources."""
    return all(any(held(node, name) > node.quota.get(name, 0) for name in names) for node in nodes)

"""What is fair now: the shares of all queues, from what they hold, what they wait for and what they used of late.

Every resource is divided by itself, level by level: the cluster among the queues at the root, each queue's share among its
children. A queue's request is what it holds plus what it waits for, so placing alone changes no share: shares are made anew once
per pass at most, only if something came, went or was edited since, and only where that decides (`sibling_shares`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fairlead.api.names import CPU, MEMORY
from fairlead.core.model.charges import split
from fairlead.core.model.policy import Policy
from fairlead.core.model.units import WHOLE
from fairlead.core.queues.queue_node import PendingClass
from fairlead.core.queues.requests import Requests
from fairlead.core.queues.sibling_shares import Shares, SiblingShares
from fairlead.core.queues.usage import UsageBook

if TYPE_CHECKING:
    from fairlead.core.pods.tasks import Task, Unit
    from fairlead.core.queues.charged import ChargedQueues
    from fairlead.core.queues.queue_node import QueueNode
    from fairlead.core.queues.tree import QueueTree

_NOTHING: dict[str, int] = {}
_USAGE_STEP = 60.0  # seconds after which shares follow usage although nothing else happened


class Division(NamedTuple):
    """What each queue deserves; see `FairShares`."""

    share: Shares
    entitled: Shares
    disputed: frozenset[str]


class FairShares:
    """The fair shares of a tree. share: queue -> resource -> base units, only where there is not enough for all siblings.

    entitled: what a queue may hold of these before others may reclaim from it.
    """

    def __init__(self, tree: QueueTree, policy: Policy, charged: ChargedQueues) -> None:
        self.tree = tree
        self.policy = policy
        self.stale = True
        self._waiting: list[int] = []  # pods that waited in each queue
        self._requests = Requests(tree, charged)
        self._siblings = self._new_siblings()
        self._version = -1  # of the tree
        self.touched = True  # something came, went or was edited since this was set to False
        self.version = 0
        self.names_version = 0  # of which queues have a share of what
        self._names: dict[str, tuple[str, ...]] = {}
        self.share: Shares = {}
        self.entitled: Shares = {}
        self.disputed: frozenset[str] = frozenset()  # resources of which some queue has a share
        self.usage = UsageBook(policy.usage_half_life)
        self._at = -math.inf
        self._without: dict[frozenset[str], Division] = {}  # pods -> the division were they gone

    def touch(self) -> None:
        """Something came, went, moved or was edited."""
        self.stale = self.touched = True

    def refresh(self, now: float) -> bool:
        """Bring shares up to date; whether any changed."""
        half_life = self.policy.usage_half_life
        if half_life:
            self.follow(now)
            self.stale |= now - self._at >= _USAGE_STEP
        waiting = [node.pods_waiting for node in self.tree.queues.values()]
        if not self.stale and waiting == self._waiting:  # who was deleted while it waited touched nothing
            return False
        self.stale, self._waiting = False, waiting
        self._at = now
        self._without.clear()
        requests = self._requests.by_queue()
        changed = self._siblings.follow(requests, self._requests.touched, now, self.share)
        self._requests.touched = {}
        if not self._take(changed):
            return False  # what is remembered by these very shares still holds
        self.version += 1
        names = {queue: tuple(scarce) for queue, scarce in self.share.items()}
        if names != self._names:
            self._names = names
            self.names_version += 1
        return True

    def knows(self, gone: frozenset[str]) -> bool:
        """Whether the shares without pods of these UIDs were made already."""
        return gone in self._without

    @contextmanager
    def without(self, gone: frozenset[str], now: float) -> Iterator[None]:
        """Within this, shares are those of a trial in which pods of these UIDs are gone; made once until shares are made anew."""
        found = self._without.get(gone)
        if found is None:
            found = self._without[gone] = self._divided(now)
        outer = Division(self.share, self.entitled, self.disputed)
        self._set(found)
        try:
            yield
        finally:
            self._set(outer)

    def _set(self, division: Division) -> None:
        self.share, self.entitled, self.disputed = division

    def _new_siblings(self) -> SiblingShares:
        return SiblingShares(self.tree, self.policy, self.usage_of, self._foreign)

    def _take(self, changed: Collection[str]) -> bool:
        """Take over the shares that were made; whether any is another. changed: the queues of which one is."""
        version, self._version = self._version, self.tree.version
        if not changed and version == self._version:
            return False
        if version != self._version:
            self._set(self._division(self._siblings.share))
            return bool(changed)
        share, entitled = self._siblings.share, dict(self.entitled)
        for name in changed:
            entitled.pop(name, None)
            if name in share:
                entitled[name] = _entitled(self.tree.queues[name], share[name])
        self._set(Division(share, entitled, _disputed(share)))
        return True

    def _divided(self, now: float) -> Division:
        siblings = self._new_siblings()
        siblings.follow(self._requests.by_queue(), None, now, {})
        return self._division(siblings.share)

    def _division(self, share: Shares) -> Division:
        entitled = {name: _entitled(self.tree.queues[name], scarce) for name, scarce in share.items()}
        return Division(share, entitled, _disputed(share))

    def follow(self, now: float) -> None:
        """Note what is held from now on."""
        if self.policy.usage_half_life:
            self.usage.follow(self.tree, now)

    def within(self, node: QueueNode, charge: Sequence[tuple[str, int]], less: dict[str, int] | None = None) -> bool:
        """Whether a queue stays within its fair share with so much more, and without so much less."""
        fair, gone = self.share.get(node.name, _NOTHING), less or _NOTHING
        return all(node.used.get(name, 0) - gone.get(name, 0) + amount <= fair[name] for name, amount in charge if name in fair)

    def over(self, node: QueueNode, less: dict[str, int] | None = None, wanted: Collection[str] | None = None) -> bool:
        """Whether a queue holds more of a resource than it may, without so much less.

        wanted: the resources that are asked for; pools that are not among them do not count. None: all count.
        """
        for name, may in self.entitled.get(node.name, _NOTHING).items():
            counts = wanted is None or name in wanted or not split(name)[1]
            if counts and node.stays(name) - (less.get(name, 0) if less else 0) > may:
                return True
        return False

    def scarce(self, node: QueueNode) -> bool:
        """Whether siblings cannot all have what they ask for, the queue's own or those of one above it."""
        return any(each.name in self.share for each in node.path)

    def due(self, unit: Unit, node: QueueNode, wait: float) -> float:
        """From when on a unit gets what makes up its queue's share, though a lender is left with less than its own by that.

        Victims come in whole jobs: what a lender holds beyond its share may be part of one that is larger. node: its queue.
        wait: seconds that a unit waits for it at most, 0: without end (infinity), as where nothing is scarce.
        """
        if not wait or unit.tasks[0].pod.never_preempts:
            return math.inf
        if not self.scarce(node):
            return math.inf
        return unit.since + wait

    def contested(self, node: QueueNode, *, enforce_quota: bool = False) -> AbstractSet[str]:
        """The resources that a queue and its siblings take from each other: those that are scarce among them.

        Where something is short above them there may be enough for all siblings by what their parent deserves, but not by what
        it holds: then what they are guaranteed decides. enforce_quota: it decides though nothing is short, but is
        fragmented.
        """
        own = self.share.get(node.name, _NOTHING)
        if enforce_quota or (not own and self.scarce(node)):
            return {*own, *(name for name, quota in node.quota.items() if quota)}
        return own.keys()

    def names_of(self, node: QueueNode) -> frozenset[str]:
        """The resources that shares and quotas of a queue, and of those above it, are about."""
        return frozenset(name for each in node.path for name in (*self.share.get(each.name, ()), *each.quota))

    def keeps_pools(self, node: QueueNode, wanted: Collection[str], less: dict[str, int] | None, victim: Sequence[Task]) -> bool:
        """Whether a queue still holds its quotas of pools without a victim, other than of those of which something is asked for.

        It would take back what it is guaranteed there from what only happens to run there. wanted: what is asked for.
        """
        quotas = node.quota.items()
        least = ((name, quota) for name, quota in quotas if quota and name not in wanted and split(name)[1])
        return self._keeps(node, least, less, victim)

    def keeps_quota(self, node: QueueNode, wanted: Collection[str], less: dict[str, int] | None, victim: Sequence[Task]) -> bool:
        """Whether a queue that lends in one pool still holds its quota of the same resource elsewhere without a victim.

        Where it holds no more than it may it is guaranteed that, and would take it back. wanted: what is asked for.
        """
        may = self.entitled.get(node.name, _NOTHING)
        lent = {split(name)[0] for name in wanted if split(name)[1] and node.stays(name) > may.get(name, math.inf)}
        quotas = ((name, quota) for name, quota in node.quota.items() if split(name)[0] in lent)
        return self._keeps(node, (each for each in quotas if node.stays(each[0]) <= may.get(*each)), less, victim)

    def keeps(self, node: QueueNode, less: dict[str, int] | None, victim: Sequence[Task]) -> bool:
        """Whether a queue still holds its fair share of what a victim holds, without it and without so much less."""
        return self._keeps(node, self.share.get(node.name, _NOTHING).items(), less, victim)

    def _keeps(
        self, node: QueueNode, least: Iterable[tuple[str, int]], less: dict[str, int] | None, victim: Sequence[Task]
    ) -> bool:
        """Whether a queue still holds at least so much of what a victim holds, without it and without so much less."""
        for name, amount in least:
            lost = sum(part for task in victim for key, part in self.tree.charge_at(task.shape, task.row) if key == name)
            if lost and node.stays(name) - (less or {}).get(name, 0) - lost < amount:
                return False
        return True

    def dominant_share(self, node: QueueNode, more: Mapping[str, int] = _NOTHING) -> float:
        """Dominant part of its deserved share that a queue holds: above 1 it holds more than is fair, or than it is guaranteed.

        What it deserves of a resource that is scarce among its siblings is its fair share, or its quota if that is more. Where
        nothing is scarce, resources with a quota count; a queue without any quota is guaranteed nothing: its share is 1
        plus its dominant part of the whole cluster. more: what it would hold besides.
        """
        used = node.used
        scarce = self.entitled.get(node.name)
        top = 0.0
        if scarce:
            for resource, may in scarce.items():
                held = used.get(resource, 0) + more.get(resource, 0)
                top = max(top, held / may if may else 1 + self._of_cluster(resource, held))
            return top
        if any(node.quota.values()):
            for resource, quota in node.quota.items():
                held = used.get(resource, 0) + more.get(resource, 0)
                if held:
                    part = held / quota if quota else 1 + self._of_cluster(resource, held)
                    top = max(top, part)
            return top
        for resource in (CPU, MEMORY, *self.tree.nodes.gpu_resources):
            held = used.get(resource, 0) + more.get(resource, 0)
            if held:
                top = max(top, self._of_cluster(resource, held))
        return 1 + top

    def names_that_count(self, node: QueueNode) -> frozenset[str] | None:
        """The resources that decide a queue's dominant share, whatever it holds; None: those that are offered do."""
        scarce = self.entitled.get(node.name)
        if scarce:
            return frozenset(scarce)
        return frozenset(node.quota) if any(node.quota.values()) else None

    def dominant_share_with(self, node: QueueNode, unit: Unit) -> float:
        """The same with a unit of it, or of a queue below it, placed."""
        pending_class = unit.pending_class
        if isinstance(pending_class, PendingClass) and not self.tree.pools.named:
            return self.dominant_share(node, pending_class.core)
        return self.dominant_share(node, dict(self.tree.asked_together(unit.tasks[: unit.need])))

    def most(self, node: QueueNode, unit: Unit) -> dict[str, int]:
        """Resource -> what a queue may hold of it with a unit: its limit, and its share if that can be reclaimed."""
        policy, share = self.policy, self.entitled.get(node.name, _NOTHING)
        if unit.express or not (policy.reclaim and policy.preempt):
            return node.limits
        return node.limits | {name: min(may, node.limits.get(name, may)) for name, may in share.items()}

    def offered(self, resource: str) -> int:
        """What all nodes, or those of a pool, offer, without what pods of other schedulers hold that no queue is charged for."""
        return self.tree.total(resource) - self.foreign(
            resource, [node for node in self.tree.queues.values() if node.parent is None]
        )

    def usage_of(self, name: str, now: float) -> float:
        """A queue's decayed use as a part of all devices, 0 to 1."""
        return self.usage.part_of(name, now, sum(self.tree.total(each) for each in self.tree.nodes.gpu_resources) / WHOLE)

    def _of_cluster(self, resource: str, held: int) -> float:
        total = self.tree.total(resource)
        return held / total if total else 1.0

    def foreign(self, resource: str, top: Iterable[QueueNode]) -> int:
        """What pods of other schedulers hold that no queue is charged for. top: the queues under the root that hold anything."""
        return self._foreign(resource, sum(node.stays(resource) for node in top))

    def _foreign(self, resource: str, charged: int) -> int:
        """The same. charged: what queues hold that is not about to leave."""
        name, pool = split(resource)
        if name not in self.tree.nodes.resources and not self.tree.nodes.partitions:
            return 0
        return max(0, self.tree.held(name, pool) - self._closed(name, pool) - charged)

    def _closed(self, name: str, pool: str) -> int:
        """What is kept closed where victims are leaving, beyond what beneficiaries hold: once they are gone it is to be had."""
        closed = {id(each): each for placeholders in self.tree.closing.values() for each in placeholders if each.row >= 0}
        mask = self.tree.pools.mask(pool) if pool and closed else None
        return sum(
            amount
            for each in closed.values()
            if mask is None or mask.item(each.row)
            for resource, amount in self.tree.parts.at(each.shape, each.row)
            if resource == name and (each.shape.gpu_milli == WHOLE or name not in self.tree.nodes.gpu_resources)
        )


def _disputed(share: Shares) -> frozenset[str]:
    return frozenset(name for scarce in share.values() for name in scarce)


def _entitled(node: QueueNode, scarce: dict[str, int]) -> dict[str, int]:
    """Its fair share of each resource, or its quota where that is more and its limit allows it."""
    quota, limits = node.quota, node.limits
    return {name: max(fair, min(quota.get(name, 0), limits.get(name, fair))) for name, fair in scarce.items()}

"""Shares of siblings: each resource divided among the children of each queue, again only where something that decides changed.

What the children of a queue divide is its share, less what its own pods hold; queues at the root divide all that there is. Where
there is enough for all that siblings ask for none of them has a share, nor have those below.

What was divided lasts as long as the amount and the siblings' requests are what they were. If some ask for more or less, but had
less than they ask for before and after, no share is another: whatever a queue asks for beyond what it gets decides nothing
(`division`). Not so where siblings divide what quotas leave without weights, by what they want beyond their quotas, or hold what
cannot be reclaimed (`_Siblings.fixed`). Limits, pools and past use make more depend on each other: then everything is divided
anew each time, as it is after an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from fairlead.api.names import CPU, MEMORY
from fairlead.core.model.charges import key_of
from fairlead.core.model.policy import Policy
from fairlead.core.queues.division import Claim, divide
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.tree import QueueTree

Shares = dict[str, dict[str, int]]
"""Queue -> resource -> base units, only where there is not enough for all siblings."""


class _Siblings:
    """The children of a queue, or the queues at the root, for one resource.

    amount: what it has; None: not divided yet. asked: what each sibling asks for, or holds for good where that is more; together:
    their sum. stays: what each at the root holds and is not about to leave, whose sum is `staying`. shares: None: there is enough
    for all. fixed: shares also depend on what siblings ask for beyond them, or hold for good. below: the siblings whose children
    divide what they have.
    """

    __slots__ = ("amount", "asked", "below", "fixed", "shares", "staying", "stays", "together")

    def __init__(self) -> None:
        self.amount: int | None = None
        self.asked: dict[QueueNode, int] = {}
        self.together = 0
        self.stays: dict[QueueNode, int] = {}
        self.staying = 0
        self.shares: dict[str, int] | None = None
        self.fixed = True
        self.below: dict[QueueNode, None] = {}

    def ask(self, node: QueueNode, amount: int) -> int:
        """A sibling asks for so much; returns what it asked for before."""
        before = self.asked.get(node, 0)
        self.together += amount - before
        self.asked[node] = amount
        return before

    def stay(self, nodes: Iterable[QueueNode], resource: str) -> None:
        """Note what siblings hold that is not about to leave."""
        for node in nodes:
            amount = node.used.get(resource, 0) - node.leaving.get(resource, 0)
            self.staying += amount - self.stays.get(node, 0)
            self.stays[node] = amount


class SiblingShares:
    """The shares of all siblings; see `FairShares.share`."""

    def __init__(
        self, tree: QueueTree, policy: Policy, usage_of: Callable[[str, float], float], foreign: Callable[[str, int], int]
    ) -> None:
        self.share: Shares = {}
        self._tree = tree
        self._policy = policy
        self._usage_of = usage_of
        self._foreign = foreign  # what pods of other schedulers hold of a resource, given what queues hold at the root
        self._requests: Mapping[str, Mapping[str, int]] = {}
        self._children: dict[QueueNode | None, dict[QueueNode, None]] = {}  # those that ask for something
        self._asking = 0
        self._known: dict[tuple[str, QueueNode | None], _Siblings] = {}
        self._resources: list[str] = []
        self._versions: tuple[object, ...] = ()
        self._plain = False
        self._anew = True  # all is divided, and nothing was
        self._dirty: dict[QueueNode | None, list[QueueNode]] = {}  # by what is above them
        self._changed: dict[str, None] = {}
        self._whole = False  # whether what was divided last came to its end
        self._now = 0.0

    def follow(
        self, requests: Mapping[str, Mapping[str, int]], touched: Collection[QueueNode] | None, now: float, old: Shares
    ) -> Collection[str]:
        """Divide again; returns the queues of which the share is another than it was (old).

        requests: queue -> what it, and those below it, hold and wait for. touched: the queues of which that, or what they hold,
        may be another than at the last time, with all above them; None: all.
        """
        tree, self._requests, self._now, self._changed = self._tree, requests, now, {}
        nodes = tree.nodes
        versions = tree.version, *nodes.gpu_resources, len(nodes.resources), bool(nodes.partitions)
        whole, self._whole = self._whole, False
        if touched is None or not whole or not self._plain or versions != self._versions:
            self._versions = versions
            self._begin()
            self._divide()
            self._whole = True
            same = self.share == old
            return () if same else [name for name in {**old, **self.share} if old.get(name) != self.share.get(name)]
        self._dirty, self._anew = {}, False
        for node in touched:
            self._count(node)
            self._dirty.setdefault(node.parent, []).append(node)
        self._divide()
        self._whole = True
        return self._changed

    def _begin(self) -> None:
        """Nothing is divided."""
        tree = self._tree
        resources = {CPU, MEMORY, *tree.nodes.gpu_resources}
        resources |= {name for node in tree.queues.values() for name in node.quota}
        resources |= {key_of(resource, pool) for pool, named in tree.pools.named.items() for resource in named}
        self._resources = sorted(resources)
        self._plain = not (tree.pools.named or self._policy.usage_half_life or any(node.limits for node in tree.queues.values()))
        self.share = {}
        self._known.clear()
        self._children.clear()
        asking = [node for name, node in sorted(tree.queues.items()) if self._requests.get(name)]
        for node in asking:
            self._children.setdefault(node.parent, {})[node] = None
        self._asking, self._dirty, self._anew = len(asking), {}, True

    def _count(self, node: QueueNode) -> None:
        """Note whether a queue asks for anything."""
        siblings = self._children.setdefault(node.parent, {})
        if not self._requests.get(node.name):
            self._asking -= node in siblings
            siblings.pop(node, None)
        elif node not in siblings:
            self._asking += 1
            siblings[node] = None

    # -- dividing ------------------------------------------------------------------------------

    def _divide(self) -> None:
        if self._asking < _TWO:
            for resource in self._resources:
                self._drop(resource, None)
            return
        for resource in self._resources:
            self._divide_one(resource)

    def _divide_one(self, resource: str) -> None:
        tree, capped = self._tree, self._capped(resource)
        root = self._of(resource, None)
        if resource in tree.nodes.resources or tree.nodes.partitions or "@" in resource:
            root.stay(self._dirty_in(root, None), resource)  # else nothing of it is held by other schedulers' pods either
        pending: list[tuple[QueueNode | None, int]] = [(None, tree.usable(resource) - self._foreign(resource, root.staying))]
        while pending:
            parent, amount = pending.pop()
            group = self._of(resource, parent)
            dirty = self._dirty_in(group, parent)
            if not dirty and group.amount == amount:
                continue
            same = self._ask(group, dirty, resource, amount)
            if not capped and group.together <= amount:
                self._enough(group, resource)
                continue  # enough for all, and below them
            if not same and not self._share_out(group, parent, resource, amount, capped):
                # Enough for all, and below them, but where a limit cuts off what is asked for.
                self._enough(group, resource)
                pending += [
                    (node, self._demand(node, resource) - self._own(node, resource))
                    for node in self._children.get(parent, ())
                    if node.name in capped and self._children.get(node)
                ]
                continue
            shares = group.shares or {}
            for node in list(dirty) if same else {**self._children.get(parent, {}), **group.below}:
                if self._children.get(node) and node.name in shares:
                    group.below[node] = None
                    pending.append((node, shares[node.name] - self._own(node, resource)))
                elif node in group.below:
                    self._drop(resource, node)
                    del group.below[node]

    def _of(self, resource: str, parent: QueueNode | None) -> _Siblings:
        group = self._known.get((resource, parent))
        if group is None:
            group = self._known[resource, parent] = _Siblings()
        return group

    def _dirty_in(self, group: _Siblings, parent: QueueNode | None) -> Iterable[QueueNode]:
        """The siblings that are to be asked anew: all, where a group is new."""
        return self._children.get(parent, ()) if group.amount is None else self._dirty.get(parent, ())

    def _ask(self, group: _Siblings, dirty: Iterable[QueueNode], resource: str, amount: int) -> bool:
        """Ask siblings anew, by which a group has so much to divide. Whether their shares are the same."""
        shares, unit = group.shares, self._tree.scale(resource)
        if group.amount is None:
            requests, group.amount = self._requests, amount
            group.asked = {node: max(requests[node.name].get(resource, 0), node.foreign.get(resource, 0)) for node in dirty}
            group.together = sum(group.asked.values())
            return False
        same = shares is not None and group.amount == amount and not group.fixed
        group.amount = amount
        for node in dirty:
            asks = self._asked(node, resource)
            asked = group.ask(node, asks)
            if not same or shares is None or node.foreign.get(resource):
                same = False
            elif (node.name in shares) is not (node in self._children.get(node.parent, ())):
                same = False  # percentages are of what the others leave
            elif asks != asked:
                same = min(asks, asked) >= shares[node.name] + unit
        return same

    def _share_out(self, group: _Siblings, parent: QueueNode | None, resource: str, amount: int, capped: Collection[str]) -> bool:
        """Divide what a group has; whether there is not enough for all."""
        siblings, unit = list(self._children.get(parent, ())), self._tree.scale(resource)
        weights = weights_of(siblings, resource)
        claims = [self._claim(node, resource, weight) for node, weight in zip(siblings, weights, strict=True)]
        if capped and sum(claim.demand for claim in claims) <= amount:
            return False
        policy = self._policy
        shares = divide(amount, claims, unit, policy.usage_weight if policy.usage_half_life else 0.0)
        weighed = None in weights and sum(min(claim.quota or 0, claim.demand) for claim in claims) < amount
        group.fixed = weighed or any(claim.floor for claim in claims)
        for name in group.shares or ():
            if name not in shares:
                self._set(name, resource, None)
        for claim in claims:
            if not self._anew:
                self._set(claim.name, resource, shares[claim.name] if claim.request else None)
            elif claim.request:
                self.share.setdefault(claim.name, {})[resource] = shares[claim.name]
        group.shares = shares
        return True

    def _enough(self, group: _Siblings, resource: str) -> None:
        """There is enough for all siblings."""
        for name in group.shares or ():
            self._set(name, resource, None)
        group.shares, group.fixed = None, True
        for node in group.below:
            self._drop(resource, node)
        group.below.clear()

    def _drop(self, resource: str, parent: QueueNode | None) -> None:
        """Nothing is divided among the children of a queue, nor below them."""
        group = self._known.pop((resource, parent), None)
        if group is not None:
            self._enough(group, resource)

    def _set(self, name: str, resource: str, share: int | None) -> None:
        """A queue's share of a resource. Shares that were made before stay what they are."""
        known = self.share.get(name)
        if (known or {}).get(resource) == share:
            return
        if name not in self._changed:
            if not self._changed:
                self.share = dict(self.share)
            self._changed[name] = None
            known = dict(known or {})
        known = known or {}
        if share is None:
            known.pop(resource, None)
        else:
            known[resource] = share
        if known:
            self.share[name] = known
        else:
            self.share.pop(name, None)

    # -- what siblings ask for -----------------------------------------------------------------

    def _asked(self, node: QueueNode, resource: str) -> int:
        """What a queue asks for at most, whatever its limit is, or holds for good."""
        request = self._requests.get(node.name)
        return max(request.get(resource, 0), node.foreign.get(resource, 0)) if request else 0

    def _demand(self, node: QueueNode, resource: str) -> int:
        return self._claim(node, resource, 0).demand

    def _capped(self, resource: str) -> set[str]:
        """The queues with a limit for a resource, and those above them."""
        if self._plain:
            return set()
        return {above.name for node in self._tree.queues.values() if resource in node.limits for above in node.path}

    def _own(self, node: QueueNode, resource: str) -> int:
        """What a queue's own pods hold, not those of queues below it: these cannot have it."""
        return node.used.get(resource, 0) - sum(each.used.get(resource, 0) for each in self._children.get(node, ()))

    def _claim(self, node: QueueNode, resource: str, weight: int | None) -> Claim:
        request, quota, limit = self._requests[node.name].get(resource, 0), node.quota.get(resource), node.limits.get(resource)
        if weight is None:
            weight = max(0, (request if limit is None else min(request, limit)) - (quota or 0))
        usage = self._usage_of(node.name, self._now) if self._policy.usage_half_life else 0.0
        return Claim(node.name, request, quota, limit, weight, node.policy.priority, usage, max(0, node.foreign.get(resource, 0)))


def weights_of(siblings: Sequence[QueueNode], resource: str) -> list[int | None]:
    """By what the capacity beyond guarantees is divided among siblings; None for all where none of them gives a weight.

    Percentages are of that capacity; siblings without one divide the rest of it.
    """
    named = [node.named.get(resource) for node in siblings]
    if not any(each is not None and (each.weight is not None or each.weight_percent is not None) for each in named):
        return [None] * len(named)
    percents = [each.weight_percent if each is not None else None for each in named]
    others = [1 if each is None or each.weight is None else each.weight for each in named]
    together = sum(other for other, percent in zip(others, percents, strict=True) if percent is None)
    rest = max(0, _ALL - sum(percent or 0 for percent in percents))
    if rest == _ALL:
        return list(others)
    return [
        rest * other if percent is None else percent * max(1, together) for other, percent in zip(others, percents, strict=True)
    ]


_ALL = 100_000  # thousandths of a percent
_TWO = 2  # fewer have nothing to divide

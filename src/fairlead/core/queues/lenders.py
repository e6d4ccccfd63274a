"""Lenders: the queues from which others may reclaim at all, since all from them up to a sibling hold more than they should.

Every trial of who would reclaim a start asks that. Of each queue it is remembered whether it holds more than it should, and asked
anew only where something was charged or taken back since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from fairlead.core.queues.accounts import Accounts
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import QueueTree

_MOST = 4  # divisions of shares of which queues are remembered: those of a pass, and those of its trials


class _Beyond:
    """The queues that hold more than they should by one rule, by the queue that they are directly below (None: at the root), and
    of what. may: what a queue may hold of each resource that counts.
    """

    def __init__(self, may: Callable[[QueueNode], Mapping[str, int]]) -> None:
        self._may = may
        self.below: dict[QueueNode | None, dict[QueueNode, list[str]]] = {}
        self.count = 0  # of all of them

    def follow(self, node: QueueNode) -> bool:
        """Ask about a queue anew; whether it holds more than it should of something of which it did not before."""
        siblings = self.below.setdefault(node.parent, {})
        before = siblings.pop(node, None)
        beyond = [name for name, may in self._may(node).items() if node.stays(name) > may]
        if beyond:
            siblings[node] = beyond
        self.count += bool(beyond) - (before is not None)
        return any(before is None or name not in before for name in beyond)

    def lenders(self, node: QueueNode) -> Iterator[QueueNode]:
        """It, if pods of its own run, and all below it that are lenders; it holds more than it should."""
        if node.placed:
            yield node
        for each in list(self.below.get(node, ())):
            yield from self.lenders(each)


class _Found:
    """What was found for one division of shares. place: up to which change of what queues hold."""

    def __init__(self, fair: FairShares, tree: QueueTree) -> None:
        self.share = fair.share
        self.tree_version = tree.version
        quotas = (name for each in tree.queues.values() for name, quota in each.quota.items() if quota)
        names, entitled, nothing = {*fair.disputed, *quotas}, fair.entitled, dict[str, int]()
        self.rules = (
            _Beyond(lambda node: entitled.get(node.name, nothing)),
            _Beyond(lambda node: {name: node.quota.get(name, 0) for name in names}),
        )
        self.place = (-1, 0)


class Lenders:
    """All of them. rises: raised when a queue has come to hold more of something than it should, by what was asked so far."""

    def __init__(self, tree: QueueTree, accounts: Accounts, fair: FairShares) -> None:
        self._tree = tree
        self._accounts = accounts
        self._fair = fair
        self._known: dict[int, _Found] = {}  # by the division of shares
        self.rises = 0

    def beside(self, mine: QueueNode, *, by_quota: bool) -> Iterator[tuple[QueueNode, Iterator[QueueNode]]]:
        """The siblings of a queue that hold more than they should, each with all that lend, it or those below it.

        by_quota: by quotas, else by fair shares.
        """
        rule = self.follow().rules[by_quota]
        for theirs in list(rule.below.get(mine.parent, ())):
            if theirs is not mine:
                yield theirs, rule.lenders(theirs)

    def beyond_shares(self) -> Iterator[QueueNode]:
        """The queues that hold more than their fair shares."""
        for siblings in self.follow().rules[0].below.values():
            yield from siblings

    def any(self) -> bool:
        """Whether any queue holds more than it should."""
        return any(rule.count for rule in self.follow().rules)

    def any_beside(self, path: Iterable[QueueNode]) -> bool:
        """Whether there may be such a queue at all: a sibling of one of some queues that holds more than it should."""
        rules = self.follow().rules
        for mine in path:
            for rule in rules:
                siblings = rule.below.get(mine.parent)
                if siblings and (len(siblings) > 1 or mine not in siblings):
                    return True
        return False

    def follow(self) -> _Found:
        """Bring what is remembered up to date with what queues hold now."""
        fair, tree, accounts = self._fair, self._tree, self._accounts
        key = id(fair.share)
        found = self._known.get(key)
        if found is None or found.share is not fair.share or found.tree_version != tree.version:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[key] = _Found(fair, tree)
        if found.place != accounts.charged.place:
            changed = accounts.charged.since(found.place)
            found.place = accounts.charged.place
            for node in tree.queues.values() if changed is None else changed:
                for rule in found.rules:
                    self.rises += rule.follow(node)
        return found

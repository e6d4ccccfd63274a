"""Lenders: the queues from which others may reclaim at all, since all from them up to a sibling hold more than they should.

Every trial of who would reclaim a start asks that; between two changes of what queues hold the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlead.core.queues.accounts import Accounts
from fairlead.core.queues.entitlement import beyond_quota
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import QueueTree

_BySibling = dict[QueueNode | None, dict[QueueNode, dict[QueueNode, None]]]
"""Queue -> those directly below it -> these and all below them that lend. None: those at the root."""

_MOST = 8  # of what is remembered: a trial, and trials in it, are taken back to what was before


class _Found(NamedTuple):
    """What was found for some fair shares."""

    share: dict[str, dict[str, int]]
    by_share: _BySibling
    by_quota: _BySibling


class Lenders:
    """All of them, found anew once queues hold something else, or should."""

    def __init__(self, tree: QueueTree, accounts: Accounts, fair: FairShares) -> None:
        self._tree = tree
        self._accounts = accounts
        self._fair = fair
        self._known: dict[tuple[int, int], _Found] = {}  # by what queues hold, and the version of the tree

    def beside(self, mine: QueueNode, *, by_quota: bool) -> Iterator[tuple[QueueNode, dict[QueueNode, None]]]:
        """The siblings of a queue that lend, each with all below it that do. by_quota: by quotas, else by fair shares."""
        found = self._find()
        known = found.by_quota if by_quota else found.by_share
        return ((theirs, lenders) for theirs, lenders in known.get(mine.parent, {}).items() if theirs is not mine)

    def _find(self) -> _Found:
        fair, queues, versions = self._fair, self._tree.queues.values(), (self._accounts.version, self._tree.version)
        found = self._known.get(versions)
        if found is None or found.share is not fair.share:
            if len(self._known) >= _MOST:
                self._known.clear()
            names = {*fair.disputed, *(name for each in queues for name, quota in each.quota.items() if quota)}
            by_quota = self._list(lambda node: beyond_quota([node], names, QueueNode.stays))
            found = self._known[versions] = _Found(fair.share, self._list(fair.over), by_quota)
        return found

    def _list(self, beyond: Callable[[QueueNode], bool]) -> _BySibling:
        """By siblings, the queues that are each of them, or below it, with all between holding more than they should."""
        known: dict[QueueNode, bool] = {}
        found: _BySibling = {}
        for each in self._tree.queues.values():
            for above in each.path if each.placed else ():
                if above not in known:
                    known[above] = beyond(above)
                if not known[above]:
                    break
                found.setdefault(above.parent, {}).setdefault(above, {})[each] = None
        return found

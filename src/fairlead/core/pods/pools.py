"""Pools: which nodes are in which, for queues that are given part of one pool only.

A pool is what a NodePool selects by labels; without such an object, the nodes that a device-model label gives that name. What a
pod holds there is charged at placement, under a key of its own beside the resource: `nvidia.com/gpu@h100`. Only pools and
resources that some queue names are kept account of, so where no queue names a pool nothing of this costs anything. A node may
be in several pools; a pod on it counts in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.api.names import POOL_LABELS
from fairlead.core.model.arrays import Mask
from fairlead.core.model.charges import Charge, key_of
from fairlead.core.model.selectors import Selector, matches

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.ranking import Ranking

_REMEMBERED = 4096


class Pools:
    """The pools that queues name, and the rows in each. named: pool -> resources that a queue is given of it."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.given: dict[str, Selector] = {}
        self.named: dict[str, frozenset[str]] = {}
        self.version = 0  # raised when a row came into a pool or left it
        self._of_row: dict[int, tuple[str, ...]] = {}
        self._masks: dict[str, Mask] = {}
        self._extras: dict[tuple[Charge, tuple[str, ...]], Charge] = {}
        self._pinned: dict[int, tuple[tuple[int, int, int], tuple[str, ...]]] = {}

    # -- events --------------------------------------------------------------------------------

    def name(self, named: dict[str, frozenset[str]]) -> bool:
        """Queues name these pools and resources now; whether that is new."""
        if named == self.named:
            return False
        self.named = named
        self.sort()
        return True

    def sort(self) -> None:
        """Put all rows into their pools anew."""
        self._of_row = {row: pools for row in self.nodes.rows.values() if (pools := self._pools_of(row))}
        self._changed()

    def follow(self, row: int) -> bool:
        """A node came or changed; whether it is in other pools than its row was before."""
        pools, before = self._pools_of(row) if self.named else (), self._of_row.get(row, ())
        if pools == before:
            return False
        self._of_row[row] = pools
        self.version += 1
        for pool in {*before, *pools} & self._masks.keys():
            self._covering(pool, row + 1)[row] = pool in pools
        return True

    def _changed(self) -> None:
        self.version += 1
        self._masks.clear()
        self._extras.clear()
        self._pinned.clear()

    def _pools_of(self, row: int) -> tuple[str, ...]:
        node = self.nodes.objects[row]
        if node is None:
            return ()
        return tuple(pool for pool in sorted(self.named) if self._selects(pool, node.labels))

    def _selects(self, pool: str, labels: dict[str, str]) -> bool:
        if pool in self.given:
            return matches(self.given[pool], labels)
        return any(labels.get(label) == pool for label in POOL_LABELS)

    # -- questions -----------------------------------------------------------------------------

    def extras(self, charge: Charge, row: int) -> Charge:
        """What is charged besides for a pod on a row, under the keys of its pools."""
        pools = self._of_row.get(row, ())
        if not pools:
            return ()
        known = self._extras.get((charge, pools))
        if known is None:
            known = self._extras[charge, pools] = self._in(charge, pools)
        return known

    def _in(self, charge: Charge, pools: tuple[str, ...]) -> Charge:
        return tuple(each for pool in pools for each in self.of(charge, pool))

    def of(self, charge: Charge, pool: str) -> Charge:
        """What is charged besides in one pool."""
        return tuple((key_of(resource, pool), amount) for resource, amount in charge if resource in self.named[pool])

    def pinned(self, charge: Charge, ranking: Ranking) -> Charge:
        """What a pod of a shape will be charged besides wherever it is placed: of pools outside which no node admits it.

        charge: what it is charged for at least.
        """
        nodes, shape = self.nodes, ranking.shape
        stamp = (self.version, nodes.classes.epoch, nodes.topologies.version)
        known = self._pinned.get(shape.number)
        if known is None or known[0] != stamp:
            admitted = ranking.admitted(slice(0, nodes.count)) & nodes.open[: nodes.count]
            pools = (
                tuple(pool for pool in sorted(self.named) if not (admitted & ~self.mask(pool)).any()) if admitted.any() else ()
            )
            if len(self._pinned) >= _REMEMBERED:
                self._pinned.clear()
            known = self._pinned[shape.number] = stamp, pools
        return self._in(charge, known[1])

    def mask(self, pool: str) -> Mask:
        """For each row whether it is in a pool, until the next event; do not write to it."""
        if pool not in self._masks:
            made = np.zeros(self.nodes.count, np.bool_)
            made[[row for row, pools in self._of_row.items() if pool in pools]] = True
            self._masks[pool] = made
        return self._covering(pool, self.nodes.count)[: self.nodes.count]

    def _covering(self, pool: str, rows: int) -> Mask:
        """The mask of a pool, with at least so many rows."""
        known = self._masks[pool]
        if len(known) < rows:
            known = self._masks[pool] = np.concatenate([known, np.zeros(max(rows, 2 * len(known)) - len(known), np.bool_)])
        return known

    def empty(self, pool: str) -> bool:
        """Whether no node is in it."""
        return not self.mask(pool).any()

    def total(self, resource: str, pool: str) -> int:
        """What the nodes of a pool offer of a resource, in the nodes' units."""
        column = self.nodes.resources.get(resource)
        return 0 if column is None else int(self.nodes.alloc[column][: self.nodes.count][self.mask(pool)].sum())

    def unused(self, resource: str, pool: str) -> int:
        """What is free of a resource on nodes of a pool that take nothing new, of devices in milli."""
        return self.nodes.unused(resource, self.mask(pool))

    def held(self, resource: str, pool: str) -> int:
        """What all pods there hold of a resource, whichever scheduler placed them, in the nodes' units."""
        column = self.nodes.resources.get(resource)
        if column is None:
            return 0
        mask = self.mask(pool)
        count = self.nodes.count
        return int((self.nodes.alloc[column][:count] - self.nodes.free[column][:count])[mask].sum())

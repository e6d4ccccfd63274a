"""How many pods of a group each domain takes, with whole slices: counted from the rows upwards, exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.topology.request import Slice
from fairlead.core.topology.tree import Tree


class Capacity:
    """Of every domain the units it takes of one group, and whether the incomplete last unit fits beside all of them.

    A unit is a slice. At a level between two slices the unit is that of the next narrower slice; below all slices it is one pod.
    The incomplete last unit has the pods of `count` beyond whole units; where a domain has no place for it beside all of its
    units, it takes the place of one of them.

    units, rest: for each level from `top` on, shape (domains,).
    """

    def __init__(self, tree: Tree, slices: Sequence[Slice], count: int, fits: Ints) -> None:
        self.tree = tree
        self.count = count
        self.chain = [*slices, Slice(tree.depth, 1)]
        self.unit_at = [0] * (tree.depth + 1)
        """For each level which member of the chain is counted there."""
        self.units: list[Ints] = [np.zeros(0, np.int64)] * (tree.depth + 1)
        self.rest: list[Mask] = [np.zeros(0, np.bool_)] * (tree.depth + 1)
        units = np.asarray(fits, np.int64)[tree.order]
        rest: Mask = np.ones(len(units), np.bool_)
        at = len(self.chain) - 1
        for level in range(tree.depth, -1, -1):
            if level < tree.depth:
                units, rest = tree.up(units, level + 1), tree.any_up(rest, level + 1)
            while at and self.chain[at - 1].level == level:
                units, rest = self._grouped(at - 1, units, rest)
                at -= 1
                units = np.where(tree.named[level], units, 0)
                rest &= tree.named[level]
            self.units[level], self.rest[level], self.unit_at[level] = units, rest, at

    def _grouped(self, at: int, inner: Ints, rest: Mask) -> tuple[Ints, Mask]:
        """Units of one slice of the chain, by those of the next narrower one in the same domains."""
        size, smaller = self.chain[at].size, self.chain[at + 1].size
        ratio = size // smaller
        units = inner // ratio
        left = inner - units * ratio
        whole, beyond = divmod(self.count % size, smaller)
        return units, (left > whole) | ((left == whole) & (rest if beyond else np.ones_like(rest)))

    def size_at(self, level: int) -> int:
        """The pods of a unit at a level."""
        return self.chain[self.unit_at[level]].size

    def holds(self, level: int, pods: int) -> Mask:
        """Which domains of a level take so many pods, the last unit among them."""
        whole, beyond = divmod(pods, self.size_at(level))
        units, rest = self.units[level], self.rest[level]
        return (units > whole) | ((units == whole) & rest) if beyond else units >= whole

    def fits(self, level: int, domain: int) -> bool:
        """Whether all pods fit in one domain; level -1: in the whole tree."""
        if level >= 0:
            return bool(self.holds(level, self.count)[domain])
        whole, beyond = divmod(self.count, self.size_at(0))
        units = int(self.units[0].sum())
        return units > whole or (units == whole and (not beyond or bool(self.rest[0].any())))

    def pods(self, level: int) -> Ints:
        """The most pods of the group that each domain of a level takes, shape (domains,)."""
        size = self.size_at(level)
        last = self.count % size
        most = self.units[level] * size + np.where(self.rest[level], last, 0)
        return np.minimum(most, self.count)

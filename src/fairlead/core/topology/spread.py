"""Pods of one group, distributed in a domain: to the fewest narrower domains, level by level down to the rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.topology.capacity import Capacity


class Spread:
    """Distributes pods as `Capacity` counts them. preferred: the level at which the fewest domains are wanted first."""

    def __init__(self, capacity: Capacity, preferred: int | None) -> None:
        self.capacity = capacity
        self.tree = capacity.tree
        self.preferred = preferred

    def rows(self, level: int, domain: int, pods: int) -> Iterator[tuple[int, int]]:
        """Rows and their pods in the order of ranks, for so many pods of a domain that takes them. Level -1: the whole tree."""
        if level == self.tree.depth:
            yield int(self.tree.order[domain]), pods
            return
        below = self._next(level)
        low, high = self.tree.inside(level, domain, below)
        units, rest = self.capacity.units[below][low:high], self.capacity.rest[below][low:high]
        whole, last = divmod(pods, self.capacity.size_at(below))
        given, with_rest = fewest(units, rest, whole, beyond=last > 0)
        order = [int(at) for at in np.flatnonzero(given) if at != with_rest]
        for at in order if with_rest < 0 else [*order, with_rest]:
            share = int(given[at]) * self.capacity.size_at(below) + (last if at == with_rest else 0)
            yield from self.rows(below, low + at, share)

    def _next(self, level: int) -> int:
        """The level at which pods of a domain are distributed next."""
        narrowest = next((each.level for each in self.capacity.chain if each.level > level), self.tree.depth)
        wanted = self.preferred if self.preferred is not None else self.tree.depth - 1
        return min(max(wanted, level + 1), narrowest)


def fewest(units: Ints, rest: Mask, wanted: int, *, beyond: bool) -> tuple[Ints, int]:
    """So many units to the fewest domains, which together take them; and the domain that has the incomplete last one, or -1.

    The largest come first; the last is the smallest that takes what is left.
    """
    given = np.zeros(len(units), np.int64)
    left = units.astype(np.int64)
    with_rest = -1
    if beyond:
        # It costs nothing where it fits beside all units; else it takes the place of one.
        at = _host(left, rest, wanted)
        with_rest = at
        if not rest[at]:
            left[at] -= 1
    while wanted:
        fit = np.flatnonzero(left >= wanted)
        at = int(fit[np.argmin(left[fit])]) if len(fit) else int(np.argmax(left))
        share = min(wanted, int(left[at]))
        given[at], left[at] = share, 0
        wanted -= share
    return given, with_rest


def _host(left: Ints, rest: Mask, wanted: int) -> int:
    """The domain for the incomplete last unit: one that takes all, else the largest, where the sum stays enough."""
    spare = int(left.sum()) > wanted
    able = np.flatnonzero(rest | (left > 0) if spare else rest)
    remaining = left[able] - np.where(rest[able], 0, 1)
    fit = np.flatnonzero(remaining >= wanted)
    if len(fit):
        return int(able[fit[np.argmin(remaining[fit])]])
    return int(able[np.argmax(remaining)])

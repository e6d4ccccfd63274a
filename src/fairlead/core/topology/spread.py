"""Pods of one group, distributed in a domain: to the fewest narrower domains, level by level down to the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.topology import select
from fairlead.core.topology.capacity import Capacity
from fairlead.core.topology.loss import Floats, Loss
from fairlead.core.topology.select import Chosen, Units

_DOMAIN = 1e4
"""What one domain more costs against the loss of whole domains, where a level is preferred."""

_LOSS = 1e3
"""What a whole domain that is lost costs against one domain more, where none is."""

_MOST_COUNTS = 4_000

_TIE = 1e-6
_INFINITE = 1e18


class NoBalance(Exception):
    """Pods cannot be divided into equal parts."""


class Spread:
    """Distributes pods as `Capacity` counts them.

    preferred: the level at which the fewest domains are wanted; None: whole domains are spared first.
    balanced: whether the domains of that level (of the narrowest level with labels, where it is None) get equal parts.
    used: domains of the preferred level that the gang uses already: they cost nothing more.
    """

    def __init__(
        self, capacity: Capacity, loss: Loss, preferred: int | None, *, balanced: bool = False, used: frozenset[int] = frozenset()
    ) -> None:
        self.capacity = capacity
        self.tree = capacity.tree
        self.loss = loss
        self.preferred = preferred
        self.target = preferred if preferred is not None else max(self.tree.depth - 1, 0)
        self.balanced = balanced
        self.used = used

    def rows(self, level: int, domain: int, pods: int) -> Iterator[tuple[int, int]]:
        """Rows and their pods in the order of ranks, for so many pods of a domain that takes them. Level -1: the whole tree.

        Raises `NoBalance`.
        """
        if level == self.tree.depth:
            yield int(self.tree.order[domain]), pods
            return
        below = self._next(level)
        balanced = self.balanced and level < self.target <= below
        if not balanced:
            level, domain = self._narrowed(level, domain, below, pods)
        low, high = self.tree.inside(level, domain, below)
        given, host = self._divided(below, low, high, pods, balanced=balanced)
        size = self.capacity.size_at(below)
        # The incomplete unit has the last ranks.
        for at in [*(int(at) for at in np.flatnonzero(given) if at != host), *([host] if host >= 0 else [])]:
            yield from self.rows(below, low + at, int(given[at]) * size + (pods % size if at == host else 0))

    def domains(self, level: int, domain: int, pods: int) -> int:
        """The fewest domains of the next level for so many pods of a domain; 0: it does not take them."""
        below = self._next(level)
        return self._units(below, *self.tree.inside(level, domain, below), pods).fewest()

    def _next(self, level: int) -> int:
        """The level at which pods of a domain are distributed next."""
        narrowest = next((each.level for each in self.capacity.chain if each.level > level), self.tree.depth)
        return min(max(self.target, level + 1), narrowest)

    def _units(self, level: int, low: int, high: int, pods: int) -> Units:
        wanted, last = divmod(pods, self.capacity.size_at(level))
        return Units(self.capacity.units[level][low:high], self.capacity.rest[level][low:high], wanted, last > 0)

    def _narrowed(self, level: int, domain: int, below: int, pods: int) -> tuple[int, int]:
        """The narrowest domain between two levels in which no more domains are needed, the one that loses least."""
        if self.preferred is None or level >= below - 1:
            return level, domain
        fewest = self._units(below, *self.tree.inside(level, domain, below), pods).fewest()
        if fewest <= 1:
            return level, domain
        for between in range(below - 1, level, -1):
            low, high = self.tree.inside(level, domain, between)
            able = [
                at
                for at in range(low, high)
                if self._units(below, *self.tree.inside(between, at, below), pods).fewest() == fewest
            ]
            if able:
                lost = self.loss.of(between, np.array(able), np.array([pods]))[:, 0]
                return between, able[int(lost.argmin())]
        return level, domain

    def _divided(self, below: int, low: int, high: int, pods: int, *, balanced: bool) -> Chosen:
        asked = self._units(below, low, high, pods)
        size = self.capacity.size_at(below)
        if balanced:
            part = np.array([-(-pods // max(1, asked.fewest()))])
            found = select.balanced(asked, self.loss.of(below, np.arange(low, high), part)[:, 0])
            if found is None:
                raise NoBalance
            return found
        if below == self.tree.depth and below != self.target:
            return self._on_rows(asked, low, high)
        keep = self._candidates(asked, below, low)
        fewer = Units(asked.units[keep], asked.rest[keep], asked.wanted, asked.beyond)
        if self.preferred is not None and below == self.target and not self.used and asked.fewest() == 1:
            return self._one(fewer, keep, below, low, high, pods)
        deeper = below < self.target and len(keep) * int(fewer.units.max(initial=0)) > _MOST_COUNTS
        if deeper or not select.affordable(fewer):
            found = select.largest_first(fewer)
        else:
            found = select.best(fewer, self._prices(fewer, below, low + keep, size, pods % size))
        given = np.zeros(high - low, np.int64)
        given[keep] = found.given
        return Chosen(given, int(keep[found.host]) if found.host >= 0 else -1)

    def _one(self, asked: Units, keep: Ints, below: int, low: int, high: int, pods: int) -> Chosen:
        """The one domain for all, which loses least."""
        lost = self.loss.of(below, low + keep, np.array([pods]))[:, 0] + _TIE * (asked.units - asked.wanted)
        takes = asked.beside if asked.beyond else asked.units
        at = int(keep[np.where(takes >= asked.wanted, lost, _INFINITE).argmin()])
        given = np.zeros(high - low, np.int64)
        given[at] = asked.wanted
        return Chosen(given, at if asked.beyond else -1)

    def _candidates(self, asked: Units, below: int, low: int) -> Ints:
        """The domains that may be in the best choice."""
        able = asked.units > 0
        if asked.beyond:
            able |= asked.rest
        if self.preferred is not None and below == self.target and not self.used:
            # One of k domains has at least what the k - 1 largest lack.
            k = asked.fewest()
            largest = int(np.sort(asked.units)[::-1][: k - 1].sum())
            needed = asked.wanted - largest
            able &= (asked.units >= needed) | (asked.rest if asked.beyond else False)
            return self._distinct(np.flatnonzero(able), asked, below, low, k)
        return np.flatnonzero(able)

    def _distinct(self, able: Ints, asked: Units, below: int, low: int, k: int) -> Ints:
        """Without those of which k are alike: no choice needs more of them."""
        columns = [asked.units, asked.rest, *(each[low : low + len(asked.units)] for each in self.loss.columns(below))]
        seen: Counter[tuple[int, ...]] = Counter()
        keep = []
        for at, alike in zip(able.tolist(), zip(*(each[able].tolist() for each in columns), strict=True), strict=True):
            seen[alike] += 1
            if seen[alike] <= k:
                keep.append(at)
        return np.array(keep, np.int64)

    def _prices(self, asked: Units, below: int, domains: Ints, size: int, last: int) -> Floats:
        """What units cost in each domain, as `select.best` takes it."""
        most = min(int(asked.units.max(initial=0)), asked.wanted)
        x = np.arange(most + 1)
        found = np.full((2, len(domains), most + 1), _INFINITE)
        for hosted in (0, 1) if asked.beyond else (0,):
            takes = (asked.beside if hosted else asked.units)[:, None]
            pods = x * size + (last if hosted else 0)
            lost = self.loss.of(below, domains, pods)
            count = self._count(below, domains, pods)
            weighed = lost + count * _DOMAIN if self.preferred is not None else lost * _LOSS + count
            found[hosted] = np.where(x <= takes, weighed + _TIE * (takes - x) * (pods > 0), _INFINITE)
        return found

    def _count(self, below: int, domains: Ints, pods: Ints) -> Floats:
        """How many domains of the target level so many pods of each domain need, shape (domains, numbers of pods)."""
        if below >= self.target:
            free = np.isin(domains, list(self.used)) if below == self.target else np.zeros(len(domains), np.bool_)
            found: Floats = np.where(free, 0.0, 1.0)[:, None] * (pods > 0)
            return found
        rows = []
        for domain in domains.tolist():
            low, high = self.tree.inside(below, domain, self.target)
            rows.append([self._units(self.target, low, high, int(each)).fewest() if each else 0 for each in pods])
        return np.array(rows, np.float64)

    def _on_rows(self, asked: Units, low: int, high: int) -> Chosen:
        """Rows of one domain: those that are not whole first, then the fewest."""
        if asked.beyond:
            return select.largest_first(asked)
        given = np.zeros(high - low, np.int64)
        wanted = asked.wanted
        whole = self.loss.whole_rows(low, high)
        for part in (~whole, whole):
            at = np.flatnonzero(part & (asked.units > 0))
            share = min(wanted, int(asked.units[at].sum()))
            if share and int(asked.units[at].max()) == 1:
                given[at[:share]] = 1
            elif share:
                given[at] = select.largest_first(Units(asked.units[at], asked.rest[at], share, beyond=False)).given
            wanted -= share
        return Chosen(given, -1)

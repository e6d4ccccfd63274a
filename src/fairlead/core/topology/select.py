"""Which of several domains get how many units: the fewest domains or the least loss, by dynamic programming."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.topology.loss import Floats

_MOST_STEPS = 6_000_000
"""Additions that one choice may cost; beyond, the largest domains come first and the last is the smallest that suffices."""

_FEW_UNITS = 24
"""Up to so many units of a domain are tried one by one, more of them at once."""

_INFINITE = 1e18


class Units(NamedTuple):
    """Units that domains take. units, rest: as in `Capacity`, shape (domains,). wanted: units to be placed.

    beyond: whether there is an incomplete last unit.
    """

    units: Ints
    rest: Mask
    wanted: int
    beyond: bool

    @property
    def beside(self) -> Ints:
        """How many units each domain takes beside the incomplete one; -1 where it does not take that."""
        return np.where(self.rest, self.units, self.units - 1)

    def fit(self) -> bool:
        """Whether the domains take all."""
        total = int(self.units.sum())
        return total > self.wanted or (total == self.wanted and (not self.beyond or bool(self.rest.any())))

    def fewest(self) -> int:
        """The fewest domains that take all; 0 where they do not."""
        if not self.fit():
            return 0
        ordered = np.sort(self.units)[::-1]
        sums = np.concatenate([[0], np.cumsum(ordered)])
        if not self.beyond:
            return int(np.searchsorted(sums, self.wanted))
        # The incomplete unit is one more, unless one of the domains takes it beside all of its units.
        found = int(np.searchsorted(sums, self.wanted + 1))
        if self.rest.any():
            best = int(self.units[self.rest].max())
            at = int(np.flatnonzero(ordered == best)[0])
            with_rest = np.array([sums[k] if k > at else sums[k - 1] + best for k in range(1, len(sums))])
            found = min(found, 1 + int(np.searchsorted(with_rest, self.wanted)))
        return found


class Chosen(NamedTuple):
    """given: units of each domain, shape (domains,). host: the domain with the incomplete unit, -1: there is none."""

    given: Ints
    host: int


def best(asked: Units, prices: Floats) -> Chosen:
    """The cheapest choice. prices: of x units in each domain, in row x, of x and the incomplete one in row x of the second half.

    Shape (2, domains, most + 1) where `most` is at least the most units that a domain could get. Infinite: not possible.
    Ties go to the first domains. Exact; by dynamic programming over the units that are placed.
    """
    most, wanted = prices.shape[2] - 1, asked.wanted
    hosts = 2 if asked.beyond else 1
    cost = np.full((hosts, wanted + 1), _INFINITE)
    cost[0, 0] = 0.0
    steps: list[tuple[Ints, Mask]] = []
    for domain in range(len(asked.units)):
        x = min(most, wanted, int(asked.units[domain]))
        new, taken = _step(cost, prices[0, domain, : x + 1])
        hosted = np.zeros((hosts, wanted + 1), np.bool_)
        if asked.beyond:
            value, least = _step(cost[:1], prices[1, domain, : x + 1])
            hosted[1] = value[0] < new[1]
            new[1] = np.where(hosted[1], value[0], new[1])
            taken[1] = np.where(hosted[1], least[0], taken[1])
        cost = new
        steps.append((taken, hosted))
    given = np.zeros(len(asked.units), np.int64)
    host, flag, left = -1, hosts - 1, wanted
    for domain in range(len(asked.units) - 1, -1, -1):
        taken, hosted = steps[domain]
        given[domain] = taken[flag, left]
        if hosted[flag, left]:
            host, left, flag = domain, left - int(given[domain]), 0
        else:
            left -= int(given[domain])
    return Chosen(given, host)


def _step(cost: Floats, prices: Floats) -> tuple[Floats, Ints]:
    """The least cost of every number of units with one domain more, and how many it gets. cost: shape (h, units + 1)."""
    most = len(prices) - 1
    if most > _FEW_UNITS:
        padded = np.concatenate([np.full((len(cost), most), _INFINITE), cost], axis=1)
        # shifted[h, u, w] is the cost of u - (most - w) units before this domain.
        shifted = np.lib.stride_tricks.sliding_window_view(padded, most + 1, axis=1) + prices[::-1]
        return shifted.min(axis=2), most - shifted.argmin(axis=2)
    new, taken = cost + prices[0], np.zeros(cost.shape, np.int64)
    for x in range(1, most + 1):
        other = cost[:, :-x] + prices[x]
        better = other < new[:, x:]
        np.copyto(new[:, x:], other, where=better)
        np.copyto(taken[:, x:], x, where=better)
    return new, taken


def affordable(asked: Units) -> bool:
    """Whether the exact choice is cheap enough."""
    most = min(int(asked.units.max(initial=0)), asked.wanted) + 1
    return len(asked.units) * most * (asked.wanted + 1) * (2 if asked.beyond else 1) <= _MOST_STEPS


def largest_first(asked: Units) -> Chosen:
    """The largest domains first, the last one the smallest that takes what is left: the fewest domains, by whole units."""
    given = np.zeros(len(asked.units), np.int64)
    left, wanted, host = asked.units.copy(), asked.wanted, -1
    if asked.beyond:
        spare = int(left.sum()) > wanted
        able = np.flatnonzero(asked.rest | (left > 0) if spare else asked.rest)
        takes = asked.beside[able]
        all_of_them = np.flatnonzero(takes >= wanted)
        host = int(able[all_of_them[takes[all_of_them].argmin()]] if len(all_of_them) else able[takes.argmax()])
        left[host] = asked.beside[host]
        given[host] = min(wanted, int(left[host]))
        wanted -= int(given[host])
        left[host] = 0
    while wanted:
        fit = np.flatnonzero(left >= wanted)
        at = int(fit[left[fit].argmin()]) if len(fit) else int(left.argmax())
        given[at] = min(wanted, int(left[at]))
        wanted -= int(given[at])
        left[at] = 0
    return Chosen(given, host)


def balanced(asked: Units, loss: Floats) -> Chosen | None:
    """The fewest domains with equal numbers of units, up to one, the incomplete unit counted as one; None: there are none.

    loss: of each domain by an equal part, the tie-break; shape (domains,).
    """
    total = asked.wanted + int(asked.beyond)
    order = np.argsort(loss, kind="stable")
    for k in range(1, min(total, len(asked.units)) + 1):
        part, more = divmod(total, k)
        found = _parts(asked, order, k, part, more)
        if found is not None:
            return found
    return None


def _parts(asked: Units, order: Ints, k: int, part: int, more: int) -> Chosen | None:
    """`more` domains with part + 1 units each and the others of k with `part`; the cheapest that suffice."""
    units = asked.units[order]
    if not asked.beyond:
        return _assigned(order, units, k, part, more, -1)
    # The domain with the incomplete unit may take it beside its units: then it counts as one that takes one unit more.
    for host in np.flatnonzero(asked.rest[order] | (units > 0)).tolist():
        extended = units.copy()
        extended[host] = asked.beside[order[host]] + 1
        found = _assigned(order, extended, k, part, more, host)
        if found is not None:
            return found
    return None


def _assigned(order: Ints, units: Ints, k: int, part: int, more: int, host: int) -> Chosen | None:
    large = [at for at in np.flatnonzero(units > part).tolist() if at != host]
    small = [at for at in np.flatnonzero(units == part).tolist() if at != host]
    chosen: dict[int, int] = {}
    if host >= 0:
        if units[host] < part or (units[host] == part and more == k):
            return None
        # It takes the larger part if the others cannot fill all of those.
        takes_more = more > 0 and (units[host] > part) and (len(large) < more or more == k)
        chosen[host] = part + int(takes_more)
        more, k = more - int(takes_more), k - 1
    if len(large) < more or len(large) + len(small) < k:
        return None
    for at in large[:more]:
        chosen[at] = part + 1
    for at in sorted([*large[more:], *small])[: k - more]:
        chosen[at] = part
    given = np.zeros(len(units), np.int64)
    for at, amount in chosen.items():
        given[order[at]] = amount - int(at == host)
    return Chosen(given, int(order[host]) if host >= 0 else -1)

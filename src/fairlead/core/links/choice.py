"""Which of the free GPUs of a node a job gets: the best connected set, and of equal ones that which leaves the best remainder.

Sets are bit masks. A table, computed once for each interconnect, has for every set the sum of the weights of its pairs, so a
choice compares all sets of one size by reading the table at them and at what they leave. The remainder is judged by the same sum,
which is the score that MAPA (SC'21) preserves for jobs that depend on bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from fairlead.core.links.matrix import MOST_GPUS, MOST_WEIGHT, Links

Ints = npt.NDArray[np.int64]

_MOST_KEPT = 4096
"""Choices that are remembered for each interconnect."""

_BITS = (MOST_WEIGHT * MOST_GPUS * (MOST_GPUS - 1) // 2).bit_length()
"""Of a sum over all pairs; two of them and a number of GPUs fit an integer of 64 bits."""

_MOST_TABLES = 64
"""Interconnects whose tables are kept: nodes of one model share one."""


class Cards(msgspec.Struct, frozen=True):
    """Network cards as a choice of GPUs needs them, by root number.

    fixed: cards that the job has already. free: cards that it can still get. more: how many of those it wants.
    """

    fixed: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    more: int = 0


NO_CARDS = Cards()


class Choices:
    """The choices of one interconnect. sums: for every set of its GPUs the sum of the weights of its pairs."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.sums = _sums(links.weights)
        sizes = np.bitwise_count(np.arange(len(self.sums), dtype=np.int64))
        self._sets: list[Ints] = [np.flatnonzero(sizes == size) for size in range(links.gpus + 1)]
        self._roots = [
            (number, sum(1 << at for at, root in enumerate(links.roots) if root == number))
            for number in sorted(set(links.roots) - {-1})
        ]
        self._known: dict[tuple[int, int, int, int, Cards], int | None] = {}

    def best(self, free: int, count: int, required: int = 0, allowed: int | None = None, cards: Cards = NO_CARDS) -> int | None:
        """The best set of `count` free GPUs with all required ones; None: there is none.

        free, required, allowed: sets of GPUs. allowed: those that may be chosen, None: all free ones. Required ones count as
        chosen, free or not. The order of preference: most GPUs with a network card of their own root, if any are wanted, the
        sum of the set's weights, that of the GPUs that stay free, the smallest mask.
        """
        allowed = free if allowed is None else allowed & free
        key = free, count, required, allowed, cards
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        found = self._known[key] = self._best(*key)
        return found

    def worth(self, chosen: int, free: int, cards: Cards = NO_CARDS) -> tuple[int, int, int]:
        """By what sets of one size are compared, as in `best`, the larger the better: for sets that were chosen apart."""
        pairs = int(self._beside(np.array([chosen], np.int64), cards)[0]) if cards.fixed or cards.more else 0
        return pairs, self.sums.item(chosen), self.sums.item(free & ~chosen)

    def forget(self) -> None:
        """Forget choices that were made, so that the next one is found anew."""
        self._known.clear()

    def _best(self, free: int, count: int, required: int, allowed: int, cards: Cards) -> int | None:
        if not 0 <= count <= self.links.gpus or (allowed | required).bit_count() < count:
            return None
        sets = self._sets[count]
        closed = len(self.sums) - 1 & ~(allowed | required)
        if closed or required:
            sets = sets[(sets & (closed | required)) == required]
        if not len(sets):
            return None
        # One integer to compare by; the first of equals is the smallest mask.
        worth = (self.sums[sets] << _BITS) + self.sums[free & ~sets]
        if cards.fixed or cards.more:
            worth += self._beside(sets, cards) << 2 * _BITS
        return sets.item(int(worth.argmax()))

    def _beside(self, sets: Ints, cards: Cards) -> Ints:
        """How many GPUs of each set have a network card of their own root."""
        fixed, free = np.zeros(len(sets), np.int64), np.zeros(len(sets), np.int64)
        for number, mask in self._roots:
            there, more = _at(cards.fixed, number), _at(cards.free, number)
            if there or more:
                gpus = np.bitwise_count(sets & mask).astype(np.int64)
                fixed += np.minimum(gpus, there)
                free += np.clip(gpus - there, 0, more)
        return fixed + np.minimum(free, cards.more)


@lru_cache(maxsize=_MOST_TABLES)
def choices_of(links: Links) -> Choices:
    """The choices of an interconnect; equal ones share them."""
    return Choices(links)


def beside(links: Links, gpus: int, nics: Sequence[int], count: int, taken: Sequence[int] = ()) -> list[int]:
    """The network cards for a set of GPUs: `count` of the free ones, those under roots of GPUs that have none yet first.

    nics: positions of the free cards; taken: of those that the job has. Fewer, where fewer are free.
    """
    without: dict[int, int] = {}
    for at, root in enumerate(links.roots):
        if gpus >> at & 1 and root >= 0:
            without[root] = without.get(root, 0) + 1
    for each in taken:
        without[links.nics[each]] = without.get(links.nics[each], 0) - 1
    chosen: list[int] = []
    for each in nics:
        if len(chosen) < count and without.get(links.nics[each], 0) > 0:
            without[links.nics[each]] -= 1
            chosen.append(each)
    with_gpus = set(links.roots)
    others = sorted((each for each in nics if each not in chosen), key=lambda each: (links.nics[each] in with_gpus, each))
    return chosen + others[: count - len(chosen)]


def cards_of(links: Links, fixed: Sequence[int], free: Sequence[int], more: int) -> Cards:
    """Network cards, given by position, counted by root."""
    size = max((*links.roots, *links.nics), default=-1) + 1
    counts: tuple[list[int], list[int]] = ([0] * size, [0] * size)
    for positions, into in zip((fixed, free), counts, strict=True):
        for each in positions:
            if links.nics[each] >= 0:
                into[links.nics[each]] += 1
    return Cards(tuple(counts[0]), tuple(counts[1]), more)


def _at(counts: tuple[int, ...], number: int) -> int:
    return counts[number] if number < len(counts) else 0


def _sums(weights: Sequence[Sequence[int]]) -> Ints:
    """For every set the sum over its pairs: sets with a highest GPU are those below it, each with its pairs with that GPU."""
    count = len(weights)
    sums: Ints = np.zeros(1 << count, np.int64)
    for at in range(count):
        half = 1 << at
        to_it: Ints = np.zeros(half, np.int64)
        for other, weight in zip(range(at), weights[at], strict=False):
            to_it[1 << other : 2 << other] = to_it[: 1 << other] + weight
        sums[half : 2 * half] = sums[:half] + to_it
    return sums

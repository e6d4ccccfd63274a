"""The rules that `bench gpusets` compares: each chooses a set of free GPUs, as a bit mask, for a job of some size.

*Best effort* is the rule of NVIDIA's go-gpuallocator, which its device plugin uses, written anew from its description. It divides
all free GPUs into sets of the job's size (what is left over is one smaller set), takes the division with the highest sum of
scores, and of it the set with the highest score. Of equal divisions it takes the first in lexicographic order. Ours and
*exhaustive* compare sets by bandwidth.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations

import numpy as np

from fairlead.core.links.choice import choices_of
from fairlead.core.links.matrix import Links
from fairlead.core.model.arrays import Ints, Mask
from fairlead.simulation.gpusets.machines import Machine

Rule = Callable[[int, int], int]
"""(free GPUs, how many) -> the set that is chosen; there are enough."""

RULES = ("ours", "exhaustive", "best_effort", "first_fit", "random")


def rules_of(machine: Machine, seed: int) -> dict[str, Rule]:
    """All rules for a machine, by name."""
    choices = choices_of(machine.links)

    def ours(free: int, count: int) -> int:
        return choices.best(free, count) or 0

    return {
        "ours": ours,
        "exhaustive": Exhaustive(machine.links),
        "best_effort": BestEffort(machine.scores),
        "first_fit": first_fit,
        "random": Random(seed),
    }


def first_fit(free: int, count: int) -> int:
    """The lowest free GPUs."""
    chosen = 0
    for _ in range(count):
        low = free & -free
        chosen, free = chosen | low, free ^ low
    return chosen


class Random:
    """Any set of free GPUs."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def __call__(self, free: int, count: int) -> int:
        """See `Rule`."""
        return sum(1 << at for at in self._draw.sample(_members(free), count))


class Exhaustive:
    """The set with the most bandwidth for this job, the lexicographically first of equals.

    The values of sets are quadratic forms over the matrix, computed apart from the tables of the rule that is judged.
    """

    def __init__(self, links: Links) -> None:
        self._count = links.gpus
        self._weights = np.array(links.weights, np.int64)
        self._by_size: dict[int, tuple[Ints, Ints]] = {}

    def value(self, chosen: int) -> int:
        """The bandwidth of a set: the sum over its pairs."""
        members = _members(chosen)
        return sum(int(self._weights[one, two]) for one, two in combinations(members, 2))

    def best(self, free: int, count: int) -> tuple[int, int]:
        """(the set, its value)."""
        sets, values = self._of(count)
        inside = (sets & ~free) == 0
        sets, values = sets[inside], values[inside]
        at = int(values.argmax())
        return int(sets[at]), int(values[at])

    def __call__(self, free: int, count: int) -> int:
        """See `Rule`."""
        return self.best(free, count)[0]

    def _of(self, count: int) -> tuple[Ints, Ints]:
        found = self._by_size.get(count)
        if found is None:
            rows = np.array(list(combinations(range(self._count), count)), np.int64).reshape(-1, count)
            members = np.zeros((len(rows), self._count), np.int64)
            np.put_along_axis(members, rows, 1, axis=1)
            values = ((members @ self._weights) * members).sum(axis=1) // 2
            found = self._by_size[count] = ((1 << rows).sum(axis=1), values)
        return found


class BestEffort:
    """The rule of go-gpuallocator; divisions of a set are remembered, since they are divisions of what a larger one leaves."""

    def __init__(self, links: Links) -> None:
        self._sums = choices_of(links).sums
        self._known: dict[tuple[int, bool], tuple[Ints, Ints]] = {}
        self._places: dict[tuple[int, int, int], tuple[Ints, Mask]] = {}

    def __call__(self, free: int, count: int) -> int:
        """See `Rule`."""
        if count == 1:
            return free & -free
        smaller = bool(free.bit_count() % count)
        self._divide(free, count, smaller)
        sets = []
        while free:
            chosen = self._of(count, smaller)[1].item(free)
            sets.append(chosen)
            free, smaller = free ^ chosen, smaller and chosen.bit_count() == count
        return max((each for each in sets if each.bit_count() == count), key=self._sums.item)

    def _of(self, count: int, smaller: bool) -> tuple[Ints, Ints]:
        """By set of GPUs the score of its best division, -1: not known, and the set in it that has the lowest GPU."""
        found = self._known.get((count, smaller))
        if found is None:
            scores: Ints = np.full(len(self._sums), -1, np.int64)
            scores[0] = 0
            found = self._known[count, smaller] = scores, np.zeros(len(self._sums), np.int64)
        return found

    def _divide(self, free: int, count: int, smaller: bool) -> int:
        """The score of the best division; smaller: whether the smaller set is still to be made."""
        scores, firsts = self._of(count, smaller)
        if scores[free] >= 0:
            return scores.item(free)
        members: Ints = np.array([*(1 << at for at in _members(free)), 0], np.int64)
        groups, short = self._firsts(free.bit_count(), count, free.bit_count() % count if smaller else 0)
        sets: Ints = members[groups].sum(axis=1)
        totals: Ints = self._sums[sets].copy()
        for kind in (False, True) if smaller else (False,):
            of_kind = np.flatnonzero(short == kind)
            rest, still = free ^ sets[of_kind], smaller and not kind
            known = self._of(count, still)[0]
            for each in rest[known[rest] < 0].tolist():
                self._divide(each, count, still)
            totals[of_kind] += known[rest]
        best = int(totals.argmax())  # the first of equals
        scores[free], firsts[free] = totals[best], sets[best]
        return int(totals[best])

    def _firsts(self, size: int, count: int, short: int) -> tuple[Ints, Mask]:
        """Of so many GPUs the sets that the first can be in, with whether it is the smaller one, in lexicographic order.

        What fills up the smaller set counts as one more GPU, after all others.
        """
        key = size, count, short
        found = self._places.get(key)
        if found is None:
            sizes = [(count, False), *([(short, True)] if short else [])]
            groups = sorted(
                ((0, *rest, *[size] * (count - of)), is_short)
                for of, is_short in sizes
                if of <= size
                for rest in combinations(range(1, size), of - 1)
            )
            found = np.array([each for each, _ in groups], np.int64), np.array([is_short for _, is_short in groups], np.bool_)
            self._places[key] = found
        return found


def _members(chosen: int) -> list[int]:
    return [at for at in range(chosen.bit_length()) if chosen >> at & 1]

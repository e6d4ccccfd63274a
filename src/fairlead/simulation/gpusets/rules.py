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
from fairlead.core.model.arrays import Ints
from fairlead.simulation.gpusets.machines import Machine

Rule = Callable[[int, int], int]
"""(free GPUs, how many) -> the set that is chosen; there are enough."""

_AFTER_ALL = 1 << 30

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
        self._weights = links.weights
        self._scores: dict[int, int] = {}
        self._best: dict[tuple[int, int, bool], tuple[int, tuple[int, ...]]] = {}

    def __call__(self, free: int, count: int) -> int:
        """See `Rule`."""
        if count == 1:
            return free & -free
        _, division = self._divided(free, count, bool(free.bit_count() % count))
        return max((each for each in division if each.bit_count() == count), key=self._score)

    def _divided(self, free: int, count: int, smaller: bool) -> tuple[int, tuple[int, ...]]:
        """(score, sets) of the best division; smaller: whether the smaller set is still to be made."""
        if not free:
            return 0, ()
        key = free, count, smaller
        found = self._best.get(key)
        if found is None:
            best = -1
            sets: tuple[int, ...] = ()
            for chosen, short in self._firsts(free, count, smaller):
                score, others = self._divided(free ^ chosen, count, smaller and not short)
                if score + self._score(chosen) > best:
                    best, sets = score + self._score(chosen), (chosen, *others)
            found = self._best[key] = best, sets
        return found

    @staticmethod
    def _firsts(free: int, count: int, smaller: bool) -> list[tuple[int, bool]]:
        """The sets that the lowest GPU can be in, with whether it is the smaller one, in lexicographic order."""
        first, *others = _members(free)
        short = free.bit_count() % count if smaller else 0
        sizes = [(count, False), *([(short, True)] if short else [])]
        found = []
        for size, is_short in sizes:
            if size <= len(others) + 1:
                found += [((first, *rest), is_short) for rest in combinations(others, size - 1)]
        # What fills up the smaller set comes after all GPUs.
        found.sort(key=lambda each: (*each[0], *[_AFTER_ALL] * (count - len(each[0]))))
        return [(sum(1 << at for at in members), is_short) for members, is_short in found]

    def _score(self, chosen: int) -> int:
        found = self._scores.get(chosen)
        if found is None:
            found = sum(self._weights[one][two] for one, two in combinations(_members(chosen), 2))
            self._scores[chosen] = found
        return found


def _members(chosen: int) -> list[int]:
    return [at for at in range(chosen.bit_length()) if chosen >> at & 1]

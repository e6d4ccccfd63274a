"""Covering problems: demands of several classes, and sources that each serve one of some vectors of demands.

Sources are cells of partitions (`packing.py`) or nodes (`gangs.py`). The linear relaxation proves that demands cannot be served
(weights of demands under which they are more than all sources can serve, checked in integers, so that rounding never makes a
wrong verdict), or gives most sources a vector; the rest is searched, source by source, with the weights as a bound and states
that failed remembered. The method is the simplex method on a dense tableau (Dantzig 1951), with Bland's rule once it takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

Vector = tuple[int, ...]

_SCALE, _LARGEST = 1 << 20, 1 << 40
_SMALL = 1e-9
_ROUNDING = 1e-6
_EXTENDING = 20
_PART, _RELAXED, _MOST_PROOFS = 16, 8, 32
_PIVOTS, _MOST_PIVOTS = 60, 400


class GaveUp(Exception):
    """The work budget is used up; whether there is a solution is not known."""


class Source(msgspec.Struct, frozen=True):
    """So many equal cells or devices, each of which serves one of some vectors of demands."""

    count: int
    vectors: tuple[Vector, ...]


class Relaxed(msgspec.Struct, frozen=True):
    """The relaxation's result. impossible: proven; weights: of demands; best: by source, the heaviest vector's weight.

    counts: by source and vector, how many of it are given that vector, in fractions.
    """

    impossible: bool
    weights: Vector
    best: tuple[int, ...]
    counts: tuple[tuple[float, ...], ...]


class Relaxation:
    """Demands served from sources that are divided at will: what of the linear problem is the same for all demands."""

    def __init__(self, size: int, sources: Sequence[Source]) -> None:
        self._sources, self._size = sources, size
        vectors = [vector for each in sources for vector in each.vectors]
        self._vectors = np.array(vectors, dtype=np.int64).reshape(len(vectors), size)
        self._starts = [0]
        for each in sources:
            self._starts.append(self._starts[-1] + len(each.vectors))
        # Variables: the part that is served, sources by vector; then slacks. Rows: demands, then sources; last the objective.
        rows, columns = size + len(sources), len(vectors)
        table = np.zeros((rows + 1, 1 + columns + rows + 1))
        table[:size, 1 : 1 + columns] = -self._vectors.T
        for number, each in enumerate(sources):
            table[size + number, 1 + self._starts[number] : 1 + self._starts[number + 1]] = 1
            table[size + number, -1] = each.count
        np.fill_diagonal(table[:rows, 1 + columns : 1 + columns + rows], 1.0)
        table[rows, 0] = -1
        self._table = table

    def solve(self, demand: Vector) -> Relaxed:
        """Serve `demand`."""
        table, size = self._table.copy(), self._size
        rows, columns = table.shape[0] - 1, len(self._vectors)
        table[:size, 0] = demand
        basis = list(range(1 + columns, 1 + columns + rows))
        _solve(table, basis)
        duals = table[rows, 1 + columns : 1 + columns + size].tolist()
        weights = tuple(max(0, round(each * _SCALE)) for each in duals)
        best = self.best(weights)
        served = sum(each.count * most for each, most in zip(self._sources, best, strict=True))
        part = max(float(table[rows, -1]), 1.0)
        amounts = [0.0] * table.shape[1]
        for variable, amount in zip(basis, table[:rows, -1].tolist(), strict=True):
            amounts[variable] = amount / part
        counts = [tuple(amounts[1 + start : 1 + end]) for start, end in pairwise(self._starts)]
        return Relaxed(_weigh(weights, demand) > served, weights, best, tuple(counts))

    def best(self, weights: Vector) -> tuple[int, ...]:
        """The heaviest vector's weight, by source."""
        if max(weights, default=0) > _LARGEST or not self._starts[1:]:  # too large for sums of 64 bits
            return tuple(max(_weigh(weights, vector) for vector in each.vectors) for each in self._sources)
        weighed = self._vectors @ np.array(weights, dtype=np.int64)
        return tuple(np.maximum.reduceat(weighed, self._starts[:-1]).tolist())


def relax(demand: Vector, sources: Sequence[Source]) -> Relaxed:
    """Serve `demand` from sources that are divided at will."""
    return Relaxation(len(demand), sources).solve(demand)


def _solve(table: np.ndarray, basis: list[int]) -> None:
    """Pivot until no variable improves the objective, or for so long: any tableau gives weights that are checked."""
    rows = len(basis)
    costs, right = table[rows, :-1], table[:rows, -1]
    for step in range(_MOST_PIVOTS):
        entering = int(costs.argmin()) if step < _PIVOTS else int((costs < -_SMALL).argmax())
        if costs[entering] >= -_SMALL:
            return
        column = table[:, entering].copy()
        candidates = (column[:rows] > _SMALL).nonzero()[0]
        if not len(candidates):
            return
        ratios = right[candidates] / column[candidates]
        at = int(ratios.argmin())
        if step >= _PIVOTS:
            ties = (ratios <= ratios[at] + _SMALL).nonzero()[0]
            at = min((int(each) for each in ties), key=lambda each: basis[candidates[each]])
        leaving = int(candidates[at])
        row = table[leaving]
        row /= column[leaving]
        column[leaving] = 0
        table -= column[:, None] * row
        basis[leaving] = entering


def _weigh(weights: Vector, vector: Vector) -> int:
    return sum(map(int.__mul__, weights, vector))


class Cover:
    """The search for a cover. solution: (source, vector) of the last one that was found.

    kinds: sources that are given vectors. others: sources that only count in bounds; `rest` decides whether what is left can be
    served without the kinds.
    """

    def __init__(self, kinds: Sequence[Source], others: Sequence[Source], rest: Callable[[Vector], bool], budget: int) -> None:
        self.solution: list[tuple[int, Vector]] = []
        self.work = 0
        self._kinds, self._sources, self._leaf, self._budget = kinds, [*kinds, *others], rest, budget
        self._weights: list[tuple[Vector, list[int], int]] = []
        self._failed: set[tuple[int, int, Vector, tuple[int, ...]]] = set()
        self._given: list[tuple[int, Vector]] = []
        self._proofs: list[tuple[Vector, int]] = []
        self._relaxation: Relaxation | None = None
        self._ones: tuple[Vector, list[int], int] = ((), [], 0)
        self._impossible: list[Vector] = []
        self._served: Vector = ()

    def solve(self, demand: Vector) -> bool:
        """Whether demands can be served at once. Raises `GaveUp`."""
        if self._leaf(self.left(demand)):
            return True
        if not self._kinds or any(_weigh(weights, demand) > most for weights, most in self._proofs):
            return False
        if any(all(map(int.__ge__, demand, less)) for less in self._impossible):
            return False
        found = self._extend(demand) or self._solve(demand)
        if not found:
            self._impossible.append(demand)
        return found

    def _extend(self, demand: Vector) -> bool:
        """Whether sources that the last cover left serve what it does not; False proves nothing."""
        if not self.solution:
            return False
        counts = [kind.count for kind in self._kinds]
        for number, _ in self.solution:
            counts[number] -= 1
        budget, self._budget = self._budget, min(self._budget, self.work + _EXTENDING)
        self._given = list(self.solution)
        try:
            found = self._cover(0, counts[0], self.left(demand), tuple(counts[1:]))
        except GaveUp:
            found = False
        finally:
            self._budget = budget
        if found:
            self._keep()
        return found

    def _keep(self) -> None:
        self.solution = list(self._given)
        self._served = tuple(map(sum, zip(*(vector for _, vector in self.solution), strict=True)))

    def _solve(self, demand: Vector) -> bool:
        if self._relaxation is None:
            self._relaxation = Relaxation(len(demand), self._sources)
            ones = (1,) * len(demand)
            self._ones = self._limit(ones, self._relaxation.best(ones))
        relaxed = self._relaxation.solve(demand)
        self.work += _RELAXED
        self._weights = [self._limit(relaxed.weights, relaxed.best), self._ones]
        if relaxed.impossible:
            return False
        counts, rest = [kind.count for kind in self._kinds], demand
        self._given = []
        for number, kind in enumerate(self._kinds):
            for vector, amount in zip(kind.vectors, relaxed.counts[number], strict=True):
                for _ in range(min(int(amount + _ROUNDING), counts[number])):
                    clipped = tuple(map(min, vector, rest))
                    if any(clipped):
                        rest = tuple(map(int.__sub__, rest, clipped))
                        self._given.append((number, vector))
                        counts[number] -= 1
        found = self._cover(0, counts[0], rest, tuple(counts[1:]))
        if not found and self._given:
            self._given = []
            found = self._cover(0, self._kinds[0].count, demand, tuple(kind.count for kind in self._kinds[1:]))
        if found:
            self._keep()
        return found

    def is_too_much(self, demand: Vector, more: Sequence[tuple[Sequence[Vector], int]]) -> bool:
        """Whether demands cannot be served beside one of several others for each of `more`, (alternatives, how often).

        True is proven by weights that were found before; False proves nothing.
        """
        return any(
            _weigh(weights, demand) + sum(count * min(_weigh(weights, each) for each in others) for others, count in more) > most
            for weights, most in self._proofs
        )

    def left(self, demand: Vector) -> Vector:
        """What the last cover leaves of demands."""
        if not self._served:
            return demand
        return tuple(max(0, wanted - served) for wanted, served in zip(demand, self._served, strict=True))

    def _limit(self, weights: Vector, best: Sequence[int]) -> tuple[Vector, list[int], int]:
        """Weights by which branches are cut off: with the heaviest vector of each source, and what the other sources serve."""
        total = [value * source.count for value, source in zip(best, self._sources, strict=True)]
        self._proofs = [*self._proofs[-_MOST_PROOFS:], (weights, sum(total))]
        return weights, list(best), sum(total[len(self._kinds) :])

    def _cover(self, kind: int, count: int, demand: Vector, later: tuple[int, ...]) -> bool:
        """Serve demands with so many sources of a kind, so many of later kinds, and without them."""
        if self._leaf(demand):
            return True
        while later and not count:
            kind, count, later = kind + 1, later[0], later[1:]
        key = (kind, count, demand, later)
        if not count or key in self._failed:
            return False
        self.work += 1 + len(self._kinds[kind].vectors) // _PART
        if self.work > self._budget:
            raise GaveUp
        spare = self._spare(kind, count, demand, later)
        any_ = False
        for clipped, vector in () if spare is None else self._options(kind, demand, spare):
            any_ = True
            self._given.append((kind, vector))
            if self._cover(kind, count - 1, tuple(map(int.__sub__, demand, clipped)), later):
                return True
            self._given.pop()
        if not any_ and spare is not None and self._cover(kind, 0, demand, later):
            return True
        self._failed.add(key)
        return False

    def _options(self, kind: int, demand: Vector, spare: list[int]) -> Iterator[tuple[Vector, Vector]]:
        """Vectors of a kind, as far as there is demand for them, without those that others contain; the heaviest first.

        spare: by weights, how much lighter than the heaviest one may be so that what is left can still be served.
        """
        found: dict[Vector, Vector] = {}
        for vector in self._kinds[kind].vectors:
            clipped = tuple(map(min, vector, demand))
            if clipped not in found and any(clipped):
                found[clipped] = vector
        ordered = []
        for clipped in found:
            weighed = [_weigh(weights, clipped) for weights, _, _ in self._weights]
            if all(weight + rest >= best[kind] for weight, rest, (_, best, _) in zip(weighed, spare, self._weights, strict=True)):
                ordered.append((-weighed[0], clipped))
        kept: list[Vector] = []
        for _, each in sorted(ordered):
            if not any(all(map(int.__le__, each, other)) for other in kept):
                kept.append(each)
                yield each, found[each]

    def _spare(self, kind: int, count: int, demand: Vector, later: tuple[int, ...]) -> list[int] | None:
        """By weights, how much more than demands the sources can serve; None: they can serve less by some."""
        found = []
        for weights, best, plain in self._weights:
            served = plain + count * best[kind] + sum(map(int.__mul__, later, best[kind + 1 :]))
            found.append(served - _weigh(weights, demand))
            if found[-1] < 0:
                return None
        return found

"""Covering problems: demands of several classes, and sources that each serve one of some vectors of demands.

Sources are cells of partitions (`packing.py`) or nodes (`gangs.py`). The linear relaxation proves that demands cannot be served
(weights of demands under which they are more than all sources can serve, checked in integers, so that rounding never makes a
wrong verdict), or gives most sources a vector; the rest is searched, source by source, with the weights as a bound and states
that failed remembered. The method is the simplex method on a dense tableau (Dantzig 1951), with Bland's rule once it takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

Vector = tuple[int, ...]

_SCALE = 1 << 20
_SMALL = 1e-9
_ROUNDING = 1e-6
_EXTENDING = 20
_PIVOTS, _MOST_PIVOTS = 60, 400


class GaveUp(Exception):
    """The work budget is used up; whether there is a solution is not known."""


class Source(msgspec.Struct, frozen=True):
    """So many equal cells or devices, each of which serves one of some vectors of demands."""

    count: int
    vectors: tuple[Vector, ...]


class Relaxed(msgspec.Struct, frozen=True):
    """The relaxation's result. impossible: proven; weights: of demands; counts: by source and vector, cells in fractions."""

    impossible: bool
    weights: Vector
    counts: tuple[tuple[float, ...], ...]


def relax(demand: Vector, sources: Sequence[Source]) -> Relaxed:
    """Serve `demand` from sources, cells divided at will."""
    rows, columns = len(demand) + len(sources), sum(len(each.vectors) for each in sources)
    # Variables: the part that is served, cells by vector; then slacks. Rows: demands, then sources; last the objective.
    table = np.zeros((rows + 1, 1 + columns + rows + 1))
    at = 1
    for number, each in enumerate(sources):
        for vector in each.vectors:
            table[: len(demand), at] = [-value for value in vector]
            table[len(demand) + number, at] = 1
            at += 1
        table[len(demand) + number, -1] = each.count
    table[: len(demand), 0] = demand
    table[:rows, 1 + columns : 1 + columns + rows] = np.eye(rows)
    table[rows, 0] = -1
    basis = list(range(1 + columns, 1 + columns + rows))
    _solve(table, basis)
    duals = table[rows, 1 + columns : 1 + columns + len(demand)]
    weights = tuple(max(0, round(float(each) * _SCALE)) for each in duals)
    served = sum(each.count * max(_weigh(weights, vector) for vector in each.vectors) for each in sources)
    part = float(table[rows, -1])
    amounts = [0.0] * (1 + columns + rows)
    for row, variable in enumerate(basis):
        amounts[variable] = float(table[row, -1]) / max(part, 1.0)
    counts, at = [], 1
    for each in sources:
        counts.append(tuple(amounts[at : at + len(each.vectors)]))
        at += len(each.vectors)
    return Relaxed(_weigh(weights, demand) > served, weights, tuple(counts))


def _solve(table: np.ndarray, basis: list[int]) -> None:
    """Pivot until no variable improves the objective, or for so long: any tableau gives weights that are checked."""
    rows = len(basis)
    for step in range(_MOST_PIVOTS):
        costs = table[rows, :-1]
        entering = int(np.argmin(costs)) if step < _PIVOTS else int(np.argmax(costs < -_SMALL))
        if costs[entering] >= -_SMALL:
            return
        column = table[:rows, entering]
        ratios = np.where(column > _SMALL, table[:rows, -1] / np.where(column > _SMALL, column, 1.0), np.inf)
        lowest = ratios.min()
        if lowest == np.inf:
            return
        ties = np.flatnonzero(ratios <= lowest + _SMALL)
        leaving = int(ties[0]) if step < _PIVOTS else min((int(each) for each in ties), key=basis.__getitem__)
        table[leaving] /= table[leaving, entering]
        factors = table[:, entering].copy()
        factors[leaving] = 0
        table -= np.outer(factors, table[leaving])
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
        relaxed = relax(demand, self._sources)
        self._bound(relaxed.weights)
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

    def _bound(self, weights: Vector) -> None:
        """Weights by which branches are cut off from now on: these, and that each demand counts alike."""
        self._weights = []
        for each in (weights, (1,) * len(weights)):
            best = [max(_weigh(each, vector) for vector in source.vectors) for source in self._sources]
            total = [value * source.count for value, source in zip(best, self._sources, strict=True)]
            self._weights.append((each, best, sum(total[len(self._kinds) :])))
            self._proofs.append((each, sum(total)))

    def _cover(self, kind: int, count: int, demand: Vector, later: tuple[int, ...]) -> bool:
        """Serve demands with so many sources of a kind, so many of later kinds, and without them."""
        if self._leaf(demand):
            return True
        while later and not count:
            kind, count, later = kind + 1, later[0], later[1:]
        key = (kind, count, demand, later)
        if not count or key in self._failed:
            return False
        self.work += 1
        if self.work > self._budget:
            raise GaveUp
        options = [] if (heavy := self._too_heavy(kind, count, demand, later)) else self._options(kind, demand)
        for clipped, vector in options:
            self._given.append((kind, vector))
            if self._cover(kind, count - 1, tuple(map(int.__sub__, demand, clipped)), later):
                return True
            self._given.pop()
        if not options and not heavy and self._cover(kind, 0, demand, later):
            return True
        self._failed.add(key)
        return False

    def _options(self, kind: int, demand: Vector) -> list[tuple[Vector, Vector]]:
        """Vectors of a kind, as far as there is demand for them, without those that others contain; the heaviest first."""
        found: dict[Vector, Vector] = {}
        for vector in self._kinds[kind].vectors:
            clipped = tuple(map(min, vector, demand))
            if clipped not in found and any(clipped):
                found[clipped] = vector
        weights = self._weights[0][0]
        ordered = sorted(found, key=lambda each: (-_weigh(weights, each), each))
        kept: list[Vector] = []
        for each in ordered:
            if not any(all(map(int.__le__, each, other)) for other in kept):
                kept.append(each)
        return [(each, found[each]) for each in kept]

    def _too_heavy(self, kind: int, count: int, demand: Vector, later: tuple[int, ...]) -> bool:
        for weights, best, plain in self._weights:
            served = plain + count * best[kind] + sum(map(int.__mul__, later, best[kind + 1 :]))
            if _weigh(weights, demand) > served:
                return True
        return False

"""What rows still take while the pods of a gang are put on them one group after the other."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.topology.request import Request


class Remaining:
    """How many pods of each shape every row takes beside those that were put there. fits: for each shape, shape (rows,)."""

    def __init__(self, request: Request) -> None:
        self._shapes = request.shapes
        self._free = None if request.free is None or not all(each.needs for each in request.shapes) else request.free
        self._given: list[Ints] = [np.maximum(np.asarray(each.fits, np.int64), 0) for each in request.shapes]
        self.fits: list[Ints] = [each.copy() for each in self._given]
        self._put: dict[int, dict[int, int]] = {}
        self.changes = 0
        """How often something was put or taken back."""

    def reset(self) -> None:
        """Nothing was put anywhere."""
        for row in self._put:
            for fits, given in zip(self.fits, self._given, strict=True):
                fits[row] = given[row]
        self._put.clear()
        self.changes += 1

    def put(self, row: int, shape: int, pods: int) -> None:
        """So many pods of a shape are on a row now."""
        held = self._put.setdefault(row, {})
        held[shape] = held.get(shape, 0) + pods
        self._update(row, held)

    def take_back(self, row: int, shape: int, pods: int) -> None:
        """The reverse of `put`."""
        held = self._put[row]
        held[shape] -= pods
        self._update(row, held)

    def _update(self, row: int, held: dict[int, int]) -> None:
        self.changes += 1
        for number, fits in enumerate(self.fits):
            own, most = held.get(number, 0), int(self._given[number][row])
            others = {shape: pods for shape, pods in held.items() if pods and shape != number}
            if not others:
                fits[row] = most - own
            elif self._free is not None:
                fits[row] = max(0, min(most - own, self._by_amounts(row, number, held)))
            else:
                # A row that takes 8 of one shape or 4 of another takes 2 of the other beside 4 of the first.
                used = sum((Fraction(pods, int(self._given[shape][row])) for shape, pods in others.items()), Fraction(0))
                fits[row] = max(0, int(most * (1 - used)) - own)

    def _by_amounts(self, row: int, number: int, held: dict[int, int]) -> int:
        assert self._free is not None  # noqa: S101  # for the types
        most = int(self._given[number][row])
        for resource, free in enumerate(self._free[row].tolist()):
            used = sum(pods * self._shapes[shape].needs[resource] for shape, pods in held.items())
            need = self._shapes[number].needs[resource]
            if need > 0:
                most = min(most, (free - used) // need)
        return most

"""What whole domains lose by pods that are put in them: the price by which large free domains stay whole.

A row is whole where work that needs whole domains could use it now. A domain with w whole rows of
z rows is worth (w + z / 4) ** 1.5, in parts of the largest domain of its level when it is whole. By the power one whole domain is
worth more than two halves; by the share of z damage is cheap in small domains, which never hold what a large one holds. Both
numbers were measured on a real fabric (docs/design/topology.md).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.topology.tree import Tree

Floats = npt.NDArray[np.float64]

_POWER = 1.5
_SHARE = 0.25


class Loss:
    """Prices of pods of one shape in each domain, by level. fits: of the shape on each row. whole: rows that are whole."""

    def __init__(self, tree: Tree, fits: Ints, whole: Mask) -> None:
        self._whole: list[Ints] = [np.zeros(0, np.int64)] * (tree.depth + 1)
        self._pods: list[Ints] = [np.zeros(0, np.int64)] * (tree.depth + 1)
        self._beside: list[Ints] = [np.zeros(0, np.int64)] * (tree.depth + 1)
        self._rows: list[Ints] = [np.zeros(0, np.int64)] * (tree.depth + 1)
        amounts = [whole.astype(np.int64), fits, np.where(whole, 0, fits), np.ones(tree.rows, np.int64)]
        columns = [each[tree.order] for each in amounts]
        for level in range(tree.depth, -1, -1):
            self._whole[level], self._pods[level], self._beside[level], self._rows[level] = columns
            columns = [tree.up(each, level) for each in columns] if level else columns
        self._largest = [float(each.max(initial=1)) for each in self._rows]

    def whole_rows(self, low: int, high: int) -> Mask:
        """Which rows, in topology order, are whole."""
        found: Mask = self._whole[-1][low:high] > 0
        return found

    def columns(self, level: int) -> tuple[Ints, Ints, Ints, Ints]:
        """What losses of the domains of a level follow from: of equal values, equal losses."""
        return self._whole[level], self._pods[level], self._beside[level], self._rows[level]

    def of(self, level: int, domains: Ints, pods: Ints) -> Floats:
        """What domains lose by so many pods of each. Shapes (d,), and (d, n) or (n,); of the answer (d, n)."""
        whole = self._whole[level][domains, None].astype(np.float64)
        rows = self._rows[level][domains, None]
        beside = self._beside[level][domains, None]
        # Rows that are not whole come first. Each other row that is touched is lost.
        touched = np.ceil(whole * np.maximum(pods - beside, 0) / np.maximum(self._pods[level][domains, None] - beside, 1))
        most = self._largest[level] * (1 + _SHARE)
        before = (whole + _SHARE * rows) / most
        after = (np.maximum(whole - touched, 0) + _SHARE * rows) / most
        lost: Floats = before**_POWER - after**_POWER
        return lost

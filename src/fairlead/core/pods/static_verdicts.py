"""Which nodes the static filters leave to a shape, and why not the others; found anew when nodes change.

A refusal names the nodes that were never possible each time that a unit is tried in vain; only nodes decide about those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import RowNumbers
from fairlead.core.pods.ranking import Ranking

_KEPT = 256  # shapes at most


class Verdicts(NamedTuple):
    """admitted: open rows that the static filters admit, shape (rows,); refused: (class of nodes, how many open nodes of it)."""

    admitted: RowNumbers
    refused: list[tuple[int, int]]


class StaticVerdicts:
    """What was found for each shape, as long as no node changes."""

    def __init__(self, _state: object) -> None:
        self._versions = (-1, -1, -1)
        self._known: dict[int, Verdicts] = {}  # number of the shape ->

    def of(self, ranking: Ranking) -> Verdicts:
        """The verdicts about a shape on the nodes as they are."""
        nodes, classes = ranking.nodes, ranking.nodes.classes
        versions = nodes.described, classes.epoch, len(classes.known)
        if self._versions != versions or len(self._known) > _KEPT:
            self._versions = versions
            self._known.clear()
        found = self._known.get(ranking.shape.number)
        if found is None:
            rows = np.fromiter(nodes.rows.values(), np.int32, len(nodes.rows))
            rows = rows[nodes.open[rows]]
            admitted = ranking.admitted(rows)
            numbers, counts = np.unique(classes.column[rows[~admitted]], return_counts=True)
            found = Verdicts(rows[admitted], list(zip(numbers.tolist(), counts.tolist(), strict=True)))
            self._known[ranking.shape.number] = found
        return found

"""Node terms: what the static filters read of a pod, and which nodes these leave. Shapes that ask for nodes alike share them.

Only nodes decide about it, so what was found holds until a node changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from fairlead.core.model.arrays import Mask, RowNumbers
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.node_classes import CLOSED
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.filters import first_refusal


class Verdicts(NamedTuple):
    """admitted: open rows that the static filters admit, shape (rows,); refused: (class of nodes, how many open nodes of it)."""

    admitted: RowNumbers
    refused: list[tuple[int, int]]


class NodeTerms:
    """Under which terms nodes admit pods. spec: of one of the pods, what the filters read of the others is the same."""

    def __init__(self, spec: PodSpec, nodes: NodeTable) -> None:
        self.spec = spec
        self._nodes = nodes
        self._classes = nodes.classes
        self._seen = (-1, -1, -1, -1)  # the nodes of which all else was found
        self._class_epoch = -1
        self._by_class: Mask = np.zeros(0, np.bool_)
        self._by_row: Mask | None = None
        self._verdicts: Verdicts | None = None

    def admits(self, row: int) -> bool:
        """Whether nodes like that of a row may hold them."""
        classes = self._classes
        if self._class_epoch != classes.epoch or len(self._by_class) < len(classes.known):
            self._judge_classes()
        return self._by_class.item(classes.column.item(row))

    def admitted(self) -> Mask:
        """For each row whether its node may hold them; shape (rows,), not to be written to."""
        self._see()
        if self._by_row is None:
            self._by_row = self._by_class[self._classes.column[: self._nodes.count]]
            self._by_row.flags.writeable = False
        return self._by_row

    def verdicts(self) -> Verdicts:
        """Which open nodes may hold them, and which may not."""
        self._see()
        if self._verdicts is None:
            nodes, column = self._nodes, self._classes.column
            rows = np.fromiter(nodes.rows.values(), np.int32, len(nodes.rows))
            rows = rows[nodes.open[rows]]
            admitted = self._by_class[column[rows]]
            numbers, counts = np.unique(column[rows[~admitted]], return_counts=True)
            self._verdicts = Verdicts(rows[admitted], list(zip(numbers.tolist(), counts.tolist(), strict=True)))
        return self._verdicts

    def _see(self) -> None:
        """Forget what was found of other nodes."""
        classes = self._classes
        seen = self._nodes.described, self._nodes.count, classes.epoch, len(classes.known)
        if self._seen != seen:
            self._judge_classes()
            self._seen, self._by_row, self._verdicts = seen, None, None

    def _judge_classes(self) -> None:
        classes = self._classes
        if self._class_epoch != classes.epoch:
            self._class_epoch = classes.epoch
            self._by_class = np.zeros(0, np.bool_)
        known = len(self._by_class)
        if known < len(classes.known):
            verdicts = [
                number != CLOSED and first_refusal(self.spec, classes.known[number]) is None
                for number in range(known, len(classes.known))
            ]
            self._by_class = np.concatenate([self._by_class, np.array(verdicts, np.bool_)])


class TermsTable:
    """The terms of all pods, as long as a shape has them."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._known: WeakValueDictionary[Hashable, NodeTerms] = WeakValueDictionary()

    def of(self, spec: PodSpec) -> NodeTerms:
        """The terms of a spec."""
        key = _read(spec)
        terms = self._known.get(key)
        if terms is None:
            terms = self._known[key] = NodeTerms(spec, self._nodes)
        return terms


def _read(spec: PodSpec) -> Hashable:
    """All that the static filters read of a spec."""
    own = spec.requests if spec.own_gpus else None
    return spec.node_name, spec.node_selector, spec.affinity, spec.tolerations, spec.features, own, bool(spec.paired)

"""Node classes: nodes that are alike to filters that never read free amounts, by labels that are read, taints, features."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fairlead.core.model.nodes import Node, Taint
from fairlead.core.model.selectors import NAME_FIELD

CLOSED = 0  # the class of rows that take nothing: vacant, or with an object that cannot be read


class NodeClass:
    """What filters that never read free amounts may know about a node."""

    __slots__ = ("features", "labels", "name", "taints", "unschedulable")

    def __init__(
        self,
        labels: dict[str, str],
        taints: tuple[Taint, ...],
        *,
        unschedulable: bool,
        features: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        self.labels = labels
        self.features = features
        self.name = name  # only where a filter reads it
        self.taints = taints
        self.unschedulable = unschedulable


_CLOSED_CLASS = NodeClass({}, (), unschedulable=True)


class NodeClasses:
    """column: the class of every row. known: classes by number. epoch: raised when all are numbered anew."""

    def __init__(self, capacity: int) -> None:
        self.column: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.known: list[NodeClass] = [_CLOSED_CLASS]
        self.epoch = 0
        self._numbers: dict[Any, int] = {}
        self._label_keys: set[str] = set()

    def grow(self) -> None:
        """There are twice as many rows."""
        self.column = np.concatenate([self.column, np.zeros_like(self.column)])

    def read_labels(self, keys: set[str]) -> bool:
        """From now on filters read these labels. Returns whether all rows must be classified anew for that."""
        if keys <= self._label_keys:
            return False
        self._label_keys |= keys
        del self.known[CLOSED + 1 :]
        self._numbers.clear()
        self.epoch += 1
        return True

    def classify(self, row: int, node: Node | None) -> None:
        """A row has the class of its node. None: it takes nothing."""
        if node is None:
            self.column[row] = CLOSED
            return
        labels = {key: value for key, value in node.labels.items() if key in self._label_keys}
        name = node.name if NAME_FIELD in self._label_keys else ""
        key = (tuple(sorted(labels.items())), node.taints, node.unschedulable, node.features, name)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.known)
            self.known.append(NodeClass(labels, node.taints, unschedulable=node.unschedulable, features=node.features, name=name))
        self.column[row] = number

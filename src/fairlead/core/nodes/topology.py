"""Topology: which domain of a label key each node lies in: a column of domain numbers, 0 where a node lacks the key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from fairlead.core.model.arrays import Domains


class Topology:
    """The domain of every row for one label key."""

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.domain: Domains = np.zeros(capacity, np.int32)
        self.values: list[str] = [""]  # by number; the first stands for nodes without the label
        self._numbers: dict[str, int] = {}

    def clear(self, row: int) -> None:
        """The row is vacant."""
        self.domain[row] = 0

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """A row's node has these labels now."""
        value = labels.get(self.key)
        if value is None:
            self.domain[row] = 0
            return
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        self.domain[row] = number


class EachRow(Topology):
    """Every row a domain of its own, whatever its node's labels are."""

    @override
    def set(self, row: int, labels: Mapping[str, str]) -> None:
        while len(self.values) <= row + 1:
            self.values.append("")
        self.domain[row] = row + 1

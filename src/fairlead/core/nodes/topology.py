"""Topologies: which domain of a label key each node lies in: a column of domain numbers, 0 where a node lacks the key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from fairlead.core.model.arrays import Domains
from fairlead.core.model.nodes import Node

_EACH_ROW = "\0"  # no label key


class Topology:
    """The domain of every row for one label key."""

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.domain: Domains = np.zeros(capacity, np.int32)
        self.values: list[str] = [""]  # by number; the first stands for nodes without the label
        self._numbers: dict[str, int] = {}

    def number(self, value: str) -> int:
        """The number of a value; -1: no node has had it."""
        return self._numbers.get(value, -1)

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


class Topologies:
    """The topologies that are asked for, kept up to date. version: raised when a node comes, goes, or changes its labels."""

    def __init__(self, capacity: int, rows: Mapping[str, int], objects: Sequence[Node | None]) -> None:
        self.version = 0
        self._capacity = capacity
        self._rows = rows
        self._objects = objects
        self._by_key: dict[str, Topology] = {}

    @property
    def each_row(self) -> Topology:
        """Every row a domain of its own."""
        return self.of(_EACH_ROW)

    def of(self, key: str) -> Topology:
        """The domains of a topology key, from now on kept up to date."""
        made = self._by_key.get(key)
        if made is None:
            made = self._by_key[key] = (EachRow if key == _EACH_ROW else Topology)(key, self._capacity)
            for row in self._rows.values():
                node = self._objects[row]
                if node is not None:
                    made.set(row, node.labels)
        return made

    def keep(self, topology: Topology) -> None:
        """Keep up to date what was made by another rule than by the value of one label; its key is that of nothing else."""
        topology.domain = np.zeros(self._capacity, np.int32)
        for row in self._rows.values():
            node = self._objects[row]
            if node is not None:
                topology.set(row, node.labels)
        self._by_key[topology.key] = topology

    def drop(self, key: str) -> None:
        """Keep a topology up to date no longer."""
        self._by_key.pop(key, None)

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """A row's node has these labels now."""
        self.version += 1
        for topology in self._by_key.values():
            topology.set(row, labels)

    def clear(self, row: int) -> None:
        """The row is vacant."""
        self.version += 1
        for topology in self._by_key.values():
            topology.clear(row)

    def grow(self) -> None:
        """There are twice as many rows."""
        self._capacity *= 2
        for topology in self._by_key.values():
            topology.domain = np.concatenate([topology.domain, np.zeros_like(topology.domain)])

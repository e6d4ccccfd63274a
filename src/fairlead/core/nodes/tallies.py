"""Tallies: a count per row, added up over the domains of a topology, on those nodes that count.

A tally remembers what it added for each row and repairs just the rows that were touched by the node table's ring, so that it
costs what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fairlead.core.model.arrays import Domains, Ints, Mask
from fairlead.core.nodes.table import NodeTable
from fairlead.core.nodes.topology import Topology

_NONE_SEEN = np.iinfo(np.int64).max


class Eligibility:
    """Which nodes count for a spread constraint: those with all of its pod's topology keys that its policies admit.

    key: equal for equal questions. admits: of a static class of nodes.
    """

    def __init__(self, key: object, topologies: tuple[Topology, ...], admits: Callable[[int], bool] | None) -> None:
        self.key = key
        self.topologies = topologies
        self._admits = admits
        self._classes: Mask = np.zeros(0, np.bool_)
        self._epoch = -1

    def row(self, nodes: NodeTable, row: int) -> bool:
        """Whether one row counts."""
        return all(each.domain.item(row) for each in self.topologies) and self._class(nodes, nodes.classes.column.item(row))

    def rows(self, nodes: NodeTable) -> Mask:
        """For each row whether it counts."""
        count = nodes.count
        result: Mask = np.ones(count, np.bool_)
        for each in self.topologies:
            result &= each.domain[:count] > 0
        if self._admits is not None:
            self._class(nodes, 0)
            result &= self._classes[nodes.classes.column[:count]]
        return result

    def _class(self, nodes: NodeTable, number: int) -> bool:
        if self._admits is None:
            return True
        if self._epoch != nodes.classes.epoch:
            self._epoch = nodes.classes.epoch
            self._classes = np.zeros(0, np.bool_)
        known, wanted = len(self._classes), len(nodes.classes.known)
        if known < wanted:
            verdicts = [self._admits(each) for each in range(known, wanted)]
            self._classes = np.concatenate([self._classes, np.array(verdicts, np.bool_)])
        return self._classes.item(number)


class Tally:
    """A count per row, added up over the domains of one topology key. Read it only after `refresh`.

    sums: by domain number, [0] always 0. nodes_in: how many rows that count lie in each domain.
    """

    def __init__(self, nodes: NodeTable, rows: Mapping[int, int], topology: Topology, eligibility: Eligibility | None) -> None:
        self.nodes = nodes
        self.rows = rows
        self.topology = topology
        self.eligibility = eligibility
        self.sums: Ints = np.zeros(1, np.int64)
        self.nodes_in: Ints = np.zeros(1, np.int64)
        self._where: Domains = np.zeros(0, np.int32)
        self._added: dict[int, int] = {}
        self._cursor = 0
        self._generation = -1
        self._least = 0
        self._least_known = False

    def refresh(self) -> Tally:
        """Take over what changed since the last refresh."""
        nodes = self.nodes
        if self._generation != nodes.changes.generation or len(self.sums) < len(self.topology.values):
            self._rebuild()
        elif self._cursor != nodes.changes.end:
            start, self._cursor = self._cursor, nodes.changes.end
            for row in nodes.changes.since(start).tolist():
                self._repair(row)
        return self

    def of(self, rows: Any) -> Ints:
        """The sum of each row's domain."""
        result: Ints = self.sums[self.topology.domain[rows]]
        return result

    def one(self, row: int) -> int:
        """The sum of one row's domain."""
        return self.sums.item(self.topology.domain.item(row))

    @property
    def any(self) -> bool:
        """Whether anything is counted in any domain."""
        return bool(self._added) and any(self._added.values())

    @property
    def domains(self) -> int:
        """How many domains have nodes that count."""
        return int(np.count_nonzero(self.nodes_in[1:]))

    @property
    def least(self) -> int:
        """The smallest sum among domains with nodes that count; enormous if there are none."""
        if not self._least_known:
            self._least = int(np.where(self.nodes_in > 0, self.sums, _NONE_SEEN)[1:].min(initial=_NONE_SEEN))
            self._least_known = True
        return self._least

    def forget(self) -> None:
        """Add up anew at the next refresh."""
        self._generation = -1

    def _rebuild(self) -> None:
        nodes, size = self.nodes, len(self.topology.values)
        self._generation, self._cursor = nodes.changes.generation, nodes.changes.end
        where = np.zeros(nodes.capacity, np.int32)
        where[: nodes.count] = self.topology.domain[: nodes.count]
        if self.eligibility is not None:
            where[: nodes.count][~self.eligibility.rows(nodes)] = 0
        self._where = where
        self.sums = np.zeros(size, np.int64)
        self.nodes_in = np.bincount(where[: nodes.count], minlength=size).astype(np.int64)
        self.nodes_in[0] = 0
        self._added = {}
        for row, amount in self.rows.items():
            domain = where.item(row)
            if domain and amount:
                self.sums[domain] += amount
                self._added[row] = amount
        self._least_known = False

    def _repair(self, row: int) -> None:
        domain = self.topology.domain.item(row)
        if domain and self.eligibility is not None and not self.eligibility.row(self.nodes, row):
            domain = 0
        amount = self.rows.get(row, 0) if domain else 0
        before, added = self._where.item(row), self._added.get(row, 0)
        if before != domain:
            self._where[row] = domain
            if before:
                self.nodes_in[before] -= 1
            if domain:
                self.nodes_in[domain] += 1
        elif amount == added:
            return
        self.sums[before] -= added
        self.sums[domain] += amount
        if amount:
            self._added[row] = amount
        else:
            self._added.pop(row, None)
        self._least_known = False

"""How much of all devices is free, known at any time: only rows that changed are counted again.

It is asked for after every plan, while a few rows have changed each time.
"""

from __future__ import annotations

import numpy as np

from fairlead.core.nodes.table import NodeTable

_MANY = 256  # so many changes of rows at most are counted one by one


class FreeDevices:
    """The sum over open nodes; on a node with more taken than there is it counts 0. Derived from the rows, as caches are."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._rows: list[int] = []  # what each row has free, in milli
        self._sum = 0
        self._at = (-1, 0)  # generation and place in the ring

    def total(self) -> int:
        """What is free of all devices, in milli."""
        nodes = self._nodes
        generation, place = self._at
        end = nodes.changes.end
        if generation != nodes.changes.generation or end - place > _MANY:
            self._count_all()
        elif place != end:
            self._count(nodes.changes.ring[place:end].tolist())
        self._at = nodes.changes.generation, end
        return self._sum

    def _count_all(self) -> None:
        nodes = self._nodes
        rows = slice(0, nodes.count)
        free = np.where(nodes.open[rows], nodes.devices.total[nodes.device[rows]], 0)
        self._rows = np.maximum(free, 0).tolist()
        self._sum = sum(self._rows)

    def _count(self, changed: list[int]) -> None:
        nodes, rows, total = self._nodes, self._rows, self._nodes.devices.total
        for row in set(changed):
            free = max(0, total.item(nodes.device.item(row))) if nodes.open.item(row) else 0
            if row >= len(rows):
                rows.extend([0] * (row + 1 - len(rows)))
            self._sum += free - rows[row]
            rows[row] = free

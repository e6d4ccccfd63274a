"""Contention: how much is used of what the pods of a node share, by pods as they declare it or as was learned, and as measured.

Pressures of pods add up per row and kind (see `api/pressure`), under the undo log. What is measured of a node counts beside that
for 60 seconds: of each kind the greater one, so that processes of the system and pods that declare nothing count, too.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from fairlead.api.pressure import KINDS, LOADS
from fairlead.core.model.arrays import Ints
from fairlead.core.model.nodes import Node
from fairlead.core.nodes.row_changes import RowChanges

KEPT = 60.0
"""Seconds after which what was measured is ignored."""


class Contention:
    """pods: thousandths of each row by kind, (kinds, rows); load: as measured, CPU besides, (kinds + 1, rows).

    active: some pod presses, or some node was measured; nothing is asked before.
    """

    def __init__(self, capacity: int, changes: RowChanges) -> None:
        self.active = False
        self._changes = changes
        self.pods: Ints = np.zeros((len(KINDS), capacity), np.int64)
        self.load: Ints = np.zeros((len(LOADS), capacity), np.int64)
        self.now = 0.0
        self._ends: list[tuple[float, str]] = []  # when measurements are too old, and of which node
        self._at: dict[str, float] = {}
        self._new: list[str] = []  # nodes that were measured since a pass began

    def grow(self) -> None:
        """There are twice as many rows."""
        self.pods = np.concatenate([self.pods, np.zeros_like(self.pods)], axis=1)
        self.load = np.concatenate([self.load, np.zeros_like(self.load)], axis=1)

    def clear(self, row: int, name: str) -> None:
        """A node is gone."""
        self.pods[:, row] = 0
        self.load[:, row] = 0
        self._at.pop(name, None)

    def measured(self, row: int, node: Node) -> bool:
        """A node came or changed; whether what counts as its load is something else now."""
        if not node.load and node.name not in self._at:
            return False
        if self._at.get(node.name) == node.loaded_at and node.load:
            return False
        before = self.load[:, row].tolist()
        fresh = bool(node.load) and self.now <= node.loaded_at + KEPT
        self.load[:, row] = node.load if fresh else 0
        if node.load:
            self._at[node.name] = node.loaded_at
            if fresh:
                self.activate()
                heappush(self._ends, (node.loaded_at + KEPT, node.name))
                self._new.append(node.name)
        else:
            del self._at[node.name]
        changed: bool = self.load[:, row].tolist() != before
        return changed

    def activate(self) -> None:
        """Something presses from now on: every score of what presses is another."""
        if not self.active:
            self.active = True
            self._changes.renew()

    def begin(self, now: float, rows: dict[str, int]) -> None:
        """A pass begins: what was measured too long ago, or has a time long after it, is ignored."""
        self.now = now
        for name in self._new:
            if self._at.get(name, now) > now + KEPT and name in rows:
                self.load[:, rows[name]] = 0
                self._changes.touch(rows[name])
        self._new.clear()
        while self._ends and self._ends[0][0] < now:
            ended, name = heappop(self._ends)
            row = rows.get(name)
            if row is not None and self._at.get(name, 0.0) + KEPT <= ended:
                self.load[:, row] = 0
                self._changes.touch(row)

"""What is kept of resources that the nodes of pools share, for a unit with a reservation that takes some of them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.shared_resources import Amounts, SharedResources, wanted_by
from fairlead.core.pods.tasks import Task


class ReservedShared:
    """spare: what others may have at the start, by pool and name."""

    def __init__(self, shared: SharedResources, placed: Iterable[Task]) -> None:
        """placed: the members of the unit, in a trial in which they have their places."""
        self._shared = shared
        members = list(placed)
        self._wanted = wanted_by(task.shape.spec.shared for task in members)
        keys = {key for task in members for key, _ in shared.parts(task.shape.spec.shared, task.row)}
        self.spare = {key: shared.free(key) for key in sorted(keys)}

    def closed(self, amounts: Amounts) -> Mask:
        """For each row whether it is kept from a pod that takes so much, shape (rows,)."""
        shut: Mask = np.zeros_like(self._shared.closed(amounts))
        asked = dict(amounts)
        for (pool, name), spare in self.spare.items():
            if spare < asked.get(name, 0) and name in self._shared.declared.get(pool, {}):
                shut |= self._shared.mask(pool)
        return shut

    def concerns(self, task: Task) -> bool:
        """Whether a task takes something of which some is kept."""
        return any(key in self.spare for key, _ in self._shared.parts(task.shape.spec.shared, task.row))

    def take(self, log: UndoLog, amounts: Amounts, row: int) -> None:
        """Another pod is placed: less is left for others."""
        for key, amount in self._shared.parts(amounts, row):
            if key in self.spare:
                log.add(self.spare, key, -amount)

    def missing(self) -> int:
        """What is missing now, in thousandths of what is asked for."""
        worst = 0
        for name, amount in self._wanted.items():
            pools = [pool for pool, each in self.spare if each == name and name in self._shared.declared.get(pool, {})]
            free = sum(max(0, self._shared.free((pool, name))) for pool in pools)
            worst = max(worst, 1000 * max(0, amount - free) // amount)
        return worst


def kept_shared(shared: SharedResources, placed: Iterable[Task]) -> ReservedShared | None:
    """What is spoken for, in a trial in which a unit has its places; None: it takes nothing of what pools share."""
    found = ReservedShared(shared, placed)
    return found if found.spare else None

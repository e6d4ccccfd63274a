"""Whether moves could free as many devices as some tasks need: a bound, before any move is tried.

A pod that holds whole devices needs as many elsewhere, so its move frees none that it does not take. Whole devices come from
those that are free, and from those that only parts hold which may all move. A part of a device comes from one of which so much
is free once all parts of it that may move are gone. Only rows count that the tasks may have, and what moves off such rows, and
off these in turn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.movers import Movers
from fairlead.core.state.cluster import ClusterState

_MOST = 512
"""Of so many rows at most everything that may move is counted; what that costs grows with the rows, a search does not."""


def could_be_free(state: ClusterState, movers: Movers, tasks: Sequence[Task]) -> bool:
    """Whether enough devices are free, or could be once what may move has moved; True where that is not known."""
    asking = [task for task in tasks if task.shape.gpus]
    wanted = sum(task.shape.gpus for task in asking if task.shape.gpu_milli == WHOLE)
    part = max((task.shape.gpu_milli for task in asking if task.shape.gpu_milli < WHOLE), default=0)
    rows = _rows(state, [task.ranking for task in asking])
    if np.count_nonzero(rows) > _MOST or _suffice(_free(state, rows), wanted, part):
        return True
    reached = _reached(state, movers, rows)
    return reached is None or _suffice(_free(state, reached, movers), wanted, part)


def _suffice(free: Sequence[int], wanted: int, part: int) -> bool:
    """Whether there are so many whole devices, and one of which so much is free. free: milli of devices."""
    return sum(each >= WHOLE for each in free) >= wanted and max(free, default=0) >= part


def _rows(state: ClusterState, rankings: Sequence[Ranking]) -> Mask:
    """The rows that any of these may have, whatever runs there."""
    found = np.zeros(state.nodes.count, np.bool_)
    for ranking in {ranking.shape.number: ranking for ranking in rankings}.values():
        found |= ranking.admitted(slice(0, state.nodes.count))
    return found & state.nodes.open[: state.nodes.count]


def _reached(state: ClusterState, movers: Movers, rows: Mask) -> Mask | None:
    """These rows, with all that pods which move off them may have; None if they are too many."""
    seen: set[int] = set()
    reached, new = rows.copy(), rows
    while new.any():
        moved = {
            task.shape.number: task.ranking
            for row in np.flatnonzero(new).tolist()
            for block in movers.on(row)
            for task in block.tasks
            if task.shape.number not in seen
        }
        seen.update(moved)
        new = _rows(state, list(moved.values())) & ~reached
        reached |= new
        if np.count_nonzero(reached) > _MOST:
            return None
    return reached


def _free(state: ClusterState, rows: Mask, movers: Movers | None = None) -> list[int]:
    """What is free of each device on some rows of which anything is, in milli; with movers: were the parts gone that may move."""
    nodes, found = state.nodes, []
    for row in np.flatnonzero(rows).tolist():
        free = nodes.devices.states[nodes.device.item(row)]
        if movers is not None and free:
            left = list(free)
            for task in (task for block in movers.on(row) for task in block.tasks if task.row == row):
                if task.shape.gpus and task.shape.gpu_milli < WHOLE:
                    for device in task.devices:
                        if device < len(left):
                            left[device] += task.shape.gpu_milli
            free = tuple(left)
        found += [each for each in free if each > 0]
    return found

"""Rows that a unit may have, whatever runs there: they admit it, and are not reserved for others as things stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.network_devices import elsewhere

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


class MayHave:
    """Whether a task may have a row, whatever is there now. Most often only the first that is asked about is of interest: from
    the second on all are found at once.
    """

    def __init__(self, state: ClusterState, task: Task) -> None:
        self._state, self._task = state, task
        self._first: tuple[int, bool] | None = None
        self._all: Mask | None = None

    def __call__(self, row: int) -> bool:
        """Whether it may have a row."""
        if self._all is None:
            if self._first is None:
                self._first = row, bool(may_have(self._state, self._task, slice(row, row + 1))[0])
            if self._first[0] == row:
                return self._first[1]
            self._all = may_have(self._state, self._task)
        return self._all.item(row)


def where_victims_help(state: ClusterState, core: Unit) -> Mask | None:
    """The rows where victims help a gang that no limit keeps out; None: all of them."""
    where: Mask = np.logical_or.reduce(list(rows_by_shape(state, core).values()))
    others = elsewhere(state, core.tasks)
    if others is not None:
        where[sorted(others.rows)] = True
    return None if where.all() else where


def rows_by_shape(state: ClusterState, core: Unit) -> dict[int, Mask]:
    """By shape number, the rows that members may have, whatever is there now."""
    return {task.shape.number: may_have(state, task) for task in {task.shape.number: task for task in core.tasks}.values()}


def may_have(state: ClusterState, task: Task, rows: slice | None = None) -> Mask:
    """For each of these rows, or of all, whether it admits a task and is not reserved for others, whatever is there now."""
    rows = rows or slice(0, state.nodes.count)
    admitted = task.ranking.admitted(rows) & state.nodes.open[rows]
    closed = state.reserved.closed(task) if state.reserved.holds else None
    near = task.shape.spec.near
    if near is not None and (far := state.network.closed_to_all(near)) is not None:
        closed = far if closed is None else closed | far
    return admitted if closed is None else admitted & ~closed[rows]


def may_have_any(state: ClusterState, core: Unit) -> bool:
    """Whether there is a row for any member: what is reserved for others may be all that there is.

    Where there is none a search finds no victims, since they must hold a row that helps (`where_victims_help`); pods elsewhere
    may be what keeps a member off a row. A row for one is enough: what is evicted there may leave headroom for others.
    """
    if not state.reserved.holds or elsewhere(state, core.tasks) is not None:
        return True
    return any(bool(rows.any()) for rows in rows_by_shape(state, core).values())

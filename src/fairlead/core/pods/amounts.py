"""Amounts: would it fit if these left? By resource alone, blind to devices one by one, to gangs, relations and limits.

Cheap tests, asked before something is tried under the undo log. Amounts are by column of the node table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Rows
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.tasks import Task

Amounts = Mapping[int, int]
Demand = Sequence[tuple[int, int]]
"""What one pod asks for: (column, amount)."""

_NOTHING: Amounts = {}


def by_column(tasks: Iterable[Task]) -> dict[int, int]:
    """What tasks hold together, or would where they get places."""
    found: dict[int, int] = {}
    add(found, tasks)
    return found


def add(held: dict[int, int], tasks: Iterable[Task]) -> None:
    """Add to amounts what more tasks hold."""
    for task in tasks:
        for column, amount in task.shape.taken:
            held[column] = held.get(column, 0) + amount


def asked_by(tasks: Iterable[Task]) -> dict[int, int]:
    """What every node must have free for tasks, together: without resources that devices may serve instead."""
    found: dict[int, int] = {}
    for task in tasks:
        for column, amount in task.shape.demand:
            found[column] = found.get(column, 0) + amount
    return found


def fits(nodes: NodeTable, row: int, demand: Demand, gone: Amounts = _NOTHING, back: Amounts = _NOTHING) -> bool:
    """Whether a row would have enough for a pod if so much became free there, and so much were taken again."""
    return all(nodes.free[column].item(row) + gone.get(column, 0) - back.get(column, 0) >= amount for column, amount in demand)


def places(nodes: NodeTable, row: int, demand: Demand, gone: Amounts, most: int) -> int:
    """How many alike pods a row would hold if so much became free there; `most` where they ask for nothing."""
    held = ((nodes.free[column].item(row) + gone.get(column, 0)) // amount for column, amount in demand if amount)
    return max(0, min(held, default=most))


def lacking(nodes: NodeTable, rows: Rows | npt.NDArray[np.intp] | list[int], wanted: Amounts) -> dict[int, int]:
    """What rows together lack of what is wanted, were it in one piece; nothing is lacking where that is not above zero."""
    if isinstance(rows, list) and len(rows) == 1:  # mostly, and without an array of one amount
        return {column: amount - max(0, nodes.free[column].item(rows[0])) for column, amount in wanted.items()}
    return {column: amount - int(np.maximum(nodes.free[column][rows], 0).sum()) for column, amount in wanted.items()}


def covers(freed: Amounts, missing: Amounts) -> bool:
    """Whether so much more makes up for what is lacking."""
    return all(freed.get(column, 0) >= amount for column, amount in missing.items())

"""NodeResourcesFit: every requested amount is free, in exact integers.

A pod always counts as one of `pods`; amounts of 0 are not asked for at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints, RowNumbers, Rows
from fairlead.core.nodes.table import NodeTable

Demand = Sequence[tuple[int, int]]
"""(column number, amount in base units)."""


def fits(nodes: NodeTable, need: Ints, rows: Rows) -> npt.NDArray[np.bool_]:
    """For each row whether every amount needed is free there.

    need: one amount per line of the matrix, shape (resources, 1), far below zero where none is asked.
    """
    result: npt.NDArray[np.bool_] = np.logical_and.reduce(nodes.matrix[:, rows] >= need)
    return result


def fits_one(nodes: NodeTable, demand: Demand, row: int) -> bool:
    """`fits` for one row."""
    free = nodes.free
    for column, amount in demand:
        if free[column].item(row) < amount:
            return False
    return nodes.open.item(row)


def counts(columns: Sequence[Ints], demand: Demand, rows: Rows) -> Ints:
    """How many such demands each row holds one after the other, by these columns."""
    least: Ints | None = None
    for column, amount in demand:
        held = columns[column][rows] // amount
        least = held if least is None else np.minimum(least, held)
    if least is None:
        raise ValueError("a demand holds at least one pod")
    return least.clip(0)


def short_of(nodes: NodeTable, demand: Demand, rows: RowNumbers) -> dict[int, int]:
    """Column number -> how many of the rows have too little of it. rows: the same array as long as they are the same."""
    count = nodes.shortages.count
    lacking = {column: count(rows, column, amount, nodes.free[column][: nodes.count]) for column, amount in demand}
    return {column: count for column, count in lacking.items() if count}

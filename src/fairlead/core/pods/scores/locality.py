"""Image locality: how much of a pod's images a node has already, in four steps.

Images of training jobs have many gigabytes, so that GPUs wait for minutes while one is pulled. Unlike kube-scheduler's score
this one counts what the node itself has, however many others have it, too: it depends on that node alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.nodes.table import NodeTable

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape

STEPS = (256 << 20, 2 << 30, 8 << 30)
"""Bytes of a pod's images from which on a node has a step more."""
_FEW = 64
"""So many rows are asked about one by one, without an array of all."""


def present_on(nodes: NodeTable, shape: Shape, row: int) -> int:
    """How much of the images one row has: 0 to 3."""
    known = nodes.images.rows
    there = sum(known[name].get(row, 0) for name in dict.fromkeys(shape.spec.images) if name in known)
    return sum(there >= step for step in STEPS)


def present(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints:
    """The same of each of these rows."""
    if not isinstance(rows, slice) and len(rows) <= _FEW:
        return np.array([present_on(nodes, shape, row) for row in rows.tolist()], np.int64)
    there: Ints = np.zeros(nodes.count, np.int64)
    for name in dict.fromkeys(shape.spec.images):
        if holders := nodes.images.rows.get(name):
            there[list(holders)] += np.fromiter(holders.values(), np.int64, len(holders))
    steps: Ints = np.searchsorted(STEPS, there[rows], side="right")
    return steps

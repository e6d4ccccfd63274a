"""Beside: rules about what else is on a node, by columns of the table: GPU headroom, nodes that jobs have to themselves, GPUs
that two pods share.

Each costs nothing where it does not apply to a shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.model.arrays import Ints, Mask, Rows
from fairlead.core.pods.filters import gpu_headroom, gpu_pairs, node_isolation

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.shapes import Shape


def fits(nodes: NodeTable, shape: Shape, rows: Rows) -> Mask:
    """For each row whether these rules admit a pod of the shape, shape (rows,)."""
    result: Mask | None = gpu_headroom.fits(nodes, shape, rows) if shape.leaves_gpu_headroom else None
    if shape.isolates:
        isolated = node_isolation.fits(nodes, shape, rows)
        result = isolated if result is None else result & isolated
    if shape.minds_partners:
        paired = gpu_pairs.fits(nodes, shape, rows)
        result = paired if result is None else result & paired
    return result if result is not None else np.ones_like(nodes.open[rows])


def fits_one(nodes: NodeTable, shape: Shape, row: int) -> bool:
    """`fits` for one row."""
    if shape.leaves_gpu_headroom and not gpu_headroom.fits_one(nodes, shape, row):
        return False
    if shape.minds_partners and not gpu_pairs.fits_one(nodes, shape, row):
        return False
    return not shape.isolates or node_isolation.fits_one(nodes, shape, row)


def counts(nodes: NodeTable, shape: Shape, rows: Rows, held: Ints) -> Ints:
    """How many of `held` pods of the shape each row takes one after the other, shape (rows,). Those of one job share nodes."""
    if shape.leaves_gpu_headroom:
        held = np.minimum(held, gpu_headroom.counts(nodes, shape, rows))
    if shape.isolates:
        held = np.where(node_isolation.fits(nodes, shape, rows), held, 0)
    if shape.minds_partners:
        held = gpu_pairs.counts(nodes, shape, rows, held)
    return held

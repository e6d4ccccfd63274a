"""GPU pairs: where a pod that may share its GPU with one other has one, and where fractions are kept off since such pods run.

It reads which pods are on a row, like amounts, so a change of a row is a repair of that row. It costs nothing before a pod may
share its GPU. What decides is in `core/nodes/partners.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.core.model.arrays import Mask, Rows

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.shapes import Shape


def complaint(shape: Shape) -> str:
    """Why pods of a shape are kept off a node."""
    if shape.spec.paired:
        return "node(s) had no free GPU, and no pod beside which it runs fast enough"
    return "node(s) had pods that share GPUs in pairs, and give out no fractions"


def fits(nodes: NodeTable, shape: Shape, rows: Rows) -> Mask:
    """For each row whether pairs let a pod of the shape in, shape (rows,)."""
    result: Mask = ~nodes.partners.refused(shape, rows)
    return result


def fits_one(nodes: NodeTable, shape: Shape, row: int) -> bool:
    """`fits` for one row."""
    return not nodes.partners.refuses(shape, row)

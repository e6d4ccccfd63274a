"""Node isolation: a job whose class has `isolation: Node` shares no node with other jobs' pods that have GPUs.

It holds in both directions: such a job's pods go where no other job has GPUs, and other jobs' pods with GPUs go where none of
its pods is. Pods without GPUs of other jobs may share the node, as daemons do. It reads two columns of the node table, like
amounts, so a change of a row is a repair of that row. It costs nothing before a class isolates nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.core.model.arrays import Mask, Rows

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.shapes import Shape

PLUGIN = "NodeIsolation"


def complaint(shape: Shape) -> str:
    """Why pods of a shape are kept off a node."""
    if shape.spec.isolated:
        return "node(s) had pods with GPUs of other jobs, and the ServiceClass isolates nodes"
    return "node(s) had pods of a job whose ServiceClass isolates nodes"


def fits(nodes: NodeTable, shape: Shape, rows: Rows) -> Mask:
    """For each row whether other jobs' pods let a pod of the shape in, shape (rows,)."""
    result: Mask = ~nodes.tenants.refused(shape, rows)
    return result


def fits_one(nodes: NodeTable, shape: Shape, row: int) -> bool:
    """`fits` for one row."""
    return not nodes.tenants.refuses(shape, row)

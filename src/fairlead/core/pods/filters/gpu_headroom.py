"""GPU headroom: pods that ask for no device leave pod slots and CPU for the GPUs that are free on a node.

Without it a tenant's CPU-only pods take every pod slot, or every CPU, of the GPU nodes, and GPUs that a queue is guaranteed
lie idle. Nothing is reserved until some queue has a quota of GPUs, and none for GPUs in use. CPU is reserved up to a quarter of
what the node offers per GPU, so that small nodes still take CPU-only work. It costs two columns per question, and nothing for
pods that ask for devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints, Rows

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.shapes import Shape

COMPLAINT = "node(s) reserve pod slots and CPU for their free GPUs"
_CPU, _PODS = 0, 2  # the columns that every table of nodes begins with
_PART = 4  # at most one part in so many of a node's CPU is reserved


def fits(nodes: NodeTable, shape: Shape, rows: Rows) -> npt.NDArray[np.bool_]:
    """For each row whether a pod of the shape leaves what is reserved there, shape (rows,)."""
    slots, cpu = _reserved(nodes, rows)
    left: npt.NDArray[np.bool_] = (slots == 0) | (nodes.free[_PODS][rows] > slots)
    if shape.cpu:
        left &= (cpu == 0) | (nodes.free[_CPU][rows] - shape.cpu >= cpu)
    return left


def fits_one(nodes: NodeTable, shape: Shape, row: int) -> bool:
    """`fits` for one row."""
    slots, cpu = _reserved_on(nodes, row)
    if slots and nodes.free[_PODS].item(row) <= slots:
        return False
    return not (shape.cpu and cpu) or nodes.free[_CPU].item(row) - shape.cpu >= cpu


def counts(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints:
    """How many pods of the shape each row takes one after the other and still keeps what is reserved, shape (rows,)."""
    slots, cpu = _reserved(nodes, rows)
    most = np.iinfo(np.int64).max
    held = np.where(slots > 0, nodes.free[_PODS][rows] - slots, most)
    if shape.cpu:
        held = np.minimum(held, np.where(cpu > 0, (nodes.free[_CPU][rows] - cpu) // shape.cpu, most))
    result: Ints = held.clip(0)
    return result


def _reserved(nodes: NodeTable, rows: Rows) -> tuple[Ints, Ints]:
    """Pod slots and milli-CPU that each row reserves."""
    free = np.zeros_like(nodes.free[_PODS][rows])
    offered = free.copy()
    for column in nodes.gpu_columns():
        free += nodes.free[column][rows].clip(0)
        offered += nodes.alloc[column][rows]
    policy = nodes.policy
    per_gpu = np.minimum(policy.cpu_per_free_gpu, nodes.alloc[_CPU][rows] // (_PART * offered.clip(1)))
    return free * policy.pods_per_free_gpu, free * per_gpu


def _reserved_on(nodes: NodeTable, row: int) -> tuple[int, int]:
    """`_kept` for one row."""
    free = offered = 0
    for column in nodes.gpu_columns():
        free += max(0, nodes.free[column].item(row))
        offered += nodes.alloc[column].item(row)
    if not free:
        return 0, 0
    policy = nodes.policy
    per_gpu = min(policy.cpu_per_free_gpu, nodes.alloc[_CPU].item(row) // (_PART * max(1, offered)))
    return free * policy.pods_per_free_gpu, free * per_gpu

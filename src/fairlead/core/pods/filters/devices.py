"""Devices: whole GPUs that are entirely free, or one device with enough of it left.

Exact devices are the kubelet's choice on device-plugin nodes: here they are counted and predicted.
Fractions are given out only where the node declares that its devices are shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Rows
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import INFEASIBLE
from fairlead.core.nodes.table import NodeTable

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape


def fits(nodes: NodeTable, shape: Shape, rows: Rows, costs: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """For each row whether its devices can serve the shape. costs: of their states, by `DeviceFit.costs`."""
    result: npt.NDArray[np.bool_] = costs != INFEASIBLE
    if shape.gpu_milli < WHOLE:
        result &= nodes.shares[rows]
    return result


def fits_one(nodes: NodeTable, shape: Shape, row: int) -> bool:
    """`fits` for one row."""
    if shape.gpu_milli < WHOLE and not nodes.shares.item(row):
        return False
    return shape.fit.one_cost(nodes.device.item(row)) != INFEASIBLE


def holds_one(nodes: NodeTable, shape: Shape, rows: slice) -> npt.NDArray[np.bool_]:
    """For each row whether it would hold one pod of a shape were it empty, by its amounts and by parts of its devices."""
    one = nodes.open[rows].copy()
    for column, amount in shape.demand:
        one &= nodes.alloc[column][rows] >= amount
    if shape.asks_devices and shape.gpu_milli < WHOLE:
        there = nodes.devices.total[nodes.devices.whole[nodes.device[rows]]]
        one &= nodes.shares[rows] & (there >= shape.gpus * WHOLE)
    return one

"""Contention in scores: the work that is lost, and may be, where pods press on the same of what a node's pods share.

Beyond the capacity of a kind the slowdown of those that use it is linear: with pressures that add up to `s` (1 is the capacity)
they run at `1 / s` of their speed. What presses more suffers more, so what is lost of a kind is taken as `s * (s - 0.9)` beyond
nine tenths of the capacity: pressures are not known exactly. A placement costs the difference that it makes, times the devices of
the node, in thousandths of a device: it is weighed against splinters and stranded devices. Below that pods are packed as ever.

A score refuses nothing: where every node is under pressure, the one where least is lost is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.api.pressure import KINDS
from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.model.units import WHOLE

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.shapes import Shape


_FULL = 900  # thousandths of a capacity from which on work is thought to be lost: pressures are not known exactly
_LOADED = 4  # one part in so many of a measured load counts for a pod of which nothing is known
_KINDS = len(KINDS)


def _potential(pressed: Any, beyond: Any) -> Any:
    """What is lost, in millionths of a node. beyond: of these pressures, what exceeds the threshold."""
    return beyond * pressed


def lost(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints:
    """What a pod of a shape costs on each row, thousandths of a device; shape (rows,)."""
    table, pressure = nodes.contention, shape.spec.pressure
    load = table.load[:, rows]
    cost: Ints = load.max(axis=0) * WHOLE // _LOADED
    if pressure:
        here = np.maximum(table.pods[:, rows], load[:_KINDS])
        then = here + np.array(pressure, np.int64)[:, None]
        change = _potential(then, np.maximum(then - _FULL, 0)) - _potential(here, np.maximum(here - _FULL, 0))
        cost = cost + change.sum(axis=0)
    whole = nodes.devices.total[nodes.devices.whole[nodes.device[rows]]]
    result: Ints = cost // WHOLE * np.maximum(whole, WHOLE) // WHOLE
    return result


def lost_on(nodes: NodeTable, shape: Shape, row: int) -> int:
    """`lost` for one row."""
    table = nodes.contention
    load = table.load[:, row].tolist()
    cost: int = max(load) * WHOLE // _LOADED
    for kind, amount in enumerate(shape.spec.pressure):
        here = max(table.pods.item(kind, row), load[kind])
        then: int = here + amount
        cost += int(_potential(then, max(then - _FULL, 0)) - _potential(here, max(here - _FULL, 0)))
    whole: int = nodes.devices.total.item(nodes.devices.whole.item(nodes.device.item(row)))
    return cost // WHOLE * max(whole, WHOLE) // WHOLE

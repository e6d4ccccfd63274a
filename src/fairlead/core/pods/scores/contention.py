"""Contention in scores: the work that is lost, and may be, where pods press on the same of what a node's pods share.

Beyond the capacity of a kind the slowdown of those that use it is linear: with pressures that add up to `s` (1 is the capacity)
they run at `1 / s` of their speed. A pod that uses several kinds waits for the one that is shortest, and hardly any pod uses none
of a kind. So what is lost on a node is its devices in use times what is lacking of its shortest kind, and a placement costs the
difference that it makes, in thousandths of a device: what the pod loses, and what those lose beside which it is placed. It is
weighed against splinters and stranded devices. On a node that is short of one kind, a shortage of another costs nothing before it
is the greater one; and where few devices are in use, little is lost.

Pressures are not known exactly. Sums that are thought to be near the capacity may be beyond it, so what is lacking grows from
`_FROM` on, by a square that meets the line `s - 1` at `_TO`; where it does, it has the mean over all between. Below that pods are
packed as ever.

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


_FROM, _TO = 850, 1100  # thousandths of a capacity between which it is not certain whether more is used than there is
_LOADED = 4  # one part in so many of a measured load counts for a pod of which nothing is known
_KINDS = len(KINDS)


def _lacking(pressed: Any, lesser: Any, greater: Any) -> Any:
    """What is lacking of a kind, in thousandths of its capacity. Works on numbers and on arrays alike."""
    near = lesser(greater(pressed - _FROM, 0), _TO - _FROM)
    return near * near // (2 * (_TO - _FROM)) + greater(pressed - _TO, 0)


def lost(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints:
    """What a pod of a shape costs on each row, thousandths of a device; shape (rows,)."""
    table, pressure, devices = nodes.contention, shape.spec.pressure, nodes.devices
    states = nodes.device[rows]
    whole = np.maximum(devices.total[devices.whole[states]], WHOLE)
    load = table.load[:, rows]
    result: Ints = load.max(axis=0) // _LOADED * whole // WHOLE
    if pressure:
        used = whole - np.minimum(devices.total[states], whole)
        here = np.maximum(table.pods[:, rows], load[:_KINDS])
        then = here + np.array(pressure, np.int64)[:, None]
        before, after = (_lacking(each.max(axis=0), np.minimum, np.maximum) for each in (here, then))
        result = result + ((used + (shape.counted_milli or WHOLE)) * after - used * before) // WHOLE
    return result


def lost_on(nodes: NodeTable, shape: Shape, row: int) -> int:
    """`lost` for one row."""
    table, devices = nodes.contention, nodes.devices
    state = nodes.device.item(row)
    whole: int = max(devices.total.item(devices.whole.item(state)), WHOLE)
    load = table.load[:, row].tolist()
    result: int = max(load) // _LOADED * whole // WHOLE
    if shape.spec.pressure:
        used = whole - min(devices.total.item(state), whole)
        here = [max(amount, load[kind]) for kind, amount in enumerate(table.pods[:, row].tolist())]
        then = [amount + more for amount, more in zip(here, shape.spec.pressure, strict=True)]
        before, after = (_lacking(max(each), min, max) for each in (here, then))
        result += ((used + (shape.counted_milli or WHOLE)) * after - used * before) // WHOLE
    return result

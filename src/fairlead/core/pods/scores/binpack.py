"""`binpack`: the fullest node that fits.

Best fit as in the FGD study (USENIX ATC'23): half CPU, half devices, by what is left free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.pods.scores.base import SCORE_BITS, States, Strategy

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape

_CPU_MOST = 128_000
_GPU_MOST = 8_000
_TOP = 1 << (SCORE_BITS - 1)


def left_over(cpu: Any, devices: Any, shape: Shape) -> Any:
    """How much stays free, in units that weigh 128 CPUs like 8 devices. Works on numbers and arrays."""
    return (cpu - shape.cpu) * _GPU_MOST + (devices - shape.device_milli) * _CPU_MOST


class Binpack(Strategy):
    """Least left over is best."""

    name = "binpack"
    sign = -1

    @override
    def rows(self, shape: Shape, rows: Rows, states: States, costs: States | None) -> Ints:
        nodes = self.nodes
        left = left_over(nodes.cpu[rows], nodes.devices.total[states], shape)
        result: Ints = (self.sign * (left // 1000)).clip(-_TOP, _TOP - 1) + _TOP
        return result

    @override
    def row(self, shape: Shape, row: int) -> int:
        nodes = self.nodes
        left = left_over(nodes.cpu.item(row), nodes.devices.total.item(nodes.device.item(row)), shape)
        score: int = min(max(self.sign * (left // 1000), -_TOP), _TOP - 1) + _TOP
        return score

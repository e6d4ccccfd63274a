"""`fgd`: fragmentation gradient descent (Weng et al., USENIX ATC'23).

A node's fragmentation is the expected idle device capacity that a pod drawn from the target
workload cannot use there. The node whose fragmentation grows least is best, in the paper's
integer steps (50 = unchanged); equals go to the best fit. The paper knows its target workload
beforehand: give it as option `target`; without it the workload is what arrived so far.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.scores.base import States, Strategy

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape

Demand = tuple[int, int, int]
"""milli-CPU, devices, milli of each."""

_COVERED = 0.95
_FIRST = 20
_TOP = 1 << 24


class Fgd(Strategy):
    """Least growth of fragmentation, then best fit."""

    name = "fgd"
    takes = frozenset({"target"})

    def __init__(self, nodes: NodeTable, options: Mapping[str, object]) -> None:
        super().__init__(nodes, options)
        self._arrivals: dict[Demand, int] = {}
        self._seen = 0
        self._next = _FIRST
        self._fixed = options.get("target") is not None
        self._targets: list[tuple[Demand, float]] = []
        self._thresholds: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._fragments: dict[tuple[int, int], float] = {}
        self._bests: dict[tuple[int, int, int, int], tuple[float, tuple[int, ...]]] = {}
        self._scores: dict[tuple[int, int], dict[int, int]] = {}
        target = options.get("target")
        if isinstance(target, Mapping):
            self._aim(target.items())

    @override
    def arrived(self, spec: PodSpec) -> None:
        if self._fixed:
            return
        demand = demand_of(spec)
        self._arrivals[demand] = self._arrivals.get(demand, 0) + 1
        self._seen += 1
        if self._seen >= self._next:
            self._next = self._seen + max(_FIRST, self._seen // 2)
            self._aim(self._arrivals.items())

    def _aim(self, counts: Iterable[tuple[Demand, float]]) -> None:
        """Take the most frequent demands that cover 95 % of the pods as the target workload."""
        self._targets = target_workload(counts)
        self._thresholds = np.array(sorted({demand[0] for demand, _ in self._targets}), np.int64)
        self.renumbered()
        self.epoch += 1

    @override
    def renumbered(self) -> None:
        self._fragments.clear()
        self._bests.clear()
        self._scores.clear()

    def _fragmented(self, state: int, level: int) -> float:
        """Expected unusable idle milli of a device state with CPU for the `level` smallest thresholds."""
        key = (state, level)
        known = self._fragments.get(key)
        if known is None:
            free = self.nodes.devices.states[state]
            known = self._fragments[key] = fragmentation(free, self._affordable(level), self._targets)
        return known

    def _affordable(self, level: int) -> int:
        return int(self._thresholds[level - 1]) if level else -1

    def _best(self, shape: Shape, state: int, level: int) -> tuple[float, tuple[int, ...]]:
        """Least fragmentation after the shape is placed on a device state, and the devices for it."""
        key = (shape.gpus if shape.asks_devices else 0, shape.gpu_milli, state, level)
        known = self._bests.get(key)
        if known is None:
            devices = self.nodes.devices
            if not shape.asks_devices:
                options: list[tuple[int, ...]] = [()]
            elif shape.gpus == 1 and shape.gpu_milli < WHOLE:
                free = devices.states[state]
                options = [(device,) for device, left in enumerate(free) if left >= shape.gpu_milli]
            else:
                options = [shape.fit.pick(state)]
            known = self._bests[key] = min(
                ((self._fragmented(devices.take(state, option, shape.gpu_milli), level), option) for option in options),
                key=lambda pair: pair[0],
                default=(math.inf, ()),
            )
        return known

    @override
    def rows(self, shape: Shape, rows: Rows, states: States, costs: States | None) -> Ints:
        nodes = self.nodes
        free_cpu = nodes.cpu[rows]
        before = np.searchsorted(self._thresholds, free_cpu, side="right")
        after = np.searchsorted(self._thresholds, free_cpu - shape.cpu, side="right")
        width = len(self._thresholds) + 1
        codes = (states.astype(np.int64) * width + before) * width + after
        memo = self._scores.setdefault((shape.gpus if shape.asks_devices else 0, shape.gpu_milli), {})
        unique, where = np.unique(codes, return_inverse=True)
        values = []
        for code in unique.tolist():
            value = memo.get(code)
            if value is None:
                state_level, level_after = divmod(code, width)
                state, level = divmod(state_level, width)
                growth = self._best(shape, state, level_after)[0] - self._fragmented(state, level)
                value = memo[code] = int(100 / (1 + math.exp(min(growth / 1000, 700.0))))
            values.append(value)
        gradient = np.array(values, np.int64)[where]
        left = (free_cpu - shape.cpu) * 8 + (nodes.devices.total[states] - shape.device_milli) * 128
        result: Ints = gradient * _TOP + (_TOP - 1 - (left // 16).clip(0, _TOP - 1))
        return result

    @override
    def row(self, shape: Shape, row: int) -> int:
        rows = np.array([row], np.int32)
        return int(self.rows(shape, rows, self.nodes.device[rows], None)[0])

    @override
    def pick(self, shape: Shape, row: int) -> tuple[int, ...]:
        if not shape.asks_devices:
            return shape.devices_on(row) if shape.gpus else ()
        level = int(np.searchsorted(self._thresholds, self.nodes.cpu.item(row) - shape.cpu, side="right"))
        return self._best(shape, self.nodes.device.item(row), level)[1]


def target_workload(counts: Iterable[tuple[Demand, float]]) -> list[tuple[Demand, float]]:
    """The most frequent demands that cover 95 % of the pods, with their probability."""
    ranked = sorted(counts, key=lambda pair: (-pair[1], pair[0]))
    total = sum(count for _, count in ranked)
    kept: list[tuple[Demand, float]] = []
    covered = 0.0
    for demand, count in ranked:
        if covered >= _COVERED * total:
            break
        covered += count
        kept.append((demand, count))
    return [(demand, count / covered) for demand, count in kept]


def demand_of(spec: PodSpec) -> Demand:
    """What fragmentation counts of a pod."""
    cpu = next((amount for resource, amount in spec.requests if resource == "cpu"), 0)
    return cpu, spec.gpus, spec.gpu_milli if spec.gpus else 0


def fragmentation(free: tuple[int, ...], cpu: int, targets: Iterable[tuple[Demand, float]]) -> float:
    """Expected idle milli-device of one node that the target workload cannot use.

    free: idle milli per device; cpu: idle milli-CPU; targets: demands with their probability.
    """
    idle = sum(free)
    if not idle:
        return 0.0
    expected = 0.0
    for (wanted_cpu, gpus, milli), weight in targets:
        if not gpus or wanted_cpu > cpu or sum(left >= milli for left in free) < gpus:
            expected += weight * idle
        else:
            expected += weight * sum(left for left in free if left < milli)
    return expected

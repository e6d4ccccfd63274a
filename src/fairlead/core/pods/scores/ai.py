"""`ai`, the default: place where the least future GPU capacity is lost.

A placement can lose GPU capacity in three ways, all measured in thousandths of a device:

- *splinters*: a fraction leaves a remainder on its device that later fractions fill badly. What
  that costs comes from bid prices (`prices.py`) over the sizes that arrived so far.
- *stranding*: devices whose node has no CPU or memory left to feed them. At the mean request per
  device of the pods that arrived so far, a node strands `free devices - free CPU / mean CPU per
  device` (likewise for memory, never below 0). Pods rich in CPU go where CPU is plentiful, and
  pods poor in it rescue devices that would be stranded.

- *pressure*: devices on which work depends that is admitted to few nodes, by selectors, affinity or taints
  (`pressure.py`). Work with a choice takes others; where no work is restricted, nothing presses.

- *contention*: pods that press on the same memory bandwidth, PCIe, network or disks of a node slow one another down
  (`contention.py`). Where no pod declares pressure, and none is measured, nothing is asked.

- *sharing*: of a pod that may share its GPU with one other, what both lose (`core/nodes/partners.py`); a GPU that is free is
  preferred.

The sum, in steps of a tenth of a device so that near-equal nodes tie, decides; then the node with
the fewest free devices (best fit), then the one that has most of the pod's images (`locality.py`), then the one with the least
CPU left, then the name.

It never plans ahead: it knows the state, the pod, and what arrived before. Until pods arrive it
assumes a small mixed workload (`PRIOR`), the same everywhere. Old arrivals fade: counts are
halved whenever `_MEMORY` pods have been counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import Chooser
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.scores import locality
from fairlead.core.pods.scores.base import States, Strategy
from fairlead.core.pods.scores.contention import lost, lost_on
from fairlead.core.pods.scores.pressure import Pressure
from fairlead.core.pods.scores.prices import Prices

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape

PRIOR: Mapping[int, float] = {1000: 200.0, 500: 100.0, 250: 100.0}
"""Sizes (milli) and how many of each are believed before anything has arrived."""

_MEMORY = 100_000
_FIRST = 20  # arrivals before the first lesson; then whenever half as many again have come
_STRANDED_WEIGHT = 3  # tenths: a stranded device may yet be used, a splinter hardly
_PRESSED_WEIGHT = 6  # tenths: a device that others depend on may still be left over
_STEP = 100  # thousandths of a device within which nodes count as equal
_MOST_COST = 2047
_MOST_FREE = (1 << 14) - 1
_MOST_CPU = 63
_IMAGE_BITS = 2  # the first of the bits for CPU, where a pod has images
_CPU_BITS_WITH_IMAGES = _MOST_CPU.bit_length() - _IMAGE_BITS


class Ai(Strategy):
    """Least lost GPU capacity, then best fit."""

    name = "ai"

    def __init__(self, nodes: NodeTable, options: Mapping[str, object]) -> None:
        super().__init__(nodes, options)
        self.demand: dict[int, float] = dict(PRIOR)
        self.prices = Prices(self.demand)
        self.pressure = Pressure(nodes)
        self.cpu_per_device = 0  # milli-CPU; 0: nothing asked for devices yet
        self.memory_per_milli = 0  # bytes per thousandth of a device
        self._asked = [0.0, 0.0, 0.0]  # milli devices, milli-CPU, bytes of all that arrived
        self._seen = 0
        self._next = _FIRST

    @override
    def arrived(self, spec: PodSpec) -> None:
        if not spec.gpus:
            return
        self.demand[spec.gpu_milli] = self.demand.get(spec.gpu_milli, 0.0) + spec.gpus
        asked = self._asked
        asked[0] += spec.gpus * spec.gpu_milli
        for resource, amount in spec.requests:
            if resource == "cpu":
                asked[1] += amount
            elif resource == "memory":
                asked[2] += amount
        self.pressure.arrived(spec)
        self._seen += 1
        if self._seen >= self._next:
            self._learn()

    def _learn(self) -> None:
        if self._seen >= _MEMORY:
            self.demand = {size: count / 2 for size, count in self.demand.items() if count >= 2}
            self._asked = [amount / 2 for amount in self._asked]
            self.pressure.fade()
            self._seen //= 2
        self._next = self._seen + max(_FIRST, self._seen // 2)
        devices, cpu, memory = self._asked
        lessons = (int(cpu * WHOLE / devices), int(memory / devices), Prices(self.demand))
        pressed = self.pressure.learn()
        if pressed or (lessons[0], lessons[1], lessons[2].value) != (
            self.cpu_per_device,
            self.memory_per_milli,
            self.prices.value,
        ):
            self.cpu_per_device, self.memory_per_milli, self.prices = lessons
            self.epoch += 1

    @override
    def chooser(self) -> Chooser:
        prices = self.prices

        def cheapest(free: tuple[int, ...], milli: int) -> tuple[int, int]:
            """The device on which this size loses least; the tighter, then the first, among equals."""
            cost, _, device = min((prices.loss(left, milli), left, device) for device, left in enumerate(free) if left >= milli)
            return device, cost

        return cheapest

    def _stranded(self, devices: Any, cpu: Any, memory: Any, greater: Any) -> Any:
        """Milli devices that free CPU and memory cannot feed. Works on numbers and on arrays alike."""
        stranded = 0
        if self.cpu_per_device:
            stranded = greater(devices - cpu * WHOLE // self.cpu_per_device, stranded)
        if self.memory_per_milli:
            stranded = greater(devices - memory // self.memory_per_milli, stranded)
        return stranded

    def _score(
        self, shape: Shape, loss: Any, pressure: Any, devices: Any, cpu: Any, memory: Any, greater: Any, lesser: Any
    ) -> Any:
        left, cpu_left = devices - shape.device_milli, cpu - shape.cpu
        change = self._stranded(left, cpu_left, memory - shape.memory, greater) - self._stranded(devices, cpu, memory, greater)
        pressed = pressure * shape.device_milli // WHOLE * _PRESSED_WEIGHT
        cost = (loss * 10 + change * _STRANDED_WEIGHT + pressed + _STEP * 5) // (_STEP * 10)
        cost = lesser(greater(cost, -_MOST_COST), _MOST_COST)
        fit = _MOST_FREE - lesser(left // 4, _MOST_FREE)
        thrift = _MOST_CPU - lesser(cpu_left // 2000, _MOST_CPU)
        return ((_MOST_COST - cost) * (_MOST_FREE + 1) + fit) * (_MOST_CPU + 1) + thrift

    @override
    def rows(self, shape: Shape, rows: Rows, states: States, costs: States | None) -> Ints:
        nodes = self.nodes
        loss: Any = 0 if costs is None else costs
        if shape.spec.paired:
            loss = nodes.partners.costs(shape, rows)
        if nodes.contention.active:
            loss = loss + lost(nodes, shape, rows)
        result: Ints = self._score(
            shape,
            loss,
            self.pressure.of(nodes.classes.column[rows]) if self.pressure.any and shape.asks_devices else 0,
            nodes.devices.total[states],
            nodes.cpu[rows],
            nodes.memory[rows],
            np.maximum,
            np.minimum,
        )
        return result if not shape.spec.images else _with_images(result, locality.present(nodes, shape, rows))

    @override
    def row(self, shape: Shape, row: int) -> int:
        nodes = self.nodes
        device = nodes.device.item(row)
        loss = shape.fit.one_cost(device) if shape.asks_devices else 0
        if shape.spec.paired:
            loss = nodes.partners.cost(shape, row)
        if nodes.contention.active:
            loss += lost_on(nodes, shape, row)
        result: int = self._score(
            shape,
            loss,
            self.pressure.of(nodes.classes.column.item(row)).item() if self.pressure.any and shape.asks_devices else 0,
            nodes.devices.total.item(device),
            nodes.cpu.item(row),
            nodes.memory.item(row),
            max,
            min,
        )
        return result if not shape.spec.images else _with_images(result, locality.present_on(nodes, shape, row))


def _with_images(score: Any, present: Any) -> Any:
    """A score with how much of the pod's images is there before the CPU that is left."""
    return (score & ~_MOST_CPU) | (present << _CPU_BITS_WITH_IMAGES) | ((score & _MOST_CPU) >> _IMAGE_BITS)

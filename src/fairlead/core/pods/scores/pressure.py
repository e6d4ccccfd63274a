"""How sought-after nodes are by work that cannot go elsewhere.

Pods that ask for devices may be restricted to some nodes: by selectors, affinity, taints. A kind of restriction that asked
for a part `d` of all devices and is admitted to a part `s` of them presses on each of those with `d / s`. The pressure of a
class of nodes is the sum over the kinds that it admits; kinds that are admitted everywhere press nowhere. It is the load that
devices would have if restricted work alone were laid evenly over what admits it, so work with a choice goes where pressure is
least, and leaves the devices that others depend on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.node_classes import CLOSED
from fairlead.core.pods.filters import first_refusal
from fairlead.core.pods.filters.node_affinity import named_nodes

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable

_Kind = tuple[object, ...]

_MOST_KINDS = 256
_MOST_PAIRS = 16_384  # kinds times classes of nodes that are judged at most: the kinds that ask for most come first


class Pressure:
    """By class of nodes, in thousandths: 0 where nothing depends on it, near 1,000 where far more does than it holds.

    Learned from the pods that arrived and from the nodes that are there when `learn` is called; classes of nodes that come
    later are judged by the same lesson.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self._asked: dict[_Kind, int] = {}  # kind -> milli devices
        self._specs: dict[_Kind, PodSpec] = {}
        self._total = 0
        self.any = False  # whether some nodes are more sought-after than others
        self._pressing: tuple[tuple[PodSpec, float], ...] = ()
        self._of_class: Ints = np.zeros(0, np.int64)
        self._class_epoch = -1

    def arrived(self, spec: PodSpec) -> None:
        """A pod asks for devices: by what it may be restricted to, it counts."""
        if spec.node_name or not spec.gpus:
            return
        kind = spec.node_selector, spec.affinity, spec.tolerations
        milli = spec.gpus * spec.gpu_milli
        self._total += milli
        if kind in self._asked:
            self._asked[kind] += milli
        elif len(self._asked) < _MOST_KINDS and named_nodes(spec) is None:
            self._asked[kind] = milli
            self._specs[kind] = spec

    def fade(self) -> None:
        """What was asked for so far counts half; what hardly counts any more is forgotten."""
        self._asked = {kind: milli // 2 for kind, milli in self._asked.items() if milli >= 2 * WHOLE}
        self._specs = {kind: self._specs[kind] for kind in self._asked}
        self._total //= 2

    def learn(self) -> bool:
        """Reckon anew from what was asked for and from the nodes of today. Whether anything changed."""
        nodes = self.nodes
        rows = slice(0, nodes.count)
        devices = nodes.devices.total[nodes.devices.whole[nodes.device[rows]]]
        supply = np.bincount(nodes.classes.column[rows], weights=devices, minlength=len(nodes.classes.known))
        supply[CLOSED] = 0
        present = np.flatnonzero(supply).tolist()
        everything = float(supply.sum())
        kinds = sorted(self._asked, key=lambda kind: -self._asked[kind])[: _MOST_PAIRS // max(1, len(present))]
        pressing = []
        for kind in kinds:
            spec = self._specs[kind]
            there = sum(supply.item(number) for number in present if first_refusal(spec, nodes.classes.known[number]) is None)
            if 0 < there < everything:
                pressing.append((spec, self._asked[kind] * everything / (self._total * there)))
        changed = tuple(pressing) != self._pressing
        self._pressing = tuple(pressing)
        self.any = bool(pressing)
        self._class_epoch = -1
        return changed

    def of(self, classes: Any) -> Any:
        """The pressure on nodes of these classes, one number or an array."""
        nodes = self.nodes
        if self._class_epoch != nodes.classes.epoch:
            self._class_epoch = nodes.classes.epoch
            self._of_class = np.zeros(0, np.int64)
        known = len(self._of_class)
        if known < len(nodes.classes.known):
            more = [0 if number == CLOSED else self._reckon(number) for number in range(known, len(nodes.classes.known))]
            self._of_class = np.concatenate([self._of_class, np.array(more, np.int64)])
        return self._of_class[classes]

    def _reckon(self, number: int) -> int:
        node = self.nodes.classes.known[number]
        load = sum(rate for spec, rate in self._pressing if first_refusal(spec, node) is None)
        return int(WHOLE * load / (1 + load))

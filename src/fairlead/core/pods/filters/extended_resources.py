"""NodeResourcesFit of resources that a DeviceClass serves: only nodes that advertise them must have enough of them free.

Elsewhere `dynamic_resources` finds devices. GPUs must be free as devices, too, where fractions of them are given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, RowNumbers
from fairlead.core.nodes.devices import INFEASIBLE
from fairlead.core.pods.filters.base import MANY, Refusal, Relation, Surroundings

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape


class ExtendedResources(Relation):
    """Amounts of resources on nodes whose device plugins advertise them."""

    plugin = "NodeResourcesFit"
    code = ReasonCode.RESOURCES
    complaint = "Insufficient extended resources"

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        super().__init__(shape, around)
        nodes = around.nodes
        served = [each for need in shape.spec.devices for each in need.served]
        self._amounts = [(each.resource, nodes.resource(each.resource), each.amount) for each in served]
        # As for pods whose GPUs no class serves: which devices are left matters to profile `ai`.
        gpus = shape.profile != KUBERNETES_PROFILE and any(each.resource in nodes.gpu_resources for each in served)
        self._by_device = gpus and bool(shape.spec.gpus)
        self.complaint = ", ".join(f"Insufficient {resource}" for resource, _, _ in self._amounts)

    @override
    def refused(self) -> Mask | None:
        nodes = self.nodes
        rows = slice(0, nodes.count)
        out: Mask = np.zeros(nodes.count, np.bool_)
        for resource, column, amount in self._amounts:
            offers = nodes.alloc[column][rows] > 0
            short = nodes.free[column][rows] < amount
            if self._by_device and resource in nodes.gpu_resources:
                short |= self.shape.fit.costs(nodes.device[rows]) == INFEASIBLE
            out |= offers & short
        return out

    @override
    def refuses(self, row: int) -> Refusal | None:
        nodes, refusal = self.nodes, None
        for resource, column, amount in self._amounts:
            there = nodes.alloc[column].item(row)
            if not there:
                continue
            if there < amount:
                return Refusal.UNRESOLVABLE
            by_device = self._by_device and resource in nodes.gpu_resources
            if nodes.free[column].item(row) < amount or (
                by_device and self.shape.fit.one_cost(nodes.device.item(row)) == INFEASIBLE
            ):
                refusal = Refusal.UNSCHEDULABLE
        return refusal

    @override
    def most(self, *, empty: bool = False) -> Ints | None:
        nodes = self.nodes
        rows = slice(0, nodes.count)
        most: Ints = np.full(nodes.count, MANY, np.int64)
        for _, column, amount in self._amounts:
            there = nodes.alloc[column][rows]
            held = np.maximum(there if empty else nodes.free[column][rows], 0) // amount
            most = np.where(there > 0, np.minimum(most, held), most)
        return most

    @override
    def words(self, rows: Ints | RowNumbers) -> str:
        """The resources that most of these rows have too little of."""
        nodes = self.nodes
        short = {
            resource: int(((nodes.alloc[column][rows] > 0) & (nodes.free[column][rows] < amount)).sum())
            for resource, column, amount in self._amounts
        }
        most = max(short.values(), default=0)
        return ", ".join(f"Insufficient {each}" for each, count in short.items() if count == most)

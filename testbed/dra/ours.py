"""Our answer to a case of API objects: per node an allocation of each claim, or a refusal."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.cluster import device_views as views
from fairlead.core.dra.allocator import DEFAULT, Options, allocate
from fairlead.core.dra.held import Held
from fairlead.core.dra.inventory import Inventory, Matches
from fairlead.core.dra.model import Allocation, Claim, DeviceClass, DeviceId
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.refusals import Refusal
from fairlead.core.model.nodes import Node
from testbed.dra import selectors

Json = dict[str, Any]
Answer = list[Allocation] | Refusal


class Case:
    """The objects of one case as the core has them. mistakes: slices that cannot be read."""

    def __init__(self, case: Json, matches: Matches = selectors.matches) -> None:
        self.nodes = [Node(each["metadata"]["name"], {}, dict(each["metadata"].get("labels") or {})) for each in case["nodes"]]
        self.slices, self.mistakes = Slices(), []
        for each in case["slices"]:
            try:
                self.slices.put(views.device_slice(msgspec.convert(each, views.ResourceSlice)))
            except views.DeviceError as error:
                self.mistakes.append(str(error))
        classes = [views.device_class(msgspec.convert(each, views.DeviceClass)) for each in case["classes"]]
        self.classes: dict[str, DeviceClass] = {each.name: each for each in classes}
        self.held = Held()
        seen = {}
        for each in case.get("seen", ()):
            spec = {"driver": each["driver"], "pool": {"name": each["pool"]}, "devices": [each["device"]]}
            known = views.device_slice(msgspec.convert({"spec": spec}, views.ResourceSlice))
            seen[DeviceId(known.driver, known.pool, known.devices[0].name)] = known.devices[0]
        for each in case["allocated"]:
            claim = msgspec.convert(each, views.ResourceClaim)
            if claim.status is not None and claim.status.allocation is not None:
                self.held.take([views.allocation(claim.status.allocation)], seen)
        self.claims: list[Claim] = []
        for each in case["claims"]:
            claim = msgspec.convert(each, views.ResourceClaim)
            self.claims.append(views.device_claim(claim.metadata, claim.spec))
        self.matches = matches

    def inventory(self, node: Node) -> Inventory:
        """What a node can use."""
        return Inventory(self.slices.pools(node), self.matches)

    def answer(self, node: Node, options: Options = DEFAULT) -> Answer:
        """Our answer for one node."""
        return allocate(self.held.on(self.inventory(node)), node.name, self.claims, self.classes, options)

    def answers(self, options: Options = DEFAULT) -> dict[str, Answer]:
        """Our answer for each node."""
        return {node.name: self.answer(node, options) for node in self.nodes}


def as_json(answer: list[Allocation]) -> list[list[Json]]:
    """An allocation as the judge reads it: per claim its devices."""
    return [[_result(each.request, each.device) for each in allocation.devices] for allocation in answer]


def _result(request: str, device: DeviceId) -> Json:
    return {"request": request, "driver": device.driver, "pool": device.pool, "device": device.device}

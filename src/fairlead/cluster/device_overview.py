"""Devices of `resource.k8s.io` as they are now: which node has them, which claims hold them, and why a claim does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlead.api import names
from fairlead.api.quantity import QuantityError
from fairlead.cluster import device_views as views
from fairlead.core.dra import model
from fairlead.core.dra.allocator import Options, Preference, allocate
from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.held import Held, NodeState
from fairlead.core.dra.inventory import Inventory
from fairlead.core.dra.pools import Slices
from fairlead.core.dra.refusals import Refusal
from fairlead.core.model.nodes import Node
from fairlead.core.nodes.extended_resources import IMPLICIT, ExtendedResources

_DESCRIBED_BY = ("profile", "productName", "model", "type")
"""The attribute that describes a device best, the first that it has; with the driver's domain or without."""


class Holder(msgspec.Struct, frozen=True):
    """A claim that holds a device. pods: for which it is reserved; consumed: of a share, amounts by capacity.

    resources: the extended resources for which it was created; empty: for none.
    """

    claim: str
    pods: list[str]
    consumed: dict[str, float] = {}
    admin: bool = False
    resources: list[str] = []


class DeviceLine(msgspec.Struct, frozen=True):
    """One device. node: that has it; empty: several nodes can use it. nodes: how many.

    state: free, allocated, shared, blocked (other devices hold its counters), tainted, or withdrawn (in no slice any more).
    """

    node: str
    nodes: int
    driver: str
    pool: str
    device: str
    description: str
    state: str
    holders: list[Holder]
    taints: list[str]


class Fit(msgspec.Struct, frozen=True):
    """Whether a claim gets devices on a node. devices: by request, those that it would get. kind, reason: why it does not."""

    node: str
    fits: bool
    devices: dict[str, list[str]] = {}
    kind: str = ""
    reason: str = ""


class Devices:
    """The devices of a cluster, or of some nodes. everywhere: these are all nodes that there are.

    mistakes: objects that cannot be read, and pools that give no devices, each with why.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        slices: Iterable[views.ResourceSlice],
        classes: Iterable[views.DeviceClass],
        claims: Iterable[views.ResourceClaim],
        *,
        everywhere: bool = True,
    ) -> None:
        self.mistakes: list[str] = []
        self._slices, self._held, self._matches = Slices(), Held(), Evaluation()
        self._seen: dict[model.DeviceId, model.Device] = {}
        self._nodes, self._everywhere = {each.name: each for each in nodes}, everywhere
        self._take_slices(slices)
        self._classes: dict[str, model.DeviceClass] = {}
        self._extended = ExtendedResources(self._classes)
        for device_class in classes:
            name = device_class.metadata.name
            try:
                self._classes[name] = views.device_class(device_class)
            except views.DeviceError as error:
                self.mistakes.append(f"DeviceClass {name}: {error}")
                continue
            self._extended.class_changed(name, None, self._classes[name])
        self._holders: dict[model.DeviceId, list[Holder]] = {}
        for claim in claims:
            self._take_claim(claim)
        self._states = {
            name: self._held.on(Inventory(self._slices.pools(node), self._matches, node.links))
            for name, node in self._nodes.items()
        }
        faults = {
            f"pool {fault.driver}/{fault.name}: {fault.fault}"
            for state in self._states.values()
            for fault in state.inventory.faults
        }
        self.mistakes += sorted(faults)
        for name, node in self._nodes.items():
            if node.numa is not None and node.numa.fault:
                self.mistakes.append(f"node {name}: {node.numa.fault}")
        for name, state in self._states.items():
            fault = self._nodes[name].links_fault or state.inventory.connected.fault
            if fault:
                self.mistakes.append(f"node {name}: annotation {names.GPU_TOPOLOGY_ANNOTATION}: {fault}")
            if load_fault := self._nodes[name].load_fault:
                self.mistakes.append(f"node {name}: annotation {names.LOAD_ANNOTATION}: {load_fault}")

    def _take_slices(self, slices: Iterable[views.ResourceSlice]) -> None:
        for view in slices:
            try:
                found = views.device_slice(view)
            except views.DeviceError as error:
                self.mistakes.append(str(error))
                continue
            self._slices.put(found)
            for device in found.devices:
                self._seen[model.DeviceId(found.driver, found.pool, device.name)] = device
            if self._everywhere and found.reach.node and found.reach.node not in self._nodes:
                self.mistakes.append(f"ResourceSlice {found.name}: node {found.reach.node} does not exist")

    def _take_claim(self, view: views.ResourceClaim) -> None:
        status = view.status
        if status is None or status.allocation is None:
            return
        name = f"{view.metadata.namespace}/{view.metadata.name}"
        try:
            found = views.allocation(status.allocation)
        except QuantityError as error:
            self.mistakes.append(f"ResourceClaim {name}: its allocation cannot be read: {error}")
            return
        self._held.take([found], self._seen)
        pods, resources = reserved_for(view), self._resources_of(view)
        for each in found.devices:
            consumed = {capacity: float(amount) for capacity, amount in each.consumed}
            self._holders.setdefault(each.device, []).append(Holder(name, pods, consumed, each.admin, resources))

    def _resources_of(self, view: views.ResourceClaim) -> list[str]:
        """The extended resources for which a claim was created, as its classes serve them now."""
        if not views.owner_of_extended(view.metadata):
            return []
        asked = {each.exactly.device_class_name for each in view.spec.devices.requests or () if each.exactly is not None}
        known = ((name, self._classes.get(name)) for name in asked)
        return sorted(found.resource if found is not None and found.resource else f"{IMPLICIT}{name}" for name, found in known)

    def class_of(self, resource: str) -> str:
        """The class whose devices serve an extended resource; empty: none does."""
        return self._extended.class_of(resource)

    def serves(self, resource: str, count: int) -> list[Fit]:
        """For each node whether a pod could have so many of an extended resource there, by name.

        Where the node advertises it, its device plugin serves it, of which only the amount is known here, and not who has it.
        """
        device_class = self.class_of(resource)
        advertised = {name: amount for name, node in self._nodes.items() if (amount := node.allocatable.get(resource, 0))}
        ask = model.Ask("devices", device_class, count=count)
        claim = model.Claim("", resource, (model.Request(ask.name, (ask,)),))
        found = [
            Fit(name, fits=amount >= count, kind="device-plugin", reason=f"the device plugin advertises {amount}")
            for name, amount in advertised.items()
        ]
        by_devices = self.fits(claim) if device_class else []
        return sorted([*found, *(each for each in by_devices if each.node not in advertised)], key=lambda each: each.node)

    def lines(self) -> list[DeviceLine]:
        """Every device, by node, driver and pool; those of several nodes last."""
        on: dict[model.DeviceId, list[str]] = {}
        states: dict[model.DeviceId, str] = {}
        for node, state in self._states.items():
            for index, device_id in enumerate(state.inventory.ids):
                on.setdefault(device_id, []).append(node)
                states[device_id] = _state(state, index)
        withdrawn = [each for each in self._holders if each not in self._seen and self._everywhere]
        found = [self._line(each, on[each], states[each]) for each in on]
        found += [self._line(each, [], "withdrawn") for each in withdrawn]
        return sorted(found, key=lambda line: (not line.node, line.node, line.driver, line.pool))

    def _line(self, device_id: model.DeviceId, nodes: Sequence[str], state: str) -> DeviceLine:
        device = self._seen.get(device_id, model.Device(device_id.device, device_id.driver))
        return DeviceLine(
            nodes[0] if len(nodes) == 1 else "",
            len(nodes),
            device_id.driver,
            device_id.pool,
            device_id.device,
            _described(device),
            state,
            self._holders.get(device_id, []),
            [f"{taint.key}={taint.value}:{taint.effect}" for taint in device.taints],
        )

    def fits(self, claim: model.Claim) -> list[Fit]:
        """For each node that has devices whether a claim that holds nothing yet gets its own there, by name."""
        options = Options(Preference.PACKED)
        found = []
        for name, state in sorted(self._states.items()):
            if not state.inventory.ids and not state.inventory.faults:
                continue
            answer = allocate(state, name, [claim], self._classes, options)
            if isinstance(answer, Refusal):
                found.append(Fit(name, fits=False, kind=answer.kind.value, reason=answer.text_of_claim()))
            else:
                found.append(_fitting(name, answer[0]))
        return found


def reserved_for(view: views.ResourceClaim) -> list[str]:
    """The pods for which a claim is reserved, as `namespace/name`."""
    users = (view.status.reserved_for or ()) if view.status is not None else ()
    return [f"{view.metadata.namespace}/{each.name}" for each in users if each.resource == "pods"]


def _state(state: NodeState, index: int) -> str:
    bit = 1 << index
    if state.alone & bit:
        return "allocated"
    if state.sharing & bit:
        return "shared"
    if state.unservable & bit:
        return "blocked"
    return "free" if bit & state.inventory.tolerated(()) else "tainted"


def _fitting(node: str, allocation: model.Allocation) -> Fit:
    devices: dict[str, list[str]] = {}
    for each in allocation.devices:
        devices.setdefault(each.request, []).append(str(each.device))
    return Fit(node, fits=True, devices=devices)


def _described(device: model.Device) -> str:
    for name in _DESCRIBED_BY:
        value = device.attributes.get(name, device.attributes.get(f"{device.driver}/{name}"))
        if isinstance(value, str):
            return value
    return ""

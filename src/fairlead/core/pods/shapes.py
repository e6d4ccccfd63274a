"""Shapes: classes of identical pods, as they ask for things. How nodes rank for one: `ranking`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.names import KUBERNETES_PROFILE, SHARED_PREFIX
from fairlead.core.mig.parts import WHOLE as GPU
from fairlead.core.mig.parts import milli_of
from fairlead.core.model.charges import Charge
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import DeviceFit
from fairlead.core.nodes.gpu_kinds import Kind, parted
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.pairs import LabelSet, TermCount


class Shape:
    """What one class of identical pods asks for.

    held: the affinity terms that its pods hold, where something selects them by labels. demand: (column, amount in base units)
    that every node must have free; taken: what a pod takes on its node, resources that devices may serve included; offered: the
    latter, which only nodes that advertise them must have free.
    charge: what a queue is charged for one pod, by the names of resources; asked: what it is charged for at least, on the nodes
    that there are; charges: the same on nodes of some kinds; parted: of which part of it that is (see `gpu_parts`).
    counted_milli: devices and parts of them, in milli. extra: what it counts with in scores beyond what it asks for: milli-CPU,
    bytes.
    """

    def __init__(
        self,
        number: int,
        spec: PodSpec,
        labels: LabelSet | None,
        profile: str,
        held: tuple[tuple[TermCount, int], ...],
        nodes: NodeTable,
        fits: Mapping[tuple[int, int], DeviceFit],
    ) -> None:
        self.number = number
        self.spec = spec
        self.labels = labels
        self.profile = profile
        self.held = held
        self.holds = bool(spec.ports or spec.claims or spec.disks)
        self.nodes = nodes
        served = {each.resource for need in spec.devices for each in need.served}
        self.taken = tuple((nodes.resource(resource), amount) for resource, amount in spec.requests)
        self.demand = self.taken
        self.offered: tuple[tuple[int, int], ...] = ()
        if served:
            self.offered = tuple((nodes.resource(resource), amount) for resource, amount in spec.requests if resource in served)
            self.demand = tuple(
                (nodes.resource(resource), amount) for resource, amount in spec.requests if resource not in served
            )
        amounts = dict(spec.requests)
        self.cpu = amounts.get("cpu", 0)
        self.memory = amounts.get("memory", 0)
        self.gpus = spec.gpus
        self.gpu_milli = spec.gpu_milli
        # Upstream counts devices as amounts only; which of them a pod would get is predicted all the same. It knows no fractions:
        # no amount counts those.
        self.asks_devices = bool(spec.gpus) and (profile != KUBERNETES_PROFILE or spec.gpu_milli < WHOLE)
        if self.asks_devices and served and not served.isdisjoint(nodes.gpu_resources):
            self.asks_devices = False  # only where nodes advertise them: see filters/extended_resources
        self.device_milli = spec.gpus * spec.gpu_milli
        # Extended resources have a domain in their names.
        self.asks_no_device = not spec.gpus and not spec.devices and not any("/" in resource for resource, _ in spec.requests)
        table = nodes.gpu_table
        self.parted = parted(spec, nodes.gpu_resources, table)
        partitions = sum(amount * milli_of(name, table=table) // WHOLE for name, amount in self.parted if name != GPU)
        self.claimed_milli = sum(need.milli for need in spec.devices)
        self.counted_milli = self.device_milli + partitions + self.claimed_milli
        self.charge = self.asked = _charge(spec, nodes.gpu_resources, partitions + self.claimed_milli)
        self.charges: dict[int, Charge] = {}
        self.extra = (spec.scored[0] - self.cpu, spec.scored[1] - self.memory) if spec.scored is not None else (0, 0)
        self.lingers = labels is not None or self.holds or any(self.extra) or bool(spec.devices) or spec.near is not None
        self.lingers = self.lingers or bool(spec.pressure or spec.shared or spec.paired)
        self.wants_company = bool(spec.preferred_pods or spec.preferred_spread) or spec.default_spread is not None
        self._fits = fits

    @property
    def fit(self) -> DeviceFit:
        """What this shape's device request does to every device state, under the current prices."""
        return self._fits[self.gpus, self.gpu_milli]

    def charge_on(self, kind: Kind) -> Charge:
        """What a queue is charged for one pod on nodes of a kind."""
        known = self.charges.get(kind.number)
        if known is None:
            amounts = dict(self.charge)
            parts = sum(amount * kind.milli(resource) // WHOLE for resource, amount in self.parted)
            amounts[GPU] = parts + self.claimed_milli
            known = self.charges[kind.number] = tuple(sorted(amounts.items()))
        return known

    @property
    def devices(self) -> float:
        """Devices for the measure of its work: those that it asks for, a fraction as one, and partitions as their parts."""
        parts = self.counted_milli - self.device_milli
        return self.gpus + parts / WHOLE if parts else self.gpus

    @property
    def leaves_gpu_headroom(self) -> bool:
        """Whether pods of this shape leave pod slots and CPU beside the GPUs that are free on a node."""
        return self.asks_no_device and self.nodes.guards_gpus

    @property
    def isolates(self) -> bool:
        """Whether other jobs may keep pods of this shape off nodes, since some have nodes to themselves."""
        return self.nodes.tenants.concerns(self)

    @property
    def minds_neighbours(self) -> bool:
        """Whether more than free amounts of a node decides (`filters/beside`)."""
        nodes = self.nodes  # asked of each row that changes: neither property is called where it cannot hold
        if nodes.partners.active and self.minds_partners:
            return True
        return (nodes.guards_gpus and self.asks_no_device) or (nodes.tenants.active and self.isolates)

    def lasting(self) -> tuple[PodSpec, bool, LabelSet | None, str]:
        """What a pod and the one that replaces it have in common: not what is learned of its kind, which goes by its name."""
        spec = msgspec.structs.replace(self.spec, pressure=(), paired=())
        return spec, bool(self.spec.paired), self.labels, self.profile

    @property
    def minds_partners(self) -> bool:
        """Whether pods that share GPUs two by two decide where pods of this shape may be."""
        return self.nodes.partners.concerns(self)

    def devices_on(self, row: int) -> tuple[int, ...]:
        """The devices that a pod would get on a row; where none fits any more, the freest are taken into debt."""
        state = self.nodes.device.item(row)
        if self.fit.one_cost(state) >= 0:
            return self.fit.pick(state)
        free = self.nodes.devices.states[state]
        return tuple(sorted(sorted(range(len(free)), key=lambda device: (-free[device], device))[: self.gpus]))


def _charge(spec: PodSpec, gpu_resources: tuple[str, ...], parts: int) -> Charge:
    """What a queue is charged for one pod: (resource, base units), devices in milli. parts: milli of a GPU besides."""
    charge = {resource: amount for resource, amount in spec.requests if resource not in gpu_resources}
    for resource, amount in spec.requests:
        if resource in gpu_resources:
            charge[resource] = amount * WHOLE
    if spec.gpus and spec.gpu_milli < WHOLE:
        charge[gpu_resources[0]] = spec.gpus * spec.gpu_milli
    if parts:
        charge[GPU] = charge.get(GPU, 0) + parts
    for name, amount in spec.shared:
        charge[SHARED_PREFIX + name] = amount
    return tuple(sorted(charge.items()))

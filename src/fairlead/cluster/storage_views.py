"""Typed views of the storage kinds, and what the core makes of them."""

from __future__ import annotations

from fractions import Fraction

import msgspec

from fairlead.api import quantity
from fairlead.api.quantity import QuantityError
from fairlead.cluster.selection import label_selector, node_terms
from fairlead.cluster.views import LabelSelector, Metadata, NodeSelector, Quantities, Resources, View
from fairlead.core.nodes import storage

_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_BOUND = "pv.kubernetes.io/bind-completed"
_CHOSEN_NODE = "volume.kubernetes.io/selected-node"


class Reference(View):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ClaimSpec(View):
    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: list[str] | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(View):
    phase: str = ""


class Claim(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class CsiSource(View):
    driver: str = ""
    volume_handle: str = ""


class VolumeAffinity(View):
    required: NodeSelector | None = None


class VolumeSpec(View):
    storage_class_name: str = ""
    capacity: Quantities | None = None
    access_modes: list[str] | None = None
    claim_ref: Reference | None = None
    node_affinity: VolumeAffinity | None = None
    volume_mode: str | None = None
    csi: CsiSource | None = None
    volume_attributes_class_name: str | None = None


class Volume(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class TopologyExpression(View):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(View):
    match_label_expressions: list[TopologyExpression] | None = None


class StorageClass(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class DriverLimit(View):
    count: int | None = None


class NodeDriver(View):
    name: str = ""
    allocatable: DriverLimit | None = None


class NodeDriversSpec(View):
    drivers: list[NodeDriver] | None = None


class NodeDrivers(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: NodeDriversSpec = msgspec.field(default_factory=NodeDriversSpec)


class DriverSpec(View):
    storage_capacity: bool | None = None


class Driver(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: DriverSpec = msgspec.field(default_factory=DriverSpec)


class StorageCapacity(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None
    node_topology: LabelSelector | None = None


class AttachmentSource(View):
    persistent_volume_name: str | None = None


class AttachmentSpec(View):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = msgspec.field(default_factory=AttachmentSource)


class Attachment(View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: AttachmentSpec = msgspec.field(default_factory=AttachmentSpec)


StorageView = Claim | Volume | StorageClass | NodeDrivers | Driver | StorageCapacity | Attachment


def convert(view: StorageView) -> storage.StorageObject:  # noqa: PLR0911 - a kind each
    """A storage object as the core sees it. Raises `QuantityError` for a size that is none."""
    match view:
        case Claim():
            return _claim(view)
        case Volume():
            return _volume(view)
        case StorageClass():
            return _storage_class(view)
        case NodeDrivers():
            limits = ((each.name, each.allocatable) for each in view.spec.drivers or ())
            return storage.NodeDrivers(
                view.metadata.name,
                tuple((name, limit.count) for name, limit in limits if limit is not None and limit.count is not None),
            )
        case Driver():
            return storage.Driver(view.metadata.name, bool(view.spec.storage_capacity))
        case StorageCapacity():
            size = view.maximum_volume_size if view.maximum_volume_size is not None else view.capacity
            return storage.StorageCapacity(
                view.metadata.key,
                view.storage_class_name,
                None if size is None else _size(size),
                label_selector(view.node_topology)[0],
            )
        case Attachment():
            source = view.spec.source.persistent_volume_name or ""
            return storage.Attachment(view.metadata.name, view.spec.attacher, view.spec.node_name, source)


def _claim(view: Claim) -> storage.Claim:
    metadata, spec = view.metadata, view.spec
    annotations = metadata.annotations or {}
    asked = ((spec.resources.requests if spec.resources else None) or {}).get("storage")
    owner = next((each.uid for each in metadata.owner_references or () if each.controller), "")
    return storage.Claim(
        key=metadata.key,
        uid=metadata.uid,
        storage_class=annotations.get(_OLD_CLASS, spec.storage_class_name or ""),
        volume=spec.volume_name,
        bound=_BOUND in annotations,
        lost=view.status.phase == "Lost",
        deleting=metadata.deletion_timestamp is not None,
        chosen_node=annotations.get(_CHOSEN_NODE, ""),
        access_modes=tuple(spec.access_modes or ()),
        size=None if asked is None else _size(asked),
        selector=() if spec.selector is None else label_selector(spec.selector)[0],
        block=spec.volume_mode == "Block",
        owner=owner,
        attributes_class=spec.volume_attributes_class_name or "",
    )


def _volume(view: Volume) -> storage.Volume:
    metadata, spec = view.metadata, view.spec
    reference = spec.claim_ref
    required = spec.node_affinity.required if spec.node_affinity else None
    return storage.Volume(
        name=metadata.name,
        storage_class=(metadata.annotations or {}).get(_OLD_CLASS, spec.storage_class_name),
        size=_size((spec.capacity or {}).get("storage", 0)),
        access_modes=tuple(spec.access_modes or ()),
        claim=f"{reference.namespace}/{reference.name}" if reference else "",
        claim_uid=reference.uid if reference else "",
        available=view.status.phase == "Available",
        deleting=metadata.deletion_timestamp is not None,
        nodes=None if required is None else node_terms(required),
        labels=tuple(sorted((metadata.labels or {}).items())),
        block=spec.volume_mode == "Block",
        driver=spec.csi.driver if spec.csi else "",
        handle=spec.csi.volume_handle if spec.csi else "",
        attributes_class=spec.volume_attributes_class_name or "",
    )


def _storage_class(view: StorageClass) -> storage.StorageClass:
    topologies = tuple(
        tuple((each.key, tuple(each.values or ())) for each in term.match_label_expressions or ())
        for term in view.allowed_topologies or ()
    )
    return storage.StorageClass(view.metadata.name, view.provisioner, view.volume_binding_mode or "", topologies)


def _size(text: str | float) -> int:
    value: Fraction = quantity.parse(text)
    if value > quantity.SANE_MAXIMUM:
        raise QuantityError(f"{text!r} is larger than any volume", too_large=True)
    return -(-value.numerator // value.denominator)

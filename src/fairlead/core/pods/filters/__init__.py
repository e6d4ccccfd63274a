"""Which nodes may hold a pod: one small file per Kubernetes plugin's semantics.

Static filters read a node's class (labels, taints, unschedulable) and are asked once per pair of shape and class.
Dynamic ones (`resources`, `devices`) read free amounts. Relations (`base.py`) read what is around a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.node_classes import NodeClass
from fairlead.core.pods.filters import (
    declared_features,
    gpu_isolation,
    gpu_pairs,
    node_affinity,
    node_name,
    taints,
    unschedulable,
)
from fairlead.core.pods.filters.base import Relation, Surroundings
from fairlead.core.pods.filters.compute_domains import ComputeDomains
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.filters.extended_resources import ExtendedResources
from fairlead.core.pods.filters.host_ports import HostPorts
from fairlead.core.pods.filters.network_topology import NetworkTopology
from fairlead.core.pods.filters.numa import NumaAlignment
from fairlead.core.pods.filters.pod_affinity import PodAffinity
from fairlead.core.pods.filters.shared_resources import SharedResources
from fairlead.core.pods.filters.topology_spread import TopologySpread
from fairlead.core.pods.filters.volumes import NodeVolumeLimits, VolumeBinding, VolumeRestrictions, VolumeZone

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape


class StaticFilter(Protocol):
    """One static filter: a verdict, and the words for those it turned away. plugin: its name upstream."""

    CODE: ReasonCode
    plugin: str

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        """Whether nodes of this class may hold pods of this spec."""

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        """In kube-scheduler's words, why not."""


STATIC: tuple[StaticFilter, ...] = (
    unschedulable.FILTER,
    node_name.FILTER,
    taints.FILTER,
    node_affinity.FILTER,
    gpu_isolation.FILTER,
    gpu_pairs.FILTER,
    declared_features.FILTER,
)
"""In kube-scheduler's order: the first that refuses names the reason."""

ORDER = (
    *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    *("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity"),
    *("DynamicResources", "NodeDeclaredFeatures"),
)
"""The filters of kube-scheduler's default profile, in the order in which it asks them."""


def first_refusal(spec: PodSpec, node: NodeClass) -> StaticFilter | None:
    """The first static filter that rejects the pair, or None."""
    for each in STATIC:
        if not each.admits(spec, node):
            return each
    return None


def labels_read(spec: PodSpec) -> set[str]:
    """The label keys (and `metadata.name`) that the filters read for this spec."""
    keys = node_affinity.labels_read(spec) | node_name.labels_read(spec) | gpu_isolation.labels_read(spec)
    return keys | gpu_pairs.labels_read(spec) if spec.paired else keys


def relations(shape: Shape, around: Surroundings) -> tuple[Relation, ...]:
    """What must be judged of a shape beyond nodes by themselves, in kube-scheduler's order; for most, nothing."""
    spec = shape.spec
    kinds: list[type[Relation]] = []
    if spec.ports:
        kinds.append(HostPorts)
    if any(need.served for need in spec.devices):
        kinds.append(ExtendedResources)
    if spec.disks or spec.claims:
        kinds += [VolumeRestrictions, NodeVolumeLimits]
    if spec.claims:
        kinds += [VolumeBinding, VolumeZone]
    if spec.spread:
        kinds.append(TopologySpread)
    if (
        spec.pod_affinity
        or spec.pod_anti_affinity
        or (shape.labels is not None and any(each.anti for each in shape.labels.terms))
    ):
        kinds.append(PodAffinity)
    if spec.near is not None:
        kinds.append(NetworkTopology)
        if spec.near.domain:
            kinds.append(ComputeDomains)
    if spec.shared:
        kinds.append(SharedResources)
    if spec.devices:
        kinds.append(DynamicResources)
    if spec.numa and around.numa.any:
        kinds.append(NumaAlignment)
    return tuple(kind(shape, around) for kind in kinds)

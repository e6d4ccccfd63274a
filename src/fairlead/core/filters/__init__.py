"""Which nodes may hold a pod: one small file per Kubernetes plugin's semantics.

Static filters look at a node's class (labels, taints, unschedulable) and are asked once per pair
of shape and class. Dynamic ones (`resources`, `devices`) look at free amounts.
"""

from __future__ import annotations

from typing import Protocol

from fairlead.api.reasons import ReasonCode
from fairlead.core.filters import node_affinity, node_name, taints, unschedulable
from fairlead.core.model import PodSpec
from fairlead.core.nodes import NodeClass


class StaticFilter(Protocol):
    """One static filter: a verdict, and the words for those it turned away."""

    CODE: ReasonCode

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        """Whether nodes of this class may hold pods of this spec."""

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        """In kube-scheduler's words, why not."""


STATIC: tuple[StaticFilter, ...] = (unschedulable.FILTER, node_name.FILTER, taints.FILTER, node_affinity.FILTER)
"""In kube-scheduler's order: the first that refuses names the reason."""


def first_refusal(spec: PodSpec, node: NodeClass) -> StaticFilter | None:
    """The first static filter that turns the pair away, or None."""
    for each in STATIC:
        if not each.admits(spec, node):
            return each
    return None


def labels_read(spec: PodSpec) -> set[str]:
    """The label keys (and `metadata.name`) that the filters read for this spec."""
    return node_affinity.labels_read(spec) | node_name.labels_read(spec)

"""GPU isolation: pods of a class with `isolation: GPU` get no replica of a GPU that is shared by time-slicing or MPS.

Which replica of a GPU a pod gets is the kubelet's choice, so nodes whose GPUs, or partitions of them, are replicated are out for
such a pod. Parts of a GPU are refused where classes are (`core/queues/admission`).
"""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core.mig.parts import counts, sharing_labels, sharing_of
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.node_classes import NodeClass


class _GpuIsolation:
    CODE = ReasonCode.DEVICES
    plugin = "GPUIsolation"

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        if not spec.own_gpus:
            return True
        replicated = {resource for resource, _ in sharing_of(node.labels).replicas}
        return not any(counts(name) and name.removesuffix(".shared") in replicated for name, _ in spec.requests)

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return "node(s) share GPUs among replicas, and the ServiceClass isolates GPUs"


FILTER = _GpuIsolation()


def labels_read(spec: PodSpec) -> set[str]:
    """The label keys that it reads for a spec."""
    if not spec.own_gpus:
        return set()
    return {label for name, _ in spec.requests if counts(name) for label in sharing_labels(name)}

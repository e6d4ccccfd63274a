"""NodeName: a pod that names its node runs there or nowhere."""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.selectors import NAME_FIELD
from fairlead.core.nodes.node_classes import NodeClass


class _NodeName:
    CODE = ReasonCode.NODE_AFFINITY
    plugin = "NodeName"

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        return not spec.node_name or node.name == spec.node_name

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return "node(s) didn't match the requested node name"


def labels_read(spec: PodSpec) -> set[str]:
    """`metadata.name` where the pod names its node."""
    return {NAME_FIELD} if spec.node_name else set()


FILTER = _NodeName()

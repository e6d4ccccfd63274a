"""NodeDeclaredFeatures: what a pod needs the kubelet to be able to do, the node must declare."""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.node_classes import NodeClass


class _DeclaredFeatures:
    CODE = ReasonCode.NODE_AFFINITY
    plugin = "NodeDeclaredFeatures"

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        return all(feature in node.features for feature in spec.features)

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return "node(s) didn't declare the features that the pod needs"


FILTER = _DeclaredFeatures()

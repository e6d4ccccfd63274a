"""NodeUnschedulable: a cordoned node takes only pods that tolerate its taint."""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import PodSpec
from fairlead.core.nodes.node_classes import NodeClass
from fairlead.core.pods.filters.taints import tolerates

_TAINT = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


class _Unschedulable:
    CODE = ReasonCode.TAINTS
    plugin = "NodeUnschedulable"

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        return not node.unschedulable or any(tolerates(each, _TAINT) for each in spec.tolerations)

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return "node(s) were unschedulable"


FILTER = _Unschedulable()

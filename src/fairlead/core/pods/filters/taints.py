"""TaintToleration: taints with NoSchedule or NoExecute keep out pods that do not tolerate them."""

from __future__ import annotations

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.nodes import Taint
from fairlead.core.model.pods import PodSpec, Toleration
from fairlead.core.nodes.node_classes import NodeClass


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint; an empty key covers every key."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(spec: PodSpec, node: NodeClass) -> Taint | None:
    """The first taint that keeps the pod out."""
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(tolerates(each, taint) for each in spec.tolerations):
            return taint
    return None


class _TaintToleration:
    CODE = ReasonCode.TAINTS
    plugin = "TaintToleration"

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        return untolerated(spec, node) is None

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        taint = untolerated(spec, node)
        return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}" if taint else ""


FILTER = _TaintToleration()

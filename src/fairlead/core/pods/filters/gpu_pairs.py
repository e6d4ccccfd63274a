"""GPU pairs: where a pod that may share its GPU with one other has one, and where fractions are kept off since such pods run.

The pod requests a whole GPU. A kubelet would give it one of its device plugin's, whatever was counted, so only nodes of
Fairlead's own agent, which is the kubelet there, admit it. What else decides is which pods are on a row
(`core/nodes/partners.py`), so a change of a row is a repair of that row. It costs nothing before a pod may share its GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fairlead.api.names import GPU_SHARING_LABEL, OWN_AGENT
from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask, Rows
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.node_classes import NodeClass

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.shapes import Shape

PLUGIN = "GPUPairs"


def complaint(shape: Shape) -> str:
    """Why pods of a shape are kept off a node."""
    if shape.spec.paired:
        return "node(s) had no GPU to share: none free, no pod beside which it runs fast enough, or fractions in use"
    if shape.gpu_milli < WHOLE:
        return "node(s) had pods that share GPUs in pairs, and give out no fractions"
    return "node(s) had too few GPUs besides those that pods share in pairs"


def fits(nodes: NodeTable, shape: Shape, rows: Rows) -> Mask:
    """For each row whether pairs let a pod of the shape in, shape (rows,)."""
    result: Mask = ~nodes.partners.refused(shape, rows)
    return result


def fits_one(nodes: NodeTable, shape: Shape, row: int) -> bool:
    """`fits` for one row."""
    return not nodes.partners.refuses(shape, row)


def counts(nodes: NodeTable, shape: Shape, rows: Rows, held: Ints) -> Ints:
    """How many of `held` pods of the shape each row takes one after the other, shape (rows,)."""
    held = np.where(fits(nodes, shape, rows), held, 0)
    return np.minimum(held, nodes.partners.most_besides(shape, rows)) if shape.gpu_milli == WHOLE else held


class _Agent:
    CODE = ReasonCode.DEVICES
    plugin = PLUGIN

    def admits(self, spec: PodSpec, node: NodeClass) -> bool:
        return not spec.paired or node.labels.get(GPU_SHARING_LABEL) == OWN_AGENT

    def complaint(self, spec: PodSpec, node: NodeClass) -> str:
        return f"node(s) are not of `fairlead agent` (label {GPU_SHARING_LABEL}={OWN_AGENT}), which alone gives two jobs one GPU"


FILTER = _Agent()


def labels_read(spec: PodSpec) -> set[str]:
    """The label keys that it reads for a spec."""
    return {GPU_SHARING_LABEL} if spec.paired else set()

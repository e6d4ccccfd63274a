"""What decisions are measured on: nodes of 8 GPUs, queues with a quota of GPUs, pods of many shapes."""

from __future__ import annotations

from typing import Any

from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.units import WHOLE

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
GIB = 1 << 30


def node(number: int, **more: Any) -> Node:
    """A node of 8 GPUs."""
    return Node(f"node-{number:06d}", {"cpu": 128_000, "memory": 2048 * GIB, "pods": 110, GPU: GPUS_PER_NODE}, **more)


def queue(name: str, quota: int | None = None, **more: Any) -> Queue:
    """A queue. quota: GPUs."""
    return Queue(name, resources=() if quota is None else (QueueResource(GPU, quota=quota * WHOLE),), **more)


def spec(gpus: int = 1, shape: int = 0, **more: Any) -> PodSpec:
    """What a pod asks for; each shape asks for other CPUs and memory."""
    return PodSpec((("cpu", 1000 + 10 * shape), ("memory", (4 + shape % 16) * GIB), (GPU, gpus), ("pods", 1)), gpus=gpus, **more)

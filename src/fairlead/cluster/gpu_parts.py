"""What a pod, or a node, counts as in GPUs, by this process's configuration: for what has no core at hand."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.names import GPU_PARTS, GPU_RESOURCES
from fairlead.core.mig.parts import NOT_KNOWN, milli_of, sharing_of
from fairlead.core.mig.parts import WHOLE as GPU
from fairlead.core.model.pods import PodSpec
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.gpu_kinds import beyond, gpus_of


def held_milli(spec: PodSpec, labels: Mapping[str, str] | None = None) -> int:
    """Thousandths of GPUs that a pod holds. labels: of its node; None: it has none, or that is not known."""
    return gpus_of(spec, sharing_of(labels) if labels is not None else NOT_KNOWN, GPU_PARTS)


def offered_milli(capacity: Mapping[str, int], labels: Mapping[str, str]) -> int:
    """Thousandths of GPUs that a node offers, of all vendors."""
    sharing, milli = sharing_of(labels), 0
    for resource, amount in capacity.items():
        if resource in GPU_RESOURCES or "/" in resource:
            milli += amount * (milli_of(resource, sharing, GPU_PARTS) or (WHOLE if resource in GPU_RESOURCES else 0))
    return milli


def beyond_milli(gpus: Mapping[str, int], capacity: Mapping[str, int], labels: Mapping[str, str]) -> int:
    """The same of GPUs that drivers publish in ResourceSlices, beyond those. gpus: driver -> how many."""
    return beyond({driver: count * WHOLE for driver, count in gpus.items()}, capacity, labels, GPU_RESOURCES, GPU_PARTS)


def listed() -> tuple[tuple[str, str, int], ...]:
    """The configured parts, as a policy of the core has them."""
    return tuple(sorted((resource, product, milli) for (resource, product), milli in GPU_PARTS.items()))


def parts_of(spec: PodSpec, labels: Mapping[str, str] | None = None) -> list[tuple[str, int, int]]:
    """What a pod asks for that is less than a GPU: (resource, how many, thousandths of a GPU that one of them is)."""
    sharing = sharing_of(labels) if labels is not None else NOT_KNOWN
    found = [(resource, amount, milli_of(resource, sharing, GPU_PARTS)) for resource, amount in spec.requests]
    return [each for each in found if each[2] and (each[0] != GPU or each[2] != WHOLE)]

"""Resources and pools that a cluster does not have: an amount of one would change nothing."""

from __future__ import annotations

from fairlead.api import names
from fairlead.cluster.translate import Objects
from fairlead.core.model.charges import labelled

_ALWAYS = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""What every cluster has, also one without nodes."""


def of(objects: Objects, resource: str, pool: str) -> str:
    """What is not there, and what is; empty: both are there. pool: empty for all nodes."""
    offered = {name for node in objects.nodes for name in (node.status.allocatable if node.status else None) or ()}
    named = {each.name for queue in objects.queues for each in queue.spec.resources or ()}
    if resource not in _ALWAYS | offered | named and resource not in {*names.GPU_RESOURCES, *_requested(objects)}:
        known = ", ".join(sorted(_ALWAYS | offered | named))
        return f"no node has {resource!r}, no pod requests it and no queue names it; there are {known}"
    pools = {each.metadata.name for each in objects.pools} | {labelled(each.metadata.labels or {}) for each in objects.nodes}
    if pool and pool not in pools:
        known = ", ".join(sorted(pools - {""}))
        return f"pool {pool!r} does not exist; " + (f"there are {known}" if known else "no node is in one")
    return ""


def _requested(objects: Objects) -> set[str]:
    """Resources that pods ask for, or that device classes serve."""
    found = {each.spec.extended_resource_name or "" for each in objects.device_classes}
    for pod in objects.pods:
        for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
            if container.resources is not None:
                found |= {*(container.resources.requests or ()), *(container.resources.limits or ())}
    return found

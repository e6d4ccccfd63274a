"""Ray (ray.io/v1): a RayCluster's head and its first workers start together; a RayJob is suspended with its cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster import grouping
from fairlead.operator.workloads.base import Manifest, Workload, number


def _groups(spec: Manifest) -> list[Manifest]:
    return list(spec.get("workerGroupSpecs") or ())


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One gang: the head and all workers, within the bounds of their group; of those that Ray scales by itself, the fewest."""
    spec = manifest.get("spec") or {}
    needed = 1
    for each in _groups(spec):
        if each.get("suspend"):
            continue
        least = number(each.get("minReplicas"), 0)
        replicas = max(least, number(each.get("replicas"), least))
        replicas = min(replicas, number(each.get("maxReplicas"), replicas))
        if spec.get("enableInTreeAutoscaling"):
            replicas = min(replicas, least)
        needed += replicas * number(each.get("numOfHosts"), 1)
    return {grouping.ray_cluster(manifest["metadata"]["name"]): needed}


def templates(manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    spec = manifest.get("spec") or {}
    return [(spec.get("headGroupSpec") or {}).get("template") or {}, *(each.get("template") or {} for each in _groups(spec))]


_ENDED = ("Complete", "Failed", "ValidationFailed")


def suspendable(manifest: Manifest) -> bool:
    """Whether Ray lets a RayJob be suspended: it fails one that keeps its cluster at its end, or uses one that is there."""
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    goes = spec.get("shutdownAfterJobFinishes") is True and not spec.get("clusterSelector")
    return goes and status.get("jobDeploymentStatus") not in _ENDED


RAY_CLUSTER = Workload("ray.io/v1", "RayCluster", "rayclusters", gangs=gangs, templates=templates)
RAY_JOB = Workload("ray.io/v1", "RayJob", "rayjobs", suspendable=suspendable)

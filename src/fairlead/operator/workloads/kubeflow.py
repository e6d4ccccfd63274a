"""Kubeflow: PyTorchJob and its like, MPIJob; and TrainJob, which makes a JobSet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from fairlead.cluster import grouping
from fairlead.operator.workloads.base import Manifest, Workload, number


def _replicas(manifest: Manifest, field: str) -> dict[str, Manifest]:
    found = (manifest.get("spec") or {}).get(field) or {}
    return {role: each for role, each in found.items() if isinstance(each, dict)}


def gangs(kind: str, field: str, manifest: Manifest) -> Mapping[str, int]:
    """One gang: `runPolicy.schedulingPolicy.minAvailable`, an elastic job's fewest workers, or all replicas.

    A launcher that is made once the workers are ready is by itself.
    """
    spec = manifest.get("spec") or {}
    counts = {role: number(each.get("replicas"), 1) for role, each in _replicas(manifest, field).items()}
    later = {grouping.launcher(manifest["metadata"]["name"]): counts.pop("Launcher", 0)} if _launched_later(manifest) else {}
    total = sum(counts.values())
    elastic = (spec.get("elasticPolicy") or {}).get("minReplicas")
    if elastic is not None and "Worker" in counts:
        counts["Worker"] = min(counts["Worker"], number(elastic, counts["Worker"]))
    policy = (spec.get("runPolicy") or {}).get("schedulingPolicy") or {}
    # Not more than there are: a launcher may have been counted, too. Not none: without a PodGroup no pod would be placed.
    needed = min(total, max(1, number(policy.get("minAvailable"), sum(counts.values()))))
    found = {**later, grouping.training_job(kind, manifest["metadata"]["name"]): needed}
    return {gang: count for gang, count in found.items() if count}


def _launched_later(manifest: Manifest) -> bool:
    return (manifest.get("spec") or {}).get("launcherCreationPolicy") == "WaitForWorkersReady"


def serves(kind: str, manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """Of a launcher that is made later: that it is in a gang of its own."""
    if not _launched_later(manifest):
        return {}
    name = manifest["metadata"]["name"]
    return {grouping.launcher(name): (grouping.part(grouping.training_job(kind, name), grouping.LAUNCHER),)}


def templates(field: str, manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    return [each.get("template") or {} for each in _replicas(manifest, field).values()]


def _kind(kind: str, field: str, version: str = "kubeflow.org/v1") -> Workload:
    found: Callable[[Manifest], Mapping[str, int]] = partial(gangs, kind, field)
    return Workload(
        version,
        kind,
        f"{kind.lower()}s",
        ("spec", "runPolicy", "suspend"),
        found,
        partial(templates, field),
        serves=partial(serves, kind),
    )


TRAINING_JOBS = (
    _kind("PyTorchJob", "pytorchReplicaSpecs"),
    _kind("TFJob", "tfReplicaSpecs"),
    _kind("XGBoostJob", "xgbReplicaSpecs"),
    _kind("PaddleJob", "paddleReplicaSpecs"),
    _kind("JAXJob", "jaxReplicaSpecs"),
    _kind("MPIJob", "mpiReplicaSpecs", "kubeflow.org/v2beta1"),
)
TRAIN_JOB = Workload("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs")
"""Its JobSet is the gang; it is suspended itself, since it would resume its JobSet."""

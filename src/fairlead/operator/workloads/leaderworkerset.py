"""LeaderWorkerSet (leaderworkerset.x-k8s.io): each group, a leader and its workers, starts together. It cannot be suspended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster import grouping
from fairlead.operator.workloads.base import Manifest, Workload, number


def _group(manifest: Manifest) -> Manifest:
    return (manifest.get("spec") or {}).get("leaderWorkerTemplate") or {}


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One gang for each group. Where workers are made once their leader is ready, each is a pod by itself."""
    spec = manifest.get("spec") or {}
    together = 1 if spec.get("startupPolicy") == "LeaderReady" else number(_group(manifest).get("size"), 1)
    name = manifest["metadata"]["name"]
    return {grouping.leader_worker_set(name, str(index)): together for index in range(number(spec.get("replicas"), 1))}


def templates(manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    group = _group(manifest)
    return [group.get("leaderTemplate") or {}, group.get("workerTemplate") or {}]


LEADER_WORKER_SET = Workload(
    "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", suspend_at=(), gangs=gangs, templates=templates
)

"""LeaderWorkerSet (leaderworkerset.x-k8s.io): a group, a leader and its workers, starts together. It cannot be suspended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster import grouping
from fairlead.operator.workloads.base import Manifest, Workload, number


def _group(manifest: Manifest) -> Manifest:
    return (manifest.get("spec") or {}).get("leaderWorkerTemplate") or {}


def _after_leaders(manifest: Manifest) -> bool:
    return (manifest.get("spec") or {}).get("startupPolicy") == "LeaderReady"


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One for each group. Where workers are made once their leader is ready, these are one, too; the leader is alone, then."""
    size, name = number(_group(manifest).get("size"), 1), manifest["metadata"]["name"]
    groups = [str(index) for index in range(number((manifest.get("spec") or {}).get("replicas"), 1))]
    if not _after_leaders(manifest):
        return {grouping.leader_worker_set(name, group): size for group in groups}
    leaders = {grouping.leader_worker_set(name, group): 1 for group in groups}
    return {grouping.workers(name, group): size - 1 for group in groups if size > 1} | leaders


def serves(manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """Of gangs of workers: whose these are."""
    found, name = {}, manifest["metadata"]["name"]
    if _after_leaders(manifest):
        for index in range(number((manifest.get("spec") or {}).get("replicas"), 1)):
            whole = grouping.leader_worker_set(name, str(index))
            found[grouping.workers(name, str(index))] = (grouping.part(whole, grouping.WORKERS),)
    return found


def templates(manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    group = _group(manifest)
    return [group.get("leaderTemplate") or {}, group.get("workerTemplate") or {}]


LEADER_WORKER_SET = Workload(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    "leaderworkersets",
    suspend_at=(),
    gangs=gangs,
    templates=templates,
    serves=serves,
)

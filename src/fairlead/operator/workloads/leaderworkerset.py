"""LeaderWorkerSet (leaderworkerset.x-k8s.io): a group, a leader and its workers, starts together. It cannot be suspended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster import grouping
from fairlead.cluster.followers import Form, template
from fairlead.operator.workloads.base import Manifest, Workload, number


def _group(manifest: Manifest) -> Manifest:
    return (manifest.get("spec") or {}).get("leaderWorkerTemplate") or {}


def _after_leaders(manifest: Manifest) -> bool:
    """Whether workers are made later than their leader: once it is ready, or, for exclusive domains, once it has a node."""
    annotations = manifest["metadata"].get("annotations") or {}
    return bool(annotations.get(grouping.LWS_EXCLUSIVE)) or (manifest.get("spec") or {}).get("startupPolicy") == "LeaderReady"


def _groups(manifest: Manifest) -> range:
    """The indexes of its groups, with those that a rolling update adds for its time (`maxSurge`)."""
    spec = manifest.get("spec") or {}
    rollout = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    replicas, surge = number(spec.get("replicas"), 1), rollout.get("maxSurge")
    if isinstance(surge, str) and surge.endswith("%") and surge[:-1].isdecimal():
        surge = -(-replicas * int(surge[:-1]) // 100)
    return range(replicas + min(number(surge, 0), replicas))


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One for each group. Where workers are made later than their leader, these are one, too; the leader is alone, then."""
    size, name = number(_group(manifest).get("size"), 1), manifest["metadata"]["name"]
    groups = [str(index) for index in _groups(manifest)]
    if not _after_leaders(manifest):
        return {grouping.leader_worker_set(name, group): size for group in groups}
    leaders = {grouping.leader_worker_set(name, group): 1 for group in groups}
    return {grouping.workers(name, group): size - 1 for group in groups if size > 1} | leaders


def serves(manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """Of gangs of workers: whose these are."""
    found, name = {}, manifest["metadata"]["name"]
    if _after_leaders(manifest):
        for index in _groups(manifest):
            whole = grouping.leader_worker_set(name, str(index))
            found[grouping.workers(name, str(index))] = (grouping.part(whole, grouping.WORKERS),)
    return found


def followers(manifest: Manifest) -> Mapping[str, tuple[Form, ...]]:
    """Of the leader of each group that has a domain to itself: its workers."""
    name, size = manifest["metadata"]["name"], number(_group(manifest).get("size"), 1)
    label = (manifest["metadata"].get("annotations") or {}).get(grouping.LWS_EXCLUSIVE)
    if not label or size < 2:
        return {}
    like, leading = template(_group(manifest).get("workerTemplate") or {}), {grouping.LWS_WORKER: "0"}
    ready = (manifest.get("spec") or {}).get("startupPolicy") == "LeaderReady"
    return {
        grouping.leader_worker_set(name, each): (Form(grouping.workers(name, each), leading, str(label), size - 1, like, ready),)
        for each in map(str, _groups(manifest))
    }


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
    followers=followers,
)

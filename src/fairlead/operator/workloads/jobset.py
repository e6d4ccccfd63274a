"""JobSet (jobset.x-k8s.io): the pods of all its Jobs that are made at one time start together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster import grouping
from fairlead.operator.workloads.base import Manifest, Workload, number


def _jobs(manifest: Manifest) -> list[Manifest]:
    return list((manifest.get("spec") or {}).get("replicatedJobs") or ())


def _pods(replicated: Manifest) -> int:
    job = (replicated.get("template") or {}).get("spec") or {}
    at_once = number(job.get("parallelism"), 1)
    return number(replicated.get("replicas"), 1) * min(at_once, number(job.get("completions"), at_once))


def _stages(manifest: Manifest) -> list[list[Manifest]]:
    """What of a JobSet starts together, in the order of its replicated jobs: each needs all of its own pods, and no others."""
    in_order = ((manifest.get("spec") or {}).get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    found: dict[object, list[Manifest]] = {}
    for place, each in enumerate(_jobs(manifest)):
        waits = each.get("dependsOn") or ()
        awaited = frozenset((other.get("name"), other.get("status")) for other in waits if isinstance(other, dict))
        found.setdefault(place if in_order else awaited, []).append(each)
    return list(found.values())


def _named(manifest: Manifest) -> dict[str, list[Manifest]]:
    """PodGroup -> the replicated jobs whose pods are in it; the first last, since without it none of the pods is placed."""
    name = manifest["metadata"]["name"]
    first, *later = _stages(manifest) or [[]]
    return {grouping.jobset_stage(name, str(each[0].get("name"))): each for each in later} | {grouping.jobset(name): first}


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One for each stage. Pods of a later stage are made when the ones before run, or have succeeded."""
    needed = {group: sum(map(_pods, jobs)) for group, jobs in _named(manifest).items()}
    return {group: count for group, count in needed.items() if count}


def serves(manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """Of later stages: whose pods they have."""
    name = manifest["metadata"]["name"]
    found = {}
    for group, jobs in _named(manifest).items():
        if group != grouping.jobset(name):
            found[group] = tuple(grouping.part(grouping.jobset(name), str(each.get("name"))) for each in jobs)
    return found


def templates(manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    return [((each.get("template") or {}).get("spec") or {}).get("template") or {} for each in _jobs(manifest)]


JOB_SET = Workload(grouping.JOBSET_VERSION, "JobSet", "jobsets", gangs=gangs, templates=templates, serves=serves)

"""JobSet (jobset.x-k8s.io): all its Jobs' pods that are made at the beginning start together."""

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


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One gang. Jobs that begin only after others are no part of it: these would wait for pods that are not made yet."""
    jobs = _jobs(manifest)
    if ((manifest.get("spec") or {}).get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder":
        jobs = jobs[:1]
    needed = sum(_pods(each) for each in jobs if not each.get("dependsOn"))
    return {grouping.jobset(manifest["metadata"]["name"]): needed} if needed else {}


def templates(manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    return [((each.get("template") or {}).get("spec") or {}).get("template") or {} for each in _jobs(manifest)]


JOB_SET = Workload(grouping.JOBSET_VERSION, "JobSet", "jobsets", gangs=gangs, templates=templates)

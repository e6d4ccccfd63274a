"""JobSet (jobset.x-k8s.io): the pods of all its Jobs that are made at one time start together.

Where each Job has a domain of the network to itself (annotation `exclusive-topology`), JobSet's webhook makes the other pods of
a Job only once its leader, the pod of index 0, has a node, and sends them to the same domain. So the leaders of a stage start
together, with the pods of its other Jobs, and then the followers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.cluster import grouping
from fairlead.cluster.followers import Form, template
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


def _exclusive(manifest: Manifest, replicated: Manifest) -> str:
    """The label of the domain that each Job has to itself, if its pods are made after its leader has a node; else empty.

    So they are not where an administrator's labels choose the domain.
    """
    template = (replicated.get("template") or {}).get("metadata") or {}
    for given in (template.get("annotations") or {}, manifest["metadata"].get("annotations") or {}):
        if label := given.get(grouping.JOBSET_EXCLUSIVE):
            return str(label) if grouping.JOBSET_BY_SELECTOR not in given else ""
    return ""


def _has_followers(manifest: Manifest, replicated: Manifest) -> bool:
    return bool(_exclusive(manifest, replicated))


def _leaders(replicated: Manifest) -> int:
    return number(replicated.get("replicas"), 1) if _pods(replicated) else 0


def _named(manifest: Manifest) -> dict[str, list[Manifest]]:
    """PodGroup -> the replicated jobs whose pods are in it; the first last, since without it none of the pods is placed."""
    name = manifest["metadata"]["name"]
    first, *later = _stages(manifest) or [[]]
    return {grouping.jobset_stage(name, str(each[0].get("name"))): each for each in later} | {grouping.jobset(name): first}


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """One for each stage. Pods of a later stage are made when the ones before run, or have succeeded."""
    needed: dict[str, int] = {}
    for group, jobs in _named(manifest).items():
        later = {id(each): _pods(each) - _leaders(each) for each in jobs if _has_followers(manifest, each)}
        if jobs:
            needed[_followers(manifest, jobs)] = sum(later.values())
        needed[group] = sum(_pods(each) - later.get(id(each), 0) for each in jobs)
    return {group: count for group, count in needed.items() if count}


def _followers(manifest: Manifest, jobs: list[Manifest]) -> str:
    return grouping.jobset_followers(manifest["metadata"]["name"], str(jobs[0].get("name")))


def serves(manifest: Manifest) -> Mapping[str, tuple[str, ...]]:
    """Of later stages, and of followers: whose pods they have."""
    name = manifest["metadata"]["name"]
    found = {}
    for group, jobs in _named(manifest).items():
        parts = [grouping.followers(str(each.get("name"))) for each in jobs if _has_followers(manifest, each)]
        if parts:
            found[_followers(manifest, jobs)] = tuple(grouping.part(grouping.jobset(name), each) for each in parts)
        if group != grouping.jobset(name):
            found[group] = tuple(grouping.part(grouping.jobset(name), str(each.get("name"))) for each in jobs)
    return found


def followers(manifest: Manifest) -> Mapping[str, tuple[Form, ...]]:
    """Of each stage with Jobs that have a domain to themselves: the pods that follow the leader of each."""
    found = {}
    for group, jobs in _named(manifest).items():
        forms = [
            Form(
                _followers(manifest, jobs),
                {grouping.JOBSET_PART: str(each.get("name")), grouping.JOB_INDEX: "0"},
                label,
                _pods(each) // _leaders(each) - 1,
                template(_template(each)),
            )
            for each in jobs
            if (label := _exclusive(manifest, each)) and _pods(each) > _leaders(each)
        ]
        if forms:
            found[group] = tuple(forms)
    return found


def _template(replicated: Manifest) -> Manifest:
    return ((replicated.get("template") or {}).get("spec") or {}).get("template") or {}


def templates(manifest: Manifest) -> Iterable[Manifest]:
    """Pod templates."""
    return [_template(each) for each in _jobs(manifest)]


JOB_SET = Workload(
    grouping.JOBSET_VERSION, "JobSet", "jobsets", gangs=gangs, templates=templates, serves=serves, followers=followers
)

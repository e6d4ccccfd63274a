"""Upstream's gangs: PodGroups of scheduling.k8s.io, named by their pods' `spec.schedulingGroup`, in every served version."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api import names
from fairlead.cluster import grouping
from fairlead.operator.workloads.base import Manifest, Workload, number


def gangs(manifest: Manifest) -> Mapping[str, int]:
    """`schedulingPolicy.gang.minCount`; a basic group is no gang: each of its pods may start by itself."""
    gang = ((manifest.get("spec") or {}).get("schedulingPolicy") or {}).get("gang") or {}
    return {grouping.upstream(manifest["metadata"]["name"]): max(1, number(gang.get("minCount"), 1))}


def level(manifest: Manifest) -> str:
    """`schedulingConstraints.topology`, of which there is at most one; empty: none."""
    constraints = (manifest.get("spec") or {}).get("schedulingConstraints") or {}
    return next((str(each["key"]) for each in constraints.get("topology") or () if each.get("key")), "")


def _anybodys(_: Manifest) -> list[Manifest]:
    """It has no templates that name a scheduler: a PodGroup without pods of ours does no harm."""
    return [{"spec": {"schedulerName": names.own_scheduler()}}]


POD_GROUPS = tuple(
    Workload(
        f"scheduling.k8s.io/{version}", "PodGroup", "podgroups", suspend_at=(), gangs=gangs, templates=_anybodys, level=level
    )
    for version in ("v1beta1", "v1alpha2")
)

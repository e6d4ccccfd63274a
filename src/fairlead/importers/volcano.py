"""Volcano (scheduling.volcano.sh): `deserved` is our quota, `capability` our limit, `weight` shares over-quota capacity."""

from __future__ import annotations

from typing import Any

from fairlead.importers.base import Imported, listed, mapping, name_of, whole

_ROOTS = ("", "root")


def read(objects: list[dict[str, Any]]) -> Imported:
    """Our manifests for Volcano's."""
    made = Imported()
    for each in objects:
        if each.get("kind") != "Queue":
            made.note(f"{each.get('kind')}/{name_of(each)}", "kind", "is not carried over")
        elif name_of(each) != "root":
            _queue(made, each)
    return made


def _queue(made: Imported, manifest: dict[str, Any]) -> None:
    name, spec = name_of(manifest), mapping(manifest.get("spec"))
    about = f"Queue/{name}"
    deserved, capability = mapping(spec.get("deserved")), mapping(spec.get("capability"))
    guarantee = mapping(mapping(spec.get("guarantee")).get("resource"))
    if guarantee:
        made.note(about, "guarantee", "becomes a quota: idle quota is lent until the queue needs it")
    quotas = {**guarantee, **deserved}
    weight = spec.get("weight")
    resources = []
    for resource in sorted({*quotas, *capability} or ({"nvidia.com/gpu"} if weight is not None else set())):
        entry: dict[str, Any] = {"name": resource}
        for field, given in (("quota", quotas), ("limit", capability)):
            if (
                resource in given
                and (text := made.amount(about, f"{field} of {resource}", resource, given[resource])) is not None
            ):
                entry[field] = text
        if isinstance(weight, int) and whole(weight, -1) >= 0:
            entry["weight"] = weight
        resources.append(entry)
    if spec.get("reclaimable") is False:
        made.note(about, "reclaimable", "false: give its jobs a ServiceClass with preemption.mode Never")
    if mapping(spec.get("affinity")):
        made.note(about, "affinity", "not needed: pods choose nodes by nodeSelector and affinity")
    if listed(spec.get("extendClusters")):
        made.note(about, "extendClusters", "other clusters are not supported")
    if spec.get("dequeueStrategy") == "fifo":
        made.note(about, "dequeueStrategy", "fifo is `placement.headBlocks` of the scheduler, for all queues")
    parent = str(spec.get("parent") or "")
    priority = spec.get("priority")
    made.add(
        "Queue",
        name,
        {
            "parent": None if parent in _ROOTS else made.named(parent, f"Queue/{parent}"),
            "priority": whole(priority) or None,
            "resources": resources,
        },
        about,
    )

"""KAI-Scheduler (scheduling.run.ai): its queues are a tree like ours.

-1 is unlimited; memory is in megabytes, CPU in thousandths.
"""

from __future__ import annotations

import math
from typing import Any

from fairlead.importers.base import Imported, mapping, name_of, whole

_RESOURCES = {"gpu": "nvidia.com/gpu", "cpu": "cpu", "memory": "memory"}


def read(objects: list[dict[str, Any]]) -> Imported:
    """Our manifests for KAI's."""
    made = Imported()
    for each in objects:
        if each.get("kind") == "Queue":
            _queue(made, each)
        else:
            made.note(f"{each.get('kind')}/{name_of(each)}", "kind", "is not carried over")
    return made


def _queue(made: Imported, manifest: dict[str, Any]) -> None:
    name, spec = name_of(manifest), mapping(manifest.get("spec"))
    about = f"Queue/{name}"
    resources = []
    given = mapping(spec.get("resources"))
    for short, resource in _RESOURCES.items():
        entry = _resource(made, about, short, mapping(given.get(short)))
        if entry:
            resources.append({"name": resource, **entry})
    for short in sorted(set(given) - set(_RESOURCES)):
        made.note(about, f"resources.{short}", "is not a known resource of KAI")
    for field in ("preemptMinRuntime", "reclaimMinRuntime"):
        if spec.get(field):
            made.note(about, field, f"{spec[field]}: set preemption.minRuntime of a ServiceClass, for its jobs in all queues")
    parent = str(spec.get("parentQueue") or "")
    priority = spec.get("priority")
    made.add(
        "Queue",
        name,
        {
            "parent": made.named(parent, f"Queue/{parent}") if parent else None,
            "priority": whole(priority) or None,
            "resources": resources,
        },
        about,
    )


def _resource(made: Imported, about: str, short: str, given: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for field in ("quota", "limit"):
        value = given.get(field)
        if value is None:
            continue
        if not isinstance(value, int | float) or isinstance(value, bool):
            made.note(about, f"resources.{short}.{field}", f"left out: {value!r} is not a number")
        elif not math.isfinite(value):
            made.note(about, f"resources.{short}.{field}", f"left out: {value!r} is not an amount")
        elif value >= 0:
            entry[field] = _amount(made, about, f"{short}.{field}", short, value)
        elif field == "quota":
            entry[field] = "100%"
    weight = given.get("overQuotaWeight")
    if isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight < 1 << 31:
        entry["weight"] = int(weight)
        if weight != int(weight):
            made.note(about, f"resources.{short}.overQuotaWeight", f"{weight} becomes {int(weight)}: weights are whole numbers")
    return entry


def _amount(made: Imported, about: str, field: str, short: str, value: float) -> str | int:
    if short == "cpu":
        return f"{value:g}m"
    if short == "memory":
        return f"{value:g}M"
    if value != int(value):
        made.note(about, field, f"{value} becomes {value:g} of a device")
        return f"{value:g}"
    return int(value)

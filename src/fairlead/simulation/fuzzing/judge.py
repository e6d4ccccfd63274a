"""Whether innocent pods got what was there for them: decided from the objects alone, by rules of its own.

Canaries are small pods in a queue with quota and without limit, of a namespace of their own. They have nodes, too, on which
others may run as well. A canary that has no node at the end is starved if it fits on some node, counting the most that
pods there could ask for, whatever of it is in force, so that the judge errs for the scheduler and never against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from fairlead.api import names
from fairlead.cluster.times import seconds, timestamp

Object = dict[str, Any]
Objects = dict[str, dict[str, Object]]

_SPACE = "canary"
_MARK = "canary-"
_CPU, _MEMORY = Fraction(1), Fraction(1 << 30)
_UNITS = {"m": Fraction(1, 1000), "Mi": Fraction(1 << 20), "Gi": Fraction(1 << 30), "M": Fraction(10**6)}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_BEYOND = Fraction(10**30)


def is_canary(key: str) -> bool:
    """Whether an object, by its key, is one of ours."""
    return key.startswith(_MARK) or key == _SPACE


def surroundings() -> list[tuple[str, Object]]:
    """What canaries need: their namespace, a queue, and two nodes."""

    def named(name: str, rest: Object) -> Object:
        return {"metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": timestamp(1.8e9)}, **rest}

    quota = [{"name": "cpu", "quota": "100"}]
    made: list[tuple[str, Object]] = [
        ("namespace", named(_SPACE, {})),
        ("queue", named(f"{_MARK}queue", {"spec": {"resources": quota, "priority": 100}})),
    ]
    for number in range(2):
        amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        node = named(
            f"{_MARK}{number}",
            {"spec": {}, "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}},
        )
        node["metadata"]["labels"] = {"kubernetes.io/hostname": f"{_MARK}{number}"}
        made.append(("node", node))
    return made


def canary(number: int, now: float) -> Object:
    """A pod that asks for nothing special."""
    return {
        "metadata": {
            "name": f"{_MARK}{number}",
            "namespace": _SPACE,
            "uid": f"{_MARK}{number}",
            "creationTimestamp": timestamp(now),
            "labels": {names.QUEUE_LABEL: f"{_MARK}queue"},
            "annotations": {names.TIME_LIMIT_ANNOTATION: "365d"},
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
    }


def starved(objects: Objects, now: float) -> list[str]:
    """The canaries that wait although they fit on a node. now: seconds since the epoch."""
    pods = objects.get("pod", {})
    waiting = [pod for uid, pod in pods.items() if is_canary(uid) and not pod["spec"].get("nodeName")]
    if not waiting or _window(objects.get("reservation", {}).values(), now) or any(map(_keeps_away, pods.values())):
        return []
    fitting = [node["metadata"]["name"] for node in objects.get("node", {}).values() if _has_capacity(node, pods.values())]
    where = ", ".join(sorted(fitting))
    return [f"{pod['metadata']['name']} waits, {where} have free capacity" for pod in waiting] if fitting else []


def _window(reservations: Iterable[Object], now: float) -> bool:
    """Whether nodes are reserved, now or at a time that a canary, which runs long, would reach into."""
    return any(seconds(each["spec"]["end"]) > now for each in reservations)


def _keeps_away(pod: Object) -> bool:
    """Whether a pod that runs may keep others away from where it is: that is its right in Kubernetes."""
    spec = pod.get("spec")
    affinity = spec.get("affinity") if isinstance(spec, dict) and spec.get("nodeName") else None
    given = affinity.get("podAntiAffinity") if isinstance(affinity, dict) else None
    return isinstance(given, dict) and bool(given.get(_REQUIRED))


def _has_capacity(node: Object, pods: Iterable[Object]) -> bool:
    spec, name = node["spec"], node["metadata"]["name"]
    if spec.get("taints") or spec.get("unschedulable"):
        return False
    amounts = node["status"]["allocatable"]
    if any(_plain(each) is None for each in amounts.values()):
        return False
    left = {resource: _plain(amounts.get(resource, "0")) or Fraction(0) for resource in ("cpu", "memory", "pods")}
    for resource in names.GPU_RESOURCES:  # pods without devices leave a slot and a CPU for each that is free, as any may be
        gpus = _plain(amounts.get(resource, "0")) or Fraction(0)
        left["pods"] -= gpus
        left["cpu"] -= gpus
    for pod in pods:
        given = pod.get("spec") if isinstance(pod.get("spec"), dict) else {}
        status = pod.get("status") if isinstance(pod.get("status"), dict) else {}
        nominated = (status or {}).get("nominatedNodeName") == name and not (given or {}).get("nodeName")
        if (given or {}).get("nodeName") != name and not nominated:
            continue
        left["pods"] -= 1
        for resource in ("cpu", "memory"):
            left[resource] -= _at_most(pod, resource)
    return left["cpu"] >= _CPU and left["memory"] >= _MEMORY and left["pods"] >= 1


def _at_most(part: Any, resource: str) -> Fraction:
    """Every amount of a resource anywhere in an object together; beyond everything where one is no plain number."""
    amounts = (_plain(each) for each in _mentioned(part, resource))
    return sum((_BEYOND if each is None else each for each in amounts), Fraction(0))


def _mentioned(part: Any, resource: str) -> Iterator[Any]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == resource:
                yield value
            else:
                yield from _mentioned(value, resource)
    elif isinstance(part, list):
        for each in part:
            yield from _mentioned(each, resource)


def _plain(text: Any) -> Fraction | None:
    """A plain amount; None for anything unusual."""
    written = str(text)
    number, unit = written, Fraction(1)
    for suffix, each in _UNITS.items():
        if written.endswith(suffix):
            number, unit = written[: -len(suffix)], each
            break
    try:
        value = Fraction(number) * unit
    except (ValueError, ZeroDivisionError):
        return None
    return value if 0 <= value < 1 << 50 else None

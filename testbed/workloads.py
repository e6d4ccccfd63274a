"""What `fairlead bench cluster --workload` gives to every scheduler: nodes, pods, and what is there before.

Workloads of plain pods compare profile `ai`; those that speak of other pods, and preemption, are upstream's own game
and run under profile `kubernetes` against kube-scheduler with its default plugins.
"""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from testbed import claims, objects
from testbed.topology import racks

KINDS = (
    *("pods", "queues", "relist", "spread", "anti-affinity", "affinity", "preferred-affinity", "unschedulable", "preempt"),
    *claims.KINDS,
    "racks",
)
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

PROBES = 200
"""Pods that can be placed, among many that cannot."""
SHAPES = 200
QUEUES = 30
VICTIMS = 3
"""How many of a node's pods must go for one of high priority."""

_OF_UPSTREAM = ("spread", "anti-affinity", "affinity", "preferred-affinity", "unschedulable", "preempt")
_ZONES = 10
_FILLERS = 4
_HIGH = "high"
_REQUIRED, _PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def scheduler_name(kind: str, scheduler: str) -> str:
    """The `schedulerName` of the pods that a scheduler is to place."""
    if scheduler == "fairlead":
        return names.KUBERNETES_SCHEDULER_NAME if kind in _OF_UPSTREAM else names.SCHEDULER_NAME
    return "default-scheduler" if scheduler == "kube-scheduler" else "bare-binder"


def server_flags(kind: str) -> tuple[str, ...]:
    """Flags of the API server without which it does not serve what a workload consists of."""
    return racks.SERVER_FLAGS if kind == "racks" else ()


def scheduler_flags(kind: str) -> tuple[str, ...]:
    """Flags of kube-scheduler that a workload needs."""
    return racks.SCHEDULER_FLAGS if kind == "racks" else ()


def quiet(kind: str) -> float:
    """Seconds without any binding after which a scheduler is thought to have stopped.

    kube-scheduler tries a gang of 1,000 in each of 50 racks before it binds one of its pods.
    """
    return 1200.0 if kind == "racks" else 60.0


def node(kind: str, number: int, gpus: int, nodes: int) -> dict[str, Any]:
    """One of so many nodes."""
    if kind == "racks":
        return racks.node(number, nodes)
    name = f"node-{number:05d}"
    if kind == "preempt":
        return objects.node(name, gpus=0, cpu="4", memory="32Gi")
    if kind in claims.KINDS:
        return objects.node(name, gpus=0)
    return objects.node(name, gpus=gpus, labels={ZONE: f"zone-{number % _ZONES}"})


def priorities(kind: str) -> list[dict[str, Any]]:
    """The priority classes that its pods name."""
    return [objects.priority_class(_HIGH, 1000)] if kind == "preempt" else []


def before(kind: str, nodes: int, pods: int, scheduler: str) -> list[dict[str, Any]]:
    """What else is created before the scheduler starts."""
    if kind == "preempt":
        return [
            objects.pod(f"low-{number:06d}", scheduler=scheduler, gpus=0, cpu="900m", nodeName=f"node-{number // _FILLERS:05d}")
            for number in range(nodes * _FILLERS)
        ]
    if kind in claims.KINDS:
        return claims.before(kind, nodes, pods)
    if kind == "racks":
        return racks.before(scheduler)
    if kind == "unschedulable":
        return [_impossible(number, scheduler) for number in range(pods)]
    return []


def queues(kind: str, nodes: int, gpus: int) -> list[dict[str, Any]]:
    """The queues that its pods name; together they are guaranteed all GPUs."""
    if kind != "queues":
        return []
    return [objects.queue(f"queue-{number:02d}", quota=nodes * gpus // QUEUES) for number in range(QUEUES)]


def placed(kind: str, pods: int) -> int:
    """How many pods get a node."""
    return PROBES if kind == "unschedulable" else pods


def group(kind: str, name: str, members: int, scheduler: str) -> dict[str, Any]:
    """The object by which pods are a gang."""
    return racks.group(name, members, scheduler) if kind == "racks" else objects.pod_group(name, members)


def pod(kind: str, number: int, scheduler: str, group: str = "") -> dict[str, Any]:
    """One pod that is to be placed."""
    name = f"pod-{number:06d}"
    if kind == "preempt":
        return objects.pod(name, scheduler=scheduler, gpus=0, cpu="3", priorityClassName=_HIGH)
    if kind in claims.KINDS:
        return claims.pod(number, scheduler)
    if kind == "racks":
        return racks.pod(number, scheduler, group)
    if kind == "queues":
        return objects.pod(name, scheduler=scheduler, queue=f"queue-{number % QUEUES:02d}")
    if kind not in _OF_UPSTREAM:
        return objects.pod(name, scheduler=scheduler, group=group)
    return objects.pod(name, scheduler=scheduler, gpus=0, labels={"app": "bench"}, **_rules(kind))


def _rules(kind: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "bench"}}
    match kind:
        case "spread":
            rule = {"topologyKey": ZONE, "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            return {"topologySpreadConstraints": [rule]}
        case "anti-affinity":
            return {"affinity": {"podAntiAffinity": {_REQUIRED: [{"topologyKey": HOSTNAME, "labelSelector": selector}]}}}
        case "affinity":
            return {"affinity": {"podAffinity": {_REQUIRED: [{"topologyKey": ZONE, "labelSelector": selector}]}}}
        case "preferred-affinity":
            term = {"topologyKey": HOSTNAME, "labelSelector": selector}
            return {"affinity": {"podAffinity": {_PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}}
    return {}


def _impossible(number: int, scheduler: str) -> dict[str, Any]:
    """A pod of one of 200 shapes that fits nowhere: half ask for a label that no node has, half for too much CPU."""
    shape = number % SHAPES
    name = f"wait-{number:06d}"
    if shape % 2:
        return objects.pod(name, scheduler=scheduler, gpus=0, cpu=f"{200 + shape}")
    return objects.pod(name, scheduler=scheduler, gpus=0, nodeSelector={"example.com/shape": f"s{shape}"})

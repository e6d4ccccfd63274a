"""Nodes: labels, amounts, taints, images, features."""

from __future__ import annotations

from testbed.random_clusters.draw import HOSTNAME, IMAGES, REGION, ZONE, Draw, Object

_FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "SomethingNewer")
_MI = 1 << 20


def node(draw: Draw, name: str) -> Object:
    """A node."""
    labels = {HOSTNAME: name}
    if draw.chance(0.9):
        labels[ZONE] = draw.pick(("z1", "z2", "z3"))
    if draw.chance(0.8):
        labels[REGION] = draw.pick(("r1", "r2"))
    if draw.chance(0.5):
        labels["rack"] = draw.pick(("1", "2", "30", "four"))
    if draw.chance(0.5):
        labels["disk"] = draw.pick(("ssd", "hdd", ""))
    if draw.often("nodes", 0.1, 0.02):
        labels.pop(HOSTNAME)
    allocatable = {
        "cpu": draw.pick(("4", "8", "16", "3500m") if draw.roomy else ("1", "2", "4", "3500m")),
        "memory": draw.pick(("16Gi", "32Gi", "7900Mi") if draw.roomy else ("1G", "4Gi", "8Gi", "7900Mi")),
        "pods": draw.pick(("110", "110", "110", "4", "6")),
    }
    if draw.often("resources", 0.7, 0.3):
        allocatable["ephemeral-storage"] = draw.pick(("10Gi", "100Gi"))
    if draw.often("resources", 0.5, 0.2):
        allocatable["nvidia.com/gpu"] = draw.pick(("1", "4", "8"))
    if draw.often("resources", 0.3, 0.05):
        allocatable["hugepages-2Mi"] = draw.pick(("64Mi", "0", "1Gi"))
    if draw.often("nodes", 0.1, 0.02):
        allocatable.pop(draw.pick(("cpu", "memory", "pods")))
    spec: Object = {}
    if draw.often("nodes", 0.15, 0.05):
        spec["unschedulable"] = True
    taints = draw.several(_taint, 0, 2) if draw.often("taints", 0.6, 0.1) else []
    if taints:
        spec["taints"] = taints
    status: Object = {"allocatable": allocatable, "capacity": allocatable}
    if draw.often("images", 0.9, 0.1):
        status["images"] = draw.several(_image, 1, 3)
    if draw.often("features", 0.7, 0.0):
        status["declaredFeatures"] = sorted(draw.some(_FEATURES, 1, 2))
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec, "status": status}


def _taint(draw: Draw) -> Object:
    return {
        "key": draw.pick(("dedicated", "gpu", "node.kubernetes.io/unschedulable")),
        "value": draw.pick(("", "x", "y")),
        "effect": draw.pick(("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")),
    }


def _image(draw: Draw) -> Object:
    name = draw.pick(IMAGES)
    names = [name if ":" in name else f"{name}:latest"]
    if draw.chance(0.3):
        names.append(f"{draw.pick(IMAGES)}@sha256:abc")
    return {"names": names, "sizeBytes": draw.pick((10, 60, 300, 900, 2500)) * _MI}

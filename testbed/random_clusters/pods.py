"""Pods that run and pods that wait."""

from __future__ import annotations

from testbed.random_clusters.affinity import constraint, give_node_choice, give_pod_affinity
from testbed.random_clusters.draw import APPS, IMAGES, TIERS, Draw, Object
from testbed.random_clusters.storage import Storage
from testbed.random_clusters.workloads import Workloads

_PROTOCOLS = ("TCP", "UDP", "SCTP")


class Pods:
    """Makes the pods of one cluster."""

    def __init__(self, draw: Draw, storage: Storage, workloads: Workloads) -> None:
        self._draw = draw
        self._storage = storage
        self._workloads = workloads

    def pod(self, number: int, node: str = "") -> Object:
        """A pod, on a node or waiting."""
        draw = self._draw
        running = bool(node)
        name = f"pod-{number}"
        labels = _labels(draw)
        metadata: Object = {
            "name": name,
            "namespace": draw.pick(("default", "default", "red", "blue", "green")),
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:00:{number % 60:02d}Z",
        }
        if labels:
            metadata["labels"] = labels
        spec: Object = {"containers": draw.several(_container, 1, 3), "schedulerName": "default-scheduler"}
        status: Object = {"phase": "Running" if running else "Pending"}
        _give_resources(draw, spec, status, running=running)
        if draw.often("preemption", 0.9, 0.5):
            spec["priority"] = draw.pick((0, 0, 10, 10, 100, -5, 1000) if running else (0, 10, 100, 1000, 1000))
        give_node_choice(draw, spec)
        if draw.often("affinity", 0.6, 0.12):
            give_pod_affinity(draw, spec)
        if draw.often("spread", 0.7, 0.1):
            spec["topologySpreadConstraints"] = draw.several(lambda draw: constraint(draw, labels), 1, 2)
        if draw.dwells["volumes"] and draw.chance(0.7):
            self._storage.give_volumes(metadata, spec, running=running)
        if draw.often("features", 0.5, 0.02):
            _give_features(draw, spec)
        if self._workloads.owners and draw.chance(0.5):
            self._workloads.give_owner(metadata)
        if running:
            _give_life(draw, metadata, spec, status, node)
        else:
            _give_wait(draw, spec, status)
        return {"metadata": metadata, "spec": spec, "status": status}


def _labels(draw: Draw) -> Object:
    labels = {}
    if draw.chance(0.85):
        labels["app"] = draw.pick(APPS)
    if draw.chance(0.4):
        labels["tier"] = draw.pick(TIERS)
    if draw.chance(0.3):
        labels["version"] = draw.pick(("1", "2"))
    return labels


def _container(draw: Draw) -> Object:
    container: Object = {"name": f"c{draw.random.randrange(1 << 30)}", "image": draw.pick(IMAGES)}
    resources: Object = {}
    if draw.chance(0.75):
        resources["requests"] = _requests(draw)
    if draw.chance(0.2):
        resources["limits"] = _requests(draw)
    if resources:
        container["resources"] = resources
    if draw.often("ports", 0.6, 0.03):
        container["ports"] = draw.several(_port, 1, 2)
    return container


def _requests(draw: Draw) -> Object:
    requests = {}
    if draw.chance(0.85):
        requests["cpu"] = draw.pick(("100m", "250m", "500m", "1", "1500m", "2", "0.3", "0", "1m", "100u"))
    if draw.chance(0.8):
        requests["memory"] = draw.pick(("128Mi", "256Mi", "1Gi", "2Gi", "500M", "0", "100m", "1.5Gi", "3e8"))
    if draw.often("resources", 0.3, 0.05):
        requests["nvidia.com/gpu"] = draw.pick(("1", "1", "2", "0"))
    if draw.often("resources", 0.2, 0.03):
        requests["ephemeral-storage"] = draw.pick(("1Gi", "9Gi", "50Gi"))
    if draw.often("resources", 0.1, 0.01):
        requests["hugepages-2Mi"] = draw.pick(("2Mi", "64Mi"))
    if draw.often("mistakes", 0.1, 0.0):
        requests[draw.pick(("example.com/none", "storage", "kubernetes.io/odd", "nobody"))] = "1"
    return requests


def _whole_requests(draw: Draw) -> Object:
    """Without fractions: upstream adds a pod's overhead to those anew each time it looks at them."""
    return {name: draw.pick(("1", "2")) if name == "cpu" else "1Gi" for name in _requests(draw) if name != "nobody"}


def _port(draw: Draw) -> Object:
    port: Object = {"containerPort": 80, "hostPort": draw.pick((80, 80, 443, 8080, 0))}
    if draw.chance(0.8):
        port["protocol"] = draw.pick(_PROTOCOLS)
    if draw.chance(0.5):
        port["hostIP"] = draw.pick(("", "0.0.0.0", "127.0.0.1", "10.0.0.1"))  # noqa: S104 - data, nothing binds
    return port


def _give_resources(draw: Draw, spec: Object, status: Object, *, running: bool) -> None:
    if draw.often("resources", 0.4, 0.1):
        spec["initContainers"] = draw.several(_container, 1, 3)
        for container in spec["initContainers"]:
            if draw.chance(0.5):
                container["restartPolicy"] = "Always"
    if draw.often("resources", 0.2, 0.03):
        spec["overhead"] = {"cpu": draw.pick(("100m", "250m")), "memory": "64Mi"}
    if draw.often("resources", 0.2, 0.03):
        spec["resources"] = {"requests": _whole_requests(draw)}
    if running and draw.often("resize", 0.7, 0.05):
        containers = [*spec["containers"], *(each for each in spec.get("initContainers", ()) if each.get("restartPolicy"))]
        status["containerStatuses"] = [_container_status(draw, each) for each in containers if draw.chance(0.8)]
        if draw.chance(0.3):
            reason = draw.pick(("Infeasible", "Deferred"))
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        if spec.get("resources") and draw.chance(0.5):
            status["resources"] = {"requests": _requests(draw)}
            status["allocatedResources"] = _requests(draw)


def _container_status(draw: Draw, container: Object) -> Object:
    status: Object = {"name": container["name"]}
    if draw.chance(0.8):
        status["resources"] = {"requests": _requests(draw)}
    if draw.chance(0.8):
        status["allocatedResources"] = _requests(draw)
    return status


def _give_features(draw: Draw, spec: Object) -> None:
    if draw.chance(0.5):
        container = spec["containers"][0]
        container["restartPolicyRules"] = [{"action": draw.pick(("Restart", "RestartAllContainers"))}]
    else:
        spec["hostNetwork"] = draw.chance(0.7)
        spec["hostUsers"] = draw.chance(0.3)


def _give_life(draw: Draw, metadata: Object, spec: Object, status: Object, node: str) -> None:
    spec["nodeName"] = node
    if draw.chance(0.95):
        status["startTime"] = f"2026-01-01T00:{draw.random.randrange(60):02d}:{draw.random.randrange(60):02d}Z"
    if draw.chance(0.08):
        metadata["deletionTimestamp"] = "2026-01-01T02:00:00Z"
        if draw.chance(0.5):
            status["conditions"] = [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": draw.pick(("PreemptionByScheduler", "EvictionByEvictionAPI")),
                }
            ]
    if draw.chance(0.05):
        status["phase"] = draw.pick(("Succeeded", "Failed"))


def _give_wait(draw: Draw, spec: Object, status: Object) -> None:
    if draw.chance(0.05):
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    if draw.often("preemption", 0.15, 0.05):
        spec["preemptionPolicy"] = draw.pick(("Never", "PreemptLowerPriority"))
    if draw.often("nominated", 0.6, 0.05):
        status["nominatedNodeName"] = draw.pick((*draw.node_names, "unknown")) if draw.chance(0.2) else draw.pick(draw.node_names)

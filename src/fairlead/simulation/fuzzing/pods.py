"""Random pods, driven by the schema of the API's types: every field that a Pod has may be there, with any value.

Three kinds of authors write: most write what makes sense, some slip now and then, a few write whatever the schema takes.
The names that a pod may refer to are few, so that pods meet each other, their nodes, queues and volumes.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random
from typing import Any

from lightkube.models.core_v1 import Pod

from fairlead.api import names
from fairlead.cluster.simulated.schema import Node, of_model
from fairlead.cluster.times import timestamp

Object = dict[str, Any]

NAMESPACES = ("ns", "ns", "other", "third")
NODES = tuple(f"n{number}" for number in range(8))
QUEUES = (*("q", "q.a", "q.b", "r") * 4, "users", "users", "narrow", "default", "nowhere")
CLASSES = ("never", "suspend", "slices", "urgent", "limited", "unknown")
GROUPS = tuple(f"g{number}" for number in range(6))
CLAIMS = tuple(f"claim-{number}" for number in range(8))
GPU = "nvidia.com/gpu"
_KEYS = ("app", "tier", "kubernetes.io/hostname", "zone", "rack", "a", "metadata.name")
_TEXTS = ("a", "b", "x", "web", "z1", "z2", "r1", "n0", "n1", "ns", "other")
_TOPOLOGIES = ("kubernetes.io/hostname", "zone", "rack", "missing")
_RESOURCES = ("cpu", "cpu", "memory", "memory", GPU, "ephemeral-storage", "hugepages-2Mi", "example.com/widget", "amd.com/gpu")
_AMOUNTS = {
    "cpu": ("0", "10m", "100m", "500m", "1", "2", "4", "16", "0.001"),
    "memory": ("0", "64Mi", "1Gi", "4Gi", "1e9", "128974848", "100M"),
    GPU: ("0", "1", "1", "2", "4", "8"),
}
_PLAIN = ("0", "1", "2", "100", "1Gi")
ODD_TEXTS = (
    "",
    " ",
    "\u0000",
    "\u202ebanana",
    "ünïcödé",
    "漢字",
    "a" * 300,
    "x" * 5000,
    "../..",
    "a/b/c",
    "-",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "NaN",
    "{}",
    "kubernetes.io/hostname",
    "fairlead.dev/queue",
    "suspended/x",
    "leaving/x/0",
    "*",
    "\U0001f600",
)
ODD_AMOUNTS = (
    "10E",
    "1e1000",
    "-1",
    "",
    "banana",
    "1n",
    "9223372036854775807",
    "9223372036854775808",
    "1152921504606846976",
    "1152921504606846975",
    "0.0000000001",
    "1.5Ei",
    "1e-400",
    0,
    3,
    0.5,
    -7,
    1e300,
    "+5",
    ".5",
    "5.",
    "1024",
    "2000",
)
ODD_INTEGERS = (0, 1, -1, 2, 100, 101, 1023, 65536, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**63)
ODD_TIMES = (
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "yesterday",
    "",
    "2026-01-01",
    "1970-01-01T00:00:00Z",
    "2026-13-01T00:00:00Z",
)
ODD_SPANS = ("banana", "", "0s", "-5m", "1h30", "99999999h", "1e9s", "9" * 90 + "d", "1.5.5h")
_SPANS = ("1s", "30s", "5m", "1h30m", "24h", "7d")
_FRACTIONS = ("0.5", "0.25", "0.001", "0.999", "1/2", "500m")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute", "")

# How often a field is there that scheduling reads; all others are there now and then.
_LIKELY = {
    "spec": 1.0,
    "containers": 1.0,
    "resources": 0.85,
    "requests": 0.9,
    "limits": 0.2,
    "initContainers": 0.15,
    "overhead": 0.08,
    "nodeSelector": 0.15,
    "affinity": 0.3,
    "nodeAffinity": 0.4,
    "podAffinity": 0.4,
    "podAntiAffinity": 0.5,
    "requiredDuringSchedulingIgnoredDuringExecution": 0.55,
    "preferredDuringSchedulingIgnoredDuringExecution": 0.55,
    "nodeSelectorTerms": 0.95,
    "matchExpressions": 0.5,
    "matchFields": 0.1,
    "matchLabels": 0.6,
    "labelSelector": 0.9,
    "namespaceSelector": 0.15,
    "namespaces": 0.15,
    "topologyKey": 1.0,
    "podAffinityTerm": 1.0,
    "preference": 1.0,
    "weight": 1.0,
    "key": 0.97,
    "operator": 0.97,
    "values": 0.8,
    "value": 0.6,
    "effect": 0.6,
    "tolerations": 0.2,
    "topologySpreadConstraints": 0.15,
    "maxSkew": 1.0,
    "whenUnsatisfiable": 1.0,
    "minDomains": 0.2,
    "matchLabelKeys": 0.2,
    "nodeAffinityPolicy": 0.2,
    "nodeTaintsPolicy": 0.2,
    "volumes": 0.15,
    "persistentVolumeClaim": 0.6,
    "claimName": 1.0,
    "ephemeral": 0.1,
    "ports": 0.1,
    "hostPort": 0.6,
    "containerPort": 1.0,
    "name": 0.9,
    "image": 0.6,
    "restartPolicy": 0.3,
    "schedulingGates": 0.03,
    "priority": 0.5,
    "preemptionPolicy": 0.1,
    "activeDeadlineSeconds": 0.05,
    "hostNetwork": 0.05,
    "nodeName": 0.06,
    "containerStatuses": 0.3,
    "initContainerStatuses": 0.1,
    "allocatedResources": 0.5,
    "conditions": 0.5,
    "nominatedNodeName": 0.1,
    "phase": 0.9,
    "startTime": 0.5,
    "type": 0.95,
    "status": 0.9,
    "reason": 0.5,
}
_SELDOM = 0.012
_DEEPEST = 9


class PodWriter:
    """Writes pods. random: the only source of chance, so that a seed determines everything."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.tree = of_model(Pod)
        self._odd = 0.0
        self._by_name: dict[str, Callable[[], Any]] = {
            "topologyKey": lambda: self._of(_TOPOLOGIES),
            "tolerationSeconds": lambda: self._of((0, 60)),
            "key": lambda: self._of(_KEYS),
            "namespaces": lambda: self._of(NAMESPACES),
            "matchLabelKeys": lambda: self._of(_KEYS),
            "operator": lambda: self._of(_OPERATORS),
            "effect": lambda: self._of(_EFFECTS),
            "weight": lambda: self.random.randint(1, 100),
            "maxSkew": lambda: self.random.randint(1, 3),
            "minDomains": lambda: self.random.randint(1, 3),
            "whenUnsatisfiable": lambda: self._of(("DoNotSchedule", "ScheduleAnyway")),
            "nodeAffinityPolicy": lambda: self._of(("Honor", "Ignore")),
            "nodeTaintsPolicy": lambda: self._of(("Honor", "Ignore")),
            "claimName": lambda: self._of(CLAIMS),
            "hostPort": lambda: self._of((80, 443, 8080)),
            "containerPort": lambda: self._of((80, 443, 8080)),
            "hostIP": lambda: self._of(("", "0.0.0.0", "10.0.0.1", "::")),  # noqa: S104 - a value of the API
            "protocol": lambda: self._of(("TCP", "UDP", "SCTP")),
            "priority": lambda: self._of((0, 0, 10, 100, 1000, -5, 2_000_000_000)),
            "preemptionPolicy": lambda: self._of(("Never", "PreemptLowerPriority")),
            "nodeName": lambda: self._of((*NODES, "canary-0")),
            "nominatedNodeName": lambda: self._of((*NODES, "canary-0", "canary-0", "canary-1")),
            "image": lambda: self._of(("busybox", "nginx:1", "r.io/a/b@sha256:00", "r:5000/x")),
            "restartPolicy": lambda: self._of(("Always", "Never", "OnFailure")),
            "phase": lambda: self._of(("Pending", "Pending", "Running")),
            "status": lambda: self._of(("True", "False", "Unknown")),
            "type": lambda: self._of(("PodScheduled", "Ready", "PodResizePending", "DisruptionTarget")),
            "reason": lambda: self._of(("Unschedulable", "Infeasible", "Deferred", "PreemptionByScheduler")),
            "activeDeadlineSeconds": lambda: self._of((1, 60, 3600)),
            "name": lambda: self._of(("main", "side", "c", "v")),
            "pdName": lambda: self._of(("d1", "d2")),
            "volumeID": lambda: self._of(("d1", "d2")),
        }

    # -- whole pods ----------------------------------------------------------------------------

    def pod(self, number: int, now: float, *, group: str = "") -> Object:
        """A pod that is about to be. number: of its name and UID; group: of which PodGroup it is a member, if given."""
        random = self.random
        self._odd = random.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.003, 0.02, 0.2))
        made: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(number, now)}
        made["spec"] = self._object(self.tree.children["spec"], 0)
        if random.random() < 0.25:
            made["status"] = self._object(self.tree.children["status"], 0)
        spec = made["spec"]
        if not isinstance(spec, dict):
            return made
        spec["schedulerName"] = random.choices(
            (names.SCHEDULER_NAME, names.KUBERNETES_SCHEDULER_NAME, "default-scheduler"), (65, 30, 5)
        )[0]
        if group:
            made["metadata"]["labels"] = {**self.labels(), names.POD_GROUP_LABEL: group}
        if names.GPU_FRACTION_ANNOTATION in made["metadata"]["annotations"] and not self._slips():
            _without_gpus(spec)
        if self._odd > 0.1 and random.random() < 0.2:
            self._swell(spec)
        return made

    def metadata(self, number: int, now: float) -> Object:
        """What the API server writes, and what an author may add."""
        random = self.random
        made: Object = {
            "name": f"p{number}",
            "namespace": random.choice(NAMESPACES),
            "uid": f"uid-{number}",
            "resourceVersion": "1",
            "creationTimestamp": timestamp(now),
            "labels": self.labels(),
            "annotations": self.annotations(),
        }
        if random.random() < 0.4:
            kind = random.choice(
                (("apps/v1", "ReplicaSet"), ("batch/v1", "Job"), ("fairlead.dev/v1alpha1", "AIJob"), ("ray.io/v1", "RayCluster"))
            )
            owner = f"o{random.randrange(6)}"
            made["ownerReferences"] = [
                {
                    "apiVersion": kind[0],
                    "kind": kind[1],
                    "name": owner,
                    "uid": f"uid-{owner}",
                    "controller": random.random() < 0.9,
                }
            ]
        if random.random() < 0.02:
            made["deletionTimestamp"] = timestamp(now)
        for field, value in made.items():
            if field not in ("uid", "name", "namespace", "resourceVersion", "labels", "annotations") and self._slips():
                made[field] = random.choice((None, *ODD_TIMES)) if isinstance(value, str) else None
        return made

    def labels(self) -> Object:
        """Labels, ours among them."""
        random = self.random
        made = {key: random.choice(_TEXTS) for key in random.sample(_KEYS, random.choice((0, 1, 1, 2, 3)))}
        if random.random() < 0.6:
            made[names.QUEUE_LABEL] = self._of(QUEUES)
        if random.random() < 0.2:
            made[names.SERVICE_CLASS_LABEL] = self._of(CLASSES)
        if random.random() < 0.04:
            made[names.POD_GROUP_LABEL] = self._of(GROUPS)
        if random.random() < 0.04:
            made[names.ELASTIC_REPLICA_LABEL] = self._of(("true", "false"))
        for key in (
            names.JOB_LABEL,
            names.ELEMENT_LABEL,
            names.ROLE_LABEL,
            "jobset.sigs.k8s.io/jobset-name",
            "jobset.sigs.k8s.io/jobset-uid",
            "training.kubeflow.org/job-name",
            "ray.io/cluster",
            "pod-template-hash",
            "controller-revision-hash",
        ):
            if random.random() < 0.015:
                made[key] = self._of(_TEXTS)
        if self._slips():
            made[random.choice(ODD_TEXTS)] = random.choice(ODD_TEXTS)
        return made

    def annotations(self) -> Object:
        """Annotations, ours among them, readable or not."""
        random = self.random
        made: Object = {}
        for name, good, bad in (
            (names.GPU_FRACTION_ANNOTATION, _FRACTIONS, ODD_AMOUNTS),
            (names.TIME_LIMIT_ANNOTATION, _SPANS, ODD_SPANS),
            (names.EXPECTED_DURATION_ANNOTATION, _SPANS, ODD_SPANS),
        ):
            if random.random() < 0.1:
                made[name] = str(random.choice(bad if random.random() < 0.25 else good))
        for name in (
            names.USER_ANNOTATION,
            names.EPOCH_ANNOTATION,
            names.SAFE_TO_EVICT_ANNOTATION,
            names.DO_NOT_DISRUPT_ANNOTATION,
            names.SUSPENDED_BY_ANNOTATION,
        ):
            if random.random() < 0.08:
                made[name] = random.choice(("ann", "bob", "false", "true", "7", *(ODD_TEXTS if self._slips() else ())))
        if self._slips():
            made["note"] = random.choice(string.printable) * random.choice((10, 1000, 250_000))
        return made

    def changed(self, pod: Object, now: float) -> Object:
        """The pod after a user, or its kubelet, changed it."""
        random = self.random
        self._odd = random.choice((0.0, 0.0, 0.0, 0.02, 0.3))
        made = {**pod, "metadata": {**pod["metadata"]}}
        metadata = made["metadata"]
        what = random.randrange(9)
        if what <= 1:
            metadata["labels"] = self.labels()
        elif what == 2:
            metadata["labels"] = {**(metadata.get("labels") or {}), names.POD_GROUP_LABEL: self._of(GROUPS)}
        elif what == 3:
            metadata["annotations"] = self.annotations()
        elif what == 4:
            metadata["deletionTimestamp"] = timestamp(now)
        elif what <= 6:
            made["status"] = self._object(self.tree.children["status"], 0)
        elif isinstance(made.get("spec"), dict):
            spec = made["spec"] = {**made["spec"]}
            if what == 7:  # a resize in place
                spec["containers"] = self._value(self.tree.children["spec"].children["containers"], "containers", 1)
            else:
                spec["schedulingGates"] = self._of(([], [], [{"name": "g"}]))
                spec["priority"] = self._by_name["priority"]()
        return made

    # -- anything the schema takes -------------------------------------------------------------

    def _object(self, node: Node, depth: int) -> Any:
        random, made = self.random, {}
        for name, child in node.children.items():
            if random.random() < _LIKELY.get(name, _SELDOM):
                made[name] = self._value(child, name, depth + 1)
        return made

    def _value(self, node: Node, name: str, depth: int) -> Any:
        random = self.random
        if self._odd and random.random() < self._odd * 0.02:
            return random.choice((None, [], {}, "text", 7, True, [None], [[]], {"": {}}))  # of another type than it should be
        if node.name in ("NodeSelectorRequirement", "LabelSelectorRequirement") and not self._slips():
            return self._requirement(node.name)
        if node.kind == "object":
            return self._object(node, depth) if depth < _DEEPEST else {}
        if node.kind == "list":
            count = random.choice((1, 1, 1, 1, 2, 3)) if not self._slips() else random.choice((0, 5, 12))
            return [self._value(node.item, name, depth + 1) for _ in range(count)] if node.item is not None else []
        if node.kind == "map":
            return self._map(name)
        return self._leaf(node, name)

    def _requirement(self, kind: str) -> Object:
        """A requirement that can be met, if not by whom."""
        operators = _OPERATORS if kind.startswith("Node") else _OPERATORS[:4]
        operator = self.random.choice(operators)
        made: Object = {"key": self.random.choice(_KEYS), "operator": operator}
        if operator in ("In", "NotIn"):
            made["values"] = self.random.sample(_TEXTS, self.random.choice((1, 2, 5)))
        elif operator in ("Gt", "Lt"):
            made["values"] = [self.random.choice(("0", "1", "-3", "99999999999999999999"))]
        return made

    def _map(self, name: str) -> Object:
        random = self.random
        if name in ("requests", "limits", "overhead", "allocatedResources", "capacity", "allocatable"):
            return self.amounts()
        count = random.choice((1, 1, 2)) if not self._slips() else random.choice((0, 6))
        return {self._of(_KEYS): self._of(_TEXTS) for _ in range(count)}

    def amounts(self) -> Object:
        """Quantities of resources."""
        random = self.random
        made: Object = {}
        usual = ("cpu", "memory") if random.random() < 0.5 else ("cpu", GPU)
        for resource in usual if random.random() < 0.8 else random.sample(_RESOURCES, random.choice((1, 2, 3))):
            odd = self._slips()
            made[resource] = random.choice(ODD_AMOUNTS if odd else _AMOUNTS.get(resource, _PLAIN))
        if self._slips():
            made[random.choice(ODD_TEXTS)] = random.choice(ODD_AMOUNTS)
        return made

    def _leaf(self, node: Node, name: str) -> Any:
        random = self.random
        known = self._by_name.get(name)
        if known is not None and not self._slips():
            value = known()
            return value if not node.python or isinstance(value, node.python) else random.choice(ODD_INTEGERS)
        kind = node.python[0] if node.python else str
        if kind is bool:
            return random.random() < 0.5
        if kind in (int, float):
            return random.choice(ODD_INTEGERS) if self._slips() else random.randrange(100)
        if node.go == "time.Time":
            return random.choice(ODD_TIMES) if self._slips() else timestamp(1_800_000_000.0 + random.randrange(100_000))
        return random.choice(ODD_TEXTS) if self._slips() else random.choice(_TEXTS)

    def _swell(self, spec: Object) -> None:
        """Absurdly many of something."""
        random = self.random
        term = {"topologyKey": self._of(_TOPOLOGIES), "labelSelector": {"matchLabels": {"app": "a"}}}
        count = random.choice((40, 130, 400))
        what = random.randrange(6)
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        if what == 0:
            spec["affinity"] = {"podAntiAffinity": {required: [{**term, "topologyKey": f"k{n}"} for n in range(count)]}}
        elif what == 1:
            terms = [{"matchExpressions": [{"key": f"k{n}", "operator": "In", "values": ["v"] * 20}]} for n in range(count)]
            spec["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
        elif what == 2:
            spec["tolerations"] = [{"key": f"k{n}"} for n in range(count * 4)]
        elif what == 3:
            spec["volumes"] = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": self._of(CLAIMS)}} for n in range(count)]
        elif what == 4:
            container = {"name": "c", "resources": {"requests": {random.choice(("cpu", "memory")): str(2**60 - 1)}}}
            spec |= {"containers": [container], "nodeName": random.choice(NODES)}
        else:
            container = {"name": "c", "resources": {"requests": {f"example.com/r{n}": "1" for n in range(count)}}}
            spec["containers"] = [container] * 3

    def _of(self, pool: Any) -> Any:
        return self.random.choice(ODD_TEXTS) if self._slips() else self.random.choice(pool)

    def _slips(self) -> bool:
        return self._odd > 0.0 and self.random.random() < self._odd


def _without_gpus(spec: Object) -> None:
    """Whole GPUs and a part of one exclude each other."""
    containers = spec.get("containers")
    for container in containers if isinstance(containers, list) else ():
        resources = container.get("resources") if isinstance(container, dict) else None
        requests = resources.get("requests") if isinstance(resources, dict) else None
        if isinstance(requests, dict):
            for resource in names.GPU_RESOURCES:
                requests.pop(resource, None)

"""Random small clusters for the differential test: every feature that a default plugin of kube-scheduler looks at.

`generate(seed)` is one cluster in Kubernetes JSON, in the form that `fairlead feasibility --cases` and the oracle
read. Names, labels and values come from small pools, so that selectors meet what they select. Most objects are
sane; a few are what a user might really get wrong (selectors that do not parse, claims that do not exist).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

Object = dict[str, Any]

NODES = 6
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
_NAMESPACES = ("default", "red", "blue", "green")
_APPS = ("web", "db", "cache")
_TIERS = ("front", "back")
_KEYS = (ZONE, ZONE, HOSTNAME, HOSTNAME, REGION, "rack", "missing")
_DRIVERS = ("disk.csi.example", "fast.csi.example")
_IMAGES = ("web", "db:v1", "registry.example/ai/train:v2", "registry.example/ai/serve")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "SomethingNewer")
_CLASSES = ("wait", "wait", "wait-zoned", "wait-capacity", "manual", "now")
_MI = 1 << 20


def generate(seed: int, nodes: int = NODES) -> Object:
    """One cluster; the same for the same seed, whatever was generated before."""
    return _Generator(Random(seed), nodes).cluster(f"seed-{seed}")


class _Generator:
    def __init__(self, random: Random, nodes: int) -> None:
        self.random = random
        self.node_names = [f"node-{number}" for number in range(nodes)]
        # A cluster dwells on some subjects, so that what is rare meets its like.
        self.dwells = {
            subject: random.random() < share
            for subject, share in (
                ("affinity", 0.35),
                ("spread", 0.35),
                ("volumes", 0.3),
                ("preemption", 0.4),
                ("ports", 0.15),
                ("resources", 0.3),
                ("nominated", 0.2),
                ("taints", 0.3),
                ("images", 0.2),
                ("resize", 0.15),
                ("features", 0.1),
                ("defaults", 0.3),
                ("nodes", 0.3),
                ("mistakes", 0.1),
            )
        }
        self.roomy = random.random() < (0.3 if self.dwells["preemption"] else 0.6)
        self.claims: list[Object] = []
        self.volumes: list[Object] = []
        self.owners: list[Object] = []

    # -- dice ----------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def often(self, subject: str, dwelling: float, otherwise: float) -> bool:
        return self.chance(dwelling if self.dwells[subject] else otherwise)

    def pick(self, pool: Iterable[Any]) -> Any:
        return self.random.choice(list(pool))

    def some(self, pool: Iterable[Any], least: int, most: int) -> list[Any]:
        options = list(pool)
        return self.random.sample(options, min(len(options), self.random.randint(least, most)))

    def several(self, make: Callable[[], Any], least: int, most: int) -> list[Any]:
        return [make() for _ in range(self.random.randint(least, most))]

    # -- the cluster ---------------------------------------------------------------------------

    def cluster(self, name: str) -> Object:
        random = self.random
        nodes = [self.node(node) for node in self.node_names]
        case: Object = {"id": name, "nodes": nodes, "namespaces": self.namespaces()}
        if self.often("defaults", 0.9, 0.2):
            case |= self.workloads()
        if self.dwells["volumes"]:
            case |= self.storage()
        running = [self.pod(number, self.pick(self.node_names)) for number in range(random.randint(3, 14))]
        waiting = [self.pod(100 + number) for number in range(random.randint(2, 6))]
        pods = running + waiting
        random.shuffle(pods)
        case["pods"] = pods
        if self.often("preemption", 0.6, 0.1):
            case["podDisruptionBudgets"] = [self.budget(number) for number in range(random.randint(1, 3))]
        return case

    def namespaces(self) -> list[Object]:
        # `green` may be missing: pods can be judged before their namespace is heard of.
        return [
            {"metadata": {"name": name, "labels": {"team": self.pick(("a", "b")), "kubernetes.io/metadata.name": name}}}
            for name in _NAMESPACES
            if name != "green" or self.chance(0.7)
        ]

    # -- nodes ---------------------------------------------------------------------------------

    def node(self, name: str) -> Object:
        labels = {HOSTNAME: name}
        if self.chance(0.9):
            labels[ZONE] = self.pick(("z1", "z2", "z3"))
        if self.chance(0.8):
            labels[REGION] = self.pick(("r1", "r2"))
        if self.chance(0.5):
            labels["rack"] = self.pick(("1", "2", "30", "four"))
        if self.chance(0.5):
            labels["disk"] = self.pick(("ssd", "hdd", ""))
        if self.often("nodes", 0.1, 0.02):
            labels.pop(HOSTNAME)
        allocatable = {
            "cpu": self.pick(("4", "8", "16", "3500m") if self.roomy else ("1", "2", "4", "3500m")),
            "memory": self.pick(("16Gi", "32Gi", "7900Mi") if self.roomy else ("1G", "4Gi", "8Gi", "7900Mi")),
            "pods": self.pick(("110", "110", "110", "4", "6")),
        }
        if self.often("resources", 0.7, 0.3):
            allocatable["ephemeral-storage"] = self.pick(("10Gi", "100Gi"))
        if self.often("resources", 0.5, 0.2):
            allocatable["nvidia.com/gpu"] = self.pick(("1", "4", "8"))
        if self.often("resources", 0.3, 0.05):
            allocatable["hugepages-2Mi"] = self.pick(("64Mi", "0", "1Gi"))
        if self.often("nodes", 0.1, 0.02):
            allocatable.pop(self.pick(("cpu", "memory", "pods")))
        spec: Object = {}
        if self.often("nodes", 0.15, 0.05):
            spec["unschedulable"] = True
        taints = self.several(self.taint, 0, 2) if self.often("taints", 0.6, 0.1) else []
        if taints:
            spec["taints"] = taints
        status: Object = {"allocatable": allocatable, "capacity": allocatable}
        if self.often("images", 0.9, 0.1):
            status["images"] = self.several(self.image, 1, 3)
        if self.often("features", 0.7, 0.0):
            status["declaredFeatures"] = sorted(self.some(_FEATURES, 1, 2))
        return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec, "status": status}

    def taint(self) -> Object:
        return {
            "key": self.pick(("dedicated", "gpu", "node.kubernetes.io/unschedulable")),
            "value": self.pick(("", "x", "y")),
            "effect": self.pick(("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")),
        }

    def image(self) -> Object:
        name = self.pick(_IMAGES)
        names = [name if ":" in name else f"{name}:latest"]
        if self.chance(0.3):
            names.append(f"{self.pick(_IMAGES)}@sha256:abc")
        return {"names": names, "sizeBytes": self.pick((10, 60, 300, 900, 2500)) * _MI}

    # -- pods ----------------------------------------------------------------------------------

    def pod(self, number: int, node: str = "") -> Object:
        running = bool(node)
        name = f"pod-{number}"
        labels = self.labels()
        metadata: Object = {
            "name": name,
            "namespace": self.pick(("default", "default", "red", "blue", "green")),
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:00:{number % 60:02d}Z",
        }
        if labels:
            metadata["labels"] = labels
        spec: Object = {"containers": self.several(self.container, 1, 3), "schedulerName": "default-scheduler"}
        status: Object = {"phase": "Running" if running else "Pending"}
        self.give_resources(spec, status, running=running)
        if self.often("preemption", 0.9, 0.5):
            spec["priority"] = self.pick((0, 0, 10, 10, 100, -5, 1000) if running else (0, 10, 100, 1000, 1000))
        self.give_node_choice(spec)
        if self.often("affinity", 0.6, 0.12):
            self.give_pod_affinity(spec)
        if self.often("spread", 0.7, 0.1):
            spec["topologySpreadConstraints"] = self.several(lambda: self.constraint(labels), 1, 2)
        if self.dwells["volumes"] and self.chance(0.7):
            self.give_volumes(metadata, spec, running=running)
        if self.often("features", 0.5, 0.02):
            self.give_features(spec)
        if self.owners and self.chance(0.5):
            self.give_owner(metadata)
        if running:
            self.give_life(metadata, spec, status, node)
        else:
            self.give_wait(spec, status)
        return {"metadata": metadata, "spec": spec, "status": status}

    def labels(self) -> Object:
        labels = {}
        if self.chance(0.85):
            labels["app"] = self.pick(_APPS)
        if self.chance(0.4):
            labels["tier"] = self.pick(_TIERS)
        if self.chance(0.3):
            labels["version"] = self.pick(("1", "2"))
        return labels

    def container(self) -> Object:
        container: Object = {"name": f"c{self.random.randrange(1 << 30)}", "image": self.pick(_IMAGES)}
        resources: Object = {}
        if self.chance(0.75):
            resources["requests"] = self.requests()
        if self.chance(0.2):
            resources["limits"] = self.requests()
        if resources:
            container["resources"] = resources
        if self.often("ports", 0.6, 0.03):
            container["ports"] = self.several(self.port, 1, 2)
        return container

    def requests(self) -> Object:
        requests = {}
        if self.chance(0.85):
            requests["cpu"] = self.pick(("100m", "250m", "500m", "1", "1500m", "2", "0.3", "0", "1m", "100u"))
        if self.chance(0.8):
            requests["memory"] = self.pick(("128Mi", "256Mi", "1Gi", "2Gi", "500M", "0", "100m", "1.5Gi", "3e8"))
        if self.often("resources", 0.3, 0.05):
            requests["nvidia.com/gpu"] = self.pick(("1", "1", "2", "0"))
        if self.often("resources", 0.2, 0.03):
            requests["ephemeral-storage"] = self.pick(("1Gi", "9Gi", "50Gi"))
        if self.often("resources", 0.1, 0.01):
            requests["hugepages-2Mi"] = self.pick(("2Mi", "64Mi"))
        if self.often("mistakes", 0.1, 0.0):
            requests[self.pick(("example.com/none", "storage", "kubernetes.io/odd", "nobody"))] = "1"
        return requests

    def whole_requests(self) -> Object:
        """Without fractions: upstream adds a pod's overhead to those anew each time it looks at them."""
        return {name: self.pick(("1", "2")) if name == "cpu" else "1Gi" for name in self.requests() if name != "nobody"}

    def port(self) -> Object:
        port: Object = {"containerPort": 80, "hostPort": self.pick((80, 80, 443, 8080, 0))}
        if self.chance(0.8):
            port["protocol"] = self.pick(_PROTOCOLS)
        if self.chance(0.5):
            port["hostIP"] = self.pick(("", "0.0.0.0", "127.0.0.1", "10.0.0.1"))  # noqa: S104 - data, nothing binds
        return port

    def give_resources(self, spec: Object, status: Object, *, running: bool) -> None:
        if self.often("resources", 0.4, 0.1):
            spec["initContainers"] = self.several(self.container, 1, 3)
            for container in spec["initContainers"]:
                if self.chance(0.5):
                    container["restartPolicy"] = "Always"
        if self.often("resources", 0.2, 0.03):
            spec["overhead"] = {"cpu": self.pick(("100m", "250m")), "memory": "64Mi"}
        if self.often("resources", 0.2, 0.03):
            spec["resources"] = {"requests": self.whole_requests()}
        if running and self.often("resize", 0.7, 0.05):
            containers = [*spec["containers"], *(each for each in spec.get("initContainers", ()) if each.get("restartPolicy"))]
            status["containerStatuses"] = [self.container_status(each) for each in containers if self.chance(0.8)]
            if self.chance(0.3):
                reason = self.pick(("Infeasible", "Deferred"))
                status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
            if spec.get("resources") and self.chance(0.5):
                status["resources"] = {"requests": self.requests()}
                status["allocatedResources"] = self.requests()

    def container_status(self, container: Object) -> Object:
        status: Object = {"name": container["name"]}
        if self.chance(0.8):
            status["resources"] = {"requests": self.requests()}
        if self.chance(0.8):
            status["allocatedResources"] = self.requests()
        return status

    def give_node_choice(self, spec: Object) -> None:
        if self.often("nodes", 0.2, 0.04):
            spec["nodeSelector"] = {self.pick(("disk", ZONE)): self.pick(("ssd", "z1", "z2", ""))}
        affinity: Object = {}
        if self.often("nodes", 0.35, 0.06):
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": self.several(self.node_term, 0, 3)}
        if self.often("nodes", 0.5, 0.1):
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": self.pick((1, 5, 50, 100)), "preference": self.node_term()} for _ in range(self.random.randint(1, 3))
            ]
        if affinity:
            spec["affinity"] = {"nodeAffinity": affinity}
        if self.often("taints", 0.6, 0.15):
            spec["tolerations"] = self.several(self.toleration, 1, 3)

    def node_term(self) -> Object:
        term: Object = {}
        if self.chance(0.8):
            term["matchExpressions"] = self.several(self.node_requirement, 1, 2)
        if self.chance(0.2):
            operator = self.pick(("In", "In", "NotIn"))
            term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [self.pick(self.node_names)]}]
            if self.chance(0.2):
                term["matchFields"].append({"key": "metadata.name", "operator": "In", "values": [self.pick(self.node_names)]})
        return term

    def node_requirement(self) -> Object:
        key = self.pick((ZONE, REGION, "rack", "disk", "missing", HOSTNAME))
        operator = self.pick(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        made: Object = {"key": key, "operator": operator}
        if operator in ("In", "NotIn"):
            made["values"] = self.some(("z1", "z2", "r1", "1", "2", "ssd", "", *self.node_names[:2]), 1, 3)
        elif operator in ("Gt", "Lt"):
            made["values"] = [self.pick(("1", "10", "-3", "2"))]
        if self.often("mistakes", 0.3, 0.0):
            made |= self.pick(
                (
                    {"operator": "Near"},
                    {"values": ["not a value!"]},
                    {"key": "not a key!"},
                    {"operator": "In", "values": []},
                    {"operator": "Gt", "values": ["many"]},
                    {"operator": "Exists", "values": ["x"]},
                )
            )
        return made

    def toleration(self) -> Object:
        made: Object = {}
        if self.chance(0.85):
            made["key"] = self.pick(("dedicated", "gpu", "node.kubernetes.io/unschedulable"))
        if self.chance(0.7):
            made["operator"] = self.pick(("Exists", "Equal", "Equal", "Lt") if self.dwells["mistakes"] else ("Exists", "Equal"))
        if self.chance(0.5):
            made["value"] = self.pick(("", "x", "y"))
        if self.chance(0.5):
            made["effect"] = self.pick(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        return made

    # -- affinity and spread -------------------------------------------------------------------

    def selector(self) -> Object | None:
        if self.chance(0.05):
            return None
        if self.chance(0.05):
            return {}
        made: Object = {}
        if self.chance(0.7):
            made["matchLabels"] = {"app": self.pick(_APPS)}
        if self.chance(0.4) or not made:
            made["matchExpressions"] = self.several(self.label_requirement, 1, 2)
        return made

    def label_requirement(self) -> Object:
        operator = self.pick(("In", "In", "NotIn", "Exists", "DoesNotExist"))
        made: Object = {"key": self.pick(("app", "tier", "version", "missing")), "operator": operator}
        if operator in ("In", "NotIn"):
            made["values"] = self.some((*_APPS, *_TIERS, "1", "2"), 1, 3)
        if self.often("mistakes", 0.15, 0.0):
            made |= self.pick(
                ({"operator": "Gt", "values": ["1"]}, {"values": []}, {"values": ["no value!"]}, {"key": "no key!"})
            )
        return made

    def term(self) -> Object:
        made: Object = {"topologyKey": self.pick(_KEYS)}
        selector = self.selector()
        if selector is not None:
            made["labelSelector"] = selector
        if self.chance(0.25):
            made["namespaces"] = self.some(_NAMESPACES, 1, 2)
        if self.chance(0.25):
            made["namespaceSelector"] = self.pick(
                (
                    {},
                    {"matchLabels": {"team": "a"}},
                    {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
                    {"matchExpressions": [{"key": "missing", "operator": "DoesNotExist"}]},
                )
            )
        return made

    def weighted(self) -> Object:
        return {"weight": self.pick((1, 10, 50, 100)), "podAffinityTerm": self.term()}

    def give_pod_affinity(self, spec: Object) -> None:
        affinity = spec.setdefault("affinity", {})
        for kind in ("podAffinity", "podAntiAffinity"):
            made: Object = {}
            if self.chance(0.3 if kind == "podAffinity" else 0.4):
                made["requiredDuringSchedulingIgnoredDuringExecution"] = self.several(self.term, 1, 2)
            if self.chance(0.5):
                made["preferredDuringSchedulingIgnoredDuringExecution"] = self.several(self.weighted, 1, 2)
            if made:
                affinity[kind] = made

    def constraint(self, labels: Object) -> Object:
        made: Object = {
            "topologyKey": self.pick(_KEYS),
            "maxSkew": self.pick((1, 1, 2, 3)),
            "whenUnsatisfiable": self.pick(("DoNotSchedule", "ScheduleAnyway")),
        }
        selector = {"matchLabels": {"app": labels["app"]}} if labels.get("app") and self.chance(0.6) else self.selector()
        if selector is not None:
            made["labelSelector"] = selector
        if self.chance(0.2) and made["whenUnsatisfiable"] == "DoNotSchedule":
            made["minDomains"] = self.pick((1, 2, 3, 5))
        if self.chance(0.3):
            made["nodeAffinityPolicy"] = self.pick(("Honor", "Ignore"))
        if self.chance(0.3):
            made["nodeTaintsPolicy"] = self.pick(("Honor", "Ignore"))
        if self.chance(0.2):
            made["matchLabelKeys"] = self.some(("version", "tier", "missing"), 1, 2)
        return made

    # -- what pods belong to -------------------------------------------------------------------

    def workloads(self) -> Object:
        def made(kind: str, number: int, spec: Object) -> Object:
            namespace = self.pick(("default", "red"))
            metadata = {"name": f"{kind.lower()}-{number}", "namespace": namespace, "uid": f"uid-{kind}-{number}"}
            if kind != "Service":
                api = "v1" if kind == "ReplicationController" else "apps/v1"
                self.owners.append({"apiVersion": api, "kind": kind, "namespace": namespace, **metadata})
            return {"metadata": metadata, "spec": spec}

        return {
            "services": [
                made("Service", number, {"selector": self.pick(({"app": self.pick(_APPS)}, {"app": "web", "tier": "front"}, {}))})
                for number in range(self.random.randint(1, 3))
            ],
            "replicationControllers": [
                made("ReplicationController", number, {"selector": {"app": self.pick(_APPS)}})
                for number in range(self.random.randint(0, 1))
            ],
            "replicaSets": [
                made("ReplicaSet", number, {"selector": self.selector() or {}}) for number in range(self.random.randint(0, 2))
            ],
            "statefulSets": [
                made("StatefulSet", number, {"selector": self.selector() or {}}) for number in range(self.random.randint(0, 2))
            ],
        }

    def give_owner(self, metadata: Object) -> None:
        owner = self.pick(self.owners)
        if self.chance(0.8):
            metadata["namespace"] = owner["namespace"]
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["name"],
                "uid": owner["uid"],
                "controller": True,
            }
        ]

    def give_features(self, spec: Object) -> None:
        if self.chance(0.5):
            container = spec["containers"][0]
            container["restartPolicyRules"] = [{"action": self.pick(("Restart", "RestartAllContainers"))}]
        else:
            spec["hostNetwork"] = self.chance(0.7)
            spec["hostUsers"] = self.chance(0.3)

    def give_life(self, metadata: Object, spec: Object, status: Object, node: str) -> None:
        spec["nodeName"] = node
        if self.chance(0.95):
            status["startTime"] = f"2026-01-01T00:{self.random.randrange(60):02d}:{self.random.randrange(60):02d}Z"
        if self.chance(0.08):
            metadata["deletionTimestamp"] = "2026-01-01T02:00:00Z"
            if self.chance(0.5):
                status["conditions"] = [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": self.pick(("PreemptionByScheduler", "EvictionByEvictionAPI")),
                    }
                ]
        if self.chance(0.05):
            status["phase"] = self.pick(("Succeeded", "Failed"))

    def give_wait(self, spec: Object, status: Object) -> None:
        if self.chance(0.05):
            spec["schedulingGates"] = [{"name": "example.com/wait"}]
        if self.often("preemption", 0.15, 0.05):
            spec["preemptionPolicy"] = self.pick(("Never", "PreemptLowerPriority"))
        if self.often("nominated", 0.6, 0.05):
            status["nominatedNodeName"] = (
                self.pick((*self.node_names, "unknown")) if self.chance(0.2) else self.pick(self.node_names)
            )

    def budget(self, number: int) -> Object:
        made: Object = {
            "metadata": {"name": f"budget-{number}", "namespace": self.pick(("default", "red"))},
            "spec": {"selector": self.selector()},
            "status": {"disruptionsAllowed": self.pick((0, 0, 1, 2))},
        }
        if self.chance(0.2):
            made["status"]["disruptedPods"] = {f"pod-{self.random.randrange(14)}": "2026-01-01T00:00:00Z"}
        return made

    # -- storage -------------------------------------------------------------------------------

    def storage(self) -> Object:
        self.volumes = [self.volume(number) for number in range(self.random.randint(2, 8))]
        self.claims = [self.claim(number) for number in range(self.random.randint(3, 9))]
        return {
            "storageClasses": [
                {"metadata": {"name": "wait"}, "provisioner": _DRIVERS[0], "volumeBindingMode": "WaitForFirstConsumer"},
                {
                    "metadata": {"name": "wait-zoned"},
                    "provisioner": _DRIVERS[1],
                    "volumeBindingMode": "WaitForFirstConsumer",
                    "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": self.some(("z1", "z2"), 1, 2)}]}],
                },
                {
                    "metadata": {"name": "wait-capacity"},
                    "provisioner": "room.csi.example",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                {
                    "metadata": {"name": "manual"},
                    "provisioner": "kubernetes.io/no-provisioner",
                    "volumeBindingMode": "WaitForFirstConsumer",
                },
                {"metadata": {"name": "now"}, "provisioner": _DRIVERS[0], "volumeBindingMode": "Immediate"},
                *([{"metadata": {"name": "modeless"}, "provisioner": _DRIVERS[0]}] if self.dwells["mistakes"] else []),
            ],
            "csiDrivers": [
                {"metadata": {"name": "room.csi.example"}, "spec": {"storageCapacity": self.chance(0.8)}},
                {"metadata": {"name": _DRIVERS[0]}, "spec": {}},
            ],
            "csiNodes": [self.csi_node(node) for node in self.node_names if self.chance(0.7)],
            "csiStorageCapacities": self.several(self.capacity, 0, 4),
            "persistentVolumes": self.volumes,
            "persistentVolumeClaims": self.claims,
            "volumeAttachments": [
                {
                    "metadata": {"name": f"attachment-{number}"},
                    "spec": {
                        "attacher": self.pick(_DRIVERS),
                        "nodeName": self.pick(self.node_names),
                        "source": {"persistentVolumeName": volume["metadata"]["name"]},
                    },
                }
                for number, volume in enumerate(self.volumes)
                if self.chance(0.3)
            ],
        }

    def csi_node(self, node: str) -> Object:
        drivers: list[Object] = []
        for driver in _DRIVERS:
            if self.chance(0.8):
                made: Object = {"name": driver, "nodeID": node}
                if self.chance(0.8):
                    made["allocatable"] = {"count": self.pick((0, 1, 1, 2))}
                drivers.append(made)
        return {"metadata": {"name": node}, "spec": {"drivers": drivers}}

    def capacity(self) -> Object:
        made: Object = {
            "metadata": {"name": f"capacity-{self.random.randrange(1 << 30)}", "namespace": "default"},
            "storageClassName": self.pick(("wait-capacity", "wait-capacity", "wait")),
            "nodeTopology": {"matchLabels": {ZONE: self.pick(("z1", "z2", "z3"))}},
        }
        if self.chance(0.8):
            made["capacity"] = self.pick(("1Gi", "10Gi", "100Gi"))
        if self.chance(0.3):
            made["maximumVolumeSize"] = self.pick(("2Gi", "20Gi"))
        if self.chance(0.1):
            made.pop("nodeTopology")
        return made

    def volume(self, number: int) -> Object:
        spec: Object = {
            "capacity": {"storage": self.pick(("1Gi", "5Gi", "10Gi", "50Gi"))},
            "accessModes": self.some(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"), 1, 3),
            "storageClassName": self.pick(("wait", "wait-zoned", "manual", "manual", "now")),
        }
        if self.chance(0.7):
            spec["csi"] = {"driver": self.pick(_DRIVERS), "volumeHandle": f"handle-{number}"}
        else:
            spec["hostPath"] = {"path": "/data"}
        if self.chance(0.4):
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": self.some(("z1", "z2", "z3"), 1, 2)}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        elif self.chance(0.2):
            term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [self.pick(self.node_names)]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if self.chance(0.1):
            spec["volumeMode"] = "Block"
        metadata: Object = {"name": f"volume-{number}", "uid": f"uid-volume-{number}"}
        if self.chance(0.4):
            metadata["labels"] = {ZONE: self.pick(("z1", "z2", "z1__z2")), "kind": self.pick(("a", "b"))}
            if self.chance(0.3):
                metadata["labels"]["failure-domain.beta.kubernetes.io/region"] = self.pick(("r1", "r2"))
        return {
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": self.pick(("Available", "Available", "Available", "Released"))},
        }

    def claim(self, number: int) -> Object:
        name, namespace = f"claim-{number}", self.pick(("default", "default", "red"))
        spec: Object = {
            "accessModes": [self.pick(("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"))],
            "resources": {"requests": {"storage": self.pick(("1Gi", "4Gi", "10Gi", "60Gi"))}},
            "storageClassName": self.pick(_CLASSES),
        }
        metadata: Object = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        status: Object = {"phase": "Pending"}
        if self.volumes and self.chance(0.45):
            self.bind_claim(metadata, spec, status)
        elif self.chance(0.1):
            metadata["annotations"] = {"volume.kubernetes.io/selected-node": self.pick(self.node_names)}
        if self.chance(0.05):
            metadata.setdefault("annotations", {})["volume.beta.kubernetes.io/storage-class"] = self.pick(_CLASSES)
        if self.chance(0.1):
            spec["selector"] = {"matchLabels": {"kind": self.pick(("a", "b"))}}
        if self.often("mistakes", 0.3, 0.02):
            self.spoil_claim(metadata, spec, status)
        return {"metadata": metadata, "spec": spec, "status": status}

    def bind_claim(self, metadata: Object, spec: Object, status: Object) -> None:
        volume = self.pick(self.volumes)
        reference = {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
        if "claimRef" in volume["spec"]:
            return
        volume["spec"]["claimRef"] = reference
        if self.chance(0.15):
            reference.pop("uid")  # a volume kept for this claim, not bound yet
            return
        volume["status"]["phase"] = "Bound"
        spec["volumeName"] = volume["metadata"]["name"]
        if self.chance(0.95):
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
            status["phase"] = "Bound"

    def spoil_claim(self, metadata: Object, spec: Object, status: Object) -> None:
        spoil = self.random.randrange(5)
        if spoil == 0:
            status["phase"] = "Lost"
        elif spoil == 1:
            metadata["deletionTimestamp"] = "2026-01-01T02:00:00Z"
        elif spoil == 2:
            spec["storageClassName"] = self.pick(("modeless", "unknown", ""))
        elif spoil == 3:
            spec["volumeName"] = "unknown"
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        else:
            spec.pop("storageClassName")

    def give_volumes(self, metadata: Object, spec: Object, *, running: bool) -> None:
        volumes: list[Object] = []
        for number in range(self.random.randint(1, 2)):
            volume: Object = {"name": f"v{number}"}
            kind = self.random.random()
            if kind < 0.75:
                claim = self.pick(self.claims)
                metadata["namespace"] = claim["metadata"]["namespace"]
                volume["persistentVolumeClaim"] = {"claimName": claim["metadata"]["name"]}
            elif kind < 0.8:
                volume["ephemeral"] = {"volumeClaimTemplate": {"spec": {}}}
                if self.chance(0.7):
                    self.claims.append(self.ephemeral_claim(metadata, volume["name"]))
            elif kind < 0.88:
                volume |= self.disk()
            elif kind < 0.92:
                volume["image"] = {"reference": self.pick(_IMAGES)}
            else:
                volume["emptyDir"] = {}
            if self.often("mistakes", 0.1, 0.0) and not running:
                volume = {"name": volume["name"], "persistentVolumeClaim": {"claimName": "unknown"}}
            volumes.append(volume)
        spec["volumes"] = volumes

    def ephemeral_claim(self, metadata: Object, volume: str) -> Object:
        owner = metadata["uid"] if self.chance(0.8) else "uid-another"
        return {
            "metadata": {
                "name": f"{metadata['name']}-{volume}",
                "namespace": metadata["namespace"],
                "uid": f"uid-{metadata['name']}-{volume}",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": owner, "controller": True}
                ],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": self.pick(("wait", "now")),
            },
            "status": {"phase": "Pending"},
        }

    def disk(self) -> Object:
        read_only = self.chance(0.5)
        made: Object = self.pick(
            (
                {"gcePersistentDisk": {"pdName": self.pick(("d1", "d2")), "readOnly": read_only}},
                {"awsElasticBlockStore": {"volumeID": self.pick(("d1", "d2")), "readOnly": read_only}},
                {"iscsi": {"targetPortal": "p", "iqn": self.pick(("iqn-1", "iqn-2")), "lun": 0, "readOnly": read_only}},
                {
                    "rbd": {
                        "monitors": self.some(("m1", "m2", "m3"), 1, 2),
                        "image": self.pick(("i1", "i2")),
                        "pool": "rbd",
                        "readOnly": read_only,
                    }
                },
            )
        )
        return made

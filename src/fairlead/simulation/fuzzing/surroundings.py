"""What pods run on, wait in and refer to: random nodes, queues, classes, groups, budgets, volumes and their like."""

from __future__ import annotations

from random import Random
from typing import Any

from fairlead.api import names
from fairlead.cluster.times import timestamp
from fairlead.simulation.fuzzing.pods import (
    CLAIMS,
    CLASSES,
    GPU,
    GROUPS,
    NAMESPACES,
    NODES,
    ODD_AMOUNTS,
    ODD_INTEGERS,
    ODD_SPANS,
    ODD_TEXTS,
    Object,
    PodWriter,
)

_QUEUES = ("q", "q.a", "q.b", "r", "users", "narrow", "default")


class Surroundings:
    """Writes everything but pods. Each method makes one object of its kind, to be created or to replace what was there."""

    def __init__(self, random: Random, writer: PodWriter) -> None:
        self.random = random
        self.writer = writer

    def node(self, name: str) -> Object:
        """A node; now and then one that cannot be read, is tainted, drained or of another size."""
        random = self.random
        gpus = random.choice((0, 2, 4, 4, 8))
        amounts: Object = {"cpu": random.choice(("4", "16", "64")), "memory": "256Gi", "pods": random.choice(("110", "110", "5"))}
        if gpus:
            amounts[random.choice((GPU, GPU, GPU, "amd.com/gpu"))] = str(gpus)
        if random.random() < 0.2:
            amounts |= {"ephemeral-storage": "100Gi", "example.com/widget": "3", "hugepages-2Mi": "1Gi"}
        if random.random() < 0.02:
            amounts[random.choice(tuple(amounts))] = random.choice(ODD_AMOUNTS)
        labels = {"kubernetes.io/hostname": name, "zone": random.choice(("z1", "z2")), "rack": random.choice(("r1", "r2", "r3"))}
        if random.random() < 0.3:
            labels[names.GPU_SHARING_LABEL] = names.OWN_AGENT
        if random.random() < 0.2:
            labels[random.choice(("app", "a", "fairlead.dev/pool"))] = random.choice(("a", "1", "x"))
        spec: Object = {"unschedulable": random.random() < 0.05}
        if random.random() < 0.15:
            effect = random.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
            spec["taints"] = [{"key": random.choice(("app", "zone", "a")), "value": "a", "effect": effect}]
        status: Object = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        if random.random() < 0.2:
            status["images"] = [{"names": ["busybox:latest", "nginx:1"], "sizeBytes": random.choice((0, 10**6, 10**9))}]
        return self._named(name, {"spec": spec, "status": status}, labels=labels)

    def queue(self, name: str) -> Object:
        """A queue of the small tree q over q.a and q.b, with r, users and narrow beside."""
        random = self.random
        spec: Object = {"priority": random.choice((0, 0, 0, 5))}
        if "." in name:
            spec["parent"] = name.partition(".")[0]
        amounts: Object = {"name": GPU}
        for field, pool in (("quota", (0, 2, 8, "25%")), ("limit", (4, 16, "50%")), ("weight", (1, 3, "40%"))):
            if random.random() < 0.5:
                amounts[field] = random.choice(pool)
        spec["resources"] = [amounts]
        if random.random() < 0.3:
            spec["resources"].append({"name": "cpu", "quota": random.choice(("4", "8")), "limit": "32"})
        if random.random() < 0.1:
            spec["resources"].append({"name": GPU, "pool": "sharing", "quota": 2, "limit": 4})
        if name == "users":
            spec["users"] = ["ann", "bob"]
            spec["userFairness"] = random.choice(("Order", "Reclaim"))
            spec["perUser"] = {"running": random.choice((1, 3)), "submitted": random.choice((2, 9)), "resources": {GPU: 4}}
        if name == "narrow":
            spec["namespaceSelector"] = {"matchLabels": {"team": "a"}}
            spec["serviceClasses"] = ["never", "suspend"]
            spec["jobs"] = {"running": 3}
        if random.random() < 0.04:
            spec[random.choice(("parent", "namespaceSelector", "priority"))] = random.choice(
                ("q.a", "", ODD_TEXTS[4], {"matchExpressions": [{"key": "", "operator": "Odd"}]}, 2**40)
            )
        made = {"spec": spec}
        if random.random() < 0.1:
            usage = {"deviceSeconds": random.choice((0, 1e5, -1.0, 1e300)), "at": timestamp(1.8e9), "users": {"ann": 5.0}}
            times = [{"user": "ann", "serviceClass": "", "devices": 1.0, "seconds": [60, 60, 7200]}]
            made["status"] = {"usage": usage, "runTimes": times}
        return self._named(name, made)

    def service_class(self, name: str) -> Object:
        """A class of service, by its name of one kind or another."""
        random = self.random
        spec: Object = {"preemption": {"mode": {"never": "Never", "suspend": "Suspend"}.get(name, "Requeue")}}
        spec["preemption"]["scope"] = random.choice(("Queue", "Queue", "Parent", "Cluster"))
        if random.random() < 0.3:
            spec["preemption"]["minRuntime"] = random.choice(("10s", "10m"))
            spec["checkpointInterval"] = "5m"
        if random.random() < 0.3:
            spec["priorityClassName"] = random.choice(("low", "high", "missing"))
        if name == "slices":
            spec["timeSlicing"] = {"levels": [600.0, 7200.0], "express": random.choice((0, 1)), "maxLoss": "30s"}
        if name == "urgent":
            spec["maxWait"] = "2m"
        if name == "limited":
            spec["timeLimit"] = {"default": "10m", "max": "1h"}
        if random.random() < 0.04:
            spec[random.choice(("maxWait", "checkpointInterval"))] = random.choice(ODD_SPANS)
        return self._named(name, {"spec": spec})

    def group(self, namespace: str, name: str) -> Object:
        """A PodGroup."""
        random = self.random
        spec: Object = {"minMember": random.choice((1, 2, 2, 2, 3, 3, 4, 50))}
        if random.random() < 0.6:
            spec["queue"] = random.choice(("q", "q.a", "q.b", "r", "r", "users", "nowhere"))
        if random.random() < 0.3:
            spec["serviceClass"] = random.choice(CLASSES)
        if random.random() < 0.2:
            spec["timeLimit"] = random.choice(("5m", "1h", *ODD_SPANS[:3]))
        if random.random() < 0.03:
            spec["minMember"] = random.choice(ODD_INTEGERS)
        made: Object = {"spec": spec}
        if random.random() < 0.04:
            pod = {"uid": "u", "namespace": namespace, "name": "m", "spec": {}}
            members = [
                {"count": random.choice((1, 2, 0, -5)), "pod": random.choice(("{}", "banana", str(pod).replace("'", '"')))}
            ]
            target = {"state": random.choice(("Suspended", "Running", "Odd")), "epoch": random.choice((0, 3, -1, 2**62))}
            made["status"] = {
                "target": {**target, "members": members, "firstCreated": random.choice(("", "9999-12-31T23:59:59Z"))}
            }
        return self._named(name, made, namespace=namespace)

    def budget(self, namespace: str, name: str) -> Object:
        """A PodDisruptionBudget with its status."""
        random = self.random
        selector = random.choice(
            ({}, {"matchLabels": {"app": "a"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]})
        )
        status = {"disruptionsAllowed": random.choice((0, 0, 1, 5, -1))}
        return self._named(name, {"spec": {"selector": selector}, "status": status}, namespace=namespace)

    def namespace(self, name: str) -> Object:
        """A namespace and its labels."""
        labels = {"kubernetes.io/metadata.name": name}
        if self.random.random() < 0.4:
            labels["team"] = self.random.choice(("a", "b"))
        if self.random.random() < 0.2:
            labels[names.DEFAULT_QUEUE_LABEL] = self.random.choice(("q", "r", "nowhere"))
        return self._named(name, {}, labels=labels)

    def priority_class(self, name: str) -> Object:
        """A PriorityClass."""
        return self._named(name, {"value": self.random.choice((-10, 50, 5000)), "preemptionPolicy": "PreemptLowerPriority"})

    def pool(self, name: str) -> Object:
        """A NodePool: of the nodes that share GPUs, or of a zone."""
        selector = {names.GPU_SHARING_LABEL: names.OWN_AGENT} if name == "sharing" else {"zone": self.random.choice(("z1", "z2"))}
        return self._named(name, {"spec": {"nodeSelector": {"matchLabels": selector}}})

    def reservation(self, name: str, now: float) -> Object:
        """A Reservation on the nodes of one zone."""
        start = now + self.random.choice((-60.0, 30.0, 600.0))
        spec: Object = {
            "purpose": self.random.choice(("Maintenance", "Capacity")),
            "start": timestamp(start),
            "end": timestamp(start + self.random.choice((30.0, 900.0))),
            "nodeSelector": {"matchLabels": {"zone": "z2"}},
        }
        if self.random.random() < 0.4:
            spec |= {"queue": self.random.choice(("q", "r")), "resources": {GPU: 2}}
        return self._named(name, {"spec": spec})

    def claim(self, namespace: str, name: str) -> Object:
        """A volume claim: bound, waiting for its first consumer, or odd."""
        random = self.random
        spec: Object = {"accessModes": [random.choice(("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"))]}
        spec["resources"] = {
            "requests": {"storage": random.choice(("1Gi", "10Gi", "banana", "1e1000") if random.random() < 0.1 else ("1Gi",))}
        }
        if random.random() < 0.9:
            spec["storageClassName"] = random.choice(("later", "later", "static", "now", "missing"))
        metadata: Object = {}
        if random.random() < 0.3:
            spec["volumeName"] = f"volume-{random.randrange(4)}"
            metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        made = self._named(
            name, {"spec": spec, "status": {"phase": random.choice(("Bound", "Pending", "Lost"))}}, namespace=namespace
        )
        made["metadata"] |= metadata
        return made

    def volume(self, name: str) -> Object:
        """A volume."""
        random = self.random
        spec: Object = {
            "capacity": {"storage": random.choice(("5Gi", "100Gi"))},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": random.choice(("static", "later")),
        }
        if random.random() < 0.5:
            terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [random.choice(("z1", "z2", "z9"))]}]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": random.choice((terms, terms, []))}}
        if random.random() < 0.3:
            spec["claimRef"] = {"namespace": "ns", "name": random.choice(CLAIMS), "uid": ""}
        if random.random() < 0.4:
            spec["csi"] = {"driver": "d.example", "volumeHandle": f"h-{random.randrange(3)}"}
        return self._named(name, {"spec": spec, "status": {"phase": random.choice(("Available", "Available", "Bound"))}})

    def storage_class(self, name: str) -> Object:
        """A storage class."""
        mode = "WaitForFirstConsumer" if name in ("later", "static") else "Immediate"
        provisioner = "kubernetes.io/no-provisioner" if name == "static" else "d.example"
        made: Object = {"provisioner": provisioner, "volumeBindingMode": mode}
        if self.random.random() < 0.3:
            made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": ["z1"]}]}]
        return self._named(name, made)

    def csi_node(self, name: str) -> Object:
        """How many volumes of a driver a node takes."""
        limit = {"count": self.random.choice((0, 1, 8, -1))}
        return self._named(name, {"spec": {"drivers": [{"name": "d.example", "allocatable": limit}]}})

    def service(self, namespace: str, name: str) -> Object:
        """A Service that selects pods."""
        return self._named(name, {"spec": {"selector": {"app": self.random.choice(("a", "web"))}}}, namespace=namespace)

    def everything(self, now: float) -> list[tuple[str, Object]]:
        """A first set of objects of all kinds but pods, each with its kind."""
        random = self.random
        made: list[tuple[str, Object]] = [("namespace", self.namespace(name)) for name in sorted(set(NAMESPACES))]
        made += [("priority", self.priority_class(name)) for name in ("low", "high")]
        made += [("class", self.service_class(name)) for name in CLASSES if name != "unknown" and random.random() < 0.7]
        if random.random() < 0.85:
            made += [("queue", self.queue(name)) for name in _QUEUES if random.random() < 0.9]
        made += [("pool", self.pool(name)) for name in ("sharing", "zone") if random.random() < 0.4]
        if random.random() < 0.15:
            made.append(("reservation", self.reservation("window", now)))
        made += [("node", self.node(name)) for name in NODES[: random.choice((0, 1, 2, 3, 3, 5, 8))]]
        made += [("group", self.group(random.choice(NAMESPACES), name)) for name in GROUPS if random.random() < 0.6]
        if random.random() < 0.4:
            made += [("budget", self.budget(random.choice(NAMESPACES), f"b{n}")) for n in range(random.randint(1, 3))]
        if random.random() < 0.5:
            made += [("storageclass", self.storage_class(name)) for name in ("later", "static", "now")]
            made += [
                ("claim", self.claim(namespace, name))
                for namespace in ("ns", "other")
                for name in CLAIMS
                if random.random() < 0.6
            ]
            made += [("volume", self.volume(f"volume-{number}")) for number in range(4)]
            made += [("nodedrivers", self.csi_node(name)) for name in NODES[:3]]
        if random.random() < 0.3:
            made += [("services", self.service(random.choice(NAMESPACES), "s"))]
        return made

    def another(self, now: float) -> tuple[str, Object]:
        """One object of some kind, as it may be created or changed while the world runs."""
        random = self.random
        kind = random.choice(
            (
                "node",
                "node",
                "node",
                "queue",
                "group",
                "group",
                "budget",
                "class",
                "namespace",
                "claim",
                "volume",
                "pool",
                "priority",
                "services",
                "reservation",
            )
        )
        namespace = random.choice(NAMESPACES)
        made: Any = {
            "node": lambda: self.node(random.choice(NODES)),
            "queue": lambda: self.queue(random.choice(_QUEUES)),
            "group": lambda: self.group(namespace, random.choice(GROUPS)),
            "budget": lambda: self.budget(namespace, f"b{random.randrange(3)}"),
            "class": lambda: self.service_class(random.choice(CLASSES[:-1])),
            "namespace": lambda: self.namespace(namespace),
            "claim": lambda: self.claim(namespace, random.choice(CLAIMS)),
            "volume": lambda: self.volume(f"volume-{random.randrange(4)}"),
            "pool": lambda: self.pool(random.choice(("sharing", "zone"))),
            "priority": lambda: self.priority_class(random.choice(("low", "high"))),
            "services": lambda: self.service(namespace, "s"),
            "reservation": lambda: self.reservation("window", now),
        }[kind]()
        return kind, made

    @staticmethod
    def _named(name: str, rest: Object, *, namespace: str = "", labels: Object | None = None) -> Object:
        metadata: Object = {
            "name": name,
            "uid": f"uid-{namespace}/{name}",
            "resourceVersion": "1",
            "creationTimestamp": timestamp(1.8e9),
        }
        if namespace:
            metadata["namespace"] = namespace
        if labels:
            metadata["labels"] = labels
        return {"metadata": metadata, **rest}

"""Random clusters of several tenants, in which every text of a foreign object is marked, and questions of one tenant about them."""

import copy
import itertools
import random

import msgspec

from fairlead.cluster import views
from fairlead.cluster.translate import Objects
from fairlead.simulation.asked import Question
from testbed import objects as made

OWN, USER, MARK = "vision", "ann", "zq"
NOW = 1_767_225_600.0 + 7200
QUEUES = ("owner", "guest", "lab")
CLASSES = ("batch", "steady", "slices")


class Worlds:
    """Draws worlds and questions. seed: two of the same are alike."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self._number = itertools.count()

    def mark(self):
        """A name that is nowhere else."""
        return f"{MARK}{next(self._number):04x}{MARK}"

    def objects(self):
        """A cluster: its own tenant's pods are plain, of all others each text is marked."""
        draw = self.draw
        tenants = [self.mark() for _ in range(draw.randint(1, 3))]
        found = Objects(now=NOW)
        for number in range(draw.randint(2, 6)):
            closed = {"unschedulable": True} if draw.random() < 0.1 else {}
            node = made.node(f"n{number}", gpus=draw.choice([2, 4, 8]), labels={"zone": draw.choice("ab")}, **closed)
            found.nodes.append(self.view(views.Node, node))
        found.namespaces = [self.view(views.Namespace, {"metadata": {"name": OWN, "labels": {"team": "a"}}})]
        for tenant in tenants:
            labels = {"team": self.mark(), "fairlead.dev/default-queue": draw.choice(QUEUES)}
            found.namespaces.append(self.view(views.Namespace, {"metadata": {"name": tenant, "labels": labels}}))
        for name in QUEUES:
            queue = made.queue(name, quota=draw.choice([0, 2, 4, 8]), limit=draw.choice([None, 8, 12]))
            if draw.random() < 0.2:
                queue["spec"]["perUser"] = {"resources": {made.GPU: draw.randint(1, 6)}}
            found.queues.append(self.view(views.Queue, queue))
        preemption = {"mode": draw.choice(["Requeue", "Suspend", "Never"]), "scope": draw.choice(["Queue", "Cluster"])}
        found.classes = [
            self.view(views.ServiceClass, made.service_class("batch", preemption=preemption)),
            self.view(views.ServiceClass, made.service_class("steady", priorityClassName="high", preemption={"mode": "Never"})),
            self.view(views.ServiceClass, made.service_class("slices", timeLimit={"default": "2h"})),
        ]
        found.priorities = [self.view(views.PriorityClass, made.priority_class("high", 1000))]
        for tenant in (OWN, *tenants):
            self._fill(found, tenant)
        if draw.random() < 0.3:
            self._close(found, draw.choice(tenants))
        draw.shuffle(found.pods)
        return found

    def question(self, found):
        """What the tenant asks."""
        draw = self.draw
        manifests = [self._manifest(f"new-{number}") for number in range(draw.choice([0, 1, 1, 2, 3]))]
        amount = f"{draw.choice(QUEUES)}:{made.GPU}={draw.randint(0, 12)}"
        return Question(
            manifests=manifests,
            quota=[amount] if draw.random() < 0.25 else [],
            limit=[amount] if draw.random() < 0.15 else [],
            add_nodes=draw.choice(["1", "2:n0"]) if draw.random() < 0.2 else "",
            drain=[draw.choice(found.nodes).metadata.name] if draw.random() < 0.2 else [],
        )

    def view(self, kind, manifest, namespace=""):
        """An object as the API server shows it."""
        name = manifest["metadata"]["name"]
        created = f"2026-01-01T0{self.draw.randint(0, 1)}:{self.draw.randint(0, 59):02d}:00Z"
        metadata = {"uid": f"uid-{namespace}-{name}", "creationTimestamp": created, **manifest["metadata"]}
        return msgspec.convert({**manifest, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}, kind)

    # -- the tenants' objects ------------------------------------------------------------------

    def _name(self, tenant, word):
        return f"{word}-{next(self._number)}" if tenant == OWN else self.mark()

    def _labels(self, tenant):
        labels = {"app": self._name(tenant, "app")}
        if tenant != OWN:
            labels[f"{self.mark()}.example/{self.mark()}"] = self.mark()
        return labels

    def _pod(self, tenant, name, **more):
        """A pod; of another tenant each text is marked."""
        draw = self.draw
        annotations = {"fairlead.dev/user": USER if tenant == OWN else self.mark()}
        if tenant != OWN:
            annotations[self.mark()] = self.mark()
        for annotation, part in (("fairlead.dev/time-limit", 0.4), ("fairlead.dev/expected-duration", 0.4)):
            if draw.random() < part:
                annotations[annotation] = f"{draw.randint(1, 300)}m"
        labels = self._labels(tenant) | ({"fairlead.dev/service-class": draw.choice(CLASSES)} if draw.random() < 0.6 else {})
        queue = draw.choice(QUEUES) if draw.random() < 0.9 else ""
        pod = made.pod(name, labels=labels, annotations=annotations, **{"queue": queue, "gpus": draw.randint(0, 4), **more})
        if tenant != OWN:
            container = pod["spec"]["containers"][0]
            container |= {"name": self.mark(), "image": f"{self.mark()}/{self.mark()}:{self.mark()}", "command": [self.mark()]}
            container["env"] = [{"name": self.mark(), "value": self.mark()}]
            pod["spec"] |= {"serviceAccountName": self.mark(), "hostname": self.mark()}
        if draw.random() < 0.1:
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}}
            pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": self._name(tenant, "job"), "controller": True}]
        return pod

    def _fill(self, found, tenant):
        """Running and waiting pods, gangs, disruption budgets."""
        draw = self.draw
        free = {node.metadata.name: int(node.status.allocatable[made.GPU]) for node in found.nodes}
        for pod in found.pods:
            if pod.spec.node_name:
                free[pod.spec.node_name] -= int(pod.spec.containers[0].resources.requests.get(made.GPU, 0))
        for _ in range(draw.randint(0, 6)):
            pod = self._pod(tenant, self._name(tenant, "runs"), gpus=draw.randint(1, 4))
            asks = int(pod["spec"]["containers"][0]["resources"]["requests"][made.GPU])
            node = draw.choice([name for name, left in free.items() if left >= asks] or [""])
            if node:
                free[node] -= asks
                pod["spec"]["nodeName"] = node
                pod["status"] = {"phase": "Running", "startTime": "2026-01-01T00:30:00Z"}
            found.pods.append(self.view(views.Pod, pod, tenant))
        for _ in range(draw.randint(0, 4)):
            found.pods.append(self.view(views.Pod, self._pod(tenant, self._name(tenant, "waits")), tenant))
        for _ in range(draw.choice([0, 0, 1, 2])):
            name, queue = self._name(tenant, "gang"), draw.choice(QUEUES)
            group = made.pod_group(name, draw.randint(1, 4), queue)
            group["metadata"]["labels"] = self._labels(tenant)
            found.groups.append(self.view(views.PodGroup, group, tenant))
            for _ in range(group["spec"]["minMember"]):
                pod = self._pod(tenant, self._name(tenant, "member"), group=name, queue=queue, gpus=2)
                found.pods.append(self.view(views.Pod, pod, tenant))
        if draw.random() < 0.4 and found.pods:
            budget = {
                "metadata": {"name": self._name(tenant, "budget")},
                "spec": {"selector": {}, "minAvailable": 100},
                "status": {"disruptionsAllowed": 0},
            }
            found.budgets.append(self.view(views.Budget, budget, tenant))

    def _close(self, found, tenant):
        """A node is closed by a pod whose size cannot be read."""
        pod = self._pod(tenant, self.mark(), gpus=1, cpu="1e39", nodeName=found.nodes[0].metadata.name)
        found.pods.append(self.view(views.Pod, pod | {"status": {"phase": "Running"}}, tenant))

    def _manifest(self, name):
        draw = self.draw
        kind = draw.choice(["Pod", "Job", "Deployment", "AIJob", "PodGroup"])
        if kind == "PodGroup":
            return made.pod_group(name, draw.randint(1, 3), draw.choice(QUEUES))
        if kind == "AIJob":
            more = {"queue": draw.choice(QUEUES)} if draw.random() < 0.8 else {}
            return made.ai_job(name, workers=draw.randint(1, 4), gpus=draw.randint(1, 4), **more)
        pod = self._pod(OWN, name)
        del pod["metadata"]["ownerReferences"]
        if draw.random() < 0.3:
            pod["spec"]["priorityClassName"] = "high"
        if kind == "Pod":
            return pod
        template = {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}, "spec": pod["spec"]}
        count = {"parallelism" if kind == "Job" else "replicas": draw.randint(1, 3)}
        return {"kind": kind, "metadata": {"name": name}, "spec": {**count, "template": template}}


def stamped(manifest, user=USER):
    """A manifest as the policies stamp it, for what an administrator asks in a user's name."""
    found = copy.deepcopy(manifest)
    of = [found["metadata"]]
    if found["kind"] not in ("Pod", "AIJob", "PodGroup"):
        of = [found["spec"]["template"].setdefault("metadata", {})]
    for each in of:
        each["annotations"] = {**(each.get("annotations") or {}), "fairlead.dev/user": user}
    return found

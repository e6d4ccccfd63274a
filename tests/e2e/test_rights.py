"""Every right of an installation is used, and no request is refused: by the audit log of a real API server.

The chart is installed with everything switched on, and all kinds of workloads are there that Fairlead knows. Whoever uses a right
is started as the chart describes it, with the token of its account. The tests play kubelets and the controllers of others.
"""

from __future__ import annotations

import functools
import json
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest

from fairlead.cluster import grouping
from fairlead.install import NAMESPACE, apis, kinds
from fairlead.install.accounts import usernames
from fairlead.install.apply import rolled_out
from fairlead.install.objects import SECURITY
from fairlead.install.values import parse
from fairlead.scheduler.queue_metrics import METRICS
from testbed import objects as made
from testbed.chart import files, render
from testbed.controlplane import ControlPlane
from testbed.exercised import FLAG, granted, refused, used
from testbed.hpa import TIMES
from testbed.kubelet import MERGE, Kubelet, audit_flags, audited
from tests.e2e import test_provisioning, test_workloads
from tests.e2e.test_chart import CONTROLLERS, IMAGE, SECRET, until

pytestmark = [pytest.mark.slow, pytest.mark.chart]

MORE = "job-controller,persistentvolume-binder-controller,horizontal-pod-autoscaler-controller"
GANGS = ["--feature-gates=GenericWorkload=true,GangScheduling=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"]
AUTOSCALERS = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
CLASS = test_provisioning.CLASS
VALUES = {"image": IMAGE, "externalMetrics": True, "history": {"secretName": "database"}, "provisioningClasses": [CLASS]}
OURS = "/apis/fairlead.dev/v1alpha1"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
TENANT = "vision"
PEOPLE = {"ann": "edit", "vic": "view", "ada": "admin"}
PATIENT = {"fairlead.dev/service-class": "patient"}
TRAINING = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
OTHERS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    **dict.fromkeys(TRAINING, "kubeflow.org/v1"),
    "MPIJob": "kubeflow.org/v2beta1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
}
"""Kind -> its version; their definitions take anything."""
SERVED = {each.group: each for each in (apis.VISIBILITY, apis.EXTERNAL_METRICS, apis.HISTORY)}


class World:
    """An installation, and what is done to its cluster: as the administrator, or `by` a person."""

    def __init__(self, plane, kubelet, folder):
        self.plane, self.kubelet, self.folder = plane, kubelet, folder
        self._played = {}  # scenario -> whether it came to its end

    def play(self, scenario):
        """Once."""
        if scenario not in self._played:
            self._played[scenario] = False
            scenario(self)
            self._played[scenario] = True
        assert self._played[scenario], f"{scenario.__name__} has failed before"

    def asked(self):
        """What was asked of the API server, by the audit log."""
        return audited(self.folder)

    def rbac(self):
        """The roles and bindings that are installed, as they are in the cluster."""
        return [self.get(kinds.path(each)) for each in installed() if each["apiVersion"].startswith("rbac.")]

    def granted(self):
        return granted(each for each in self.rbac() if "rules" in each)

    def request(self, method, path, body=None, kind="application/json", by=None):
        if by is None:
            return self.plane.request(method, path, body, kind)
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self.plane.url + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(asked, timeout=30, context=self._context(by)) as reply:
            return None if "watch=true" in path else json.loads(reply.read())

    def tried(self, code, *asked, **more):
        """The answer; None where the API server gives this code instead."""
        try:
            return self.request(*asked, **more)
        except urllib.error.HTTPError as error:
            if error.code == code:
                return None
            raise

    @functools.cache  # noqa: B019 - one world
    def _context(self, person):
        certificate, key = self.plane.authority.issue(person, person)
        context = ssl.create_default_context(cafile=str(self.plane.authority.path))
        context.load_cert_chain(certificate, key)
        return context

    def create(self, *manifests, by=None):
        for each in manifests:
            self.request("POST", made.path(each, TENANT), each, by=by)

    def patch(self, path, body, by=None):
        return self.request("PATCH", path, body, MERGE, by=by)

    def get(self, path):
        return self.plane.find(path)

    def until(self, what):
        return until(what, lambda: f"{json.dumps(self.waiting(), indent=1)}\n{self.kubelet.logs()}")

    def node(self, name, gpus=1):
        """One for a single matter: pods select it by its name."""
        self.create(made.node(name, gpus=gpus))
        self.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})

    def pods(self):
        return {each["metadata"]["name"]: each for each in self.get(f"/api/v1/namespaces/{TENANT}/pods")["items"]}

    def waiting(self):
        return {name: each["status"] for name, each in self.pods().items() if not each["spec"].get("nodeName")}

    def placed(self, *names):
        self.until(lambda: all(self.pods().get(name, {"spec": {}})["spec"].get("nodeName") for name in names))

    def plays(self, phase, *names):
        """What their kubelets report."""
        for name in names:
            self.patch(f"{pod_path(name)}/status", {"status": {"phase": phase}})

    def ended(self, name):
        self.request("DELETE", pod_path(name), {"gracePeriodSeconds": 0})

    def ours(self, plural, name):
        return self.get(f"{OURS}/namespaces/{TENANT}/{plural}/{name}")


def pod_path(name):
    return f"/api/v1/namespaces/{TENANT}/pods/{name}"


def pod(name, node, **more):
    return made.pod(name, nodeSelector={"kubernetes.io/hostname": node}, **more)


def reference(owner):
    metadata = owner["metadata"]
    return {key: owner[key] for key in ("apiVersion", "kind")} | {
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rights")


@pytest.fixture(scope="module")
def plane(folder):
    logged = audit_flags(folder, *usernames(NAMESPACE), *PEOPLE, AUTOSCALERS)
    with ControlPlane(f"{CONTROLLERS},{MORE}", flags=[*logged, *GANGS, FLAG], controller_flags=TIMES) as running:
        running.await_served("/api/v1/namespaces/default/serviceaccounts/default")
        definitions = [test_provisioning.definition()]
        for kind, version in OTHERS.items():
            group, _, number = version.partition("/")
            definitions.append(test_workloads.definition(group, number, kind, f"{kind.lower()}s"))
        for each in definitions:
            running.request("POST", made.path(each), each)
        for kind, version in OTHERS.items():
            running.await_served(f"/apis/{version}/{kind.lower()}s")
        running.await_served("/apis/autoscaling.x-k8s.io/v1/provisioningrequests")
        yield running


@pytest.fixture(scope="module")
def world(plane, folder):
    """The chart as Helm installs it, two replicas of each process, and three people."""
    plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": SECURITY}})
    plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "stringData": SECRET}
    plane.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    arguments = ("install", "fairlead", str(files.FOLDER), "--namespace", NAMESPACE)
    done = render.helm(*arguments, values=VALUES, kubeconfig=plane.kubeconfig)
    assert (done.returncode, done.stderr) == (0, "")
    with Kubelet(plane, folder / "pods", NAMESPACE) as kubelet:
        found = World(plane, kubelet, folder)
        for person, role in PEOPLE.items():
            found.create(bound(person, role))
        deployments = [kinds.path(each) for each in installed() if each["kind"] == "Deployment"]
        found.until(lambda: all(rolled_out(found.get(path)) for path in deployments))
        found.until(lambda: may(found, "ann", "create", "aijobs") and may(found, "ada", "create", "queues"))
        found.create(made.queue("default"), made.service_class("patient", preemption={"mode": "Suspend"}), by="ada")
        found.create(made.priority_class("urgent", 1000))
        yield found


def installed():
    return render.expected(parse(VALUES, "values"))


def bound(person, role):
    group = "rbac.authorization.k8s.io"
    metadata = {"name": person, **({"namespace": TENANT} if role == "edit" else {})}
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding" if role == "edit" else "ClusterRoleBinding",
        "metadata": metadata,
        "subjects": [{"kind": "User", "name": person, "apiGroup": group}],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": group},
    }


def may(world, person, verb, resource):
    wanted = {"verb": verb, "group": "fairlead.dev", "resource": resource, "namespace": TENANT if person == "ann" else ""}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": person, "groups": ["system:authenticated"], "resourceAttributes": wanted},
    }
    return world.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]


# -- what the processes do -----------------------------------------------------------------------


def policies_are_judged_and_reported(world):
    def at(hours):
        return (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")

    paid = made.queue("paid")
    paid["spec"]["budget"] = {"amount": 100, "currency": "USD", "period": "30d"}
    selector = {"matchLabels": {"pool": "pool"}}
    world.create(paid, pool("pool"), made.reservation("window", at(1), at(2), nodeSelector=selector), by="ada")
    for plural, name in (("queues", "default"), ("serviceclasses", "patient"), ("nodepools", "pool"), ("reservations", "window")):
        world.until(lambda path=f"{OURS}/{plural}/{name}": "Accepted" in conditions(world.get(path)))
    world.until(lambda: world.get(f"{OURS}/reservations/window")["status"].get("phase"))
    world.until(lambda: conditions(world.get(f"{OURS}/queues/paid")).get("WithinBudget") == "True")


def pool(name):
    spec = {"nodeSelector": {"matchLabels": {"pool": name}}}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def conditions(found):
    return {each["type"]: each["status"] for each in (found.get("status") or {}).get("conditions") or ()}


def workload(world, kind, name, spec, owner=None):
    version = OTHERS[kind]
    metadata = {"name": name, "labels": PATIENT, "ownerReferences": [reference(owner)] if owner else []}
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    return world.request("POST", f"/apis/{version}/namespaces/{TENANT}/{kind.lower()}s", body)


def members(world):
    """For each kind that can be suspended an object of it with a pod on a node of its own: (object, its pod)."""
    template = {"spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "i"}]}}
    jobs = {"template": {"spec": {"parallelism": 1, "completions": 1, "template": template}}, "name": "worker", "replicas": 1}
    head = {"headGroupSpec": {"template": template}}

    def with_pod(suspended, owner, gang, **labels):
        world.until(lambda: world.ours("podgroups", gang))
        name = suspended["kind"].lower()
        world.node(name)
        member = pod(f"of-{name}", name, labels={**PATIENT, **labels})
        member["metadata"]["ownerReferences"] = [reference(owner)]
        world.create(member)
        return suspended, member["metadata"]["name"]

    def of_jobset(suspended, jobset):
        name, uid = jobset["metadata"]["name"], jobset["metadata"]["uid"]
        return with_pod(suspended, jobset, f"jobset.{name}", **{grouping.JOBSET_NAME: name, grouping.JOBSET_UID: uid})

    def of_cluster(suspended, cluster):
        name = cluster["metadata"]["name"]
        return with_pod(suspended, cluster, f"raycluster.{name}", **{grouping.RAY_CLUSTER: name})

    for kind, field in TRAINING.items():
        found = workload(world, kind, "alone", {field: {"Worker": {"replicas": 1, "template": template}}})
        yield with_pod(found, found, f"{kind.lower()}.alone", **{grouping.TRAINING_NAME: "alone"})
    found = workload(world, "JobSet", "alone", {"replicatedJobs": [jobs]})
    yield of_jobset(found, found)
    above = workload(world, "TrainJob", "above", {})
    yield of_jobset(above, workload(world, "JobSet", "above", {"replicatedJobs": [jobs]}, above))
    found = workload(world, "RayCluster", "alone", head)
    yield of_cluster(found, found)
    above = workload(world, "RayJob", "above", {"shutdownAfterJobFinishes": True})
    yield of_cluster(above, workload(world, "RayCluster", "above", head, above))


def suspended(world, found):
    path = f"/apis/{found['apiVersion']}/namespaces/{TENANT}/{found['kind'].lower()}s/{found['metadata']['name']}"
    spec = world.get(path)["spec"]
    return (spec.get("runPolicy") or spec).get("suspend", False)


def workloads_of_every_kind_are_suspended_and_resumed(world):
    """By one urgent pod for each; without a PodGroup of its own a Job gets one for that time."""
    every = list(members(world))
    world.node("job")
    job = made.job("alone")
    job["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "job"}
    job["spec"]["template"]["metadata"]["labels"] = PATIENT
    world.create(job, by="ann")
    (of_job,) = world.until(lambda: [name for name in world.pods() if name.startswith("alone-")])
    assert {each["kind"] for each, _ in every} == OTHERS.keys() - {"LeaderWorkerSet"}
    every.append((job, of_job))
    world.placed(*(member for _, member in every))
    for found, _ in every:
        name = found["kind"].lower()
        world.create(pod(f"urgent-{name}", name, priorityClassName="urgent"))
    for found, member in every:
        world.until(lambda found=found: suspended(world, found))
        if found is not job:
            world.ended(member)
    urgent = [f"urgent-{found['kind'].lower()}" for found, _ in every]
    world.placed(*urgent)
    world.until(lambda: world.ours("podgroups", "job-batch.alone"))
    for name in urgent:
        world.ended(name)
    for found, _ in every:
        world.until(lambda found=found: not suspended(world, found))
    world.until(lambda: world.ours("podgroups", "job-batch.alone") is None)


def groups_of_leaders_and_workers_and_of_upstream_are_gangs(world):
    template = {"spec": {"schedulerName": "fairlead", "containers": [{"name": "main", "image": "i"}]}}
    workload(world, "LeaderWorkerSet", "alone", {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}})
    world.until(lambda: world.ours("podgroups", "lws.alone.0"))
    where = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{TENANT}/podgroups"
    gang = {"metadata": {"name": "up"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    world.request("POST", where, {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", **gang})
    world.until(lambda: world.ours("podgroups", "upstream.up"))
    world.node("upstream")
    world.create(pod("up", "upstream", schedulingGroup={"podGroupName": "up"}))
    world.placed("up")
    world.until(lambda: conditions(world.get(f"{where}/up")).get("PodGroupScheduled") == "True")


def an_aijob_restarts_grows_ends_and_goes_after_its_time(world):
    world.node("aijob", gpus=4)
    job = made.ai_job("bert", workers=2, restart={"limit": 1, "backoff": "1s"}, ttlAfterFinished="2s")
    job["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "aijob"}
    world.create(job, by="ann")
    first, second = ([f"bert-worker-{index}-{attempt}" for index in range(2)] for attempt in range(2))
    world.placed(*first)
    world.plays("Running", *first)
    world.plays("Failed", first[0])
    world.placed(*second)
    assert not {*first} & world.pods().keys()
    elastic = [{"op": "add", "path": "/spec/roles/0/maxReplicas", "value": 3}]
    path = f"{OURS}/namespaces/{TENANT}/aijobs/bert"
    world.request("PATCH", path, elastic, "application/json-patch+json", by="ann")
    world.placed(*second, "bert-worker-2-1")
    assert world.ours("podgroups", "bert")["spec"]["maxMember"] == 3
    world.plays("Running", *second, "bert-worker-2-1")
    world.until(lambda: world.ours("aijobs", "bert")["status"]["phase"] == "Running")
    world.plays("Succeeded", *second, "bert-worker-2-1")
    world.until(lambda: world.ours("aijobs", "bert") is None)


def a_service_that_another_made_is_not_an_aijobs(world):
    world.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"clusterIP": "None"}}, by="ann")
    world.create(made.ai_job("taken", workers=1), by="ann")
    world.until(lambda: "Service" in json.dumps((world.ours("aijobs", "taken") or {}).get("status") or {}))


def a_gang_that_a_quota_admits_in_part_is_not_begun(world):
    """The test is the quota's controller, too: the amounts in its status are those that count."""
    world.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bounded"}})
    where = "/api/v1/namespaces/bounded"
    world.until(lambda: world.get(f"{where}/serviceaccounts/default"))
    largest = {"type": "Container", "max": {"cpu": "2"}}
    world.request("POST", f"{where}/limitranges", {"metadata": {"name": "largest"}, "spec": {"limits": [largest]}})

    def admits(pods, method, path):
        hard = {"hard": {"pods": pods}}
        world.request(
            method, path, {"metadata": {"name": "few"}, "spec": hard}, MERGE if method == "PATCH" else "application/json"
        )
        world.patch(f"{where}/resourcequotas/few/status", {"status": {**hard, "used": {"pods": "0"}}})

    admits("1", "POST", f"{where}/resourcequotas")
    jobs = f"{OURS}/namespaces/bounded/aijobs"
    world.request("POST", jobs, made.ai_job("two"))
    world.until(lambda: "few" in json.dumps(world.get(f"{jobs}/two").get("status") or {}))
    assert names(world, f"{where}/pods") == set()
    admits("2", "PATCH", f"{where}/resourcequotas/few")
    world.until(lambda: names(world, f"{where}/pods") == {"two-worker-0-0", "two-worker-1-0"})


def nodes_are_requested_for_a_gang_and_again(world):
    world.node("old", gpus=8)
    group = made.pod_group("big", 2)
    group["metadata"]["annotations"] = {"fairlead.dev/provisioning-class": CLASS}
    world.create(group, *(pod(f"big-{number}", "old", gpus=8, group="big") for number in range(2)), by="ann")
    requests = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{TENANT}/provisioningrequests"
    templates = f"/api/v1/namespaces/{TENANT}/podtemplates"
    world.until(lambda: names(world, requests) == {"big-1"})
    failed = {"type": "Failed", "status": "True", "reason": "Failed", "message": "out of stock"}
    failed["lastTransitionTime"] = test_provisioning.LONG_AGO
    world.patch(f"{requests}/big-1/status", {"status": {"conditions": [failed]}})
    world.until(lambda: names(world, requests) == {"big-2"} and names(world, templates) == {"big-2-0"})


def names(world, path):
    return {each["metadata"]["name"] for each in world.get(path)["items"]}


def a_broken_node_is_quarantined(world):
    world.node("broken")
    told = {"type": "XIDErrors", "status": "True", "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    ready = {"type": "Ready", "status": "True"}
    world.patch("/api/v1/nodes/broken/status", {"status": {"conditions": [ready, told]}})
    world.until(lambda: "fairlead.dev/quarantined" in world.get("/api/v1/nodes/broken")["metadata"]["labels"])


def an_idle_node_is_reconfigured_through_mig_manager(world):
    world.node("sliced", gpus=0)
    labels = {"nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.config.state": "success", "pool": "sliced"}
    world.patch("/api/v1/nodes/sliced", {"metadata": {"labels": labels}})
    configs = [{"name": f"all-{profile}", "devices": [{"migDevices": {profile: 1}}]} for profile in ("1g.5gb", "7g.40gb")]
    sliced = pool("sliced")
    sliced["spec"]["mig"] = {"gpusPerNode": 1, "configs": configs, "pendingFor": "1s", "settle": "1s"}
    world.create(sliced, by="ada")
    world.until(lambda: conditions(world.get(f"{OURS}/nodepools/sliced")).get("MigReconfiguration") == "True")
    waits = pod("sliced", "sliced", gpus=0)
    waits["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/mig-7g.40gb": "1"}}
    world.create(waits, by="ann")
    world.until(lambda: world.get("/api/v1/nodes/sliced")["metadata"]["labels"]["nvidia.com/mig.config"] == "all-7g.40gb")


def volumes_are_bound_and_provisioned(world):
    """Of a disk that is there, and of one that the test, as its driver, makes on the node that was chosen."""
    world.node("disks", gpus=0)
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["disks"]}]}
    claims = f"/api/v1/namespaces/{TENANT}/persistentvolumeclaims"

    def disk(name, stored, **more):
        spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": stored}
        spec |= {"local": {"path": "/data"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, **more}
        world.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})

    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "disks.example.com")):
        stored = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        world.request("POST", STORAGE, stored)
        spec = {"storageClassName": name, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        world.request("POST", claims, {"metadata": {"name": name}, "spec": spec}, by="ann")
    disk("there", "local")
    for name in ("local", "made"):
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        world.create(pod(f"mounts-{name}", "disks", gpus=0, volumes=[volume]))
    chosen = "volume.kubernetes.io/selected-node"
    metadata = world.until(lambda: chosen in (found := world.get(f"{claims}/made")["metadata"]).get("annotations", {}) and found)
    assert metadata["annotations"][chosen] == "disks"
    of = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": TENANT, "name": "made", "uid": metadata["uid"]}
    disk("on-demand", "made", claimRef=of)
    world.placed("mounts-local", "mounts-made")
    assert world.get(f"{claims}/local")["spec"]["volumeName"] == "there"


def devices_are_allocated_reserved_and_given_back(world):
    """By claims, one of them with parameters that no patch keeps, one that another scheduler allocated, and for an extended resource."""
    devices = "/apis/resource.k8s.io/v1"
    claims, driver, resource = f"{devices}/namespaces/{TENANT}/resourceclaims", "gpu.example.com", "example.com/card"
    world.node("claimed", gpus=0)
    published = {"driver": driver, "nodeName": "claimed", "devices": [{"name": f"gpu-{each}"} for each in range(4)]}
    published["pool"] = {"name": "claimed", "generation": 1, "resourceSliceCount": 1}
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    asked = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "card"}}]}
    opaque = {"driver": driver, "parameters": {"kind": "GpuConfig", "apiVersion": "example.com/v1"}}
    spec = {"selectors": selectors, "extendedResourceName": resource}
    world.request("POST", f"{devices}/deviceclasses", {"metadata": {"name": "card"}, "spec": spec})
    world.request("POST", f"{devices}/resourceslices", {"metadata": {"name": "claimed"}, "spec": published})

    def uses(name, claim):
        found = pod(name, "claimed", gpus=0, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}])
        found["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        return found

    odd = {"devices": {**asked, "config": [{"opaque": opaque}]}}
    for name, wanted in (("odd", odd), ("given", {"devices": asked})):
        world.request("POST", claims, {"metadata": {"name": name}, "spec": wanted})
    given = world.get(f"{claims}/given")
    results = [{"request": "gpu", "driver": driver, "pool": "claimed", "device": "gpu-3"}]
    config = [{"source": "FromClass", "requests": ["gpu"], "opaque": opaque}]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["claimed"]}]}]
    allocation = {"devices": {"results": results, "config": config}, "nodeSelector": {"nodeSelectorTerms": terms}}
    world.request("PUT", f"{claims}/given/status", {**given, "status": {"allocation": allocation}})
    extended = pod("card", "claimed", gpus=0)
    for part in ("requests", "limits"):
        extended["spec"]["containers"][0].setdefault("resources", {}).setdefault(part, {})[resource] = "1"
    gated = {**extended, "spec": {**extended["spec"], "schedulingGates": [{"name": "example.com/later"}]}}
    world.create(uses("odd", "odd"), uses("given", "given"), gated, by="ann")
    world.placed("odd", "given")
    assert [each["name"] for each in world.get(f"{claims}/given")["status"]["reservedFor"]] == ["given"]
    left = {"name": "left-behind", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}
    left["ownerReferences"] = [reference({"apiVersion": "v1", "kind": "Pod", **world.pods()["card"]})]
    world.request("POST", claims, {"metadata": left, "spec": {"devices": asked}})
    world.patch(pod_path("card"), {"spec": {"schedulingGates": None}}, by="ann")
    world.placed("card")
    made_ = [name for name in names(world, claims) if name not in ("odd", "given")]
    assert len(made_) == 1
    assert made_[0].startswith("card-extended-resources-")


def pods_are_preempted_by_eviction_and_as_upstream_does_it(world):
    """In profile `kubernetes` a pod is deleted whatever its budget allows; its pods are spread by what selects them."""
    world.node("ai")
    world.node("upstreams", gpus=0)
    world.create(pod("meek", "ai"), by="ann")
    more = {"gpus": 0, "cpu": "100", "scheduler": "fairlead-kubernetes"}
    world.create(pod("low", "upstreams", labels={"app": "low"}, **more), by="ann")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}}
    world.create(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "low"}, "spec": budget}, by="ann"
    )
    world.placed("meek", "low")
    world.create(pod("bold", "ai", priorityClassName="urgent"), pod("high", "upstreams", priorityClassName="urgent", **more))
    world.placed("bold", "high")
    assert not {"meek", "low"} & world.pods().keys()


def a_binding_with_an_unknown_outcome_is_followed_by_a_read(world):
    """An admission webhook that cannot be reached: the API server answers 500, which leaves open what was done."""
    group = "admissionregistration.k8s.io"
    hooks = f"/apis/{group}/v1/validatingwebhookconfigurations"
    hook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": TENANT}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    world.node("hooked")
    world.create(pod("probe", "hooked", scheduler="nobody"))
    world.request("POST", hooks, {"metadata": {"name": "down"}, "webhooks": [hook]})
    world.until(lambda: fails(world, "probe", "hooked"))
    world.create(pod("hooked", "hooked"))
    world.until(
        lambda: [each for each in world.asked() if each["verb"] == "get" and each.get("objectRef", {}).get("name") == "hooked"]
    )
    world.request("DELETE", f"{hooks}/down")
    world.placed("hooked")


def fails(world, name, node):
    """Whether a binding is answered by a fault; it is tried dry."""
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    return world.tried(500, "POST", f"{pod_path(name)}/binding?dryRun=All", body) is None


def the_leading_scheduler_is_replaced(world):
    """Its pod is deleted; who waited takes the lease, and is the endpoint of what it serves."""
    replaced_leader(world, "scheduler")


def the_leading_operator_is_replaced(world):
    """The same."""
    replaced_leader(world, "operator")


def replaced_leader(world, process):
    lease = f"{LEASES}/fairlead-{process}"
    holder = world.get(lease)["spec"]["holderIdentity"]
    [leader] = [name for name, each in world.kubelet.running.items() if f"_{each.pid}_" in holder]

    def endpoints():
        return {endpoint(world, each) for each in SERVED.values() if each.process == process}

    world.until(lambda: endpoints() == {leader})
    world.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{leader}")
    world.until(lambda: world.get(lease)["spec"].get("holderIdentity") not in (None, "", holder))
    world.until(lambda: endpoints().isdisjoint({leader, None}))


def endpoint(world, served):
    """The pod to which a Service leads."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{served.service}"
    addresses = [address for each in (world.get(path) or {"endpoints": []})["endpoints"] for address in each["addresses"]]
    return next((name for name in list(world.kubelet.addresses) if world.kubelet.ip(name) in addresses), None)


# -- what people and autoscalers do --------------------------------------------------------------


def is_reached(world, group):
    """The API server is sent to where the leader is on this machine, in place of its endpoint."""
    served = SERVED[group]
    leader = world.until(lambda: endpoint(world, served))
    spec = {"type": "ExternalName", "externalName": world.kubelet.addresses[leader], "ports": [{"port": served.port}]}
    service = f"/api/v1/namespaces/{NAMESPACE}/services/{served.service}"
    world.patch(service, {"spec": {**spec, "clusterIP": None, "clusterIPs": None}})
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{served.registered}"
    world.patch(path, {"spec": {"service": {"port": served.port}}})
    world.until(lambda: conditions(world.get(path)).get("Available") == "True")


def queues_are_followed_by_autoscalers(world):
    is_reached(world, "external.metrics.k8s.io")
    template = {"metadata": {"labels": {"app": "web"}}, "spec": made.pod("web", gpus=0, scheduler="nobody")["spec"]}
    del template["spec"]["terminationGracePeriodSeconds"]
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    world.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}, by="ann")
    follows = [
        {
            "type": "External",
            "external": {
                "metric": {"name": each, "selector": {"matchLabels": {"queue": "default"}}},
                "target": {"type": "AverageValue", "averageValue": "1"},
            },
        }
        for each in METRICS
    ]
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2, "metrics": follows}
    path = f"/apis/autoscaling/v2/namespaces/{TENANT}/horizontalpodautoscalers"
    world.request("POST", path, {"metadata": {"name": "web"}, "spec": scaler}, by="ann")
    of_metrics = {right for right in world.granted() if right.role == "fairlead-external-metrics"}
    assert {right.resource for right in of_metrics} == set(METRICS)
    world.until(lambda: of_metrics <= used(world.asked()))


def people_share_read_and_use_the_cluster(world):
    """Ann works in her namespace, ada shares the cluster, and vic looks at all that there is."""
    shared = [
        made.queue("spare"),
        made.service_class("spare"),
        pool("spare"),
        made.reservation(
            "spare", "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z", nodeSelector={"matchLabels": {"pool": "spare"}}
        ),
    ]
    own = [made.ai_job("spare", workers=1, suspend=True), made.pod_group("spare", 1)]
    for person, manifests in (("ada", shared), ("ann", own)):
        for each in manifests:
            path = made.path(each, TENANT)
            world.create(each, by=person)
            watch = f"{path}?watch=true&timeoutSeconds=5"
            for asked in (f"{path}/spare", path, watch):
                world.request("GET", asked, by="vic")
            world.patch(f"{path}/spare", {"metadata": {"labels": {"spare": "yes"}}}, by=person)
            world.until(lambda path=path, person=person: put_back(world, f"{path}/spare", person))
            world.request("DELETE", f"{path}/spare", by=person)
            world.request("DELETE", f"{path}?labelSelector=spare%3Dyes", by=person)


def put_back(world, path, person):
    """Whether what was read could be put back: others may have written meanwhile."""
    return world.tried(409, "PUT", path, world.request("GET", path), by=person) is not None


def viewers_ask_the_leaders(world):
    """Why jobs wait, what the cluster holds, and what ran."""
    world.node("seen")
    nowhere = {"kubernetes.io/hostname": "nowhere"}
    job, ai_job = made.job("seen"), made.ai_job("seen", workers=1)
    job["spec"]["template"]["spec"]["nodeSelector"] = nowhere
    ai_job["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = nowhere
    world.create(pod("runs", "seen"), pod("seen", "nowhere"), job, by="ann")
    world.create(made.pod_group("gang", 1), pod("gang", "nowhere", group="gang"), ai_job, by="ann")
    for group in ("visibility.fairlead.dev", "history.fairlead.dev"):
        is_reached(world, group)
    for path in (
        *("pods/seen/explanation", "podgroups/gang/explanation", "jobs/seen/explanation", "aijobs/seen/explanation"),
        *("pendingjobs", "jobs", "nodes", "queues", "quotas"),
    ):
        world.until(
            lambda path=path: world.tried(
                404, "GET", f"/apis/visibility.fairlead.dev/v1alpha1/namespaces/{TENANT}/{path}", by="vic"
            )
        )
    question = {"spec": {"manifests": [made.pod("asked", nodeSelector=nowhere)]}}
    where = f"/apis/visibility.fairlead.dev/v1alpha1/namespaces/{TENANT}/whatifs"
    world.until(lambda: world.tried(503, "POST", where, question, by="vic"))
    history = f"/apis/history.fairlead.dev/v1alpha1/namespaces/{TENANT}/jobs"
    ran = world.until(lambda: world.request("GET", f"{history}?name=runs", by="vic")["items"])[0]["metadata"]["uid"]
    world.until(lambda: world.tried(404, "GET", f"{history}/{ran}/runs", by="vic"))


SCENARIOS = (
    policies_are_judged_and_reported,
    workloads_of_every_kind_are_suspended_and_resumed,
    groups_of_leaders_and_workers_and_of_upstream_are_gangs,
    an_aijob_restarts_grows_ends_and_goes_after_its_time,
    a_service_that_another_made_is_not_an_aijobs,
    a_gang_that_a_quota_admits_in_part_is_not_begun,
    nodes_are_requested_for_a_gang_and_again,
    a_broken_node_is_quarantined,
    an_idle_node_is_reconfigured_through_mig_manager,
    volumes_are_bound_and_provisioned,
    devices_are_allocated_reserved_and_given_back,
    pods_are_preempted_by_eviction_and_as_upstream_does_it,
    a_binding_with_an_unknown_outcome_is_followed_by_a_read,
    the_leading_scheduler_is_replaced,
    the_leading_operator_is_replaced,
    queues_are_followed_by_autoscalers,
    people_share_read_and_use_the_cluster,
    viewers_ask_the_leaders,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_scenario(world, scenario):
    world.play(scenario)


def test_every_right_is_used_and_no_request_is_refused(world):
    for each in SCENARIOS:
        world.play(each)
    rights, asked = world.granted(), world.asked()
    assert len(rights) > 150
    assert "\n".join(sorted(f"never used: {each}" for each in set(rights) - used(asked))) == ""
    assert refused(asked) == []


def test_no_right_is_a_wildcard_or_a_secret_and_few_are_of_the_whole_cluster(world):
    assert [each for each in world.granted() if "*" in "".join(each) or each.resource.partition("/")[0] == "secrets"] == []
    of_cluster = [each for each in world.rbac() if not each["metadata"].get("namespace")]
    assert {each["kind"] for each in of_cluster} == {"ClusterRole", "ClusterRoleBinding"}
    assert len(of_cluster) <= 12

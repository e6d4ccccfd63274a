"""ResourceQuotas and LimitRanges: our arithmetic beside the real API server's verdicts, and gangs in namespaces that have them."""

import json
import random
import time
import urllib.error

import msgspec
import pytest

from fairlead.cluster.resource_quotas import LimitRange, Quota, refused
from testbed.objects import GPU, ai_job, node, pod, priority_class
from tests.e2e.planes import NO_SERVICE_ACCOUNTS, Plane
from tests.e2e.test_aijobs import members, play, reaches, start, status

pytestmark = pytest.mark.e2e

WORLDS = 60
HARD = {
    "pods": (1, 5, ""),
    "count/pods": (1, 6, ""),
    "cpu": (1, 9, ""),
    "requests.cpu": (500, 6000, "m"),
    "limits.cpu": (1, 12, ""),
    "memory": (1, 12, "Gi"),
    "requests.memory": (500, 9000, "Mi"),
    "limits.memory": (1, 16, "Gi"),
    "requests.ephemeral-storage": (1, 8, "Gi"),
    "limits.ephemeral-storage": (1, 8, "Gi"),
    f"requests.{GPU}": (0, 8, ""),
    "requests.example.com/fpga": (0, 3, ""),
}


def with_priorities(plane):
    for name, value in (("high", 1000), ("usual", 10)):
        made = {**priority_class(name, value), "globalDefault": name == "usual"}
        plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)


PLANE = Plane("resourcequota-controller", [NO_SERVICE_ACCOUNTS], operator=True, prepare=with_priorities)


def amount(draw, low, high, suffix):
    return f"{draw.randint(low, high)}{suffix}"


def random_quota(draw, name):
    hard = {each: amount(draw, *HARD[each]) for each in draw.sample(sorted(HARD), draw.randint(1, 4))}
    spec = {"hard": hard}
    kind = draw.random()
    compute = all(each == "pods" or "cpu" in each or "memory" in each for each in hard)
    if kind < 0.15:
        spec["scopes"] = [draw.choice(["Terminating", "NotTerminating"])]
        spec["hard"] = {each: text for each, text in hard.items() if "/" not in each} or {"pods": "2"}
    elif kind < 0.3:
        best = draw.random() < 0.5
        spec["scopes"] = ["BestEffort" if best else "NotBestEffort"]
        spec["hard"] = {"pods": "2"} if best or not compute else hard
    elif kind < 0.5:
        operator = draw.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = {"values": draw.sample(["high", "usual"], draw.randint(1, 2))} if operator in ("In", "NotIn") else {}
        spec["scopeSelector"] = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, **values}]}
    elif kind < 0.6:
        spec["scopeSelector"] = {"matchExpressions": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}]}
        spec["hard"] = {"pods": "1"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}


def random_range(draw):
    item = {"type": draw.choice(["Container", "Container", "Pod"])}
    if item["type"] == "Container":
        if draw.random() < 0.6:
            item["default"] = {"cpu": draw.choice(["500m", "1"]), **({"memory": "1Gi"} if draw.random() < 0.5 else {})}
        if draw.random() < 0.6:
            item["defaultRequest"] = {"cpu": "250m", **({"memory": "256Mi"} if draw.random() < 0.5 else {})}
    if draw.random() < 0.5:
        item["max"] = draw.choice([{"cpu": "2"}, {"memory": "3Gi"}, {"cpu": "3", "memory": "4Gi"}])
    if draw.random() < 0.3:
        item["min"] = {"cpu": "250m"}
    if draw.random() < 0.2:
        item["maxLimitRequestRatio"] = {"cpu": "2"}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "bounds"}, "spec": {"limits": [item]}}


def random_container(draw, name):
    requests, limits = {}, {}
    for kind, low, high, suffix in (("cpu", 250, 2000, "m"), ("memory", 256, 3000, "Mi"), ("ephemeral-storage", 1, 3, "Gi")):
        if draw.random() < 0.65:
            number = draw.randint(low, high)
            requests[kind] = f"{number}{suffix}"
            if draw.random() < 0.5:
                limits[kind] = f"{number + draw.randint(0, low)}{suffix}"
        elif draw.random() < 0.4:
            limits[kind] = f"{draw.randint(low, high)}{suffix}"
    for kind in (GPU, "example.com/fpga"):
        if draw.random() < 0.3:
            limits[kind] = str(draw.randint(0, 2))
    return {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}}


def random_pod(draw, name):
    spec = {"containers": [random_container(draw, f"c{number}") for number in range(draw.randint(1, 2))]}
    if draw.random() < 0.4:
        first = [random_container(draw, f"i{number}") for number in range(draw.randint(1, 2))]
        for each in first:
            if draw.random() < 0.4:
                each["restartPolicy"] = "Always"
        spec["initContainers"] = first
    if draw.random() < 0.3:
        spec["activeDeadlineSeconds"] = draw.choice([1, 600])
    if draw.random() < 0.4:
        spec["priorityClassName"] = "high"
    if draw.random() < 0.15:
        spec["resources"] = {draw.choice(["requests", "limits"]): {"cpu": "8", "memory": "16Gi"}}
    if draw.random() < 0.2:
        term = {"topologyKey": "kubernetes.io/hostname", "namespaces": ["default"], "labelSelector": {"matchLabels": {"a": "b"}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if draw.random() < 0.1:
        for each in spec["containers"]:
            each["resources"] = {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**spec, "schedulerName": "nobody"}}


class Judge:
    """A namespace of the real API server with random quotas."""

    def __init__(self, plane, seed):
        self.plane = plane
        self.draw = random.Random(seed)
        self.namespace = f"w{seed}"
        self.path = f"/api/v1/namespaces/{self.namespace}"
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        ranges = [random_range(self.draw)] if self.draw.random() < 0.6 else []
        quotas = [random_quota(self.draw, f"q{number}") for number in range(self.draw.randint(1, 3))]
        self.made = 0
        for each in (*ranges, *quotas):
            try:
                plane.request("POST", f"{self.path}/{each['kind'].lower()}s", each)
                self.made += 1
            except urllib.error.HTTPError as error:
                if error.code != 422:  # such a combination is not allowed
                    raise

    def ready(self):
        return all((each.get("status") or {}).get("hard") == each["spec"]["hard"] for each in self.items("resourcequotas"))

    def items(self, plural):
        return self.plane.request("GET", f"{self.path}/{plural}")["items"]

    def predict(self, pods):
        quotas = msgspec.convert(self.items("resourcequotas"), list[Quota])
        ranges = msgspec.convert(self.items("limitranges"), list[LimitRange])
        return refused(pods, quotas, ranges, {}, default_class="usual")

    def post(self, made):
        """None: it was created; else the code and the message."""
        try:
            self.plane.request("POST", f"{self.path}/pods", made)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["message"]
        return None


@pytest.fixture(scope="module")
def worlds(plane):
    made = [Judge(plane, seed) for seed in range(WORLDS)]
    deadline = time.monotonic() + 60
    while not all(each.ready() for each in made):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    time.sleep(1.0)  # the admission's own watch
    assert sum(each.made for each in made) > WORLDS
    return made


def test_random_pods_are_admitted_as_foretold(worlds):
    """First single pods, then gangs of alike ones, in each of the worlds."""
    verdicts = {True: 0, False: 0}
    gangs = {True: 0, False: 0}
    for world in worlds:
        for number in range(6):
            made = random_pod(world.draw, f"p{number}")
            foretold = world.predict([(made, 1)])
            real = world.post(made)
            if real is not None and real[0] == 422:
                continue  # it is no valid pod
            assert (foretold is None) == (real is None), (world.namespace, made, foretold, real)
            verdicts[real is None] += 1
            if foretold is not None and foretold.reason == "ResourceQuota":
                assert f"quota: {foretold.message.split()[1]}" in real[1] or "quota: " in real[1], (foretold, real)
        made, count = random_pod(world.draw, "gang"), world.draw.randint(2, 4)
        foretold = world.predict([(made, count)])
        answers = [world.post({**made, "metadata": {"name": f"gang-{number}"}}) for number in range(count)]
        if any(each is not None and each[0] == 422 for each in answers):
            continue
        whole = all(each is None for each in answers)
        assert (foretold is None) == whole, (world.namespace, made, count, foretold, answers)
        gangs[whole] += 1
    print(verdicts, gangs)
    assert min(verdicts.values()) > 40
    assert min(gangs.values()) > 3


def condition(cluster, name):
    return next((each for each in status(cluster, name).get("conditions", ()) if each["type"] == "Accepted"), {})


def test_a_gang_waits_for_its_quota_and_names_it(cluster):
    cluster.create(node("n", gpus=8))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}}
    cluster.create({**quota, "spec": {"hard": {f"requests.{GPU}": "6"}}})
    path = "/api/v1/namespaces/default/resourcequotas/gpus"
    cluster.until(lambda: (cluster.get(path).get("status") or {}).get("hard"))
    try:
        start(cluster)
        cluster.create(ai_job("first", workers=4))
        cluster.until(lambda: len(members(cluster, "first")) == 4)
        cluster.until(lambda: (cluster.get(path)["status"].get("used") or {}).get(f"requests.{GPU}") == "4")
        cluster.create(ai_job("second", workers=4))
        said = f"ResourceQuota gpus in namespace default: its 4 pods need 4 requests.{GPU}, 2 of 6 are left (4 are used)"
        # A gang that began on an older count has its pods taken back first.
        cluster.until(lambda: condition(cluster, "second").get("message") == said)
        assert condition(cluster, "second")["reason"] == "ResourceQuota"
        assert not [name for name in cluster.pods() if name.startswith("second")]
        play(cluster, members(cluster, "first"), "Running")
        play(cluster, members(cluster, "first"), "Succeeded")
        reaches(cluster, "first", "Succeeded")
        cluster.until(lambda: len(members(cluster, "second")) == 4)
        cluster.until(lambda: condition(cluster, "second").get("status") == "True")
    finally:
        cluster.delete(path)


def test_a_gang_that_is_refused_in_part_gives_its_quota_back(cluster):
    """Another takes what is left between the check and the pods: created members of the gang are deleted."""
    cluster.create(node("n", gpus=8))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    path = "/api/v1/namespaces/default/resourcequotas/few"
    start(cluster)
    cluster.until(lambda: "synced" in cluster.schedulers[-1].text())
    cluster.create({**quota, "spec": {"hard": {"pods": "5"}}})
    try:
        cluster.until(lambda: (cluster.get(path).get("status") or {}).get("hard"))
        cluster.create(*(ai_job(name, workers=4) for name in ("one", "two")))
        cluster.until(lambda: len(cluster.placed()) == 4)
        time.sleep(3.0)
        names = {name.split("-")[0] for name in cluster.pods()}
        assert len(names) == 1  # nothing of the other is there
        (runs,) = names
        play(cluster, members(cluster, runs), "Running")
        play(cluster, members(cluster, runs), "Succeeded")
        other = ({"one", "two"} - names).pop()
        cluster.until(lambda: len(members(cluster, other)) == 4)
    finally:
        cluster.delete(path)


def test_the_kubelet_says_why_a_job_does_not_start(cluster):
    """The real API server's own time of binding begins the clock."""
    cluster.create(node("n", gpus=8), ai_job("bert", workers=2, startTimeout="6s", restart={"limit": 1, "backoff": "1s"}))
    start(cluster)
    for attempt in (0, 1):
        pods = [f"bert-worker-{index}-{attempt}" for index in range(2)]
        cluster.until(lambda pods=pods: members(cluster, "bert")[-2:] == pods)
        waits = {"reason": "ImagePullBackOff", "message": "no such image"}
        told = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": {"waiting": waits}}
        body = {"status": {"phase": "Pending", "containerStatuses": [told]}}
        where = f"/api/v1/namespaces/default/pods/{pods[1]}/status"
        cluster.plane.request("PATCH", where, body, "application/merge-patch+json")
        play(cluster, pods[:1], "Running")
        cluster.until(
            lambda attempt=attempt: (
                status(cluster, "bert").get("attempt", 0) > attempt or status(cluster, "bert")["phase"] == "Failed"
            )
        )
    found = reaches(cluster, "bert", "Failed")
    said = "bert-worker-1-1 did not start within 6s: container main: ImagePullBackOff: no such image"
    assert found["message"] == f"{said}, and all 1 restarts are used up"


def test_a_gang_of_another_kind_is_evicted_and_its_group_counts_it(cluster):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    group = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"}}
    cluster.create(node("n", gpus=8), {**group, "spec": {"minMember": 2, "startTimeout": "5s"}})
    for name in "ab":
        made = pod(name, group="g")
        made["metadata"]["ownerReferences"] = [owner]
        cluster.create(made)
    cluster.scheduler("--no-leader-elect")
    path = "/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/g"
    found = cluster.until(
        lambda: ((cluster.get(path).get("status") or {}).get("starts") or {}).get("failed") and cluster.get(path)
    )
    assert found["status"]["starts"]["failed"] == 1
    assert "did not start within 5 s" in found["status"]["starts"]["message"]
    cluster.until(lambda: all("deletionTimestamp" in each["metadata"] for each in cluster.pods().values()))

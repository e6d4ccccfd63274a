"""What one tenant's pod does to the scheduler, it does to itself: others are placed, and its owner gets the reason."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from testbed import tenants
from testbed.controlplane import free_port
from testbed.objects import node, pod
from tests.e2e import conftest, faulty
from tests.e2e.planes import USER, Plane, with_tenant

pytestmark = pytest.mark.e2e


PLANE = Plane("deployment-controller,replicaset-controller,serviceaccount-controller", prepare=with_tenant("mal"))


@pytest.fixture
def mallory(cluster):
    for namespace in ("mal", "default"):
        cluster.until(lambda namespace=namespace: cluster.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    made = tenants.tenant(cluster.plane, "mallory", "mal")
    yield made
    for kind in ("deployments", "replicasets", "pods"):
        cluster.until(lambda kind=kind: made.kubectl("delete", kind, "--all", "--grace-period=0", "--force").returncode == 0)
    cluster.until(lambda: not cluster.pods("mal"))


def deployment(name, replicas, gpus):
    """A Deployment whose replicas would rather not share a node, as most are written."""
    labels = {"app": name}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
    affinity = {
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    }
    spec = pod("template", gpus=gpus)["spec"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**spec, "affinity": affinity}},
        },
    }


def waits(cluster, namespace):
    """Name -> reason of PodScheduled=False."""
    return {
        name: each["reason"]
        for name, made in cluster.pods(namespace).items()
        for each in made.get("status", {}).get("conditions", [])
        if each["type"] == "PodScheduled" and each["status"] == "False"
    }


def test_replicas_that_fit_no_node_block_no_other(cluster, mallory):
    cluster.create(*(node(f"n{number}") for number in range(4)))
    scheduler = cluster.scheduler("--no-leader-elect").synced()
    assert mallory.create(deployment("web", 5, 7)) == ""
    cluster.until(lambda: list(waits(cluster, "mal").values()) == ["Unschedulable"])
    poison = pod("poison", gpus=9, affinity=deployment("poison", 1, 9)["spec"]["template"]["spec"]["affinity"])
    assert mallory.create(poison) == ""
    cluster.create(*(pod(f"innocent-{number}") for number in range(4)))
    assert set(cluster.all_placed(4).values()) == {f"n{number}" for number in range(4)}
    cluster.until(lambda: waits(cluster, "mal").get("poison") == "Unschedulable")
    assert not scheduler.logged("pass failed")
    assert not scheduler.logged("set aside")


class Faulty(conftest.Scheduler):
    """A scheduler in which serving some pods raises, and what it answers."""

    def __init__(self, cluster):
        self.port = free_port()
        self.log = cluster.folder / "faulty.log"
        kubeconfig = cluster.plane.user(USER, USER)
        address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", faulty.__name__, "scheduler", "--kubeconfig", str(kubeconfig), "--no-leader-elect"]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen([*command, "--address", address], stdout=file, stderr=file, cwd=conftest.ROOT)
        self.cluster = cluster
        cluster.schedulers.append(self)

    def answer(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def test_a_fault_while_a_pod_is_served_is_that_pods(cluster, mallory):
    cluster.create(*(node(f"n{number}") for number in range(2)))
    scheduler = Faulty(cluster).synced()
    for number in range(2):
        assert mallory.create(pod(f"poison-{number}", gpus=8)) == ""
    cluster.create(*(pod(f"innocent-{number}", gpus=8) for number in range(2)))
    assert set(cluster.all_placed(2).values()) == {"n0", "n1"}
    told = {"poison-0": "InternalError", "poison-1": "InternalError"}
    cluster.until(lambda: waits(cluster, "mal") == told)
    items = cluster.get("/apis/events.k8s.io/v1/namespaces/mal/events")["items"]
    events = {each["regarding"].get("name"): each["note"] for each in items if each["reason"] == "InternalError"}
    assert events.keys() == told.keys()
    assert "InjectedError" in events["poison-0"]
    assert "retried in 60 s, or when its object changes" in events["poison-0"]
    (line, *_) = scheduler.logged("set aside")
    assert "InjectedError" in json.dumps(line)
    assert scheduler.answer("/readyz") == (200, "ok")
    assert 'fairlead_faults_total{site="serve"} 2.0' in scheduler.answer("/metrics")[1]
    assert not scheduler.logged("pass failed")


def test_passes_that_fail_end_readiness_until_one_succeeds(cluster, mallory):
    cluster.create(node("n0"))
    scheduler = Faulty(cluster).synced()
    cluster.create(pod("before"))
    cluster.all_placed(1)
    assert mallory.create(pod("broken")) == ""
    cluster.until(lambda: scheduler.answer("/readyz")[0] == 503)
    assert "passes failed: no pod is placed" in scheduler.answer("/readyz")[1]
    assert scheduler.answer("/healthz") == (200, "ok")
    assert mallory.kubectl("delete", "pod", "broken", "--grace-period=0", "--force").returncode == 0
    cluster.create(pod("after"))
    cluster.until(lambda: cluster.placed().keys() == {"before", "after"})
    cluster.until(lambda: scheduler.answer("/readyz") == (200, "ok"))

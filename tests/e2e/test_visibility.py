"""The aggregated API on the real API server: researchers who may not list the cluster ask the leader about their own jobs."""

import json
import urllib.error
import urllib.request

import pytest

from testbed import objects
from testbed.objects import node, pod, pod_group
from tests.e2e import aggregated
from tests.e2e.planes import OPERATOR

pytestmark = pytest.mark.e2e

BASE = "/apis/visibility.fairlead.dev/v1alpha1"


@pytest.fixture(scope="module")
def port(plane):
    chosen = aggregated.installed(plane, "visibility", "fairlead", "ann")
    plane.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    return chosen


@pytest.fixture
def served(cluster, port):
    cluster.create(node("n", gpus=4), pod("runs", gpus=3))
    cluster.scheduler("--no-leader-elect", "--visibility-address", f"127.0.0.1:{port}")
    cluster.until(lambda: "runs" in cluster.placed())
    cluster.create(pod_group("big", 2), *(pod(f"big-{i}", group="big", gpus=2) for i in range(2)))
    cluster.create(pod("other-first", gpus=2), namespace="other")
    cluster.until(lambda: cluster.condition("big-0"))
    aggregated.available(cluster, "visibility")
    yield cluster
    cluster.delete("/api/v1/namespaces/other/pods")


def as_ann(cluster, *arguments):
    return aggregated.fairlead_as(cluster, "ann", *arguments)


def kubectl_as_ann(cluster, *arguments):
    return aggregated.kubectl_as(cluster, "ann", *arguments)


def test_the_leader_explains_to_users_who_may_not_list_the_cluster(served):
    done = as_ann(served, "explain", "podgroup/big", "-n", "default", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["state"], told["pods"], told["code"]) == ("Waiting", 2, "Resources")
    assert told["position"] in (1, 2)
    assert told["queued"] == 2
    assert [term["name"] for term in told["rank"]][:2] == ["queue priority", "express"]
    assert "what helps" in as_ann(served, "explain", "podgroup/big", "-n", "default").stdout
    raw = kubectl_as_ann(served, "get", "--raw", f"{BASE}/namespaces/default/pods/runs/explanation")
    assert json.loads(raw.stdout)["status"]["state"] == "Running"


def test_an_aijob_is_explained_to_its_user_with_and_without_pods(served):
    cluster = served
    cluster.plane.grant(OPERATOR)
    cluster.operator("--no-leader-elect")
    cluster.create(
        objects.ai_job("train", workers=2, gpus=4),
        objects.ai_job("after", workers=1, dependsOn=[{"job": "train", "when": "afterok"}]),
    )

    def told(name):
        done = as_ann(cluster, "explain", f"aijob/{name}", "-n", "default", "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    # Without the right to read AIJobs the leader shows one that has pods.
    found = cluster.until(lambda: each if isinstance(each := told("train"), dict) and each["code"] else None)
    assert (found["object"], found["state"], found["pods"], found["gpus"]) == ("aijob/train", "Waiting", 2, 8.0)
    assert (found["code"], found["message"].split(" needs ")[0]) == ("TooLarge", "gang default/train")
    assert found["position"] is not None
    assert "other-first" not in json.dumps(found)
    assert "refuses" in told("after"), "nor PodGroups"
    # A user who may read them sees one that has none, too.
    role = {
        "apiVersion": aggregated.RBAC,
        "kind": "Role",
        "metadata": {"name": "reads-jobs", "namespace": "default"},
        "rules": [{"apiGroups": ["fairlead.dev"], "resources": ["aijobs"], "verbs": ["get"]}],
    }
    bound = {**aggregated.binding("RoleBinding", "reads-jobs", "reads-jobs", "ann", "default")}
    bound["roleRef"]["kind"] = "Role"
    for each in (role, bound):
        cluster.plane.request("POST", objects.path(each), each)
    found = cluster.until(lambda: each if isinstance(each := told("after"), dict) and each["code"] else None)
    assert (found["state"], found["code"]) == ("Pending", "Dependency")
    assert "'train'" in found["message"]
    assert as_ann(cluster, "explain", "aijob/nobody", "-n", "default").returncode == 4
    assert as_ann(cluster, "explain", "aijob/train", "-n", "other").returncode == 3


def test_kubectl_lists_the_jobs_of_a_namespace_and_names_no_others(served):
    listed = kubectl_as_ann(served, "get", "pendingjobs", "-n", "default")
    assert listed.returncode == 0, listed.stderr
    head, *rows = listed.stdout.splitlines()
    assert head.split()[:4] == ["NAME", "KIND", "QUEUE", "POSITION"]
    assert [row.split()[0] for row in rows] == ["big"]
    raw = json.loads(kubectl_as_ann(served, "get", "--raw", f"{BASE}/namespaces/default/podgroups/big/explanation").stdout)
    assert "other-first" not in json.dumps(raw)


def test_it_answers_only_who_may_ask(served, port):
    for path in ("namespaces/other/pendingjobs", "namespaces/other/pods/other-first/explanation"):
        refused = kubectl_as_ann(served, "get", "--raw", f"{BASE}/{path}")
        assert "forbidden" in refused.stderr.lower()
    unknown = kubectl_as_ann(served, "get", "--raw", f"{BASE}/namespaces/default/pods/nobody/explanation")
    assert "not known to the scheduler" in unknown.stderr
    # Past the API server no request is served: it has no certificate of its front proxy.
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"https://localhost:{port}{BASE}", timeout=10)


def test_where_it_is_not_served_the_statuses_answer(cluster, port):
    role = {
        "apiVersion": aggregated.RBAC,
        "kind": "Role",
        "metadata": {"name": "reads", "namespace": "default"},
        "rules": [{"apiGroups": ["", "fairlead.dev"], "resources": ["pods", "podgroups"], "verbs": ["get"]}],
    }
    bound = {**aggregated.binding("RoleBinding", "reads", "reads", "ann", "default")}
    bound["roleRef"]["kind"] = "Role"
    for each in (role, bound):
        cluster.plane.request("POST", objects.path(each), each)
    cluster.create(
        node("n", gpus=4), pod_group("big", 2), *(pod(f"big-{i}", group="big", gpus=8) for i in range(2)), pod("huge", gpus=8)
    )
    cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: cluster.condition("huge") and cluster.condition("big-0"))
    cluster.until(
        lambda: (cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/big").get("status") or {}).get("reason")
    )
    told = json.loads(as_ann(cluster, "explain", "podgroup/big", "-n", "default", "-o", "json").stdout)
    assert (told["state"], told["code"], told["position"]) == ("Pending", "TooLarge", None)
    told = json.loads(as_ann(cluster, "explain", "pod/huge", "-n", "default", "-o", "json").stdout)
    assert (told["state"], told["code"]) == ("Waiting", "Unschedulable")
    assert as_ann(cluster, "explain", "pod/nobody", "-n", "default").returncode == 4

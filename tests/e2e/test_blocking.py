"""What a tenant does to keep borrowed GPUs holds their owner only for a bounded time: on a real API server, without policies."""

import json
import subprocess

import pytest

from testbed.objects import node, pod
from tests.e2e.planes import Plane, with_editor

pytestmark = pytest.mark.e2e

CONFIGURATION = """
apiVersion: config.fairlead.dev/v1alpha1
kind: SchedulerConfiguration
preemption: {budgetOverrideSeconds: 4, victimTimeoutSeconds: 2, maxGraceSeconds: 1}
"""


PLANE = Plane(
    "clusterrole-aggregation-controller,serviceaccount-controller,disruption-controller", prepare=with_editor("mal", "mallory")
)


@pytest.fixture
def mallory(cluster):
    """kubectl as an ordinary tenant."""
    kubeconfig = cluster.plane.user("mallory", "mallory")

    def kubectl(*arguments, manifest=None):
        command = ["kubectl", "--kubeconfig", str(kubeconfig), "-n", "mal", *arguments]
        text = None if manifest is None else json.dumps(manifest)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    cluster.until(lambda: (cluster.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/edit") or {}).get("rules"))
    cluster.until(lambda: cluster.get("/api/v1/namespaces/mal/serviceaccounts/default"))
    cluster.until(lambda: cluster.get("/api/v1/namespaces/default/serviceaccounts/default"))
    yield kubectl
    cluster.delete("/apis/policy/v1/namespaces/mal/poddisruptionbudgets")
    cluster.delete("/api/v1/namespaces/mal/pods")


def queue(name, quota):
    spec = {"resources": [{"name": "nvidia.com/gpu", "quota": quota}]}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def borrowed(cluster, mallory, tmp_path, grace):
    """Two nodes, both filled by mallory in a queue without quota."""
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONFIGURATION)
    cluster.create(node("n0"), node("n1"), queue("vision", 8), queue("borrow", 0))
    cluster.scheduler("--no-leader-elect", "--config", str(path)).synced()
    for number in range(2):
        held = pod(f"b{number}", gpus=8, queue="borrow", terminationGracePeriodSeconds=grace)
        mallory("create", "-f", "-", manifest=held)
    cluster.until(lambda: all(each["spec"].get("nodeName") for each in cluster.pods("mal").values()))


def told(cluster, reason):
    items = cluster.get("/apis/events.k8s.io/v1/namespaces/mal/events")["items"]
    return [each["regarding"]["name"] for each in items if each["reason"] == reason]


def test_a_disruption_budget_keeps_a_guarantee_from_its_owner_only_for_so_long(cluster, mallory, tmp_path):
    """maxUnavailable 0 and an empty selector kept them for ever: the owner got no message, the eviction was tried again and again."""
    borrowed(cluster, mallory, tmp_path, 0)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all"},
        "spec": {"maxUnavailable": 0, "selector": {}},
    }
    mallory("create", "-f", "-", manifest=budget)
    cluster.until(
        lambda: (cluster.get("/apis/policy/v1/namespaces/mal/poddisruptionbudgets/all")["status"]).get("observedGeneration")
    )
    cluster.create(pod("v", gpus=8, queue="vision"))
    code, message = cluster.until(lambda: cluster.condition("v"))
    assert code == "DisruptionBudget"
    assert "PodDisruptionBudget mal/all" in message
    assert "overridden at" in message
    assert cluster.until(lambda: told(cluster, "BudgetOverride"))
    cluster.until(lambda: "v" in cluster.placed())
    assert len(cluster.pods("mal")) == 1
    assert not cluster.over_allocated()


def test_a_victim_that_never_goes_holds_its_beneficiary_only_for_so_long(cluster, mallory, tmp_path):
    """No kubelet ends these pods: they stay, as with a finalizer. The first free node is taken, whichever it is."""
    borrowed(cluster, mallory, tmp_path, 1_000_000_000)
    cluster.create(pod("v", gpus=8, queue="vision"))
    first = cluster.until(
        lambda: [name for name, each in cluster.pods("mal").items() if each["metadata"].get("deletionTimestamp")]
    )[0]
    assert cluster.pods("mal")[first]["metadata"]["deletionGracePeriodSeconds"] == 1, "bounded"
    assert cluster.until(lambda: told(cluster, "EvictionTimedOut")) == [first]
    other = f"b{1 - int(first[1])}"
    cluster.until(lambda: cluster.pods("mal")[other]["metadata"].get("deletionTimestamp"))
    cluster.create(node("n2"))
    cluster.until(lambda: cluster.placed().get("v") == "n2")
    assert set(cluster.pods("mal")) == {"b0", "b1"}, "neither has gone"
    assert not cluster.over_allocated()

"""What runs stays what it was admitted as, where no policy keeps its tenant from writing on it: the core alone holds."""

import json
import subprocess

import pytest

from testbed.objects import node, pod, pod_group, queue
from tests.e2e.planes import Plane

pytestmark = pytest.mark.e2e

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    {"apiGroups": ["fairlead.dev"], "resources": ["podgroups"], "verbs": ["*"]},
]


def with_mallory(plane):
    """A tenant in namespace default, and no admission policies."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "tenant"}, "rules": RULES}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "mallory"}],
    }
    plane.request("POST", f"{RBAC}/roles", role)
    plane.request("POST", f"{RBAC}/rolebindings", binding)


PLANE = Plane(prepare=with_mallory)


@pytest.fixture
def mallory(cluster):
    kubeconfig = cluster.plane.user("mallory", "mallory")

    def kubectl(*arguments, manifest=None):
        command = ["kubectl", "--kubeconfig", str(kubeconfig), *arguments]
        text = None if manifest is None else json.dumps(manifest)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    cluster.create(node("n0", gpus=8), node("n1", gpus=8), queue("mal", limit=4), queue("vision", quota=16))
    cluster.scheduler("--no-leader-elect").synced()
    return kubectl


def create(kubectl, *manifests):
    for manifest in manifests:
        kubectl("create", "-f", "-", manifest=manifest)


@pytest.mark.parametrize("other", ["vision", "nosuch"])
def test_relabelled_pods_stay_in_their_queue(cluster, mallory, other):
    create(mallory, *(pod(f"b{i}", queue="mal") for i in range(4)))
    cluster.all_placed(4)
    for i in range(4):
        mallory("label", "pod", f"b{i}", "--overwrite", f"fairlead.dev/queue={other}")
    create(mallory, pod("more", queue="mal"))
    cluster.until(lambda: cluster.condition("more"))
    assert cluster.condition("more")[0] == "LimitExceeded"
    cluster.until(lambda: any(reason == "AdmittedStays" for reason, _ in cluster.events("b0")))
    cluster.create(*(pod(f"ann{i}", gpus=4, queue="vision") for i in range(3)))
    cluster.all_placed(7)
    assert "more" not in cluster.placed()


def test_a_patched_group_stays_in_its_queue_and_says_so(cluster, mallory):
    create(mallory, pod_group("f2", 1, "mal"), pod("f2p", gpus=4, queue="mal", group="f2"))
    cluster.all_placed(1)
    mallory("patch", "podgroup", "f2", "--type", "merge", "-p", json.dumps({"spec": {"queue": "vision", "minMember": 9}}))
    path = "/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/f2"

    def said():
        return ((cluster.get(path).get("status") or {}).get("reason") or {}).get("code") == "AdmittedStays"

    cluster.until(said)
    create(mallory, pod("more", queue="mal"))
    cluster.until(lambda: cluster.condition("more"))
    assert cluster.condition("more")[0] == "LimitExceeded"


def test_a_time_limit_cannot_be_lengthened(cluster, mallory):
    create(mallory, pod("d8", queue="mal", annotations={"fairlead.dev/time-limit": "3s"}))
    cluster.all_placed(1)
    mallory("annotate", "pod", "d8", "--overwrite", "fairlead.dev/time-limit=1000h")

    def told_to_go():
        found = cluster.pods().get("d8")
        return found is None or found["metadata"].get("deletionTimestamp")

    cluster.until(told_to_go)


def test_leaving_the_queue_out_evades_nothing(cluster, mallory):
    create(mallory, pod("d3"))
    cluster.until(lambda: cluster.condition("d3"))
    assert cluster.condition("d3")[0] == "UnknownQueue"
    cluster.create(queue("default", limit=1))
    cluster.all_placed(1)

"""An unreadable object of a tenant costs no other tenant a node: `edit` in one namespace, no admission policies in force."""

import json
import subprocess
import sys

import pytest

from testbed.objects import node, pod
from tests.e2e.planes import Plane, with_editor

pytestmark = pytest.mark.e2e

FRACTION = "fairlead.dev/gpu-fraction"


PLANE = Plane("clusterrole-aggregation-controller,serviceaccount-controller", prepare=with_editor("mal", "mallory"))


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

    # What `edit` may do is put together by a controller.
    cluster.until(lambda: (cluster.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/edit") or {}).get("rules"))
    cluster.until(lambda: cluster.get("/api/v1/namespaces/mal/serviceaccounts/default"))
    cluster.until(lambda: cluster.get("/api/v1/namespaces/default/serviceaccounts/default"))
    yield kubectl
    cluster.delete("/api/v1/namespaces/mal/pods")


def fairlead(cluster, *arguments):
    command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(cluster.plane.kubeconfig), "-o", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def told(cluster, namespace, name, kind="Pod"):
    items = cluster.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return [
        (each["reason"], each["note"])
        for each in items
        if (each["regarding"].get("kind"), each["regarding"].get("name")) == (kind, name)
    ]


def test_an_annotation_that_cannot_be_read_closes_no_node(cluster, mallory):
    """One such pod per node closed the cluster for all, and nothing named it."""
    cluster.create(*(node(f"n{number}") for number in range(2)))
    cluster.scheduler("--no-leader-elect").synced()
    mallory("create", "-f", "-", manifest=pod("runs", gpus=0, cpu="10m"))
    cluster.until(lambda: cluster.pods("mal")["runs"]["spec"].get("nodeName"))
    mallory("annotate", "pod", "runs", f"{FRACTION}=banana")
    for number in range(2):
        placed = pod(f"d{number}", gpus=0, cpu="10m", scheduler="default-scheduler", nodeName=f"n{number}")
        placed["metadata"]["annotations"] = {FRACTION: "banana"}
        mallory("create", "-f", "-", manifest=placed)
    # Its owner gets the error, and what to write; no other is blocked.
    for name in ("runs", "d0", "d1"):
        found = cluster.until(lambda name=name: [note for reason, note in told(cluster, "mal", name) if reason == "InvalidSpec"])
        assert f"annotation {FRACTION}: 'banana' is not a GPU fraction: write a number between 0 and 1" in found[0]
    cluster.create(pod("a", gpus=8), pod("b", gpus=8))
    assert set(cluster.all_placed(2).values()) == {"n0", "n1"}
    assert {each["state"] for each in fairlead(cluster, "nodes")["nodes"]} == {"allocated"}

    # One that waits is refused with the same words.
    waits = pod("waits", gpus=0, annotations={"fairlead.dev/time-limit": "soon"})
    mallory("create", "-f", "-", manifest=waits)
    refusal = cluster.until(lambda: [note for reason, note in told(cluster, "mal", "waits") if reason == "FailedScheduling"])
    assert "annotation fairlead.dev/time-limit: 'soon' is not a duration: write 90s" in refusal[0]
    mallory("annotate", "--overwrite", "pod", "waits", "fairlead.dev/time-limit=1h")
    cluster.until(lambda: cluster.pods("mal")["waits"]["spec"].get("nodeName"))


def test_a_size_that_cannot_be_known_closes_one_node_and_says_who_does(cluster, mallory):
    cluster.create(*(node(f"n{number}") for number in range(2)))
    cluster.scheduler("--no-leader-elect").synced()
    mallory("create", "-f", "-", manifest=pod("exa", gpus=0, memory="10E", scheduler="default-scheduler", nodeName="n0"))
    for where, name, kind in (("mal", "exa", "Pod"), ("default", "n0", "Node")):
        found = cluster.until(lambda about=(where, name, kind): told(cluster, *about))
        assert found[0][0] == "NodeClosed", found
        assert "more than any machine has" in found[0][1] or "larger than any machine" in found[0][1]
    cluster.create(pod("fits"), pod("there", nodeSelector={"kubernetes.io/hostname": "n0"}))
    cluster.until(lambda: cluster.placed().get("fits") == "n1")
    assert "pod mal/exa on n0" in cluster.until(lambda: cluster.condition("there"))[1]
    shown = {each["name"]: each for each in fairlead(cluster, "nodes")["nodes"]}
    assert (shown["n0"]["state"], shown["n0"]["closed_by"]) == ("closed", ["pod mal/exa on n0"])
    assert shown["n1"]["closed_by"] == []
    explained = fairlead(cluster, "explain", "pod/there")
    assert explained["code"] == "NodeClosed"
    assert "pod mal/exa on n0" in explained["message"]
    assert cluster.condition("there")[0] == "Unschedulable"
    mallory("delete", "pod", "exa", "--grace-period=0", "--force")
    cluster.until(lambda: cluster.placed().get("there") == "n0")

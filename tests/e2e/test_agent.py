"""The agent as a process of its own, a node of the real API server, with a job of real processes."""

import json
import ssl
import sys
import urllib.error
import urllib.request

import pytest

from fairlead.api import names
from testbed import tenants
from testbed.objects import ai_job, pod
from testbed.objects import node as a_node
from tests.e2e.planes import COLLECTS, NO_SERVICE_ACCOUNTS, Plane

pytestmark = pytest.mark.e2e


PLANE = Plane(
    COLLECTS,
    ["--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction", NO_SERVICE_ACCOUNTS],  # Node: beside RBAC
    operator=True,
)


def test_a_job_runs_as_processes_on_a_node_that_is_an_agent(cluster, tmp_path):
    agent = cluster.agent("here", "--gpus", "2", "--folder", str(tmp_path / "agent"))
    cluster.until(lambda: cluster.get("/api/v1/nodes/here"))
    cluster.ready("here")
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    made = ai_job("real", workers=2, restart={"limit": 1, "backoff": "1s"})
    script = f"import os, sys, pathlib; p = pathlib.Path({str(tmp_path)!r}) / os.environ['RANK']; p.write_text(os.environ['WORLD_SIZE']); "
    script += "sys.exit(3 if os.environ['FAIRLEAD_ATTEMPT'] == '0' and os.environ['RANK'] == '1' else 0)"
    (container,) = made["spec"]["roles"][0]["template"]["spec"]["containers"]
    container["command"] = [sys.executable, "-c", script]
    cluster.create(made)
    where = "/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/real"
    told = cluster.until(lambda: (found := cluster.get(where).get("status") or {}).get("phase") == "Succeeded" and found)
    assert told["restarts"] == 1, "its first attempt failed"
    assert [(tmp_path / name).read_text() for name in "01"] == ["2", "2"]
    pod = cluster.pods()["real-worker-0-1"]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    sleeps = ai_job("sleeps", workers=1)
    sleeps["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = ["sleep", "1000"]
    cluster.create(sleeps)
    cluster.until(lambda: "Running" in str(cluster.pods().get("sleeps-worker-0-0", {}).get("status")))
    cluster.kubectl("patch", "aijob", "sleeps", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    cluster.until(lambda: "sleeps-worker-0-0" not in cluster.pods())
    agent.kill()


def test_two_jobs_of_an_ordinary_user_share_a_gpu_and_a_restarted_scheduler_knows_it(cluster, tmp_path):
    """Each requests a whole GPU; the API server's objects alone say which two are together."""
    agent = cluster.agent("here", "--gpus", "1", "--folder", str(tmp_path / "agent"))
    cluster.until(lambda: cluster.get("/api/v1/nodes/here"))
    cluster.ready("here")
    small = {"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": "small"}, "spec": {"sharing": "Pairs"}}
    cluster.create(small)
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    ann = tenants.tenant(cluster.plane, "ann", "default")

    def submit(name):
        made = ai_job(name, workers=1, serviceClass="small")
        template = made["spec"]["roles"][0]["template"]["spec"]
        template["terminationGracePeriodSeconds"] = 1
        (container,) = template["containers"]
        container["command"] = ["sh", "-c", f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/{name}; sleep 1000"]
        container["resources"]["requests"]["cpu"] = "100m"
        assert not ann.create(made)

    def runs(name):
        cluster.until(lambda: (tmp_path / name).exists() and (tmp_path / name).read_text() == "0\n")
        return cluster.pods()[f"{name}-worker-0-0"]["metadata"]

    submit("first")
    first = runs("first")
    assert first["annotations"][names.GPU_PARTNER_ANNOTATION] == names.ALONE
    submit("second")
    second = runs("second")
    assert second["annotations"][names.GPU_PARTNER_ANNOTATION] == first["uid"]
    forged = pod("forged", annotations={names.GPU_PARTNER_ANNOTATION: first["uid"]})
    assert not ann.create(forged)
    cluster.until(lambda: "is written by the scheduler" in str(cluster.condition("forged")))
    submit("third")
    cluster.until(lambda: "1 node(s) had no device with enough free capacity" in str(cluster.condition("third-worker-0-0")))
    scheduler.kill()
    cluster.scheduler("--no-leader-elect")
    suspended = ann.kubectl("patch", "aijob", "first", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    assert "patched" in suspended.stdout, suspended.stderr  # a garbage collector may come to a deleted one much later
    assert runs("third")["annotations"][names.GPU_PARTNER_ANNOTATION] == second["uid"]
    agent.kill()


def test_an_agent_reaches_its_own_pods_and_the_secrets_that_they_name(cluster, tmp_path):
    """It has no role of its own: the API server knows it as its node. So much, and no more, can a job on such a node reach."""
    cluster.create(*(secret(name) for name in ("used", "unused")))
    agent = cluster.agent("here", "--gpus", "0", "--folder", str(tmp_path / "agent"))
    cluster.until(lambda: cluster.get("/api/v1/nodes/here"))
    cluster.ready("here")
    reads = pod("reads", gpus=0, nodeName="here", restartPolicy="Never")
    (container,) = reads["spec"]["containers"]
    container["command"] = [sys.executable, "-c", "import os, sys; sys.exit(0 if os.environ['WORD'] == 'used' else 1)"]
    container["env"] = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "used", "key": "word"}}}]
    cluster.create(reads, pod("elsewhere", gpus=0, nodeName="other"), a_node("other"))
    cluster.until(lambda: cluster.pods()["reads"]["status"].get("phase") == "Succeeded")
    agent.kill()
    node = tenants.Tenant(
        cluster.plane, "here", "default", cluster.plane.user("node-here", "system:node:here", ("system:nodes",))
    )
    assert node.get("secret", "used")["metadata"]["name"] == "used"
    for refused in (
        node.kubectl("get", "secret", "unused"),
        node.kubectl("get", "secrets", "--all-namespaces"),
        node.kubectl("delete", "pod", "elsewhere"),
        node.kubectl("label", "node", "other", "mine=true"),
    ):
        assert "orbidden" in refused.stderr, refused
    ended = {"status": {"phase": "Failed"}}
    assert written(cluster.plane, "pods/elsewhere/status", ended) == 403
    assert written(cluster.plane, "pods/reads/status", {"status": {"reason": "Own"}}) == 200


def secret(name):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"word": name}}


def written(plane, path, change):
    """The HTTP status that the node gets for a merge patch in namespace default."""
    context = ssl.create_default_context(cafile=str(plane.authority.path))
    context.load_cert_chain(plane.folder / "node-here.crt", plane.folder / "node-here.key")
    url = f"{plane.url}/api/v1/namespaces/default/{path}"
    headers = {"Content-Type": "application/merge-patch+json"}
    request = urllib.request.Request(url, json.dumps(change).encode(), headers, method="PATCH")
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code

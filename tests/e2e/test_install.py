"""`fairlead install` and `uninstall` on a real API server, and what processes and ordinary users may do then.

No kubelet runs here: the tests write the status of both Deployments, and one starts what their pods would run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import pytest

from fairlead.install import Values, kinds, objects
from testbed import objects as made
from testbed.controlplane import ControlPlane, free_port
from tests.e2e.planes import with_editor

pytestmark = pytest.mark.e2e

LABEL = "app.kubernetes.io/part-of=fairlead"
IMAGE = ("--image", "registry.example/fairlead:1")
MERGE = "application/merge-patch+json"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
WORK = json.dumps(made.ai_job("work"))
DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-system/deployments"


OURS = "system:serviceaccount:kube-system:fairlead-"


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """The API server's audit log, of what our accounts ask for."""
    folder = tmp_path_factory.mktemp("audit")
    rules = [{"level": "Metadata", "users": [OURS + "scheduler", OURS + "operator"]}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    (folder / "policy.yaml").write_text(json.dumps(policy))
    return folder


@pytest.fixture(scope="module")
def plane(audit):
    flags = [f"--audit-policy-file={audit / 'policy.yaml'}", f"--audit-log-path={audit / 'log'}"]
    with ControlPlane("clusterrole-aggregation-controller,serviceaccount-controller", flags=flags) as running:
        running.await_served("/api/v1/namespaces/kube-system")
        running.request("PATCH", "/api/v1/namespaces/kube-system", {"metadata": {"labels": RESTRICTED}}, MERGE)
        yield running


@pytest.fixture
def clean(plane):
    """Nothing is installed but definitions: a server that makes these anew serves them only after a while."""
    yield plane
    done = fairlead(plane, "uninstall")
    assert done.returncode == 0, done.stderr


def fairlead(plane, *arguments, kubeconfig=None):
    command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(kubeconfig or plane.kubeconfig)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def kubectl(plane, *arguments, text=None, kubeconfig=None):
    command = ["kubectl", "--kubeconfig", str(kubeconfig or plane.kubeconfig), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def ours(plane):
    """What carries our label, of every kind that is installed."""
    return {
        f"{kind.kind}/{each['metadata']['name']}"
        for kind in kinds.ORDER
        for each in plane.request("GET", f"{kind.collection('kube-system')}?labelSelector={LABEL}")["items"]
    }


def defined_at_most(plane):
    """Whether nothing of an installation is there but its definitions."""
    return {each.partition("/")[0] for each in ours(plane)} <= {"CustomResourceDefinition"}


def runs(plane):
    """Play the Deployment controller and the kubelets: of both processes one pod is ready."""
    for name in ("fairlead-scheduler", "fairlead-operator"):
        found = plane.request("GET", f"{DEPLOYMENTS}/{name}")
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": 2,
            "updatedReplicas": 2,
            "readyReplicas": 1,
            "availableReplicas": 1,
        }
        plane.request("PATCH", f"{DEPLOYMENTS}/{name}/status", {"status": status}, MERGE)


def installed(plane, *arguments):
    """An installation whose processes start; the finished command."""
    first = fairlead(plane, "install", *IMAGE, "--timeout", "0", *arguments)
    assert first.returncode == 1, first.stderr
    assert "no pod exists" in first.stderr
    runs(plane)
    return fairlead(plane, "install", *IMAGE, *arguments)


def test_the_printed_objects_are_applied_without_a_warning(clean):
    printed = fairlead(clean, "install", *IMAGE, "--dry-run")
    assert printed.returncode == 0
    assert defined_at_most(clean)
    applied = kubectl(clean, "apply", "--server-side", "-f", "-", text=printed.stdout)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert ours(clean) == {f"{each['kind']}/{each['metadata']['name']}" for each in objects(Values(image=IMAGE[1]))}


def test_what_was_installed_is_removed_and_work_stays(clean):
    done = installed(clean)
    assert done.returncode == 0, done.stderr
    assert "objects are applied; waiting" in done.stderr
    for manifest in (made.queue("default"), made.ai_job("work")):
        clean.ensure(manifest)
    removed = fairlead(clean, "uninstall", "-o", "json")
    assert removed.returncode == 0, removed.stderr
    assert json.loads(removed.stdout)["removed"][0].startswith("Deployment/")
    assert ours(clean)
    assert defined_at_most(clean)
    for path in ("queues/default", "namespaces/default/aijobs/work"):
        assert clean.request("GET", f"/apis/fairlead.dev/v1alpha1/{path}")
    assert json.loads(fairlead(clean, "uninstall", "-o", "json").stdout) == {"removed": []}


def test_an_installation_is_brought_to_other_values(clean, tmp_path):
    installed(clean)
    assert "APIService/v1alpha1.visibility.fairlead.dev" in ours(clean)
    values = tmp_path / "values.yaml"
    values.write_text("visibility: false\n")
    changed = installed(clean, "--values", str(values))
    assert changed.returncode == 0, changed.stderr
    assert ours(clean) == {
        f"{each['kind']}/{each['metadata']['name']}" for each in objects(Values(image=IMAGE[1], visibility=False))
    }


def test_a_cluster_is_checked_before_anything_is_written(clean):
    asked = fairlead(clean, "install", *IMAGE, "--check", "-o", "json")
    answer = json.loads(asked.stdout)
    assert (asked.returncode, answer["ready"]) == (0, True), answer
    assert {each["name"]: each["result"] for each in answer["checks"]} == dict.fromkeys(
        ("version", "apis", "rights", "leases"), "passed"
    )
    visitor = clean.user("visitor", "visitor")
    refused = fairlead(clean, "install", *IMAGE, "--check", kubeconfig=visitor)
    assert refused.returncode == 1
    assert "failed  rights: you may not: " in refused.stdout
    assert "create customresourcedefinitions" in refused.stdout
    assert "escalate clusterroles" in refused.stdout
    assert defined_at_most(clean)


def test_whoever_may_edit_a_namespace_may_run_jobs_in_it(clean):
    installed(clean)
    with_editor("vision", "ann")(clean)
    ann = clean.user("ann", "ann")

    def may(verb, resource, group="fairlead.dev", subresource="", namespace="vision"):
        """As the API server decides: kubectl asks first whether there is such a resource, which a process would serve."""
        wanted = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "ann", "groups": ["system:authenticated"], "resourceAttributes": wanted},
        }
        answer = clean.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return answer["status"]["allowed"]

    for _ in range(200):  # until the controller has put the roles together
        if may("create", "aijobs"):
            break
        time.sleep(0.05)
    created = kubectl(clean, "create", "-n", "vision", "-f", "-", text=json.dumps(made.ai_job("work")), kubeconfig=ann)
    assert created.returncode == 0, created.stderr
    assert may("get", "aijobs", "visibility.fairlead.dev", "explanation")
    assert may("delete", "podgroups")
    assert not may("create", "aijobs", namespace="default")
    assert not may("patch", "aijobs", subresource="status")
    assert not may("create", "queues", namespace="")


class Process:
    """What the pods of a Deployment run: its command with its account's token, on loopback and on ports that are free."""

    def __init__(self, plane, name):
        found = plane.request("GET", f"{DEPLOYMENTS}/{name}")
        [container] = found["spec"]["template"]["spec"]["containers"]
        ports = {port: str(free_port()) for port in re.findall(r"0\.0\.0\.0:(\d+)", " ".join(container["args"]))}
        self.port = ports[str(container["readinessProbe"]["httpGet"]["port"])]
        arguments = [re.sub(r"^0\.0\.0\.0:(\d+)$", lambda at: f"127.0.0.1:{ports[at[1]]}", each) for each in container["args"]]
        account = found["spec"]["template"]["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/kube-system/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = plane.request("POST", path, asked)["status"]["token"]
        kubeconfig = plane.write_kubeconfig(name, {"token": token})
        command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(kubeconfig)]
        self.log = plane.kubeconfig.with_name(f"{name}.log")
        environment = {**os.environ, **{each["name"]: each["value"] for each in container.get("env", ())}}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def ready(self):
        """As its readiness probe asks."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def end(self):
        self.process.terminate()
        return self.process.wait(60)


def until(question, what, *processes):
    deadline = time.monotonic() + 120
    while not question():
        logs = "".join(each.log.read_text()[-3000:] for each in processes)
        assert time.monotonic() < deadline, f"{what}\n{logs}"
        assert all(each.process.poll() is None for each in processes), logs
        time.sleep(0.1)


def test_the_processes_run_with_the_rights_of_their_accounts(clean, audit):
    assert fairlead(clean, "install", *IMAGE, "--timeout", "0").returncode == 1
    with_editor("research", "bob")(clean)
    bob = clean.user("bob", "bob")
    for each in (made.node("n1"), made.queue("default", quota=8)):
        clean.ensure(each)
    clean.request("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": None}}, MERGE)  # no kubelet says that it is ready
    processes = [Process(clean, f"fairlead-{name}") for name in ("scheduler", "operator")]
    try:
        for each in processes:
            until(each.ready, "not ready", *processes)
        until(
            lambda: kubectl(clean, "create", "-n", "research", "-f", "-", text=WORK, kubeconfig=bob).returncode == 0,
            "bob may not create an AIJob",
            *processes,
        )
        pods = "/api/v1/namespaces/research/pods"
        until(
            lambda: [each["spec"].get("nodeName") for each in clean.request("GET", pods)["items"]] == ["n1", "n1"],
            "the pods of the job are not placed",
            *processes,
        )
    finally:
        ends = [each.end() for each in processes]
    assert ends == [0, 0], "".join(each.log.read_text()[-3000:] for each in processes)
    asked = [json.loads(line) for line in (audit / "log").read_text().splitlines()]
    assert {each["user"]["username"] for each in asked} == {OURS + "scheduler", OURS + "operator"}
    assert [(each["requestURI"], each["verb"]) for each in asked if each["responseStatus"].get("code") == 403] == []


def test_custom_resources_go_with_their_definitions(clean):
    installed(clean)
    clean.ensure(made.queue("default"))
    fairlead(clean, "uninstall")
    removed = fairlead(clean, "uninstall", "--crds")
    assert "removed: 6 objects" in removed.stdout, removed.stderr
    assert not ours(clean)

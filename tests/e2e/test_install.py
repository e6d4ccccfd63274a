"""`fairlead install` and `uninstall` on a real API server, and what ordinary users may do then.

No kubelet runs here: the tests write the status of both Deployments.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error

import pytest

from fairlead.install import Values, kinds, objects
from testbed import objects as made
from testbed.controlplane import ControlPlane
from tests.e2e.planes import with_editor

LABEL = "app.kubernetes.io/part-of=fairlead"
IMAGE = ("--image", "registry.example/fairlead:1")
MERGE = "application/merge-patch+json"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
DEPLOYMENTS = "/apis/apps/v1/namespaces/kube-system/deployments"


@pytest.fixture(scope="module")
def plane():
    with ControlPlane("clusterrole-aggregation-controller") as running:
        running.await_served("/api/v1/namespaces/kube-system")
        running.request("PATCH", "/api/v1/namespaces/kube-system", {"metadata": {"labels": RESTRICTED}}, MERGE)
        yield running


@pytest.fixture
def clean(plane):
    yield plane
    fairlead(plane, "uninstall", "--crds")


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


def runs(plane, cluster):
    """Play the Deployment controller and the kubelets: of both processes one pod is ready."""
    for name in ("fairlead-scheduler", "fairlead-operator"):
        found = cluster(lambda name=name: read(plane, f"{DEPLOYMENTS}/{name}"))
        status = {
            "observedGeneration": found["metadata"]["generation"],
            "replicas": 2,
            "updatedReplicas": 2,
            "readyReplicas": 1,
            "availableReplicas": 1,
        }
        plane.request("PATCH", f"{DEPLOYMENTS}/{name}/status", {"status": status}, MERGE)


def read(plane, path):
    try:
        return plane.request("GET", path)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def installed(plane, *arguments):
    """An installation whose processes start; the finished command."""
    first = fairlead(plane, "install", *IMAGE, "--timeout", "0", *arguments)
    assert first.returncode == 1, first.stderr
    assert "no pod exists" in first.stderr
    runs(plane, lambda question: question())
    return fairlead(plane, "install", *IMAGE, *arguments)


def test_the_printed_objects_are_applied_without_a_warning(clean):
    printed = fairlead(clean, "install", *IMAGE, "--dry-run")
    assert printed.returncode == 0
    assert not ours(clean)
    applied = kubectl(clean, "apply", "--server-side", "-f", "-", text=printed.stdout)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert ours(clean) == {f"{each['kind']}/{each['metadata']['name']}" for each in objects(Values(image=IMAGE[1]))}


def test_what_was_installed_is_removed_and_work_stays(clean):
    done = installed(clean)
    assert done.returncode == 0, done.stderr
    assert "objects are applied; waiting" in done.stderr
    for manifest in (made.queue("default"), made.ai_job("work")):
        clean.request("POST", made.path(manifest), manifest)
    removed = fairlead(clean, "uninstall", "-o", "json")
    assert removed.returncode == 0, removed.stderr
    assert json.loads(removed.stdout)["removed"][0].startswith("Deployment/")
    assert {each.partition("/")[0] for each in ours(clean)} == {"CustomResourceDefinition"}
    for path in ("queues/default", "namespaces/default/aijobs/work"):
        assert clean.request("GET", f"/apis/fairlead.dev/v1alpha1/{path}")
    assert json.loads(fairlead(clean, "uninstall", "-o", "json").stdout) == {"removed": []}
    assert "removed: 6 objects" in fairlead(clean, "uninstall", "--crds").stdout
    assert not ours(clean)


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
    assert not ours(clean)


def test_whoever_may_edit_a_namespace_may_run_jobs_in_it(clean):
    installed(clean)
    with_editor("vision", "ann")(clean)
    ann = clean.user("ann", "ann")

    def may(verb, what, *more):
        return kubectl(clean, "auth", "can-i", verb, what, *more, kubeconfig=ann).stdout.strip() == "yes"

    for _ in range(100):
        if may("create", "aijobs.fairlead.dev", "-n", "vision"):
            break
    created = kubectl(clean, "create", "-n", "vision", "-f", "-", text=json.dumps(made.ai_job("work")), kubeconfig=ann)
    assert created.returncode == 0, created.stderr
    assert may("get", "aijobs.visibility.fairlead.dev", "--subresource=explanation", "-n", "vision")
    assert may("delete", "podgroups.fairlead.dev", "-n", "vision")
    assert not may("create", "aijobs.fairlead.dev", "-n", "default")
    assert not may("patch", "aijobs.fairlead.dev", "--subresource=status", "-n", "vision")
    assert not may("create", "queues.fairlead.dev")

"""`fairlead install` and `uninstall` on a real API server. What is installed is started as it is written, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from fairlead.install import NAMESPACE, Values, installed, kinds
from fairlead.install.accounts import usernames
from testbed import objects as made
from testbed.controlplane import ControlPlane
from testbed.kubelet import MERGE, Kubelet, audit_flags, audited
from tests.e2e.planes import with_editor
from tests.waiting import until

pytestmark = pytest.mark.e2e

LABEL = "app.kubernetes.io/part-of=fairlead"
IMAGE = ("--image", "registry.example/fairlead:1")
CONTROLLERS = (
    "clusterrole-aggregation-controller,namespace-controller,deployment-controller,replicaset-controller,"
    "serviceaccount-controller,root-ca-certificate-publisher-controller,garbage-collector-controller"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("install")


@pytest.fixture(scope="module")
def plane(folder):
    with ControlPlane(CONTROLLERS, flags=audit_flags(folder, *usernames(NAMESPACE))) as running:
        running.await_served("/api/v1/namespaces/default/serviceaccounts/default")
        yield running


@pytest.fixture
def clean(plane):
    yield plane
    done = fairlead(plane, "uninstall")
    assert done.returncode == 0, done.stderr
    assert defined_at_most(plane)


@pytest.fixture
def kubelet(plane, tmp_path):
    with Kubelet(plane, tmp_path, NAMESPACE) as playing:
        yield playing
        assert fairlead(plane, "uninstall").returncode == 0


LONG = "600"  # seconds until processes are up, or gone, on a slow machine


def fairlead(plane, *arguments, kubeconfig=None):
    command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(kubeconfig or plane.kubeconfig)]
    command += ["--timeout", LONG] if arguments[0] in ("install", "uninstall") and "--timeout" not in arguments else []
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)


def kubectl(plane, *arguments, text=None, kubeconfig=None):
    command = ["kubectl", "--kubeconfig", str(kubeconfig or plane.kubeconfig), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


def ours(plane):
    """What carries our label, of every kind that is installed: by path."""
    return {
        kind.path(each["metadata"]): each
        for kind in kinds.ORDER
        for each in (plane.find(f"{kind.collection()}?labelSelector={LABEL}") or {"items": []})["items"]
    }


def defined_at_most(plane):
    """Whether nothing of an installation is there but its definitions."""
    return {path.split("/")[4] for path in ours(plane)} <= {"customresourcedefinitions"}


def expected(**values):
    return {kinds.path(each) for each in installed(Values(image=IMAGE[1], **values))}


def test_the_printed_objects_are_the_same_each_time_and_are_applied_without_a_warning(clean):
    printed = fairlead(clean, "install", *IMAGE, "--dry-run")
    assert (printed.returncode, printed.stderr) == (0, "")
    assert fairlead(clean, "install", *IMAGE, "--dry-run").stdout == printed.stdout
    assert defined_at_most(clean)
    applied = kubectl(clean, "apply", "--server-side", "-f", "-", text=printed.stdout)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert set(ours(clean)) == expected()


def test_what_is_installed_runs_and_ordinary_users_run_jobs_on_it(clean, kubelet, folder):
    done = fairlead(clean, "install", *IMAGE)
    assert done.returncode == 0, done.stderr + kubelet.logs()
    before = ours(clean)
    assert set(before) == expected()
    again = fairlead(clean, "install", *IMAGE, "-o", "json")
    assert (again.returncode, json.loads(again.stdout)["removed"]) == (0, [])
    for path, each in ours(clean).items():
        assert each["metadata"].get("generation") == before[path]["metadata"].get("generation")
        if not each.get("status"):
            assert each["metadata"]["resourceVersion"] == before[path]["metadata"]["resourceVersion"], path

    with_editor("vision", "ann")(clean)
    ann = clean.user("ann", "ann")
    for manifest in (made.queue("default"), made.node("n", gpus=8)):
        clean.request("POST", made.path(manifest), manifest)
    clean.request("PATCH", "/api/v1/nodes/n", {"spec": {"taints": None}}, MERGE)
    job = json.dumps(made.ai_job("work"))
    until(lambda: clean.find("/api/v1/namespaces/vision/serviceaccounts/default"))
    until(
        lambda: kubectl(clean, "auth", "can-i", "create", "aijobs.fairlead.dev", "-n", "vision", kubeconfig=ann).returncode == 0
    )
    created = kubectl(clean, "create", "-n", "vision", "-f", "-", text=job, kubeconfig=ann)
    assert created.returncode == 0, created.stderr
    pods = "/api/v1/namespaces/vision/pods"
    placed = until(
        lambda: (found := clean.request("GET", pods)["items"]) and all(each["spec"].get("nodeName") for each in found) and found,
        kubelet.logs,
    )
    assert [each["spec"]["nodeName"] for each in placed] == ["n", "n"]
    assert {each["metadata"]["annotations"]["fairlead.dev/user"] for each in placed} == {"ann"}

    removed = fairlead(clean, "uninstall", "-o", "json")
    assert removed.returncode == 0, removed.stderr
    answer = json.loads(removed.stdout)
    assert (answer["removed"][0].partition("/")[0], answer["kept"]) == ("Deployment", [])
    assert ours(clean)
    assert defined_at_most(clean)
    assert clean.find(f"/api/v1/namespaces/{NAMESPACE}") is None
    for path in ("queues/default", "namespaces/vision/aijobs/work"):
        assert clean.request("GET", f"/apis/fairlead.dev/v1alpha1/{path}")
    assert {each["metadata"]["uid"] for each in clean.request("GET", pods)["items"]} == {
        each["metadata"]["uid"] for each in placed
    }
    assert json.loads(fairlead(clean, "uninstall", "-o", "json").stdout) == {"removed": [], "kept": []}

    asked = audited(folder)
    assert {each["user"]["username"] for each in asked} == set(usernames(NAMESPACE))
    refused = Counter(
        (each["user"]["username"].rpartition(":")[2], each["verb"], each["requestURI"].partition("?")[0])
        for each in asked
        if each["responseStatus"]["code"] in (401, 403)
    )
    assert not refused


def test_an_installation_is_brought_to_other_values_and_what_others_made_stays(clean, kubelet, tmp_path):
    assert fairlead(clean, "install", *IMAGE).returncode == 0, kubelet.logs()
    assert "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.fairlead.dev" in ours(clean)
    values = tmp_path / "values.yaml"
    values.write_text("aggregatedApi: false\nconfiguration: {profiles: [{schedulerName: gpus, profile: ai}]}\n")
    changed = fairlead(clean, "install", *IMAGE, "--values", str(values))
    assert changed.returncode == 0, changed.stderr + kubelet.logs()
    configuration = {"profiles": [{"schedulerName": "gpus", "profile": "ai"}]}
    assert set(ours(clean)) == expected(aggregated_api=False, configuration=configuration)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}}
    clean.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    removed = fairlead(clean, "uninstall")
    assert f"namespace {NAMESPACE} stays" in removed.stderr
    clean.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/secrets/database")


def test_the_api_server_reaches_the_leader_by_the_name_of_its_service(clean, kubelet):
    """The certificate is that of the Service in its namespace. Its endpoint is the leader's, in place of which the API server
    is sent to where that is on this machine."""
    assert fairlead(clean, "install", *IMAGE).returncode == 0, kubelet.logs()
    leader = until(
        lambda: next((pod for pod in kubelet.addresses if '"event": "serving"' in kubelet.log(pod)), None), kubelet.logs
    )
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/fairlead-visibility"
    [endpoint] = until(lambda: clean.find(slices), kubelet.logs)["endpoints"]
    assert endpoint["addresses"] == [kubelet.ip(leader)]
    spec = {"type": "ExternalName", "externalName": kubelet.addresses[leader], "ports": [{"port": 6443}], "clusterIP": None}
    path = f"/api/v1/namespaces/{NAMESPACE}/services/fairlead-visibility"
    clean.request("PATCH", path, {"spec": {**spec, "clusterIPs": None, "selector": None}}, MERGE)
    api = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.fairlead.dev"
    clean.request("PATCH", api, {"spec": {"service": {"port": 6443}}}, MERGE)
    rows = clean.await_served("/apis/visibility.fairlead.dev/v1alpha1/queues")["items"]
    assert [each["metadata"]["name"] for each in rows] == ["default"]


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
    assert "escalate clusterroles" in refused.stdout
    applied = fairlead(clean, "install", *IMAGE, kubeconfig=visitor)
    assert applied.returncode == 1
    assert "nothing is applied" in applied.stderr
    assert defined_at_most(clean)


def test_why_nothing_runs_is_reported(clean):
    done = fairlead(clean, "install", *IMAGE, "--timeout", "3")
    assert done.returncode == 1
    assert "scheduler and operator do not run after 3 s" in done.stderr
    assert "fairlead-operator: 0 of its 2 pods are ready" in done.stderr


def test_users_may_do_in_their_namespaces_what_their_roles_contain(clean):
    """As the API server decides: `kubectl auth can-i` asks first for resources, which only a process would serve."""
    assert fairlead(clean, "install", *IMAGE, "--timeout", "0").returncode == 1
    with_editor("speech", "bea")(clean)

    def may(verb, resource, group="fairlead.dev", subresource="", namespace="speech"):
        wanted = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "bea", "groups": ["system:authenticated"], "resourceAttributes": wanted},
        }
        answer = clean.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return answer["status"]["allowed"]

    until(lambda: may("create", "aijobs"), limit=float(LONG))  # the controller has put the roles together
    assert may("get", "aijobs", "visibility.fairlead.dev", "explanation")
    assert may("delete", "podgroups")
    assert not may("create", "aijobs", namespace="default")
    assert not may("patch", "aijobs", subresource="status")
    assert not may("create", "queues", namespace="")


def test_custom_resources_go_with_their_definitions(clean):
    assert fairlead(clean, "install", *IMAGE, "--timeout", "0").returncode == 1
    clean.ensure(made.queue("default"))
    removed = fairlead(clean, "uninstall", "--crds")
    assert removed.returncode == 0, removed.stderr
    assert not ours(clean)

"""What must be survived: crashes, a restarted API server, compaction, rotated tokens, refused bindings."""

import base64
import json
import signal
import urllib.error
import urllib.request

import pytest

from fairlead.api import names, policies
from testbed import objects
from testbed.objects import node, pod, pod_group

pytestmark = pytest.mark.e2e

SHARES = {"sharing": "Pairs"}


def test_kill_and_restart_in_the_middle(cluster):
    cluster.create(*(node(f"n{i}") for i in range(10)), *(pod_group(f"g{i}", 8) for i in range(5)))
    cluster.create(*(pod(f"g{i}-{m}", group=f"g{i}") for i in range(5) for m in range(8)), *(pod(f"p{i}") for i in range(40)))
    first = cluster.scheduler("--writers", "2", "--no-leader-elect")
    cluster.until(lambda: len(cluster.placed()) > 5)
    first.kill()
    cluster.scheduler("--no-leader-elect")
    placed = cluster.all_placed(80)
    assert len(placed) == 80
    assert not cluster.over_allocated()


def test_a_place_that_victims_leave_is_held_again_by_the_next_leader(cluster):
    urgent = {"metadata": {"name": "urgent"}, "value": 100}
    cluster.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **urgent})
    cluster.create(node("n0", gpus=4), node("n1", gpus=4))
    slow = {"terminationGracePeriodSeconds": 600}
    cluster.create(*(objects.pod(f"low-{each}", gpus=4, **slow) for each in range(2)))
    first = cluster.scheduler("--no-leader-elect")
    cluster.all_placed(2)
    where = cluster.placed()
    cluster.create(objects.pod("mine", gpus=4, priorityClassName="urgent"))
    held = cluster.until(lambda: cluster.pods()["mine"]["status"].get("nominatedNodeName"))
    victim = next(name for name, at in where.items() if at == held)
    cluster.until(lambda: cluster.pods()[victim]["metadata"].get("deletionTimestamp"))
    first.kill()
    # Small pods that come meanwhile would fit beside it.
    cluster.create(*(objects.pod(f"small-{each}", gpus=1, priorityClassName="urgent") for each in range(4)))
    cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: f"default/{victim}" in str(cluster.condition("mine")))
    force = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
    cluster.plane.request("DELETE", f"/api/v1/namespaces/default/pods/{victim}", force)
    cluster.until(lambda: cluster.placed().get("mine") == held)


def moves_soon(folder):
    """The path of a configuration by which pods are moved for what has waited for a second."""
    config = {
        "apiVersion": "config.fairlead.dev/v1alpha1",
        "kind": "SchedulerConfiguration",
        "consolidation": {"patienceSeconds": 1},
    }
    (path := folder / "config.json").write_text(json.dumps(config))
    return path


def replica(name, **spec):
    """A pod of the ReplicaSet `train`, with ten minutes to end."""
    made = objects.pod(name, terminationGracePeriodSeconds=600, **spec)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "train", "uid": "uid-train", "controller": True}
    return {**made, "metadata": {**made["metadata"], "ownerReferences": [owner]}}


def test_the_new_place_of_a_pod_that_is_moved_is_reserved_again_by_the_next_leader(cluster, tmp_path):
    path = moves_soon(tmp_path)
    cluster.create(
        node("n0", gpus=4), node("n1", gpus=4), *(objects.pod(f"fill-{each}", nodeName=f"n{each}") for each in range(2))
    )
    cluster.create(*(replica(f"train-{each}") for each in range(6)))
    first = cluster.scheduler("--no-leader-elect", "--config", str(path))
    cluster.all_placed(8)
    force = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
    for each in range(2):
        cluster.plane.request("DELETE", f"/api/v1/namespaces/default/pods/fill-{each}", force)
    cluster.create(objects.pod("wide", gpus=2))
    held = cluster.until(lambda: cluster.pods()["wide"]["status"].get("nominatedNodeName"))
    (victim,) = cluster.until(
        lambda: [name for name, each in cluster.pods().items() if each["metadata"].get("deletionTimestamp")]
    )
    found = {each["type"]: each.get("message") for each in cluster.pods()[victim]["status"]["conditions"]}
    assert found["fairlead.dev/MovesTo"] == {"n0": "n1", "n1": "n0"}[held]
    first.kill()
    cluster.create(objects.pod("thief", gpus=1))
    cluster.scheduler("--no-leader-elect", "--config", str(path))
    cluster.until(lambda: f"default/{victim}" in str(cluster.condition("wide")) and cluster.condition("thief"))
    cluster.plane.request("DELETE", f"/api/v1/namespaces/default/pods/{victim}", force)
    cluster.until(lambda: cluster.placed().get("wide") == held)
    assert "thief" not in cluster.placed()
    cluster.create(replica("again"))
    assert cluster.until(lambda: cluster.placed().get("again")) == found["fairlead.dev/MovesTo"]
    assert "thief" not in cluster.placed()


def test_the_new_place_of_a_pod_that_is_gone_is_reserved_again_by_the_next_leader(cluster, tmp_path):
    """It left, and the scheduler was killed, before its controller created another."""
    path = moves_soon(tmp_path)
    cluster.create(node("n0", gpus=4), node("n1", gpus=4))
    cluster.create(*(replica(f"train-{each}", nodeName=f"n{each % 2}") for each in range(6)), objects.pod("wide", gpus=2))
    first = cluster.scheduler("--config", str(path))
    held = cluster.until(lambda: cluster.pods()["wide"]["status"].get("nominatedNodeName"))
    (victim,) = cluster.until(
        lambda: [name for name, each in cluster.pods().items() if each["metadata"].get("deletionTimestamp")]
    )
    uid = cluster.pods()[victim]["metadata"]["uid"]
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler"
    cluster.until(lambda: uid in str(cluster.get(lease)["metadata"].get("annotations")))
    first.kill()
    force = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
    cluster.plane.request("DELETE", f"/api/v1/namespaces/default/pods/{victim}", force)
    cluster.create(objects.pod("thief", gpus=1))
    cluster.scheduler("--config", str(path))
    cluster.until(lambda: cluster.placed().get("wide") == held and cluster.condition("thief"))
    assert "thief" not in cluster.placed()
    cluster.create(replica("again"))
    assert cluster.until(lambda: cluster.placed().get("again")) == {"n0": "n1", "n1": "n0"}[held]
    assert "thief" not in cluster.placed()
    cluster.until(lambda: "kept-places" not in str(cluster.get(lease)["metadata"].get("annotations")))


def test_what_was_learned_of_jobs_that_share_gpus_is_known_to_the_next_leader(cluster):
    """One failed beside the other; no object of either is left when the scheduler is killed."""
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler"
    cluster.create({"apiVersion": names.API_VERSION, "kind": "ServiceClass", "metadata": {"name": "small"}, "spec": SHARES})
    cluster.create(node("n0", gpus=1, labels={names.GPU_SHARING_LABEL: names.OWN_AGENT}))

    def submit(*named):
        cluster.create(*(pod(name, labels={names.SERVICE_CLASS_LABEL: "small"}) for name in named))

    def report(name, phase):
        path, kind = f"/api/v1/namespaces/default/pods/{name}/status", "application/merge-patch+json"
        began = cluster.pods()[name]["metadata"]["creationTimestamp"]
        cluster.plane.request("PATCH", path, {"status": {"phase": phase, "startTime": began}}, kind)

    first = cluster.scheduler()
    submit("resnet-1", "bert-1")
    cluster.all_placed(2)
    report("resnet-1", "Running")
    report("bert-1", "Running")
    report("bert-1", "Failed")
    cluster.until(lambda: "bert" in str(cluster.get(f"{lease}-pair-speeds")))
    cluster.until(lambda: "fairlead-scheduler-pair-speeds" in str(cluster.get(lease)["metadata"].get("annotations")))
    first.kill()
    force = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
    for name in ("resnet-1", "bert-1"):
        cluster.plane.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", force)
    cluster.scheduler()
    submit("resnet-2", "bert-2")
    cluster.until(lambda: cluster.placed() and any(cluster.condition(name) for name in ("resnet-2", "bert-2")))
    assert len(cluster.placed()) == 1
    submit("gcn-1")
    cluster.until(lambda: "gcn-1" in cluster.placed())
    assert len(cluster.placed()) == 2


def test_a_standby_takes_over_and_the_old_epoch_is_refused(cluster):
    plural = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    for manifest in policies.fencing():
        cluster.plane.request("POST", f"/apis/admissionregistration.k8s.io/v1/{plural[manifest['kind']]}", manifest)
    try:
        cluster.create(node("n"), pod("first"))
        leader = cluster.scheduler()
        cluster.all_placed(1)
        assert cluster.pods()["first"]["metadata"]["annotations"]["fairlead.dev/epoch"] == "1"
        standby = cluster.scheduler()
        leader.kill()
        cluster.create(pod("second"), pod("third", scheduler="nobody"))
        cluster.until(lambda: "second" in cluster.placed())
        assert standby.logged("leading")[0]["epoch"] == 2
        third = cluster.pods()["third"]["metadata"]

        def bind(epoch):
            metadata = {"name": "third", "uid": third["uid"], "annotations": {"fairlead.dev/epoch": epoch}}
            body = {"metadata": metadata, "target": {"kind": "Node", "name": "n"}}
            cluster.plane.request("POST", "/api/v1/namespaces/default/pods/third/binding?dryRun=All", body)

        def refused():
            try:
                bind("1")
            except urllib.error.HTTPError as error:
                return "stale scheduler" in json.loads(error.read())["message"]
            return False

        cluster.until(refused)  # policies take a moment to become active
        bind("2")
    finally:
        for each in reversed(plural.values()):
            cluster.delete(f"/apis/admissionregistration.k8s.io/v1/{each}/fairlead-fencing")


def test_the_api_server_is_restarted_under_it(cluster):
    cluster.create(node("n"), pod("before"))
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.all_placed(1)
    cluster.plane.stop_process("kube-apiserver", kill=True)
    cluster.plane.start_apiserver()
    cluster.create(pod("after"))
    cluster.all_placed(2)
    assert scheduler.process.poll() is None


def test_a_compacted_history_is_listed_anew(cluster):
    cluster.create(node("a", gpus=1), node("b", gpus=2), pod("old"))
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.all_placed(1)
    scheduler.signal(signal.SIGSTOP)
    try:
        cluster.delete("/api/v1/namespaces/default/pods/old")
        cluster.delete("/api/v1/nodes/a")
        # Only b has room for it: of what happened just before the server is killed, a watch may have received it and no more.
        cluster.create(pod("new", gpus=2))
        cluster.plane.stop_process("kube-apiserver", kill=True)
        compact(cluster.plane)
        cluster.plane.flags = ["--watch-cache=false"]  # watches go to etcd itself, which knows what it compacted
        cluster.plane.start_apiserver()
    finally:
        cluster.plane.flags = []
        scheduler.signal(signal.SIGCONT)
    assert cluster.all_placed(1) == {"new": "b"}
    cluster.until(lambda: len(scheduler.logged("watch too old, listing again")) >= 4)
    cluster.create(node("c", gpus=1), pod("later"))
    assert cluster.all_placed(2) == {"new": "b", "later": "c"}


def compact(plane):
    """Throw away etcd's history up to now."""

    def call(path, body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{plane.etcd_port}/v3/kv/{path}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.loads(reply.read())

    for number in range(8):  # revisions that no watch has seen
        put = {"key": base64.b64encode(b"elsewhere").decode(), "value": base64.b64encode(b"%d" % number).decode()}
        revision = call("put", put)["header"]["revision"]
    call("compaction", {"revision": revision, "physical": True})


def test_a_rotated_token_file_is_followed(cluster, tmp_path):
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "fairlead", "namespace": "kube-system"}}
    path = "/api/v1/namespaces/kube-system/serviceaccounts"
    rights = [each for each in objects.rights("system:serviceaccount:kube-system:fairlead") if each["kind"].endswith("Binding")]
    for manifest in rights:
        manifest["metadata"]["name"] = "fairlead-service-account"
        cluster.create(manifest)
    file = tmp_path / "token"

    def rotate():
        """A new account of the same name: tokens of the old one are worth nothing from now on."""
        cluster.delete(f"{path}/fairlead")
        cluster.plane.request("POST", path, account)
        spec = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        reply = cluster.plane.request("POST", f"{path}/fairlead/token", spec)
        file.write_text(reply["status"]["token"])

    rotate()
    cluster.create(node("n"), pod("first"))
    scheduler = cluster.scheduler(
        "--no-leader-elect", kubeconfig=cluster.plane.write_kubeconfig("token", {"tokenFile": str(file)})
    )
    cluster.all_placed(1)
    rotate()
    cluster.create(pod("second"))
    cluster.all_placed(2)
    assert scheduler.process.poll() is None


def test_a_gang_is_completed_after_one_binding_was_refused(cluster):
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-g-2"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
                ]
            },
            "validations": [{"expression": "object.metadata.name != 'g-2'", "message": "not g-2"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-g-2"},
        "spec": {"policyName": "no-g-2", "validationActions": ["Deny"]},
    }
    base = "/apis/admissionregistration.k8s.io/v1"
    cluster.create(node("n"), pod("g-2"))
    cluster.plane.request("POST", f"{base}/validatingadmissionpolicies", policy)
    cluster.plane.request("POST", f"{base}/validatingadmissionpolicybindings", binding)

    def active():
        body = {"metadata": {"name": "g-2"}, "target": {"kind": "Node", "name": "n"}}
        try:
            cluster.plane.request("POST", "/api/v1/namespaces/default/pods/g-2/binding?dryRun=All", body)
        except urllib.error.HTTPError:
            return True
        return False

    cluster.until(active)
    cluster.delete("/api/v1/namespaces/default/pods/g-2")
    cluster.create(pod_group("g", 4), *(pod(f"g-{i}", group="g") for i in range(4)))
    scheduler = cluster.scheduler("--no-leader-elect")
    try:
        cluster.until(lambda: scheduler.logged("binding refused"))
        cluster.until(lambda: [each for each in cluster.events("g-2") if "was refused" in each[1]])
    finally:
        cluster.delete(f"{base}/validatingadmissionpolicybindings/no-g-2")
        cluster.delete(f"{base}/validatingadmissionpolicies/no-g-2")
    assert len(cluster.all_placed(4)) == 4

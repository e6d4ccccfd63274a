"""Whose a pod is, by the API server's own word: stamped at creation, never changed, asked by queues and classes."""

import json
import subprocess

import pytest

from fairlead.api import policies
from testbed.objects import job, node, pod, queue, service_class
from tests.e2e.planes import Plane

pytestmark = pytest.mark.e2e

STAMP = "fairlead.dev/user"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


PLANE = Plane("job-controller,serviceaccount-controller")  # which make pods for a Job


class Person:
    def __init__(self, cluster, name):
        self.kubeconfig = cluster.plane.user(name, name, ("people",))

    def kubectl(self, *arguments, manifest=None):
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        text = None if manifest is None else json.dumps(manifest)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    def create(self, manifest):
        return self.kubectl("create", "-f", "-", manifest=manifest)


@pytest.fixture
def people(cluster):
    """Two users who may do anything, and the policies in force."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "people"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "people"}],
    }
    cluster.plane.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", role)
    made = policies.policies()
    for manifest in made:
        cluster.plane.request("POST", f"{REGISTRATION}/{PLURALS[manifest['kind']]}", manifest)
    ann, bob = Person(cluster, "ann"), Person(cluster, "bob")

    def active():
        """Policies take a moment to become active."""
        probe = pod("probe")
        ann.create(probe)
        seen = cluster.pods()["probe"]["metadata"].get("annotations", {}).get(STAMP)
        changed = ann.kubectl("annotate", "--overwrite", "pod", "probe", f"{STAMP}=mallory").returncode
        cluster.delete("/api/v1/namespaces/default/pods/probe")
        return seen == "ann" and changed

    try:
        cluster.until(active)
        yield ann, bob
    finally:
        for manifest in reversed(made):
            cluster.delete(f"{REGISTRATION}/{PLURALS[manifest['kind']]}/{manifest['metadata']['name']}")
        cluster.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/people")
        for path in ("batch/v1/namespaces/default/jobs", "batch/v1/namespaces/default/cronjobs"):
            cluster.delete(f"/apis/{path}")


def stamp(thing):
    return thing["metadata"].get("annotations", {}).get(STAMP)


def test_the_creator_is_stamped_on_it_and_on_its_pods(cluster, people):
    ann, bob = people
    forged = pod("forged")
    forged["metadata"]["annotations"] = {STAMP: "ann"}
    assert bob.create(forged).returncode == 0
    assert stamp(cluster.pods()["forged"]) == "bob", "what a user claims is not believed"
    refused = bob.kubectl("annotate", "--overwrite", "pod", "forged", f"{STAMP}=ann")
    assert refused.returncode != 0
    assert "cannot be changed" in refused.stderr
    assert bob.kubectl("annotate", "pod", "forged", "other=fine").returncode == 0

    template = job("train", pods=2)
    template["spec"]["template"]["metadata"] = {"annotations": {STAMP: "bob"}}
    assert ann.create(template).returncode == 0
    found = cluster.until(lambda: [each for name, each in cluster.pods().items() if name.startswith("train-")])
    assert {stamp(each) for each in found} == {"ann"}, "the Job's controller passes on whose it is"
    # Another user stops it: that does not change its user.
    assert bob.kubectl("patch", "job", "train", "-p", '{"spec": {"suspend": true}}').returncode == 0
    assert stamp(cluster.get("/apis/batch/v1/namespaces/default/jobs/train")) == "ann"

    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job("x", pods=1)["spec"]}},
    }
    created = ann.create(cron)
    assert created.returncode == 0, created.stderr
    seen = cluster.get("/apis/batch/v1/namespaces/default/cronjobs/nightly")["spec"]["jobTemplate"]
    assert stamp(seen) == "ann"
    assert stamp(seen["spec"]["template"]) == "ann"


def test_queues_and_classes_refuse_whom_they_do_not_admit(cluster, people):
    ann, bob = people
    mine, closed = queue("anns"), queue("closed")
    mine["spec"]["users"] = ["ann"]
    closed["spec"]["namespaceSelector"] = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["vision"]}]}
    cluster.create(node("n", gpus=8), mine, closed, service_class("best", users=["bob"]), service_class("batch"))

    def told(person, manifest):
        answer = person.create(manifest)
        cluster.delete(f"/api/v1/namespaces/default/pods/{manifest['metadata']['name']}")
        return answer.stderr if answer.returncode else ""

    best = {"fairlead.dev/service-class": "best"}
    cluster.until(lambda: "user bob may not use queue anns" in told(bob, pod("his", queue="anns")))
    assert told(ann, pod("hers", queue="anns")) == ""
    assert "namespace default may not use queue closed" in told(ann, pod("stranger", queue="closed"))
    assert "user ann may not use ServiceClass best" in told(ann, pod("first", labels=best))
    assert told(bob, pod("second", labels=best)) == ""
    # A Job is refused itself, not only the pods that it would make.
    sneaky = job("sneaky", pods=1)
    sneaky["spec"]["template"]["metadata"] = {"labels": {"fairlead.dev/queue": "anns"}}
    assert "user bob may not use queue anns" in bob.create(sneaky).stderr


def test_users_limits_go_by_the_stamp(cluster, people):
    ann, bob = people
    shared = queue("shared")
    shared["spec"]["perUser"] = {"resources": {"nvidia.com/gpu": 2}, "running": 5}
    cluster.create(node("n", gpus=8), shared)
    for i in range(3):
        assert ann.create(pod(f"ann-{i}", queue="shared")).returncode == 0
    assert bob.create(pod("bob-0", queue="shared")).returncode == 0
    cluster.scheduler("--no-leader-elect")
    cluster.all_placed(3)
    waiting = next(name for name in cluster.pods() if name not in cluster.placed())
    cluster.until(lambda: cluster.condition(waiting))
    assert waiting.startswith("ann")
    assert cluster.condition(waiting)[0] == "UserLimit"

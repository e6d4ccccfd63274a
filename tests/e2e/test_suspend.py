"""Suspending real Jobs on the real API server: they give way as a whole, keep their place, and come back."""

import json

import pytest

from testbed.objects import job, node, pod, pod_group, queue, service_class
from tests.e2e.planes import NO_SERVICE_ACCOUNTS, Plane, with_urgent

pytestmark = pytest.mark.e2e

CONTROLLERS = "job-controller,serviceaccount-controller,garbage-collector-controller"


PLANE = Plane(CONTROLLERS, [NO_SERVICE_ACCOUNTS], operator=True, prepare=with_urgent)


BATCH = service_class("batch", preemption={"mode": "Suspend"})


def batch_job(name, pods, group=""):
    made = job(name, pods=pods)
    labels = {"fairlead.dev/service-class": "batch", **({"fairlead.dev/pod-group": group} if group else {})}
    made["spec"]["template"]["metadata"]["labels"] = labels
    return made


def job_of(cluster, name):
    return cluster.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")


def suspended(cluster, name):
    return job_of(cluster, name)["spec"].get("suspend", False)


def group_of(cluster, name):
    return cluster.get(f"/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/{name}")


def annotations(cluster, name):
    return job_of(cluster, name)["metadata"].get("annotations") or {}


def bound(cluster, prefix):
    return sorted(name for name in cluster.placed() if name.startswith(prefix))


def test_a_job_gives_way_as_a_whole_and_comes_back(cluster):
    cluster.create(node("n", gpus=4), BATCH, batch_job("train", 3))
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    cluster.all_placed(3)
    cluster.create(pod("urgent", gpus=2, priorityClassName="urgent"))
    cluster.until(lambda: "urgent" in cluster.placed())
    assert suspended(cluster, "train")
    assert annotations(cluster, "train")["fairlead.dev/suspended-by"] == "policy"
    cluster.until(lambda: not bound(cluster, "train"))
    group = cluster.until(
        lambda: (found := group_of(cluster, "job-batch.train")) and found["status"].get("phase") == "Suspended" and found
    )
    assert group["status"]["target"]["state"] == "Suspended"
    assert group["metadata"]["ownerReferences"][0]["name"] == "train"
    cluster.until(lambda: (group_of(cluster, "job-batch.train")["status"].get("reason") or {}).get("code") == "Resources")
    cluster.until(lambda: "Suspended" in {reason for reason, _ in cluster.events("job-batch.train")})
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.until(lambda: len(bound(cluster, "train")) == 3)
    assert not suspended(cluster, "train")
    assert "fairlead.dev/suspended-by" not in annotations(cluster, "train")
    cluster.until(lambda: group_of(cluster, "job-batch.train") is None)
    assert not job_of(cluster, "train")["status"].get("failed"), "it was no failure"


def test_a_gang_is_suspended_through_its_own_group_and_a_restart_forgets_nothing(cluster):
    cluster.create(node("n", gpus=4), BATCH, pod_group("gang", 4), batch_job("gang", 4, "gang"))
    first = cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    cluster.all_placed(4)
    cluster.create(pod("urgent", priorityClassName="urgent"))
    cluster.until(lambda: "urgent" in cluster.placed() and not bound(cluster, "gang"))
    first.kill()
    cluster.scheduler("--no-leader-elect").synced()
    cluster.until(lambda: group_of(cluster, "gang")["status"].get("phase") == "Suspended")
    told = json.loads(cluster.kubectl("get", "podgroup", "gang", "-o", "json"))
    assert sum(each["count"] for each in told["status"]["target"]["members"]) == 4
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.until(lambda: len(bound(cluster, "gang")) == 4)
    cluster.until(lambda: group_of(cluster, "gang")["status"].get("phase") == "Scheduled")
    assert group_of(cluster, "gang")["status"]["target"]["state"] == "Running"


def test_suspend_belongs_to_the_user(cluster):
    cluster.create(node("n", gpus=4), BATCH, batch_job("own", 2))
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    cluster.all_placed(2)
    cluster.create(pod("urgent", gpus=4, priorityClassName="urgent"))
    cluster.until(lambda: "urgent" in cluster.placed() and suspended(cluster, "own"))
    cluster.until(lambda: (group_of(cluster, "job-batch.own") or {}).get("status", {}).get("phase") == "Suspended")
    # The user resumes it: its pods wait like any others, and it is not suspended again.
    cluster.kubectl("patch", "job", "own", "--type=merge", "-p", '{"spec":{"suspend":false}}')
    cluster.until(lambda: group_of(cluster, "job-batch.own") is None)
    assert "fairlead.dev/suspended-by" not in annotations(cluster, "own")
    assert not suspended(cluster, "own")
    # The user suspends it: nothing else resumes it.
    cluster.kubectl("patch", "job", "own", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    cluster.until(lambda: not [name for name in cluster.pods() if name.startswith("own")])
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.create(pod("other"))
    cluster.until(lambda: "other" in cluster.placed())
    assert suspended(cluster, "own")


def test_places_that_are_held_for_a_suspended_job_are_held_again_by_the_next_leader(cluster):
    """`late` fits where the victim leaves, too, and its queue holds the smaller part of its share."""
    train = batch_job("train", 3)
    train["spec"]["template"]["metadata"]["labels"]["fairlead.dev/queue"] = "a"
    urgent = pod("urgent", gpus=4, priorityClassName="urgent", queue="a")
    cluster.create(queue("a", quota=3), queue("b", quota=4), queue("c", quota=0), node("n", gpus=4), BATCH, train)
    first = cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    cluster.all_placed(3)
    cluster.create(urgent)
    cluster.until(lambda: "urgent" in cluster.placed() and not bound(cluster, "train"))
    cluster.until(lambda: group_of(cluster, "job-batch.train")["status"]["target"]["state"] == "Suspended")
    first.kill()
    cluster.delete("/api/v1/namespaces/default/pods/urgent")
    cluster.create(pod("cheap", gpus=4, nodeName="n", queue="c", terminationGracePeriodSeconds=600))
    second = cluster.scheduler()
    cluster.until(lambda: cluster.pods()["cheap"]["metadata"].get("deletionTimestamp"))
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler"
    cluster.until(lambda: "job-batch.train" in str(cluster.get(lease)["metadata"].get("annotations")))
    second.kill()
    cluster.create(pod("late", gpus=2, queue="b"))
    cluster.scheduler()
    cluster.until(lambda: cluster.condition("late"))
    force = {"gracePeriodSeconds": 0, "kind": "DeleteOptions", "apiVersion": "v1"}
    cluster.plane.request("DELETE", "/api/v1/namespaces/default/pods/cheap", force)
    cluster.until(lambda: len(bound(cluster, "train")) == 3)
    assert "late" not in cluster.placed()

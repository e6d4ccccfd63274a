"""What the nodes of a pool share, taken by AIJobs of an ordinary tenant, on the real API server."""

import pytest

from fairlead.api import names
from testbed import tenants
from testbed.objects import ai_job, node, pod, queue
from tests.e2e.planes import AI_JOBS, OPERATOR, USER

pytestmark = pytest.mark.e2e

PLANE = AI_JOBS

STORAGE = "storage-bandwidth"
POOL = {
    "apiVersion": names.API_VERSION,
    "kind": "NodePool",
    "metadata": {"name": "a100"},
    "spec": {"nodeSelector": {"matchLabels": {"pool": "a100"}}, "sharedResources": {STORAGE: "40G"}},
}


def reading(name, workers, amount):
    made = ai_job(name, workers=workers, queue="anns")
    made["spec"]["roles"][0]["sharedResources"] = {STORAGE: amount}
    return made


@pytest.fixture
def ann(plane, cluster):
    anns = queue("anns", quota=16)
    anns["spec"]["users"] = ["ann"]
    cluster.create(anns, POOL, *(node(f"n{number}", labels={"pool": "a100"}) for number in range(2)), node("other"))
    return tenants.tenant(plane, "ann", "default")


def test_jobs_start_together_only_as_far_as_their_pool_can_serve(cluster, plane, ann):
    with tenants.in_force(plane, (OPERATOR, USER)):
        assert ann.create(reading("first", 3, "12G")) == ""
        cluster.scheduler("--no-leader-elect").synced()
        cluster.operator("--no-leader-elect")
        placed = cluster.all_placed(3)
        assert set(placed.values()) <= {"n0", "n1"}
        annotations = cluster.pods()["first-worker-0-0"]["metadata"]["annotations"]
        assert annotations[names.SHARED_RESOURCES_ANNOTATION] == f"{STORAGE}=12G"
        assert ann.create(reading("second", 2, "4G")) == ""
        found = cluster.until(
            lambda: (now := cluster.condition("second-worker-0-0")) is not None and now[0] == "SharedResources" and now
        )
        assert "and 8G storage-bandwidth for them; pool a100 has 4G of 40G storage-bandwidth free" in found[1]
        direct = pod("direct", gpus=0, nodeName="n0")
        direct["metadata"]["annotations"] = {names.SHARED_RESOURCES_ANNOTATION: f"{STORAGE}=40G"}
        assert "takes shared resources, may not set spec.nodeName" in ann.create(direct)
        change = {"metadata": {"annotations": {names.SHARED_RESOURCES_ANNOTATION: f"{STORAGE}=1"}}}
        assert "cannot be changed: the pod has a node" in ann.patch("pod", "first-worker-0-0", change)
        assert ann.patch("aijob", "first", {"spec": {"suspend": True}}) == ""
        cluster.until(lambda: {"second-worker-0-0", "second-worker-1-0"} <= cluster.placed().keys())


def test_names_and_amounts_that_are_none_are_refused_at_once(cluster, ann):
    for name, amount in (("a", "-4G"), ("b", "4Q")):
        assert "sharedResources" in ann.create(reading(name, 1, amount))
    wrong = reading("c", 1, "4G")
    wrong["spec"]["roles"][0]["sharedResources"] = {"Storage=1,x": "4G"}
    assert "names of sharedResources are DNS labels" in ann.create(wrong)

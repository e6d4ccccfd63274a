"""Services in queues, on the real API server with its real controllers: they grow to limits, shrink one by one, and updates keep them up."""

from pathlib import Path

import pytest

from testbed.objects import node, pod, queue
from tests.e2e.planes import NO_SERVICE_ACCOUNTS, Plane, with_urgent

pytestmark = pytest.mark.e2e

CONTROLLERS = (
    "deployment-controller,replicaset-controller,statefulset-controller,disruption-controller,cronjob-controller,job-controller,"
    "garbage-collector-controller,serviceaccount-controller"
)
APPS = "/apis/apps/v1/namespaces/default"


PLANE = Plane(CONTROLLERS, [NO_SERVICE_ACCOUNTS], kwok=True, prepare=with_urgent)


@pytest.fixture(autouse=True)
def emptied(cluster):
    yield
    for path in (f"{APPS}/deployments", f"{APPS}/statefulsets", "/apis/batch/v1/namespaces/default/cronjobs"):
        cluster.plane.request("DELETE", f"{path}?propagationPolicy=Background")
    cluster.until(lambda: not cluster.get(f"{APPS}/replicasets")["items"])


def service(kind, name, replicas, *, queue_name="serving", gpus=1, **spec):
    """A service whose replicas ask for one device each."""
    labels = {"app": name, "fairlead.dev/queue": queue_name}
    template = pod("t", gpus=gpus)
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            **spec,
        },
    }


def budget(name, least):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
    }


def make(cluster, manifest):
    plurals = {"PodDisruptionBudget": "/apis/policy/v1/namespaces/default/poddisruptionbudgets"}
    path = plurals.get(manifest["kind"], f"{APPS}/{manifest['kind'].lower()}s")
    return cluster.plane.request("POST", path, manifest)


def scale(cluster, kind, name, replicas):
    patch = {"spec": {"replicas": replicas}}
    cluster.plane.request("PATCH", f"{APPS}/{kind.lower()}s/{name}/scale", patch, "application/merge-patch+json")


def status(cluster, kind, name):
    return cluster.get(f"{APPS}/{kind.lower()}s/{name}")["status"]


def ready(cluster, kind, name, count):
    return cluster.until(lambda: status(cluster, kind, name).get("readyReplicas", 0) == count)


def running(cluster, prefix):
    found = cluster.pods().items()
    return sorted(name for name, each in found if name.startswith(prefix) and each["status"]["phase"] == "Running")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_growth_counts_to_the_queues_limit(cluster, kind):
    cluster.create(node("n", gpus=8), queue("serving", limit=3))
    cluster.scheduler("--no-leader-elect")
    make(cluster, service(kind, "web", 2, **({"podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {})))
    ready(cluster, kind, "web", 2)
    scale(cluster, kind, "web", 5)
    ready(cluster, kind, "web", 3)

    def kept_out():
        return [name for name in cluster.pods() if (cluster.condition(name) or ("",))[0] == "LimitExceeded"]

    cluster.until(lambda: len(kept_out()) == 2)
    assert len(running(cluster, "web")) == 3
    scale(cluster, kind, "web", 1)
    cluster.until(lambda: len(cluster.pods()) == 1)
    ready(cluster, kind, "web", 1)


def test_a_service_shrinks_replica_by_replica_when_others_take_back_what_is_theirs(cluster):
    cluster.create(node("n", gpus=4), queue("serving", quota=2), queue("research", quota=2))
    cluster.scheduler("--no-leader-elect")
    make(cluster, service("Deployment", "web", 4))
    ready(cluster, "Deployment", "web", 4)
    cluster.create(pod("train", gpus=1, queue="research"))
    cluster.until(lambda: "train" in cluster.placed())
    ready(cluster, "Deployment", "web", 3)
    cluster.create(pod("more", gpus=1, queue="research"))
    cluster.until(lambda: "more" in cluster.placed())
    ready(cluster, "Deployment", "web", 2)
    cluster.delete("/api/v1/namespaces/default/pods/train")
    ready(cluster, "Deployment", "web", 3)


def test_replicas_are_spread_over_nodes_and_zones(cluster):
    zones = ("a", "a", "b", "b")
    cluster.create(*(node(f"n{i}", gpus=8, labels={"topology.kubernetes.io/zone": zone}) for i, zone in enumerate(zones)))
    cluster.scheduler("--no-leader-elect")
    make(cluster, service("Deployment", "web", 2, queue_name="default"))
    ready(cluster, "Deployment", "web", 2)
    assert len({zones[int(each[1])] for each in cluster.placed().values()}) == 2
    scale(cluster, "Deployment", "web", 4)
    ready(cluster, "Deployment", "web", 4)
    assert sorted(cluster.placed().values()) == ["n0", "n1", "n2", "n3"]


def test_what_must_stay_available_does(cluster):
    cluster.create(node("n", gpus=4))
    cluster.scheduler("--no-leader-elect")
    make(cluster, service("Deployment", "web", 4, queue_name="default"))
    make(cluster, budget("web", 3))
    ready(cluster, "Deployment", "web", 4)
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web"
    cluster.until(lambda: cluster.get(path)["status"]["disruptionsAllowed"] == 1)
    cluster.create(pod("one", gpus=1, priorityClassName="urgent"))
    cluster.until(lambda: "one" in cluster.placed())
    ready(cluster, "Deployment", "web", 3)
    cluster.create(pod("two", gpus=1, priorityClassName="urgent"))
    cluster.until(lambda: cluster.condition("two"))
    assert len(running(cluster, "web")) == 3
    assert "two" not in cluster.placed()


def test_an_update_never_drops_below_what_is_available_and_waits_where_there_is_no_capacity_for_it(cluster):
    cluster.create(node("n", gpus=4), queue("serving", limit=3))
    cluster.scheduler("--no-leader-elect")
    update = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    make(cluster, service("Deployment", "web", 3, **update))
    ready(cluster, "Deployment", "web", 3)
    path = f"{APPS}/deployments/web"
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.k8s.io/pause:3.9"}]
    cluster.plane.request("PATCH", path, image, "application/json-patch+json")
    waiting = cluster.until(lambda: [name for name in cluster.pods() if (cluster.condition(name) or ("",))[0] == "LimitExceeded"])
    assert len(waiting) == 1, "one more than the limit is one too many, also for a while"
    assert status(cluster, "Deployment", "web")["availableReplicas"] == 3
    lowest = []

    def updated():
        found = status(cluster, "Deployment", "web")
        lowest.append(found.get("availableReplicas", 0))
        return found.get("updatedReplicas") == 3 and found["replicas"] == 3

    limit = {"spec": {"resources": [{"name": "nvidia.com/gpu", "limit": 4}]}}
    cluster.plane.request("PATCH", "/apis/fairlead.dev/v1alpha1/queues/serving", limit, "application/merge-patch+json")
    cluster.until(updated)
    assert min(lowest) >= 3


def test_the_jobs_of_a_cronjob_run(cluster):
    cluster.create(node("n", gpus=2))
    cluster.scheduler("--no-leader-elect")
    template = pod("t", gpus=1, restartPolicy="Never")["spec"]
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "@every 1s", "jobTemplate": {"spec": {"template": {"spec": template}}}},
    }
    cluster.plane.request("POST", "/apis/batch/v1/namespaces/default/cronjobs", cron)
    cluster.until(lambda: running(cluster, "nightly"))


def test_the_example(cluster):
    cluster.create(*(node(f"n{i}", gpus=8) for i in range(2)))
    cluster.scheduler("--no-leader-elect")
    cluster.kubectl("apply", "--server-side", "-f", str(Path(__file__).parents[2] / "examples/inference/deployment.yaml"))
    ready(cluster, "Deployment", "model", 2)
    assert sorted(cluster.placed().values()) == ["n0", "n1"]

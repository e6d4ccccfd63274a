"""What Pulumi programs register, applied to the real API server with its real controllers: quotas refuse, classes resolve, HPAs scale."""

import json
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest

from fairlead.pulumi import (
    AutoscaledDeployment,
    CpuUtilization,
    ExpectedWait,
    GpuUtilization,
    MemoryUtilization,
    PendingGpus,
    PriorityTiers,
    QueueLength,
    Quota,
    RequestRate,
    ScaleDown,
    admission_configuration,
    manifests,
    manifests_of,
)
from testbed import platform
from testbed.controlplane import ControlPlane
from testbed.hpa import CONFIG, CONTROLLERS, TIMES
from testbed.objects import node, pod
from testbed.pod_metrics import PodMetrics
from tests.e2e import aggregated
from tests.e2e.planes import Plane

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples" / "pulumi"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


PLANE = Plane(CONTROLLERS, kwok=True, controller_flags=TIMES, operator=True)


@pytest.fixture(autouse=True)
def emptied(cluster):
    yield
    for path in (DEPLOYMENTS, HPAS, "/api/v1/namespaces/default/resourcequotas"):
        cluster.plane.request("DELETE", f"{path}?propagationPolicy=Background")
    cluster.until(lambda: not cluster.get("/apis/apps/v1/namespaces/default/replicasets")["items"])
    cluster.until(lambda: not cluster.get("/api/v1/namespaces/default/pods")["items"])


def apply(cluster, found):
    platform.apply(cluster.plane, found)


def of_kind(found, kind):
    return {each["metadata"]["name"]: each for each in found if each["kind"] == kind}


def test_the_defaults_read_back_are_those_that_are_named(cluster):
    apply(cluster, [*manifests_of(EXAMPLES / "priority_quota"), *manifests_of(EXAMPLES / "autoscaled_training")])
    checks = list(platform.defaults(cluster.plane))
    assert len(checks) == 14
    assert [check for check in checks if not check.holds] == []


def test_a_quota_refuses_beyond_20_cpus_of_high_priority_admits_low_priority_and_is_given_back(cluster):
    apply(cluster, manifests_of(EXAMPLES / "priority_quota"))
    checks = list(platform.quota(cluster.plane))
    assert len(checks) == 6
    assert [check for check in checks if not check.holds] == []
    for name in ("first", "second", "third"):
        cluster.delete(f"/api/v1/namespaces/ai-workloads/pods/{name}")


def test_gpus_of_a_tier_are_limited_and_the_admission_configuration_closes_other_namespaces(tmp_path):
    def program():
        PriorityTiers("tiers", quotas={"high-priority": Quota(gpus=4)})

    config = tmp_path / "admission.yaml"
    config.write_text(admission_configuration("high-priority"))
    flags = [f"--admission-control-config-file={config}", "--disable-admission-plugins=ServiceAccount"]
    with ControlPlane(controllers="resourcequota-controller", flags=flags) as plane:
        for each in manifests(program):
            path = {
                "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
                "Namespace": "/api/v1/namespaces",
                "ResourceQuota": "/api/v1/namespaces/ai-workloads/resourcequotas",
            }[each["kind"]]
            plane.request("POST", f"{path}?fieldValidation=Strict", each)

        def create(namespace, name, gpus, tier):
            made = pod(name, gpus=gpus)
            made["spec"]["priorityClassName"] = tier
            try:
                plane.request("POST", f"/api/v1/namespaces/{namespace}/pods", made)
            except urllib.error.HTTPError as error:
                return json.loads(error.read())["message"]
            return ""

        def status():
            return plane.request("GET", "/api/v1/namespaces/ai-workloads/resourcequotas/high-priority-quota").get("status", {})

        plane.await_served("/api/v1/namespaces/ai-workloads/resourcequotas/high-priority-quota")
        deadline = 200
        while not status().get("hard") and deadline:
            deadline -= 1
            plane.await_served("/api/v1/namespaces/default")
        assert create("ai-workloads", "a", 4, "high-priority") == ""
        assert "requests.nvidia.com/gpu=1" in create("ai-workloads", "b", 1, "high-priority")
        assert create("ai-workloads", "b", 1, "low-priority") == ""
        assert "insufficient quota to match these scopes" in create("default", "c", 1, "high-priority")
        assert create("default", "c", 1, "low-priority") == ""


def test_every_metric_and_behaviour_is_what_the_api_server_takes(cluster):
    def program():
        AutoscaledDeployment(
            "all",
            app="everything",
            metrics=[
                CpuUtilization(60),
                MemoryUtilization(70),
                GpuUtilization(80),
                RequestRate(12.5),
                QueueLength("serving", jobs=2),
                PendingGpus("serving", gpus=4),
                ExpectedWait("serving", seconds=600),
            ],
            gpus=2,
            queue="serving",
            scale_down=ScaleDown(120, pods=1, percent=50, period=30),
            priority_class="high-priority",
            env={"MODE": "train"},
            ports=[8080],
            min_replicas=1,
            replicas=1,
        )

    found = manifests(program)
    apply(cluster, found)
    scaler = cluster.get(f"{HPAS}/everything")["spec"]
    assert [each["type"] for each in scaler["metrics"]] == ["Resource", "Resource", "Pods", "Pods", *["External"] * 3]
    assert scaler["behavior"]["scaleDown"] == {
        "stabilizationWindowSeconds": 120,
        "selectPolicy": "Min",
        "policies": [
            {"type": "Pods", "value": 1, "periodSeconds": 30},
            {"type": "Percent", "value": 50, "periodSeconds": 30},
        ],
    }
    spec = cluster.get(f"{DEPLOYMENTS}/everything")["spec"]["template"]
    assert spec["metadata"]["labels"]["fairlead.dev/queue"] == "serving"
    assert (spec["spec"]["schedulerName"], spec["spec"]["priorityClassName"]) == ("fairlead", "high-priority")
    assert spec["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


# -- HPAs that scale ---------------------------------------------------------------------------


@pytest.fixture
def placing(cluster, tmp_path):
    """Fairlead for all pods, on nodes with capacity."""
    config = tmp_path / "scheduler.yaml"
    config.write_text(CONFIG)
    cluster.create(*(node(f"n-{i}", gpus=8) for i in range(3)))
    return config


def replicas(cluster, name):
    return cluster.get(f"{DEPLOYMENTS}/{name}").get("status", {}).get("readyReplicas", 0)


def wanted(cluster, name):
    return cluster.get(f"{DEPLOYMENTS}/{name}")["spec"]["replicas"]


def test_an_hpa_follows_cpu_from_2_to_5_to_2(cluster, placing):
    use = {"cores": 0.1}
    with PodMetrics(cluster.plane, lambda pod: use["cores"] if pod["status"].get("phase") == "Running" else None):
        apply(cluster, manifests_of(EXAMPLES / "autoscaled_training"))
        cluster.scheduler("--no-leader-elect", "--config", str(placing))
        cluster.until(lambda: replicas(cluster, "ai-model-training") == 2)
        use["cores"] = 0.9  # of half a core that each asks for
        cluster.until(lambda: replicas(cluster, "ai-model-training") == 5)
        use["cores"] = 0.05
        cluster.until(lambda: replicas(cluster, "ai-model-training") == 2)
        use["cores"] = None
        cluster.until(lambda: "False" in str([c["status"] for c in conditions(cluster) if c["type"] == "ScalingActive"]))
        assert wanted(cluster, "ai-model-training") == 2


def conditions(cluster, name="ai-model-training"):
    return cluster.get(f"{HPAS}/{name}")["status"].get("conditions", [])


@pytest.fixture(scope="module")
def port(plane):
    return aggregated.installed(plane, "external-metrics", "fairlead", "ann")


def test_an_hpa_follows_a_queue_from_2_to_5_to_2_and_holds_without_an_answer(cluster, placing, port, tmp_path):
    def program():
        AutoscaledDeployment("workers", app="workers", queue="default", metrics=[QueueLength("default", jobs=2)])

    apply(cluster, manifests(program))
    history = f"sqlite:///{tmp_path}/history.db"
    cluster.operator("--no-leader-elect", "--history", history)
    flags = ("--no-leader-elect", "--config", str(placing), "--external-metrics-address", f"127.0.0.1:{port}")
    first = cluster.scheduler(*flags)
    aggregated.available(cluster, "external-metrics")
    cluster.until(lambda: replicas(cluster, "workers") == 2)
    cluster.create(*(pod(f"waits-{i}", gpus=8, cpu="1000") for i in range(9)))  # more than any node has
    cluster.until(lambda: replicas(cluster, "workers") == 5)
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/"
    values = {
        name: cluster.get(f"{path}fairlead_queue_{name}?labelSelector=queue%3Ddefault")["items"][0]["value"]
        for name in ("pending_jobs", "pending_gpus", "expected_wait_seconds")
    }
    assert (values["pending_jobs"], values["pending_gpus"]) == ("9", "72")
    assert values["expected_wait_seconds"] != "0"
    assert cluster.get(f"{path}fairlead_queue_pending_jobs?labelSelector=queue%3Dnobodys")["items"] == []
    # While no server answers the last size is held, though the queue has emptied meanwhile.
    first.kill()
    for i in range(9):
        cluster.delete(f"/api/v1/namespaces/default/pods/waits-{i}")
    cluster.until(lambda: [c for c in conditions(cluster, "workers") if c["type"] == "ScalingActive" and c["status"] == "False"])
    assert wanted(cluster, "workers") == 5
    cluster.scheduler(*flags)
    cluster.until(lambda: replicas(cluster, "workers") == 2)

    def added():
        """What its growth beyond two replicas cost."""
        command = [sys.executable, "-m", "fairlead", "cost", "--by", "scaler", "--database", history, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [line for line in json.loads(done.stdout)["lines"] if line["most"] >= 5] if done.returncode == 0 else []

    [line] = cluster.until(added)
    assert (line["name"], line["target"]) == ("default/workers", "Deployment/workers")
    assert 0 < line["added_replica_hours"] < line["replica_hours"]


def test_the_whole_platform_is_accepted_as_it_is(cluster):
    found = manifests_of(EXAMPLES / "whole_platform", {"image": "registry.example/fairlead:1"})
    # These are tried only: what they stand for would be asked at each discovery. The third may be there, for another test.
    apis = [each for each in found if each["kind"] in ("APIService", "Service")]
    apply(cluster, [each for each in found if each not in apis])
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [each for each in apis if "external" not in str(each)]})
    cluster.kubectl("apply", "--server-side", "--validate=strict", "--dry-run=server", "-f", "-", text=text)
    for kind, plural in (("Queue", "queues"), ("ServiceClass", "serviceclasses"), ("NodePool", "nodepools")):
        there = {each["metadata"]["name"]: each for each in cluster.get(f"/apis/fairlead.dev/v1alpha1/{plural}")["items"]}
        for name, each in of_kind(found, kind).items():
            assert there[name]["spec"].items() >= each["spec"].items()
    path = "/apis/apps/v1/namespaces/fairlead-system/deployments"
    deployments = {each["metadata"]["name"] for each in cluster.get(path)["items"]}
    assert {"fairlead-scheduler", "fairlead-operator"} <= deployments
    accounts = {"fairlead-scheduler": "queues/status", "fairlead-operator": "aijobs/status"}
    for account, resource in accounts.items():
        asked = [
            "--as",
            f"system:serviceaccount:fairlead-system:{account}",
            "auth",
            "can-i",
            "patch",
            f"{resource.split('/')[0]}.fairlead.dev",
        ]
        assert cluster.kubectl(*asked, "--subresource=status").strip() == "yes"
    for name in ("fairlead-scheduler", "fairlead-operator"):
        cluster.delete(f"/apis/apps/v1/namespaces/fairlead-system/deployments/{name}?propagationPolicy=Background")

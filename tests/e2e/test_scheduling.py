"""The main job on the real API server."""

import json
import signal
import urllib.error
import urllib.request

import pytest

from testbed import objects
from testbed.controlplane import free_port
from testbed.objects import node, pod, pod_group, queue

pytestmark = pytest.mark.e2e


def priorities(cluster):
    for name, value in (("test-low", 10), ("test-high", 1000)):
        manifest = objects.priority_class(name, value)
        cluster.create(manifest)


def test_mixed_pods_and_gangs_taints_and_affinity(cluster):
    cluster.create(
        node("gpu-a", labels={"zone": "x"}),
        node("gpu-b", labels={"zone": "y"}),
        node("special", taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}]),
        node("cpu", gpus=0),
        pod_group("ring", 6),
        pod_group("giant", 300),
        *(pod(f"ring-{i}", group="ring") for i in range(6)),
        *(pod(f"giant-{i}", group="giant") for i in range(300)),
        pod("in-y", nodeSelector={"zone": "y"}),
        pod("vision", tolerations=[{"key": "team", "operator": "Equal", "value": "vision"}], gpus=8),
        pod("plain-cpu", gpus=0),
        pod("nowhere", nodeSelector={"zone": "z"}),
    )
    scheduler = cluster.scheduler()
    placed = cluster.all_placed(9)
    assert placed["in-y"] == "gpu-b"
    assert placed["vision"] == "special"
    assert placed["plain-cpu"] == "cpu"
    assert sum(name.startswith("ring") for name in placed) == 6
    assert not any(name.startswith("giant") for name in placed)
    cluster.until(lambda: cluster.condition("nowhere"))
    reason, message = cluster.condition("nowhere")
    assert reason == "Unschedulable"
    assert message == (
        "0/4 nodes are available: 1 node(s) had untolerated taint {team: vision}, "
        "3 node(s) didn't match Pod's node affinity/selector."
    )
    cluster.until(lambda: all(cluster.condition(f"giant-{i}") for i in (0, 7, 150, 299)))
    assert "whole cluster holds at most" in cluster.condition("giant-7")[1]
    cluster.until(lambda: [each for each in cluster.events("giant") if each[0] == "FailedScheduling"])
    cluster.until(lambda: len([each for each in cluster.events("ring-0") if each[0] == "Scheduled"]) == 1)
    group = cluster.until(
        lambda: (
            (g := cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/ring"))
            if "status" in (g := cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/ring"))
            and g["status"].get("phase") == "Scheduled"
            else None
        )
    )
    assert group["status"]["scheduled"] == 6
    assert not cluster.over_allocated()
    assert scheduler.stop() == 0


def test_preemption_evicts_and_binds(cluster):
    priorities(cluster)
    cluster.create(node("n", gpus=2), *(pod(f"low-{i}", priorityClassName="test-low") for i in range(2)))
    cluster.scheduler("--no-leader-elect")
    cluster.all_placed(2)
    cluster.create(pod("high", priorityClassName="test-high"))
    cluster.until(lambda: "high" in cluster.placed())
    assert len(cluster.pods()) == 2
    victim = next(name for name in ("low-0", "low-1") if name not in cluster.pods())
    cluster.until(lambda: [each for each in cluster.events(victim) if each[0] == "Preempted"])


def test_a_disruption_budget_stops_a_preemption(cluster):
    priorities(cluster)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"keep": "yes"}}},
    }
    cluster.plane.request("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    cluster.create(node("n", gpus=1), pod("low", priorityClassName="test-low", labels={"keep": "yes"}))
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.all_placed(1)
    # The API server asks budgets only for pods that run; there is no kubelet here to report it.
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.plane.request("PATCH", "/api/v1/namespaces/default/pods/low/status", running, "application/merge-patch+json")
    cluster.create(pod("high", priorityClassName="test-high"))
    cluster.until(lambda: cluster.condition("high") or scheduler.logged("preemption given up"))
    assert cluster.placed() == {"low": "n"}


def test_queue_limits_and_a_namespaces_default_queue(cluster):
    cluster.create(node("n"), queue("team", quota=2, limit=2))
    cluster.plane.request(
        "PATCH",
        "/api/v1/namespaces/default",
        {"metadata": {"labels": {"fairlead.dev/default-queue": "team"}}},
        "application/merge-patch+json",
    )
    cluster.create(*(pod(f"p{i}") for i in range(4)))
    cluster.scheduler("--no-leader-elect")
    cluster.all_placed(2)
    waiting = cluster.until(lambda: [name for name in cluster.pods() if (cluster.condition(name) or ("",))[0] == "LimitExceeded"])
    assert waiting
    assert len(cluster.placed()) == 2
    cluster.plane.request(
        "PATCH",
        "/apis/fairlead.dev/v1alpha1/queues/team",
        {"spec": {"resources": [{"name": "nvidia.com/gpu", "limit": "100%"}]}},
        "application/merge-patch+json",
    )
    cluster.all_placed(4)


def test_bad_input_is_refused_and_blocks_no_other(cluster):
    absurd = {"fairlead.dev/gpu-fraction": "x" * 200_000, "note": "\u202e" + "y" * 10_000}
    cluster.create(
        node("n"),
        pod("exa", gpus=0, memory="10E"),
        pod("max", gpus=0, cpu=str(2**63 - 1)),
        pod("exponent", gpus=0, memory="1e1000"),
        pod("absurd", gpus=0, annotations=absurd),
        pod("both", annotations={"fairlead.dev/gpu-fraction": "0.5"}),
        pod("lost", queue="no-such-queue"),
        pod("on-ghost", nodeName="ghost"),
        pod("groupless", group="no-such-group"),
        pod_group("giant", 1_000_000),
        pod("giant-0", group="giant"),
        pod("fine"),
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.create(pod("negative", gpus=0, memory="-1"))
    assert refused.value.code == 422, "the API server itself refuses this one"
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.until(lambda: cluster.placed().get("fine") == "n")
    expected = {
        "exa": "TooLarge",
        "max": "TooLarge",
        "exponent": "TooLarge",
        "absurd": "InvalidSpec",
        "both": "InvalidSpec",
        "lost": "UnknownQueue",
        "groupless": "GangIncomplete",
        "giant-0": "GangIncomplete",
        "on-ghost": "Unschedulable",
    }
    for name, reason in expected.items():
        found = cluster.until(lambda name=name: cluster.condition(name))
        assert found[0] == reason, name
        cluster.until(lambda name=name: [each for each in cluster.events(name) if each[0] == "FailedScheduling"])
    assert scheduler.process.poll() is None
    assert not scheduler.logged("pass failed")
    assert not scheduler.logged("event not applied")


def test_health_metrics_and_a_clean_end(cluster):
    port = free_port()
    cluster.create(node("n"), pod("p"))
    scheduler = cluster.scheduler("--address", f"127.0.0.1:{port}").synced()
    cluster.all_placed(1)

    def ask(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.read().decode()

    assert ask("/healthz") == "ok"
    assert ask("/readyz") == "ok"
    cluster.until(lambda: "fairlead_bindings_total 1.0" in ask("/metrics"))
    assert scheduler.stop() == 0
    lease = cluster.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler")
    assert not lease["spec"].get("holderIdentity"), "released, so that the next need not wait"


def test_crds_hold_their_rules_and_read_well(cluster):
    bad = pod_group("bad", 4)
    bad["spec"]["maxMember"] = 2
    with pytest.raises(urllib.error.HTTPError) as refused:
        cluster.create(bad)
    assert "maxMember must not be below minMember" in json.loads(refused.value.read())["message"]
    with pytest.raises(urllib.error.HTTPError):
        cluster.create(pod_group("zero", 0))
    cluster.create(queue("vision", quota="25%"), pod_group("ring", 4, "vision"))
    assert "vision" in cluster.kubectl("get", "podgroups,queues")
    cluster.scheduler("--no-leader-elect").synced()
    pooled = queue("pooled", quota=1)
    pooled["spec"]["resources"][0]["pool"] = "h100"
    cluster.create(pooled)
    path = "/apis/fairlead.dev/v1alpha1/queues/pooled"
    (condition,) = cluster.until(lambda: (cluster.get(path).get("status") or {}).get("conditions"))
    assert (condition["reason"], condition["status"]) == ("PoolNotFound", "False")
    told = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "spare"}}
    cluster.create({**told, "spec": {"price": {"perNodeHour": 3.5}, "size": {"min": 0, "max": 4}}})
    path = "/apis/fairlead.dev/v1alpha1/nodepools/spare"
    (condition,) = cluster.until(lambda: (cluster.get(path).get("status") or {}).get("conditions"))
    assert "not acted on by this version: size" in condition["message"]


def test_a_forced_relist_loses_nothing(cluster):
    cluster.create(node("n"), *(pod(f"p{i}") for i in range(4)))
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.all_placed(4)
    scheduler.signal(signal.SIGUSR1)
    cluster.until(lambda: scheduler.logged("listing everything again"))
    cluster.create(*(pod(f"q{i}") for i in range(5)))
    cluster.all_placed(8)
    cluster.until(lambda: [name for name in cluster.pods() if cluster.condition(name)])
    assert not cluster.over_allocated()

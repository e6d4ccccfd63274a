"""Profile `kubernetes` beside profile `ai`, on the real API server."""

from __future__ import annotations

import pytest

from testbed import objects

pytestmark = pytest.mark.e2e

OF_UPSTREAM = "fairlead-kubernetes"
ZONE = "topology.kubernetes.io/zone"


def zoned(count, **more):
    return [objects.node(f"n{i}", gpus=0, labels={ZONE: f"z{i % 3}"}, **more) for i in range(count)]


def high(cluster, value=1000):
    priority = objects.priority_class("high", value)
    cluster.create(priority)


def test_pods_that_speak_of_each_other(cluster):
    selector = {"matchLabels": {"app": "web"}}
    spread = [{"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]
    away = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
            ]
        }
    }
    cluster.create(*zoned(6))
    cluster.scheduler()
    cluster.create(
        *(
            objects.pod(
                f"p{i}", gpus=0, scheduler=OF_UPSTREAM, labels={"app": "web"}, topologySpreadConstraints=spread, affinity=away
            )
            for i in range(6)
        )
    )
    assert sorted(cluster.all_placed(6).values()) == [f"n{i}" for i in range(6)]
    cluster.create(objects.pod("late", gpus=0, scheduler=OF_UPSTREAM, labels={"app": "web"}, affinity=away))
    reason, message = cluster.until(lambda: cluster.condition("late"))
    assert reason == "Unschedulable"
    assert message == "0/6 nodes are available: 6 node(s) didn't match pod affinity/anti-affinity rules."
    cluster.delete("/api/v1/namespaces/default/pods/p3")
    cluster.until(lambda: cluster.placed().get("late") == "n3")


def test_preemption_is_upstreams(cluster):
    """Pods of any queue, on one node, whatever their budgets allow; the node is nominated while they leave."""
    high(cluster)
    cluster.create(*zoned(2, cpu="4"))
    patient = {"terminationGracePeriodSeconds": 30}
    for number in range(2):
        cluster.create(
            objects.pod(
                f"low-{number}", gpus=0, cpu="4", scheduler="other", labels={"app": "low"}, nodeName=f"n{number}", **patient
            )
        )
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "none-may-go"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "low"}}},
    }
    cluster.create(budget)
    cluster.scheduler()
    cluster.create(objects.pod("high", gpus=0, cpu="4", scheduler=OF_UPSTREAM, priorityClassName="high"))
    node = cluster.until(lambda: cluster.pods()["high"]["status"].get("nominatedNodeName"))
    gone = f"low-{node[1:]}"
    leaving = cluster.until(lambda: (pod := cluster.pods()[gone])["metadata"].get("deletionTimestamp") and pod)
    [target] = [each for each in leaving["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert target["reason"] == "PreemptionByScheduler"
    assert cluster.condition("high")[0] == "Unschedulable"
    cluster.delete(f"/api/v1/namespaces/default/pods/{gone}")
    cluster.until(lambda: cluster.placed().get("high") == node)
    assert len(cluster.pods()) == 2
    cluster.until(lambda: [reason for reason, _ in cluster.events(gone)] == ["Preempted"])


def test_names_and_profiles_come_from_the_configuration(cluster, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text(
        "apiVersion: config.fairlead.dev/v1alpha1\nkind: SchedulerConfiguration\n"
        "profiles:\n- {schedulerName: default-scheduler, profile: kubernetes}\n- {schedulerName: gpus, profile: ai}\n"
    )
    cluster.create(*zoned(2))
    cluster.scheduler("--config", str(file))
    cluster.create(objects.pod("plain", gpus=0, scheduler="default-scheduler"), objects.pod("ai", gpus=0, scheduler="gpus"))
    cluster.create(objects.pod("nobodys", gpus=0, scheduler="fairlead"))
    assert set(cluster.all_placed(2)) == {"plain", "ai"}

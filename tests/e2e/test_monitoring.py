"""A real Prometheus scrapes a real scheduler with our rules: alerts come and go."""

import json
import subprocess
import sys
import urllib.request

import pytest

from testbed import alerts
from testbed.controlplane import free_port
from testbed.objects import node, pod, queue, service_class

pytestmark = pytest.mark.e2e


@pytest.fixture
def prometheus(cluster, tmp_path):
    """Asks every second, and waits for nothing before it sends an alert; with the scheduler's address."""
    address = f"127.0.0.1:{free_port()}"
    with alerts.watching(address, tmp_path) as watch:
        cluster.until(lambda: watch.ask("status/runtimeinfo"))
        yield address, watch


def test_alerts_come_and_go_with_their_causes(cluster, prometheus):
    address, watch = prometheus
    firing = watch.firing
    cluster.until(lambda: "FairleadSchedulerDown" in firing())
    cluster.create(
        node("n", gpus=8),
        queue("small", limit=2),
        queue("default"),
        service_class("soon", maxWait="10m"),
    )
    first = cluster.scheduler("--no-leader-elect", "--address", address)
    cluster.until(lambda: first.logged("synced") and "FairleadSchedulerDown" not in firing())
    late = pod("late", gpus=8)
    late["metadata"].setdefault("labels", {})["fairlead.dev/service-class"] = "soon"
    cluster.create(pod("runs", gpus=2, queue="small"))
    cluster.all_placed(1)
    cluster.create(pod("beyond", gpus=1, queue="small"), late)
    wanted = {"FairleadDeadlineNear", "FairleadQuotaExhausted", "FairleadFragmentation", "FairleadLowAllocation"}
    cluster.until(lambda: wanted <= firing())
    held = watch.ask('query?query=fairlead_queue_allocated%7Bqueue%3D"small"%2Cresource%3D"nvidia.com/gpu"%7D')["result"]
    assert [each["value"][1] for each in held] == ["2"]
    for name in ("late", "beyond"):
        cluster.delete(f"/api/v1/namespaces/default/pods/{name}")
    cluster.until(lambda: not firing())
    first.kill()
    cluster.until(lambda: firing() == {"FairleadSchedulerDown"})
    cluster.scheduler("--no-leader-elect", "--address", address)
    cluster.until(lambda: not firing())


def test_a_queue_over_its_budget_is_seen_in_the_operators_metrics(cluster, tmp_path):
    cluster.plane.grant("fairlead-operator")
    address = f"127.0.0.1:{free_port()}"
    pool = {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": "all"},
        "spec": {"price": {"perNodeHour": 80000}},
    }
    cluster.create(pool, node("n", gpus=8), queue("dear"))
    cluster.scheduler("--no-leader-elect")
    database = f"sqlite:///{tmp_path}/history.db"
    cluster.operator("--no-leader-elect", "--address", address, "--history", database)

    def told(metric):
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
                lines = [line.split() for line in reply.read().decode().splitlines()]
        except OSError:
            return None
        return next((float(line[1]) for line in lines if line[0] == f'{metric}{{currency="USD",queue="dear"}}'), None)

    cluster.create(pod("runs", gpus=4, queue="dear"))
    cluster.all_placed(1)

    def cost():
        command = ["cost", "--database", database, "-o", "json"]
        done = subprocess.run([sys.executable, "-m", "fairlead", *command], capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    found = cluster.until(lambda: found if found_lines(found := cost()) else None)
    assert [line["name"] for line in found["lines"]] == ["dear"]
    path = "/apis/fairlead.dev/v1alpha1/queues/dear"
    cluster.plane.request("PATCH", path, {"spec": {"budget": {"amount": 1}}}, "application/merge-patch+json")
    cluster.until(lambda: (told("fairlead_operator_queue_cost") or 0) > 1)
    assert (told("fairlead_operator_queue_budget"), told("fairlead_operator_queue_budget_warning")) == (1.0, 0.8)


def found_lines(found):
    return bool(found.get("lines")) and found["lines"][0]["cost"].get("USD", 0) > 1

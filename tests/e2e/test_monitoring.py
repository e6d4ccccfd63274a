"""A real Prometheus scrapes a real scheduler with our rules: alerts come and go."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest
import yaml

from fairlead.observability import rules
from testbed import build
from testbed.controlplane import free_port
from testbed.objects import node, pod, queue, service_class

pytestmark = pytest.mark.e2e


@pytest.fixture
def prometheus(cluster, tmp_path):
    """Asks every second, and waits for nothing before it tells an alert; returns the scheduler's address and what fires."""
    address, port = f"127.0.0.1:{free_port()}", free_port()
    found = rules.groups()
    for rule in found["groups"][1]["rules"]:
        rule["for"] = "0s"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(found))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "scheduler", "static_configs": [{"targets": [address]}]}],
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        build.binary("prometheus"),
        f"--config.file={tmp_path / 'prometheus.yaml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--query.lookback-delta=5s",
    ]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def ask(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as reply:
                return json.loads(reply.read())["data"]
        except OSError:
            return None

    def firing():
        alerts = (ask("alerts") or {}).get("alerts", [])
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    cluster.until(lambda: ask("status/runtimeinfo"))
    yield address, firing, ask
    process.send_signal(signal.SIGTERM)
    process.wait(20)


def test_alerts_come_and_go_with_their_causes(cluster, prometheus):
    address, firing, ask = prometheus
    cluster.until(lambda: "FairleadSchedulerDown" in firing())
    cluster.create(
        node("n", gpus=8),
        queue("small", limit=2),
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
    held = ask('query?query=fairlead_queue_allocated%7Bqueue%3D"small"%2Cresource%3D"nvidia.com/gpu"%7D')["result"]
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

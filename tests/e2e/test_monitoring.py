"""A real Prometheus scrapes a real scheduler with our rules: alerts come and go."""

import json
import signal
import subprocess
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

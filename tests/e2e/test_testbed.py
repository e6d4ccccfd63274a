"""The testbed itself, KWOK, and the cluster bench on a small scale."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import protobuf
from testbed.controlplane import ControlPlane
from testbed.objects import node, pod
from tests.e2e.conftest import ROOT, Cluster

pytestmark = pytest.mark.e2e


def test_kwok_makes_nodes_ready_and_pods_running(tmp_path):
    with ControlPlane(controllers="*,-node-ipam-controller", kwok=True) as plane:
        cluster = Cluster(plane, tmp_path)
        try:
            bare = node("n")
            cluster.until(lambda: cluster.get("/api/v1/namespaces/default/serviceaccounts/default"))
            cluster.plane.request("POST", "/api/v1/nodes", {**bare, "spec": {}, "status": {**bare["status"], "conditions": []}})
            cluster.until(lambda: not cluster.get("/api/v1/nodes/n")["spec"].get("taints"))
            from tests.e2e.planes import USER

            plane.install(USER)
            plane.grant("fairlead-operator")
            plane.grant("fairlead-operator")  # Tests that share a control plane each ask for what they need.
            cluster.create(pod("p"))
            cluster.scheduler()
            cluster.until(lambda: cluster.pods()["p"]["status"].get("phase") == "Running")
        finally:
            for each in cluster.schedulers:
                each.kill()


def test_the_table_of_protobuf_is_that_of_the_api_server():
    written = (ROOT / "src" / "fairlead" / "cluster" / "simulated" / "protobuf.txt").read_text()
    assert written == "\n".join(protobuf.table()) + "\n", "make protobuf"


def test_testbed_up_and_down():
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up", "--no-controllers", "--no-kwok"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        process.stdout.readline()
        line = process.stdout.readline().strip()
        kubeconfig = line.removeprefix("export KUBECONFIG=")
        version = subprocess.run(
            ["kubectl", "--kubeconfig", kubeconfig, "version", "-o", "json"], capture_output=True, text=True, check=True
        )
        assert json.loads(version.stdout)["serverVersion"]["gitVersion"].startswith("v1.36")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        process.stdout.close()
    assert not Path(kubeconfig).exists()


def test_bench_cluster_on_a_small_scale():
    command = [
        sys.executable,
        "-m",
        "fairlead",
        "bench",
        "cluster",
        "--nodes",
        "4",
        "--pods",
        "24",
        "--repeats",
        "1",
        "--gang",
        "4",
    ]
    done = subprocess.run(
        [*command, "--schedulers", "fairlead,bare-binder-go", "--output", "json"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    ours = result["schedulers"]["fairlead"]
    assert {
        "pods_per_second",
        "pods_per_second_events",
        "latency_ms",
        "cpu_seconds",
        "rss_mb",
        "api_writes_per_pod",
        "runs",
    } <= set(ours)
    assert set(result["ratios"]) == {"bare-binder-go"}
    assert ours["api_writes_per_pod"] <= 2.6

"""The agent as a process of its own, a node of the real API server, with a job of real processes."""

import sys

import pytest

from testbed.controlplane import ControlPlane
from testbed.objects import ai_job

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane():
    with ControlPlane(
        controllers="serviceaccount-controller,garbage-collector-controller",
        flags=["--disable-admission-plugins=ServiceAccount"],
    ) as running:
        running.install("fairlead")
        running.grant("fairlead-operator", "fairlead-agent")
        yield running


def test_a_job_runs_as_processes_on_a_node_that_is_an_agent(cluster, tmp_path):
    agent = cluster.agent("--name", "here", "--gpus", "2", "--folder", str(tmp_path / "agent"))
    cluster.until(lambda: cluster.get("/api/v1/nodes/here"))
    cluster.ready("here")
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--address", "")
    made = ai_job("real", workers=2, restart={"limit": 1, "backoff": "1s"})
    script = f"import os, sys, pathlib; p = pathlib.Path({str(tmp_path)!r}) / os.environ['RANK']; p.write_text(os.environ['WORLD_SIZE']); "
    script += "sys.exit(3 if os.environ['FAIRLEAD_ATTEMPT'] == '0' and os.environ['RANK'] == '1' else 0)"
    (container,) = made["spec"]["roles"][0]["template"]["spec"]["containers"]
    container["command"] = [sys.executable, "-c", script]
    cluster.create(made)
    where = "/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/real"
    told = cluster.until(lambda: (found := cluster.get(where).get("status") or {}).get("phase") == "Succeeded" and found)
    assert told["restarts"] == 1, "its first attempt failed"
    assert [(tmp_path / name).read_text() for name in "01"] == ["2", "2"]
    pod = cluster.pods()["real-worker-0-1"]
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    sleeps = ai_job("sleeps", workers=1)
    sleeps["spec"]["roles"][0]["template"]["spec"]["containers"][0]["command"] = ["sleep", "1000"]
    cluster.create(sleeps)
    cluster.until(lambda: "Running" in str(cluster.pods().get("sleeps-worker-0-0", {}).get("status")))
    cluster.kubectl("patch", "aijob", "sleeps", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    cluster.until(lambda: "sleeps-worker-0-0" not in cluster.pods())
    agent.kill()

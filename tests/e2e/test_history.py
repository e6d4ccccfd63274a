"""The history as researchers see it who may not read its database: through the API server, by namespace."""

import json

import pytest

from testbed.objects import node, pod
from tests.e2e import aggregated
from tests.e2e.planes import NO_SERVICE_ACCOUNTS, Plane, with_namespace

pytestmark = pytest.mark.e2e

BASE = "/apis/history.fairlead.dev/v1alpha1"


PLANE = Plane(flags=[NO_SERVICE_ACCOUNTS], operator=True, prepare=with_namespace("other"))


@pytest.fixture(scope="module")
def port(plane):
    return aggregated.installed(plane, "history", "fairlead-operator", "ann")


def test_a_researcher_sees_the_jobs_of_own_namespaces_and_no_others(cluster, port, tmp_path):
    cluster.create(node("n", gpus=4), pod("mine", gpus=2), pod("fails", gpus=1))
    cluster.create(pod("theirs", gpus=1), namespace="other")
    cluster.scheduler("--no-leader-elect")
    where = ("--history", f"sqlite:///{tmp_path}/history.db", "--history-address", f"127.0.0.1:{port}")
    cluster.operator("--no-leader-elect", "--address", "", *where)
    aggregated.available(cluster, "history")
    home = {"HOME": str(tmp_path)}

    def listed(*arguments):
        done = aggregated.fairlead_as(cluster, "ann", "history", "-o", "json", *arguments, **home)
        assert done.returncode == 0, done.stderr
        return {each["name"]: each for each in json.loads(done.stdout)["jobs"]}

    cluster.until(lambda: set(cluster.placed()) == {"mine", "fails"})
    status = {"status": {"phase": "Failed"}}
    cluster.plane.request("PATCH", "/api/v1/namespaces/default/pods/fails/status", status, "application/merge-patch+json")
    cluster.until(lambda: {name: each["state"] for name, each in listed().items()} == {"mine": "Running", "fails": "Failed"})
    assert set(listed("--state", "failed", "--state", "lost")) == {"fails"}
    assert set(listed("mine", "-n", "default", "--since", "1h")) == {"mine"}
    assert listed("--user", "somebody") == listed("--queue", "other") == {}
    runs = aggregated.fairlead_as(cluster, "ann", "history", "mine", "--runs", "-o", "json", **home)
    (run,) = json.loads(runs.stdout)["runs"]
    assert (run["node"], run["gpus"], run["ended_at"]) == ("n", 2.0, None)
    refused = aggregated.fairlead_as(cluster, "ann", "history", "-n", "other", **home)
    assert refused.returncode == 3
    assert "forbidden" in refused.stderr
    everybody = json.loads(cluster.kubectl("get", "--raw", f"{BASE}/jobs"))["items"]
    theirs = next(each for each in everybody if each["metadata"]["name"] == "theirs")
    path = f"{BASE}/namespaces/default/jobs/{theirs['metadata']['uid']}/runs"
    assert "NotFound" in aggregated.kubectl_as(cluster, "ann", "get", "--raw", path).stderr
    for wrong in ("limit=many", "state=Odd", "since=nan"):
        assert (
            "BadRequest"
            in aggregated.kubectl_as(cluster, "ann", "get", "--raw", f"{BASE}/namespaces/default/jobs?{wrong}").stderr
        )
    cluster.delete("/api/v1/namespaces/other/pods/theirs")

"""Shadow mode and the commands that show the cluster, on the real API server with rights to read and nothing else."""

import json
import signal
import subprocess
import sys

import pytest

from testbed import objects
from tests.e2e.conftest import ROOT

pytestmark = pytest.mark.e2e

READER = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [
            {
                "apiGroups": ["", "fairlead.dev", "scheduling.k8s.io"],
                "resources": [
                    "nodes",
                    "pods",
                    "namespaces",
                    "queues",
                    "podgroups",
                    "serviceclasses",
                    "reservations",
                    "nodepools",
                    "priorityclasses",
                ],
                "verbs": ["get", "list", "watch"],
            }
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"},
    },
]


@pytest.fixture
def reader(cluster):
    """A kubeconfig of a user who may only read."""
    for each in READER:
        cluster.plane.request("POST", objects.path(each), each)
    yield cluster.plane.user("reader", "reader")
    for each in READER:
        cluster.delete(f"{objects.path(each)}/reader")


def call(reader, *arguments):
    command = [sys.executable, "-m", "fairlead", *arguments, "--kubeconfig", str(reader), "-o", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT).stdout)


def test_a_shadow_beside_a_running_scheduler(cluster, reader, tmp_path):
    cluster.create(objects.node("a", gpus=4), objects.node("b", gpus=4))
    report = tmp_path / "shadow.jsonl"
    command = [sys.executable, "-m", "fairlead", "scheduler", "--shadow", "--address", "", "--kubeconfig", str(reader)]
    with report.open("wb") as out, (tmp_path / "shadow.log").open("wb") as log:
        shadow = subprocess.Popen(command, stdout=out, stderr=log, cwd=ROOT)

    def lines(kind):
        return [each for each in map(json.loads, report.read_text().splitlines()) if each["kind"] == kind]

    try:
        cluster.create(*(objects.pod(f"p{i}") for i in range(4)), objects.pod("big", gpus=64))
        cluster.until(lambda: len(lines("decided")) == 4 and lines("waiting"))
        assert cluster.placed() == {}, "a shadow binds nothing"
        cluster.scheduler("--no-leader-elect")
        cluster.all_placed(4)
        cluster.until(lambda: len(lines("happened")) == 4)
        assert all(each["lead_seconds"] > 0 for each in lines("happened"))
    finally:
        shadow.send_signal(signal.SIGTERM)
        shadow.wait(20)
    (summary,) = lines("summary")
    assert (summary["decided"], summary["happened"], summary["undecided"]) == (4, 4, 0)
    assert summary["same_node"] == 4, "the same core on the same cluster decides the same"


def test_the_commands_that_show(cluster, reader):
    cluster.create(
        objects.node("a", gpus=4),
        objects.queue("team", quota=4, limit=4),
        *(objects.pod(f"p{i}", queue="team") for i in range(4)),
        objects.pod("late", queue="team"),
    )
    cluster.scheduler("--no-leader-elect")
    cluster.all_placed(4)
    cluster.until(lambda: [name for name in cluster.pods() if cluster.condition(name)])
    jobs = call(reader, "queue")["jobs"]
    (waiting,) = [job for job in jobs if job["state"] == "Pending"]
    assert waiting["reason"]["code"] == "LimitExceeded"
    (node,) = call(reader, "nodes")["nodes"]
    assert (node["gpus"], node["gpus_used"], node["state"]) == (4, 4.0, "allocated")
    team = next(each for each in call(reader, "share")["queues"] if each["name"] == "team")
    assert team["pending"] == 1
    explained = call(reader, "explain", f"pod/{waiting['name']}")
    assert (explained["code"], explained["position"]) == ("LimitExceeded", 1)
    assert explained["numbers"]["limit"] == 4000

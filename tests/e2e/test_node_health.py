"""Nodes and failures on the real API server: exit codes quarantine none, work that ran elsewhere does, its release forgets."""

import json
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest

from testbed.objects import ai_job, node
from tests.e2e.planes import AI_JOBS
from tests.e2e.test_aijobs import members, reaches, start, status

pytestmark = pytest.mark.e2e

NODES, WORKERS = 8, 4
LABEL, FAILURES = "fairlead.dev/quarantined", "fairlead.dev/failures"


PLANE = AI_JOBS


def at(seconds):
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def say(cluster, name, phase, began, ended=None, code=0):
    """What a kubelet would report of a pod with one container."""
    state = {"running": {"startedAt": at(began)}}
    if ended is not None:
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        state["terminated"] |= {"startedAt": at(began), "finishedAt": at(ended)}
    container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}
    said = {"phase": phase, "startTime": at(began), "containerStatuses": [container]}
    path = f"/api/v1/namespaces/default/pods/{name}/status"
    cluster.plane.request("PATCH", path, {"status": said}, "application/merge-patch+json")


def gang(cluster, name, user, workers=WORKERS, **spec):
    made = ai_job(name, workers=workers, restart={"limit": 1, "backoff": "1s"}, **spec)
    made["metadata"]["annotations"] = {"fairlead.dev/user": user}
    cluster.create(made)


def attempt(cluster, name, number, began):
    """All members of an attempt run. Returns pod -> node."""
    wanted = [f"{name}-worker-{index}-{number}" for index in range(WORKERS)]
    cluster.until(lambda: members(cluster, f"{name}-") == wanted)
    for each in wanted:
        say(cluster, each, "Running", began)
    reaches(cluster, name, "Running")
    placed = cluster.placed()
    return {each: placed[each] for each in wanted}


def of_node(cluster, name):
    metadata = cluster.get(f"/api/v1/nodes/{name}")["metadata"]
    return metadata.get("labels") or {}, metadata.get("annotations") or {}


def explain(cluster, what):
    line = [sys.executable, "-m", "fairlead", "explain", what, "-n", "default", "-o", "json"]
    done = subprocess.run([*line, "--kubeconfig", str(cluster.plane.kubeconfig)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_bad_node_is_found_named_and_forgotten_when_released_and_buggy_jobs_blame_none(cluster):
    cluster.create(*(node(f"n{number}", gpus=1) for number in range(NODES)))
    start(cluster)
    now = time.time()
    for number in range(3):  # they fail wherever they are
        name, began = f"buggy-{number}", now - 8000 + 300 * number
        gang(cluster, name, f"user-{number}")
        for each in range(2):
            placed = attempt(cluster, name, each, began + 100 * each)
            say(cluster, min(placed), "Failed", began + 100 * each, began + 100 * each + 20, code=1)
            cluster.until(lambda name=name: status(cluster, name)["phase"] != "Running")
        reaches(cluster, name, "Failed")
        cluster.delete(f"/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/{name}")
        cluster.until(lambda name=name: not members(cluster, name))
    blamed = [name for name in (f"n{number}" for number in range(NODES)) if FAILURES in of_node(cluster, name)[1]]
    assert blamed == [], "exit codes alone are no evidence"
    for number in range(14):
        name, began = f"sound-{number}", now - 6000 + 300 * number
        gang(cluster, name, f"user-{number % 5}")
        placed = attempt(cluster, name, 0, began)
        there = sorted(each for each, where in placed.items() if where == "n0")
        for each in there:
            say(cluster, each, "Failed", began, began + 20, code=1)
        if there:
            again = attempt(cluster, name, 1, began + 30)
            assert "n0" not in again.values(), "it is tried elsewhere"
        for each in again if there else placed:
            say(cluster, each, "Succeeded", began + 30, began + 250)
        reaches(cluster, name, "Succeeded")
        cluster.delete(f"/apis/fairlead.dev/v1alpha1/namespaces/default/aijobs/{name}")
        cluster.until(lambda name=name: not members(cluster, name))
        if LABEL in of_node(cluster, "n0")[0]:
            break
    cluster.until(lambda: LABEL in of_node(cluster, "n0")[0], 30)
    labels = [name for name in (f"n{number}" for number in range(NODES)) if LABEL in of_node(cluster, name)[0]]
    assert labels == ["n0"]
    assert "ran elsewhere" in of_node(cluster, "n0")[1]["fairlead.dev/quarantine-reason"]
    cluster.until(lambda: "Quarantined" in {reason for reason, _ in cluster.events("n0")})

    gang(cluster, "wide", "user-1", workers=NODES)
    cluster.until(lambda: cluster.get("/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups/wide"))
    cluster.until(lambda: len([each for each in cluster.pods() if each.startswith("wide")]) == NODES)
    told = explain(cluster, "podgroup/wide")
    assert told["code"] == "NodeAffinity"
    assert "1 node(s) are quarantined" in told["message"]
    assert "quarantine" in told["advice"]
    (line,) = told["quarantined"]
    assert line.startswith("n0 until 2")
    assert "ran elsewhere" in line

    patch = {"metadata": {"labels": {LABEL: None}}}
    cluster.plane.request("PATCH", "/api/v1/nodes/n0", patch, "application/merge-patch+json")
    cluster.until(lambda: FAILURES not in of_node(cluster, "n0")[1], 10)
    assert "fairlead.dev/released" in of_node(cluster, "n0")[1]
    cluster.until(lambda: len(members(cluster, "wide")) == NODES)

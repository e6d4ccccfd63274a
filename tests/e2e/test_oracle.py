"""Our filters, scores and preemption against kube-scheduler's real plugins, on random clusters."""

from __future__ import annotations

import json

import pytest

from fairlead.cli.feasibility import describe
from fairlead.cluster.cases import decode
from testbed.differential import ask_oracle, differences

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_no_difference_on_random_clusters(first):
    assert differences(range(first, first + 500)) == []


def test_each_filter_can_be_asked_alone():
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}
    answer = ask_oracle([json.dumps({"nodes": [node], "pods": [pod("p", cpu="2")]}).encode()], alone=True)[0]
    assert answer["pods"][0]["alone"] == {"n": ["NodeUnschedulable", "NodeResourcesFit"]}


def pod(name, at="", resources=None, **requests):
    made = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made["spec"]["containers"][0]["resources"] = {"requests": requests}
    if at:
        made["spec"]["nodeName"] = at
    return made


def node(name, cpu="8", memory="32Gi"):
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}}


WRAPPING = [
    # Two pods whose CPU wraps to -1000m each make room for ten CPUs on a node of eight.
    ("cpu that wraps", {"cpu": "9223372036854775807"}, {"cpu": "10"}),
    # Memory beyond int64 counts as nothing: the node, full without end, takes more.
    ("memory that counts as nothing", {"memory": "10E"}, {"memory": "1Gi"}),
]


@pytest.mark.parametrize(("name", "running", "waiting"), WRAPPING, ids=[each[0] for each in WRAPPING])
def test_where_upstream_wraps_we_close_the_node(name, running, waiting):
    pods = [pod("r1", "n", **running), pod("r2", "n", **running), pod("w", **waiting)]
    case = json.dumps({"id": name, "nodes": [node("n")], "pods": pods}).encode()
    assert ask_oracle([case])[0]["pods"][0]["feasible"] == ["n"]
    assert describe(decode(case))["pods"][0]["rejects"] == {"n": "NodeResourcesFit"}


def test_where_upstream_adds_overhead_again_and_again_we_add_it_once():
    """It adds a pod's overhead to its pod-level requests in place where these have a fraction."""
    waiting = pod("w", memory="128Mi")
    waiting["spec"]["resources"] = {"requests": {"cpu": "500m", "memory": "1.5Gi"}}
    waiting["spec"]["overhead"] = {"cpu": "100m", "memory": "512Mi"}
    case = json.dumps({"id": "overhead", "nodes": [node("n", cpu="1", memory="8Gi")], "pods": [waiting]}).encode()
    upstream = ask_oracle([case])[0]["pods"][0]["scores"]["n"]["NodeResourcesBalancedAllocation"]
    ours = describe(decode(case))["pods"][0]["scores"]["n"]["NodeResourcesBalancedAllocation"]
    # 600m of 1 CPU and 2 GiB of 8: (0.6 - 0.25) / 2 = 0.175 off balance, from an even start.
    assert ours == 50 + (50 + 82 - 100) // 2
    assert upstream > ours

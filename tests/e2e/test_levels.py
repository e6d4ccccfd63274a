"""Gangs on the levels of a network, on the real API server."""

import pytest

from fairlead.api import names
from testbed.objects import ai_job, node, pod, pod_group
from tests.e2e.planes import AI_JOBS

pytestmark = pytest.mark.e2e

PLANE = AI_JOBS

LEVELS = [{"name": "block", "label": "topology.example/block"}, {"name": "rack", "label": "topology.example/rack"}]
POOL = {"apiVersion": names.API_VERSION, "kind": "NodePool", "metadata": {"name": "all"}, "spec": {"topologyLevels": LEVELS}}
GROUPS = "/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups"


def on(name, rack, gpus):
    return node(name, gpus=gpus, labels={"topology.example/block": "b", "topology.example/rack": rack})


def near(name, size, **topology):
    made = pod_group(name, size)
    made["spec"]["topology"] = topology
    return made


def reason(cluster, name):
    return (((cluster.get(f"{GROUPS}/{name}") or {}).get("status") or {}).get("reason") or {}).get("code")


def test_a_gang_runs_in_one_rack_or_waits_with_numbers(cluster):
    cluster.create(POOL, on("a1", "r1", 3), on("b1", "r2", 2), on("b2", "r2", 2))
    cluster.create(near("fits", 4, required="rack"), *(pod(f"fits-{i}", group="fits") for i in range(4)))
    cluster.create(near("large", 4, required="rack"), *(pod(f"large-{i}", group="large") for i in range(4)))
    cluster.create(near("row", 1, required="row"), pod("row-0", group="row"))
    scheduler = cluster.scheduler("--no-leader-elect")
    placed = cluster.all_placed(4)
    assert {name: where[0] for name, where in placed.items()} == {f"fits-{i}": "b" for i in range(4)}
    cluster.until(lambda: reason(cluster, "large") == "Topology")
    cluster.until(lambda: "rack r1 has 3 of 4, the most of 2" in (cluster.condition("large-0") or ("", ""))[1])
    cluster.until(lambda: "no NodePool has the topology level 'row'" in (cluster.condition("row-0") or ("", ""))[1])
    pool = cluster.get("/apis/fairlead.dev/v1alpha1/nodepools/all")
    cluster.until(lambda: (cluster.get("/apis/fairlead.dev/v1alpha1/nodepools/all").get("status") or {}).get("conditions"))
    assert pool["spec"]["topologyLevels"] == LEVELS
    cluster.create(on("a2", "r1", 1))
    placed = cluster.all_placed(8)
    assert {where[0] for name, where in placed.items() if name.startswith("large")} == {"a"}
    assert scheduler.stop() == 0


def test_an_aijob_hands_its_topology_to_its_gang(cluster):
    cluster.create(POOL, on("a1", "r1", 3), on("b1", "r2", 2), on("b2", "r2", 2))
    cluster.create(ai_job("bert", workers=4, topology={"required": "rack"}))
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect")
    placed = cluster.all_placed(4)
    assert {where[0] for where in placed.values()} == {"b"}
    assert cluster.get(f"{GROUPS}/bert")["spec"]["topology"] == {"required": "rack"}

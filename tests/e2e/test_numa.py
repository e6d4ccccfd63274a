"""NodeResourceTopology objects on the real API server: pods wait for GPUs of one NUMA node, and go where their kubelet admits them."""

import json

import pytest

from fairlead.api import names
from testbed.numa.definition import definition
from testbed.objects import GPU, node, pod
from tests.e2e.planes import Plane

pytestmark = pytest.mark.e2e

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


def with_topologies(plane):
    plane.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    plane.await_served(TOPOLOGIES)


PLANE = Plane(prepare=with_topologies)


def zones(gpus):
    amounts = {"cpu": "64", "memory": "1Ti", GPU: str(gpus)}
    has = [{"name": each, "capacity": text, "allocatable": text, "available": text} for each, text in amounts.items()]
    told = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
    return {
        "zones": [{"name": f"node-{at}", "type": "Node", "resources": has} for at in range(2)],
        "attributes": [{"name": key, "value": value} for key, value in told.items()],
    }


def topology(name, gpus=4):
    made = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": name}}
    return {**made, **zones(gpus)}


@pytest.fixture
def told(cluster):
    """A cluster in which topologies may be published."""

    def publish(made):
        cluster.plane.request("POST", TOPOLOGIES, made)

    yield cluster, publish
    for each in cluster.schedulers:
        each.kill()
    cluster.delete(TOPOLOGIES)


def test_pods_go_where_one_numa_node_has_their_gpus(told):
    """Two pods of 3 GPUs leave 1+1 of 8: a third that needs two waits, with numbers, though two are free."""
    cluster, publish = told
    cluster.create(node("a"))
    publish(topology("a"))
    cluster.create(pod("first", gpus=3), pod("second", gpus=3))
    scheduler = cluster.scheduler("--no-leader-elect")
    cluster.all_placed(2)
    cluster.create(pod("third", gpus=2))
    cluster.until(lambda: "cannot give 2 nvidia.com/gpu from one NUMA node" in (cluster.condition("third") or ("", ""))[1])
    message = cluster.condition("third")[1]
    assert "on a node-0 has 1 nvidia.com/gpu free, node-1 has 1 nvidia.com/gpu free" in message
    cluster.create(node("b"))
    publish(topology("b"))
    assert cluster.all_placed(3)["third"] == "b"
    assert scheduler.stop() == 0


def test_an_annotation_says_the_same(told):
    cluster, _ = told
    made = node("a", gpus=4)
    made["metadata"]["annotations"] = {names.NUMA_ANNOTATION: json.dumps(zones(2))}
    cluster.create(made, pod("large", gpus=3), pod("small", gpus=2))
    cluster.scheduler("--no-leader-elect")
    assert cluster.all_placed(1) == {"small": "a"}
    cluster.until(lambda: "cannot give 3 nvidia.com/gpu from one NUMA node" in (cluster.condition("large") or ("", ""))[1])


def test_zones_that_contradict_the_node_do_not_stop_it(told):
    cluster, publish = told
    cluster.create(node("a", gpus=8), pod("large", gpus=6))
    publish(topology("a", gpus=2))
    cluster.scheduler("--no-leader-elect")
    assert cluster.all_placed(1) == {"large": "a"}

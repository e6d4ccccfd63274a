"""NodeResourceTopology objects and annotations as the core has them, and what pods need of NUMA nodes."""

import json

import msgspec
import pytest

from fairlead.api.names import NUMA_ANNOTATION
from fairlead.cluster import convert, numa, pod_specs, views
from fairlead.core.numa.model import ContainerNeed

GPU = "nvidia.com/gpu"


def zone(name, **amounts):
    resources = [{"name": key, "capacity": str(whole), "allocatable": str(usable)} for key, (whole, usable) in amounts.items()]
    return {"name": name, "type": "Node", "resources": resources}


def topology(zones, **attributes):
    listed = [{"name": key, "value": value} for key, value in attributes.items()]
    told = {"metadata": {"name": "n"}, "zones": zones, "attributes": listed}
    return numa.topology(msgspec.convert(told, numa.NodeResourceTopology))


def test_zones_in_the_order_of_their_numbers_with_what_is_reserved():
    zones = [zone("node-10", cpu=(8, 8), memory=(1 << 30, 1 << 29), **{GPU: (4, 4)}), zone("node-2", cpu=(8, 6))]
    read = topology(zones, topologyManagerPolicy="restricted", topologyManagerScope="pod").machine
    assert [each.name for each in read.zones] == ["node-2", "node-10"]
    assert (read.zones[0].cpus, read.zones[0].cpus_reserved) == (8, 2)
    assert read.zones[1].memory == (("memory", 1 << 29),)
    assert read.zones[1].devices == ((GPU, 4),)
    assert (read.policy, read.scope, read.static, read.memory_static) == ("restricted", "pod", True, True)


def test_old_policies_are_understood():
    told = {"metadata": {"name": "n"}, "zones": [zone("node-0")], "topologyPolicies": ["SingleNUMANodePodLevel"]}
    read = numa.topology(msgspec.convert(told, numa.NodeResourceTopology)).machine
    assert (read.policy, read.scope, read.static, read.memory_static) == ("single-numa-node", "pod", False, False)


@pytest.mark.parametrize(
    ("zones", "attributes", "fault"),
    [
        ([], {}, "no zone of type Node"),
        ([zone("left")], {}, "'left' does not end with the number"),
        ([zone("node-" + "9" * 5000)], {}, "does not end with the number"),
        ([zone("node-0")], {"threadsPerCore": "9" * 5000}, "is no number from 1 to 16"),
        ([zone("node-0"), zone("numa0")], {}, "two zones have the same number"),
        ([zone("node-0")], {"topologyManagerPolicy": "best"}, "topologyManagerPolicy: 'best' is none of"),
        ([zone("node-0", cpu=(4, 4))], {"memoryManagerPolicy": "Static"}, "no zone has the resource memory"),
        ([zone("node-0")], {"cpuManagerPolicy": "static"}, "no zone has the resource cpu"),
        ([zone("node-0", cpu=(4, 4))], {"cpuManagerPolicyOptions": "full-pcpus-only=true"}, "threadsPerCore is not given"),
        ([zone("node-0")], {"cpuManagerPolicyOptions": "align-by-socket=true"}, "'align-by-socket' is not predicted"),
        ([zone(f"node-{at}") for at in range(9)], {}, "9 zones are more than the 8"),
        ([zone("node-0", cpu=("many", 4))], {}, "many"),
        ([zone("node-0")], {"topologyManagerPolicyOptions": "prefer-closest-numa-nodes=true"}, "no costs to all zones"),
    ],
)
def test_what_cannot_be_used_is_a_fault(zones, attributes, fault):
    read = topology(zones, **attributes)
    assert read.machine is None
    assert fault in read.fault


def test_an_annotation_has_the_same_fields():
    text = json.dumps({"zones": [zone("node-0", cpu=(4, 4))]})
    good, bad = (
        convert.node(msgspec.convert({"metadata": {"name": "n", "annotations": {NUMA_ANNOTATION: each}}}, views.Node))
        for each in (text, "{")
    )
    assert good.numa.machine.static
    assert bad.numa.fault.startswith(f"annotation {NUMA_ANNOTATION}: ")


def pod(*containers, init=()):
    spec = {"containers": list(containers), "initContainers": list(init)}
    return pod_specs.pod_spec(msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, views.Pod)).numa


def container(cpu, gpus=0, requests=None, **more):
    limits = {"cpu": cpu, "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    return {"resources": {"limits": limits, "requests": limits if requests is None else requests}, **more}


def test_guaranteed_pods_with_whole_cpus_need_their_own():
    memory = (("memory", 1 << 30),)
    assert pod(container("2", 1)) == (ContainerNeed(2, memory, ((GPU, 1),)),)
    assert pod(container("1500m")) == (ContainerNeed(0, memory),)
    assert pod(container("2", 1, requests={"cpu": "1"})) == (ContainerNeed(devices=((GPU, 1),)),)
    assert pod(container("2", requests={"cpu": "1"})) == ()
    first = container("1", restartPolicy="Always"), container("3")
    assert pod(container("2"), init=first) == (
        ContainerNeed(1, memory, sidecar=True),
        ContainerNeed(3, memory, init=True),
        ContainerNeed(2, memory),
    )

"""What `fairlead devices` says of random clusters: compared with the allocator, and with the objects themselves."""

import msgspec
import pytest

from fairlead.api.names import GPU_TOPOLOGY_ANNOTATION
from fairlead.cli.devices import _held
from fairlead.cluster import device_views as views
from fairlead.cluster.convert import node as node_of
from fairlead.cluster.device_overview import DeviceLine, Devices
from fairlead.cluster.views import Node as WatchedNode
from fairlead.core.dra.allocator import Options, Preference
from fairlead.core.dra.evaluation import Evaluation
from fairlead.core.dra.held import Held
from fairlead.core.dra.model import DeviceId
from fairlead.core.dra.refusals import Refusal
from fairlead.core.model.nodes import Node
from testbed.dra.clusters import generate
from testbed.dra.ours import Case

STATES = {"free", "allocated", "shared", "blocked", "tainted", "withdrawn"}


def overview(case):
    """The devices of a cluster as API objects."""
    return Devices(
        [Node(each["metadata"]["name"], {}, dict(each["metadata"].get("labels") or {})) for each in case["nodes"]],
        [msgspec.convert(each, views.ResourceSlice) for each in case["slices"]],
        [msgspec.convert(each, views.DeviceClass) for each in case["classes"]],
        [msgspec.convert(each, views.ResourceClaim) for each in case["allocated"]],
    )


@pytest.mark.parametrize("seed", range(150))
def test_a_claim_fits_where_the_allocator_places_it_and_every_device_that_is_held_shows_its_claims(seed):
    drawn = generate(seed)
    known, case = overview(drawn), Case(drawn, Evaluation())
    case.held = Held()
    allocated = [msgspec.convert(each, views.ResourceClaim) for each in drawn["allocated"]]
    case.held.take([views.allocation(each.status.allocation) for each in allocated], known._seen)
    for claim in case.claims:
        case.claims = [claim]
        answers = case.answers(Options(Preference.PACKED))
        for fit in known.fits(claim):
            answer = answers.pop(fit.node)
            assert fit.fits == (not isinstance(answer, Refusal))
            assert fit.fits or (fit.reason and fit.kind == answer.kind.value)
            if fit.fits:
                assert sum(map(len, fit.devices.values())) == len(answer[0].devices)
        assert all(isinstance(each, Refusal) or not each[0].devices for each in answers.values())  # no device is there
    lines = {DeviceId(line.driver, line.pool, line.device): line for line in known.lines()}
    assert len(lines) == len(known.lines())
    assert {line.state for line in lines.values()} <= STATES
    shown = {(str(device), holder.claim) for device, line in lines.items() for holder in line.holders}
    usable = {device for device, line in lines.items() if line.state != "withdrawn"}
    for claim in allocated:
        for result in claim.status.allocation.devices.results or ():
            device = DeviceId(result.driver, result.pool, result.device)
            if device in usable or device not in known._seen:
                assert (str(device), f"{claim.metadata.namespace}/{claim.metadata.name}") in shown
                assert result.admin_access or lines[device].state in ("allocated", "shared", "withdrawn")
            else:  # its pool gives no devices, or no node of these reaches it
                assert device not in lines


def a_slice(name, **spec):
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, **spec}}


def of_slices(*slices, claims=()):
    return overview({"nodes": [{"metadata": {"name": "n"}}], "slices": slices, "classes": [], "allocated": claims})


def test_a_partition_is_blocked_by_the_one_that_holds_its_counters():
    memory = {"gpu-0": {"memory": {"value": "40Gi"}}}
    partitions = [
        {"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": size}}}]}
        for name, size in (("whole", "40Gi"), ("half-0", "20Gi"), ("half-1", "20Gi"))
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": name, "counters": each} for name, each in memory.items()]
    claim = {
        "metadata": {"namespace": "ns", "name": "c"},
        "status": {
            "allocation": {
                "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "half-0"}]}
            },
            "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "1"}],
        },
    }
    known = of_slices(
        a_slice("a", pool=pool, sharedCounters=counters), a_slice("b", pool=pool, devices=partitions), claims=[claim]
    )
    found = {line.device: line for line in known.lines()}
    assert {name: line.state for name, line in found.items()} == {"whole": "blocked", "half-0": "allocated", "half-1": "free"}
    (holder,) = found["half-0"].holders
    assert (holder.claim, holder.pods) == ("ns/c", ["ns/train-0"])
    assert not known.mistakes


def test_a_gpu_topology_that_cannot_be_used_is_a_mistake_of_its_node():
    def of(text, *devices):
        annotated = {"name": "n", "annotations": {GPU_TOPOLOGY_ANNOTATION: text}}
        item = a_slice("s", driver="gpu.nvidia.com", devices=[{"name": name} for name in devices])
        view = msgspec.convert({"metadata": annotated}, WatchedNode)
        return Devices([node_of(view)], [msgspec.convert(item, views.ResourceSlice)], [], []).mistakes

    good = "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\tX\n"
    assert of(good, "gpu-0", "gpu-1") == []
    (asymmetric,) = of(good.replace("GPU1\tNV1", "GPU1\tSYS"), "gpu-0", "gpu-1")
    assert asymmetric == ("node n: annotation fairlead.dev/gpu-topology: Asymmetric: GPU1 to GPU0 is 10, and GPU0 to GPU1 is 100")
    (others,) = of(good, "gpu-0", "gpu-1", "gpu-2")
    assert "OtherGPUs: device gpu-2 is not one of gpu-0 to gpu-1" in others


def test_what_cannot_be_used_is_told_with_its_reason():
    known = of_slices(
        a_slice("a", pool={"name": "n", "generation": 1, "resourceSliceCount": 2}, devices=[{"name": "g"}]),
        a_slice("b", nodeName="gone", pool={"name": "p", "generation": 1, "resourceSliceCount": 1}, devices=[{"name": "g"}]),
        a_slice(
            "c", pool={"name": "q", "generation": 1, "resourceSliceCount": 1}, devices=[{"name": "g", "attributes": {"x": {}}}]
        ),
    )
    assert not known.lines()
    assert sorted(known.mistakes) == [
        "ResourceSlice b: node gone does not exist",
        "ResourceSlice c: device g: an attribute has 0 values of known types, and one is needed",
        "pool gpu.example.com/n: 1 of 2 slices of generation 1 are there",
    ]


def test_an_extended_resource_is_had_from_plugins_and_from_devices_of_its_class():
    resource = "example.com/gpu"
    spec = {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}], "extendedResourceName": resource}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    held = {"request": "container-0-request-0", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    claim = {
        "metadata": {"namespace": "ns", "name": "p-x", "annotations": annotations, "ownerReferences": [owner]},
        "spec": {"devices": {"requests": [{"name": "container-0-request-0", "exactly": {"deviceClassName": "gpu"}}]}},
        "status": {
            "allocation": {"devices": {"results": [held]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        },
    }
    known = Devices(
        [Node("n", {}), Node("m", {resource: 4}), Node("o", {})],
        [msgspec.convert(a_slice("s", devices=[{"name": "gpu-0"}, {"name": "gpu-1"}]), views.ResourceSlice)],
        [msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, views.DeviceClass)],
        [msgspec.convert(claim, views.ResourceClaim)],
    )
    assert known.class_of(resource) == "gpu"
    assert [(each.node, each.fits, each.kind) for each in known.serves(resource, 1)] == [
        ("m", True, "device-plugin"),
        ("n", True, ""),
    ]
    assert [(each.node, each.fits) for each in known.serves(resource, 2)] == [("m", True), ("n", False)]
    assert "1 are allocated" in known.serves(resource, 2)[1].reason
    assert [each.fits for each in known.serves("example.com/other", 1)] == []
    ((holder,),) = [line.holders for line in known.lines() if line.holders]
    assert holder.resources == [resource]
    shown = DeviceLine("n", 1, "gpu.example.com", "n", "gpu-0", "", "allocated", [holder], [])
    assert "ns/p-x (p) for example.com/gpu" in str(_held(shown.holders[0]))

"""Objects of resource.k8s.io as the core has them, and what of them cannot be read."""

import msgspec
import pytest

from fairlead.cluster import device_views as views
from fairlead.core.dra import model


def read_slice(**spec):
    base = {"driver": "d", "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2}, "nodeName": "n0"}
    return views.device_slice(msgspec.convert({"metadata": {"name": "s"}, "spec": {**base, **spec}}, views.ResourceSlice))


def read_claim(**devices):
    view = msgspec.convert({"metadata": {"name": "c", "namespace": "x"}, "spec": {"devices": devices}}, views.ResourceClaim)
    return views.device_claim(view.metadata, view.spec)


def test_a_slice_is_read_with_all_that_a_device_has():
    found = read_slice(
        devices=[
            {
                "name": "g",
                "attributes": {"model": {"string": "a"}, "n": {"int": 0}, "ok": {"bool": False}, "fw": {"version": "1.2.3"}},
                "capacity": {
                    "memory": {
                        "value": "16Gi",
                        "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}},
                    },
                    "half": {"value": "500m", "requestPolicy": {"validValues": ["250m", "500m"]}},
                },
                "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "2"}}}],
                "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
                "allowMultipleAllocations": True,
                "bindsToNode": True,
                "bindingConditions": ["ready"],
                "bindingFailureConditions": ["failed"],
            }
        ]
    )
    device = found.devices[0]
    assert (found.driver, found.pool, found.generation, found.slices, found.reach.node) == ("d", "p", 3, 2, "n0")
    assert device.attributes == {"model": "a", "n": 0, "ok": False, "fw": model.Version("1.2.3")}
    assert device.capacity["memory"] == model.Capacity(16 << 30, model.Policy(1 << 30, (), 1 << 30, 8 << 30, 1 << 30))
    assert [float(each) for each in device.capacity["half"].policy.values] == [0.25, 0.5]
    assert device.counters == (("c", (("m", 2),)),)
    assert (device.taints, device.multiple, device.binds_to_node) == ((model.Taint("k", "v", "NoExecute"),), True, True)
    assert (device.conditions, device.failures) == (("ready",), ("failed",))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"devices": [{"name": "g", "attributes": {"a": {}}}]}, "device g: an attribute has 0 values"),
        ({"devices": [{"name": "g", "capacity": {"m": {"value": "much"}}}]}, "device g: 'much' is not a quantity"),
        (
            {
                "devices": [
                    {"name": "g", "capacity": {"m": {"value": "1", "requestPolicy": {"validRange": {"min": "0", "step": "0"}}}}}
                ]
            },
            "steps of 0",
        ),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, "2 terms"),
        ({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}, "cannot be read"),
    ],
)
def test_a_slice_that_cannot_be_read_says_what_is_wrong(spec, message):
    with pytest.raises(views.DeviceError, match=message) as caught:
        read_slice(**spec)
    assert str(caught.value).startswith("ResourceSlice s: ")


def test_a_claim_is_read_with_its_defaults():
    found = read_claim(
        requests=[
            {"name": "r", "exactly": {"deviceClassName": "gpu"}},
            {
                "name": "s",
                "firstAvailable": [
                    {"name": "a", "deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": "true"}}]}
                ],
            },
        ],
        constraints=[{"matchAttribute": "d/x", "requests": ["r"]}, {"distinctAttribute": "d/y"}],
        config=[{"opaque": {"driver": "d", "parameters": {"b": 1}}, "requests": ["r"]}],
    )
    assert found.mistake == ""
    assert [one.name for each in found.requests for one in each.alternatives] == ["r", "s/a"]
    assert (found.requests[0].alternatives[0].mode, found.requests[0].alternatives[0].count) == ("ExactCount", 1)
    assert found.requests[1].alternatives[0].selectors == ("true",)
    assert found.constraints == (model.Constraint("d/x", False, ("r",)), model.Constraint("d/y", True))
    assert found.configs == (model.Config('{"driver":"d","parameters":{"b":1}}', ("r",)),)


@pytest.mark.parametrize(
    ("devices", "mistake"),
    [
        ({"requests": [{"name": "r", "exactly": {"count": -1}}]}, "request r: a count of -1 is negative"),
        ({"requests": [{"name": "r", "exactly": {"selectors": [{}]}}]}, "request r: a selector is of no known type: only cel is"),
        ({"requests": [{"name": "r", "exactly": {"capacity": {"requests": {"m": "x"}}}}]}, "request r: 'x' is not a quantity"),
        ({"constraints": [{}]}, "a constraint is of no known type"),
    ],
)
def test_a_claim_that_cannot_be_read_says_so(devices, mistake):
    assert read_claim(**devices).mistake.startswith(mistake)


def test_an_allocation_is_read_as_far_as_it_keeps_devices_from_others():
    result = {"request": "r", "driver": "d", "pool": "p", "device": "g", "shareID": "1", "consumedCapacity": {"m": "1Ki"}}
    status = {"devices": {"results": [result, {**result, "adminAccess": True}]}}
    found = views.allocation(msgspec.convert(status, views.AllocationResult))
    assert [(str(each.device), each.shared, each.admin, each.consumed) for each in found.devices] == [
        ("d/p/g", True, False, (("m", 1024),)),
        ("d/p/g", True, True, (("m", 1024),)),
    ]

"""`fairlead devices` on the real API server: partitions and holders as their objects say, and why a claim does not fit."""

import json

import pytest
from typer.testing import CliRunner

from fairlead.cli.main import app
from testbed.objects import node

pytestmark = pytest.mark.e2e

GROUP = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"


def partition(name, size, profile):
    return {
        "name": name,
        "attributes": {"profile": {"string": profile}},
        "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": size}}}],
    }


def slices(name):
    """One GPU that is either whole or two halves, as a driver publishes it."""
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    devices = [
        partition("whole", "80Gi", "7g.80gb"),
        partition("half-0", "40Gi", "3g.40gb"),
        partition("half-1", "40Gi", "3g.40gb"),
    ]
    return [
        {"name": f"{name}-{part}", "driver": DRIVER, "nodeName": name, "pool": pool, **more}
        for part, more in (("counters", {"sharedCounters": counters}), ("devices", {"devices": devices}))
    ]


@pytest.fixture
def devices(cluster):
    """Two nodes with a GPU each, a class, and a claim that holds half of one GPU."""
    request = cluster.plane.request
    cluster.create(node("n0"), node("n1"))
    for each in (*slices("n0"), *slices("n1")):
        name = each.pop("name")
        request("POST", f"{GROUP}/resourceslices", {**kind("ResourceSlice", name), "spec": each})
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    request("POST", f"{GROUP}/deviceclasses", {**kind("DeviceClass", DRIVER), "spec": {"selectors": [selector]}})
    claim(cluster, "held", "true")
    held = request("GET", f"{GROUP}/namespaces/default/resourceclaims/held")
    held["status"] = {
        "allocation": {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "n0", "device": "half-0"}]}},
        "reservedFor": [{"resource": "pods", "name": "train-0", "uid": "1"}],
    }
    request("PUT", f"{GROUP}/namespaces/default/resourceclaims/held/status", held)
    yield cluster
    for path in (
        "namespaces/default/resourceclaims",
        "namespaces/default/resourceclaimtemplates",
        "resourceslices",
        "deviceclasses",
    ):
        cluster.delete(f"{GROUP}/{path}")


def kind(name, called):
    return {"apiVersion": "resource.k8s.io/v1", "kind": name, "metadata": {"name": called}}


def spec_of(expression, count=1):
    exactly = {"deviceClassName": DRIVER, "count": count, "selectors": [{"cel": {"expression": expression}}]}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def claim(cluster, name, expression, count=1):
    made = {**kind("ResourceClaim", name), "spec": spec_of(expression, count)}
    cluster.plane.request("POST", f"{GROUP}/namespaces/default/resourceclaims", made)


def fairlead(cluster, *arguments):
    return CliRunner().invoke(app, ["devices", "--kubeconfig", str(cluster.plane.kubeconfig), *arguments])


def shown(cluster, *arguments):
    done = fairlead(cluster, *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_partitions_are_shown_with_who_holds_them_and_what_that_blocks(devices):
    lines = {(line["node"], line["device"]): line for line in shown(devices)["devices"]}
    assert {key: line["state"] for key, line in lines.items()} == {
        ("n0", "whole"): "blocked",
        ("n0", "half-0"): "allocated",
        ("n0", "half-1"): "free",
        ("n1", "whole"): "free",
        ("n1", "half-0"): "free",
        ("n1", "half-1"): "free",
    }
    assert lines["n0", "half-0"]["holders"] == [
        {"claim": "default/held", "pods": ["default/train-0"], "consumed": {}, "admin": False, "resources": []}
    ]
    assert lines["n0", "whole"]["description"] == "7g.80gb"
    assert {line["node"] for line in shown(devices, "--node", "n1")["devices"]} == {"n1"}
    assert not shown(devices, "--driver", "nic.example.com")["devices"]
    table = fairlead(devices).stdout.splitlines()
    assert table[0].split() == ["NODE", "DRIVER", "DEVICE", "WHAT", "STATE", "HELD", "BY"]
    assert "n0    gpu.example.com  half-0  3g.40gb  allocated  default/held (train-0)" in table


def test_why_a_claim_does_not_fit_is_told_for_each_node(devices):
    whole = f'device.attributes["{DRIVER}"].profile == "7g.80gb"'
    claim(devices, "whole", whole)
    told = shown(devices, "--claim", "whole", "-n", "default")["claim"]
    assert (told["kind"], told["allocated"]) == ("ResourceClaim", False)
    n0, n1 = told["nodes"]
    assert (n0["fits"], n0["kind"]) == (False, "not enough devices")
    assert n0["reason"] == (
        "request gpu: 1 of the devices needed, 0 can be had: 3 devices, 2 fail selector 0, 1 lack free counters"
    )
    assert (n1["fits"], n1["devices"]) == (True, {"gpu": [f"{DRIVER}/n1/whole"]})
    text = fairlead(devices, "--claim", "whole", "-n", "default").stdout
    assert "ResourceClaim default/whole fits 1 of 2 nodes with devices" in text


def test_a_template_is_judged_as_the_claims_it_will_make_and_a_small_part_leaves_the_whole_gpu(devices):
    made = {
        **kind("ResourceClaimTemplate", "half"),
        "spec": {"spec": spec_of(f'device.attributes["{DRIVER}"].profile == "3g.40gb"')},
    }
    devices.plane.request("POST", f"{GROUP}/namespaces/default/resourceclaimtemplates", made)
    told = shown(devices, "--claim", "half", "-n", "default")["claim"]
    assert told["kind"] == "ResourceClaimTemplate"
    assert [each["fits"] for each in told["nodes"]] == [True, True]
    assert told["nodes"][0]["devices"] == {"gpu": [f"{DRIVER}/n0/half-1"]}


def test_a_claim_that_is_allocated_says_what_it_holds(devices):
    told = shown(devices, "--claim", "held", "-n", "default")["claim"]
    assert (told["allocated"], told["held"], told["pods"]) == (True, [f"{DRIVER}/n0/half-0"], ["default/train-0"])
    text = fairlead(devices, "--claim", "held", "-n", "default").stdout
    assert text == f"default/held holds {DRIVER}/n0/half-0, reserved for default/train-0\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--claim", "none", "-n", "default"), "there is no ResourceClaim and no ResourceClaimTemplate 'none'"),
        (("--node", "none"), "node 'none' does not exist"),
    ],
)
def test_what_does_not_exist_is_named(devices, arguments, said):
    done = fairlead(devices, *arguments)
    assert (done.exit_code, said in done.output) == (4, True), done.output

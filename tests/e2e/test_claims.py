"""ResourceClaims with the real API server and its controllers: allocated, reserved, bound, and given back."""

from __future__ import annotations

import asyncio
import urllib.error

import pytest

from fairlead.cluster import claim_status
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import load
from fairlead.cluster.kubernetes.device_claims import DeviceClaims
from fairlead.core.model.allocations import Allocation, Chosen, DeviceId
from fairlead.core.model.transactions import Binding, DeviceChoice, PodRef
from testbed import objects
from testbed.controlplane import ControlPlane
from tests.e2e.conftest import Cluster
from tests.e2e.planes import USER

pytestmark = pytest.mark.e2e

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"
CONTROLLERS = "resourceclaim-controller,garbage-collector-controller,serviceaccount-controller"


@pytest.fixture(scope="module")
def plane():
    with ControlPlane(controllers=CONTROLLERS) as running:
        running.install(USER)
        selectors = [cel(f'device.driver == "{DRIVER}"')]
        running.request("POST", f"{GROUP}/deviceclasses", kind("DeviceClass", "gpu", {"selectors": selectors}))
        yield running


@pytest.fixture
def cluster(plane, tmp_path):
    made = Cluster(plane, tmp_path)
    made.until(lambda: made.get("/api/v1/namespaces/default/serviceaccounts/default"))
    yield made
    made.clean()
    for path in (CLAIMS, f"{GROUP}/namespaces/default/resourceclaimtemplates", f"{GROUP}/resourceslices"):
        made.delete(path)
    made.until(lambda: not made.pods() and not claims(made))


def kind(name, called, spec):
    return {"apiVersion": "resource.k8s.io/v1", "kind": name, "metadata": {"name": called}, "spec": spec}


def cel(expression):
    return {"cel": {"expression": expression}}


def gpus(cluster, host, count, **more):
    """A node with GPUs, as a driver publishes them."""
    cluster.create(objects.node(host, gpus=0))
    pool = {"name": host, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{each}", **more} for each in range(count)]
    spec = {"driver": DRIVER, "nodeName": host, "pool": pool, "devices": devices}
    cluster.plane.request("POST", f"{GROUP}/resourceslices", kind("ResourceSlice", f"{host}-gpus", spec))


def wants(count=1):
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}]}}


def claim(cluster, name, count=1):
    cluster.plane.request("POST", CLAIMS, kind("ResourceClaim", name, wants(count)))


def template(cluster, name, count=1):
    path = f"{GROUP}/namespaces/default/resourceclaimtemplates"
    cluster.plane.request("POST", path, kind("ResourceClaimTemplate", name, {"spec": wants(count)}))


def user(name, claim="", template="", **more):
    source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    pod = objects.pod(name, gpus=0, resourceClaims=[{"name": "gpu", **source}], **more)
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return pod


def claims(cluster):
    return {item["metadata"]["name"]: item for item in cluster.get(CLAIMS)["items"]}


def holders(cluster):
    """device -> the claims that hold it."""
    found = {}
    for name, item in claims(cluster).items():
        for each in (((item.get("status") or {}).get("allocation") or {}).get("devices") or {}).get("results") or ():
            found.setdefault((each["pool"], each["device"]), []).append(name)
    return found


def test_claims_of_pods_and_of_templates_are_allocated_reserved_and_given_back(cluster):
    gpus(cluster, "n1", 2)
    gpus(cluster, "n2", 1)
    claim(cluster, "two", 2)
    template(cluster, "one")
    cluster.scheduler()
    cluster.create(user("a", claim="two"), user("b", template="one"))
    assert cluster.all_placed(2) == {"a": "n1", "b": "n2"}
    two = claims(cluster)["two"]
    assert [each["device"] for each in two["status"]["allocation"]["devices"]["results"]] == ["gpu-0", "gpu-1"]
    assert [each["name"] for each in two["status"]["reservedFor"]] == ["a"]
    assert two["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert all(len(names) == 1 for names in holders(cluster).values())
    cluster.create(user("c", template="one"))
    cluster.until(lambda: "1 devices, 1 are allocated" in (cluster.condition("c") or ("", ""))[1])
    cluster.delete("/api/v1/namespaces/default/pods/b")  # its claim goes with it
    assert cluster.until(lambda: cluster.placed().get("c")) == "n2"
    assert all(len(names) == 1 for names in holders(cluster).values())


def test_a_victim_gives_its_devices_to_the_preemptor(cluster):
    gpus(cluster, "n1", 1)
    template(cluster, "one")
    for name, value in (("low", 1), ("high", 1000)):
        body = {"metadata": {"name": name, "labels": {"test": ""}}, "value": value}
        cluster.plane.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    cluster.scheduler()
    cluster.create(user("low", template="one", priorityClassName="low"))
    cluster.all_placed(1)
    cluster.create(user("high", template="one", priorityClassName="high"))
    cluster.until(
        lambda: (
            cluster.pods().get("low", {"metadata": {"deletionTimestamp": ""}})["metadata"].get("deletionTimestamp") is not None
        )
    )
    cluster.delete("/api/v1/namespaces/default/pods/low")  # its kubelet has ended it
    assert cluster.until(lambda: cluster.placed().get("high")) == "n1"
    assert all(len(names) == 1 for names in holders(cluster).values())


def test_a_claim_that_was_allocated_before_a_restart_is_used_where_its_devices_are(cluster):
    gpus(cluster, "n1", 1)
    gpus(cluster, "n2", 1)
    claim(cluster, "c")
    cluster.create(user("p", claim="c"))
    pod = cluster.pods()["p"]
    held = claims(cluster)["c"]
    node = [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]
    opaque = {"driver": DRIVER, "parameters": {"kind": "GpuConfig", "apiVersion": "example.com/v1"}}  # no patch keeps that order
    held["status"] = {
        "allocation": {
            "devices": {
                "results": [{"request": "gpu", "driver": DRIVER, "pool": "n2", "device": "gpu-0"}],
                "config": [{"source": "FromClass", "requests": ["gpu"], "opaque": opaque}],
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": node}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
    }
    cluster.create(user("q", claim="c"))
    cluster.plane.request("PUT", f"{CLAIMS}/c/status", held)  # a scheduler before this one, which ended then
    cluster.scheduler()
    assert cluster.all_placed(2) == {"p": "n2", "q": "n2"}
    assert sorted(each["name"] for each in claims(cluster)["c"]["status"]["reservedFor"]) == ["p", "q"]


def test_a_reservation_is_taken_back_where_no_patch_does(cluster):
    """Of a claim whose allocation, by another scheduler, and specification have opaque parameters that Go writes otherwise."""
    gpus(cluster, "n2", 1)
    opaque = {"driver": DRIVER, "parameters": {"kind": "GpuConfig", "apiVersion": "example.com/v1"}}
    wanted = wants()
    wanted["devices"]["config"] = [{"opaque": opaque}]
    cluster.plane.request("POST", CLAIMS, kind("ResourceClaim", "c", wanted))
    cluster.create(user("p", claim="c"), user("q", claim="c"))
    pods = {name: PodRef(each["metadata"]["uid"], "default", name) for name, each in cluster.pods().items()}
    held = claims(cluster)["c"]
    results = [{"request": "gpu", "driver": DRIVER, "pool": "n2", "device": "gpu-0"}]
    config = [{"source": "FromClaim", "requests": ["gpu"], "opaque": opaque}]
    held["status"] = {
        "allocation": {"devices": {"results": results, "config": config}},
        "reservedFor": [claim_status.consumer(pods[each]) for each in "pq"],
    }
    held = cluster.plane.request("PUT", f"{CLAIMS}/c/status", held)
    without = {**held, "status": {**held["status"], "reservedFor": [claim_status.consumer(pods["q"])]}}
    merged = {"status": {"reservedFor": without["status"]["reservedFor"]}}
    with pytest.raises(urllib.error.HTTPError, match="422"):  # else this proves nothing
        cluster.plane.request("PATCH", f"{CLAIMS}/c/status", merged, "application/merge-patch+json")
    chosen = Chosen("gpu", DeviceId(DRIVER, "n2", "gpu-0"))
    binding = Binding(pods["p"], "n2", claims=(DeviceChoice("default/c", Allocation((chosen,), ())),))

    async def release():
        async with Client(load(str(cluster.plane.user(USER, USER)))) as client:
            await DeviceClaims(client).release(binding)

    asyncio.run(release())
    left = claims(cluster)["c"]
    assert [each["name"] for each in left["status"]["reservedFor"]] == ["q"]
    assert left["status"]["allocation"] == held["status"]["allocation"]


def test_pods_of_a_job_share_a_claim(cluster):
    gpus(cluster, "n1", 1)
    gpus(cluster, "n2", 1)
    claim(cluster, "c")
    cluster.create(*(user(f"p{each}", claim="c") for each in range(3)))
    cluster.scheduler()
    assert len(set(cluster.all_placed(3).values())) == 1
    assert sorted(each["name"] for each in claims(cluster)["c"]["status"]["reservedFor"]) == ["p0", "p1", "p2"]


def test_resources_that_a_class_serves_are_had_by_devices_where_no_plugin_advertises_them(cluster):
    """The claim is created with the binding, named in the pod's status, deleted with the pod, and never there twice."""
    resource = "example.com/card"
    selectors = [cel(f'device.driver == "{DRIVER}"')]
    path = f"{GROUP}/deviceclasses"
    cluster.plane.request("POST", path, kind("DeviceClass", "card", {"selectors": selectors, "extendedResourceName": resource}))
    try:
        gpus(cluster, "n1", 1)
        plugin = objects.node("n2", gpus=0)
        for amounts in ("allocatable", "capacity"):
            plugin["status"].setdefault(amounts, {})[resource] = "1"
        cluster.create(plugin)
        cluster.scheduler()
        cluster.create(*(asking(f"p{each}", resource) for each in range(2)))
        where = cluster.all_placed(2)
        assert sorted(where.values()) == ["n1", "n2"]
        by_devices = next(name for name, host in where.items() if host == "n1")
        ((name, made),) = claims(cluster).items()
        assert name.startswith(f"{by_devices}-extended-resources-")
        assert made["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
        assert [each["name"] for each in made["status"]["reservedFor"]] == [by_devices]
        status = cluster.pods()[by_devices]["status"]["extendedResourceClaimStatus"]
        mapping = {
            "containerName": "main",
            "resourceName": resource,
            "requestName": request_of(cluster.pods()[by_devices], resource),
        }
        assert status == {"resourceClaimName": name, "requestMappings": [mapping]}
        assert all(
            "extendedResourceClaimStatus" not in each["status"] for key, each in cluster.pods().items() if key != by_devices
        )
        cluster.create(asking("q", resource))
        cluster.until(lambda: f"1 Insufficient {resource}" in (cluster.condition("q") or ("", ""))[1])
        assert f"{resource} by device class card" in cluster.condition("q")[1]
        cluster.delete(f"/api/v1/namespaces/default/pods/{by_devices}")  # its claim goes with it
        assert cluster.until(lambda: cluster.placed().get("q")) == "n1"
        cluster.until(lambda: len(claims(cluster)) == 1)
        assert all(len(names) == 1 for names in holders(cluster).values())
    finally:
        cluster.plane.request("DELETE", f"{path}/card")


def test_a_claim_that_a_scheduler_left_behind_is_deleted_and_the_pod_gets_another(cluster):
    resource = "deviceclass.resource.kubernetes.io/gpu"
    gpus(cluster, "n1", 1)
    cluster.create(asking("p", resource))
    pod = cluster.pods()["p"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    left = kind("ResourceClaim", "left-behind", wants())
    left["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [owner],
    }
    left = cluster.plane.request("POST", CLAIMS, left)
    results = [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}]
    left["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}],
    }
    cluster.plane.request("PUT", f"{CLAIMS}/left-behind/status", left)  # a scheduler before this one, which ended then
    cluster.scheduler()
    assert cluster.all_placed(1) == {"p": "n1"}
    (name,) = claims(cluster)
    assert name.startswith("p-extended-resources-")
    assert cluster.pods()["p"]["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == name


def test_without_the_feature_pods_wait_for_devices_and_no_claim_is_made(tmp_path):
    resource = "deviceclass.resource.kubernetes.io/gpu"
    with ControlPlane(controllers=CONTROLLERS, flags=["--feature-gates=DRAExtendedResource=false"]) as plane:
        plane.install(USER)
        plane.request("POST", f"{GROUP}/deviceclasses", kind("DeviceClass", "gpu", {"selectors": [cel("true")]}))
        cluster = Cluster(plane, tmp_path)
        cluster.until(lambda: cluster.get("/api/v1/namespaces/default/serviceaccounts/default"))
        gpus(cluster, "n1", 1)
        version = cluster.get(CLAIMS)["metadata"]["resourceVersion"]
        cluster.scheduler()
        cluster.create(asking("p", resource))
        cluster.until(lambda: "DRAExtendedResource is off" in (cluster.condition("p") or ("", ""))[1])
        assert "tried again after" in cluster.condition("p")[1]
        changes = plane.request("GET", f"{CLAIMS}?watch=true&resourceVersion={version}&timeoutSeconds=1")
        assert changes is None, "no claim was ever created"
        assert cluster.placed() == {}
        cluster.clean()


def asking(name, resource, amount=1):
    pod = objects.pod(name, gpus=0)
    resources = pod["spec"]["containers"][0].setdefault("resources", {})
    for part in ("requests", "limits"):
        resources.setdefault(part, {})[resource] = str(amount)
    return pod


def request_of(pod, resource):
    at = sorted(pod["spec"]["containers"][0]["resources"]["requests"]).index(resource)
    return f"container-0-request-{at}"

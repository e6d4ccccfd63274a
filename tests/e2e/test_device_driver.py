"""The played DRA driver on the real API server, with the real controllers of claims and device taints; the test allocates."""

import contextlib
import json
import urllib.error

import pytest

from fairlead.cluster.simulated import devices
from fairlead.cluster.simulated.claims import FINALIZER
from fairlead.cluster.simulated.devices import DRIVER, Model
from testbed.dra.played import GROUP, PlayedDriver
from testbed.objects import node, pod
from tests.e2e.planes import NO_SERVICE_ACCOUNTS, Plane

pytestmark = pytest.mark.e2e
PLANE = Plane(
    "garbage-collector-controller,resourceclaim-controller,device-taint-eviction-controller",
    [NO_SERVICE_ACCOUNTS],
)
CLAIMS, TEMPLATES = f"{GROUP}/namespaces/default/resourceclaims", f"{GROUP}/namespaces/default/resourceclaimtemplates"


class Life:
    """Two nodes with devices and a driver; names are those of one test."""

    def __init__(self, cluster, driver, name):
        self.cluster, self.driver, self.name = cluster, driver, name
        self.mig, self.shared = driver.nodes

    def request(self, *arguments):
        return self.cluster.plane.request(*arguments)

    def claim(self, name, path=CLAIMS, **asked):
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": devices.GPU_CLASS, **asked}}]}}
        kind = "ResourceClaim" if path == CLAIMS else "ResourceClaimTemplate"
        body = {"apiVersion": devices.API_VERSION, "kind": kind, "metadata": {"name": name}}
        self.request("POST", path, {**body, "spec": spec if path == CLAIMS else {"spec": spec}})

    def pod(self, name, **source):
        made = pod(name, gpus=0, resourceClaims=[{"name": "gpu", **source}])
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        self.cluster.create(made)

    def made(self, name):
        """The claim that is made for a pod by its template."""

        def noted():
            found = self.cluster.pods()[name]["status"].get("resourceClaimStatuses") or ()
            return found[0]["resourceClaimName"] if found else None

        return self.cluster.until(noted)

    def allocate(self, claim, on, device, *pods, **more):
        """As a scheduler does it: the finalizer, the allocation with its pods, then the bindings."""
        patch = {"metadata": {"finalizers": [FINALIZER]}}
        live = self.request("PATCH", f"{CLAIMS}/{claim}", patch, "application/merge-patch+json")
        uids = {each: self.cluster.pods()[each]["metadata"]["uid"] for each in pods}
        result = {"request": "gpu", "driver": DRIVER, "pool": on, "device": device, **more}
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": each, "uid": uid} for each, uid in uids.items()],
        }
        self.request("PUT", f"{CLAIMS}/{claim}/status", {**live, "status": status})
        for each in pods:
            self.bind(each, on)

    def bind(self, name, on):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": on}}
        self.request("POST", f"/api/v1/namespaces/default/pods/{name}/binding", body)

    def phase(self, name):
        found = self.cluster.pods().get(name)
        return found["status"]["phase"] if found else "gone"

    def until_phase(self, name, phase):
        self.cluster.until(lambda: self.phase(name) == phase)

    def get(self, claim):
        return self.cluster.get(f"{CLAIMS}/{claim}")

    def rounds(self, count=3):
        """The driver has read everything so many times more."""
        wanted = self.driver.rounds + count
        self.cluster.until(lambda: self.driver.rounds >= wanted)


@pytest.fixture
def life(cluster, request):
    cluster.create(node("mig", gpus=0), node("shared", gpus=0))
    with PlayedDriver(cluster.plane, {"mig": Model("mig", 2, "A30"), "shared": Model("shared", 1, "A30")}) as driver:
        yield Life(cluster, driver, request.node.name)
    for path in (CLAIMS, TEMPLATES, f"{GROUP}/resourceslices", f"{GROUP}/deviceclasses"):
        for each in cluster.get(path)["items"]:
            if each["metadata"].get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                with contextlib.suppress(urllib.error.HTTPError):  # its controller was quicker
                    cluster.plane.request("PATCH", f"{path}/{each['metadata']['name']}", patch, "application/merge-patch+json")
        cluster.delete(path)


def test_a_pod_runs_with_its_devices_and_gives_them_back(life):
    life.claim("any", TEMPLATES)
    life.pod("p", resourceClaimTemplateName="any")
    claim = life.made("p")
    life.allocate(claim, "mig", "gpu-0-mig-2g12gb-0", "p")
    life.until_phase("p", "Running")
    [report] = life.get(claim)["status"]["devices"]
    assert (report["device"], report["conditions"][0]["reason"]) == ("gpu-0-mig-2g12gb-0", "Prepared")
    life.driver.end("default", "p")
    life.cluster.until(lambda: life.get(claim) is None)
    assert life.phase("p") == "Succeeded"
    assert not life.driver.nodes["mig"].prepared
    assert life.driver.violations == []


def test_a_pod_whose_claim_is_not_reserved_waits(life):
    life.claim("one")
    life.pod("p", resourceClaimName="one")
    life.bind("p", "mig")
    life.cluster.until(lambda: "is not allowed to use ResourceClaim one" in life.driver.refused.get("default/p", ""))
    assert life.phase("p") == "Pending"


def test_a_device_that_is_given_twice_is_refused_and_found(life):
    for name in ("a", "b"):
        life.claim(name)
        life.pod(name, resourceClaimName=name)
    life.allocate("a", "mig", "gpu-0", "a")
    life.until_phase("a", "Running")
    life.allocate("b", "mig", "gpu-0-mig-1g6gb-0", "b")
    life.cluster.until(lambda: "partitions overlap" in life.driver.refused.get("default/b", ""))
    assert life.phase("b") == "Pending"
    [violation] = life.driver.violations
    assert violation.startswith("gpu-0-counter-set of gpu.nvidia.com/mig is overdrawn in ")
    life.driver.violations.clear()
    life.driver.end("default", "a")
    life.until_phase("b", "Running")


def test_shares_of_a_device_are_given_until_its_memory_is_used_up(life):
    for number, memory in enumerate(("12Gi", "12Gi", "1Gi")):
        name = f"p{number}"
        life.claim(name)
        life.pod(name, resourceClaimName=name)
        uid = f"00000000-0000-4000-8000-00000000000{number}"
        life.allocate(name, "shared", "gpu-0", name, shareID=uid, consumedCapacity={"memory": memory})
    for name in ("p0", "p1"):
        life.until_phase(name, "Running")
    life.cluster.until(lambda: "shares of device gpu-0 need" in life.driver.refused.get("default/p2", ""))
    assert any("shares of device" in each for each in life.driver.violations)


def test_a_driver_that_is_away_prepares_nothing_and_comes_back_with_a_new_generation(life):
    life.claim("any", TEMPLATES)
    life.pod("p", resourceClaimTemplateName="any")
    claim = life.made("p")
    life.driver.withdraw("mig")
    listed = f"{GROUP}/resourceslices?fieldSelector=spec.nodeName=mig"
    assert life.cluster.get(listed)["items"] == []
    life.allocate(claim, "mig", "gpu-1", "p")
    life.cluster.until(lambda: life.driver.refused.get("default/p") == "DRA driver gpu.nvidia.com is not registered")
    life.driver.lose("mig", *devices.of_gpu(life.driver.nodes["mig"].model, 0))
    life.until_phase("p", "Running")
    specs = [each["spec"] for each in life.cluster.get(listed)["items"]]
    assert {spec["pool"]["generation"] for spec in specs} == {2}
    found = {device["name"] for spec in specs for device in spec.get("devices", ())}
    assert found == set(devices.of_gpu(life.driver.nodes["mig"].model, 1))


def test_a_pod_is_evicted_when_its_device_gets_a_taint_and_its_claim_goes_with_it(life):
    life.claim("any", TEMPLATES)
    life.pod("p", resourceClaimTemplateName="any")
    claim = life.made("p")
    life.allocate(claim, "mig", "gpu-1", "p")
    life.until_phase("p", "Running")
    life.driver.taint("mig", "NoExecute", "gpu-1")
    life.until_phase("p", "gone")
    life.cluster.until(lambda: life.get(claim) is None and not life.driver.nodes["mig"].prepared)
    assert life.driver.violations == []


def test_two_pods_share_a_claim_and_force_frees_it(life):
    life.claim("both")
    for name in ("a", "b"):
        life.pod(name, resourceClaimName="both")
    life.allocate("both", "mig", "gpu-0", "a", "b")
    for name in ("a", "b"):
        life.until_phase(name, "Running")
    life.cluster.delete("/api/v1/namespaces/default/pods/a")
    life.rounds()
    assert life.driver.nodes["mig"].prepared
    life.cluster.delete("/api/v1/namespaces/default/pods/b")
    life.cluster.until(lambda: not life.driver.nodes["mig"].prepared)
    life.cluster.until(lambda: life.get("both")["status"] == {})
    assert json.dumps(life.driver.violations) == "[]"

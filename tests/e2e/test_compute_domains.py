"""ComputeDomains on the real API server, NVIDIA's driver played: its class, its channels, the template of each domain, its labels."""

import pytest

from fairlead.api.names import CLIQUE_LABEL, COMPUTE_DOMAIN_CLASS, COMPUTE_DOMAIN_LABEL
from testbed import objects
from testbed.controlplane import ControlPlane
from tests.e2e.conftest import Cluster
from tests.e2e.planes import USER
from tests.e2e.test_claims import CLAIMS, CONTROLLERS, GROUP, cel, claims, kind

pytestmark = pytest.mark.e2e

DRIVER = "compute-domain.nvidia.com"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"


@pytest.fixture(scope="module")
def plane():
    with ControlPlane(controllers=CONTROLLERS) as running:
        running.install(USER)
        made = kind("DeviceClass", COMPUTE_DOMAIN_CLASS, {"selectors": [cel(f'device.driver == "{DRIVER}"')]})
        running.request("POST", f"{GROUP}/deviceclasses", made)
        yield running


@pytest.fixture
def cluster(plane, tmp_path):
    made = Cluster(plane, tmp_path)
    made.until(lambda: made.get("/api/v1/namespaces/default/serviceaccounts/default"))
    yield made
    made.clean()
    for path in (CLAIMS, TEMPLATES, f"{GROUP}/resourceslices"):
        made.delete(path)
    made.until(lambda: not made.pods() and not claims(made))


def host(cluster, name, clique):
    cluster.create(objects.node(name, gpus=2, labels={CLIQUE_LABEL: clique} if clique else {}))
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [{"name": f"channel-{each}"} for each in range(4)]}
    cluster.plane.request("POST", f"{GROUP}/resourceslices", kind("ResourceSlice", f"cd-{name}", spec))


def domain(cluster, uid):
    """The template that the driver makes of a ComputeDomain."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainChannelConfig", "domainID": uid}
    config = [{"requests": ["channel"], "opaque": {"driver": DRIVER, "parameters": parameters}}]
    requests = [{"name": "channel", "exactly": {"deviceClassName": COMPUTE_DOMAIN_CLASS}}]
    spec = {"spec": {"devices": {"requests": requests, "config": config}}}
    cluster.plane.request("POST", TEMPLATES, kind("ResourceClaimTemplate", uid, spec))


def gang(name, size, uid):
    for rank in range(size):
        made = objects.pod(f"{name}-{rank}", group=name, resourceClaims=[{"name": "cd", "resourceClaimTemplateName": uid}])
        made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "cd"}]
        yield made


def test_a_gang_stays_in_one_clique_and_a_node_in_one_domain(cluster):
    for name, clique in (("a1", "c0"), ("b1", "c1"), ("b2", "c1"), ("x", "")):
        host(cluster, name, clique)
    domain(cluster, "d1")
    domain(cluster, "d2")
    cluster.create(objects.pod_group("g", 3), *gang("g", 3, "d1"))
    cluster.scheduler()
    placed = cluster.all_placed(3)
    assert set(placed.values()) == {"b1", "b2"}
    for name in ("b1", "b2"):
        body = {"metadata": {"labels": {COMPUTE_DOMAIN_LABEL: "d1"}}}
        cluster.plane.request("PATCH", f"/api/v1/nodes/{name}", body, "application/merge-patch+json")
    cluster.create(objects.pod_group("h", 3), *gang("h", 3, "d2"))
    cluster.until(lambda: f"needs 3 pods in one {CLIQUE_LABEL}" in (cluster.condition("h-0") or ("", ""))[1])
    cluster.create(objects.pod_group("k", 2), *gang("k", 2, "d2"))
    placed = cluster.all_placed(5)
    assert {placed["k-0"], placed["k-1"]} == {"a1"}

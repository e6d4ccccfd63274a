"""The leader keeps its lease: while the API server starts, while its rights are missing for a time, and under a tenant's flood."""

import ssl
import threading
import time
import urllib.error
import urllib.request

import pytest

from testbed import objects
from testbed.objects import node, pod

pytestmark = pytest.mark.e2e
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fairlead-scheduler"
BINDING = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings"
FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
FLOODERS, FLOOD = 24, 15.0  # threads of the tenant; seconds


def lease(cluster):
    return (cluster.get(LEASE) or {}).get("spec", {})


def renewed(cluster):
    """Wait until the lease is renewed again; its epoch."""
    before = lease(cluster).get("renewTime")
    cluster.until(lambda: lease(cluster).get("renewTime") not in (None, before))
    return lease(cluster)["leaseTransitions"]


def leading(scheduler):
    """What the process has of its lease: it began once, and goes on."""
    assert scheduler.process.poll() is None, scheduler.text()[-3000:]
    assert len(scheduler.logged("leading")) == 1
    assert not scheduler.logged("the lease was lost")


def config(tmp_path, duration, renew, retry):
    path = tmp_path / "scheduler.yaml"
    spans = f"durationSeconds: {duration}, renewSeconds: {renew}, retrySeconds: {retry}"
    head = "apiVersion: config.fairlead.dev/v1alpha1\nkind: SchedulerConfiguration"
    path.write_text(f"{head}\nleaderElection: {{{spans}}}\n")
    return "--config", str(path)


def test_a_leader_is_refused_for_longer_than_its_renew_deadline_and_leads_on(cluster, tmp_path):
    """As when an API server has not loaded the roles: it refuses with 403."""
    cluster.create(node("n"), pod("before"))
    scheduler = cluster.scheduler(*config(tmp_path, 5, 3, 1))
    cluster.all_placed(1)
    epoch = renewed(cluster)
    [binding] = [each for each in cluster.get(BINDING)["items"] if each["metadata"]["name"].startswith("fairlead-scheduler")]
    cluster.delete(f"{BINDING}/{binding['metadata']['name']}")
    try:
        begun = cluster.until(lambda: scheduler.logged("lease not renewed")) and time.monotonic()
        cluster.until(lambda: len(scheduler.logged("lease not renewed")) >= 6 and time.monotonic() - begun > 5)
        assert "forbidden" in scheduler.logged("lease not renewed")[-1]["error"]
        leading(scheduler)
    finally:
        binding["metadata"] = {"name": binding["metadata"]["name"], "namespace": "kube-system"}
        cluster.plane.request("POST", BINDING, binding)
    cluster.create(pod("after"))
    cluster.all_placed(2)
    assert renewed(cluster) == epoch
    leading(scheduler)


def test_a_leader_survives_restarts_of_the_api_server(cluster, tmp_path):
    cluster.create(node("n"))
    scheduler = cluster.scheduler(*config(tmp_path, 60, 45, 1)).synced()
    epoch = renewed(cluster)
    for number in range(3):
        cluster.plane.stop_process("kube-apiserver", kill=True)
        cluster.plane.start_apiserver()
        cluster.create(pod(f"after-{number}"))
        cluster.all_placed(number + 1)
        assert renewed(cluster) == epoch
        leading(scheduler)


class Tenant:
    """One who lists all that they may, from many connections at once."""

    def __init__(self, plane, name):
        certificate, key = plane.authority.issue(name, name)
        self.context = ssl.create_default_context(cafile=str(plane.authority.path))
        self.context.load_cert_chain(certificate, key)
        self.url = plane.url

    def ask(self, path):
        """(status, headers)."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=30, context=self.context) as reply:
                reply.read()
                return reply.status, reply.headers
        except urllib.error.HTTPError as error:
            return error.code, error.headers

    def flood(self, seconds):
        """Ask from many threads for a time; how often an answer came."""
        ends, counts = time.monotonic() + seconds, []

        def ask():
            while time.monotonic() < ends:
                counts.append(self.ask("/api/v1/namespaces/default/pods")[0])

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(FLOODERS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return len(counts)


@pytest.fixture
def flow_control(cluster):
    """The objects of charts/flowcontrol.yaml, for the user that the schedulers of these tests run as, too."""
    made = objects.chart("flowcontrol.yaml")
    for each in made:
        for rule in each["spec"].get("rules", ()):
            rule["subjects"].append({"kind": "User", "user": {"name": "fairlead"}})
        cluster.plane.request("POST", objects.path(each), each)
    yield {each["metadata"]["name"]: each["metadata"]["uid"] for each in cluster.get(f"{FLOW}/flowschemas")["items"]}
    for each in reversed(made):
        cluster.delete(f"{objects.path(each)}/{each['metadata']['name']}")


def test_a_tenants_flood_does_not_cost_the_leader_its_lease(cluster, flow_control, tmp_path):
    cluster.create(node("n"), pod("before"))
    scheduler = cluster.scheduler(*config(tmp_path, 15, 10, 1))
    cluster.all_placed(1)
    ours, tenant = Tenant(cluster.plane, "fairlead"), Tenant(cluster.plane, "ann")
    header = "X-Kubernetes-PF-FlowSchema-UID"
    cluster.until(lambda: ours.ask(LEASE)[1][header] == flow_control["fairlead-leases"])
    assert ours.ask("/api/v1/nodes")[1][header] == flow_control["fairlead"]
    assert tenant.ask("/api/v1/namespaces/default/pods")[1][header] not in (
        flow_control["fairlead"],
        flow_control["fairlead-leases"],
    )
    for each in cluster.get(f"{FLOW}/flowschemas")["items"]:
        if each["metadata"]["name"] in ("fairlead", "fairlead-leases"):
            dangling = next(one for one in each["status"]["conditions"] if one["type"] == "Dangling")
            assert dangling["status"] == "False", "its priority level is there"
    epoch = renewed(cluster)
    assert tenant.flood(FLOOD) > FLOODERS
    cluster.create(pod("after"))
    cluster.all_placed(2)
    assert renewed(cluster) == epoch
    leading(scheduler)

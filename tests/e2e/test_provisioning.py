"""Nodes asked for as a whole, on the real API server. Cluster Autoscaler's part is played by the test."""

import pytest

from testbed import objects
from testbed.objects import node, pod, pod_group, queue
from tests.e2e.planes import AI_JOBS

pytestmark = pytest.mark.e2e

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"
GROUPS = "/apis/fairlead.dev/v1alpha1/namespaces/default/podgroups"
MERGE = "application/merge-patch+json"
LONG_AGO = "2020-01-01T00:00:00Z"


def definition():
    """The kind as far as its documented fields go; unknown ones are refused."""
    text = {"type": "string"}
    named = {"type": "object", "required": ["name"], "properties": {"name": text}}
    counted = {"podTemplateRef": named, "count": {"type": "integer", "minimum": 1}}
    pod_set = {"type": "object", "required": ["count", "podTemplateRef"], "properties": counted}
    spec = {
        "podSets": {"type": "array", "minItems": 1, "maxItems": 32, "items": pod_set},
        "provisioningClassName": {**text, "maxLength": 253},
        "parameters": {"type": "object", "additionalProperties": {**text, "maxLength": 255}, "maxProperties": 100},
    }
    required = ["podSets", "provisioningClassName"]
    condition = {"type": "object", "properties": dict.fromkeys(CONDITION, text)}
    status = {"type": "object", "properties": {"conditions": {"type": "array", "items": condition}}}
    spec = {"type": "object", "required": required, "properties": spec}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
    names = {"kind": "ProvisioningRequest", "plural": "provisioningrequests", "singular": "provisioningrequest"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "provisioningrequests.autoscaling.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": "autoscaling.x-k8s.io",
            "names": names,
            "scope": "Namespaced",
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")


def with_provisioning(plane):
    made = definition()
    plane.request("POST", objects.path(made), made)
    plane.await_served("/apis/autoscaling.x-k8s.io/v1/provisioningrequests")


PLANE = AI_JOBS._replace(prepare=with_provisioning)


@pytest.fixture
def started(cluster):
    cluster.scheduler("--no-leader-elect")
    cluster.operator("--no-leader-elect", "--provisioning-class", CLASS)
    yield cluster
    for each in cluster.schedulers:
        each.kill()  # a request that is taken away while its gang waits is made again
    cluster.delete(REQUESTS)
    cluster.delete(TEMPLATES)


def gang(name, members, *, gpus=8, of="", asks=True, **annotations):
    made = pod_group(name, members, of)
    made["metadata"]["annotations"] = {**({"fairlead.dev/provisioning-class": CLASS} if asks else {}), **annotations}
    return [made, *(pod(f"{name}-{number}", gpus=gpus, group=name, queue=of) for number in range(members))]


def requests(cluster):
    return {each["metadata"]["name"]: each for each in cluster.get(REQUESTS)["items"]}


def becomes(cluster, request, kind, message=""):
    """What the autoscaler would write."""
    told = {"type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": LONG_AGO}
    cluster.plane.request("PATCH", f"{REQUESTS}/{request}/status", {"status": {"conditions": [told]}}, MERGE)


def provisioned(cluster, group):
    """(status, reason) of the PodGroup's condition."""
    found = cluster.get(f"{GROUPS}/{group}").get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in found if each["type"] == "Provisioned"), None)


def consumes(cluster, name):
    annotations = cluster.pods()[name]["metadata"].get("annotations", {})
    return annotations.get("autoscaling.x-k8s.io/consume-provisioning-request")


def test_a_gang_has_its_nodes_asked_for_as_a_whole_and_starts_on_them(started):
    cluster = started
    parameter = {"provisioning.fairlead.dev/ValidUntilSeconds": "600"}
    cluster.create(node("old"), *gang("big", 3, **parameter))
    made = cluster.until(lambda: requests(cluster).get("big-1"))
    assert made["spec"]["provisioningClassName"] == CLASS
    assert made["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
    (kind,) = made["spec"]["podSets"]
    assert kind["count"] == 3
    template = cluster.get(f"{TEMPLATES}/{kind['podTemplateRef']['name']}")["template"]
    assert template["spec"]["containers"][0]["resources"]["requests"][objects.GPU] == "8"
    assert [consumes(cluster, f"big-{number}") for number in range(3)] == ["big-1"] * 3
    cluster.until(lambda: provisioned(cluster, "big") == ("False", "Requested"))
    becomes(cluster, "big-1", "Provisioned", "two nodes")
    cluster.until(lambda: provisioned(cluster, "big") == ("True", "Provisioned"))
    cluster.create(node("new-1"), node("new-2"))
    assert len(set(cluster.all_placed(3).values())) == 3
    assert set(requests(cluster)) == {"big-1"}
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("PodGroup", "big"), "it goes with its gang"


def test_what_came_to_nothing_is_asked_for_again(started):
    cluster = started
    cluster.create(node("old"), *gang("big", 2))
    cluster.until(lambda: "big-1" in requests(cluster))
    becomes(cluster, "big-1", "Failed", "out of stock")
    cluster.until(lambda: set(requests(cluster)) == {"big-2"})
    cluster.until(lambda: consumes(cluster, "big-1") == consumes(cluster, "big-0") == "big-2")
    cluster.until(lambda: [each["metadata"]["name"] for each in cluster.get(TEMPLATES)["items"]] == ["big-2-0"])
    told = cluster.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    assert any((item["reason"], item["type"]) == ("Failed", "Warning") and "out of stock" in item["note"] for item in told)


def test_nothing_is_requested_for_a_quota_or_without_the_annotation(started):
    cluster = started
    cluster.create(node("old"), queue("small", limit=8), queue("default"))
    cluster.create(*gang("limited", 2, of="small"), *gang("silent", 2, asks=False))

    def reason(name):
        return (cluster.get(f"{GROUPS}/{name}").get("status", {}).get("reason") or {}).get("code")

    cluster.until(lambda: reason("limited") == "LimitExceeded")
    cluster.until(lambda: reason("silent"))
    cluster.create(*gang("asking", 2))
    cluster.until(lambda: "asking-1" in requests(cluster))
    assert set(requests(cluster)) == {"asking-1"}


def test_an_aijob_asks_by_its_annotation_and_its_members_may_differ(started):
    cluster = started

    def role(name, gpus):
        container = {"name": "main", "image": "i", "resources": {"limits": {objects.GPU: str(gpus)}}}
        return {"name": name, "replicas": 2, "template": {"spec": {"containers": [container]}}}

    metadata = {"name": "bert", "annotations": {"fairlead.dev/provisioning-class": CLASS}}
    spec = {"roles": [role("worker", 8), role("ps", 1)]}
    cluster.create(node("old"), {"apiVersion": "fairlead.dev/v1alpha1", "kind": "AIJob", "metadata": metadata, "spec": spec})
    made = cluster.until(lambda: next(iter(requests(cluster).values()), None))
    assert sorted(each["count"] for each in made["spec"]["podSets"]) == [2, 2]
    group = cluster.get(f"{GROUPS}/bert")["metadata"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == group["uid"], "with its gang it goes, and that with its job"
    assert [each["kind"] for each in group["ownerReferences"]] == ["AIJob"]

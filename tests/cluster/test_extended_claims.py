"""Writing claims for extended resources: created, allocated, named in the pod's status, and deleted where the pod is not bound."""

import asyncio
import json

import msgspec
import pytest

from fairlead.cluster import claim_status, device_views, views
from fairlead.cluster.kubernetes import device_claims
from fairlead.cluster.kubernetes.client import ApiError, Unreachable
from fairlead.cluster.port import Allocated, Outcome
from fairlead.cluster.translate import Change
from fairlead.core.model.transactions import Binding, DeviceChoice, ExtendedClaim, PodRef, RequestMapping
from tests.cluster.test_device_claims import allocation

POD = PodRef("uid-p", "ns", "p")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
PODS = "/api/v1/namespaces/ns/pods"
WANTED = ExtendedClaim(
    (("container-0-request-1", "gpu", 1),), (RequestMapping("main", "example.com/gpu", "container-0-request-1"),)
)


class Server:
    """Claims and one pod; the watch delivers at once. fails: (method, what) whose next request fails, and whether it is done."""

    def __init__(self):
        self.clock = lambda: 0.0
        self.number = 0
        self.claims = {}
        self.pod = {"metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"}, "spec": {"containers": []}, "status": {}}
        self.requests = []
        self.fails = {}
        self.keeps_status = True
        self.watches = True
        self.written = []
        self.writer = device_claims.DeviceClaims(self, self.written.append)

    def note(self, key, found):
        view = msgspec.convert(found, device_views.ResourceClaim) if found is not None else None
        if self.watches:
            self.writer.note([Change(key, view)])

    def answer(self, method, what, act):
        self.requests.append((method, what))
        failure, done = self.fails.pop((method, what), (None, True))
        if failure is not None and not done:
            raise failure
        found = act()
        if failure is not None:
            raise failure
        return json.dumps(found).encode()

    def put(self, key, found):
        self.number += 1
        found["metadata"]["resourceVersion"] = str(self.number)
        self.claims[key] = found
        self.note(key, found)
        return found

    async def post(self, path, body):
        def act():
            made = json.loads(body)
            metadata = made["metadata"]
            assert path == CLAIMS
            name = f"{metadata['generateName']}{self.number}"
            metadata |= {"name": name, "uid": f"uid-{name}"}
            return self.put(f"ns/{name}", made)

        return self.answer("POST", "claim", act)

    async def patch(self, path, body, kind="", *, dry_run=False):
        sent = json.loads(body)
        if path.startswith(PODS):
            return self.answer("PATCH", "pod, dry" if dry_run else "pod", lambda: self.patch_pod(sent, dry=dry_run))
        key = f"ns/{path.split('/')[7]}"
        if key not in self.claims:
            raise ApiError(404, "NotFound", "not found")
        return self.answer("PATCH", "status" if path.endswith("/status") else "claim", lambda: self.patch_claim(key, sent))

    def patch_pod(self, sent, *, dry):
        assert sent["metadata"] == {"uid": "uid-p"}
        status = sent["status"]["extendedResourceClaimStatus"]
        kept = {"extendedResourceClaimStatus": status} if status is not None and self.keeps_status else {}
        if not dry:
            self.pod["status"] = kept
        return {**self.pod, "status": kept}

    def patch_claim(self, key, sent):
        found = json.loads(json.dumps(self.claims[key]))
        metadata = sent["metadata"]
        assert metadata["uid"] == found["metadata"]["uid"]
        assert metadata.get("resourceVersion", found["metadata"]["resourceVersion"]) == found["metadata"]["resourceVersion"]
        for each in metadata.get("$deleteFromPrimitiveList/finalizers", ()):
            found["metadata"]["finalizers"].remove(each)
        found.setdefault("status", {}).update(sent.get("status", {}))
        return self.put(key, found)

    async def delete(self, path, body=b""):
        key = f"ns/{path.split('/')[7]}"
        assert json.loads(body)["preconditions"]["uid"] == self.claims[key]["metadata"]["uid"]
        assert not self.claims[key]["metadata"]["finalizers"], "it would only be marked"

        def act():
            del self.claims[key]
            self.note(key, None)
            return {}

        return self.answer("DELETE", "claim", act)

    async def get(self, path):
        assert path == CLAIMS
        return self.answer("GET", "claims", lambda: {"items": list(self.claims.values())})


def binding(**more):
    return Binding(POD, "n1", claims=(DeviceChoice("uid-p//", allocation("gpu-0"), decided=True, extended=WANTED, **more),))


def allocate(server, decided=None):
    return asyncio.run(server.writer.allocate(decided or binding()))


def test_a_claim_is_created_allocated_and_named_by_three_writes():
    server = Server()
    assert allocate(server) == Allocated(Outcome.DONE)
    writes = [("POST", "claim"), ("PATCH", "status"), ("PATCH", "pod")]
    assert server.requests == [("PATCH", "pod, dry"), *writes], "whether the feature is on is asked once"
    ((key, made),) = server.claims.items()
    metadata = made["metadata"]
    assert metadata["generateName"] == "p-extended-resources-"
    assert metadata["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert metadata["finalizers"] == [claim_status.FINALIZER]
    assert metadata["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert made["spec"] == {"devices": {"requests": [{"name": "container-0-request-1", "exactly": exactly}]}}
    assert made["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-1"}
    assert server.pod["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": key.partition("/")[2],
        "requestMappings": [mapping],
    }
    assert [each.metadata.uid for each in server.written] == ["uid-p"]
    asyncio.run(server.writer.release(binding()))
    assert server.claims == {}


@pytest.mark.parametrize("step", ["status", "pod"])
@pytest.mark.parametrize("error", [ApiError(422, "Invalid", "refused"), Unreachable("no answer")])
def test_nothing_remains_of_a_write_that_fails(step, error):
    server = Server()
    server.fails["PATCH", step] = error, False
    outcome, message, _ = allocate(server)
    assert outcome is Outcome.REFUSED
    assert str(error) in message
    assert server.claims == {}
    assert allocate(server) == Allocated(Outcome.DONE)
    assert len(server.claims) == 1


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("watches", [True, False])
def test_a_request_without_an_answer_leaves_no_second_claim(done, watches):
    server = Server()
    server.watches = watches
    server.fails["POST", "claim"] = Unreachable("no answer"), done
    assert allocate(server)[0] is Outcome.REFUSED
    server.watches = True
    assert allocate(server) == Allocated(Outcome.DONE)
    assert len(server.claims) == 1
    (key,) = server.claims
    assert server.pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"] == key.partition("/")[2]
    assert ("GET", "claims") in server.requests


def test_a_request_that_is_refused_needs_no_second_look():
    server = Server()
    server.fails["POST", "claim"] = ApiError(403, "Forbidden", "quota"), False
    assert allocate(server)[0] is Outcome.REFUSED
    assert allocate(server) == Allocated(Outcome.DONE)
    assert ("GET", "claims") not in server.requests


def test_a_claim_of_another_scheduler_for_the_same_pod_stops_the_binding():
    server = Server()
    other = claim_status.extended_claim(WANTED, POD)
    other["metadata"] |= {"name": "other", "uid": "uid-other"}
    server.put("ns/other", other)
    outcome, message, _ = allocate(server)
    assert (outcome, message) == (Outcome.REFUSED, "the pod has resourceclaim ns/other for its extended resources, too")
    assert server.claims == {}, "both are deleted: the pod is tried anew"
    assert allocate(server) == Allocated(Outcome.DONE)


def test_without_the_feature_nothing_is_bound():
    server = Server()
    server.keeps_status = False
    for _ in range(3):
        outcome, message, failed = allocate(server)
        assert outcome is Outcome.REFUSED
        assert "DRAExtendedResource is off" in message
        assert [(each.unserved, each.why) for each in failed] == [(True, message)]
    assert server.requests == [("PATCH", "pod, dry")] * 3, "no claim is created and deleted again"
    server.keeps_status = True  # the API server was restarted
    assert allocate(server) == Allocated(Outcome.DONE)
    ((key, _),) = server.claims.items()
    del server.claims[key]
    server.note(key, None)
    server.keeps_status = False
    server.pod["status"] = {}
    outcome, message, failed = allocate(server)
    assert (outcome, failed[0].unserved) == (Outcome.REFUSED, True)
    assert server.claims == {}
    server.requests.clear()
    allocate(server)
    assert server.requests == [("PATCH", "pod, dry")]


def test_the_name_of_an_earlier_claim_is_taken_out_of_the_status():
    server = Server()
    server.pod["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "gone", "requestMappings": []}}
    by_plugin = Binding(POD, "n1", claims=(DeviceChoice("uid-p//", decided=False, extended=ExtendedClaim()),))
    assert allocate(server, by_plugin) == Allocated(Outcome.DONE)
    assert server.requests == [("PATCH", "pod")]
    assert server.pod["status"] == {}


def test_a_claim_that_was_left_behind_is_deleted_by_its_name_and_uid():
    server = Server()
    left = claim_status.extended_claim(WANTED, POD)
    left["metadata"] |= {"name": "left", "uid": "uid-left"}
    server.put("ns/left", left)
    removed = Binding(POD, "", claims=(DeviceChoice("ns/left", decided=True, uid="uid-left", removed=True),))
    asyncio.run(server.writer.release(removed))
    assert server.claims == {}
    asyncio.run(server.writer.release(removed))  # gone already


def test_what_is_taken_back_is_awaited_and_named_in_the_status_no_more():
    """Else the scheduler would see devices of the first binding while it decides on the next one, or bind without a claim."""
    server = Server()

    async def play():
        assert await server.writer.allocate(binding()) == Allocated(Outcome.DONE)
        ((key, _),) = server.claims.items()
        server.watches = False
        release = asyncio.create_task(server.writer.release(binding()))
        while server.claims:
            await asyncio.sleep(0)
        server.note(key, None)  # not delivered: the watch is behind
        for _ in range(20):
            await asyncio.sleep(0)
        assert not release.done()
        server.watches = True
        server.note(key, None)
        await release

    asyncio.run(play())
    assert server.pod["status"] == {}
    assert server.requests[-2:] == [("DELETE", "claim"), ("PATCH", "pod")]
    assert [each.status.extended_resource_claim_status is None for each in server.written] == [False, True]
    asyncio.run(server.writer.release(binding()))
    assert server.requests[-2:] == [("DELETE", "claim"), ("PATCH", "pod")], "nothing of it is left"


def test_only_marked_claims_of_pods_are_for_extended_resources():
    marked = {"annotations": {claim_status.EXTENDED: "true"}}
    owner = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}]}
    for metadata, expected in ((marked | owner, True), (marked, False), (owner, False)):
        view = msgspec.convert({"metadata": {"name": "c", "namespace": "ns", **metadata}}, device_views.ResourceClaim)
        assert device_views.device_object(view).extended is expected
        assert isinstance(view.metadata, views.Metadata)
    made = msgspec.convert(
        {"metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"extendedResourceName": "a.com/b"}},
        device_views.DeviceClass,
    )
    found = device_views.device_object(made)
    assert (found.resource, found.created) == ("a.com/b", 1767225600.0)

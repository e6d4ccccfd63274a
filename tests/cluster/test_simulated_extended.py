"""Claims for extended resources in the simulated cluster, as the adapter writes them on a real one."""

from fairlead.cluster import claim_status
from fairlead.cluster.kinds import RESOURCE_CLAIM
from fairlead.cluster.port import Allocated, Outcome
from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.cluster import SimulatedCluster
from fairlead.cluster.simulated.devices import GPU_CLASS
from fairlead.core.model.transactions import Binding, DeviceChoice, ExtendedClaim, PodRef, RequestMapping
from fairlead.core.nodes.extended_resources import IMPLICIT
from testbed import objects
from tests.cluster.test_device_claims import allocation

RESOURCE = "example.com/gpu"
WANTED = ExtendedClaim((("container-0-request-1", "gpu", 1),), (RequestMapping("main", RESOURCE, "container-0-request-1"),))


def world():
    api = ApiServer(Clock(start=0.0))
    cluster = SimulatedCluster(api)
    body = objects.pod("p", gpus=0)
    for part in ("requests", "limits"):
        body["spec"]["containers"][0]["resources"][part][RESOURCE] = "1"
    made = api.create(api.served("v1", "pods"), "default", body)
    return api, cluster, PodRef(made["metadata"]["uid"], "default", "p")


def claims(api):
    return {key[1]: record.object for key, record in api.store.records(RESOURCE_CLAIM.table)}


def status(api):
    return api.store.get("pods", ("default", "p")).object.get("status") or {}


def binding(pod, wanted=WANTED):
    return Binding(pod, "n1", claims=(DeviceChoice("", allocation("gpu-0"), decided=True, extended=wanted),))


async def test_a_claim_is_created_reserved_and_named_and_deleted_where_the_pod_is_not_bound():
    api, cluster, pod = world()
    assert await cluster.allocate_claims(binding(pod)) == Allocated(Outcome.DONE)
    ((name, made),) = claims(api).items()
    assert name.startswith("p-extended-resources-")
    assert made["status"]["reservedFor"] == [claim_status.consumer(pod)]
    assert status(api)["extendedResourceClaimStatus"] == claim_status.extended_status(name, WANTED)
    await cluster.release_claims(binding(pod))
    assert claims(api) == {}
    assert await cluster.allocate_claims(binding(pod, ExtendedClaim())) == Allocated(Outcome.DONE)
    assert "extendedResourceClaimStatus" not in status(api)


async def test_a_claim_that_was_left_behind_is_deleted():
    api, cluster, pod = world()
    await cluster.allocate_claims(binding(pod))
    ((name, made),) = claims(api).items()
    left = DeviceChoice(f"default/{name}", decided=True, uid=made["metadata"]["uid"], removed=True)
    await cluster.release_claims(Binding(pod, "", claims=(left,)))
    assert claims(api) == {}


async def test_a_pod_that_is_gone_gets_no_claim():
    api, cluster, pod = world()
    outcome, *_ = await cluster.allocate_claims(binding(PodRef("another", pod.namespace, pod.name)))
    assert outcome is Outcome.REFUSED
    assert claims(api) == {}


async def test_pods_that_request_a_class_are_admitted_and_judged():
    """The judge of simulated days finds their claim, and what is missing of it."""
    api, cluster, _ = world()
    body = objects.pod("j-0", gpus=0)
    for part in ("requests", "limits"):
        body["spec"]["containers"][0]["resources"][part][IMPLICIT + GPU_CLASS] = "1"
    made = api.create(api.served("v1", "pods"), "default", body)
    (found,) = pod_claims.extended_of(made)
    assert (found.claim, list(pod_claims.claims_of(made))) == ("", [])
    pod = PodRef(made["metadata"]["uid"], "default", "j-0")
    await cluster.allocate_claims(binding(pod))
    now = api.store.get("pods", ("default", "j-0")).object
    (found,) = pod_claims.extended_of(now)
    assert pod_claims.uses(now)
    claim = claims(api)[found.claim]
    assert pod_claims.owned_by(claim, now)
    assert pod_claims.reserved(claim, now)
    assert not list(pod_claims.extended_of(api.store.get("pods", ("default", "p")).object))

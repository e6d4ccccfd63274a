"""Claims for extended resources of pods in the simulated cluster: created, named in the pod's status, and taken back."""

from __future__ import annotations

from fairlead.cluster import claim_status
from fairlead.cluster.kinds import RESOURCE_CLAIM
from fairlead.cluster.simulated import pod_claims
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.resources import PODS
from fairlead.core.model.allocations import Allocation
from fairlead.core.model.transactions import ExtendedClaim, PodRef

_CLAIMS = RESOURCE_CLAIM.table


def create(api: ApiServer, wanted: ExtendedClaim, allocation: Allocation | None, pod: PodRef) -> str:
    """Create, allocate and reserve the claim of a pod, and name it in the pod's status. Returns why not; empty: done."""
    key = (pod.namespace, pod.name)
    record = api.store.get(PODS, key)
    if record is None or record.object["metadata"]["uid"] != pod.uid:
        return "the pod is gone"
    body, status = record.object, dict(record.object.get("status") or {})
    status.pop("extendedResourceClaimStatus", None)
    if wanted.requests:
        if allocation is None:
            return "no devices could be decided for extended resources"
        try:
            claim = api.create(
                api.served("resource.k8s.io/v1", "resourceclaims"), pod.namespace, claim_status.extended_claim(wanted, pod)
            )
        except StatusError as error:
            return str(error)
        name = claim["metadata"]["name"]
        written = {"allocation": claim_status.allocation(allocation), "reservedFor": [claim_status.consumer(pod)]}
        api.store.put(_CLAIMS, (pod.namespace, name), {**claim, "metadata": dict(claim["metadata"]), "status": written})
        status["extendedResourceClaimStatus"] = claim_status.extended_status(name, wanted)
    api.store.put(PODS, key, {**body, "metadata": dict(body["metadata"]), "status": status})
    return ""


def take_back(api: ApiServer, pod: PodRef) -> None:
    """Delete the claims for extended resources that belong to a pod."""
    for key, record in list(api.store.records(_CLAIMS)):
        metadata = record.object["metadata"]
        owner = pod_claims.controlling_pod(record.object)
        marked = (metadata.get("annotations") or {}).get(claim_status.EXTENDED) == "true"
        if key[0] == pod.namespace and marked and owner is not None and owner["uid"] == pod.uid:
            delete(api, f"{key[0]}/{key[1]}", metadata["uid"])


def delete(api: ApiServer, claim: str, uid: str) -> None:
    """Delete a claim, its finalizer first; one that is gone is no news."""
    namespace, _, name = claim.partition("/")
    record = api.store.get(_CLAIMS, (namespace, name))
    if record is None or record.object["metadata"]["uid"] != uid:
        return
    metadata = dict(record.object["metadata"])
    metadata["finalizers"] = [each for each in metadata.get("finalizers") or () if each != claim_status.FINALIZER]
    api.store.put(_CLAIMS, (namespace, name), {**record.object, "metadata": metadata})
    try:
        api.delete(api.served("resource.k8s.io/v1", "resourceclaims"), namespace, name)
    except StatusError:
        return  # gone meanwhile

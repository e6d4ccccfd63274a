"""Which ResourceClaims a pod uses, and whether one is its own: the rules that controllers, kubelets and judges share.

The reference is `k8s.io/dynamic-resource-allocation/resourceclaim` 0.36.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairlead.cluster.simulated.store import Object
from fairlead.core.nodes.extended_resources import IMPLICIT


class PodClaim(NamedTuple):
    """One claim of a pod. name: in the pod; claim: of the object, empty while there is none; template: that it is made from."""

    name: str
    claim: str
    template: str


def uses(pod: Object) -> bool:
    """Whether a pod has claims: asked of every pod that changes."""
    return "resourceClaims" in pod["spec"] or "extendedResourceClaimStatus" in (pod.get("status") or ())


def claims_of(pod: Object) -> Iterator[PodClaim]:
    """The claims in a pod's spec. A template's claim that is not needed is left out."""
    made = {each["name"]: each.get("resourceClaimName") for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for each in pod["spec"].get("resourceClaims") or ():
        name, template = each["name"], each.get("resourceClaimTemplateName")
        if each.get("resourceClaimName") is not None:
            yield PodClaim(name, each["resourceClaimName"], "")
        elif template is not None and (name not in made or made[name] is not None):
            yield PodClaim(name, made.get(name) or "", template)


def extended_of(pod: Object, offered: Mapping[str, int] | None = None) -> Iterator[PodClaim]:
    """The claim for the extended resources of a pod that only devices can serve.

    Those are the resources named after a class, which no node advertises, and on a node that offers these amounts all that it
    does not offer.
    """
    containers = (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
    requested = {name for each in containers for name in (each.get("resources") or {}).get("requests") or ()}
    if any(name.startswith(IMPLICIT) or (offered is not None and "/" in name and not offered.get(name)) for name in requested):
        status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
        yield PodClaim("of extended resources", status.get("resourceClaimName") or "", "made by the scheduler")


def served_by_claim(pod: Object) -> set[str]:
    """The extended resources that a pod has by the claim in its status, and so not from its node's device plugins."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {each["resourceName"] for each in status.get("requestMappings") or ()}


def used_by(pod: Object) -> list[str]:
    """The names of the claims that exist for a pod, that of its extended resources included."""
    found = [each.claim for each in claims_of(pod) if each.claim]
    extended = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return [*found, *([extended["resourceClaimName"]] if extended.get("resourceClaimName") else [])]


def owned_by(claim: Object, pod: Object) -> bool:
    """Whether a claim was made for a pod: its controller is the pod."""
    owner = controlling_pod(claim)
    return owner is not None and owner["uid"] == pod["metadata"]["uid"]


def controlling_pod(claim: Object) -> Object | None:
    """The owner reference to the pod that a claim was made for."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod"):
            found: Object = owner
            return found
    return None


def reserved(claim: Object, pod: Object) -> bool:
    """Whether a claim is reserved for a pod."""
    return any(each.get("uid") == pod["metadata"]["uid"] for each in (claim.get("status") or {}).get("reservedFor") or ())


def results_of(claim: Object) -> list[Object]:
    """The devices that a claim is allocated, none while it is not."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration of a device matches a taint."""
    return (
        toleration.get("effect") in (None, "", taint["effect"])
        and toleration.get("key") in (None, "", taint["key"])
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", ""))
    )

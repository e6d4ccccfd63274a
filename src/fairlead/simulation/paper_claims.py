"""ResourceClaims on paper: what controllers and drivers would do about them in a copy of a cluster, for `whatif`.

Claims are made for pods by their templates, devices are given back when the pods that use a claim are gone, and what is decided
for a claim is written to its status.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from fairlead.api.quantity import QuantityError
from fairlead.cluster import device_views, views
from fairlead.cluster.translate import Objects
from fairlead.core.dra.model import DeviceClaim
from fairlead.core.model.pods import Pod
from fairlead.core.model.transactions import Binding
from fairlead.core.state.cluster import ClusterState

View = TypeVar(
    "View",
    device_views.ResourceSlice,
    device_views.DeviceClass,
    device_views.ResourceClaimTemplate,
    device_views.ResourceClaim,
)
_ENDED = ("Succeeded", "Failed")


class CannotGive(ValueError):
    """An object that cannot be read: what is wrong."""


def settled(objects: Objects) -> Objects:
    """A cluster after its controllers have settled claims; `objects` stay as they are."""
    if not (objects.device_claims or any(pod.spec.resource_claims for pod in objects.pods)):
        return objects
    there = {pod.metadata.uid for pod in objects.pods if pod.status is None or pod.status.phase not in _ENDED}
    kept = (_without_others(each, there) for each in objects.device_claims)
    claims = [each for each in kept if each is not None]
    templates = {each.metadata.key: each for each in objects.claim_templates}
    pods = [_with_claims(pod, templates, claims) for pod in objects.pods]
    return msgspec.structs.replace(objects, pods=pods, device_claims=claims)


def _without_others(claim: device_views.ResourceClaim, there: set[str]) -> device_views.ResourceClaim | None:
    """A claim without users that are gone; it goes with the pod that it was made for."""
    owner = next((each.uid for each in claim.metadata.owner_references or () if each.controller and each.kind == "Pod"), "")
    if owner and owner not in there:
        return None
    status = claim.status
    if status is None or not status.reserved_for:
        return claim
    users = [each for each in status.reserved_for if each.resource != "pods" or each.api_group or each.uid in there]
    if len(users) == len(status.reserved_for):
        return claim
    changed = msgspec.structs.replace(status, reserved_for=users) if users else None
    return msgspec.structs.replace(claim, status=changed)


def _with_claims(
    pod: views.Pod, templates: dict[str, device_views.ResourceClaimTemplate], claims: list[device_views.ResourceClaim]
) -> views.Pod:
    """A pod that waits, with the claims that are made for it, which are added to the others."""
    status = pod.status or views.PodStatus()
    made = {each.name for each in status.resource_claim_statuses or ()}
    if pod.spec.node_name or not pod.spec.resource_claims or status.phase in _ENDED:
        return pod
    fresh = []
    for each in pod.spec.resource_claims:
        template = templates.get(f"{pod.metadata.namespace}/{each.resource_claim_template_name or ''}")
        if each.name in made or template is None:
            continue
        name = f"{pod.metadata.name}-{each.name}-what-if"
        owner = views.OwnerReference(kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
        metadata = views.Metadata(
            name=name, namespace=pod.metadata.namespace, uid=f"{pod.metadata.uid}/{each.name}", owner_references=[owner]
        )
        claims.append(device_views.ResourceClaim(metadata=metadata, spec=template.spec.spec))
        fresh.append(views.ResourceClaimStatus(name=each.name, resource_claim_name=name))
    if not fresh:
        return pod
    known = [*(status.resource_claim_statuses or ()), *fresh]
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(status, resource_claim_statuses=known))


def given(objects: Objects, made: View) -> View:
    """An object that is given: it must be readable; a claim that exists keeps what it holds. Raises `CannotGive`."""
    try:
        device_views.device_object(made)
    except (device_views.DeviceError, QuantityError) as error:
        raise CannotGive(f"{made.metadata.name!r} cannot be read: {error}") from error
    if not isinstance(made, device_views.ResourceClaim):
        return made
    known = next((each for each in objects.device_claims if each.metadata.key == made.metadata.key), None)
    uid = known.metadata.uid if known is not None else f"what-if/{made.metadata.key}"
    metadata = views.Metadata(name=made.metadata.name, namespace=made.metadata.namespace, uid=uid)
    return msgspec.structs.replace(made, metadata=metadata, status=known.status if known is not None else None)


def copied(slices: Iterable[device_views.ResourceSlice], model: str, name: str) -> list[device_views.ResourceSlice]:
    """The slices of a node as those of another one like it, in pools of its own."""
    found = []
    for each in slices:
        if each.spec.node_name == model:
            pool = msgspec.structs.replace(each.spec.pool, name=f"{name}/{each.spec.pool.name}")
            spec = msgspec.structs.replace(each.spec, node_name=name, pool=pool)
            metadata = views.Metadata(name=f"{name}-{each.metadata.name}")
            found.append(msgspec.structs.replace(each, metadata=metadata, spec=spec))
    return found


# -- in the core that plays ------------------------------------------------------------------------


def write(state: ClusterState, binding: Binding) -> None:
    """What is decided for the claims of a pod is in their statuses, and they are reserved for it."""
    for each in binding.claims:
        claim = state.device_claims.claims.get(each.claim)
        if claim is not None and each.allocation is not None:
            users = tuple(dict.fromkeys((*claim.users, binding.pod.uid)))
            state.claims.upsert(msgspec.structs.replace(claim, allocation=each.allocation, users=users))


def give_back(state: ClusterState, bindings: Iterable[Binding]) -> None:
    """Claims that hold devices in vain have none any more."""
    for key in (each.claim for binding in bindings for each in binding.claims):
        claim = state.device_claims.claims.get(key)
        if claim is not None:
            state.claims.upsert(msgspec.structs.replace(claim, allocation=None, users=()))


def release(state: ClusterState, pod: Pod) -> None:
    """A pod is gone: claims that were made for it go too, and others have no devices where no other pod uses them."""
    for use in pod.claims:
        claim = state.device_claims.claims.get(use.key)
        if claim is None:
            continue
        if claim.owner == pod.uid:
            state.claims.remove(DeviceClaim, claim.key)
            continue
        users = tuple(each for each in claim.users if each != pod.uid)
        allocation = claim.allocation if users or claim.foreign else None
        state.claims.upsert(msgspec.structs.replace(claim, users=users, allocation=allocation))


def made_again(state: ClusterState, pod: Pod, claims: Iterable[DeviceClaim]) -> Pod:
    """A pod that replaces another one, with claims of its own in place of those that were made for the other one.

    claims: those that the other one had.
    """
    theirs, uses = {each.key: each for each in claims}, []
    for use in pod.claims:
        claim = theirs.get(use.key)
        if claim is None or not claim.owner:
            uses.append(use)
            continue
        fresh = DeviceClaim(f"{claim.key}+", f"{claim.uid}+", claim.asks, owner=pod.uid)
        state.claims.upsert(fresh)
        uses.append(msgspec.structs.replace(use, key=fresh.key))
    return msgspec.structs.replace(pod, claims=tuple(uses))

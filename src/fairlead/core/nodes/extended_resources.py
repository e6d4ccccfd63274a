"""Extended resources that devices serve: which DeviceClass serves a resource, which pods request it, and their claims for it.

A pod that requests `example.com/gpu` gets devices of the class with that `extendedResourceName` on nodes that do not advertise
the resource; where they do, their device plugin serves it. For each pod there is one claim at most, which is known by the pod,
since it is created only when the pod is bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.core.dra import model
from fairlead.core.dra.model import DeviceClaim, DeviceClass
from fairlead.core.model.pods import DeviceUse, ExtendedRequest, Pod, Served
from fairlead.core.model.transactions import RequestMapping

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""A resource of this domain is served by the class whose name follows, whatever else that class serves."""


def key_of_pod(uid: str) -> str:
    """By which key the claim of a pod's extended resources is known, whatever its name is."""
    return f"{uid}//"


def is_of_pod(key: str) -> bool:
    """Whether a claim with this key is for the extended resources of a pod."""
    return key.endswith("//")


class ExtendedResources:
    """Classes by the resources that they serve, pods by those that they request, and claims by the pods that own them."""

    def __init__(self, classes: Mapping[str, DeviceClass]) -> None:
        self._classes = classes
        self._offering: dict[str, dict[str, None]] = {}  # resource -> classes with this name of a resource
        self._requesters: dict[str, dict[str, None]] = {}  # resource -> UIDs of pods
        self._owned: dict[str, dict[str, DeviceClaim]] = {}  # UID of a pod -> its claims for extended resources
        self._owners: dict[str, str] = {}  # `namespace/name` of such a claim -> UID of its pod

    # -- classes -------------------------------------------------------------------------------

    def class_of(self, resource: str) -> str:
        """The class that serves a resource; empty: none. Of several the newest, then the first by name, as upstream."""
        if resource.startswith(IMPLICIT):
            name = resource.removeprefix(IMPLICIT)
            return name if name in self._classes else ""
        offering = self._offering.get(resource)
        return min(offering, key=lambda name: (-self._classes[name].created, name)) if offering else ""

    def class_changed(self, name: str, before: DeviceClass | None, now: DeviceClass | None) -> list[str]:
        """A class came, changed or went, as `classes` has it already. Returns the UIDs of pods that it may matter to."""
        resources = dict.fromkeys(each.resource for each in (before, now) if each is not None and each.resource)
        for resource in resources:
            offering = self._offering.setdefault(resource, {})
            offering.pop(name, None)
            if now is not None and now.resource == resource:
                offering[name] = None
            if not offering:
                del self._offering[resource]
        return [uid for each in (*resources, f"{IMPLICIT}{name}") for uid in self._requesters.get(each, ())]

    # -- pods ----------------------------------------------------------------------------------

    def join(self, pod: Pod) -> None:
        """A pod came."""
        for each in pod.extended:
            self._requesters.setdefault(each.resource, {})[pod.uid] = None

    def leave(self, pod: Pod) -> None:
        """A pod is gone."""
        for each in pod.extended:
            requesters = self._requesters.get(each.resource, {})
            requesters.pop(pod.uid, None)
            if not requesters:
                self._requesters.pop(each.resource, None)

    def used(self, pod: Pod, before: Pod | None) -> Pod:
        """A pod with the use of the claim for its extended resources, if it needs one, or has one.

        before: the pod as it is known, if it has a place: what it has there stays. A pod that is on a node without a claim got
        what it has from device plugins.
        """
        own = tuple(use for use in pod.claims if not use.extended)
        wanted = bool(pod.extended_claim) and bool(pod.extended)
        if not wanted and before is not None:
            wanted = any(use.extended for use in before.claims)
        elif not wanted and not pod.node:
            wanted = pod.uid in self._owned or any(self.class_of(each.resource) for each in pod.extended)
        if wanted:
            own = (*own, DeviceUse("", key_of_pod(pod.uid), extended=True))
        if own == pod.claims:
            return pod
        spec = pod.spec if own else msgspec.structs.replace(pod.spec, devices=())
        return msgspec.structs.replace(pod, claims=own, spec=spec)

    def served(self, pod: Pod) -> tuple[Served, ...]:
        """What of a pod's resources a class serves now, by name."""
        found = []
        amounts = dict(pod.spec.requests)
        for resource in sorted({each.resource for each in pod.extended}):
            name = self.class_of(resource)
            asks = asked_for(pod.extended, resource)[0] if name else ()
            if asks and amounts.get(resource):
                found.append(Served(resource, name, amounts[resource], asks))
        return tuple(found)

    # -- claims --------------------------------------------------------------------------------

    def note(self, claim: DeviceClaim) -> tuple[str, DeviceClaim]:
        """A claim came or changed: by which key it is known, and what is known by that key.

        Where a pod has several for its extended resources, one of them was created by a request that was given up: that one has
        no devices, and goes with the pod.
        """
        if not claim.extended or not claim.owner:
            return claim.key, claim
        owned = self._owned.setdefault(claim.owner, {})
        owned[claim.key] = claim
        self._owners[claim.key] = claim.owner
        return key_of_pod(claim.owner), _first(owned)

    def forget(self, name: str) -> tuple[str, DeviceClaim | None]:
        """A claim is gone: by which key it was known, and what else is known by that key."""
        owner = self._owners.pop(name, None)
        if owner is None:
            return name, None
        owned = self._owned[owner]
        del owned[name]
        if owned:
            return key_of_pod(owner), _first(owned)
        del self._owned[owner]
        return key_of_pod(owner), None


def _first(owned: Mapping[str, DeviceClaim]) -> DeviceClaim:
    return min(owned.values(), key=lambda claim: (claim.allocation is None, claim.key))


def content_of(served: Sequence[Served]) -> model.Claim:
    """What a claim asks for that has devices for these resources."""
    asks = sorted((name, each.device_class, count) for each in served for name, count in each.asks)
    return model.Claim(
        "", "", tuple(model.Request(name, (model.Ask(name, device_class, count=count),)) for name, device_class, count in asks)
    )


def asks_of(content: model.Claim) -> list[model.Ask]:
    """The requests of such a claim: each is for one class, without alternatives."""
    return [each.alternatives[0] for each in content.requests]


def mappings_of(pod: Pod, resources: Sequence[str]) -> tuple[RequestMapping, ...]:
    """Which container gets which request's devices for these resources, as the kubelet reads it."""
    found = [mapping for each in sorted(resources) for mapping in asked_for(pod.extended, each)[1]]
    return tuple(found)


def asked_for(
    requests: Sequence[ExtendedRequest], resource: str
) -> tuple[tuple[tuple[str, int], ...], tuple[RequestMapping, ...]]:
    """The requests, (name, devices), by which a pod asks for one resource, and their containers, as upstream has them.

    A request for each container. An init container that ends before others start has the devices of containers after it, in
    order, and what it needs beyond them. Of several such containers the one that needs most beyond them asks for that, for all.
    """
    of_it = [each for each in requests if each.resource == resource]
    lasting = [each for each in of_it if not each.brief]
    mappings = [RequestMapping(each.container, resource, each.request) for each in lasting]
    most: tuple[int, str] | None = None
    first: list[tuple[ExtendedRequest, bool, list[str]]] = []  # brief containers, whether they need more, what they reuse
    for each in of_it:
        if not each.brief:
            continue
        had, reused = 0, []
        for later in lasting:
            if later.position >= each.position and had < each.amount:
                had += later.amount
                reused.append(later.request)
        first.append((each, had < each.amount, reused))
        if had < each.amount and (most is None or each.amount - had > most[0]):
            most = each.amount - had, each.request
    for each, more, reused in first:
        names = [*reused, most[1]] if more and most is not None else reused
        mappings += [RequestMapping(each.container, resource, name) for name in names]
    asks = [(each.request, each.amount) for each in lasting] + ([(most[1], most[0])] if most is not None else [])
    return tuple(asks), tuple(mappings)

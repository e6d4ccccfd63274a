"""What pods need by their claims, as these are now."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from fairlead.core.model.pods import DeviceNeed, DeviceUse, Pod, Served
from fairlead.core.nodes.device_claims import DeviceClaims
from fairlead.core.nodes.extended_resources import content_of


def needs(claims: DeviceClaims, pod: Pod, sharers: Callable[[str], int]) -> tuple[DeviceNeed, ...]:
    """What a pod needs by its claims, as they are now; which claim it is matters where it has devices, or several users.

    sharers: how many pods are charged for a claim in equal parts, by its key; 0: others than this one.
    """
    return tuple(_need(claims, use, pod, sharers) for use in pod.claims)


def weighed(claims: DeviceClaims, uses: tuple[DeviceUse, ...], needs: tuple[DeviceNeed, ...]) -> tuple[DeviceNeed, ...]:
    """What a pod needs as it was found out, by its uses of claims, charged by the devices that are there now."""
    charged = (_charged(claims, use, need) for use, need in zip(uses, needs, strict=True))
    return tuple(
        need if need.milli == milli else msgspec.structs.replace(need, milli=milli)
        for need, milli in zip(needs, charged, strict=True)
    )


def _charged(claims: DeviceClaims, use: DeviceUse, need: DeviceNeed) -> int:
    if use.extended:
        return _charged_besides(claims, need.served)
    return claims.wants.weight(need.content) // need.sharers if need.sharers else 0


def _charged_besides(claims: DeviceClaims, served: tuple[Served, ...]) -> int:
    """Thousandths of a GPU for extended resources. What is a GPU by its name is charged by that, and not once more."""
    besides = tuple(each for each in served if not claims.devices.nodes.is_gpu(each.resource))
    return claims.wants.weight(claims.wants.number(content_of(besides))) if besides else 0


def _need_of_extended(claims: DeviceClaims, use: DeviceUse, pod: Pod) -> DeviceNeed:
    served = claims.extended.served(pod)
    milli = _charged_besides(claims, served)
    claim = claims.claims.get(use.key)
    if claim is not None:
        return DeviceNeed(claims.wants.number(claim.asks), use.key, milli=milli, served=served)
    content = claims.wants.number(content_of(served)) if served else 0
    return DeviceNeed(content, missing=bool(pod.node and pod.extended_claim), milli=milli, served=served)


def _need(claims: DeviceClaims, use: DeviceUse, pod: Pod, sharers: Callable[[str], int]) -> DeviceNeed:
    """A placeholder's claims of its own are not created: they count by their template, or by the claim that they are like."""
    if use.extended:
        return _need_of_extended(claims, use, pod)
    claim = claims.claims.get(use.key)
    if claim is not None and use.template and claim.owner and claim.owner != pod.uid:
        claim = None  # it was made for another pod of that name
    if claim is None:
        known = claims.claims.get(use.like) if use.like else claims.templates.get(use.template)
        number = claims.wants.number(known.asks) if known is not None else 0
        if known is not None and pod.placeholder:
            return DeviceNeed(number, milli=claims.wants.weight(number))
        return DeviceNeed(number, use.key or use.template or use.like, missing=True, milli=claims.wants.weight(number))
    number = claims.wants.number(claim.asks)
    which = claim.allocation is not None or claim.deleting or claim.users or len(claims.wants.users(use.key)) > 1
    which = which or bool(claims.failures.of_claim(use.key))
    # As much whatever it is allocated, so that it changes only with what is known of devices.
    shared = sharers(use.key)
    milli = claims.wants.weight(number) // shared if shared else 0
    return DeviceNeed(number, use.key if which else "", milli=milli, sharers=shared)

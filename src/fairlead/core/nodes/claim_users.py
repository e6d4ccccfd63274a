"""Pods by what their claims have: who holds devices of pools, and who may move with its claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlead.core.model.pods import DeviceNeed, DeviceUse, Pod
from fairlead.core.nodes.claims_by_pool import pools_in
from fairlead.core.nodes.device_claims import DeviceClaims

if TYPE_CHECKING:
    from fairlead.core.dra.pools import PoolId


def pools_of(claims: DeviceClaims, pod: Pod) -> set[PoolId]:
    """The pools of which the claims of a pod have devices."""
    found = (claims.allocation_of(key) for key in claims.keys_of(pod))
    return {pool for allocation in found if allocation is not None for pool in pools_in(allocation)}


def holders(claims: DeviceClaims, pools: Iterable[PoolId]) -> list[str]:
    """UIDs of the pods whose claims have devices of some pools, in order."""
    return sorted({uid for key in claims.by_pool.of(pools) for uid in claims.wants.users(key)})


def may_move(claims: DeviceClaims, pod: Pod) -> bool:
    """Whether what replaces a pod elsewhere finds the devices that are chosen for it now.

    A claim that a template made for the pod alone goes with it, and another is made. One that is there by itself keeps its
    devices where they are as long as others use it, and can be used with them wherever these reach. If no other pod has
    a place, it holds them until it is deallocated, at some time after the pod is gone: then the pod stays. For extended
    resources the pod has a claim for itself, or none: a device plugin serves it.
    """
    for use in pod.claims:
        claim = claims.claims.get(use.key)
        if use.extended and claim is None and claims.allocation_of(use.key) is None:
            if not claims.extended.served(pod):
                return False  # its replacement needs something else
            continue
        if claim is None or claim.foreign or claim.deleting or claim.allocation is None:
            return False
        if use.extended:
            if not claims.extended.served(pod):
                return False
        elif use.template:
            if claim.owner != pod.uid or len(claims.wants.users(use.key)) > 1:
                return False
        elif claims.users_with_places(use.key) < 2:
            return False
    return True


def of_replacement(
    claims: DeviceClaims, pod: Pod, needs: tuple[DeviceNeed, ...]
) -> tuple[tuple[DeviceUse, ...], tuple[DeviceNeed, ...]]:
    """The claims of a pod that is made instead of one, and what it needs by them. needs: of the one."""
    uses, fresh = [], []
    for use, need in zip(pod.claims, needs, strict=False):
        if use.extended:
            uses.append(DeviceUse(use.name, extended=True))
            fresh.append(DeviceNeed(need.content, milli=need.milli, served=need.served or claims.extended.served(pod)))
            continue
        uses.append(DeviceUse(use.name, "" if use.template else use.key, use.template))
        milli = claims.wants.weight(need.content)
        fresh.append(DeviceNeed(need.content, milli=milli) if use.template else need)
    return tuple(uses), tuple(fresh)

"""ComputeDomains of NVIDIA's DRA driver: which one a pod joins, by its ResourceClaims.

A ComputeDomain makes a ResourceClaimTemplate for a channel, whose opaque parameters name its UID. The nodes on which pods with
such a claim run are in the domain: NVLink between them is set up for it, so they must be in one clique, and in no other domain.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from fairlead.api.names import COMPUTE_DOMAIN_CLASS
from fairlead.core.dra.model import Claim
from fairlead.core.model.pods import Pod
from fairlead.core.nodes.device_claims import DeviceClaims


class _Channel(msgspec.Struct):
    """The part of a `ComputeDomainChannelConfig` that is read."""

    domain_id: str = msgspec.field(name="domainID", default="")


class _Opaque(msgspec.Struct):
    parameters: _Channel = msgspec.field(default_factory=_Channel)


def compute_domain(pod: Pod, claims: DeviceClaims) -> str:
    """UID of the ComputeDomain that a pod joins; empty: none. Of several the first by its claims: a node is in one at a time."""
    for use in pod.claims:
        asks = claims.asks_of(use.key) or claims.asks_of(use.template)
        if asks is not None and (domain := domain_of(asks)):
            return domain
    return ""


@lru_cache(maxsize=1024)
def domain_of(asks: Claim) -> str:
    """UID of the ComputeDomain of which a claim asks for a channel; empty: of none."""
    names = {
        request.name
        for request in asks.requests
        if any(each.device_class == COMPUTE_DOMAIN_CLASS for each in request.alternatives)
    }
    for config in asks.configs if names else ():
        if config.requests and names.isdisjoint(config.requests):
            continue
        try:
            domain = msgspec.json.decode(config.parameters, type=_Opaque).parameters.domain_id
        except msgspec.MsgspecError:
            continue  # the driver reports what is wrong with it
        if domain:
            return domain
    return ""

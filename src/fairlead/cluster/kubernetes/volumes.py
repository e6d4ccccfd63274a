"""Binding the volumes that a pod's claims wait for, as kube-scheduler does."""

from __future__ import annotations

import asyncio

import msgspec

from fairlead.cluster import storage_views
from fairlead.cluster.kubernetes.client import ApiError, Client, encode
from fairlead.cluster.port import Outcome
from fairlead.core.model.transactions import Binding, VolumeChoice
from fairlead.core.nodes.storage import Claim

_CHOSEN_NODE = "volume.kubernetes.io/selected-node"
_MERGE = "application/merge-patch+json"
_BIND_LIMIT = 600.0  # seconds that volumes may take, as kube-scheduler's bindTimeoutSeconds
_FIRST_POLL = 0.05


class Volumes:
    """Binds claims to volumes, or asks for volumes on a node."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def bind(self, binding: Binding) -> tuple[Outcome, str]:
        """Claim references on volumes, the node on claims to provision; then wait until the claims are bound."""
        try:
            for each in binding.volumes:
                refused = await self._claim_volume(each, binding.node)
                if refused:
                    return Outcome.REFUSED, refused
            async with asyncio.timeout(_BIND_LIMIT):
                for each in binding.volumes:
                    refused = await self._await_bound(each, binding.node)
                    if refused:
                        return Outcome.REFUSED, refused
        except ApiError as error:
            return Outcome.REFUSED, str(error)
        except TimeoutError:
            return Outcome.REFUSED, f"the claims were not bound within {_BIND_LIMIT:.0f} seconds"
        return Outcome.DONE, ""

    async def _claim_volume(self, choice: VolumeChoice, node: str) -> str:
        """Write one choice; returns why it does not hold any more, or nothing."""
        path = _claim_path(choice.claim)
        if not choice.volume:
            await self._client.patch(path, encode({"metadata": {"annotations": {_CHOSEN_NODE: node}}}), _MERGE)
            return ""
        claim = msgspec.json.decode(await self._client.get(path), type=storage_views.Claim)
        volume_path = f"/api/v1/persistentvolumes/{choice.volume}"
        volume = msgspec.json.decode(await self._client.get(volume_path), type=storage_views.Volume)
        reference = volume.spec.claim_ref
        if reference is not None and (reference.namespace, reference.name) != (claim.metadata.namespace, claim.metadata.name):
            return f"volume {choice.volume} was given to {reference.namespace}/{reference.name} meanwhile"
        if reference is not None and reference.uid == claim.metadata.uid:
            return ""
        metadata = claim.metadata
        body = {
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
            },
            "spec": {
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": metadata.namespace,
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "resourceVersion": metadata.resource_version,
                }
            },
        }
        await self._client.patch(volume_path, encode(body), _MERGE)
        return ""

    async def _await_bound(self, choice: VolumeChoice, node: str) -> str:
        wait = _FIRST_POLL
        while True:
            claim = msgspec.json.decode(await self._client.get(_claim_path(choice.claim)), type=storage_views.Claim)
            seen = storage_views.convert(claim)
            if isinstance(seen, Claim):
                if seen.volume and seen.bound:
                    return ""
                if not choice.volume and seen.chosen_node != node:
                    return f"no volume could be made for claim {choice.claim} on this node"
            await asyncio.sleep(wait)
            wait = min(2 * wait, 1.0)


def _claim_path(key: str) -> str:
    namespace, _, name = key.partition("/")
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"

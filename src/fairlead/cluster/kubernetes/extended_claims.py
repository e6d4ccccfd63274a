"""Claims for extended resources of pods: created when a pod is bound, named in its status, deleted where it is not bound.

The claim belongs to the pod and is marked, so it is found again by its owner; it is deleted with the pod. A request to create one
that was not answered may have been carried out all the same, so before the next one for that pod all claims of the namespace are
searched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from fairlead.cluster import claim_status, device_views, views
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.statuses import pod_path
from fairlead.cluster.translate import Change
from fairlead.core.model.transactions import ExtendedClaim, PodRef

_GONE, _FAULT = 404, 500


class NotKept(Exception):
    """The API server does not keep in a pod's status which claim it has; its text is the reason."""

    def __init__(self) -> None:
        super().__init__("the API server keeps no status.extendedResourceClaimStatus: feature gate DRAExtendedResource is off")


class ExtendedClaims:
    """Creates and deletes such claims. written: is called with a pod whose status was written."""

    def __init__(self, client: Client, written: Callable[[views.Pod], None]) -> None:
        self._client, self._written = client, written
        self._owned: dict[str, dict[str, str]] = {}  # UID of a pod -> its claims, `namespace/name`, and their UIDs
        self._owners: dict[str, str] = {}
        self._doubtful: set[str] = set()  # UIDs of pods: a request to create a claim was not answered
        self._shown: set[str] = set()  # UIDs of pods in whose status a claim was named
        self._deleted: set[str] = set()  # claims that were deleted: the watch has not delivered that
        self._kept = False  # whether a pod's status is known to keep the name of its claim

    def note(self, changes: Iterable[Change[device_views.ResourceClaim]]) -> None:
        """Claims came, changed or went."""
        for change in changes:
            view = change.view
            if view is None:
                self._forget(change.key)
                self._deleted.discard(change.key)
            elif owner := device_views.owner_of_extended(view.metadata):
                self._remember(owner, change.key, view.metadata.uid)

    def others(self, pod: PodRef, key: str) -> list[str]:
        """What other claims for its extended resources a pod has."""
        return sorted(each for each in self._owned.get(pod.uid, ()) if each != key)

    async def create(self, wanted: ExtendedClaim, pod: PodRef) -> tuple[str, Mapping[str, Any]]:
        """Create the claim of a pod. Returns `namespace/name`, and its metadata. Raises `ApiError`, `Unreachable`, `NotKept`.

        Until a pod's status was seen to keep the name of its claim, that is tried dry first: where it does not, no claim is made.
        """
        if not self._kept:
            await self._write_status(pod, claim_status.extended_status("not-created-yet", wanted), dry_run=True)
        path = f"/apis/resource.k8s.io/v1/namespaces/{pod.namespace}/resourceclaims"
        if pod.uid in self._doubtful:
            await self._search(path, pod)
        try:
            answer = await self._client.post(path, encode(claim_status.extended_claim(wanted, pod)))
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiError) or error.code >= _FAULT:
                self._doubtful.add(pod.uid)
            raise
        metadata: dict[str, Any] = msgspec.json.decode(answer)["metadata"]
        key = f"{pod.namespace}/{metadata['name']}"
        self._remember(pod.uid, key, metadata["uid"])
        return key, metadata

    async def _search(self, path: str, pod: PodRef) -> None:
        """Delete what requests that were not answered created for a pod."""
        found = msgspec.json.decode(await self._client.get(path))
        for item in found["items"] or ():
            metadata = msgspec.convert(item["metadata"], views.Metadata)
            if device_views.owner_of_extended(metadata) == pod.uid:
                await self._delete(f"{pod.namespace}/{metadata.name}", metadata.uid)
        self._doubtful.discard(pod.uid)

    async def show(self, pod: PodRef, key: str, wanted: ExtendedClaim) -> None:
        """Write into a pod's status which claim it has; key: empty: none. Raises `ApiError`, `Unreachable`, `NotKept`."""
        status = claim_status.extended_status(key.partition("/")[2], wanted) if key else None
        if key:
            self._shown.add(pod.uid)  # also where nothing is answered
        self._written(await self._write_status(pod, status))

    async def _write_status(self, pod: PodRef, status: Mapping[str, Any] | None, *, dry_run: bool = False) -> views.Pod:
        body = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
        answer = await self._client.patch(f"{pod_path(pod)}/status", encode(body), dry_run=dry_run)
        view = msgspec.json.decode(answer, type=views.Pod)
        shown = view.status.extended_resource_claim_status if view.status is not None else None
        if status is not None:
            self._kept = shown is not None
            if shown is None:
                raise NotKept
        return view

    async def take_back(self, pod: PodRef) -> list[str]:
        """Delete what was created for a pod that is not bound, and name none in its status. Returns what is deleted.

        Raises `ApiError`, `Unreachable`. A name that stays in the status is taken out with the next binding, once the watch has
        delivered it; before, the pod could be bound without a claim, and its kubelet would wait for this one.
        """
        owned, shown = sorted(self._owned.get(pod.uid, {}).items()), pod.uid in self._shown
        self._shown.discard(pod.uid)
        for key, uid in owned:
            await self._delete(key, uid)
        if shown:
            with contextlib.suppress(ApiError, Unreachable):
                self._written(await self._write_status(pod, None))
        return [key for key, _ in owned]

    def is_going(self, key: str) -> bool:
        """Whether a claim was deleted here, and the watch has not delivered that."""
        return key in self._deleted

    async def delete(self, key: str, uid: str) -> None:
        """Delete a claim of an earlier binding. Raises `ApiError`, `Unreachable`."""
        await self._delete(key, uid)

    async def _delete(self, key: str, uid: str) -> None:
        """The finalizer first: nothing else takes it off a claim that still has devices."""
        path = claim_status.path_of(key)
        body = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [claim_status.FINALIZER]}}
        try:
            await self._client.patch(path, encode(body))
            await self._client.delete(path, encode({"preconditions": {"uid": uid}}))
        except ApiError as error:
            if error.code != _GONE:
                raise
        if key in self._owners:
            self._deleted.add(key)
        self._forget(key)

    def _remember(self, owner: str, key: str, uid: str) -> None:
        self._owned.setdefault(owner, {})[key] = uid
        self._owners[key] = owner

    def _forget(self, key: str) -> None:
        owner = self._owners.pop(key, None)
        if owner is None:
            return
        owned = self._owned[owner]
        owned.pop(key, None)
        if not owned:
            del self._owned[owner]
            self._shown.discard(owner)

"""Allocating ResourceClaims, as kube-scheduler does: the finalizer, then devices and reservation in one write of the status.

The status is written on the version that the finalizer's answer has, so one claim is never allocated twice. Another scheduler can
give the same devices to other claims at the same moment, or the GPU of a partition: the watch is awaited, and where allocations
overlap, the one that was written later is taken back before the pod is bound. What remains is a scheduler that does not check.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from fairlead.cluster import claim_status, device_views, views
from fairlead.cluster.claim_status import path_of
from fairlead.cluster.kubernetes import protobuf
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable, encode
from fairlead.cluster.kubernetes.extended_claims import ExtendedClaims, NotKept
from fairlead.cluster.kubernetes.failed_devices import FailedDevices
from fairlead.cluster.port import Allocated, ClusterEvent, Gone, Outcome, Upsert
from fairlead.cluster.translate import Change
from fairlead.core.dra.model import Slice
from fairlead.core.dra.overlaps import Written
from fairlead.core.model.allocations import Allocation, DeviceId, FailedDevice
from fairlead.core.model.transactions import Binding, DeviceChoice, ExtendedClaim, PodRef

_MERGE = "application/merge-patch+json"
_TRIES, _CONFLICT, _INVALID = 5, 409, 422
_NOT_TAKEN = (400, 403, 422)  # an allocation was refused for what it is; other devices may be taken
_SEEN_LIMIT = 30.0  # seconds until the watch must have delivered what was written
_RELEASED_LIMIT = 5.0  # seconds for the same of what was taken back
_READY_LIMIT = 600.0  # seconds that devices may take until they can be bound, as upstream
_FIRST_POLL, _LAST_POLL = 0.05, 5.0
_AT_ONCE = 32  # bindings whose claims are being written: more cost a TLS handshake each, and wait for the API server all the same


class _Refused(Exception):
    """A claim cannot be had; its text is the reason. failed: devices that are to be avoided for that."""

    def __init__(self, message: str, failed: tuple[FailedDevice, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class DeviceClaims:
    """Writes what claims are allocated, and finds others whose devices overlap with theirs.

    written: is called with a pod whose status was written. failures: the devices because of which bindings failed.
    """

    def __init__(self, client: Client, written: Callable[[views.Pod], None] = lambda _: None) -> None:
        self._client = client
        self._extended = ExtendedClaims(client, written)
        self.failures = FailedDevices(client.clock)
        self._versions: dict[str, int] = {}  # of claims, as the watch has delivered them
        self._written = Written()
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}  # for a change of a claim
        self._turn = asyncio.Semaphore(_AT_ONCE)

    # -- what the watch delivers -----------------------------------------------------------------

    def note(self, changes: list[Change[device_views.ResourceClaim]]) -> None:
        """Claims came, changed or went."""
        self._extended.note(changes)
        for change in changes:
            for waiter in self._waiting.pop(change.key, ()):  # resumed once this batch is noted
                if not waiter.done():
                    waiter.set_result(None)
            if change.view is None or change.error:
                self._versions.pop(change.key, None)
                self._written.remove(change.key)
                continue
            self._versions[change.key] = version = _version(change.view.metadata.resource_version)
            self._written.put(change.key, _allocation(change.view), version)

    def note_slices(self, events: Iterable[ClusterEvent]) -> None:
        """Slices came, changed or went."""
        for event in events:
            if isinstance(event, Upsert) and isinstance(event.object, Slice):
                self._written.put_slice(event.object)
            elif isinstance(event, Gone):
                self._written.remove_slice(event.key)

    # -- writes ----------------------------------------------------------------------------------

    def note_bound(self, binding: Binding) -> None:
        """A pod was bound: its devices work."""
        self.failures.works(each.allocation for each in binding.claims)
        if any(each.extended is not None and each.extended.requests for each in binding.claims):
            self.failures.claims_served()

    async def allocate(self, binding: Binding, settled: Callable[[], None] = lambda: None) -> Allocated:
        """Allocate and reserve the claims of a binding; nothing of it remains where one is refused.

        settled: is called before devices are waited for.
        """
        try:
            async with self._turn:
                written = [await self._write(each, binding.pod) for each in binding.claims]
            for choice, version in written:
                if choice.claim:
                    await self._see(choice.claim, version)
            for choice, _ in written:
                if choice.extended is not None:
                    await self._show(choice, choice.extended, binding.pod)
            if waiting := [choice for choice, _ in written if _has_conditions(choice)]:
                settled()
                await self._ready(waiting)
        except (_Refused, NotKept, ApiError, Unreachable) as error:
            await self.release(binding)
            failed = error.failed if isinstance(error, _Refused) else ()
            if isinstance(error, NotKept):
                failed = (FailedDevice("", DeviceId("", "", ""), str(error), unserved=True),)
            self.failures.note(failed)
            return Allocated(Outcome.REFUSED, str(error), failed)
        return Allocated(Outcome.DONE)

    async def _write(self, choice: DeviceChoice, pod: PodRef) -> tuple[DeviceChoice, int]:
        """Write one claim, created first where it is for extended resources; returns it by its name, and its version."""
        wanted = choice.extended
        if wanted is None:
            return choice, await self._take(choice, pod)
        if not wanted.requests:
            return msgspec.structs.replace(choice, claim=""), 0
        if choice.allocation is None:
            raise _Refused("no devices could be decided for extended resources")
        key, metadata = await self._extended.create(wanted, pod)
        version = await self._allocated(key, choice.allocation, pod, metadata)
        return msgspec.structs.replace(choice, claim=key, uid=metadata["uid"]), version

    async def _show(self, choice: DeviceChoice, wanted: ExtendedClaim, pod: PodRef) -> None:
        """Name the claim in the pod's status, by which the kubelet finds it. Raises `_Refused` where the pod has another one."""
        if choice.claim and (others := self._extended.others(pod, choice.claim)):
            raise _Refused(f"the pod has resourceclaim {others[0]} for its extended resources, too")
        await self._extended.show(pod, choice.claim, wanted)

    async def _take(self, choice: DeviceChoice, pod: PodRef) -> int:
        """Write one claim; returns the version that it has then. Raises `_Refused`."""
        if choice.allocation is None:
            raise _Refused(f"no devices could be decided for resourceclaim {choice.claim}")
        for left in reversed(range(_TRIES)):
            try:
                if not choice.decided:
                    return await self._reserve(choice, choice.uid, pod)
                return await self._allocate(choice, choice.allocation, pod)
            except ApiError as error:
                # Others that share the claim write at the same moment; what they wrote is read with the next try.
                if error.code != _CONFLICT or not left:
                    raise
        raise AssertionError  # the last try returns or raises

    async def _allocate(self, choice: DeviceChoice, allocation: Allocation, pod: PodRef) -> int:
        wanted, path = claim_status.allocation(allocation), path_of(choice.claim)
        claim = msgspec.json.decode(await self._protect(path, choice.uid))
        metadata, status = _metadata(claim), claim.get("status") or {}
        if metadata.get("deletionTimestamp"):
            raise _Refused(f"resourceclaim {choice.claim} is being deleted")
        there = status.get("allocation")
        if there is not None and claim_status.devices_of(there) != claim_status.devices_of(wanted):
            raise _Refused(f"resourceclaim {choice.claim} was allocated other devices meanwhile")
        if there is not None:
            return await self._reserve(choice, metadata["uid"], pod)
        return await self._allocated(choice.claim, allocation, pod, metadata)

    async def _allocated(self, key: str, allocation: Allocation, pod: PodRef, metadata: Mapping[str, Any]) -> int:
        """Write devices and reservation on the version that the metadata have; returns the version after that."""
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
            "status": {"reservedFor": [claim_status.consumer(pod)], "allocation": claim_status.allocation(allocation)},
        }
        try:
            answer = await self._client.patch(f"{path_of(key)}/status", encode(body))
        except ApiError as error:
            if error.code not in _NOT_TAKEN:
                raise
            why = f"the API server refused the allocation: {error}"
            failed = {each.device: FailedDevice(key, each.device, why, refused=True) for each in allocation.devices}
            raise _Refused(f"resourceclaim {key}: {why}", tuple(failed.values())) from error
        return _version(_metadata(msgspec.json.decode(answer))["resourceVersion"])

    async def _protect(self, path: str, uid: str) -> bytes:
        """Set the finalizer; returns the claim. uid: of the claim that was decided about; empty: not known."""
        body = {"metadata": {**_of(uid), "finalizers": [claim_status.FINALIZER]}}
        return await self._change(
            path,
            uid,
            lambda: self._client.patch(path, encode(body)),
            lambda claim: protobuf.with_finalizer(claim, claim_status.FINALIZER),
        )

    async def _reserve(self, choice: DeviceChoice, uid: str, pod: PodRef) -> int:
        """Reserve a claim that is allocated: the entry is merged with those of other pods, whichever version it has."""
        body = {"metadata": _of(uid), "status": {"reservedFor": [claim_status.consumer(pod)]}}
        path = f"{path_of(choice.claim)}/status"
        answer = await self._change(
            path,
            uid,
            lambda: self._client.patch(path, encode(body)),
            lambda claim: protobuf.with_user(claim, pod.name, pod.uid),
        )
        claim = msgspec.json.decode(answer)
        there = (claim.get("status") or {}).get("allocation")
        if choice.allocation is None or there is None or not _is(there, choice.allocation):
            raise _Refused(f"resourceclaim {choice.claim} was allocated other devices meanwhile")
        return _version(_metadata(claim)["resourceVersion"])

    async def _change(
        self,
        path: str,
        uid: str,
        patch: Callable[[], Awaitable[bytes]],
        in_protobuf: Callable[[bytes], tuple[str, bytes]],
    ) -> bytes:
        """Change a claim, or its status, by a patch, or else in protobuf; returns the claim. uid: as of `_protect`.

        A patch does not do if the claim has opaque parameters whose JSON is not as Go writes it, keys sorted, without spaces: to
        the API server the patched claim has another specification then, or another allocation.
        """
        try:
            return await patch()
        except ApiError as error:
            if error.code != _INVALID:
                raise
            try:
                there, claim = in_protobuf(await self._client.get_as(path.removesuffix("/status"), protobuf.MEDIA_TYPE))
            except protobuf.Malformed:
                raise error from None
            if uid and there != uid:  # of that name another is there by now
                raise
            return await self._client.put(path, claim, kind=protobuf.MEDIA_TYPE)

    async def _see(self, key: str, version: int) -> None:
        """Wait for the watch; raise `_Refused` if another claim was given one of these devices, or a part of it, before."""
        try:
            async with asyncio.timeout(_SEEN_LIMIT):
                await self._delivered(key, version, unless_gone=False)
        except TimeoutError:
            raise _Refused(f"resourceclaim {key} was not observed within {_SEEN_LIMIT:.0f} seconds") from None
        found = self._written.overlap(key)
        if found is not None:
            raise _Refused(f"device {found.device} {found.what}: resourceclaim {', '.join(found.others)} was allocated first")

    async def _delivered(self, key: str, version: int, *, unless_gone: bool = True) -> None:
        """Wait until the watch has delivered a claim in this version or a later one; or, unless_gone, that it is gone."""
        while (delivered := self._versions.get(key)) is None or delivered < version:
            if delivered is None and unless_gone:
                return
            await self._next_change(key)

    async def _next_change(self, key: str) -> None:
        """Wait until the watch delivers a claim again."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, set()).add(waiter)
        try:
            await waiter
        finally:
            waiters = self._waiting.get(key, set())
            waiters.discard(waiter)
            if not waiters:
                self._waiting.pop(key, None)

    async def _ready(self, choices: list[DeviceChoice]) -> None:
        """Wait until the binding conditions of the devices hold. Raises `_Refused` if one fails, or it takes too long."""
        wanted = {each.claim: each for each in choices}
        wait, left = _FIRST_POLL, _READY_LIMIT
        unready: dict[str, list[FailedDevice]] = {}
        while wanted:
            for key in list(wanted):
                unready[key] = _unready(msgspec.json.decode(await self._client.get(path_of(key))), key)
                if not unready[key]:
                    del wanted[key]
            if not wanted:
                return
            if left <= 0:
                message = f"devices of resourceclaim {min(wanted)} were not ready within {_READY_LIMIT:.0f} seconds"
                raise _Refused(message, tuple(each for key in sorted(wanted) for each in unready[key]))
            await asyncio.sleep(wait)
            left -= wait
            wait = min(2 * wait, _LAST_POLL)

    async def release(self, binding: Binding) -> None:
        """Take the reservation of a pod back, and what was allocated for it where no other pod uses the claim.

        Returns once the watch has delivered that: else the pod would be tried again with the devices that the claim had.
        """
        for choice in binding.claims:
            try:
                version, deleted = await self._release(choice, binding.pod)
                async with asyncio.timeout(_RELEASED_LIMIT):
                    await self._delivered(choice.claim, version)
                    for key in deleted:
                        while self._extended.is_going(key):
                            await self._next_change(key)
            except (ApiError, Unreachable, TimeoutError):
                # The controller of claims does it once the pod is gone; until then they are reserved for this pod.
                continue

    async def _release(self, choice: DeviceChoice, pod: PodRef) -> tuple[int, list[str]]:
        """Returns the version that the claim has then, 0: nothing was to be written; and the claims that are deleted."""
        if choice.removed:
            await self._extended.delete(choice.claim, choice.uid)
            return 0, [choice.claim]
        if choice.extended is not None:
            return 0, await self._extended.take_back(pod)
        for left in reversed(range(_TRIES)):
            try:
                return await self._unreserve(choice, pod), []
            except (ApiError, protobuf.Outdated) as error:
                # Others that share the claim write at the same moment; what is taken back is decided again by what they wrote.
                if isinstance(error, ApiError) and (error.code != _CONFLICT or not left):
                    raise
        return 0, []

    async def _unreserve(self, choice: DeviceChoice, pod: PodRef) -> int:
        """Take a reservation back, and the devices with it where they were decided for it and no other pod uses them."""
        claim = msgspec.json.decode(await self._client.get(path_of(choice.claim)))
        metadata, status = _metadata(claim), claim.get("status") or {}
        users = status.get("reservedFor") or []
        others = [each for each in users if each.get("uid") != pod.uid]
        there, wanted = status.get("allocation"), choice.allocation
        ours = choice.decided and there is not None and wanted is not None and _is(there, wanted)
        if there is not None and not others and not ours:
            return (
                0  # as it was before; once the pod is gone the controller of claims frees what is reserved for it, and that alone
            )
        changed: dict[str, Any] = {"reservedFor": others or None} if len(others) < len(users) else {}
        if ours and not others:
            changed["allocation"] = None
        if not changed:
            return 0
        body = {"metadata": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}, "status": changed}
        path, version = path_of(choice.claim), metadata["resourceVersion"]
        answer = await self._change(
            f"{path}/status",
            metadata["uid"],
            lambda: self._client.patch(f"{path}/status", encode(body), _MERGE),
            lambda found: protobuf.without_user(found, pod.uid, version, deallocated="allocation" in changed),
        )
        return _version(_metadata(msgspec.json.decode(answer))["resourceVersion"])


def _is(there: Any, wanted: Allocation) -> bool:
    """Whether an allocation that is there has the devices that were decided."""
    return claim_status.devices_of(there) == claim_status.devices_of(claim_status.allocation(wanted))


def _of(uid: str) -> dict[str, str]:
    """The claim that a patch is for, as its metadata."""
    return {"uid": uid} if uid else {}


def _metadata(claim: Any) -> dict[str, Any]:
    found: dict[str, Any] = claim["metadata"]
    return found


def _version(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _allocation(view: device_views.ResourceClaim) -> Allocation | None:
    """What a claim has. Amounts that cannot be read are left out: the devices count."""
    allocated = view.status.allocation if view.status is not None else None
    if allocated is None:
        return None
    try:
        return device_views.allocation(allocated)
    except ValueError:
        results = [msgspec.structs.replace(each, consumed_capacity=None) for each in allocated.devices.results or ()]
        bare = msgspec.structs.replace(allocated, devices=device_views.Results(results=results), node_selector=None)
        return device_views.allocation(bare)


def _has_conditions(choice: DeviceChoice) -> bool:
    return choice.allocation is not None and any(each.conditions for each in choice.allocation.devices)


def _unready(claim: Any, key: str) -> list[FailedDevice]:
    """The devices of a claim whose binding conditions do not all hold yet, each with those that do not.

    Raises `_Refused` if a failure condition holds.
    """
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    if not results:
        raise _Refused(f"resourceclaim {key} was deallocated before its devices were ready")
    reported = {_device(each): each.get("conditions") or [] for each in status.get("devices") or []}
    missing, failed = [], []
    for each in results:
        conditions = reported.get(_device(each), [])
        true = {condition["type"] for condition in conditions if condition.get("status") == "True"}
        device = DeviceId(*_device(each))
        if wrong := sorted(true & set(each.get("bindingFailureConditions") or ())):
            failed.append(FailedDevice(key, device, f"condition {', '.join(wrong)}"))
        elif absent := sorted(set(each.get("bindingConditions") or ()) - true):
            missing.append(FailedDevice(key, device, f"condition {', '.join(absent)} did not hold within {_READY_LIMIT:.0f} s"))
    if failed:
        raise _Refused("; ".join(f"device {each.device} failed: {each.why}" for each in failed), tuple(failed))
    return missing


def _device(result: Any) -> tuple[str, str, str]:
    return result["driver"], result["pool"], result["device"]

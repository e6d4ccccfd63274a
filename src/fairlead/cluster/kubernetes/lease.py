"""Leader election by a Lease, as client-go does it, with an epoch for fencing.

The epoch is the Lease's `leaseTransitions`. A restart of the same process raises it, too: the
holder's identity is unique per process. Every binding carries the epoch, and an admission policy
refuses one that is older than the Lease (see `fairlead crds --policies`). Clocks of
two processes are never compared: a Lease is stale once it has not changed for its duration.

Requests for the Lease have connections of their own, so that they wait behind no other request, and end before the renew
deadline. An API server that starts refuses everything (403) until it has loaded the roles: a leader that is refused goes on
for a grace period, but past the renew deadline its writes wait, as another may lead by then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.cluster.kubernetes.client import REFUSAL_GRACE, ApiError, Client, Unreachable, encode, refuses

log = structlog.get_logger("lease")

_MOMENT = 0.01
_SOON = 0.25  # seconds between two renewals at least
_RELEASES = 2
"""How often a release is tried that meets a write of ours."""

T = TypeVar("T")

_RIGHT = (
    "it needs the rights get, update and create on leases.coordination.k8s.io in namespace {}: apply and bind charts/rbac.yaml"
)


async def until(stop: asyncio.Event, leading: Coroutine[None, None, None]) -> bool:
    """Work until `stop` is set. Returns whether the work ended before, its lease lost; raises what ended it."""
    stopping = asyncio.ensure_future(stop.wait())
    work = asyncio.ensure_future(leading)
    try:
        await asyncio.wait({stopping, work}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
            return True
        return False
    finally:
        stopping.cancel()
        if not work.done():
            work.cancel()
            [ended] = await asyncio.gather(work, return_exceptions=True)
            if isinstance(ended, Exception):
                log.warning("the leading task failed while it ended", error=repr(ended)[:300])  # nothing depends on it any more


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True):
    """The part of a Lease that counts."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, rename="camel"):
    """A coordination.k8s.io/v1 Lease; metadata goes back as it came."""

    metadata: dict[str, Any]
    spec: LeaseSpec


class Elector:
    """Acquires and renews one Lease.

    healthy: asked before each renewal; a scheduler whose core stands still must not stay leader.
    Times in seconds: a holder gives up after `renew_deadline` without a renewal, others take over
    after `duration` without a change. refusal_grace: how long a holder that is refused (401, 403) tries on. annotations: of ours,
    that every write of a holder sets, or removes (None).
    """

    def __init__(  # noqa: PLR0913 - each is given by name
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        healthy: Callable[[], bool],
        duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry: float = 2.0,
        refusal_grace: float = REFUSAL_GRACE,
        identity: str = "",
        annotations: Callable[[], Mapping[str, str | None]] | None = None,
    ) -> None:
        self.client = client
        self._line = client.apart(timeout=renew_deadline / 2)
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.namespace, self.name = namespace, name
        self.identity = identity or f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self.healthy = healthy
        self.annotations = annotations
        self.found: dict[str, str] = {}
        """The annotations that the Lease had when it was acquired."""
        self.duration, self.renew_deadline, self.retry = duration, renew_deadline, retry
        self.refusal_grace = max(refusal_grace, renew_deadline)
        self.epoch: int | None = None
        self.waiting = False
        """Whether another process held the lease when it was asked for last."""
        self._seen: tuple[str | None, str | None, int | None] | None = None
        self._seen_at = 0.0
        self._lasts = duration
        self._held: Lease | None = None  # as it was written last
        self._soon = False  # whether annotations changed since the last renewal was written
        self._until_due: asyncio.Future[None] | None = None  # while the next renewal is not due

    async def lead(
        self,
        work: Callable[[], Awaitable[None]],
        *,
        stand_by: Callable[[], None] = lambda: None,
        drain: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Wait for the Lease, run `work` while holding it, and end when it is lost.

        Cancelled from outside it releases the Lease, so that the next one need not wait. stand_by: called each time another
        process is found to hold it; drain: awaited before it is released.
        """
        async with self._line:
            await self._acquire(stand_by)
            await self._lead(work, drain)

    async def _lead(self, work: Callable[[], Awaitable[None]], drain: Callable[[], Awaitable[None]] | None) -> None:
        log.info("leading", identity=self.identity, epoch=self.epoch)
        worker = asyncio.ensure_future(work())
        renewal = asyncio.ensure_future(self._renew())
        failed: BaseException | None = None
        try:
            await asyncio.wait({worker, renewal}, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                failed = worker.exception() if not worker.cancelled() else None
            else:
                log.error("the lease was lost", identity=self.identity, epoch=self.epoch)
        finally:
            # In a task of its own: a timeout that expires in one that is cancelled raises another cancellation (Python 3.11).
            ended = await asyncio.ensure_future(self._end(worker, renewal, drain))
        if failed is not None:
            raise failed
        if isinstance(ended, Exception):
            log.warning("the leading task failed while it ended", error=repr(ended)[:300])  # the lease is gone, and that is why

    async def _end(
        self, worker: asyncio.Future[None], renewal: asyncio.Future[None], drain: Callable[[], Awaitable[None]] | None
    ) -> BaseException | None:
        """End what runs, then release the Lease, whatever comes of the rest. Returns what the worker raised."""
        try:
            if drain is not None and not worker.done() and not renewal.done():
                await drain()
        except Exception as error:  # noqa: BLE001 - the next leader waits for the release
            log.warning("not drained", error=repr(error)[:300])
        for task in (worker, renewal):
            task.cancel()
        ended = await asyncio.gather(worker, renewal, return_exceptions=True)
        await self._release()
        return ended[0]

    async def _acquire(self, stand_by: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        refused_at: float | None = None
        while True:
            try:
                self.waiting = not await self._try_acquire()
                if not self.waiting:
                    return
                refused_at = None
                stand_by()
            except (ApiError, Unreachable, msgspec.DecodeError) as error:
                self.waiting = False
                if refuses(error):
                    refused_at = loop.time() if refused_at is None else refused_at
                late = refused_at is not None and loop.time() - refused_at >= self.refusal_grace
                hint = {"hint": _RIGHT.format(self.namespace)} if late and refuses(error) else {}
                log.warning("lease not acquired", error=str(error)[:300], **hint)
            await asyncio.sleep(self._pause())

    def _pause(self) -> float:
        """Seconds until the lease is asked for again: soon after the holder released it, and at once when it is over."""
        if not self.waiting:
            return self.retry
        over = self._seen_at + self._lasts - asyncio.get_running_loop().time()
        return min(self.retry / 4, max(over, 0.0) + _MOMENT)

    async def _try_acquire(self) -> bool:
        now = asyncio.get_running_loop().time()
        lease = await self._read()
        if lease is None:
            body = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": self._spec(1),
            }
            answer = await self._whole(self._line.post(self.path, encode(body), patient=False))
            self._held = msgspec.json.decode(answer, type=Lease)
            self.epoch = 1
            return True
        spec = lease.spec
        version = (spec.holder_identity, spec.renew_time, spec.lease_transitions)
        if version != self._seen:
            self._seen, self._seen_at = version, now
        self._lasts = float(spec.lease_duration_seconds or self.duration)
        held = spec.holder_identity and now - self._seen_at < self._lasts
        if held:
            return False
        epoch = (spec.lease_transitions or 0) + 1
        self.found = dict(lease.metadata.get("annotations") or {})
        self._held = await self._whole(self._write(lease, self._spec(epoch)))
        self.epoch = epoch
        return True

    async def _whole(self, write: Coroutine[None, None, T]) -> T:
        """What a write that acquires answers. The server may have acted on one that is cancelled: what it got is released."""
        writing = asyncio.ensure_future(write)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.ensure_future(self._abandon(writing))
            raise

    async def _abandon(self, writing: asyncio.Future[T]) -> None:
        await asyncio.wait({writing}, timeout=self.retry)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await self._release()

    async def _renew(self) -> None:
        """Renew until it fails for `renew_deadline`, or is refused for `refusal_grace`; then return."""
        loop = asyncio.get_running_loop()
        last = began = loop.time()  # when the last renewal that succeeded was sent, and the last one
        refused: Exception | None = None  # since then
        while True:
            await self._rest(began)
            began, self._soon = loop.time(), False
            left = last + self.renew_deadline - began
            try:
                if not self.healthy():
                    refused = None
                    log.error("the core makes no progress: not renewing")
                elif left > 0 or refused is not None:
                    async with asyncio.timeout(left if left > 0 else self.renew_deadline):
                        if not await self._renewed():
                            return
                    last, refused = began, None
                    self.client.release_writes()
                    continue
            except Exception as error:  # noqa: BLE001 - whatever it is, the deadline decides
                refused = error if refuses(error) else refused
                log.warning("lease not renewed", error=(str(error) or repr(error))[:300])
            late = loop.time() - last
            if late >= (self.renew_deadline if refused is None else self.refusal_grace):
                if refused is not None:
                    log.error("the lease is refused", error=str(refused)[:300], hint=_RIGHT.format(self.namespace))
                return
            if late >= self.renew_deadline:
                self.client.hold_writes()

    def renew_soon(self) -> None:
        """`annotations` returns others by now: they are written with a renewal that does not wait until one is due."""
        self._soon = True
        self._end_pause()

    async def _rest(self, began: float) -> None:
        """Until a renewal is due. began: when the last one was sent."""
        loop = asyncio.get_running_loop()
        if not self._soon:
            self._until_due = loop.create_future()
            timer = loop.call_later(max(0.0, self.retry - (loop.time() - began)), self._end_pause)
            try:
                await self._until_due
            finally:
                timer.cancel()
        if self._soon:
            await asyncio.sleep(max(0.0, _SOON - (loop.time() - began)))

    def _end_pause(self) -> None:
        if self._until_due is not None and not self._until_due.done():
            self._until_due.set_result(None)

    async def _renewed(self) -> bool:
        """Renew once; whether it is still ours."""
        # What was written last is still there, or the write is refused as a conflict: only then is it read.
        lease = self._held
        if lease is None:
            async with asyncio.timeout(self.renew_deadline / 2):
                lease = await self._read()
        self._held = None
        if lease is None or lease.spec.holder_identity != self.identity:
            log.error("the lease is held by another process", holder=lease.spec.holder_identity if lease is not None else None)
            return False
        spec = self._spec(self.epoch or 1, lease.spec.acquire_time)
        async with asyncio.timeout(self.renew_deadline / 2):
            self._held = await self._write(lease, spec)
        return True

    async def _release(self) -> None:
        for left in reversed(range(_RELEASES)):
            try:
                async with asyncio.timeout(self.retry):
                    lease = await self._read()
                if lease is not None and lease.spec.holder_identity == self.identity:
                    spec = self._spec(lease.spec.lease_transitions or 1)
                    spec["holderIdentity"] = ""
                    spec["leaseDurationSeconds"] = 1
                    async with asyncio.timeout(self.retry):
                        await self._write(lease, spec)
                return
            except (ApiError, Unreachable, TimeoutError, msgspec.DecodeError) as error:
                if left and isinstance(error, ApiError) and error.code == 409:
                    continue  # a renewal that was cancelled arrived after the lease was read
                log.warning("lease not released", error=(str(error) or repr(error))[:300])
                return

    async def _read(self) -> Lease | None:
        try:
            return msgspec.json.decode(await self._line.get(f"{self.path}/{self.name}"), type=Lease)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _write(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        metadata = lease.metadata
        if self.annotations is not None and self.epoch is not None:
            wanted = {**(metadata.get("annotations") or {}), **self.annotations()}
            metadata = {**metadata, "annotations": {name: value for name, value in wanted.items() if value is not None}}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        answer = await self._line.put(f"{self.path}/{self.name}", encode(body), patient=False)
        return msgspec.json.decode(answer, type=Lease)

    def _spec(self, epoch: int, acquired: str | None = None) -> dict[str, Any]:
        now = datetime.fromtimestamp(self.client.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, int(self.duration)),
            "acquireTime": acquired or now,
            "renewTime": now,
            "leaseTransitions": epoch,
        }

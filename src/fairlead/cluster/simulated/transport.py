"""The way to a simulated API server within the process, past a fault plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec

from fairlead.cluster.simulated import messages
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.faults import Fault, FaultPlan, refusal
from fairlead.cluster.simulated.stream import BOOKMARK, Stream, frames
from fairlead.cluster.simulated.wire import Wire
from fairlead.cluster.transport import Chunks, Opened, Reply, Unreachable

_TIMEOUT = 8.0


class Partition:
    """Whether a client reaches the server at all; shared by the transports of one process."""

    def __init__(self) -> None:
        self.cut = False
        self.cut_paths = ""  # only paths that contain this are cut

    def cuts(self, path: str) -> bool:
        """Whether a request to this path gets through."""
        return self.cut or bool(self.cut_paths and self.cut_paths in path)

    def heal(self) -> None:
        """It gets through again."""
        self.cut, self.cut_paths = False, ""


class SimulatedTransport:
    """One client's connections. latency: seconds each way that an exchange takes."""

    def __init__(
        self, served: Wire, plan: FaultPlan | None = None, *, latency: float = 0.0, partition: Partition | None = None
    ) -> None:
        self._wire = served
        self._plan = plan or FaultPlan(0)  # which is off
        self._latency = latency
        self._partition = partition or Partition()
        self.closed = False

    async def _travel(self) -> None:
        """One way of an exchange. A plain timer, as most of a quiet day is made of these: `sleep` costs more."""
        if not self._latency:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        loop.call_later(self._latency, _arrive, arrived)
        await arrived

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """One request; the fault plan may answer instead of the server, or keep its answer."""
        await self._travel()
        fault = self._plan.for_request(write=method != "GET")
        if self._partition.cuts(path) or fault is Fault.REFUSED:
            raise Unreachable(f"{method} {path}: connection refused")
        if fault is Fault.LOST:
            await asyncio.sleep(_TIMEOUT)
            raise Unreachable(f"{method} {path}: timeout")
        if fault is Fault.SLOW:
            await asyncio.sleep(self._plan.seconds(0.5, 6.0))
        refused = refusal(fault, self._plan) if fault is not None else None
        if refused is not None:
            return _answer(refused)
        reply = self._wire.handle(_asked(method, path, query, headers, body))
        if not isinstance(reply, messages.Reply):
            raise TypeError("a watch was asked for as a request")
        if fault is Fault.APPLIED:
            await asyncio.sleep(_TIMEOUT)
            raise Unreachable(f"{method} {path}: timeout")
        await self._travel()
        if self._partition.cuts(path) or self.closed:
            raise Unreachable(f"{method} {path}: connection reset")
        return Reply(reply.status, reply.headers, reply.body)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], silence: float
    ) -> AsyncIterator[Opened]:
        """A watch."""
        await self._travel()
        if self._partition.cuts(path):
            raise Unreachable(f"GET {path}: connection refused")
        fault = self._plan.for_watch()
        if fault is Fault.COMPACTED:
            self._wire.api.store.compact()
        refused = refusal(fault, self._plan) if fault is not None else None
        if refused is not None:
            yield Opened(refused.code, _answer(refused).body, _Chunks(None, self, path, silence))
            return
        reply = self._wire.handle(_asked("GET", path, query, headers, None))
        if isinstance(reply, messages.Reply):
            yield Opened(reply.status, reply.body, _Chunks(None, self, path, silence))
            return
        try:
            yield Opened(200, b"", _Chunks(reply, self, path, silence))
        finally:
            reply.close()

    async def close(self) -> None:
        """Nothing is held."""
        self.closed = True

    @property
    def plan(self) -> FaultPlan:
        """The fault plan."""
        return self._plan

    @property
    def partition(self) -> Partition:
        """The partition that this transport is subject to."""
        return self._partition


class _Chunks(Chunks):
    """The bytes of a watch, as they arrive."""

    def __init__(self, stream: Stream | None, transport: SimulatedTransport, path: str, silence: float) -> None:
        self._frames = frames(stream) if stream is not None else None
        self._transport = transport
        self._path = path
        self._silence = silence
        self._marked = stream is not None and stream.bookmarks and silence > BOOKMARK
        self._stalled = False
        self._again: bytes = b""

    async def readany(self) -> bytes:
        if self._frames is None:
            return b""
        if self._again:
            again, self._again = self._again, b""
            return again
        if self._stalled:
            return await self._stall()
        if self._marked:  # never silent for so long by itself
            chunk = await anext(self._frames, b"")
        else:
            try:
                async with asyncio.timeout(self._silence):
                    chunk = await anext(self._frames, b"")
            except TimeoutError as error:
                raise Unreachable(f"GET {self._path}: silent for {self._silence:g} s") from error
        return await self._disturbed(chunk) if chunk else b""

    async def _disturbed(self, chunk: bytes) -> bytes:
        plan = self._transport.plan
        if self._transport.partition.cuts(self._path):
            return await self._stall()
        fault = plan.for_event()
        if fault is None:
            return chunk
        if fault is Fault.CUT:
            return b""
        if fault is Fault.STALL:
            return await self._stall()
        if fault is Fault.GONE_LATER:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            return msgspec.json.encode({"type": "ERROR", "object": status}) + b"\n"
        if fault is Fault.DUPLICATE:
            self._again = chunk
        elif fault is Fault.DELAY:
            await asyncio.sleep(plan.seconds(1.0, 20.0))
        return chunk

    async def _stall(self) -> bytes:
        """What comes now never arrives; after the silence the client gives the connection up."""
        self._stalled = True
        await asyncio.sleep(self._silence)
        raise Unreachable(f"GET {self._path}: silent for {self._silence:g} s")


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():  # who waited may have been cancelled
        arrived.set_result(None)


def _asked(
    method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
) -> messages.Request:
    lowered = {name.lower(): value for name, value in headers.items()}
    return messages.Request(method, path, query or {}, lowered, body or b"")


def _answer(error: StatusError) -> Reply:
    return Reply(error.code, error.headers, msgspec.json.encode(error.status()))

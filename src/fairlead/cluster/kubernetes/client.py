"""The client of an API server: authentication, Retry-After, typed errors, on any transport."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Self

import msgspec

from fairlead.cluster.kubernetes.attach import PROTOCOLS, Attached
from fairlead.cluster.kubernetes.auth import Auth
from fairlead.cluster.kubernetes.config import Config, ConfigError
from fairlead.cluster.kubernetes.http import HttpTransport
from fairlead.cluster.transport import Chunks, Reply, Transport, Unreachable

__all__ = ["REFUSAL_GRACE", "ApiError", "Client", "ReadOnly", "Unreachable", "api_error", "encode", "refuses", "retry_after"]

REFUSAL_GRACE = 60.0
"""Seconds for which 401 and 403 count as unavailability: an API server that starts refuses until it has loaded the roles."""
_LONGEST_PAUSE = 30.0
_UNANSWERED = 10.0  # seconds without an answer after which it is logged
_LATEST = 30.0  # seconds since the latest failure after which nothing is known any more: retries come more often
_TRIES = 6
_JSON = "application/json"
_AGENT = f"fairlead/{sys.version_info.major}.{sys.version_info.minor}"


class ApiError(Exception):
    """The API server refused a request. code: HTTP status; reason and message from its Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class ReadOnly(RuntimeError):
    """A client that must not write was asked to."""


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Reach:
    """Whether requests are answered. A 429 or a 5xx counts as no answer: the server does not do what it is asked."""

    def __init__(self) -> None:
        self._since: float | None = None  # when the first of the latest failures was
        self._latest = 0.0
        self._error = ""

    def answered(self) -> None:
        self._since = None

    def failed(self, error: str) -> None:
        now = asyncio.get_running_loop().time()
        if self._since is None or now - self._latest > _LATEST:
            self._since = now
        self._latest, self._error = now, error[:300]

    def trouble(self) -> str:
        now = asyncio.get_running_loop().time()
        if self._since is None or now - self._since < _UNANSWERED or now - self._latest > _LATEST:
            return ""
        return f"the API server has answered no request for {now - self._since:.0f} s: {self._error}"


class Client:
    """Use as an async context manager. Methods raise `ApiError` or `Unreachable`.

    transport: what carries the requests; HTTP to the config's server if none is given.
    clock: seconds since the epoch, for the times in what is written.
    read_only: refuse every write before it is sent.
    writes: requests sent that change something, for the accounts of API writes per pod.
    """

    def __init__(
        self,
        config: Config,
        *,
        connections: int = 288,
        timeout: float = 8.0,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
        read_only: bool = False,
    ) -> None:
        self.config = config
        self.auth = Auth(config)
        self.clock = clock
        self.read_only = read_only
        self.writes = 0
        self.server_time: float | None = None  # by the last reply; simulated clusters have a time of their own
        self._connections = connections
        self._timeout = timeout
        self._given = transport
        self._lent = False  # the transport is another client's, who closes it
        self._open_to_writes: asyncio.Event | None = None  # absent: they go out
        self._transport: Transport | None = None
        self._pause_until = 0.0
        self._reach = _Reach()
        self._others: list[Client] = []  # of the same server

    async def __aenter__(self) -> Self:
        await self.auth.refresh()
        self._transport = self._given or HttpTransport(self.auth, connections=self._connections, timeout=self._timeout)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._transport is not None:
            if not self._lent:
                await self._transport.close()
            self._transport = None

    def apart(self, *, timeout: float) -> Client:
        """A client of the same server and account with connections and pauses of its own: it waits behind no other request.

        timeout: seconds for one request. Open it as a context within this one's.
        """
        made = Client(
            self.config, connections=2, timeout=timeout, transport=self._given, clock=self.clock, read_only=self.read_only
        )
        made.auth = self.auth
        made._lent = self._given is not None
        self._others.append(made)
        return made

    def trouble(self) -> str:
        """What is wrong where the server has answered nothing for a while, this client or one apart from it; else empty."""
        return next(filter(None, (each._reach.trouble() for each in (self, *self._others))), "")  # noqa: SLF001 - clients, too

    def hold_writes(self) -> None:
        """Let writes wait, those that queue now included, until `release_writes`."""
        if self._open_to_writes is None:
            self._open_to_writes = asyncio.Event()

    def release_writes(self) -> None:
        """Let them go out again."""
        if self._open_to_writes is not None:
            self._open_to_writes.set()
            self._open_to_writes = None

    async def get(self, path: str, **query: str) -> bytes:
        """GET; the body."""
        return await self._request("GET", path, query=query)

    async def get_as(self, path: str, accept: str) -> bytes:
        """GET in another form than JSON: its media type."""
        return await self._request("GET", path, more={"Accept": accept})

    async def get_packed(self, path: str, **query: str) -> bytes:
        """GET of something large, compressed on its way; the body as it is without that."""
        return await self._request("GET", path, query=query, more={"Accept-Encoding": "gzip"})

    async def post(self, path: str, body: bytes, *, patient: bool = True, dry_run: bool = False, strict: bool = False) -> bytes:
        """POST, tried once unless the server refused it unread (429); not patient: then neither. dry_run: nothing is made.

        strict: fields that the server does not know are refused; else it leaves them out.
        """
        query = {**({"dryRun": "All"} if dry_run else {}), **({"fieldValidation": "Strict"} if strict else {})}
        return await self._request("POST", path, body, query=query or None, patient=patient)

    async def ask(self, path: str, body: bytes) -> bytes:
        """POST of a question, which makes nothing: clients that only read may. A 429 is raised."""
        return await self._request("POST", path, body, patient=False, asks=True)

    async def put(self, path: str, body: bytes, *, patient: bool = True, kind: str = _JSON) -> bytes:
        """PUT; not patient: a 429 is raised. kind: media type of the body; the answer is JSON."""
        return await self._request("PUT", path, body, kind, patient=patient)

    async def patch(
        self, path: str, body: bytes, kind: str = "application/strategic-merge-patch+json", *, dry_run: bool = False
    ) -> bytes:
        """PATCH with the given patch type. dry_run: nothing is changed."""
        return await self._request("PATCH", path, body, kind, {"dryRun": "All"} if dry_run else None)

    async def apply(self, path: str, body: bytes, manager: str) -> bytes:
        """Server-side apply, as field manager `manager`; other managers lose these fields."""
        query = {"fieldManager": manager, "force": "true"}
        return await self._request("PATCH", path, body, "application/apply-patch+yaml", query)

    async def delete(self, path: str, body: bytes = b"") -> bytes:
        """DELETE."""
        return await self._request("DELETE", path, body or None)

    async def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = _JSON,
        query: dict[str, str] | None = None,
        *,
        patient: bool = True,
        asks: bool = False,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> bytes:
        """One request. A 429 means that nothing was done: it is sent again after its Retry-After.

        asks: it changes nothing. more: headers in the place of the usual ones.
        """
        writes = method != "GET" and not asks
        if self.read_only and writes:
            raise ReadOnly(f"{method} {path}: this client only reads")
        loop = asyncio.get_running_loop()
        rejected = False
        for attempt in range(_TRIES):
            pause = self._pause_until - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            while writes and self._open_to_writes is not None:
                await self._open_to_writes.wait()
            headers = {**await self._headers(), **more}
            if body is not None:
                headers["Content-Type"] = content_type
            if writes:
                self.writes += 1
            try:
                reply = await self.transport.request(method, path, query=query, headers=headers, body=body)
            except Unreachable as error:
                self._reach.failed(str(error))
                raise
            self._note(f"{method} {path}", reply, patient=patient)
            if reply.status < 300:
                return reply.body
            if reply.status == 429 and patient and attempt < _TRIES - 1:
                self._pause_until = loop.time() + retry_after(reply.headers.get("Retry-After"))
                continue
            if reply.status == 401 and not rejected:
                rejected = True
                self.auth.reject()
                continue
            raise api_error(reply.status, reply.body)
        raise Unreachable(f"{method} {path}: refused with 429 {_TRIES} times")

    def _note(self, what: str, reply: Reply, *, patient: bool) -> None:
        """Whether the server is reached, and what time it is there."""
        if reply.status < 500 and (reply.status != 429 or not patient):
            self._reach.answered()
        else:
            self._reach.failed(f"{what}: {reply.status}")
        if "X-Fairlead-Time" in reply.headers:
            self.server_time = _number(reply.headers["X-Fairlead-Time"])

    async def _headers(self, accept: str = _JSON) -> dict[str, str]:
        if not self.auth.fresh:
            try:
                await self.auth.refresh()
            except ConfigError as error:  # it was right when we began: a token that is being rotated, a plugin that is slow
                self._reach.failed(str(error))
                raise Unreachable(str(error)) from error
        headers = {"User-Agent": _AGENT, "Accept": accept}
        if self.auth.token:
            headers["Authorization"] = f"Bearer {self.auth.token}"
        return headers

    @asynccontextmanager
    async def stream(self, path: str, query: dict[str, str], silence: float, accept: str = _JSON) -> AsyncIterator[Chunks]:
        """A reply that keeps coming. silence: seconds without a byte after which it counts as dead."""
        headers = await self._headers(accept)
        async with self.transport.stream(path, query=query, headers=headers, silence=silence) as opened:
            if opened.status != 200:
                if opened.status == 401:
                    self.auth.reject()
                raise api_error(opened.status, opened.body)
            self._reach.answered()
            yield opened.chunks

    @asynccontextmanager
    async def attached(self, path: str, query: Sequence[tuple[str, str]]) -> AsyncIterator[Attached]:
        """A session at a pod's `attach` or `exec`. Raises `ApiError` where it is refused, `Unreachable`."""
        transport = self.transport
        if not isinstance(transport, HttpTransport):
            raise Unreachable(f"{path}: nothing can be attached to within the process")
        async with transport.socket(path, query=query, headers=await self._headers(), protocols=PROTOCOLS) as opened:
            if isinstance(opened, Reply):
                raise api_error(opened.status, opened.body)
            yield Attached(opened)

    @property
    def transport(self) -> Transport:
        """The open transport."""
        if self._transport is None:
            raise RuntimeError("the client is used outside its context")
        return self._transport


def refuses(error: Exception) -> bool:
    """Whether an error is a refusal: we are not known (401), or may not (403)."""
    return isinstance(error, ApiError) and error.code in (401, 403)


def retry_after(header: str | None) -> float:
    """Seconds to wait, bounded; one second where the server names no time."""
    seconds = _number(header or "1")
    return min(max(1.0 if seconds is None else seconds, 0.05), _LONGEST_PAUSE)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def api_error(code: int, content: bytes) -> ApiError:
    """The error that a reply means."""
    try:
        status = msgspec.json.decode(content, type=_Status)
    except msgspec.DecodeError:
        status = _Status("", content[:500].decode(errors="replace"))
    return ApiError(code, status.reason, status.message)


def encode(value: Any) -> bytes:
    """JSON."""
    return msgspec.json.encode(value)


async def create(client: Client, path: str, body: object) -> bool:
    """Create something; whether it was not there yet. Raises `ApiError`, `Unreachable`."""
    try:
        await client.post(path, encode(body))
    except ApiError as error:
        if error.code == 409 and error.reason == "AlreadyExists":
            return False
        raise
    return True


async def delete(client: Client, path: str) -> bool:
    """Delete something; whether it was there. Raises `ApiError`, `Unreachable`."""
    try:
        await client.delete(path)
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return True

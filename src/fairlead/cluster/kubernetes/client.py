"""The HTTP client: one connection pool, authentication, Retry-After, bounded reads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from fairlead.cluster.kubernetes.auth import Auth
from fairlead.cluster.kubernetes.config import Config

_LARGEST_REPLY = 256 << 20
_LONGEST_PAUSE = 30.0
_TRIES = 6
_JSON = "application/json"


class ApiError(Exception):
    """The API server said no. code: HTTP status; reason and message from its Status object."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class Unreachable(Exception):
    """No answer came. A write may or may not have happened: read before retrying."""


class _Status(msgspec.Struct):
    reason: str = ""
    message: str = ""


class Client:
    """Use as an async context manager. Methods raise `ApiError` or `Unreachable`.

    writes: requests sent that change something, for the accounts of API writes per pod.
    """

    def __init__(self, config: Config, *, connections: int = 288, timeout: float = 8.0) -> None:
        self.config = config
        self.auth = Auth(config)
        self.writes = 0
        self._connections = connections
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None
        self._pause_until = 0.0

    async def __aenter__(self) -> Self:
        await self.auth.refresh()
        connector = aiohttp.TCPConnector(
            limit=self._connections, ssl=self.config.ssl_context(self.auth.certificate) or False, keepalive_timeout=60
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={
                "User-Agent": f"fairlead/{sys.version_info.major}.{sys.version_info.minor}",
                "Accept": _JSON,
                "Accept-Encoding": "identity",
            },
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, path: str, **query: str) -> bytes:
        """GET; the body."""
        return await self._request("GET", path, query=query)

    async def post(self, path: str, body: bytes, *, patient: bool = True) -> bytes:
        """POST, tried once unless the server says it did nothing (429); not patient: then neither."""
        return await self._request("POST", path, body, patient=patient)

    async def put(self, path: str, body: bytes) -> bytes:
        """PUT."""
        return await self._request("PUT", path, body)

    async def patch(self, path: str, body: bytes, kind: str = "application/strategic-merge-patch+json") -> bytes:
        """PATCH with the given patch type."""
        return await self._request("PATCH", path, body, kind)

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
        patient: bool = True,
    ) -> bytes:
        """One request. A 429 means that nothing was done: it is sent again after its Retry-After."""
        loop = asyncio.get_running_loop()
        rejected = False
        for attempt in range(_TRIES):
            pause = self._pause_until - loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            if not self.auth.fresh:
                await self.auth.refresh()
            headers = {}
            if body is not None:
                headers["Content-Type"] = content_type
            if self.auth.token:
                headers["Authorization"] = f"Bearer {self.auth.token}"
            if method != "GET":
                self.writes += 1
            try:
                async with self.session.request(
                    method, self.config.server + path, data=body, params=query or None, headers=headers, timeout=self._timeout
                ) as reply:
                    content = await _bounded(reply)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise Unreachable(f"{method} {path}: {error!r}") from error
            if reply.status < 300:
                return content
            if reply.status == 429 and patient and attempt < _TRIES - 1:
                self._pause_until = loop.time() + retry_after(reply.headers.get("Retry-After"))
                continue
            if reply.status == 401 and not rejected:
                rejected = True
                self.auth.reject()
                continue
            raise api_error(reply.status, content)
        raise Unreachable(f"{method} {path}: told to wait {_TRIES} times")

    @asynccontextmanager
    async def stream(
        self, path: str, query: dict[str, str], silence: float, accept: str = _JSON
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """A reply that keeps coming. silence: seconds without a byte after which it counts as dead."""
        if not self.auth.fresh:
            await self.auth.refresh()
        headers = {"Accept": accept}
        if self.auth.token:
            headers["Authorization"] = f"Bearer {self.auth.token}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        try:
            async with self.session.get(
                self.config.server + path, params=query, headers=headers, timeout=timeout, read_bufsize=1 << 20
            ) as reply:
                if reply.status != 200:
                    if reply.status == 401:
                        self.auth.reject()
                    raise api_error(reply.status, await _bounded(reply))
                yield reply.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {error!r}") from error

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session."""
        if self._session is None:
            raise RuntimeError("the client is used outside its context")
        return self._session


def retry_after(header: str | None) -> float:
    """Seconds to wait, bounded; one second where the server does not say."""
    try:
        seconds = float(header or 1)
    except ValueError:
        seconds = 1.0
    return min(max(seconds, 0.05), _LONGEST_PAUSE)


def api_error(code: int, content: bytes) -> ApiError:
    """The error that a reply means."""
    try:
        status = msgspec.json.decode(content, type=_Status)
    except msgspec.DecodeError:
        status = _Status("", content[:500].decode(errors="replace"))
    return ApiError(code, status.reason, status.message)


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    if (reply.content_length or 0) > _LARGEST_REPLY:
        raise ApiError(reply.status, "TooLarge", f"a reply of {reply.content_length} bytes is not read")
    return await reply.content.read(-1) if reply.content_length is not None else await _read_up_to(reply)


async def _read_up_to(reply: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in reply.content.iter_any():
        size += len(part)
        if size > _LARGEST_REPLY:
            raise ApiError(reply.status, "TooLarge", f"a reply of more than {_LARGEST_REPLY} bytes is not read")
        parts.append(part)
    return b"".join(parts)


def encode(value: Any) -> bytes:
    """JSON."""
    return msgspec.json.encode(value)

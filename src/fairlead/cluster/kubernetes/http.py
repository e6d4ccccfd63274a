"""The transport to a real API server: a pool of our own for requests, aiohttp for long answers and WebSockets; bounded reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp

from fairlead.cluster.kubernetes.auth import Auth
from fairlead.cluster.kubernetes.connections import LARGEST_REPLY, Pool, TooLargeReply
from fairlead.cluster.transport import Opened, Reply, Unreachable

_LARGEST_MESSAGE = 16 << 20
_ELSEWHERE = (301, 302, 303, 307, 308)
_GOODBYE = 2.0  # seconds in which connections close
_LISTS = 4  # times as long as any other answer may a page of a list take
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError, RuntimeError)  # uvloop's, for a connection that closed meanwhile


class _Reader:
    def __init__(self, content: aiohttp.StreamReader, path: str) -> None:
        self._content = content
        self._path = path

    async def readany(self) -> bytes:
        try:
            return await self._content.readany()
        except _FAILURES as error:
            raise Unreachable(f"GET {self._path}: {error!r}") from error


class _Nothing:
    async def readany(self) -> bytes:
        return b""


class HttpTransport:
    """Requests to one server. timeout: seconds for one request; a page of a list may take longer."""

    def __init__(self, auth: Auth, *, connections: int, timeout: float) -> None:
        config = auth.config
        self._server = config.server
        self._timeout = timeout
        self._slots = asyncio.Semaphore(connections)
        tls = config.ssl_context(auth.certificate)
        self._pool = Pool(config.server, tls, self._slots)
        connector = aiohttp.TCPConnector(limit=connections, ssl=tls or False, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(connector=connector, headers={"Accept-Encoding": "identity"})

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """One request. Raises `Unreachable`."""
        timeout = self._timeout * _LISTS if query and "limit" in query else self._timeout
        try:
            async with asyncio.timeout(timeout):
                reply = await self._pool.request(method, path, query, headers, body)
                if reply.status in _ELSEWHERE and "Location" in reply.headers:
                    return await self._follow(method, path, query, headers, body)
                return reply
        except _FAILURES as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error

    async def _follow(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """A request that is redirected: nothing was done, and it may be sent again."""
        async with (
            self._slots,
            self._session.request(method, self._server + path, data=body, params=query or None, headers=headers) as reply,
        ):
            return Reply(reply.status, reply.headers, await _bounded(reply))

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], silence: float
    ) -> AsyncIterator[Opened]:
        """One long answer. silence: seconds without a byte after which it counts as dead. Raises `Unreachable`."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=silence)
        try:
            async with (
                self._slots,
                self._session.get(
                    self._server + path, params=query, headers=headers, timeout=timeout, read_bufsize=1 << 20
                ) as reply,
            ):
                if reply.status != 200:
                    yield Opened(reply.status, await _bounded(reply), _Nothing())
                else:
                    yield Opened(200, b"", _Reader(reply.content, path))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {error!r}") from error

    @asynccontextmanager
    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], headers: Mapping[str, str], protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse | Reply]:
        """A WebSocket that lasts until either side closes it, or why there is none. Raises `Unreachable`."""
        try:
            async with (
                self._slots,
                self._session.ws_connect(
                    self._server + path,
                    params=list(query),
                    headers=headers,
                    protocols=protocols,
                    max_msg_size=_LARGEST_MESSAGE,
                    heartbeat=30,
                ) as opened,
            ):
                yield opened
        except aiohttp.WSServerHandshakeError as error:
            yield Reply(error.status, error.headers or {}, b"")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {error!r}") from error

    async def close(self) -> None:
        """Let go of connections. It does not wait for one whose end the loop does not report, as happens with TLS."""
        await self._pool.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE):
                await self._session.close()


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    if (reply.content_length or 0) > LARGEST_REPLY:
        raise TooLargeReply(f"a reply of {reply.content_length} bytes is not read")
    if reply.content_length is not None and "Content-Encoding" not in reply.headers:
        return await reply.content.read(-1)
    parts: list[bytes] = []
    size = 0
    async for part in reply.content.iter_any():
        size += len(part)
        if size > LARGEST_REPLY:
            raise TooLargeReply(f"a reply of more than {LARGEST_REPLY} bytes is not read")
        parts.append(part)
    return b"".join(parts)

"""What aiohttp does for us at an API server: long answers, WebSockets, and requests that are redirected.

aiohttp takes a tenth of a second to import, so it is imported only by what needs it: most commands ask short questions.
"""

from __future__ import annotations

import ssl
from asyncio import Semaphore
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp

from fairlead.cluster.kubernetes.connections import LARGEST_REPLY, TooLargeReply
from fairlead.cluster.transport import Opened, Reply, Unreachable

_LARGEST_MESSAGE = 16 << 20
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


class Socket:
    """An open WebSocket. protocol: the subprotocol on which both sides agreed, empty if on none."""

    def __init__(self, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._opened = opened
        self.protocol = opened.protocol or ""

    async def messages(self) -> AsyncIterator[bytes]:
        """Its binary messages that are not empty, until either side closes it."""
        async for message in self._opened:
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                yield message.data

    async def send(self, data: bytes) -> None:
        """One binary message. Once the socket is closed it goes nowhere."""
        with suppress(ConnectionError, aiohttp.ClientError):
            await self._opened.send_bytes(data)


class Session:
    """Requests to `server` by aiohttp. slots: taken while one is open."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, slots: Semaphore, connections: int) -> None:
        self._server = server
        self._slots = slots
        connector = aiohttp.TCPConnector(limit=connections, ssl=tls or False, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(connector=connector, headers={"Accept-Encoding": "identity"})

    async def request(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """One request, redirections followed. Raises `Unreachable`."""
        try:
            async with (
                self._slots,
                self._session.request(method, self._server + path, data=body, params=query or None, headers=headers) as reply,
            ):
                return Reply(reply.status, reply.headers, await _bounded(reply))
        except _FAILURES as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], silence: float
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
        self, path: str, query: Sequence[tuple[str, str]], headers: Mapping[str, str], protocols: Sequence[str]
    ) -> AsyncIterator[Socket | Reply]:
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
                yield Socket(opened)
        except aiohttp.WSServerHandshakeError as error:
            yield Reply(error.status, error.headers or {}, b"")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {error!r}") from error

    async def close(self) -> None:
        """Let go of its connections."""
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

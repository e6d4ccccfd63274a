"""The transport to a real API server: a pool of our own for requests, sessions of aiohttp for what lasts long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from fairlead.cluster.kubernetes.auth import Auth
from fairlead.cluster.kubernetes.connections import Pool
from fairlead.cluster.transport import Opened, Reply, Unreachable

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.sessions import Session, Socket

_ELSEWHERE = (301, 302, 303, 307, 308)
_GOODBYE = 2.0  # seconds in which connections close
_LISTS = 4  # times as long as any other answer may a page of a list take
_FAILURES = (TimeoutError, OSError, RuntimeError)  # uvloop's, for a connection that closed meanwhile


class HttpTransport:
    """Requests to one server. timeout: seconds for one request; a page of a list may take longer."""

    def __init__(self, auth: Auth, *, connections: int, timeout: float) -> None:
        config = auth.config
        self._server = config.server
        self._timeout = timeout
        self._connections = connections
        self._slots = asyncio.Semaphore(connections)
        self._tls = config.ssl_context(auth.certificate)
        self._pool = Pool(config.server, self._tls, self._slots)
        self._opened: Session | None = None

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """One request. Raises `Unreachable`."""
        timeout = self._timeout * _LISTS if query and "limit" in query else self._timeout
        try:
            async with asyncio.timeout(timeout):
                reply = await self._pool.request(method, path, query, headers, body)
                if reply.status in _ELSEWHERE and "Location" in reply.headers:  # nothing was done: it may be sent again
                    return await self._session.request(method, path, query, headers, body)
                return reply
        except _FAILURES as error:
            raise Unreachable(f"{method} {path}: {error!r}") from error

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], headers: Mapping[str, str], silence: float
    ) -> AsyncIterator[Opened]:
        """One long answer. silence: seconds without a byte after which it counts as dead. Raises `Unreachable`."""
        async with self._session.stream(path, query, headers, silence) as opened:
            yield opened

    @asynccontextmanager
    async def socket(
        self, path: str, *, query: Sequence[tuple[str, str]], headers: Mapping[str, str], protocols: Sequence[str]
    ) -> AsyncIterator[Socket | Reply]:
        """A WebSocket that lasts until either side closes it, or why there is none. Raises `Unreachable`."""
        async with self._session.socket(path, query, headers, protocols) as opened:
            yield opened

    async def close(self) -> None:
        """Let go of connections. It does not wait for one whose end the loop does not report, as happens with TLS."""
        await self._pool.close()
        if self._opened is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE):
                    await self._opened.close()

    @property
    def _session(self) -> Session:
        if self._opened is None:
            from fairlead.cluster.kubernetes.sessions import Session  # noqa: PLC0415  # see there

            self._opened = Session(self._server, self._tls, self._slots, self._connections)
        return self._opened

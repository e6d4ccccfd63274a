"""Requests over keep-alive connections to one server, in HTTP/1.1: what a request costs is a head, a write, and a parsed answer.

No proxies, cookies or redirects. A request that waits for its answer has a connection of its own; one that is cancelled, or whose
answer is in any way odd, takes its connection with it.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import aiohappyeyeballs
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from yarl import URL

from fairlead.cluster.transport import Reply, Unreachable

LARGEST_REPLY = 256 << 20
_LARGEST_HEAD = 256 << 10
_KEPT = 60.0  # seconds for which an idle connection is kept: less than the API server's 90, so that it is not the one who closes
_RESOLVED = 10.0  # seconds for which addresses of a name are used
_NEXT_ADDRESS = 0.25  # seconds after which the next address is tried as well
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
_PLAIN = re.compile(r"/[A-Za-z0-9._~:@!$&'()*+,;=/-]*").fullmatch

Resolved = list[tuple[Any, ...]]


class TooLargeReply(Unreachable):
    """More bytes than are ever read."""


class NoAnswer(ConnectionError):
    """The connection ended before the head of an answer was whole."""


class BadAnswer(ConnectionError):
    """An answer that is not whole, or not HTTP."""


class Fields(Mapping[str, str]):
    """Header fields by their names, in any case."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[bytes, bytes]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower().encode()].decode(errors="surrogateescape")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower().encode() in self._fields

    def __iter__(self) -> Iterator[str]:
        return (name.decode(errors="surrogateescape") for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time, in `connections` while it lasts.

    since: when it became idle; open: whether it may carry another request; lost: done once it is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connections: set[_Connection]) -> None:
        self.lost: asyncio.Future[None] = loop.create_future()
        self.open = True
        self.since = 0.0
        self._loop = loop
        self._connections = connections
        self._parser = HttpResponseParser(self)
        # As lenient as aiohttp's parser, for proxies before the API server.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._transport: asyncio.Transport
        self._answer: asyncio.Future[Reply] | None = None
        self._clear()

    def _clear(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._size = 0
        self._status = 0  # of an answer whose head is whole
        self._until_end = False  # whether the end of the connection is the end of the body

    async def ask(self, request: bytes) -> Reply:
        """Send a request, and wait for its answer. Raises `NoAnswer`, `BadAnswer`, `TooLargeReply`."""
        self._clear()
        if self._transport.is_closing():
            raise NoAnswer("the connection is closed")
        self._answer = self._loop.create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """Close it, now."""
        self.open = False
        self._transport.abort()

    # -- asyncio's calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.abort()  # it was not asked for
            return
        if not self._status:
            self._size += len(data)
            if self._size > _LARGEST_HEAD + len(data):
                self._fail(BadAnswer(f"a head of more than {_LARGEST_HEAD} bytes"))
                return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(BadAnswer(f"the answer is not HTTP/1.1: {error!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._connections.discard(self)
        self.lost.set_result(None)
        if self._answer is None:
            return
        why = f": {exc!r}" if exc is not None else ""
        if not self._status:
            self._fail(NoAnswer(f"the connection ended before an answer{why}"))
        elif self._until_end and exc is None:
            self._whole()
        else:
            self._fail(BadAnswer(f"the connection ended within an answer{why}"))

    # -- the parser's calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answer is None:
            self.open = False  # one answer too many

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        before = self._fields.get(name)
        self._fields[name] = value if before is None else before + b", " + value

    def on_headers_complete(self) -> None:
        if self._answer is None:
            return
        status = self._parser.get_status_code()
        if status < 200:  # interim: the answer is still to come
            self._fields = {}
            return
        self._status, self._size = status, 0
        coding, length = self._fields.get(b"transfer-encoding"), self._fields.get(b"content-length")
        if coding is not None:
            self._until_end = not coding.lower().endswith(b"chunked")
        elif length is None:
            self._until_end = status not in (204, 304)
        elif int(length) > LARGEST_REPLY:
            self._fail(TooLargeReply(f"a reply of {int(length)} bytes is not read"))

    def on_body(self, body: bytes) -> None:
        if self._answer is None:
            return
        self._size += len(body)
        if self._size > LARGEST_REPLY:
            self._fail(TooLargeReply(f"a reply of more than {LARGEST_REPLY} bytes is not read"))
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._answer is None or not self._status:
            return
        # A server that answers before it has read everything may take the rest for another request.
        if not self._parser.should_keep_alive() or self._transport.get_write_buffer_size():
            self.open = False
        self._whole()

    def _whole(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(Reply(self._status, Fields(self._fields), b"".join(self._parts)))

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        self.abort()
        if answer is not None and not answer.done():
            answer.set_exception(error)


class Pool:
    """Connections to one server. slots: how many may be in use at a time, those of others who share them included."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, slots: asyncio.Semaphore) -> None:
        url = URL(server)
        self._server = server
        self._prefix = url.raw_path.rstrip("/")
        self._tls = tls
        self._slots = slots
        self._host, self._port = url.raw_host or "", url.port or 0
        self._named = url.host_port_subcomponent
        self._open: set[_Connection] = set()
        self._idle: deque[_Connection] = deque()  # the one that was used last is the last
        self._sweep: asyncio.TimerHandle | None = None
        self._resolving = asyncio.Lock()
        self._resolved: Resolved = []
        self._resolved_until = 0.0
        self._turn = 0
        self._closed = asyncio.Event()

    async def request(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        """One request, its answer unpacked. Raises `OSError`, `TooLargeReply`.

        What may be repeated is sent once more where a connection ended without an answer.
        """
        request = self._head(method, self._target(path, query), headers, body)
        if body:
            request += body
        async with self._slots:
            try:
                reply = await self._exchange(request)
            except NoAnswer:
                if method not in _REPEATABLE:
                    raise
                reply = await self._exchange(request)
        if "content-encoding" in reply.headers:
            return reply._replace(body=_unpacked(reply.headers["content-encoding"], reply.body))
        return reply

    async def close(self) -> None:
        """Close all connections, those in use included; none is opened any more."""
        self._closed.set()
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._open):
            connection.abort()
        await asyncio.gather(*(connection.lost for connection in self._open))

    # -- what is sent --------------------------------------------------------------------------

    def _target(self, path: str, query: Mapping[str, str] | None) -> str:
        if not query and _PLAIN(path) and "/." not in path and "//" not in path:
            return self._prefix + path
        url = URL(self._server + path)
        return (url.extend_query(query) if query else url).raw_path_qs

    def _head(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._named}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if "Accept-Encoding" not in headers:
            lines.append("Accept-Encoding: identity")
        if body or method in _WITH_LENGTH:
            lines.append(f"Content-Length: {len(body or b'')}")
        text = "\r\n".join(lines)
        if text.count("\n") + text.count("\r") + text.count("\0") != 2 * len(lines) - 2:
            raise ValueError("a header field has more than one line")
        return text.encode() + b"\r\n\r\n"

    # -- connections ---------------------------------------------------------------------------

    async def _exchange(self, request: bytes) -> Reply:
        connection = self._take() or await self._connect()
        reply = await connection.ask(request)
        if connection.open:
            self._keep(connection)
        else:
            connection.abort()
        return reply

    def _take(self) -> _Connection | None:
        oldest = asyncio.get_running_loop().time() - _KEPT
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.since > oldest:
                return connection
            connection.abort()
        return None

    def _keep(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(_KEPT, self._close_old)

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        oldest = loop.time() - _KEPT
        while self._idle and (not self._idle[0].open or self._idle[0].since <= oldest):
            self._idle.popleft().abort()
        self._sweep = loop.call_at(self._idle[0].since + _KEPT, self._close_old) if self._idle else None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if self._closed.is_set():
            raise NoAnswer("the client is closed")
        connection = _Connection(loop, self._open)
        addresses = await self._addresses(loop)
        reached = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=_NEXT_ADDRESS, interleave=1, loop=loop)
        await loop.create_connection(
            lambda: connection, sock=reached, ssl=self._tls, server_hostname=self._host.rstrip(".") if self._tls else None
        )
        if self._closed.is_set():
            connection.abort()
        return connection

    async def _addresses(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The server's addresses, each time another one first."""
        async with self._resolving:
            if loop.time() >= self._resolved_until:
                self._resolved = list(await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))
                self._resolved_until = loop.time() + _RESOLVED
        first = self._turn = (self._turn + 1) % len(self._resolved)
        return self._resolved[first:] + self._resolved[:first]


def _unpacked(coding: str, body: bytes) -> bytes:
    """A body as it was before it was packed; what is packed in another way than was asked for stays so."""
    coding = coding.strip().lower()
    if not body or coding not in ("gzip", "x-gzip", "deflate"):
        return body
    several = coding != "deflate"
    bits = 16 if several else 0 if body[0] & 0xF == 8 else -2 * zlib.MAX_WBITS  # deflate: with a header, as is right, or without
    parts: list[bytes] = []
    size = 0
    try:
        while body:
            unpacking = zlib.decompressobj(bits + zlib.MAX_WBITS)
            parts.append(unpacking.decompress(body, LARGEST_REPLY - size + 1))
            size += len(parts[-1])
            if size > LARGEST_REPLY:
                raise TooLargeReply(f"a reply of more than {LARGEST_REPLY} bytes is not read")
            if not unpacking.eof:
                raise BadAnswer(f"a body in {coding} that is not whole")
            body = unpacking.unused_data if several else b""
    except zlib.error as error:
        raise BadAnswer(f"a body that is not in {coding}: {error}") from error
    return b"".join(parts)

"""Requests over our own connections, against servers that answer in every way, and against aiohttp on the same bytes."""

import asyncio
import contextlib
import gzip
import random
import ssl
import zlib

import aiohttp
import pytest
import trustme
import uvloop

from fairlead.cluster.kubernetes import connections, http
from fairlead.cluster.kubernetes.auth import Auth
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.http import HttpTransport
from fairlead.cluster.transport import Unreachable

CLOSE, NEVER = object(), object()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
HEADERS = {"User-Agent": "test", "Accept": "application/json"}


class Scripted:
    """Answers the requests of each connection with the next script: pieces of bytes; CLOSE ends it, NEVER goes silent."""

    def __init__(self, *scripts, tls=None):
        self.scripts = list(scripts)
        self.requests = []
        self.connections = 0
        self.tls = tls
        self.writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self.writers:
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _serve(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
                self.requests.append(head + await reader.readexactly(length))
                for piece in self.scripts.pop(0):
                    if piece is CLOSE:
                        writer.close()
                        return
                    if piece is NEVER:
                        await reader.read()
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def transport(server, *, seconds=5.0, limit=4, **config):
    scheme = "https" if server.tls else "http"
    opened = HttpTransport(
        Auth(Config(server=f"{scheme}://127.0.0.1:{server.port}", **config)), connections=limit, timeout=seconds
    )
    try:
        yield opened
    finally:
        await opened.close()


async def ask(opened, method="GET", path="/api", *, query=None, body=None, headers=HEADERS):
    return await opened.request(method, path, query=query, headers=headers, body=body)


async def answered(pieces, method="GET"):
    """What our transport makes of an answer: status and body, or None."""
    async with Scripted(pieces, pieces) as server, transport(server) as opened:
        try:
            reply = await ask(opened, method)
        except Unreachable:
            return None
        return reply.status, reply.body


async def by_aiohttp(pieces, method="GET"):
    """What aiohttp makes of it."""
    patience = aiohttp.ClientTimeout(total=1)  # on uvloop, it waits for ever after some
    async with Scripted(pieces, pieces) as server, aiohttp.ClientSession(timeout=patience) as session:
        try:
            async with session.request(method, f"http://127.0.0.1:{server.port}/api") as reply:
                return reply.status, await reply.read()
        except (aiohttp.ClientError, OSError):
            return None


# -- what is sent ------------------------------------------------------------------------------


async def test_what_is_sent():
    async with Scripted([OK], [OK], [OK]) as server, transport(server) as opened:
        await ask(opened, "POST", "/api/v1/pods", body=b"{}", headers={**HEADERS, "Content-Type": "application/json"})
        await ask(opened, "GET", "/api/v1/pods", query={"labelSelector": "a in (b,c)", "limit": "1"})
        await ask(opened, "POST", "/a%20b/ü x", headers={**HEADERS, "Accept-Encoding": "gzip"})
        host = f"Host: 127.0.0.1:{server.port}\r\nUser-Agent: test\r\nAccept: application/json\r\n".encode()
    assert server.requests == [
        b"POST /api/v1/pods HTTP/1.1\r\n" + host
        + b"Content-Type: application/json\r\nAccept-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /api/v1/pods?labelSelector=a+in+(b,c)&limit=1 HTTP/1.1\r\n" + host + b"Accept-Encoding: identity\r\n\r\n",
        b"POST /a%20b/%C3%BC%20x HTTP/1.1\r\n" + host + b"Accept-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
    ]  # fmt: skip
    assert server.connections == 1


@pytest.mark.parametrize(
    "path", ["/api/v1/pods", "/a.b/c:d/~e", "/a/./b", "/a/../b", "/..", "//a", "/a b", "/%41%zz", "/ä", "/a?b=c"]
)
@pytest.mark.parametrize("query", [None, {"fieldSelector": "spec.nodeName=", "x": "a&b+c d/ü%"}])
@pytest.mark.parametrize("base", ["", "/k8s/clusters/c-1"])
async def test_targets_are_those_of_aiohttp(path, query, base):
    async with Scripted([OK], [OK]) as server, transport(server) as opened, aiohttp.ClientSession() as session:
        opened._pool = pool = connections.Pool(f"http://127.0.0.1:{server.port}{base}", None, asyncio.Semaphore())
        await ask(opened, path=path, query=query)
        await pool.close()
        async with session.get(f"http://127.0.0.1:{server.port}{base}{path}", params=query) as reply:
            await reply.read()
    ours, theirs = (request.split(b"\r\n")[0] for request in server.requests)
    assert ours == theirs


async def test_a_field_has_one_line():
    async with Scripted() as server, transport(server) as opened:
        for value in ("a\r\nb: c", "a\nb", "a\0"):
            with pytest.raises(ValueError, match="more than one line"):
                await ask(opened, headers={"Authorization": value})


# -- what is answered --------------------------------------------------------------------------


def packed(coding, body):
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b" % (coding, len(body), body)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "length": OK,
    "empty": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
    "chunks": CHUNKED + b"2\r\nhi\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n",
    "extensions and trailers": CHUNKED + b"2;a=b\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n",
    "one hundred": b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + OK,
    "no reason": b"HTTP/1.1 201\r\nContent-Length: 2\r\n\r\nhi",
    "old": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    "an error": b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}",
    "gzip": packed(b"gzip", gzip.compress(b"packed" * 100)),
    "deflate": packed(b"Deflate", zlib.compress(b"packed" * 100)),
    "packed, nothing": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
    "line feeds alone": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_as_aiohttp_reads_them_whole_in_pieces_and_cut_off(name):
    answer = ANSWERS[name]
    whole = await by_aiohttp([answer, CLOSE])
    assert whole is not None
    assert await answered([answer, CLOSE]) == whole
    assert await answered([bytes([byte]) for byte in answer]) == whole
    for cut in range(0, len(answer), 1 if len(answer) < 90 else 7):
        pieces = [answer[:cut], CLOSE]
        assert await answered(pieces) == await by_aiohttp(pieces), answer[:cut]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        CHUNKED + b"zz\r\nhi\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nhi\r\n0\r\n\r\n",
        CHUNKED + b"ffffffffffffffffff\r\nhi",
        CHUNKED + b"-2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"",
    ],
)
async def test_odd_answers_as_aiohttp_reads_them(answer):
    assert await answered([answer, CLOSE]) == await by_aiohttp([answer, CLOSE])


async def test_random_answers_as_aiohttp_reads_them():
    draw = random.Random(30)
    for _ in range(250):
        parts = [draw.randbytes(draw.choice((0, 1, 15, 16, 300))) for _ in range(draw.randrange(5))]
        chunks = [part for part in parts if part]
        status, more = (
            draw.choice((200, 201, 409, 500)),
            draw.choice((b"", b"Connection: close\r\n", b"connection: Keep-Alive\r\n")),
        )
        start = b"HTTP/1.1 %d Some\r\n%b" % (status, more)
        if draw.random() < 0.6:
            size = draw.choice((b"%x", b"%X", b"0%x", b"%x;some=thing"))
            body = b"".join((size % len(part)) + b"\r\n" + part + b"\r\n" for part in chunks)
            answer = start + b"Transfer-Encoding: chunked\r\n\r\n" + body + b"0\r\n" + draw.choice((b"", b"A: b\r\n")) + b"\r\n"
        else:
            answer = start + b"Content-Length: %d\r\n\r\n%b" % (sum(map(len, parts)), b"".join(parts))
        if draw.random() < 0.4:  # one byte is another
            at = draw.randrange(len(answer))
            answer = answer[:at] + draw.choice((b"", b"\n", b"\r", b"\0", b"A", b"7", b" ", b":")) + answer[at + 1 :]
        cuts = sorted(draw.randrange(len(answer)) for _ in range(draw.randrange(4)))
        pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)] + [CLOSE]
        ours, theirs = await answered(pieces), await by_aiohttp(pieces)
        assert ours == theirs, answer


async def test_packed_bodies():
    bare = zlib.compressobj(wbits=-15)
    assert await answered([packed(b"deflate", bare.compress(b"bare") + bare.flush())]) == (200, b"bare")
    assert await answered([packed(b"gzip", gzip.compress(b"one ") + gzip.compress(b"two"))]) == (200, b"one two")
    assert await answered([packed(b"x-gzip", gzip.compress(b"one"))]) == (200, b"one")
    assert await answered([packed(b"other", b"as it is")]) == (200, b"as it is")
    assert await answered([packed(b"gzip", gzip.compress(b"cut off" * 99)[:-9])]) is None
    assert await answered([packed(b"gzip", b"not packed")]) is None
    assert await answered([packed(b"deflate", b"not packed")]) is None


@pytest.mark.parametrize("coding", [b"Content-Length: 101\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: gzip\r\n"])
async def test_no_more_is_read_than_fits(monkeypatch, coding):
    monkeypatch.setattr(connections, "LARGEST_REPLY", 100)
    body = gzip.compress(b"x" * 101) if b"gzip" in coding else b"65\r\n" + b"x" * 101 if b"chunked" in coding else b"x"
    async with Scripted([b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n" + body, CLOSE]) as server, transport(server) as opened:
        with pytest.raises(connections.TooLargeReply, match=r"a reply of .*10[01] bytes is not read"):
            await ask(opened)


async def test_a_head_without_an_end_is_not_read_for_ever():
    field = b"X: " + b"x" * 5000 + b"\r\n"
    async with Scripted([b"HTTP/1.1 200 OK\r\n", *[field] * 1000]) as server, transport(server) as opened:
        with pytest.raises(Unreachable, match="a head of more than"):
            await ask(opened, "POST")


async def test_fields_of_an_answer():
    answer = b"HTTP/1.1 429 Too Many\r\nretry-after: 7\r\nX-Twice: a\r\nX-Twice: b\r\nContent-Length: 0\r\n\r\n"
    async with Scripted([answer]) as server, transport(server) as opened:
        fields = (await ask(opened)).headers
    assert fields.get("Retry-After") == "7"
    assert fields["x-twice"] == "a, b"
    assert "X-TWICE" in fields
    assert fields.get("Location") is None
    assert sorted(fields) == ["content-length", "retry-after", "x-twice"]
    assert len(fields) == 3


# -- connections -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        OK + OK,
        OK + b"garbage",
    ],
)
async def test_a_connection_that_may_not_be_kept_is_not(answer):
    async with Scripted([answer], [OK]) as server, transport(server) as opened:
        assert (await ask(opened, "POST")).body == b"hi"
        assert (await ask(opened, "POST")).body == b"hi"
        assert server.connections == 2


async def test_an_idle_connection_that_receives_something_is_closed():
    async with Scripted([OK], [OK]) as server, transport(server) as opened:
        await ask(opened)
        server.writers[0].write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        connection = opened._pool._idle[0]
        await connection.lost
        assert (await ask(opened, "POST")).status == 200
        assert server.connections == 2


async def test_an_idle_connection_that_the_server_closed_is_replaced():
    async with Scripted([OK], [OK]) as server, transport(server) as opened:
        await ask(opened)
        server.writers[0].close()
        await opened._pool._idle[0].lost
        assert (await ask(opened, "POST")).status == 200


@pytest.mark.parametrize(("method", "again"), [("GET", True), ("PUT", True), ("DELETE", True), ("POST", False), ("PATCH", False)])
async def test_only_what_may_be_repeated_is_sent_again(method, again):
    """The connection ends just as the request is sent: whether it was read is not known."""
    for start in (b"", b"HTTP/1.1 200 OK\r\nConte"):
        async with Scripted([OK], [start, CLOSE], [OK]) as server, transport(server) as opened:
            await ask(opened)
            if again:
                assert (await ask(opened, method)).status == 200
            else:
                with pytest.raises(Unreachable, match="ended before an answer"):
                    await ask(opened, method)
            assert len(server.requests) == (3 if again else 2)


async def test_a_request_is_repeated_once_and_not_once_its_answer_has_begun():
    async with Scripted([CLOSE], [CLOSE]) as server, transport(server) as opened:
        with pytest.raises(Unreachable, match=r"GET /api: NoAnswer"):
            await ask(opened)
        assert len(server.requests) == 2
    async with Scripted([OK[:-1], CLOSE], [OK]) as server, transport(server) as opened:
        with pytest.raises(Unreachable, match=r"GET /api: BadAnswer"):
            await ask(opened)
        assert len(server.requests) == 1


@pytest.mark.parametrize("script", [[NEVER], [OK[:-1], NEVER], [CHUNKED, NEVER]])
async def test_time_limit_and_cancellation_close_the_connection(script):
    async with Scripted(script, [NEVER], [OK]) as server, transport(server, seconds=0.05, limit=1) as opened:
        with pytest.raises(Unreachable, match=r"POST /api: TimeoutError\(\)"):
            await ask(opened, "POST")
        assert not opened._pool._idle
        opened._timeout = 5.0
        task = asyncio.create_task(ask(opened, "POST", query={"limit": "1"}))
        while len(server.requests) < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ask(opened)).status == 200
        assert server.connections == 3


async def test_no_more_connections_than_allowed_long_answers_included():
    async with (
        Scripted([CHUNKED, NEVER], [OK], [OK], [OK]) as server,
        transport(server, limit=2) as opened,
        opened.stream("/watch", query={}, headers=HEADERS, silence=5),
    ):
        await asyncio.gather(*(ask(opened) for _ in range(3)))
        assert server.connections == 2
    async with (
        Scripted([CHUNKED, NEVER]) as server,
        transport(server, limit=1) as opened,
        opened.stream("/watch", query={}, headers=HEADERS, silence=5),
    ):
        opened._timeout = 0.05
        with pytest.raises(Unreachable, match="TimeoutError"):
            await ask(opened)
        assert server.connections == 1


async def test_old_idle_connections_are_closed(monkeypatch):
    async with Scripted([OK], [OK], [OK]) as server, transport(server) as opened:
        await ask(opened)
        first = opened._pool._idle[0]
        first.since -= 61
        await ask(opened)
        await first.lost
        assert server.connections == 2
        second = opened._pool._idle[0]
        opened._pool._close_old()
        assert second.open
        second.since -= 61
        opened._pool._close_old()
        await second.lost
        assert not opened._pool._idle


async def test_closing_ends_requests():
    async with Scripted([NEVER]) as server, transport(server) as opened:
        task = asyncio.create_task(ask(opened, "POST"))
        while not server.requests:
            await asyncio.sleep(0)
        await opened.close()
        with pytest.raises(Unreachable, match="POST /api"):
            await task
        with pytest.raises(Unreachable, match="the client is closed"):
            await ask(opened)
    async with Scripted([NEVER]) as server, transport(server) as opened:
        task = asyncio.create_task(ask(opened, "POST"))
        await asyncio.sleep(0)
        await opened.close()  # while it connects
        with pytest.raises(Unreachable, match="POST /api"):
            await task
        await asyncio.gather(*(each.lost for each in opened._pool._open))


async def test_nobody_listens():
    async with Scripted() as server:
        pass
    async with transport(server) as opened:
        with pytest.raises(Unreachable, match="GET /api: ConnectionRefusedError"):
            await ask(opened)


async def test_redirects_are_followed():
    async with Scripted([OK]) as there:
        elsewhere = b"HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:%d/new\r\nContent-Length: 0\r\n\r\n" % there.port
        async with Scripted([elsewhere], [elsewhere]) as server, transport(server, limit=1) as opened:
            reply = await ask(opened, "POST", body=b"{}", headers={**HEADERS, "Authorization": "Bearer secret"})
            assert (reply.status, reply.body) == (200, b"hi")
    assert there.requests[0].startswith(b"POST /new HTTP/1.1\r\n")
    assert there.requests[0].endswith(b"\r\n\r\n{}")
    assert b"secret" not in there.requests[0]


async def test_names_with_several_addresses(monkeypatch):
    """An address where nobody listens is passed over; each connection begins with another."""
    async with Scripted([OK], [OK]) as server, transport(server) as opened:
        pool = opened._pool
        pool._host = "api.example"
        loop = asyncio.get_running_loop()
        asked = []

        async def resolve(host, port, **more):
            if host != "api.example":
                return await real(host, port, **more)
            asked.append(host)
            found = await real("127.0.0.1", port, **more)
            dead = [(*found[0][:4], ("127.0.0.9", port))]
            return dead + found

        real = loop.getaddrinfo
        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        await asyncio.gather(ask(opened), ask(opened))
        assert asked == ["api.example"]
        assert server.connections == 2


# -- TLS ---------------------------------------------------------------------------------------


async def test_tls_with_client_certificates():
    authority, stranger = trustme.CA(), trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    ours = authority.issue_cert("someone@example.org")
    known = {
        "cert_data": b"".join(each.bytes() for each in ours.cert_chain_pems),
        "key_data": ours.private_key_pem.bytes(),
    }
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # handshakes that the server refuses
    async with Scripted([OK], [OK], [b"HTTP/1.1 200 OK\r\n\r\nend", CLOSE], tls=tls) as server:
        async with transport(server, ca_data=authority.cert_pem.bytes(), **known) as opened:
            assert (await ask(opened)).body == b"hi"
            assert (await ask(opened, "POST")).body == b"hi"
            assert server.connections == 1
            assert (await ask(opened, "POST")).body == b"end"
        async with transport(server, ca_data=stranger.cert_pem.bytes(), **known) as opened:
            with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
                await ask(opened)
        async with transport(server, ca_data=authority.cert_pem.bytes()) as opened:
            with pytest.raises(Unreachable):
                await ask(opened, "POST")


async def test_a_connection_whose_end_is_never_reported_keeps_no_process_from_ending(monkeypatch):
    """uvloop did so with TLS on Python 3.13: an operator had stopped, and did not end."""
    monkeypatch.setattr(http, "_GOODBYE", 0.01)
    async with Scripted() as server, transport(server) as opened:
        before = opened._session.close
        monkeypatch.setattr(opened._session, "close", asyncio.Event().wait)
        await opened.close()
        monkeypatch.setattr(opened._session, "close", before)


@pytest.mark.parametrize(
    "story",
    [
        test_what_is_sent,
        test_random_answers_as_aiohttp_reads_them,
        test_packed_bodies,
        test_an_idle_connection_that_receives_something_is_closed,
        test_a_request_is_repeated_once_and_not_once_its_answer_has_begun,
        test_no_more_connections_than_allowed_long_answers_included,
        test_closing_ends_requests,
        test_nobody_listens,
        test_redirects_are_followed,
        test_tls_with_client_certificates,
    ],
)
def test_on_the_loop_of_processes(story):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())

"""The wire format over HTTP: Starlette in front of `Wire`, uvicorn in front of Starlette.

On loopback, with TLS (kubectl sends no token without it) and one bearer token; a request without it is
401, as on a real API server. Health and version need none.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import msgspec
import trustme
import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from fairlead.cluster.simulated import attach, bodies, errors
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.messages import Request
from fairlead.cluster.simulated.stream import Stream, frames
from fairlead.cluster.simulated.wire import Wire

_OPEN = {"/healthz", "/livez", "/readyz", "/version"}
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Server:
    """One API server on a loopback port. Use `async with`; `url`, `token` and `kubeconfig` are valid inside."""

    def __init__(self, wire: Wire, *, port: int = 0, token: str = "") -> None:
        self.wire = wire
        self.port = port
        self.token = token or secrets.token_urlsafe(24)
        self.requests = 0
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._authority = trustme.CA()
        self._certificate = self._authority.issue_cert("127.0.0.1", "localhost")

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        routes = [Route("/{path:path}", self._answer, methods=_METHODS), WebSocketRoute("/{path:path}", self._attach)]
        application = Starlette(routes=routes, exception_handlers={405: _not_allowed})
        with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:  # uvicorn reads certificates from files only
            await self._start(application, Path(folder))
        return self

    async def _start(self, application: Starlette, folder: Path) -> None:
        key, chain = folder / "key", folder / "chain"
        for path, content in ((key, self._certificate.private_key_pem), (chain, self._certificate.cert_chain_pems[0])):
            path.touch(mode=0o600)
            path.write_bytes(content.bytes())
        config = uvicorn.Config(
            application,
            ssl_keyfile=str(key),
            ssl_certfile=str(chain),
            host="127.0.0.1",
            port=self.port,
            log_level="critical",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
            http="h11",  # knows methods that are none
            ws="websockets-sansio",
            server_header=False,
        )
        self._server = _QuietServer(config)
        self._task = asyncio.create_task(self._server.serve())
        while not self._server.started:
            if self._task.done():
                await self._task
                raise OSError(f"port {self.port} cannot be served")
            await asyncio.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        self._closing.set()
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def kubeconfig(self, context: str = "fairlead-demo") -> str:
        """A kubeconfig with which kubectl and Fairlead's commands reach this server."""
        authority = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": context, "cluster": {"server": self.url, "certificate-authority-data": authority}}],
                "users": [{"name": context, "user": {"token": self.token}}],
                "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
                "current-context": context,
            },
            sort_keys=False,
        )

    def write_kubeconfig(self, path: Path, context: str = "fairlead-demo") -> Path:
        """The kubeconfig as a file that only its owner may read."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(self.kubeconfig(context))
        return path

    async def _answer(self, request: HttpRequest) -> Response:
        self.requests += 1
        path = request.scope.get("raw_path", request.url.path.encode()).partition(b"?")[0].decode("ascii", "replace")
        if path not in _OPEN and not self._known(request.headers.get("authorization", "")):
            error = StatusError(401, "Unauthorized", "Unauthorized")
            return Response(msgspec.json.encode(error.status()), 401, media_type="application/json")
        try:
            body = await _bounded(request)
        except ClientDisconnect:
            return Response(status_code=400)
        asked = Request(request.method, path, dict(request.query_params), _headers(request), body)
        answer = self.wire.handle(asked)
        clock = {"X-Fairlead-Time": f"{self.wire.api.clock.now():.3f}"}
        if isinstance(answer, Stream):
            return StreamingResponse(self._stream(answer), media_type="application/json", headers=clock)
        content = b"" if request.method == "HEAD" else answer.body
        return Response(content, answer.status, {**answer.headers, **clock, "Content-Type": answer.content_type})

    async def _attach(self, websocket: WebSocket) -> None:
        self.requests += 1
        if not self._known(websocket.headers.get("authorization", "")):
            await attach.refuse(websocket, StatusError(401, "Unauthorized", "Unauthorized"))
            return
        await attach.serve(websocket, self.wire.api, self.wire.api.attach)

    def _known(self, authorization: str) -> bool:
        return hmac.compare_digest(authorization.encode(), f"Bearer {self.token}".encode())

    async def _stream(self, stream: Stream) -> AsyncIterator[bytes]:
        lines = frames(stream)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while not self._closing.is_set():
                following = asyncio.ensure_future(anext(lines, b""))
                await asyncio.wait({following, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    return
                if not (line := following.result()):
                    return
                yield line
        finally:
            closing.cancel()
            stream.close()


class _QuietServer(uvicorn.Server):
    """Leaves the signals of the process alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def _not_allowed(_request: HttpRequest, _error: Exception) -> Response:
    """Unknown methods are refused like those that an object lacks."""
    return Response(msgspec.json.encode(errors.method_not_allowed().status()), 405, media_type="application/json")


async def _bounded(request: HttpRequest) -> bytes:
    """The body, up to just beyond the limit: what is larger is refused without being read."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > bodies.LIMIT:
            break
    return b"".join(parts)


def _headers(request: HttpRequest) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name in ("accept", "content-type", "user-agent")}

"""`attach` and `exec` over WebSockets, as kubectl speaks them: the subprotocols v4 and v5.channel.k8s.io.

Each message begins with its channel: 0 what is typed, 1 what is printed, 2 errors that are printed, 3 how it ended (a Status),
4 the size of the window; in v5 255 closes one. What runs the pods' commands provides what there is to attach to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.errors import StatusError, bad_request, not_found

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_PATH = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)/(attach|exec)")


class Session(Protocol):
    """A process that is attached to."""

    def output(self) -> AsyncIterator[bytes]:
        """What it prints, until its end."""

    async def write(self, data: bytes) -> None:
        """What is typed."""

    def end_input(self) -> None:
        """Nothing more is typed."""

    def resize(self, rows: int, columns: int) -> None:
        """The size of the window."""

    async def ended(self) -> int:
        """The exit code of what was begun for this session, 0 if nothing was."""

    def leave(self) -> None:
        """The client has detached: what was begun for this session ends."""


class Wanted(msgspec.Struct, frozen=True):
    """What a client attaches to: a pod's container, or a command begun beside it."""

    pod: dict[str, Any]
    container: str
    command: list[str] | None
    tty: bool
    stdin: bool


Attach = Callable[[Wanted], Awaitable[Session]]
"""Raises `StatusError` where there is nothing to attach to."""


def wanted(api: ApiServer, websocket: WebSocket) -> Wanted:
    """What a request asks for. Raises `StatusError`."""
    found = _PATH.fullmatch(websocket.url.path)
    if found is None:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    namespace, name, what = found.groups()
    record = api.store.get("pods", (namespace, name))
    if record is None:
        raise not_found("", "pods", name)
    pod, query = record.object, websocket.query_params
    names = [each["name"] for each in pod["spec"]["containers"]]
    container = query.get("container") or names[0]
    if container not in names:
        raise bad_request(f"container {container} is not valid for pod {name}")
    command = query.getlist("command") if what == "exec" else None
    if command == []:
        raise bad_request("you must specify at least 1 command to execute")
    return Wanted(pod, container, command, query.get("tty") == "true", query.get("stdin") == "true")


async def serve(websocket: WebSocket, api: ApiServer, attach: Attach | None) -> None:
    """One session from its beginning to its end."""
    try:
        asked = wanted(api, websocket)
        if attach is None:
            raise bad_request("pods here run nothing that could be attached to")
        protocol = next((each for each in PROTOCOLS if each in websocket.scope["subprotocols"]), None)
        if protocol is None:
            raise bad_request(f"none of the subprotocols {', '.join(PROTOCOLS)} was offered")
        session = await attach(asked)
    except StatusError as error:
        await refuse(websocket, error)
        return
    await websocket.accept(protocol)
    reading = asyncio.ensure_future(_read(websocket, session))
    printing = asyncio.ensure_future(_print(websocket, session))
    try:
        await asyncio.wait({reading, printing}, return_when=asyncio.FIRST_COMPLETED)
        if printing.done() and not printing.cancelled() and printing.exception() is None:
            await websocket.send_bytes(bytes([ERROR]) + msgspec.json.encode(_status(await session.ended())))
            await websocket.close()
    except (WebSocketDisconnect, RuntimeError):
        pass  # it went first
    finally:
        session.leave()
        for each in (reading, printing):
            each.cancel()
        await asyncio.gather(reading, printing, return_exceptions=True)


async def refuse(websocket: WebSocket, error: StatusError) -> None:
    """An answer instead of a session."""
    body = msgspec.json.encode(error.status())
    await websocket.send_denial_response(Response(body, error.code, media_type="application/json"))


async def _read(websocket: WebSocket, session: Session) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        data = message.get("bytes") or b""
        if not data:
            continue
        channel, rest = data[0], data[1:]
        if channel == STDIN and rest:
            await session.write(rest)
        elif channel == CLOSE and rest[:1] == bytes([STDIN]):
            session.end_input()
        elif channel == RESIZE:
            size = msgspec.json.decode(rest)
            session.resize(int(size.get("Height", 24)), int(size.get("Width", 80)))


async def _print(websocket: WebSocket, session: Session) -> None:
    async for data in session.output():
        await websocket.send_bytes(bytes([STDOUT]) + data)


def _status(code: int) -> dict[str, Any]:
    if not code:
        return {"metadata": {}, "status": "Success"}
    cause = {"reason": "ExitCode", "message": str(code)}
    message = f"command terminated with non-zero exit code: exit status {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": message,
        "details": {"causes": [cause]},
    }

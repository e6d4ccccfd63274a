"""One end of `attach` and `exec`: the subprotocols v4 and v5.channel.k8s.io over a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from fairlead.cluster.kubernetes.sessions import Socket

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    status: str = ""
    message: str = ""
    details: _Details = msgspec.field(default_factory=_Details)


class Attached:
    """An open session. code: of a command that was begun for it, once it has ended; error: what else ended it."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self.code: int | None = None
        self.error = ""

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """(`STDOUT` or `STDERR`, what was printed), until the end."""
        async for message in self._socket.messages():
            channel, data = message[0], message[1:]
            if channel in (STDOUT, STDERR) and data:
                yield channel, data
            elif channel == ERROR:
                self._ended(data)

    async def write(self, data: bytes) -> None:
        """What is typed. Once the session is over it goes nowhere."""
        await self._send(STDIN, data)

    async def end_input(self) -> None:
        """Nothing more is typed; v4 has no message for it."""
        if self._socket.protocol == PROTOCOLS[0]:
            await self._send(CLOSE, bytes([STDIN]))

    async def resize(self, rows: int, columns: int) -> None:
        """The size of the window."""
        await self._send(RESIZE, msgspec.json.encode({"Width": columns, "Height": rows}))

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send(bytes([channel]) + data)

    def _ended(self, data: bytes) -> None:
        try:
            status = msgspec.json.decode(data, type=_Status)
        except msgspec.MsgspecError:
            self.error = data.decode(errors="replace")
            return
        codes = [each.message for each in status.details.causes if each.reason == "ExitCode" and each.message.isdigit()]
        if status.status == "Success":
            self.code = 0
        elif codes:
            self.code = int(codes[0])
        else:
            self.error = status.message

"""The input and output of a process to which users may attach: a pseudo-terminal, or two pipes.

Output goes to the log and to all attached clients. A client that attaches later gets the last output first, so that it sees a
prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_KEPT = 1 << 14  # bytes that a new client gets
_AT_ONCE = 1 << 16
_BEHIND = 256  # chunks that a client that does not read may lag


class Terminal:
    """Open from its making to `close`. child_in, child_out: the process's ends, closed here once it has them."""

    def __init__(self, log: Path | None, *, tty: bool) -> None:
        self.tty = tty
        self._log = log.open("ab", buffering=0) if log is not None else None
        if tty:
            self._ours, child = os.openpty()
            self.child_in = self.child_out = child
            self._input = self._ours
            self.resize(24, 80)
        else:
            self._ours, self.child_out = os.pipe()
            self.child_in, self._input = os.pipe()
        os.set_blocking(self._ours, False)
        self._last: deque[bytes] = deque()
        self._kept = 0
        self._listeners: set[asyncio.Queue[bytes]] = set()
        self.ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._ours, self._readable)

    def started(self) -> None:
        """The process has its ends."""
        for end in {self.child_in, self.child_out}:
            os.close(end)

    @contextlib.contextmanager
    def listening(self) -> Iterator[asyncio.Queue[bytes]]:
        """A queue of what is printed, from the last of it on; an empty piece is the end."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(_BEHIND)
        if self._last:
            queue.put_nowait(b"".join(self._last))
        if self.ended.is_set():
            queue.put_nowait(b"")
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    async def write(self, data: bytes) -> None:
        """Input of a client. It is lost if the process no longer reads."""
        with contextlib.suppress(OSError):
            await asyncio.to_thread(_write_all, self._input, data)

    def end_input(self) -> None:
        """There is no more of it."""
        if self.tty or self._input < 0:
            return
        os.close(self._input)
        self._input = -1

    def resize(self, rows: int, columns: int) -> None:
        """The size of the window that shows it."""
        if self.tty:
            fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """The process has ended: what it printed last is read still."""
        if self._ours < 0:
            return
        self._readable()
        if self._ours >= 0:
            self._finish()

    def _readable(self) -> None:
        while self._ours >= 0:
            try:
                data = os.read(self._ours, _AT_ONCE)
            except BlockingIOError:
                return
            except OSError:  # the state of a terminal whose last process is gone
                data = b""
            if not data:
                self._finish()
                return
            self._printed(data)

    def _printed(self, data: bytes) -> None:
        if self._log is not None:
            self._log.write(data)
        self._last.append(data)
        self._kept += len(data)
        while self._kept - len(self._last[0]) >= _KEPT:
            self._kept -= len(self._last.popleft())
        for queue in list(self._listeners):
            if queue.full():
                self._listeners.discard(queue)  # it does not read: let it go rather than hold the process up
                queue.get_nowait()
                queue.put_nowait(b"")
            else:
                queue.put_nowait(data)

    def _finish(self) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        for end in {self._ours, self._input} - {-1}:
            os.close(end)
        self._ours = self._input = -1
        if self._log is not None:
            self._log.close()
        self.ended.set()
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(b"")


def controlling() -> None:
    """In the child, after it has begun a session: its standard input is its terminal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _write_all(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]

"""A watch as bytes over time: lines as they come, a bookmark when nothing has come for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from fairlead.cluster.simulated.api.reading import Watch
from fairlead.cluster.simulated.store import Record

BOOKMARK = 60.0
"""Seconds without a change after which a bookmark comes, where they are wanted."""


class Stream:
    """A watch on its way out. seconds: how long it may last."""

    def __init__(
        self,
        watch: Watch,
        encode: Callable[[str, Record], bytes],
        bookmark: Callable[[int], bytes],
        seconds: float,
        *,
        bookmarks: bool,
    ) -> None:
        self.watch = watch
        self.seconds = seconds
        self.bookmarks = bookmarks
        self._encode = encode
        self._bookmark = bookmark
        self._first: list[bytes] = []

    def take(self) -> list[bytes]:
        """Lines for everything that has happened since the last call."""
        lines, self._first = self._first, []
        changes = self.watch.changes
        while changes:
            kind, record = changes.popleft()
            lines.append(self._encode(kind, record))
        return lines

    def bookmark(self, version: int) -> bytes:
        """A line with the version that the watch has reached."""
        return self._bookmark(version)

    def end_of_initial(self, line: bytes) -> None:
        """Sends what existed, then the line that marks its end."""
        self._first = [*self.take(), line]

    def close(self) -> None:
        """Stop listening."""
        self.watch.close()


async def frames(stream: Stream) -> AsyncIterator[bytes]:
    """Chunks of whole lines until the watch's time (the loop's, not the cluster's) is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + stream.seconds
    waiting: asyncio.Future[bool] | None = None

    def notify() -> None:
        if waiting is not None and not waiting.done():
            waiting.set_result(True)

    stream.watch.notify = notify
    while (left := end - loop.time()) > 0:
        lines = stream.take()
        if lines:
            yield b"".join(lines)
            continue
        # A plain timer: most watches are idle, and a timeout that cancels costs many times as much.
        waiting = loop.create_future()
        timer = loop.call_later(min(left, BOOKMARK), _time_is_over, waiting)
        try:
            changed = await waiting
        finally:
            timer.cancel()
            waiting = None
        # A change at the very end of a watch is not sent any more: a bookmark beyond it would hide it from the next watch.
        if not changed and stream.bookmarks and not stream.watch.changes:
            yield stream.bookmark(stream.watch.store_version)


def _time_is_over(waiting: asyncio.Future[bool]) -> None:
    if not waiting.done():
        waiting.set_result(False)

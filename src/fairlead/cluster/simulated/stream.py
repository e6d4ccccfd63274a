"""A watch as bytes over time: lines as they come, a bookmark when nothing has come for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fairlead.cluster.simulated.wire import Stream

BOOKMARK = 60.0
"""Seconds without a change after which a bookmark comes, where they are wanted."""


async def frames(stream: Stream) -> AsyncIterator[bytes]:
    """Chunks of whole lines until the watch's time (the loop's, not the cluster's) is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + stream.seconds
    woken: asyncio.Future[bool] | None = None

    def wake() -> None:
        if woken is not None and not woken.done():
            woken.set_result(True)

    stream.watch.wake = wake
    while (left := end - loop.time()) > 0:
        lines = stream.take()
        if lines:
            yield b"".join(lines)
            continue
        # A plain timer: most watches are idle, and a timeout that cancels costs many times as much.
        woken = loop.create_future()
        timer = loop.call_later(min(left, BOOKMARK), _time_is_over, woken)
        try:
            changed = await woken
        finally:
            timer.cancel()
            woken = None
        if not changed and stream.bookmarks:
            yield stream.bookmark(stream.watch.store_version)


def _time_is_over(woken: asyncio.Future[bool]) -> None:
    if not woken.done():
        woken.set_result(False)

"""A watch as bytes over time: lines as they come, a bookmark when nothing has come for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fairlead.cluster.simulated.wire import Stream

_BOOKMARK = 50.0


async def frames(stream: Stream) -> AsyncIterator[bytes]:
    """Chunks of whole lines until the watch's time (the loop's, not the cluster's) is over."""
    loop = asyncio.get_running_loop()
    end = loop.time() + stream.seconds
    woken = asyncio.Event()
    stream.watch.wake = woken.set
    while (left := end - loop.time()) > 0:
        woken.clear()
        lines = stream.take()
        if lines:
            yield b"".join(lines)
            continue
        try:
            async with asyncio.timeout(min(left, _BOOKMARK)):
                await woken.wait()
        except TimeoutError:
            if stream.bookmarks:
                yield stream.bookmark(stream.watch.store_version)

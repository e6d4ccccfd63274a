"""Watches of the simulated API server: what they send at their end."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace

from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.stream import BOOKMARK, Stream, frames


def sent(seconds, unannounced):
    """What a watch of so many seconds sends, if a change comes at a time at which its timer has rung, but nothing was sent."""

    async def main():
        watch = SimpleNamespace(changes=deque(), notify=None, store_version=5)

        def change():
            watch.changes.append(("ADDED", 6))
            watch.store_version = 6

        asyncio.get_running_loop().call_later(unannounced, change)
        stream = Stream(
            watch, lambda kind, record: f"{kind} {record}".encode(), lambda at: b"at %d" % at, seconds, bookmarks=True
        )
        return [chunk async for chunk in frames(stream)]

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_a_change_at_the_end_of_a_watch_is_left_to_the_next_watch():
    # A bookmark of version 6 would make the client's next watch begin after the change that it has not seen.
    assert sent(2 * BOOKMARK, unannounced=2 * BOOKMARK - 1) == [b"at 5"]


def test_a_change_beside_a_bookmark_is_sent_in_its_place():
    assert sent(2 * BOOKMARK, unannounced=BOOKMARK - 1) == [b"ADDED 6", b"at 6"]

"""Many requests, some of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from fairlead.cluster.kubernetes.client import Client, encode
from testbed import objects


async def await_all(work: Iterable[Awaitable[object]], at_once: int) -> None:
    """Wait for all of some work, of which so much is begun at a time."""
    left = iter(work)

    async def worker() -> None:
        for each in left:
            await each

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def create_all(client: Client, manifests: Iterable[dict[str, Any]], at_once: int) -> None:
    """Create objects."""
    await await_all((client.post(objects.path(each), encode(each)) for each in manifests), at_once)

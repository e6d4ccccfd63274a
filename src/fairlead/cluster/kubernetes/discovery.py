"""Which kinds an API server serves: those of others may come and go."""

from __future__ import annotations

import asyncio

import msgspec

from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable

_ASK_AGAIN = 60.0  # seconds until it is asked anew


async def served(client: Client, api_version: str, plural: str) -> bool:
    """Whether a kind is served now; without an answer it counts as not served."""
    try:
        found = msgspec.json.decode(await client.get(f"/apis/{api_version}"))
    except (ApiError, Unreachable, msgspec.DecodeError):
        return False
    return any(each.get("name") == plural for each in found.get("resources") or ())


async def until_served(client: Client, api_version: str, plural: str, *, speed: float = 1.0) -> None:
    """Wait for it; asked once a minute. speed: of the client's clock against the loop's."""
    while True:
        if await served(client, api_version, plural):
            return
        await asyncio.sleep(_ASK_AGAIN / speed)

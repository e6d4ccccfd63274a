"""/metrics, /healthz, /readyz and /standbyz of a running process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

Probe = Callable[[], str]
"""What is wrong; empty if all is well."""
NOT_SYNCED = "not leading, or the first lists are not complete"


class CannotServeError(OSError):
    """An address cannot be listened on."""


@asynccontextmanager
async def served(
    address: str, metrics: Callable[[], Awaitable[bytes]], health: Probe, ready: Probe, standby: Probe
) -> AsyncIterator[None]:
    """Serve while the context is open. address: host:port; empty: nothing is served. Raises `CannotServeError`.

    ready: to decide; standby: that, or to take over.
    """
    if not address:
        yield
        return

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    def asking(probe: Probe) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_: web.Request) -> web.Response:
            wrong = probe()
            return web.Response(status=503, text=wrong) if wrong else web.Response(text="ok")

        return answer

    application = web.Application()
    application.add_routes(
        [
            web.get("/metrics", exposition),
            web.get("/healthz", asking(health)),
            web.get("/readyz", asking(ready)),
            web.get("/standbyz", asking(standby)),
        ]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        host, _, port = address.rpartition(":")
        try:
            await web.TCPSite(runner, host or "127.0.0.1", int(port)).start()
        except OSError as error:
            raise CannotServeError(f"cannot serve on {address}: {error}") from error
        yield
    finally:
        await runner.cleanup()

"""The running scheduler, put together: watches and writes in one thread, the core in another."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time

import msgspec
import structlog
from aiohttp import web

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.lease import Elector
from fairlead.cluster.port import ClusterEvent, Synced
from fairlead.core.model import Policy
from fairlead.observability.metrics import Metrics
from fairlead.scheduler.applier import Applier
from fairlead.scheduler.core_thread import CoreThread, Output

log = structlog.get_logger("scheduler")

_STALL = 30.0
_GATHER = 0.004
_LEASE_NAMESPACE = "kube-system"
_LEASE_NAME = "fairlead-scheduler"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run. address: host:port of /metrics, /healthz and /readyz; empty serves none."""

    policy: Policy = Policy()
    leader_elect: bool = True
    events: bool = True
    address: str = "127.0.0.1:10259"
    writers: int = 256


class Scheduler:
    """One process's scheduler. `run` returns when it was told to stop or lost its lease."""

    def __init__(self, config: Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.failed = False
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Run until SIGTERM, SIGINT or the loss of the lease; raises what cannot be lived with."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._relist)
        sys.setswitchinterval(0.001)
        async with Client(self.config) as client:
            self._build(client, loop)
            self.core.start()
            server = await self._serve()
            try:
                await self._work(client)
            finally:
                self.core.stop()
                await asyncio.to_thread(self.core.join, 10.0)
                if server is not None:
                    await server.cleanup()
        log.info("stopped")

    def _build(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        def deliver(outputs: list[Output]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: we are stopping
                loop.call_soon_threadsafe(self.applier.submit, outputs)

        self.cluster = KubernetesCluster(client)
        self.core = CoreThread(self.options.policy, deliver)
        self.elector = Elector(
            client, namespace=_LEASE_NAMESPACE, name=_LEASE_NAME, healthy=lambda: time.monotonic() - self.core.progressed < _STALL
        )
        self.cluster.instance = self.elector.identity
        self.applier = Applier(
            self.cluster,
            self.core.send,
            lambda: self.elector.epoch,
            writers=self.options.writers,
            write_events=self.options.events,
            busy=lambda: self.core.busy,
        )
        self.metrics = Metrics(self.core.counters, self.applier.counters, lambda: client.writes)

    async def _work(self, client: Client) -> None:
        """Watch and decide while leading; stop cleanly when told to."""
        stopping = asyncio.ensure_future(self._stop.wait())
        leading = asyncio.ensure_future(self.elector.lead(self._lead) if self.options.leader_elect else self._lead())
        try:
            await asyncio.wait({stopping, leading}, return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                self.failed = True
                leading.result()
        finally:
            stopping.cancel()
            leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading

    async def _lead(self) -> None:
        """The core starts deciding only here: it hears of the world from the leader's watches alone."""
        loop = asyncio.get_running_loop()
        gathered: list[ClusterEvent] = []

        def flush() -> None:
            self.core.send(gathered.copy())
            gathered.clear()

        def sink(events: list[ClusterEvent]) -> None:
            # Events of one moment go together: waking the core for each would have the threads fight for the interpreter.
            if not gathered:
                loop.call_later(_GATHER, flush)
            gathered.extend(events)
            if any(isinstance(event, Synced) for event in events):
                gc.collect()
                gc.freeze()
                log.info("synced", nodes=len(self.core.state.nodes), tasks=len(self.core.state.tasks))

        async with asyncio.TaskGroup() as group:
            group.create_task(self.cluster.run(sink))
            group.create_task(self.applier.run())

    def _relist(self) -> None:
        """SIGUSR1: list everything anew, as after a 410."""
        log.info("listing everything again")
        self.cluster.relist()

    async def _serve(self) -> web.AppRunner | None:
        if not self.options.address:
            return None
        application = web.Application()
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        host, _, port = self.options.address.rpartition(":")
        await web.TCPSite(runner, host or "127.0.0.1", int(port)).start()
        return runner

    async def _metrics(self, _: web.Request) -> web.Response:
        content = await asyncio.to_thread(self.metrics.render)
        return web.Response(body=content, headers={"Content-Type": self.metrics.content_type})

    async def _healthz(self, _: web.Request) -> web.Response:
        stalled = time.monotonic() - self.core.progressed
        if stalled < _STALL and self.core.is_alive():
            return web.Response(text="ok")
        return web.Response(status=503, text=f"the core has made no progress for {stalled:.0f} s")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self.core.synced:
            return web.Response(text="ok")
        return web.Response(status=503, text="not leading, or the first lists are not complete")

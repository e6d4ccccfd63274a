"""The running operator, put together: one reconciler for each matter, behind one lease."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.lease import Elector
from fairlead.operator.intents import Counters, Intents
from fairlead.operator.jobs.controller import Counters as JobCounters
from fairlead.operator.jobs.controller import Jobs

log = structlog.get_logger("operator")

_LEASE_NAMESPACE = "kube-system"
_LEASE_NAME = "fairlead-operator"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run. address: host:port of /metrics, /healthz and /readyz; empty serves none. lease_*: seconds, see `Elector`."""

    leader_elect: bool = True
    address: str = "127.0.0.1:10260"
    lease_duration: float = 15.0
    lease_renew: float = 10.0
    lease_retry: float = 2.0


class Operator:
    """One operator on an open client. `run` returns when it was told to stop, or lost its lease.

    speed: of the client's clock against the loop's, in simulations.
    """

    def __init__(self, client: Client, options: Options, *, speed: float = 1.0) -> None:
        self.options = options
        self.failed = False
        self.jobs = Jobs(client, speed=speed)
        self.intents = Intents(client, self.jobs)
        self._stop = asyncio.Event()
        self.elector = Elector(
            client,
            namespace=_LEASE_NAMESPACE,
            name=_LEASE_NAME,
            healthy=lambda: True,
            duration=options.lease_duration,
            renew_deadline=options.lease_renew,
            retry=options.lease_retry,
        )
        self.registry = CollectorRegistry()
        self.registry.register(Collected(self.intents.counters, self.jobs.counters, lambda: client.writes))

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop` or the loss of the lease; raises what cannot be lived with."""
        server = await self._serve()
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
            if server is not None:
                await server.cleanup()
        log.info("stopped")

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.intents.informer.run())
            group.create_task(self.intents.queue.run())
            group.create_task(self.jobs.jobs_informer.run())
            group.create_task(self.jobs.pods_informer.run())
            group.create_task(self.jobs.queue.run())

    async def _serve(self) -> web.AppRunner | None:
        if not self.options.address:
            return None
        application = web.Application()
        application.add_routes(
            [web.get("/metrics", self._metrics), web.get("/healthz", self._healthz), web.get("/readyz", self._readyz)]
        )
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        host, _, port = self.options.address.rpartition(":")
        await web.TCPSite(runner, host or "127.0.0.1", int(port)).start()
        return runner

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self.intents.synced and self.jobs.synced:
            return web.Response(text="ok")
        return web.Response(status=503, text="not leading, or the first lists are not complete")


class Collected(Collector):
    """The operator's metrics."""

    def __init__(self, counters: Counters, jobs: JobCounters, api_writes: Callable[[], int]) -> None:
        self.counters, self.jobs, self.api_writes = counters, jobs, api_writes

    def collect(self) -> Iterator[Metric]:
        """All of them, as they are."""
        for name, text, value in (
            ("fairlead_operator_suspensions", "Workloads suspended.", self.counters.suspended),
            ("fairlead_operator_resumptions", "Workloads resumed.", self.counters.resumed),
            ("fairlead_operator_looks", "Looks at pod groups that have a target.", self.counters.looks),
            ("fairlead_operator_pods_created", "Members of AIJobs created.", self.jobs.created),
            ("fairlead_operator_pods_deleted", "Members of AIJobs deleted.", self.jobs.deleted),
            ("fairlead_operator_job_restarts", "AIJobs that started again as a whole.", self.jobs.restarted),
            ("fairlead_operator_jobs_finished", "AIJobs that came to their end.", self.jobs.finished),
            ("fairlead_operator_api_writes", "Requests to the API server that change something.", self.api_writes()),
        ):
            yield CounterMetricFamily(name, text, value=value)


async def run_process(config: Config, options: Options) -> bool:
    """An operator as a process of its own, until SIGTERM or SIGINT. Returns whether it ended by itself, having lost its lease."""
    loop = asyncio.get_running_loop()
    async with Client(config) as client:
        operator = Operator(client, options)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, operator.stop)
        await operator.run()
        return operator.failed

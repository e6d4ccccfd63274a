"""The running scheduler, put together: watches and writes in one thread, the core in another.

In a simulation the core runs inline on the same (virtual) loop; nothing else differs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import grouping
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.cluster import KubernetesCluster
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.cluster.kubernetes.kept_places import NotedPlaces
from fairlead.cluster.kubernetes.lease import Elector, until
from fairlead.cluster.port import Cluster, ClusterEvent, DevicesFailed, PastFailure, PlacesKept, SpeedsKept, Synced
from fairlead.core.actions.nominated import kept_places
from fairlead.core.model.kept_places import NO_PLACES, KeptPlaces
from fairlead.core.model.transactions import Preempt
from fairlead.core.state.cluster import ClusterState
from fairlead.observability.ending import on_signals
from fairlead.observability.endpoints import NOT_SYNCED, served
from fairlead.observability.metrics import Metrics, Values, of_scheduler
from fairlead.scheduler import visibility
from fairlead.scheduler.applier import Applier
from fairlead.scheduler.core_loop import CoreLoop, Recorder
from fairlead.scheduler.core_thread import CoreThread
from fairlead.scheduler.counters import Counters
from fairlead.scheduler.external_metrics import ExternalMetrics
from fairlead.scheduler.gauges import of_snapshot
from fairlead.scheduler.inline_core import InlineCore
from fairlead.scheduler.metrics_snapshot import MetricsSnapshot
from fairlead.scheduler.options import LEASE_NAMESPACE, Options
from fairlead.scheduler.outputs import Output
from fairlead.scheduler.player import Player, Setting
from fairlead.scheduler.shadow import Report, ShadowCluster
from fairlead.scheduler.standby import Standby

Answer = TypeVar("Answer")
log = structlog.get_logger("scheduler")

_STALL = 30.0
_SET_BACK = 60.0  # seconds: less than that only delays what is awaited
_GATHER = 0.004
_FAILED_PASSES = 3  # in a row, and the scheduler is not ready
_DRAIN = 5.0  # seconds for which writes may go on once the scheduler is to end
_SNAPSHOT_REST = 5.0  # seconds between two snapshots for the metrics


class Simulation(msgspec.Struct, frozen=True):
    """The core inline, on the loop's time. speed: of the clock against the loop."""

    speed: float = 1.0


class Core(Protocol):
    """What runs the core's loop: a thread, or the I/O loop itself."""

    busy: bool

    @property
    def state(self) -> ClusterState:
        """What is known of the cluster."""

    @property
    def counters(self) -> Counters:
        """What the loop has done so far."""

    @property
    def synced(self) -> bool:
        """Whether all kinds have been listed once."""

    @property
    def snapshot(self) -> MetricsSnapshot:
        """The latest for the metrics."""

    def show(self, rest: float) -> None:
        """Renew it from now on, at most every `rest` seconds."""

    @property
    def stalled(self) -> float:
        """Seconds for which the loop has not come back from a turn."""

    @property
    def set_back(self) -> float:
        """By how many seconds its clock was set back."""

    def is_alive(self) -> bool:
        """Whether it runs."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End after what goes on; `join` waits for that."""

    def join(self, timeout: float) -> None:
        """Wait until it has ended, so many seconds at most."""

    def send(self, events: list[ClusterEvent]) -> None:
        """Events of the cluster for the next turn."""

    def ask(self, question: Callable[[CoreLoop], Answer]) -> Future[Answer]:
        """Have a question answered between two passes; it must change nothing."""


class Scheduler:
    """One scheduler on an open client. `run` returns when it was asked to stop or lost its lease.

    recorder: receives what the core observes and decides. report: takes what a shadow would have done.
    """

    def __init__(
        self,
        client: Client,
        options: Options,
        *,
        simulation: Simulation | None = None,
        identity: str = "",
        recorder: Recorder | None = None,
        report: Report | None = None,
    ) -> None:
        self.client = client
        self.options = options
        self.failed = False
        self._stop = asyncio.Event()
        self.kubernetes = KubernetesCluster(
            client, schedulers=options.schedulers, release=options.release, lease_namespace=LEASE_NAMESPACE
        )
        self.cluster: Cluster = self.kubernetes
        if options.shadow:
            self.cluster = ShadowCluster(self.kubernetes, report or (lambda _: None), client.clock)
        self.core: Core
        if simulation is not None:
            self.core = InlineCore(options.policy, self._submit, clock=client.clock, speed=simulation.speed, recorder=recorder)
        else:
            self.core = CoreThread(options.policy, self._hand_over, clock=client.clock, recorder=recorder)
        self.elector = Elector(
            client,
            namespace=LEASE_NAMESPACE,
            name=names.lease(options.release, "scheduler"),
            healthy=lambda: not stuck(self.core),
            duration=options.lease_duration,
            renew_deadline=options.lease_renew,
            retry=options.lease_retry,
            identity=identity,
            annotations=lambda: {
                **self.kubernetes.failed_devices.annotations(),
                **self.places.annotations(),
                **self.kubernetes.speeds.annotations(),
            },
        )
        self.kubernetes.speeds.named = self.elector.renew_soon
        self.places = NotedPlaces(self.elector.renew_soon)
        self.kubernetes.instance = self.elector.identity
        self.applier = Applier(
            self.cluster,
            self.core.send,
            lambda: self.elector.epoch,
            writers=options.writers,
            write_events=options.events and not options.shadow,
            busy=lambda: self.core.busy,
        )
        if options.address:
            self.core.show(_SNAPSHOT_REST)
        self.metrics = Metrics(self._values)
        self._gathered: list[ClusterEvent] = []
        self._past_failures: tuple[PastFailure, ...] = ()  # of devices, that the leader before this one has kept
        self._past_places = NO_PLACES  # of pods that do not exist, likewise
        self._asking = False  # the core, which places these are now
        self._standby: Standby | None = None  # while another process leads

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    def relist(self) -> None:
        """List everything anew, as after a 410."""
        log.info("listing everything again")
        self.kubernetes.relist()

    def _submit(self, outputs: list[Output]) -> None:
        self.applier.submit(outputs)
        if not self._asking and (self.places or any(isinstance(each, Preempt) for each in outputs)):
            self._asking = True
            asyncio.get_running_loop().call_soon(self._note_places)  # once a pass inline is over

    def _note_places(self) -> None:
        """Have the places that only the core knows written for the scheduler that leads next."""
        asyncio.wrap_future(self.core.ask(lambda core: kept_places(core.state))).add_done_callback(self._noted)

    def _noted(self, answer: asyncio.Future[KeptPlaces]) -> None:
        self._asking = False
        if not answer.cancelled() and (error := answer.exception()) is not None:
            log.error("the places that are kept are not known", error=repr(error)[:300])
        elif not answer.cancelled():
            self.places.note(answer.result())

    def _hand_over(self, outputs: list[Output]) -> None:
        """From the core's thread to the I/O loop."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: we are stopping
            self._loop.call_soon_threadsafe(self._submit, outputs)

    async def run(self) -> None:
        """Run until `stop` or the loss of the lease; raises what cannot be lived with."""
        self._loop = asyncio.get_running_loop()
        self.core.start()
        elect = self.options.leader_elect and not self.options.shadow
        try:
            async with served(self.options.address, self._render, self._stalled, self._unready, self._unfit):
                self.failed = await until(self._stop, self._elected() if elect else self._lead())
        finally:
            self.core.stop()
            if isinstance(self.core, CoreThread):
                await asyncio.to_thread(self.core.join, 10.0)
        log.info("stopped")

    async def _elected(self) -> None:
        """Wait for the lease, then lead. While another process holds it everything is watched and kept, and the core waits."""
        async with asyncio.TaskGroup() as group:
            watching: asyncio.Task[None] | None = None

            def stand_by() -> None:
                nonlocal watching
                if watching is None:
                    self._standby = Standby()
                    watching = group.create_task(self.cluster.run(self._take))

            await self.elector.lead(self._lead, stand_by=stand_by, drain=self._drain)
            if watching is not None:
                watching.cancel()

    def _take(self, events: list[ClusterEvent]) -> None:
        """Events from the watches."""
        if self._standby is not None:
            self._standby.take(events)
            if any(isinstance(event, Synced) for event in events):
                log.info("standby", objects=len(self._standby))
            return
        past: list[ClusterEvent] = [DevicesFailed(self._past_failures)] if self._past_failures else []
        past += [PlacesKept(self._past_places)] if self._past_places else []
        if past and any(isinstance(event, Synced) for event in events):
            self._past_failures, self._past_places = (), NO_PLACES
            events = [*(event for event in events if not isinstance(event, Synced)), *past, Synced()]
        # Events of one moment go together: waking the core for each would have the threads fight for the interpreter.
        if not self._gathered:
            asyncio.get_running_loop().call_later(_GATHER, self._flush)
        self._gathered.extend(events)

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        self.core.send(gathered)
        if any(isinstance(event, Synced) for event in gathered):
            if isinstance(self.core, CoreThread):
                gc.collect()
                gc.freeze()
            self.core.ask(_log_synced)

    async def _take_over(self) -> None:
        """The core begins with what the standby knows, once the writes of the leader before it have been observed."""
        await self.kubernetes.current()
        standby, self._standby = self._standby, None
        if standby is not None:
            self._take(standby.events())

    async def _drain(self) -> None:
        """Nothing more is decided, and what was decided is written, so that the next leader observes it."""
        if not self._stop.is_set():
            return  # cut off
        self.core.stop()
        if isinstance(self.core, CoreThread):
            await asyncio.to_thread(self.core.join, _DRAIN)
        try:
            async with asyncio.timeout(_DRAIN):
                await self.applier.drain()
        except TimeoutError:
            log.warning("writes are given up: they did not end in time", seconds=_DRAIN)

    async def _lead(self) -> None:
        """The core starts deciding only here."""
        self._past_failures = self.kubernetes.failed_devices.take_over(self.elector.found)
        self._past_places = self.places.take_over(self.elector.found)
        if self.elector.epoch is not None:
            self.kubernetes.speeds.take_over(self.elector.found)
            if speeds := await self.kubernetes.speeds.read():
                self.core.send([SpeedsKept(speeds)])  # before any pod, whose speed is judged by it
        namespace, pod = self.options.service_namespace, self.options.pod_address
        async with asyncio.TaskGroup() as group:
            group.create_task(self.cluster.run(self._take) if self._standby is None else self._take_over())
            group.create_task(self.applier.run())
            if self.options.visibility and not self.options.shadow:
                service = Service(names.VISIBILITY_SERVICE, namespace, pod)
                address, ask, player = self.options.visibility, self.core.ask, self._player()
                served = visibility.Visibility(self.client, address, service, ask, self.client.clock, player)
                group.create_task(served.run())
            if self.options.external_metrics and not self.options.shadow:
                service = Service(names.EXTERNAL_METRICS_SERVICE, namespace, pod)
                serve = ExternalMetrics(self.client, self.options.external_metrics, service, self.core, self.client.clock).run()
                group.create_task(serve)

    def _player(self) -> Player | None:
        """Who plays what-if questions, as this scheduler decides."""
        if not self.options.player:
            return None
        setting = Setting(
            config=self.client.config,
            policy=self.options.policy,
            schedulers=dict(self.options.schedulers),
            sharing_agents=sorted(names.SHARING_AGENTS),
            gpu_parts=self.options.policy.gpu_parts,
            rules=list(grouping.RULES.values()),
        )
        return Player(self.options.player, setting, time.monotonic)

    def _values(self) -> Values:
        yield from of_scheduler(self.core.counters, self.applier.counters, self.client.writes)
        yield "fairlead_core_stalled_seconds", self.core.stalled
        yield "fairlead_scheduler_leading", float(self.core.synced)
        yield from of_snapshot(self.core.snapshot)

    async def _render(self) -> bytes:
        return await asyncio.to_thread(self.metrics.render)

    def _stalled(self) -> str:
        return stuck(self.core) if self.core.is_alive() else "the core has ended"

    def _unfit(self) -> str:
        """As `_unready`; but all is well while another process leads and this one is ready to take over."""
        if self.elector.waiting and self._standby is not None and self._standby.synced:
            return self.client.trouble()
        return self._unready()

    def _unready(self) -> str:
        failing = self.core.counters.failing
        if failing >= _FAILED_PASSES:
            return f"the last {failing} passes failed: no pod is placed; the log has the tracebacks"
        trouble = self.client.trouble()
        if not self.core.synced:
            return f"{NOT_SYNCED}; {trouble}" if trouble else NOT_SYNCED
        return trouble


def stuck(core: Core) -> str:
    """Why a core must begin anew; empty: it need not."""
    if core.stalled >= _STALL:
        return f"the core has made no progress for {core.stalled:.0f} s"
    if core.set_back >= _SET_BACK:
        return f"the clock was set back by {core.set_back:.0f} s: what is awaited would come that much later"
    return ""


def _log_synced(loop: CoreLoop) -> None:
    log.info("synced", nodes=len(loop.state.nodes), tasks=len(loop.state.tasks))


async def run_process(
    config: Config,
    options: Options,
    *,
    recorder: Recorder | None = None,
    report: Report | None = None,
    clock: Callable[[], float] = time.time,
) -> bool:
    """A scheduler as a process of its own, until SIGTERM, SIGINT or SIGHUP; SIGUSR1 lists everything anew.

    Returns whether it ended by itself, having lost its lease.
    """
    loop = asyncio.get_running_loop()
    sys.setswitchinterval(0.001)
    async with Client(config, read_only=options.shadow, clock=clock) as client:
        scheduler = Scheduler(client, options, recorder=recorder, report=report)
        on_signals(scheduler.stop)
        loop.add_signal_handler(signal.SIGUSR1, scheduler.relist)
        await scheduler.run()
        return scheduler.failed

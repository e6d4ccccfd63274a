"""The running operator, put together: one reconciler for each matter, behind one lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import grouping
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.kubernetes.lease import Elector, until
from fairlead.observability.ending import on_signals
from fairlead.observability.endpoints import NOT_SYNCED, served
from fairlead.observability.history import SchemaError
from fairlead.observability.metrics import Metrics, Value, Values
from fairlead.observability.prometheus import Prometheus
from fairlead.operator.budgets import Budgets
from fairlead.operator.faults import Faults
from fairlead.operator.gangs import Gangs
from fairlead.operator.history_api import HistoryApi
from fairlead.operator.jobs.controller import Jobs
from fairlead.operator.jobs.counters import Counters as JobCounters
from fairlead.operator.jobs.hardware import CONDITIONS
from fairlead.operator.jobs.limits import Bounds
from fairlead.operator.measured import Measured
from fairlead.operator.mig.controller import MigReconfiguration
from fairlead.operator.provisioning import Provisioning
from fairlead.operator.recorder import Recorder
from fairlead.operator.releases import Releases
from fairlead.operator.suspensions import Suspensions
from fairlead.operator.targets import Counters, Targets
from fairlead.operator.upstream import Upstream
from fairlead.operator.workloads import known

log = structlog.get_logger("operator")

_LEASE_NAMESPACE = "kube-system"
_DRAIN = 5.0  # seconds for which reconciliations may go on once the operator is to end


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to run.

    address: host:port of /metrics, /healthz and /readyz; empty serves none. lease_*: seconds, see `Elector`.
    history: URL of the database for what jobs used, empty: none is kept; history_keep: for how many seconds;
    history_address: host:port of the aggregated API `history.fairlead.dev`, empty: not served; service_namespace: of its
    Service; pod_address: of this pod, to which that leads while it is the leader; empty: it has a selector. prometheus: URL of
    the server that has the use and the errors of GPUs; empty: they are not asked for.
    node_conditions: `TYPE=STATUS` of those that quarantine a node. max_members: of an AIJob;
    max_waiting_pods*: members that were made and have no node, in the cluster and in each namespace. provisioning_classes:
    those that nodes are asked for of.
    """

    leader_elect: bool = True
    address: str = "127.0.0.1:10260"
    lease_duration: float = 15.0
    lease_renew: float = 10.0
    lease_retry: float = 2.0
    history: str = ""
    history_keep: float = 400 * 86400.0
    history_address: str = ""
    service_namespace: str = _LEASE_NAMESPACE
    pod_address: str = ""
    prometheus: str = ""
    node_conditions: tuple[str, ...] = CONDITIONS
    max_members: int = 10_000
    max_waiting_pods: int = 20_000
    max_waiting_pods_per_namespace: int = 5_000
    provisioning_classes: tuple[str, ...] = ()


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise a `SchemaError` of a group's task as it is."""
    refused: list[BaseException] = []
    try:
        yield
    except* SchemaError as errors:
        refused.extend(errors.exceptions)
    if refused:
        raise refused[0]


class Operator:
    """One operator on an open client. `run` returns after `stop` or the loss of its lease. Raises `HistoryError`.

    speed: of the client's clock against the loop's, in simulations.
    """

    def __init__(self, client: Client, options: Options, *, speed: float = 1.0) -> None:
        self.options = options
        self.failed = False
        prometheus = Prometheus(options.prometheus) if options.prometheus else None
        self.faults = faults = Faults(client, speed=speed)
        self.releases = releases = Releases(client, faults)
        bounds = Bounds(options.max_members, options.max_waiting_pods_per_namespace, options.max_waiting_pods)
        self.jobs = Jobs(
            client,
            speed=speed,
            prometheus=prometheus,
            faults=faults,
            bounds=bounds,
            conditions=options.node_conditions,
            serves=releases.serves,
        )
        workloads = known(grouping.RULES.values())
        self.targets = Targets(client, self.jobs, workloads, faults, serves=releases.serves)
        self.suspensions = Suspensions(
            client, workloads.values(), self.targets.counters, speed=speed, faults=faults, releases=releases
        )
        self.targets.untargeted = self.suspensions.untargeted
        self.gangs = Gangs(client, workloads.values(), speed=speed, faults=faults, releases=releases)
        self.targets.gone = self.gangs.group_gone
        self.upstream = Upstream(client, faults, serves=releases.serves)
        self.provisioning = Provisioning(
            client, classes=options.provisioning_classes, speed=speed, faults=faults, serves=releases.serves
        )
        self.mig = MigReconfiguration(client, speed=speed, faults=faults, serves=releases.serves)
        releases.changed += [
            self.jobs.hands_changed,
            self.targets.hands_changed,
            self.suspensions.hands_changed,
            self.gangs.hands_changed,
            self.upstream.hands_changed,
            self.provisioning.hands_changed,
            self.mig.hands_changed,
        ]
        self.measured = Measured(prometheus, client, speed=speed) if prometheus is not None else None
        self.recorder: Recorder | None = None
        if options.history:
            keep, url = options.history_keep, options.history
            self.recorder = Recorder(client, url, keep=keep, speed=speed, prometheus=prometheus, faults=faults, releases=releases)
        self.budgets: Budgets | None = None
        if self.recorder is not None:
            self.budgets = Budgets(client, self.recorder.history, speed=speed, faults=faults, serves=releases.serves)
            releases.changed.append(self.budgets.hands_changed)
        self.informers: dict[str, Informer[Any]] = {
            **releases.informers,  # first: what the others deliver is asked for there
            "targets.watch": self.targets.informer,
            "upstream.watch": self.upstream.informer,
            "jobs.watch": self.jobs.jobs_informer,
            "pods.watch": self.jobs.pods_informer,
            "nodes.watch": self.jobs.hardware.informer,
            "classes.watch": self.jobs.classes_informer,
            "pools.watch": self.jobs.pools_informer,
            **self.jobs.creation.quotas.informers,
        }
        self._watching: list[asyncio.Task[None]] = []  # begun while another process led
        self._stop = asyncio.Event()
        self.elector = Elector(
            client,
            namespace=_LEASE_NAMESPACE,
            name=names.lease(names.release(), "operator"),
            healthy=lambda: True,
            duration=options.lease_duration,
            renew_deadline=options.lease_renew,
            retry=options.lease_retry,
        )
        self.metrics = Metrics(self._values)

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    async def run(self) -> None:
        """Run until `stop` or the loss of the lease; raises what cannot be lived with."""
        async with served(self.options.address, self._render, lambda: "", self._unready, self._unfit):
            self.failed = await until(self._stop, self._elected() if self.options.leader_elect else self._lead())
        log.info("stopped")

    async def _elected(self) -> None:
        """Wait for the lease, then lead. While another process holds it, what AIJobs need is watched and held."""
        with _refusing():
            await self._wait_and_lead()

    async def _wait_and_lead(self) -> None:
        async with asyncio.TaskGroup() as group:

            def stand_by() -> None:
                if not self._watching:
                    for name, informer in self.informers.items():
                        informer.hold()
                        self._watching.append(group.create_task(self.faults.kept(name, informer.run)))

            await self.elector.lead(self._lead, stand_by=stand_by, drain=self._drain)
            for task in self._watching:
                task.cancel()

    async def _drain(self) -> None:
        """What is being reconciled ends before the lease is released, and nothing more is begun."""
        if not self._stop.is_set():
            return  # cut off
        parts = (self.targets, self.suspensions, self.gangs, self.upstream, self.provisioning, self.jobs, self.jobs.hardware)
        try:
            async with asyncio.timeout(_DRAIN):
                await asyncio.gather(*(each.queue.drain() for each in parts), self.mig.drain())
        except TimeoutError:
            log.warning("reconciliations are given up: they did not end in time", seconds=_DRAIN)

    async def _take_over(self) -> None:
        """The controllers begin with what was held, once the writes of the leader before have been observed."""
        await asyncio.gather(*(informer.current() for informer in self.informers.values()))
        for informer in self.informers.values():
            informer.release()

    async def _lead(self) -> None:
        """All that runs, each by itself: what fails is begun again, and the others go on. Raises `SchemaError`."""
        watches = {name: informer.run for name, informer in self.informers.items()}
        parts: dict[str, Callable[[], Awaitable[None]]] = {
            **({"takeover": self._take_over} if self._watching else watches),
            "targets.queue": self.targets.queue.run,
            "suspensions.watch": self.suspensions.run,
            "gangs.watch": self.gangs.run,
            "upstream.queue": self.upstream.queue.run,
            "provisioning.watch": self.provisioning.run,
            "mig": self.mig.run,
            "nodes.queue": self.jobs.hardware.queue.run,
            "nodes.failures": self.jobs.hardware.run,
            "nodes.devices": self.jobs.hardware.devices.run,
            "idleness": self.jobs.idleness.run,
            "jobs.queue": self.jobs.queue.run,
        }
        if self.measured is not None:
            parts["measured"] = self.measured.run
        if self.recorder is not None:
            parts["history"] = self.recorder.run
        with _refusing():  # another process, of the version that the database has, may lead
            async with asyncio.TaskGroup() as group:
                for name, part in parts.items():
                    group.create_task(self.faults.kept(name, part))
                if self.recorder is not None:
                    group.create_task(self._open(self.recorder, group))
                if self.recorder is not None and self.options.history_address:
                    service = Service(names.HISTORY_SERVICE, self.options.service_namespace, self.options.pod_address)
                    address, history = self.options.history_address, self.recorder.history
                    group.create_task(HistoryApi(self.jobs.client, address, service, history).run())

    async def _open(self, recorder: Recorder, group: asyncio.TaskGroup) -> None:
        """Take the history's database over; what reads it from the first on begins then. Raises `SchemaError`."""
        await recorder.open()
        if self.budgets is not None:
            group.create_task(self.faults.kept("budgets", self.budgets.run))

    def _values(self) -> Values:
        unmeasured, writes = self.jobs.idleness.failures + self.jobs.hardware.devices.failures, self.elector.client.writes
        if self.recorder is not None and self.recorder.use is not None:
            unmeasured += self.recorder.use.failures
        yield from of_operator(self.targets.counters, self.jobs.counters, self.gangs.made, unmeasured, writes)
        yield "fairlead_operator_nodes_quarantined", float(self.jobs.hardware.quarantined)
        yield "fairlead_operator_mig_reconfigurations", _by_one(self.mig.outcomes)
        yield "fairlead_operator_mig_nodes", _by_one(self.mig.phases())
        yield "fairlead_operator_faults", {(site,): float(count) for site, count in list(self.faults.counts.items())}
        yield "fairlead_operator_untrusted", float(bool(self.jobs.maker.untrusted_as))
        yield "fairlead_operator_waiting_pods", float(self.jobs.waiting.all)
        yield (
            "fairlead_operator_jobs_not_starting",
            float(self.jobs.cache.not_starting(None if self.releases.sole else self.jobs.serves)),
        )
        yield "fairlead_operator_provisioning_requests", self.provisioning.made
        yield (
            "fairlead_operator_jobs",
            {
                (phase,): float(count)
                for phase, count in self.jobs.cache.phases(None if self.releases.sole else self.jobs.serves).items()
            },
        )
        if self.recorder is not None:
            yield from of_history(self.recorder)
        if self.budgets is not None:
            yield "fairlead_operator_queue_cost", self.budgets.spent
            yield "fairlead_operator_queue_budget", self.budgets.given
            yield "fairlead_operator_queue_budget_warning", self.budgets.warned

    async def _render(self) -> bytes:
        return self.metrics.render()

    def _unfit(self) -> str:
        """As `_unready`; but all is well while another process leads and this one is ready to take over."""
        if self.elector.waiting and self._watching and all(each.listed for each in self.informers.values()):
            return self.elector.client.trouble()
        return self._unready()

    def _unready(self) -> str:
        trouble = self.elector.client.trouble()
        if not (self.releases.synced and self.targets.synced and self.jobs.synced):
            return f"{NOT_SYNCED}; {trouble}" if trouble else NOT_SYNCED
        return trouble


def _by_one(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(name,): float(count) for name, count in list(counts.items())}


def of_operator(targets: Counters, jobs: JobCounters, groups: int, unmeasured: int, api_writes: int) -> list[tuple[str, Value]]:
    """What an operator counts. groups: that were made; unmeasured: how often the use or the errors of GPUs could not be asked."""
    return [
        ("fairlead_operator_suspensions", targets.suspended),
        ("fairlead_operator_resumptions", targets.resumed),
        ("fairlead_operator_reconciles", targets.reconciles),
        ("fairlead_operator_pod_groups_created", groups),
        ("fairlead_operator_pods_created", jobs.created),
        ("fairlead_operator_pods_deleted", jobs.deleted),
        ("fairlead_operator_job_restarts", jobs.restarted),
        ("fairlead_operator_jobs_finished", jobs.finished),
        ("fairlead_operator_gpu_use_failures", unmeasured),
        ("fairlead_operator_api_writes", api_writes),
    ]


def of_history(recorder: Recorder) -> list[tuple[str, Value]]:
    """What is counted where a history is kept."""
    used, measured = recorder.pool_use
    return [
        ("fairlead_operator_pool_gpu_seconds_used", used),
        ("fairlead_operator_pool_gpu_seconds_measured", measured),
        ("fairlead_operator_history_rows", recorder.rows),
        ("fairlead_operator_history_failures", recorder.failures),
    ]


async def run_process(config: Config, options: Options) -> bool:
    """An operator as a process of its own, until SIGTERM, SIGINT or SIGHUP. Returns whether it lost its lease."""
    async with Client(config) as client:
        operator = Operator(client, options)
        on_signals(operator.stop)
        await operator.run()
        return operator.failed

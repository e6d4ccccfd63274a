"""The recorder: observes jobs, pods and nodes, and writes them to the history.

Observations are written once a second, in another thread, since databases block. While the database cannot be reached they are
kept in memory, and written later. The recorder of the operator that leads takes the database over; those that wait write nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import structlog

from fairlead.api import names
from fairlead.api.kinds.ai_job import AIJob
from fairlead.api.kinds.rules import strict
from fairlead.cluster import views
from fairlead.cluster.kinds import RESOURCE_CLAIM, SLICE
from fairlead.cluster.kubernetes.client import ApiError, Client, Unreachable
from fairlead.cluster.kubernetes.discovery import until_served
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.translate import Change
from fairlead.observability.history import HistoryError, SchemaError, SupersededError
from fairlead.observability.prometheus import Prometheus
from fairlead.observability.store import History
from fairlead.operator.accounting.accounting import Accounting
from fairlead.operator.accounting.node_intervals import NodeView, PoolView
from fairlead.operator.accounting.observations import (
    ClaimObserved,
    JobObserved,
    NodeObserved,
    Observation,
    PodObserved,
    PoolObserved,
    ScalerObserved,
    SliceObserved,
)
from fairlead.operator.accounting.scaler_intervals import PATH as _SCALERS
from fairlead.operator.accounting.scaler_intervals import ScalerView
from fairlead.operator.faults import About, Faults
from fairlead.operator.releases import Releases
from fairlead.operator.use import Use

log = structlog.get_logger("history")

_JOBS = f"/apis/{names.API_VERSION}/aijobs"
_POOLS = f"/apis/{names.API_VERSION}/nodepools"
_GROUPS = f"/apis/{names.API_VERSION}/podgroups"
_EVERY = 1.0  # seconds between two writes
_OPEN_AGAIN = 5.0  # seconds until a database is taken over again that could not be reached
_TAKE_BACK = 60.0  # seconds after which one that still leads takes back what another took: that one leads no more
_ALIVE = 60.0  # seconds between two notes that nothing was missed
_ADD_UP = 600.0  # seconds until it is asked again whether a day is to be added up
_MOST_KEPT = 200_000  # changes that wait for a database which cannot be reached
_DAY = 86400.0
_WITHOUT_DEVICES = 10.0  # seconds for which devices are waited for
_DEVICES, _NOT_FOUND = "resource.k8s.io/v1", 404
_POD = About("v1", "Pod")

View = TypeVar("View", bound=msgspec.Struct)


class _Namespace(msgspec.Struct):
    metadata: views.Metadata


class Recorder:
    """Records while `run` and `open` run; both when this process leads.

    url: of the database. keep: seconds after which ended jobs are forgotten; speed: of the client's clock against the loop's.
    prometheus: where the use of GPUs is measured, if it is. releases: whose AIJobs are left out. rows: written; failures: writes
    that failed. Raises `HistoryError`.
    """

    def __init__(
        self,
        client: Client,
        url: str,
        *,
        keep: float = 400 * _DAY,
        speed: float = 1.0,
        prometheus: Prometheus | None = None,
        faults: Faults | None = None,
        releases: Releases | None = None,
    ) -> None:
        self.client = client
        self._releases = releases
        self.keep = keep
        self.speed = speed
        self.rows = 0
        self.failures = 0
        self.history = History(url, wait=True)
        self._groups: dict[str, views.PodGroup] = {}
        self._queues: dict[str, str] = {}
        self.faults = faults or Faults(client, speed=speed)
        self._unreported: list[tuple[str, str, Exception]] = []  # faults of accounting, from its thread
        self._accounting = Accounting(
            self.history,
            self._groups.get,
            lambda name: self._queues.get(name) or names.DEFAULT_QUEUE,
            lambda *fault: self._unreported.append(fault),
        )
        self._observed: list[Observation] = []
        self._missing = {"database", "pods", "namespaces", "jobs", "groups", "nodes", "pools", "resourceslices", "resourceclaims"}
        # Called once everything that exists is known: ends the rows of what went while no recorder ran.
        self._closing = [self._accounting.close_others]
        self._written = self._forgot = self._added_up = 0.0
        self._superseded: float | None = None  # since when
        self.use = Use(prometheus, client.clock, self._note, speed=speed) if prometheus is not None else None
        self._informers = self._made()

    def _made(self) -> tuple[Informer[Any], ...]:
        """An informer for each kind that must be listed before anything is written."""

        def of(
            what: str, path: str, view: type[View], take: Callable[[list[Change[View]]], None], *, namespaced: bool = True
        ) -> Informer[View]:
            more: dict[str, Any] = {} if namespaced else {"key": lambda metadata: metadata.name}
            return Informer(self.client, path, view, take, lambda: self._listed(what), **more)

        groups = self.faults.each("history.observed", self._groups_changed)
        namespaces = self.faults.each("history.observed", self._namespaces_changed)
        return (
            of("pods", "/api/v1/pods", views.Pod, self._observer(PodObserved)),
            of("jobs", _JOBS, strict(AIJob), self._observer(JobObserved)),
            of("nodes", "/api/v1/nodes", NodeView, self._observer(NodeObserved), namespaced=False),
            of("pools", _POOLS, strict(PoolView), self._observer(_pool_observed), namespaced=False),
            of("groups", _GROUPS, views.PodGroup, groups),
            of("namespaces", "/api/v1/namespaces", _Namespace, namespaces, namespaced=False),
        )

    @property
    def pool_use(self) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
        """GPU-seconds by pool since the start: used, and held while the use was measured."""
        return dict(self._accounting.pool_used), dict(self._accounting.pool_measured)

    async def open(self) -> None:
        """Take the database over, however long it cannot be reached. Raises `SchemaError`."""
        while True:
            try:
                await self._aside(self.history.take_over)
            except SchemaError:
                raise
            except HistoryError as error:
                self.failures += 1
                log.error("history", error=str(error))
            except Exception as error:  # noqa: BLE001 - the history stops no work
                self.failures += 1
                self.faults.note("history", "", error)
            else:
                self._missing.discard("database")
                return
            await asyncio.sleep(_OPEN_AGAIN / self.speed)

    async def run(self) -> None:
        """Record until cancelled; what is known then is written still."""
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._informers:
                    group.create_task(self.faults.kept("history.watch", each.run))
                group.create_task(self.faults.kept("history.watch", self._follow_scalers))
                group.create_task(self.faults.kept("history.watch", self._follow_devices))
                group.create_task(self._begin_without_devices())
                if self.use is not None:
                    group.create_task(self.faults.kept("history.use", self.use.run))
                while True:
                    await asyncio.sleep(_EVERY / self.speed)
                    await self._flush()
        finally:
            await self._flush()
            self.history.close()

    async def _follow_scalers(self) -> None:
        """Autoscalers are not served everywhere, and nothing waits for them."""
        await until_served(self.client, "autoscaling/v2", "horizontalpodautoscalers", speed=self.speed)
        await Informer(
            self.client,
            _SCALERS,
            ScalerView,
            self._observer(ScalerObserved),
            lambda: self._closing.append(self._accounting.close_scalers),
        ).run()

    async def _follow_devices(self) -> None:
        """Devices of `resource.k8s.io`: not all API servers serve them."""
        while True:
            try:
                await self.client.get(f"/apis/{_DEVICES}")
                break
            except Unreachable:
                await asyncio.sleep(_EVERY / self.speed)
            except ApiError as error:
                if error.code != _NOT_FOUND:
                    break  # what is wrong the informers report
                self._listed(SLICE.plural)
                self._listed(RESOURCE_CLAIM.plural)
                await until_served(self.client, _DEVICES, SLICE.plural, speed=self.speed)
                break
        slices = Informer(
            self.client,
            SLICE.path,
            SLICE.view,
            self._observer(SliceObserved),
            lambda: self._listed(SLICE.plural),
            key=lambda metadata: metadata.name,
        )
        listed = lambda: self._listed(RESOURCE_CLAIM.plural)  # noqa: E731
        claims = Informer(self.client, RESOURCE_CLAIM.path, RESOURCE_CLAIM.view, self._observer(ClaimObserved), listed)
        async with asyncio.TaskGroup() as group:
            group.create_task(slices.run())
            group.create_task(claims.run())

    async def _begin_without_devices(self) -> None:
        """Without rights on devices the rest is recorded all the same."""
        await asyncio.sleep(_WITHOUT_DEVICES / self.speed)
        self._listed(SLICE.plural)
        self._listed(RESOURCE_CLAIM.plural)

    def _listed(self, what: str) -> None:
        self._missing.discard(what)

    def _namespaces_changed(self, change: Change[_Namespace]) -> None:
        labels = (change.view.metadata.labels or {}) if change.view is not None else {}
        self._queues[change.key] = labels.get(names.DEFAULT_QUEUE_LABEL, "")

    def _groups_changed(self, change: Change[views.PodGroup]) -> None:
        if change.view is None:
            self._groups.pop(change.key, None)
        elif not change.error:
            self._groups[change.key] = change.view

    def _observer(self, observed: Callable[[str, Any, float], Observation]) -> Callable[[list[Change[Any]]], None]:
        """Takes an informer's changes; those that cannot be read are left out."""

        def take(change: Change[Any]) -> None:
            if not change.error:
                self._note(observed(change.key, change.view, self.client.clock()))

        return self.faults.each("history.observed", take)

    def _note(self, observed: Observation) -> None:
        if len(self._observed) < _MOST_KEPT:
            self._observed.append(observed)
        elif len(self._observed) == _MOST_KEPT:
            log.error("too many unwritten records: further changes are lost until the database answers")

    async def _flush(self) -> None:
        """Nothing before all is known: default queues are labels of namespaces."""
        now = self.client.clock()
        if self._missing or not (self._observed or now - self._written >= _ALIVE):
            return
        if self._releases is not None and not self._releases.synced:
            return
        batch, self._observed = [each for each in self._observed if self._is_ours(each)], []
        try:
            if self._superseded is not None and now - self._superseded >= _TAKE_BACK:
                await self._aside(self.history.take_over)
                self._superseded = None
            await self._aside(self._record, batch, now)
        except HistoryError as error:
            if self._superseded is None and isinstance(error, SupersededError):
                self._superseded = now
            self.failures += 1
            self._observed = [*batch, *self._observed]
            log.error("history", error=str(error))
        except Exception as error:  # noqa: BLE001 - the history stops no work: what cannot be kept is lost
            self.failures += 1
            self.faults.note("history", "", error)
            self._written = now
        else:
            self._written = now
        unreported, self._unreported = self._unreported, []
        for site, subject, fault in unreported:
            self.faults.note(site, subject, fault, _POD if site == "history.records" and "/" in subject else None)

    def _is_ours(self, observed: Observation) -> bool:
        """Whether it is not of an AIJob that another release runs; pods are distinguished by their schedulers."""
        job = observed.job if isinstance(observed, JobObserved) else None
        if job is None or self._releases is None:
            return True
        admitted = job.status.queue if job.status is not None else ""
        return self._releases.serves(job.metadata.namespace, admitted or job.spec.queue)

    async def _aside(self, call: Callable[..., None], *arguments: Any) -> None:
        await asyncio.to_thread(call, *arguments)

    def _record(self, batch: list[Observation], now: float) -> None:
        self._accounting.apply(batch, now)
        while self._closing:
            try:
                self._closing[0]()
            except HistoryError:
                raise
            except Exception as error:  # noqa: BLE001 - one entry costs itself only
                self._unreported.append(("history.records", "", error))
            del self._closing[0]
        batch.clear()  # it was taken in, and is not to be applied again where its rows cannot be written
        self.rows += self._accounting.write(now)
        if now - self._added_up >= _ADD_UP:
            self._added_up = now
            if self.history.add_up(now - self.keep, now):
                self._added_up = 0.0  # the next day with the next rows
        if now - self._forgot >= _DAY:
            self.history.forget(now - self.keep)
            self._forgot = now


def _pool_observed(name: str, view: PoolView | None, at: float) -> PoolObserved:
    return PoolObserved(name, view.spec if view is not None else None, at)

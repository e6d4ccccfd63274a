"""The aggregated API `external.metrics.k8s.io`: what HorizontalPodAutoscalers follow of Fairlead's queues.

    /apis/external.metrics.k8s.io/v1beta1/namespaces/NS/METRIC?labelSelector=queue%3DNAME

Each metric has one value per queue, with that of the queues below it, and the label `queue`. A namespace sees the
queues that it may use (`may_follow`). The HorizontalPodAutoscaler controller asks with one account for all autoscalers, so
RBAC cannot distinguish them; the namespace of the request does. The leader answers from its state as it is, between two
passes. What is unknown has no value, never zero: before all objects have been observed, and for queues that do not exist,
autoscalers keep the size they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from aiohttp import web

from fairlead.api import names
from fairlead.cluster.kubernetes.aggregated import AggregatedApi, refusal
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.endpoints import Service
from fairlead.cluster.label_queries import LabelQueryError, Test, parse
from fairlead.cluster.times import timestamp
from fairlead.core.model.selectors import matches
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.queue_node import QueueNode
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.queue_metrics import METRICS, Backlog

GROUP, VERSION = names.EXTERNAL_METRICS_GROUP, names.EXTERNAL_METRICS_VERSION
BASE = f"/apis/{GROUP}/{VERSION}"

_LIMIT = 10.0  # seconds


class _Core(Protocol):
    @property
    def synced(self) -> bool: ...

    def ask(self, question: Callable[[CoreLoop], dict[str, Backlog]]) -> Future[dict[str, Backlog]]: ...


class ExternalMetrics:
    """Serves on `host:port` while it runs. service: that leads to it."""

    def __init__(self, client: Client, address: str, service: Service, core: _Core, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        routes = [("namespaces/{namespace}/{metric}", self._values)]
        chart = "charts/external-metrics.yaml"
        self._api = AggregatedApi(client, address, GROUP, VERSION, service, _RESOURCES, routes, chart)

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._api.run()

    async def _values(self, request: web.Request) -> web.Response:
        name = request.match_info["metric"]
        read = METRICS.get(name)
        if read is None:
            return refusal(404, "NotFound", f"unknown metric {name!r}; available: {', '.join(METRICS)}")
        try:
            wanted = parse(request.query.get("labelSelector", ""))
        except LabelQueryError as error:
            return refusal(400, "BadRequest", str(error))
        if not self._core.synced:
            return refusal(503, "ServiceUnavailable", "the scheduler's caches are not synchronized yet")
        now, namespace = self._clock(), request.match_info["namespace"]
        try:
            async with asyncio.timeout(_LIMIT):
                found = await asyncio.wrap_future(self._core.ask(lambda core: backlogs(core, namespace, wanted, now)))
        except TimeoutError:
            return refusal(503, "ServiceUnavailable", "the scheduler is busy; retry")
        at = timestamp(now)
        items = [
            {"metricName": name, "metricLabels": {"queue": queue}, "timestamp": at, "value": _quantity(read(backlog))}
            for queue, backlog in sorted(found.items())
        ]
        body = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        return web.json_response(body)


def backlogs(core: CoreLoop, namespace: str, wanted: Test | None, now: float) -> dict[str, Backlog]:
    """Queue -> what waits in it, for the queues that are there, that the namespace may follow, and whose label is selected."""
    queues = core.state.queues
    below: dict[str, list[QueueNode]] = {}
    for node in queues.queues.values():
        for above in node.path:
            below.setdefault(above.name, []).append(node)
    return {
        name: backlog(core, below[name], now)
        for name, node in queues.queues.items()
        if node.exists and (wanted is None or wanted({"queue": name})) and may_follow(core, namespace, node, below[name])
    }


def may_follow(core: CoreLoop, namespace: str, node: QueueNode, below: Sequence[QueueNode]) -> bool:
    """Whether a namespace sees what waits in a queue: if it may use the queue, and each queue above it.

    Which of the namespace's users asks is not known. So a queue that names users is visible once a pod of one of them is there,
    waiting or running, in the queue or in one below it.
    """
    labels = dict(core.state.admission.namespaces.get(namespace, {}))
    if not all(matches(each.policy.namespaces, labels) for each in node.path):
        return False
    named = [set(each.policy.users) for each in node.path if each.policy.users is not None]
    if not named:
        return True
    users = set.intersection(*named)
    return namespace in users or any(task.user in users for task in _tasks(below) if task.pod.namespace == namespace)


def _tasks(nodes: Sequence[QueueNode]) -> Iterator[Task]:
    """What runs and what waits in these queues."""
    for node in nodes:
        yield from node.placed.values()
        for pending_class in node.pending_classes.values():
            for unit in pending_class.units:
                yield from unit.tasks


def backlog(core: CoreLoop, nodes: list[QueueNode], now: float) -> Backlog:
    """What waits in these queues.

    Its wait is the longest of any job's: since it was made, and from now on until it is expected to start.
    """
    jobs, milli, wait = 0, 0, 0.0
    for pending_class in (pending_class for node in nodes for pending_class in node.pending_classes.values()):
        jobs += pending_class.waiting
        milli += core.state.queues.waiting.devices_waited_for(pending_class)
        for unit in pending_class.units:
            since = now - unit.created
            start = core.reports.starts.of(unit.tasks[0].job)
            wait = max(wait, since + (max(0.0, start - now) if start is not None else 0.0))
    return Backlog(jobs, milli / WHOLE, wait)


def _quantity(value: float) -> str:
    """A number as Kubernetes writes it, in thousandths where it is not whole."""
    return str(int(value)) if float(value).is_integer() else f"{round(value * 1000)}m"


_RESOURCES: list[dict[str, Any]] = [
    {"name": name, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    for name in METRICS
]

"""What pods and nodes use of what the pods of a node share, asked of Prometheus, and written where the scheduler observes it.

Two metrics are asked for, which recording rules make of whatever exporters a cluster has, as ratios of the node's capacity:
`fairlead_pod_pressure_ratio{namespace, pod, kind}` and `fairlead_node_load_ratio{node, kind}`; kinds as in `api/pressure`.
A third is `fairlead_pod_speed{namespace, pod}`: steps per second, as a job reports them.
They become annotations with the time. A pod is written when it is measured first, and when a kind has changed much since; a node
while something of it is in use, before what was written is too old. What is not measured is not written.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from fairlead.api import names, pressure, speeds
from fairlead.cluster.kubernetes.client import ApiError, Unreachable, encode
from fairlead.cluster.times import timestamp
from fairlead.observability.prometheus import PrometheusError

log = structlog.get_logger("measured")

EVERY = 20.0
"""Seconds between two measurements. What is written of a node counts for 60."""
POD_METRIC, NODE_METRIC = "fairlead_pod_pressure_ratio", "fairlead_node_load_ratio"
SPEED_METRIC = "fairlead_pod_speed"
_MERGE = "application/merge-patch+json"
_MUCH = 100  # thousandths by which a kind must have changed
_IN_USE = 100  # thousandths: a node with less of everything is not written again
_RENEWED = 35.0  # seconds
_SPEED_RENEWED = 60.0  # seconds after which a speed is written again: who is beside a pod may be another since
_FASTER = 0.05  # the part by which a speed must have changed to be written sooner
_AT_ONCE = 8
_MOST_WRITES = 500  # for each measurement; the others follow with the next

Shares = dict[str, tuple[int, ...]]


class Asked(Protocol):
    """A Prometheus."""

    async def query(self, question: str, labels: tuple[str, ...]) -> Mapping[tuple[str, ...], float]:
        """The value of each series, by the values of some labels. Raises `PrometheusError`."""


class Patched(Protocol):
    """An API server that takes patches, with its clock."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the epoch."""

    async def patch(self, path: str, body: bytes, kind: str) -> bytes:
        """PATCH with the given patch type."""


class Measured:
    """Measures while it runs. failures: measurements and writes that failed."""

    def __init__(self, prometheus: Asked, client: Patched, *, speed: float = 1.0) -> None:
        self.failures = 0
        self._prometheus = prometheus
        self._client = client
        self._speed = speed
        self._pods: Shares = {}  # as written, by path
        self._nodes: dict[str, tuple[float, tuple[int, ...]]] = {}
        self._speeds: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            await asyncio.sleep(EVERY / self._speed)
            await self.measure()

    async def measure(self) -> None:
        """Ask once, and write what is news. A failure is logged; what was written before grows old."""
        now = self._client.clock()
        try:
            pods = await self._prometheus.query(POD_METRIC, ("namespace", "pod", "kind"))
            nodes = await self._prometheus.query(NODE_METRIC, ("node", "kind"))
            speeds_of = await self._prometheus.query(SPEED_METRIC, ("namespace", "pod"))
        except PrometheusError as error:
            self.failures += 1
            log.warning("what pods and nodes use is not known", error=str(error)[:300])
            return
        of_pods = _shares(pods, pressure.KINDS, lambda key: f"/api/v1/namespaces/{key[0]}/pods/{key[1]}")
        of_nodes = _shares(nodes, pressure.LOADS, lambda key: f"/api/v1/nodes/{key[0]}")
        self._pods = {path: found for path, found in self._pods.items() if path in of_pods}
        self._nodes = {path: found for path, found in self._nodes.items() if path in of_nodes}
        news = [(path, found, True) for path, found in of_pods.items() if self._is_news(path, found)]
        news += [(path, found, False) for path, found in of_nodes.items() if self._is_due(path, found, now)]
        slots = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._write(path, found, now, slots, pod=pod) for path, found, pod in news[:_MOST_WRITES]))
        of_speeds = {
            f"/api/v1/namespaces/{namespace}/pods/{name}": speed
            for (namespace, name), speed in sorted(speeds_of.items())
            if all(each and "/" not in each for each in (namespace, name)) and 0 <= speed < speeds.MOST
        }
        self._speeds = {path: known for path, known in self._speeds.items() if path in of_speeds}
        due = [(path, speed) for path, speed in of_speeds.items() if self._is_speed_due(path, speed, now)]
        await asyncio.gather(*(self._write_speed(path, speed, now, slots) for path, speed in due[:_MOST_WRITES]))

    def _is_news(self, path: str, found: tuple[int, ...]) -> bool:
        before = self._pods.get(path)
        return before is None or _differ(before, found)

    def _is_due(self, path: str, found: tuple[int, ...], now: float) -> bool:
        at, before = self._nodes.get(path, (0.0, ()))
        if not before:
            return max(found) >= _IN_USE
        return _differ(before, found) or (max(found) >= _IN_USE and now >= at + _RENEWED)

    def _is_speed_due(self, path: str, speed: float, now: float) -> bool:
        at, before = self._speeds.get(path, (-_SPEED_RENEWED, 0.0))
        return now >= at + _SPEED_RENEWED or abs(speed - before) > _FASTER * max(speed, before)

    async def _write_speed(self, path: str, speed: float, now: float, slots: asyncio.Semaphore) -> None:
        async with slots:
            if await self._annotate(path, names.MEASURED_SPEED_ANNOTATION, speeds.written(timestamp(now), speed)):
                self._speeds[path] = now, speed

    async def _write(self, path: str, found: tuple[int, ...], now: float, slots: asyncio.Semaphore, *, pod: bool) -> None:
        name, kinds = (names.MEASURED_PRESSURE_ANNOTATION, pressure.KINDS) if pod else (names.LOAD_ANNOTATION, pressure.LOADS)
        amounts = [f"{kind}={amount / 10:g}%" for kind, amount in zip(kinds, found, strict=True)]
        text = ",".join([f"{pressure.AT}={timestamp(now)}", *amounts])
        async with slots:
            if not await self._annotate(path, name, text):
                return
        if pod:
            self._pods[path] = found
        else:
            self._nodes[path] = now, found

    async def _annotate(self, path: str, name: str, text: str) -> bool:
        """Whether it was written."""
        try:
            await self._client.patch(path, encode({"metadata": {"annotations": {name: text}}}), _MERGE)
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiError) or error.code != 404:  # it may be gone by now
                self.failures += 1
                log.warning("a measurement is not written", path=path, error=str(error)[:300])
            return False
        return True


def _shares(answer: Mapping[tuple[str, ...], float], kinds: tuple[str, ...], path_of: Callable[[tuple[str, ...]], str]) -> Shares:
    """Thousandths by kind, of what each series is about. What has no name, no number or another kind is left out."""
    found: dict[str, list[int]] = {}
    for key, value in sorted(answer.items()):
        *named, kind = key
        if kind in kinds and all(each and "/" not in each for each in named) and math.isfinite(value):
            amounts = found.setdefault(path_of(tuple(named)), [0] * len(kinds))
            amounts[kinds.index(kind)] = min(pressure.MOST_LOAD, max(0, round(value * 1000)))
    return {path: tuple(amounts) for path, amounts in found.items()}


def _differ(before: tuple[int, ...], found: tuple[int, ...]) -> bool:
    return any(abs(old - new) >= _MUCH for old, new in zip(before, found, strict=True))

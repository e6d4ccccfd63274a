"""What a scrape of /metrics costs where there are many queues and jobs: over HTTP, from a core that holds them all."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time

import aiohttp
import msgspec

from fairlead.cluster.port import Synced, Upsert
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.units import WHOLE
from fairlead.observability.endpoints import served
from fairlead.observability.metrics import Metrics, Values, of_scheduler
from fairlead.scheduler.core_loop import CoreLoop
from fairlead.scheduler.gauges import of_snapshot
from fairlead.scheduler.metrics_snapshot import SNAPSHOT_ACTION
from fairlead.scheduler.writing.counters import WriteCounters

_GPU = "nvidia.com/gpu"
_GIB = 1 << 30
_NOW = 1e6


class Scrape(msgspec.Struct):
    """The result. snapshot_milliseconds: on the core's thread, at most every 5 s; scrape: over HTTP, on others."""

    queues: int
    jobs: int
    series: int
    kilobytes: float
    snapshot_milliseconds: float
    scrape_milliseconds: float
    slowest_scrape_milliseconds: float


def run(queues: int, jobs: int, repeats: int = 10) -> Scrape:
    """Fill a core, take its snapshot, and scrape it. Half of the jobs run."""
    core = CoreLoop(Policy(), lambda _: None)
    core.snapshots.rest = 1e-9
    nodes = max(1, jobs // 16)
    core.apply(
        [Upsert(Node(f"n-{n}", {"cpu": 128_000, "memory": 2048 * _GIB, "pods": 110, _GPU: 8})) for n in range(nodes)], _NOW
    )
    given = [_queue(number) for number in range(queues)]
    core.apply([Upsert(queue) for queue in given], _NOW)
    spec = PodSpec(requests=(("cpu", 4000), ("memory", 32 * _GIB), (_GPU, 1)))
    pods = [Pod(f"uid-{n}", "bench", f"job-{n}", spec, queue=given[n % queues].name, created=_NOW - n) for n in range(jobs)]
    core.apply([*(Upsert(pod) for pod in pods), Synced()], _NOW)
    core.decide(_NOW)
    while core.has_work:
        core.decide(_NOW + 1)
    took = []
    for number in range(repeats):
        before = core.counters.actions.get(SNAPSHOT_ACTION, 0.0)
        core.decide(_NOW + 10 + number)
        took.append(core.counters.actions[SNAPSHOT_ACTION] - before)
    text, times = asyncio.run(_scraped(core, repeats))
    series = sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    return Scrape(
        queues=queues,
        jobs=jobs,
        series=series,
        kilobytes=round(len(text) / 1000, 1),
        snapshot_milliseconds=round(1000 * statistics.median(took), 2),
        scrape_milliseconds=round(1000 * statistics.median(times), 2),
        slowest_scrape_milliseconds=round(1000 * max(times), 2),
    )


def _queue(number: int) -> Queue:
    """Every tenth is one's parent; all have a quota and a limit of three resources."""
    parent = f"queue-{number // 10 * 10:04d}" if number % 10 else ""
    amounts = ((_GPU, WHOLE), ("cpu", 16_000), ("memory", 128 * _GIB))
    scale = 10 if number % 10 == 0 else 1
    resources = tuple(QueueResource(name, quota=amount * 4 * scale, limit=amount * 4096 * scale) for name, amount in amounts)
    return Queue(f"queue-{number:04d}", parent=parent, resources=resources)


async def _scraped(core: CoreLoop, repeats: int) -> tuple[str, list[float]]:
    def values() -> Values:
        yield from of_scheduler(core.counters, WriteCounters(), 0)
        yield from of_snapshot(core.snapshots.latest)

    metrics = Metrics(values)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    text, times = "", []
    async with (
        served(address, lambda: asyncio.to_thread(metrics.render), lambda: "", lambda: "", lambda: ""),
        aiohttp.ClientSession() as session,
    ):
        for _ in range(repeats):
            begun = time.perf_counter()
            async with session.get(f"http://{address}/metrics") as reply:
                text = await reply.text()
            times.append(time.perf_counter() - begun)
    return text, times

"""A month of faults with the history kept beside it: every hour of every node is a user's, or idle.

The days of `chaos` (nodes that go, preemption, crashes, killed schedulers), with prices on the pools, and a recorder that is
killed again and again, without a last word, and goes on from its database. In the end the ledger must balance.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import Partition, SimulatedTransport
from fairlead.observability.ledger import Ledger, ledger
from fairlead.observability.store import History
from fairlead.operator.recorder import Recorder
from fairlead.simulation.chaos import Run, Settings, collect_rarely, silence
from fairlead.simulation.workload import Job
from fairlead.simulation.world import POOLS

_EVERY = 30.0  # seconds between two writes
_HOUR = 3600.0
_JOBS = 150  # a day: what waits must not pile up over a month
_PRICES = {"h100": 55.04, "a100": 26.4, "t4": 4.21}


class Costs(msgspec.Struct):
    """The result. balance: what jobs and idle cost more than the nodes. clean: no invariant was broken."""

    days: float
    seed: int
    jobs_finished: int
    recorder_kills: int
    scheduler_starts: int
    restarts: int
    stays: int
    runs: int
    gpu_hours_held: float
    gpu_hours_idle: float
    cost_of_jobs: float
    cost_of_idle: float
    cost_of_nodes: float
    balance: float
    overheld_gpu_hours: float
    clean: bool
    wall_seconds: float


class _Inline(Recorder):
    """Writes on the loop: its time is virtual, and must not go by while a thread writes."""

    killed = False

    async def _flush(self) -> None:
        if not self.killed:
            await super()._flush()

    async def _aside(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)


class _Costed(Run):
    def __init__(self, seed: int, settings: Settings, folder: Path) -> None:
        super().__init__(seed, settings, None)
        self.url = f"sqlite:///{folder}/history.db"
        self.kills = 0
        self.begun = self.world.clock.now()
        for pool in POOLS:
            self._price(pool.name, _PRICES[pool.name])

    def _jobs(self) -> list[Job]:
        """Whole devices: profile `kubernetes` gives them out by amounts, as upstream, where others hold fractions of them."""
        return [msgspec.structs.replace(job, milli=1000) for job in super()._jobs()]

    def _price(self, pool: str, price: float) -> None:
        manifest = {
            "apiVersion": names.API_VERSION,
            "kind": "NodePool",
            "metadata": {"name": pool},
            "spec": {
                "nodeSelector": {"matchLabels": {names.POOL_LABELS[-1]: pool}},
                "price": {"perNodeHour": price},
            },
        }
        api = self.world.api
        api.create(api.served(names.API_VERSION, "nodepools"), "", manifest)

    async def record_history(self) -> None:
        """One recorder after the other."""
        while True:
            transport = SimulatedTransport(self.world.wire, self.plan, latency=0.002, partition=Partition())
            async with Client(Config("http://simulated"), transport=transport, clock=self.world.clock.now) as client:
                recorder = _Inline(client, self.url, speed=1 / _EVERY)
                await recorder.open()
                task = asyncio.create_task(recorder.run())
                try:
                    await asyncio.sleep(self.random.uniform(2 * _HOUR, 40 * _HOUR))
                    recorder.killed = True
                    self.kills += 1
                finally:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
            await asyncio.sleep(self.random.uniform(1.0, 600.0))


def run(days: float, seed: int) -> Costs:
    """So many days; the ledger of all of them."""
    begun = time.perf_counter()
    silence()
    collect_rarely()
    settings = Settings(hours=24.0 * days, jobs=int(_JOBS * days))
    with tempfile.TemporaryDirectory(prefix="fairlead-costs-") as folder:

        async def main() -> tuple[_Costed, Any]:
            lived = _Costed(seed, settings, Path(folder))
            recording = asyncio.create_task(lived.record_history())
            outcome = await lived.run()
            recording.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await recording
            return lived, outcome

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            lived, outcome = runner.run(main())
        store = History(lived.url, create=False)
        end = lived.world.clock.now()
        stays, runs = store.held(lived.begun, end)
        store.close()
    found: Ledger = ledger(stays, (each for each, _ in runs), lived.begun, end, lambda each: each.queue, end)
    jobs = sum(line.cost.get("USD", 0.0) for line in found.lines)
    held = sum(line.gpu_hours for line in found.lines)
    return Costs(
        days=days,
        seed=seed,
        jobs_finished=outcome.jobs_finished,
        recorder_kills=lived.kills,
        scheduler_starts=outcome.scheduler_starts,
        restarts=outcome.restarts,
        stays=len(stays),
        runs=len(runs),
        gpu_hours_held=round(held, 3),
        gpu_hours_idle=round(found.idle.gpu_hours, 3),
        cost_of_jobs=round(jobs, 4),
        cost_of_idle=round(found.idle.cost.get("USD", 0.0), 4),
        cost_of_nodes=round(found.nodes.cost.get("USD", 0.0), 4),
        balance=round(found.balance.get("USD", 0.0), 4),
        overheld_gpu_hours=round(held + found.idle.gpu_hours - found.nodes.gpu_hours, 4),
        clean=not outcome.violations,
        wall_seconds=round(time.perf_counter() - begun, 1),
    )

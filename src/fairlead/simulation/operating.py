"""An operator over many AIJobs: what a change of a pod costs it, and what it takes while nothing happens.

Operator and API server are those of every simulation; pods are bound by hand, so that no scheduler is measured with them.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable

import msgspec

from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.kubelet import Timing
from fairlead.cluster.simulated.resources import PODS
from fairlead.cluster.simulated.store import Change, Key
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.operator.app import Operator, Options
from fairlead.simulation.aijobs import ai_job, node, until
from fairlead.simulation.charged import ChargedLoop, at_the_expense_of
from fairlead.simulation.world import World

_NAMESPACE = "vision"
_GPUS = 8  # of a node
_SETTLED = 2.0  # seconds without any write after which nothing is left to do
_SCRAPE = 15.0  # seconds between two readings of the metrics
_AT_ONCE = 20  # jobs that end, and as many that begin
_OPERATOR = "operator"


class OperatorBench(msgspec.Struct):
    """The result. idle_core: of a core, while nothing happens and metrics are read; event_ms: CPU time for a change of a pod.

    dependent: whether every second job waits for the one before; start_ms: CPU time for a job at the start, its pod made;
    events: changes of pods that were measured.
    """

    jobs: int
    dependent: bool
    start_ms: float
    idle_core: float
    events: int
    event_ms: float


class Operated:
    """An operator and so many jobs of one member, half of which run, on the running loop. dependent: the others wait for these.

    changes: of pods, so far.
    """

    def __init__(self, jobs: int, *, dependent: bool) -> None:
        self.jobs = jobs
        self.changes = 0
        self._running: deque[tuple[Key, str]] = deque()
        self._waiting: deque[Key] = deque()
        self._made = (jobs + 1) // 2 if dependent else jobs
        self.world = world = World(nodes=0, seed=1, timing=Timing(start=0.0, stop=0.0))
        loop = asyncio.get_running_loop()
        if isinstance(loop, ChargedLoop):
            world.wire.handle = loop.free(world.wire.handle)  # type: ignore[method-assign]
        world.api.store.listen(PODS, self._changed)
        for number in range(-(-jobs // (2 * _GPUS))):
            world.create(node(f"n{number:05d}", _GPUS))
        for number in range(jobs):
            first = [{"job": f"job-{number - 1:05d}"}] if dependent and number % 2 else []
            world.create(ai_job(f"job-{number:05d}", 1, seconds=None, dependsOn=first), _NAMESPACE)
        client = Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now)
        options = Options(leader_elect=False, address="", max_waiting_pods=jobs, max_waiting_pods_per_namespace=jobs)
        self._client = client
        self._operator = Operator(client, options)
        self._tasks: list[asyncio.Task[None]] = []

    def _changed(self, change: Change) -> None:
        self.changes += 1
        if change.kind == "ADDED":
            self._waiting.append(change.key)

    def start(self) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._scrape())]

    async def _run(self) -> None:
        async with self._client:
            await self._operator.run()

    async def _scrape(self) -> None:
        while True:
            await asyncio.sleep(_SCRAPE)
            self._operator.metrics.render()

    async def begun(self) -> None:
        """Wait until every job has its pod that may have one, and half of the jobs run."""
        await until(lambda: len(self._waiting) == self._made, limit=100_000)
        for number in range((self.jobs + 1) // 2):
            self._bind(f"n{number // _GPUS:05d}")
        await self._settle()

    async def _settle(self) -> None:
        before = -1
        while before != self.world.api.store.version:
            before = self.world.api.store.version
            await asyncio.sleep(_SETTLED)

    def _bind(self, target: str) -> None:
        key = self._waiting.popleft()
        self.world.api.bind(*key, {"target": {"name": target}})
        self._running.append((key, target))

    async def step(self) -> None:
        """Some jobs end, and as many begin to run in their places."""
        ended = [self._running.popleft() for _ in range(min(_AT_ONCE, len(self._running)))]
        for key, _ in ended:
            self.world.kubelet.end(key)
        await self._settle()
        for _, target in ended[: len(self._waiting)]:
            self._bind(target)
        await self._settle()

    async def stop(self) -> None:
        """End in good order."""
        self._operator.stop()
        self._tasks[1].cancel()
        await self._tasks[0]


def operator(
    jobs: int = 20_000,
    *,
    dependent: bool = False,
    steps: int = 20,
    idle: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
) -> OperatorBench:
    """Measure. steps: of 20 jobs that end and 20 that begin; idle: seconds in which nothing happens."""
    collecting = gc.isenabled()
    gc.disable()  # as in the operator's own process, where everything old is frozen
    try:
        with asyncio.Runner(loop_factory=ChargedLoop) as runner:
            return runner.run(_measured(jobs, dependent, steps, idle, progress))
    finally:
        if collecting:
            gc.enable()


async def _measured(
    jobs: int, dependent: bool, steps: int, idle: float, progress: Callable[[int, int], None] | None
) -> OperatorBench:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, ChargedLoop):
        raise TypeError("an operator is measured on a ChargedLoop")
    operated = Operated(jobs, dependent=dependent)
    at_the_expense_of(_OPERATOR, operated.start)
    await operated.begun()
    started = loop.charged[_OPERATOR]
    await asyncio.sleep(idle)
    idled, before = loop.charged[_OPERATOR], operated.changes
    for number in range(steps):
        await operated.step()
        if progress is not None:
            progress(number + 1, steps)
    changes = operated.changes - before
    event_ms = (loop.charged[_OPERATOR] - idled) * 1000 / changes
    await operated.stop()
    return OperatorBench(
        jobs,
        dependent,
        round(started * 1000 / jobs, 3),
        round((idled - started) / idle, 5),
        changes,
        round(event_ms, 4),
    )

"""The schedulers of a day full of faults, one after the other, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import random

import msgspec

from fairlead.core.model.policy import Policy
from fairlead.scheduler.core_loop import Recorder
from fairlead.scheduler.options import Options
from fairlead.simulation.audit import Auditor
from fairlead.simulation.users import Strike
from fairlead.simulation.world import Process, World

POLICY = Policy(recheck=0.0)
"""A waking that is missing is found here, not made up for."""
OPTIONS = Options(policy=POLICY, address="", lease_duration=180.0, lease_renew=130.0, lease_retry=60.0, writers=16)


class Schedulers:
    """passes: of those that were accounted for. recorder: of the first one's decisions; events: whether they write any."""

    def __init__(
        self, world: World, auditor: Auditor, chances: random.Random, *, recorder: Recorder | None, events: bool
    ) -> None:
        self.processes: list[Process] = []
        self.passes = 0
        self._world = world
        self._auditor = auditor
        self._random = chances
        self._recorder = recorder
        self._options = msgspec.structs.replace(OPTIONS, events=events)

    @property
    def current(self) -> Process:
        """The one that should lead."""
        return self.processes[-1]

    async def start(self, *, skew: float = 0.0, rate: float = 1.0) -> None:
        """Start one more. skew, rate: of its clock."""
        process = Process(
            self._world,
            len(self.processes),
            options=self._options,
            skew=skew,
            rate=rate,
            recorder=None if self.processes else self._recorder,
        )
        self.processes.append(process)
        process.start()
        await asyncio.sleep(0.0)
        process.core.after_pass = lambda: self._auditor.walk(process)

    def latest(self) -> float:
        """The time by that clock which is most ahead, of the last ones: what one has decided may be written after its end."""
        return max(process.client.clock() for process in self.processes[-3:])

    def account(self, process: Process) -> None:
        """Count what one did, before it ends."""
        if process.scheduler is not None:
            self.passes += process.core.counters.passes
            if process.core.counters.errors:
                self._auditor.violations.append(
                    f"{process.core.counters.errors} errors in the core of scheduler {self.processes.index(process)}"
                )

    def strikes(self) -> list[tuple[str, Strike]]:
        """What may go wrong with them."""
        return [
            ("relist", self._relist),
            ("scheduler_killed", self._kill),
            ("two_leaders", self._two_leaders),
            ("lease_lost", self._lose_lease),
            ("partition", self._cut_off),
            ("clock_skewed", self._skew),
        ]

    async def _relist(self) -> None:
        if self.current.scheduler is not None and not self.current.ended:
            self.current.scheduler.relist()

    async def _kill(self) -> None:
        """Kill -9, at whatever point the process is; its successor starts a little later."""
        old = self.current
        self.account(old)
        await old.kill()
        await asyncio.sleep(self._random.uniform(0.5, 20.0))
        await self.start()

    async def _two_leaders(self) -> None:
        """A second instance starts while the first is alive; the one that holds the lease decides."""
        old = self.current
        await self.start()
        await asyncio.sleep(self._random.uniform(1.0, 60.0))
        self.account(old)
        await (old.kill() if self._random.random() < 0.5 else old.stop())

    async def _lose_lease(self) -> None:
        """The leader cannot renew but can still bind: fencing must hold it off once another leads."""
        old = self.current
        old.partition.cut_paths = "/leases"
        await self.start()
        await asyncio.sleep(self._random.uniform(0.5 * OPTIONS.lease_duration, 2.0 * OPTIONS.lease_duration))
        self.account(old)
        await old.kill()

    async def _cut_off(self) -> None:
        """The leader reaches nothing for a while and then everything again."""
        self.current.partition.cut = True
        partition = self.current.partition
        await asyncio.sleep(self._random.uniform(5.0, 150.0))
        partition.cut = False

    async def _skew(self) -> None:
        """The next instance's clock is wrong by minutes and runs at another rate."""
        old = self.current
        self.account(old)
        await old.kill()
        await self.start(skew=self._random.uniform(-300, 300), rate=self._random.choice((0.5, 1.0, 2.0)))

"""Deterministic simulation: a cluster, its users, the scheduler and every kind of fault on one seeded clock.

Faults come in storms; between them the cluster must settle. Everything that happens, down to the order
of two tasks on the loop, follows from the seed, so a failing seed is a bug report.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster.simulated.api import PODS
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.errors import StatusError
from fairlead.cluster.simulated.faults import FaultPlan
from fairlead.cluster.simulated.store import Key, Object
from fairlead.core.model.objects import Policy
from fairlead.scheduler.app import Options
from fairlead.scheduler.core_loop import Recorder
from fairlead.scheduler.decision_log import LogWriter
from fairlead.simulation.audit import Auditor
from fairlead.simulation.people import People, Strike
from fairlead.simulation.researchers import Researchers
from fairlead.simulation.tenants import Tenants
from fairlead.simulation.workload import TEAMS, Job, crowded
from fairlead.simulation.world import GPU, POOLS, Process, World

_HOUR = 3600.0
_EVERY, _FIRST, _STORM, _CALM = 5.5 * _HOUR, 1 * _HOUR, 45 * 60.0, 15 * 60.0
_SOON = 1.0  # seconds within which what is due is awaited before the settled state is judged
_WAITS = 30  # so often at most: something is always due somewhere
_STILL = 10.0  # seconds without a write, by the slower clock, before the settled state is judged: a search rests as long
_PATIENCE = 2 * _HOUR
_DRAIN = 96 * _HOUR  # in which whatever was submitted must come to its end, where that is promised
_POLICY = Policy(look_again=0.0)  # a waking that is missing is found here, not made up for
_LEASE = Options(policy=_POLICY, address="", lease_duration=180.0, lease_renew=130.0, lease_retry=60.0, writers=16)
_STALLS = ("ImagePullBackOff: Back-off pulling image", "ErrImagePull: no such host", "ContainerCreating")
_POISONS: tuple[Object, ...] = (
    {"resources": {"requests": {"memory": "10E"}}},
    {"resources": {"requests": {"cpu": str(2**63 - 1)}}},
    {"resources": {"requests": {"memory": "1e1000"}}},
    {"resources": {"limits": {"nvidia.com/gpu": "1000000"}}},
    {"resources": {"requests": {"cpu": "1n"}}},
)


class Outcome(msgspec.Struct):
    """What a run came to. digest: equal for equal runs."""

    seed: int
    virtual_hours: float
    jobs_submitted: int
    jobs_finished: int
    bindings: int
    passes: int
    restarts: int
    scheduler_starts: int
    settled_checks: int
    fault_kinds: int
    faults: dict[str, int]
    violations: list[str]
    digest: str
    wall_seconds: float


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. faults: whether any happen at all. workload: one of `WORKLOADS`."""

    nodes: int = 50
    jobs: int = 300
    hours: float = 24.0
    faults: bool = True
    workload: str = "pods"


WORKLOADS = ("pods", "aijobs")
"""Pods and PodGroups of a small job controller; AIJobs and Jobs of classes of service, with the operator beside the scheduler."""


def run(seed: int, settings: Settings | None = None, record: Path | None = None) -> Outcome:
    """One seed, from the beginning to the end. record: write the first scheduler's decision log there."""
    settings = settings or Settings()
    silence()

    async def main(recorder: Recorder | None) -> Outcome:
        return await Run(seed, settings, recorder).run()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        if record is None:
            return runner.run(main(None))
        with record.open("wb") as file:
            return runner.run(main(LogWriter(file, _POLICY)))


def run_quietly(work: tuple[int, Settings]) -> Outcome:
    """One seed for a pool of processes."""
    collect_rarely()
    return run(*work)


def silence() -> None:
    """No log: faults fill it."""
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet, logger_factory=structlog.ReturnLoggerFactory())


def collect_rarely() -> None:
    """For a process of its own: little here is garbage that only the collector finds, some 5 MB of each day."""
    if next(_DAYS) % _COLLECT_EVERY == 0:
        gc.collect()
        gc.freeze()  # as the scheduler does once it has heard of everything
        gc.set_threshold(1_000_000, 50, 1000)  # 6 % of a day's time


_COLLECT_EVERY = 64
_DAYS = count()  # that this process has run


class Run:
    """One seed's run."""

    def __init__(self, seed: int, settings: Settings, recorder: Recorder | None) -> None:
        self.seed = seed
        self.settings = settings
        self.random = random.Random(f"chaos {seed}")
        self.plan = FaultPlan(seed)
        self.world = World(nodes=settings.nodes, seed=seed, plan=self.plan, limits=1.6, latency=0.002)
        self.auditor = Auditor(self.world)
        self.people = self._people()
        self.faults: Counter[str] = Counter()
        self.processes: list[Process] = []
        self.checks = 0
        self.passes = 0
        self.repairs: list[Callable[[], object]] = []
        self._recorder = recorder
        self._storm_on = False
        self.world.kubelet.refuses = self._refuses
        self.world.kubelet.stalls = self._stalls
        self._starts = random.Random(f"starts {seed}")
        self._stalled: dict[str, str] = {}  # uid -> why its containers do not start while the storm lasts

    def _people(self) -> People:
        jobs = self._jobs()
        return Researchers(self.world, jobs, self.seed) if self.settings.workload == "aijobs" else Tenants(self.world, jobs)

    def _jobs(self) -> list[Job]:
        settings = self.settings
        return crowded(self.seed, settings.jobs, settings.hours * _HOUR, tuple(pool.name for pool in POOLS))

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return asyncio.get_running_loop().time()

    async def run(self) -> Outcome:
        """Storms and calms until the time is over, then a last calm."""
        begun = time.perf_counter()
        asyncio.get_running_loop().set_exception_handler(self._failed)
        horizon = self.settings.hours * _HOUR
        await self._start()
        self.people.start()
        storm = _FIRST
        while storm + _STORM + _CALM < horizon and self.settings.faults:
            await self._until(storm)
            await self._storm()
            await self._until(storm + _STORM + _CALM)
            await self._settle()
            storm += _EVERY
        await self._until(horizon)
        await self._settle()
        if not self.people.done:
            await self._drain()
        for process in self.processes:
            self._account(process)
            await process.stop()
        await self.people.stop()
        counts = self.plan.counts + self.faults
        return Outcome(
            seed=self.seed,
            virtual_hours=self.now / _HOUR,
            jobs_submitted=len(self.people.submitted),
            jobs_finished=len(self.people.finished),
            bindings=self.auditor.bindings,
            passes=self.passes,
            restarts=self.people.restarts,
            scheduler_starts=len(self.processes),
            settled_checks=self.checks,
            fault_kinds=len(counts),
            faults=dict(sorted(counts.items())),
            violations=self.auditor.violations,
            digest=self.auditor.digest,
            wall_seconds=time.perf_counter() - begun,
        )

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Nothing may raise where nobody catches it."""
        self.auditor.violations.append(f"uncaught: {context.get('message')}: {context.get('exception')!r}")

    async def _until(self, at: float) -> None:
        """Time passes; a scheduler that ended by itself is started again, as a kubelet would."""
        while (left := at - self.now) > 0:
            await asyncio.sleep(min(left, 20.0))
            if self.process.ended:
                await self._start()

    # -- the scheduler -------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """The one that should lead."""
        return self.processes[-1]

    async def _start(self, *, skew: float = 0.0, rate: float = 1.0) -> None:
        options = msgspec.structs.replace(_LEASE, events=self.seed % 25 == 0)  # events are a third of all writes
        process = Process(
            self.world,
            len(self.processes),
            options=options,
            skew=skew,
            rate=rate,
            recorder=None if self.processes else self._recorder,
        )
        self.processes.append(process)
        process.start()
        await asyncio.sleep(0.0)
        process.core.after_pass = lambda: self._passed(process)

    def _passed(self, process: Process) -> None:
        self.auditor.walk(process)

    def _account(self, process: Process) -> None:
        if process.scheduler is not None:
            self.passes += process.core.counters.passes
            if process.core.counters.errors:
                self.auditor.violations.append(
                    f"{process.core.counters.errors} errors in the core of scheduler {self.processes.index(process)}"
                )

    # -- calm ----------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Nobody disturbs anything any more, and nobody is limited: whatever was submitted comes to its end."""
        for team in TEAMS:
            self._set_limit(team, self.world.gpus)
        end = self.now + _DRAIN
        while not self.people.done and self.now < end:
            await self._until(self.now + 600.0)
        self.auditor.violations += self.people.unfinished()
        await self._settle()

    async def _settle(self) -> None:
        """Wait for a moment at which nothing is on its way, then judge."""
        deadline, waited = self.now + _PATIENCE, 0
        while self.now < deadline:
            await self._until(self.now + 1.0)
            still = (self.world.clock.now() - self.auditor.changed_at) * min(1.0, self.process.rate) >= _STILL
            scheduler = self.process.scheduler
            if (
                still
                and self.process.deciding
                and scheduler is not None
                and scheduler.applier.idle
                and not self.process.core.busy
            ):
                due = self.process.core.state.next_due
                if due is None or due > self.process.client.clock() + _SOON or waited >= _WAITS:
                    break
                waited += 1  # what is decided within the second is judged when it is
        else:
            self.auditor.violations.append(
                f"seed {self.seed}: not settled within {_PATIENCE / 60:g} minutes at {self.world.clock.text()}"
            )
            return
        self.checks += 1
        self.auditor.settled(self.process)
        self.auditor.violations += [f"{self.world.clock.text()} settled: {each}" for each in self.people.wrong()]

    # -- storm ---------------------------------------------------------------------------------

    async def _storm(self) -> None:
        """Everything goes wrong for a while, then all of it is repaired."""
        kinds: list[tuple[str, Strike]] = [
            ("node_lost", self._lose_node),
            ("node_deleted", self._delete_node),
            ("node_shrunk", self._shrink_node),
            ("node_cordoned", self._cordon_node),
            ("pod_crash", self._crash_pod),
            ("pod_stuck", self._stick_pod),
            ("pod_deleted", self._delete_pod),
            ("foreign_binding", self._bind_outsider),
            ("limit_edited", self._edit_limit),
            ("queue_deleted", self._delete_queue),
            ("poison_object", self._poison),
            ("relist", self._relist),
            ("scheduler_killed", self._kill),
            ("two_leaders", self._two_leaders),
            ("lease_lost", self._lose_lease),
            ("partition", self._cut_off),
            ("clock_skewed", self._skew),
            *self.people.strikes(),
        ]
        self.plan.on = self._storm_on = True
        end = self.now + _STORM
        while self.now < end:
            name, strike = self.random.choice(kinds)
            self.faults[name] += 1
            await strike()
            await self._until(min(end, self.now + self.random.uniform(10.0, 150.0)))
        self.plan.on = self._storm_on = False
        for repair in self.repairs:
            repair()
        self.repairs.clear()
        self._stalled.clear()
        self.world.kubelet.stuck.clear()
        if self.process.ended or self.process.partition.cut:
            self.process.partition.cut = False
            await self._until(self.now + 1.0)

    def _refuses(self, _: Object) -> str:
        if self._storm_on and self.random.random() < 0.03:
            self.faults["kubelet_refusal"] += 1
            return "UnexpectedAdmissionError"
        return ""

    def _stalls(self, pod: Object) -> str:
        """Some pods that begin in a storm do not start before it is over."""
        uid = pod["metadata"]["uid"]
        if not self._storm_on:
            self._stalled.pop(uid, None)
            return ""
        if uid not in self._stalled:
            self._stalled[uid] = self._starts.choice(_STALLS) if self._starts.random() < 0.05 else ""
            self.faults["start_failure"] += bool(self._stalled[uid])
        return self._stalled[uid]

    def _some_node(self) -> str:
        present = [name for name in self.world.manifests if self.world.has_node(name)]
        return self.random.choice(present)

    def _some_pod(self, *, bound: bool) -> Key | None:
        found = sorted(
            key
            for key, record in self.world.api.store.records(PODS)
            if bool(record.object["spec"].get("nodeName")) is bound
            and record.object["status"].get("phase") in ("Pending", "Running")
        )
        return self.random.choice(found) if found else None

    async def _lose_node(self) -> None:
        name = self._some_node()
        self.world.kubelet.lose(name)
        self.repairs.append(lambda: self.world.kubelet.recover(name))
        if self.random.random() < 0.5:
            self.world.clock.call_later(self.random.uniform(20, 900), lambda: self.world.kubelet.recover(name))

    async def _delete_node(self) -> None:
        name = self._some_node()

        def again() -> None:
            if not self.world.has_node(name):
                self.world.add_node(name)

        self._quietly(lambda: self.world.api.delete(self.world.api.served("v1", "nodes"), "", name))
        self.repairs.append(again)
        if self.random.random() < 0.5:
            self.world.clock.call_later(self.random.uniform(1, 300), again)

    async def _shrink_node(self) -> None:
        name = self._some_node()
        whole = self.world.allocatable(name)
        self.world.kubelet.resize(name, {GPU: str(max(0, int(whole[GPU]) - self.random.randint(1, 4)))})
        self.auditor.disturbed(name)
        self.repairs.append(lambda: self.world.kubelet.resize(name, whole))

    async def _cordon_node(self) -> None:
        name = self._some_node()

        def cordon(on: bool) -> None:
            patch = {"spec": {"unschedulable": on or None}}
            nodes = self.world.api.served("v1", "nodes")
            self._quietly(lambda: self.world.api.patch(nodes, "", name, "application/merge-patch+json", patch))

        cordon(on=True)
        self.repairs.append(lambda: cordon(on=False))

    async def _crash_pod(self) -> None:
        key = self._some_pod(bound=True)
        if key is not None:
            self.world.kubelet.crash(key)

    async def _stick_pod(self) -> None:
        key = self._some_pod(bound=True)
        if key is not None:
            record = self.world.api.store.get(PODS, key)
            if record is not None:
                self.world.kubelet.stuck.add(record.object["metadata"]["uid"])
                await self._delete(key)

    async def _delete_pod(self) -> None:
        key = self._some_pod(bound=self.random.random() < 0.5)
        if key is not None:
            await self._delete(key)

    async def _delete(self, key: Key) -> None:
        self._quietly(lambda: self.world.api.delete(self.world.api.served("v1", "pods"), *key))

    async def _bind_outsider(self) -> None:
        """Another scheduler places a pod where ours may be about to."""
        name = f"outsider-{self.random.getrandbits(32):08x}"
        node = self._some_node()
        container = {
            "name": "main",
            "image": "x",
            "resources": {"requests": {"cpu": "8", GPU: "2"}, "limits": {GPU: "2"}},
        }
        pod = {
            "metadata": {"name": name, "annotations": {names.SIMULATED_DURATION_ANNOTATION: "1200s"}},
            "spec": {"containers": [container], "schedulerName": "other", "restartPolicy": "Never"},
        }
        pods = self.world.api.served("v1", "pods")
        self.world.api.create(pods, "default", pod)
        self.world.api.bind("default", name, {"target": {"kind": "Node", "name": node}})
        self.repairs.append(lambda: self._quietly(lambda: self.world.api.delete(pods, "default", name)))

    async def _edit_limit(self) -> None:
        self._set_limit(self.random.choice(TEAMS), max(8, int(self.world.gpus * self.random.uniform(0.1, 0.9))))

    def _set_limit(self, team: str, gpus: int) -> None:
        queues = self.world.api.served(names.API_VERSION, "queues")
        try:
            spec = self.world.api.get(queues, "", team).object["spec"]
        except StatusError:
            return
        resource = {**spec["resources"][0], "limit": gpus}
        patch = {"spec": {"resources": [resource]}}
        self.auditor.edited(team)
        self.world.api.patch(queues, "", team, "application/merge-patch+json", patch)

    async def _delete_queue(self) -> None:
        """A queue's object goes and comes back: what waits in it must neither be lost nor start unlimited."""
        team = self.random.choice(TEAMS)
        queues = self.world.api.served(names.API_VERSION, "queues")
        try:
            queue = self.world.api.get(queues, "", team).object
        except StatusError:
            return
        self.auditor.edited(team)
        self._quietly(lambda: self.world.api.delete(queues, "", team))

        def again() -> None:
            self.auditor.edited(team)
            self._quietly(lambda: self.world.api.create(queues, "", {"metadata": {"name": team}, "spec": queue["spec"]}))

        self.world.clock.call_later(self.random.uniform(1, 120), again)

    async def _poison(self) -> None:
        container = {"name": "main", "image": "x", **self.random.choice(_POISONS)}
        labels = {"fairlead.dev/queue": self.random.choice(("", "no-such-queue", self.random.choice(TEAMS)))}
        annotations = {names.GPU_FRACTION_ANNOTATION: self.random.choice(("0.5", "NaN", "-1", "x" * 5000, "1e-400"))}
        name = f"poison-{self.random.getrandbits(32):08x}"
        pod = {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {
                "containers": [container],
                "schedulerName": names.SCHEDULER_NAME,
                "nodeSelector": {"kubernetes.io/hostname": "nowhere"},
            },
        }
        pods = self.world.api.served("v1", "pods")
        self._quietly(lambda: self.world.api.create(pods, "default", pod))
        self.repairs.append(lambda: self._quietly(lambda: self.world.api.delete(pods, "default", name)))

    async def _relist(self) -> None:
        if self.process.scheduler is not None and not self.process.ended:
            self.process.scheduler.relist()

    async def _kill(self) -> None:
        """Kill -9, at whatever point the process is; its successor starts a little later."""
        old = self.process
        self._account(old)
        await old.kill()
        await asyncio.sleep(self.random.uniform(0.5, 20.0))
        await self._start()

    async def _two_leaders(self) -> None:
        """A second instance starts while the first is alive; whoever holds the lease decides."""
        old = self.process
        await self._start()
        await asyncio.sleep(self.random.uniform(1.0, 60.0))
        self._account(old)
        await (old.kill() if self.random.random() < 0.5 else old.stop())

    async def _lose_lease(self) -> None:
        """The leader cannot renew but can still bind: fencing must hold it off once another leads."""
        old = self.process
        old.partition.cut_paths = "/leases"
        await self._start()
        await asyncio.sleep(self.random.uniform(0.5 * _LEASE.lease_duration, 2.0 * _LEASE.lease_duration))
        self._account(old)
        await old.kill()

    async def _cut_off(self) -> None:
        """The leader reaches nothing for a while and then everything again."""
        self.process.partition.cut = True
        partition = self.process.partition
        await asyncio.sleep(self.random.uniform(5.0, 150.0))
        partition.cut = False

    async def _skew(self) -> None:
        """The next instance's clock is wrong by minutes and runs at another rate."""
        old = self.process
        self._account(old)
        await old.kill()
        await self._start(skew=self.random.uniform(-300, 300), rate=self.random.choice((0.5, 1.0, 2.0)))

    @staticmethod
    def _quietly(call: Callable[[], object]) -> None:
        try:
            call()
        except StatusError:
            return


def replay_command(seed: int, settings: Settings) -> str:
    """The command that repeats a run."""
    command = (
        f"fairlead simulate faults --seeds {seed} --nodes {settings.nodes} --jobs {settings.jobs} --hours {settings.hours:g}"
    )
    return command if settings.workload == "pods" else f"{command} --workload {settings.workload}"

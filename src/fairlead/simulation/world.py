"""A simulated cluster with everything in it: nodes in pools, queues, tenants, kubelets, and schedulers.

The scheduler in it is the production one, Kubernetes adapter included, on an in-process transport. The
demo, the deterministic simulation tests and the recorded days run on this.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from fairlead.api import crds, names, policies
from fairlead.api.names import HOSTNAME_LABEL
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.simulated.api.server import ApiServer
from fairlead.cluster.simulated.clock import Clock
from fairlead.cluster.simulated.controllers import Controllers
from fairlead.cluster.simulated.faults import FaultPlan
from fairlead.cluster.simulated.kubelet import Kubelet, Timing
from fairlead.cluster.simulated.resources import NODES
from fairlead.cluster.simulated.transport import Partition, SimulatedTransport
from fairlead.cluster.simulated.wire import Wire
from fairlead.core.model.policy import Policy
from fairlead.operator.app import Operator
from fairlead.operator.app import Options as OperatorOptions
from fairlead.scheduler.app import Scheduler, Simulation
from fairlead.scheduler.core_loop import Recorder
from fairlead.scheduler.inline_core import InlineCore
from fairlead.scheduler.options import Options
from fairlead.simulation.workload import TEAMS

GPU = "nvidia.com/gpu"
POOL_LABEL = "fairlead.dev/pool"
PRODUCT_LABEL = "nvidia.com/gpu.product"
REPLICAS_LABEL = f"{GPU}.replicas"
PRIORITIES = {"batch": 100, "urgent": 1000, "interactive": 5000, "serving": 10_000}
_SHARES = (5, 3, 2)  # of each team's quota, in tenths
_DEFINITIONS = ("apiextensions.k8s.io/v1", "customresourcedefinitions")
HISTORY = 10_000  # changes that the API server remembers for watches: some hours of a lab's; each holds two versions of an object
START = 1_767_225_600.0  # 2026-01-01: where virtual days begin


class Pool(msgspec.Struct, frozen=True):
    """Nodes of one make. share: of all nodes, in tenths."""

    name: str
    share: int
    gpus: int
    cpu: int
    product: str
    shares_gpus: bool = False


POOLS = (
    Pool("h100", 3, 8, 128, "H100"),
    Pool("a100", 5, 8, 96, "A100"),
    Pool("t4", 2, 4, 96, "T4", shares_gpus=True),
)


class World:
    """One cluster on the running loop. limits: cap each team's queue at this multiple of its quota; 0: no cap."""

    def __init__(
        self,
        *,
        nodes: int,
        seed: int,
        speed: float = 1.0,
        start: float = START,
        timing: Timing | None = None,
        plan: FaultPlan | None = None,
        limits: float = 0.0,
        latency: float = 0.0,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.seed = seed
        self.speed = speed
        self.plan = plan
        self.latency = latency
        self.clock = Clock(start=start, speed=speed, loop=loop)
        self.api = ApiServer(self.clock, seed=seed, history=HISTORY)
        self.wire = Wire(self.api)
        self.kubelet = Kubelet(self.api, timing)
        self.controllers = Controllers(self.api)
        self.pools: dict[str, list[str]] = {pool.name: [] for pool in POOLS}
        self.manifests: dict[str, dict[str, Any]] = {}
        self._install()
        for number in range(nodes):
            self._add_node(number, nodes)
        self.gpus = sum(int(each["status"]["allocatable"][GPU]) for each in self.manifests.values())
        self._add_queues(limits)

    # -- what there is -------------------------------------------------------------------------

    def create(self, manifest: dict[str, Any], namespace: str = "") -> dict[str, Any]:
        """Create an object. Raises `StatusError`."""
        resource = self.api.catalog.of_kind(manifest["apiVersion"], manifest["kind"])
        if resource is None:
            raise ValueError(f"{manifest['apiVersion']} {manifest['kind']} is not served")
        return self.api.create(resource, namespace if resource.namespaced else "", manifest)

    def _install(self) -> None:
        for definition in crds.definitions():
            self.create(definition)
        for policy in policies.fencing():
            self.create(policy)
        for name, value in PRIORITIES.items():
            self.create(
                {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            )

    def _add_node(self, number: int, of: int) -> None:
        place = 10 * number / of
        bounds = 0
        for pool in POOLS:
            bounds += pool.share
            if place < bounds:
                break
        name = f"{pool.name}-{len(self.pools[pool.name]):03d}"
        self.pools[pool.name].append(name)
        labels = {HOSTNAME_LABEL: name, POOL_LABEL: pool.name, PRODUCT_LABEL: pool.product}
        if pool.shares_gpus:
            labels[names.GPU_SHARING_LABEL] = names.OWN_AGENT
        amounts = {"cpu": str(pool.cpu), "memory": "1Ti", "pods": "110", GPU: str(pool.gpus)}
        self.manifests[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self.add_node(name)

    def add_host(self, name: str, labels: dict[str, str], amounts: dict[str, str]) -> None:
        """A node that the world did not begin with joins it. amounts: as its status has them."""
        self.manifests[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self.add_node(name)

    def add_node(self, name: str) -> None:
        """The node registers itself, for the first time or again."""
        manifest = self.manifests[name]
        self.create({**manifest, "metadata": {**manifest["metadata"]}, "status": {**manifest["status"]}})

    def _add_queues(self, limits: float) -> None:
        for team, tenths in zip(TEAMS, _SHARES, strict=True):
            self.create(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team, "labels": {names.DEFAULT_QUEUE_LABEL: team}}}
            )
            resource: dict[str, Any] = {"name": GPU, "quota": self.gpus * tenths // 10}
            if limits:
                resource["limit"] = int(self.gpus * tenths / 10 * limits)
            self.create(
                {
                    "apiVersion": names.API_VERSION,
                    "kind": "Queue",
                    "metadata": {"name": team},
                    "spec": {"resources": [resource]},
                }
            )

    def allocatable(self, node: str) -> dict[str, str]:
        """What a node offers when all is well."""
        amounts: dict[str, str] = self.manifests[node]["status"]["allocatable"]
        return amounts

    def has_node(self, name: str) -> bool:
        """Whether the node is registered."""
        return self.api.store.get(NODES, ("", name)) is not None


class Process:
    """One scheduler process in a world: it can be started, killed, cut off, and have a clock of its own."""

    def __init__(
        self,
        world: World,
        number: int,
        *,
        policy: Policy | None = None,
        recorder: Recorder | None = None,
        options: Options | None = None,
        skew: float = 0.0,
        rate: float = 1.0,
    ) -> None:
        self.rate = rate
        self.world = world
        self.partition = Partition()
        self.transport = SimulatedTransport(world.wire, world.plan, latency=world.latency, partition=self.partition)
        begun = world.clock.now()
        self.client = Client(
            Config("http://simulated"),
            transport=self.transport,
            clock=lambda: begun + (world.clock.now() - begun) * rate + skew,
        )
        self._options = options or Options(policy=policy or Policy(), address="")
        self._identity = f"scheduler-{number}"
        self._recorder = recorder
        self._task: asyncio.Task[None] | None = None
        self.scheduler: Scheduler | None = None
        self.killed = False

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.client:
            self.scheduler = Scheduler(
                self.client,
                self._options,
                simulation=Simulation(self.world.speed),
                identity=self._identity,
                recorder=self._recorder,
            )
            await self.scheduler.run()

    @property
    def core(self) -> InlineCore:
        """Its core."""
        if self.scheduler is None or not isinstance(self.scheduler.core, InlineCore):
            raise RuntimeError("the scheduler is not running")
        return self.scheduler.core

    @property
    def ended(self) -> bool:
        """Whether it has come to an end, by itself or not."""
        return self._task is not None and self._task.done()

    @property
    def deciding(self) -> bool:
        """Whether it leads and knows the cluster."""
        return not self.ended and self.scheduler is not None and self.core.synced

    async def kill(self) -> None:
        """End at once, as kill -9 does: nothing that has not reached the server ever will."""
        self.killed = True
        self.partition.cut = True
        self.transport.closed = True
        await self._end()

    async def stop(self) -> None:
        """End in good order."""
        if self.scheduler is not None:
            self.scheduler.stop()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=60)
        await self._end()

    async def _end(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task


class OperatorProcess:
    """One operator process in a world, beside the schedulers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.partition = Partition()
        self._transport = SimulatedTransport(world.wire, world.plan, latency=world.latency, partition=self.partition)
        self._client = Client(Config("http://simulated"), transport=self._transport, clock=world.clock.now)
        self._task: asyncio.Task[None] | None = None
        self.operator: Operator | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self._client:
            self.operator = Operator(self._client, OperatorOptions(leader_elect=False, address=""), speed=self._world.speed)
            await self.operator.run()

    async def kill(self) -> None:
        """End at once."""
        self._transport.closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task

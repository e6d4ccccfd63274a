"""Pods that ask for MIG partitions on nodes whose configurations follow what waits: the numbers behind `fairlead bench mig`.

The scheduler and the operator are the real ones; mig-manager is played (`manager.py`). Pods come in phases, each with a mix of
profiles of its own, so that what was a good configuration in one phase is not in the next. On the simulated API server
everything runs on virtual time; on a real one (`testbed/mig.py`) the same stream is played in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import ApiError, Client, create, encode
from fairlead.cluster.kubernetes.config import Config
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.kubernetes.listing import list_all
from fairlead.cluster.simulated.clock import VirtualLoop
from fairlead.cluster.simulated.transport import SimulatedTransport
from fairlead.cluster.times import seconds as at_seconds
from fairlead.cluster.translate import Change
from fairlead.core.mig.parts import PREFIX, WHOLE
from fairlead.simulation.chaos import silence
from fairlead.simulation.mig.manager import Fate, Manager, Result
from fairlead.simulation.world import OperatorProcess, Process, World

GPUS = 8
PRODUCT = "NVIDIA-A100-SXM4-40GB"
POOL = "a100-mig"
NAMESPACE = "default"
PROFILES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 3, "7g.40gb": 7}
_PER_GPU: dict[str, dict[str, int]] = {
    "all-1g.5gb": {"1g.5gb": 7},
    "all-2g.10gb": {"2g.10gb": 3},
    "all-3g.20gb": {"3g.20gb": 2},
    "all-7g.40gb": {"7g.40gb": 1},
    "all-balanced": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
}
FIRST = "all-balanced"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Stream(msgspec.Struct, frozen=True):
    """What is played. seconds are of the cluster's clock. load: of the compute slices. run: mean run time of a pod; phase: pods
    of one mix; apply: mean time that mig-manager takes; settle, pending_for, cooldown, timeout: of the pool's policy.
    fails, hangs: chances of a reconfiguration. static: the pool has no policy, for comparison.
    """

    nodes: int = 16
    pods: int = 1000
    seed: int = 1
    load: float = 0.7
    run: float = 600.0
    phase: int = 250
    apply: float = 120.0
    settle: float = 30.0
    pending_for: float = 30.0
    cooldown: float = 600.0
    timeout: float = 900.0
    fails: float = 0.03
    hangs: float = 0.02
    repair: float = 1800.0
    static: bool = False


_LEAST_SETTLE = 5.0
MOST_PER_POD = 0.2
"""Reconfigurations for each pod, at most."""


def faster(stream: Stream, times: float) -> Stream:
    """The same with all spans of time so many times shorter, for a cluster whose clock is the real one: but for `settle`,
    since bindings are as late as they are.
    """
    spans = ("run", "apply", "pending_for", "cooldown", "timeout", "repair")
    shorter = {name: getattr(stream, name) / times for name in spans}
    return msgspec.structs.replace(stream, settle=max(_LEAST_SETTLE, stream.settle / times), **shorter)


class Arrival(msgspec.Struct, frozen=True):
    """A pod. at: seconds after the start."""

    name: str
    at: float
    profile: str
    seconds: float


class MigBench(msgspec.Struct):
    """pods: that were created; placed: of these; reconfigurations: that mig-manager began; running_pods_hit: pods that had
    GPUs on a node at that time. rejected: pods that a kubelet refused for lack of partitions. wait_seconds: from creation to a
    node. outcomes: as the operator counted them. cordoned: nodes that are still closed at the end, though mig-manager has
    answered.
    """

    api_server: str
    nodes: int
    pods: int
    placed: int
    reconfigurations: int
    reconfigurations_per_pod: float
    running_pods_hit: int
    rejected: int
    wait_seconds_mean: float
    wait_seconds_p50: float
    wait_seconds_p99: float
    outcomes: dict[str, int]
    cordoned: int
    seconds: float


def layouts() -> dict[str, dict[str, int]]:
    """The resources of a node by configuration."""
    return {
        config: {f"{PREFIX}{profile}": count * GPUS for profile, count in partitions.items()}
        for config, partitions in _PER_GPU.items()
    } | {"all-disabled": {WHOLE: GPUS}}


def pool(stream: Stream) -> dict[str, Any]:
    """The NodePool with its policy."""
    configs: list[dict[str, Any]] = [
        {"name": name, "devices": [{"migDevices": partitions}]} for name, partitions in _PER_GPU.items()
    ]
    configs.append({"name": "all-disabled", "devices": [{"migEnabled": False}]})
    policy = {"gpusPerNode": GPUS, "configs": configs}
    policy |= {"pendingFor": _span(stream.pending_for), "settle": _span(stream.settle)}
    policy |= {"cooldown": _span(stream.cooldown), "timeout": _span(stream.timeout)}
    selector = {"matchLabels": {"nvidia.com/gpu.product": PRODUCT}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "NodePool",
        "metadata": {"name": POOL},
        "spec": {"nodeSelector": selector, **({} if stream.static else {"mig": policy})},
    }


def node(number: int) -> dict[str, Any]:
    """A node, with its first configuration."""
    name = f"mig-{number:03d}"
    labels = {names.HOSTNAME_LABEL: name, "nvidia.com/gpu.product": PRODUCT}
    labels |= {names.MIG_CONFIG_LABEL: FIRST, names.MIG_STATE_LABEL: "success"}
    amounts = {"cpu": "256", "memory": "2Ti", "pods": "110"} | {key: str(each) for key, each in layouts()[FIRST].items()}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def arrivals(stream: Stream) -> list[Arrival]:
    """Poisson, in phases: each has one or two profiles in front."""
    draw = Random(stream.seed)
    found: list[Arrival] = []
    at, weights = 0.0, dict.fromkeys(PROFILES, 1.0)
    for number in range(stream.pods):
        if number % stream.phase == 0:
            front = draw.sample(sorted(PROFILES), 2)
            weights = {profile: (8.0 if profile == front[0] else 4.0 if profile == front[1] else 0.5) for profile in PROFILES}
        mean = sum(weights[each] * PROFILES[each] for each in PROFILES) / sum(weights.values())
        at += draw.expovariate(stream.load * stream.nodes * GPUS * 7 / (mean * stream.run))
        profile = draw.choices(list(PROFILES), [weights[each] for each in PROFILES])[0]
        found.append(Arrival(f"pod-{number:05d}", at, profile, max(1.0, draw.expovariate(1 / stream.run))))
    return found


def pod(arrival: Arrival) -> dict[str, Any]:
    """Its manifest."""
    resources = {"limits": {f"{PREFIX}{arrival.profile}": "1"}, "requests": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": arrival.name,
            "namespace": NAMESPACE,
            "annotations": {names.SIMULATED_DURATION_ANNOTATION: f"{arrival.seconds:.1f}s"},
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [{"name": "main", "image": "registry.example/job:1", "resources": resources}],
        },
    }


def fates(stream: Stream) -> Callable[[str, str], Fate]:
    """What becomes of reconfigurations, one after another."""
    draw = Random(f"fates {stream.seed}")

    def fate(_node: str, _config: str) -> Fate:
        chance, took = draw.random(), stream.apply * (0.5 + draw.random())
        result = (
            Result.FAILED if chance < stream.fails else Result.HANGS if chance < stream.fails + stream.hangs else Result.SUCCESS
        )
        return Fate(result, took, delay=min(1.0, stream.apply / 10))

    return fate


class Watched:
    """What became of the pods. placed: seconds from creation to a node, by pod; rejected: by kubelets."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.placed: dict[str, float] = {}
        self.ended: set[str] = set()
        self.rejected: set[str] = set()
        self.changed = asyncio.Event()
        self.informer = Informer(client, "/api/v1/pods", views.Pod, self._changed, lambda: None)

    def _changed(self, changes: list[Change[views.Pod]]) -> None:
        for change in changes:
            view = change.view
            if view is None:
                self.ended.add(change.key)
                continue
            if view.spec.node_name and change.key not in self.placed:
                self.placed[change.key] = self.client.clock() - at_seconds(view.metadata.creation_timestamp)
            phase = view.status.phase if view.status is not None else ""
            if phase in ("Succeeded", "Failed"):
                self.ended.add(change.key)
            if phase == "Failed":
                self.rejected.add(change.key)
        self.changed.set()


async def play(
    client: Client, stream: Stream, *, speed: float, progress: Callable[[str], None] = lambda _: None
) -> tuple[Manager, Watched, float]:
    """Create the nodes and the pool, let the pods come, and wait until all have ended; the cluster's processes run.

    Returns mig-manager, what was seen of the pods, and how long it took by the client's clock.
    """
    manager = Manager(client, layouts(), fates(stream), speed=speed)
    watched = Watched(client)
    queue = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": names.DEFAULT_QUEUE}, "spec": {}}
    await create(client, f"/apis/{names.API_VERSION}/queues", queue)
    await create(client, f"/apis/{names.API_VERSION}/nodepools", pool(stream))
    for number in range(stream.nodes):
        await create(client, "/api/v1/nodes", node(number))
        await _be_ready(client, node(number))
    begun = client.clock()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (manager.run(), watched.informer.run(), _repair(client, stream, speed))]
        await asyncio.sleep(5.0 / speed)
        for number, arrival in enumerate(arrivals(stream)):
            wait = begun + arrival.at - client.clock()
            if wait > 0:
                await asyncio.sleep(wait / speed)
            await create(client, _PODS, pod(arrival))
            if number % 200 == 0:
                progress(f"{number} of {stream.pods} pods, {manager.reconfigurations} reconfigurations, {len(manager.hits)} hits")
        limit = 40 * stream.run + 4 * stream.timeout
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit / speed):
                while len(watched.ended) < stream.pods:
                    await watched.changed.wait()
                    watched.changed.clear()
        for task in tasks:
            task.cancel()
    return manager, watched, client.clock() - begun


async def _be_ready(client: Client, manifest: dict[str, Any]) -> None:
    """A real API server drops the status and taints the node as not ready."""
    path = f"/api/v1/nodes/{manifest['metadata']['name']}"
    merge = "application/merge-patch+json"
    await client.patch(f"{path}/status", encode({"status": manifest["status"]}), merge)
    await client.patch(path, encode({"spec": {"taints": None}}), merge)


async def _repair(client: Client, stream: Stream, speed: float) -> None:
    """An administrator: some time after a reconfiguration failed or hung, the node gets another configuration."""
    since: dict[str, float] = {}
    while True:
        await asyncio.sleep(stream.repair / 10 / speed)
        try:
            nodes = await list_all(client, "/api/v1/nodes", views.Node, selector=names.MIG_CONFIG_LABEL)
        except ApiError:
            continue
        for each in nodes:
            labels, name = each.metadata.labels or {}, each.metadata.name
            if labels.get(names.MIG_PHASE_LABEL) not in ("Failed", "Hung"):
                since.pop(name, None)
            elif client.clock() >= since.setdefault(name, client.clock()) + stream.repair:
                config = FIRST if labels.get(names.MIG_CONFIG_LABEL) != FIRST else "all-1g.5gb"
                body = encode({"metadata": {"labels": {names.MIG_CONFIG_LABEL: config}}})
                await client.patch(f"/api/v1/nodes/{name}", body, "application/merge-patch+json")
                since.pop(name, None)


async def result(
    client: Client, stream: Stream, played: tuple[Manager, Watched, float], outcomes: Mapping[str, int], server: str
) -> MigBench:
    """The numbers of a run."""
    manager, watched, took = played
    waits = sorted(watched.placed.values())
    closed = 0
    for each in await list_all(client, "/api/v1/nodes", views.Node, selector=names.MIG_PHASE_LABEL):
        closed += (each.metadata.labels or {}).get(names.MIG_STATE_LABEL) == "success"
    return MigBench(
        api_server=server,
        nodes=stream.nodes,
        pods=stream.pods,
        placed=len(watched.placed),
        reconfigurations=manager.reconfigurations,
        reconfigurations_per_pod=round(manager.reconfigurations / stream.pods, 4),
        running_pods_hit=len(manager.hits),
        rejected=len(watched.rejected),
        wait_seconds_mean=round(statistics.fmean(waits), 1) if waits else 0.0,
        wait_seconds_p50=round(statistics.median(waits), 1) if waits else 0.0,
        wait_seconds_p99=round(waits[min(len(waits) - 1, int(0.99 * len(waits)))], 1) if waits else 0.0,
        outcomes=dict(sorted(outcomes.items())),
        cordoned=closed,
        seconds=round(took, 1),
    )


def on_virtual_time(run: Callable[[], Awaitable[MigBench]]) -> MigBench:
    """Run on a loop whose time jumps."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_awaited(run))


async def _awaited(run: Callable[[], Awaitable[MigBench]]) -> MigBench:
    return await run()


def simulate(stream: Stream, progress: Callable[[str], None] = lambda _: None) -> MigBench:
    """The stream on the simulated API server, on virtual time."""

    async def run() -> MigBench:
        world = World(nodes=1, seed=stream.seed)
        scheduler, operator = Process(world, 1), OperatorProcess(world)
        async with Client(Config("http://simulated"), transport=SimulatedTransport(world.wire), clock=world.clock.now) as client:
            scheduler.start()
            operator.start()
            played = await play(client, stream, speed=1.0, progress=progress)
            outcomes: Counter[str] = operator.operator.mig.outcomes if operator.operator is not None else Counter()
            found = await result(client, stream, played, outcomes, "simulated")
            await operator.kill()
            await scheduler.stop()
        return found

    silence()
    return on_virtual_time(run)


def _span(seconds: float) -> str:
    return f"{seconds:g}s"

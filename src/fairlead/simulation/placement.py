"""The openb fragmentation experiment (FGD, USENIX ATC'23): pods arrive one by one until GPUs run out.

Each arrival is an event on the production state followed by a production pass; a pod that fits
nowhere is dropped, nothing departs. Allocation and fragmentation are recorded after every arrival
and averaged over all arrivals whose cumulative GPU request rounds to the same percent of capacity.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from fairlead.core import invariants
from fairlead.core.model.nodes import Node
from fairlead.core.model.pods import Pod, PodSpec
from fairlead.core.model.policy import Policy
from fairlead.core.model.selectors import Requirement, SelectorTerm
from fairlead.core.pods.scores.fgd import Demand, fragmentation, target_workload
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.traces import TraceNode, TracePod

_GPU = "nvidia.com/gpu"
_MODEL = "fairlead.dev/gpu-model"
_MIB = 1 << 20
_FIRST_COLUMN, _LAST_COLUMN = 5, 130


class PlacementRun(msgspec.Struct):
    """One seed. Maps are from arrived percent (as text) to the mean at that percent. wrong_model: placements on a GPU model that
    the pod does not allow.
    """

    seed: int
    allocation: dict[str, float]
    unallocated_gpus: dict[str, float]
    fragmentation: dict[str, float]
    pods: int
    placed: int
    wrong_model: int
    seconds: float


class PlacementResult(msgspec.Struct):
    """Means over the seeds, and the runs they are of."""

    strategy: str
    nodes: int
    gpus: int
    allocation: dict[str, float]
    unallocated_gpus: dict[str, float]
    fragmentation: dict[str, float]
    allocation_deviation: dict[str, float]
    runs: list[PlacementRun]
    pods_per_second: float


def arrivals(pods: Sequence[TracePod], capacity_milli: int, inflate: float, seed: int) -> list[TracePod]:
    """The order in which pods arrive: sorted by name, shuffled, then brought to `inflate` x capacity.

    Below: uniformly drawn copies are appended until the first draw that would overshoot (judged, as
    upstream does, by the pod's per-GPU amount). Above: uniformly drawn pods are removed until not above.
    """
    rng = random.Random(seed)
    originals = sorted(pods, key=lambda pod: pod.name)
    order = list(originals)
    rng.shuffle(order)
    target = inflate * capacity_milli
    total = sum(pod.gpus * pod.gpu_milli for pod in order)
    if total <= target:
        copies: Counter[str] = Counter()
        if not total:
            return order
        while True:
            drawn = originals[rng.randrange(len(originals))]
            if total + drawn.gpu_milli > target:
                return order
            copies[drawn.name] += 1
            order.append(msgspec.structs.replace(drawn, name=f"{drawn.name}-copy-{copies[drawn.name]}"))
            total += drawn.gpus * drawn.gpu_milli
    while total > target:
        gone = order.pop(rng.randrange(len(order)))
        total -= gone.gpus * gone.gpu_milli
    return order


def simulate(
    nodes: Sequence[TraceNode],
    pods: Sequence[TracePod],
    *,
    strategy: str,
    seeds: Sequence[int],
    inflate: float,
    progress: Callable[[int, int], None] | None = None,
) -> PlacementResult:
    """Run the experiment for each seed. progress: called with (arrivals done, arrivals in all) of a run."""
    counts = Counter((pod.cpu_milli, pod.gpus, pod.gpu_milli) for pod in pods)
    targets = target_workload(counts.items())
    runs = [_run(nodes, pods, strategy, seed, inflate, counts, targets, progress) for seed in seeds]
    means = {name: _mean([getattr(run, name) for run in runs]) for name in ("allocation", "unallocated_gpus", "fragmentation")}
    deviation = {
        column: _deviation([run.allocation[column] for run in runs if column in run.allocation]) for column in means["allocation"]
    }
    return PlacementResult(
        strategy=strategy,
        nodes=len([node for node in nodes if node.gpus]),
        gpus=sum(node.gpus for node in nodes),
        allocation=means["allocation"],
        unallocated_gpus=means["unallocated_gpus"],
        fragmentation=means["fragmentation"],
        allocation_deviation=deviation,
        runs=runs,
        pods_per_second=sum(run.pods for run in runs) / max(1e-9, sum(run.seconds for run in runs)),
    )


def _run(
    nodes: Sequence[TraceNode],
    pods: Sequence[TracePod],
    strategy: str,
    seed: int,
    inflate: float,
    counts: Counter[Demand],
    targets: list[tuple[Demand, float]],
    progress: Callable[[int, int], None] | None,
) -> PlacementRun:
    options: dict[str, object] = {}
    if strategy == "fgd":  # as published: it knows the list's distribution beforehand
        options["target"] = counts
    state = ClusterState(Policy(strategy=strategy, strategy_options=options, preempt=False))
    for node in nodes:
        if node.gpus:
            state.upsert_node(_node(node))
    capacity = state.nodes.total(_GPU) * 1000
    meter = _Meter(state, capacity, targets)
    order = arrivals(pods, capacity, inflate, seed)
    models = {node.name: node.model for node in nodes}
    seconds = 0.0
    placed = wrong_model = 0
    for number, pod in enumerate(order):
        start = time.perf_counter()
        uid = f"{seed}-{number}"
        state.upsert_pod(Pod(uid, "trace", pod.name, _spec(pod), created=float(number)))
        for _ in schedule(state, float(number)):
            pass
        row = state.tasks[uid].row
        if row < 0:
            state.remove_pod(uid)
        seconds += time.perf_counter() - start
        placed += row >= 0
        wrong_model += row >= 0 and bool(pod.models) and models[state.nodes.names[row]] not in pod.models
        meter.arrived(pod, row)
        if progress is not None and number % 256 == 0:
            progress(number, len(order))
    invariants.check(state)
    allocation, fragments = meter.columns(inflate)
    return PlacementRun(
        seed=seed,
        allocation=allocation,
        unallocated_gpus={column: (1 - value / 100) * capacity / 1000 for column, value in allocation.items()},
        fragmentation=fragments,
        pods=len(order),
        placed=placed,
        wrong_model=wrong_model,
        seconds=seconds,
    )


class _Meter:
    """Allocation and fragmentation after every arrival, averaged by arrived percent."""

    def __init__(self, state: ClusterState, capacity: int, targets: list[tuple[Demand, float]]) -> None:
        self.state = state
        self.capacity = capacity
        self.targets = targets
        self._thresholds = sorted({demand[0] for demand, _ in targets})
        self._memo: dict[tuple[tuple[int, ...], int], float] = {}
        self._of_row = {row: self._fragmented(row) for row in state.nodes.rows.values()}
        self._fragmented_milli = self._empty = sum(self._of_row.values())
        self._used = self._asked = 0
        self._sums: dict[int, list[float]] = {}

    def arrived(self, pod: TracePod, row: int) -> None:
        self._asked += pod.gpus * pod.gpu_milli
        if row >= 0:
            self._used += pod.gpus * pod.gpu_milli
            now = self._fragmented(row)
            self._fragmented_milli += now - self._of_row[row]
            self._of_row[row] = now
        percent = round(100 * self._asked / self.capacity)
        sums = self._sums.setdefault(percent, [0.0, 0.0, 0.0])
        sums[0] += 100 * self._used / self.capacity
        sums[1] += 100 * self._fragmented_milli / self.capacity
        sums[2] += 1

    def _fragmented(self, row: int) -> float:
        nodes = self.state.nodes
        cpu = nodes.cpu.item(row)
        free = nodes.devices.states[nodes.device.item(row)]
        key = (free, sum(cpu >= threshold for threshold in self._thresholds))
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = fragmentation(free, cpu, self.targets)
        return known

    def columns(self, inflate: float) -> tuple[dict[str, float], dict[str, float]]:
        """Allocation and fragmentation by column, up to the percent that was aimed at.

        A percent to which no arrival rounds, as in small clusters, has the figures of the one before.
        """
        allocation, fragments = {}, {}
        sums = [0.0, 100 * self._empty / self.capacity, 1.0]
        for percent in range(round(100 * inflate) + 1):
            sums = self._sums.get(percent, sums)
            if _FIRST_COLUMN <= percent <= _LAST_COLUMN:
                allocation[str(percent)] = sums[0] / sums[2]
                fragments[str(percent)] = sums[1] / sums[2]
        return allocation, fragments


def _node(node: TraceNode) -> Node:
    allocatable = {"cpu": node.cpu_milli, "memory": node.memory_mib * _MIB, "pods": 1 << 30, _GPU: node.gpus}
    return Node(node.name, allocatable, {_MODEL: node.model}, shares_gpus=True)


def _spec(pod: TracePod) -> PodSpec:
    requests = {"cpu": pod.cpu_milli, "memory": pod.memory_mib * _MIB, "pods": 1}
    if pod.gpus and pod.gpu_milli == 1000:
        requests[_GPU] = pod.gpus
    return PodSpec(
        tuple(sorted((resource, amount) for resource, amount in requests.items() if amount)),
        gpus=pod.gpus,
        gpu_milli=pod.gpu_milli or 1000,
        affinity=(SelectorTerm((Requirement(_MODEL, "In", pod.models),)),) if pod.models else None,
    )


def _mean(maps: list[dict[str, float]]) -> dict[str, float]:
    return {
        column: sum(each[column] for each in maps if column in each) / sum(column in each for each in maps)
        for column in max(maps, key=len, default={})
    }


def _deviation(values: list[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))

"""How fast the core decides: a full queue on an empty cluster, through the production pass."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable

import msgspec

from fairlead.core import invariants
from fairlead.core.model.groups import Group
from fairlead.core.model.pods import Pod
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue, QueueResource
from fairlead.core.model.transactions import Place
from fairlead.core.model.units import WHOLE
from fairlead.core.schedule import schedule
from fairlead.core.state.cluster import ClusterState
from fairlead.simulation.machines import GPU, GPUS_PER_NODE, node, spec


class PlacementBench(msgspec.Struct):
    """One run. seconds: the pass alone, from first to last transaction."""

    nodes: int
    pods: int
    shapes: int
    gang: int
    queues: int
    strategy: str
    placed: int
    seconds: float
    placements_per_second: float
    transactions: int
    peak_rss_mb: float


def placement(
    *,
    nodes: int,
    pods: int,
    shapes: int,
    gang: int = 1,
    queues: int = 10,
    strategy: str = "ai",
    progress: Callable[[int, int], None] | None = None,
) -> PlacementBench:
    """Place `pods` one-GPU pods of `shapes` shapes, in gangs of `gang`, from `queues` queues with quota."""
    state = ClusterState(Policy(strategy=strategy))
    for number in range(nodes):
        state.upsert_node(node(number))
    for _ in schedule(state, 0.0):  # the nodes are known before the pods come
        pass
    quota = nodes * GPUS_PER_NODE * WHOLE // queues
    for number in range(queues):
        state.upsert_queue(Queue(f"queue-{number:03d}", resources=(QueueResource(GPU, quota=quota),)))
    for number in range(pods):
        group = f"gang-{number // gang:06d}" if gang > 1 else ""
        if group and number % gang == 0:
            state.upsert_group(Group("bench", group, min_member=min(gang, pods - number)))
        queue = f"queue-{(number // gang) % queues:03d}"
        state.upsert_pod(_pod(number, (number // gang) % shapes, queue, group))
    gc.collect()
    gc.freeze()  # as the scheduler does once everything has been observed
    placed = transactions = 0
    start = time.perf_counter()
    for transaction in schedule(state, 0.0):
        transactions += 1
        if isinstance(transaction, Place):
            placed += len(transaction.bindings)
            if progress is not None and transactions % 1024 == 0:
                progress(placed, pods)
    seconds = time.perf_counter() - start
    invariants.check(state)
    return PlacementBench(
        nodes=nodes,
        pods=pods,
        shapes=shapes,
        gang=gang,
        queues=queues,
        strategy=strategy,
        placed=placed,
        seconds=seconds,
        placements_per_second=placed / seconds if seconds else 0.0,
        transactions=transactions,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _pod(number: int, shape: int, queue: str, group: str) -> Pod:
    return Pod(
        uid=f"{number}",
        namespace="bench",
        name=f"pod-{number:07d}",
        spec=spec(1, shape),
        queue=queue,
        group=group,
        created=float(number),
    )

"""What an event costs where queues limit users, jobs or pools, by pods that are known."""

from __future__ import annotations

from fairlead.core.model.nodes import Node
from fairlead.core.model.queues import Queue, QueueResource, UserLimits
from fairlead.core.model.units import WHOLE
from fairlead.simulation.growth.cluster import LATE, Cluster, empty, full, pod, running
from fairlead.simulation.growth.events import Events
from fairlead.simulation.machines import GPU, GPUS_PER_NODE, node, queue

_LABEL = "nvidia.com/gpu.product"
_POOL = "h100"
_MANY = 1_000_000


def queue_by_limited_pods(pods: int) -> Events:
    """A queue with limits of its users comes under one that has such, too, in which so many pods run."""
    top = queue("top", per_user=UserLimits(running=_MANY))
    cluster = full(pods // GPUS_PER_NODE, [top, queue("q", parent="top")], fill=["q"])

    def happens(round_: int) -> None:
        cluster.upsert(queue(f"new-{round_}", parent="top", per_user=UserLimits(running=2)))

    return Events(cluster, happens)


def node_by_pool_pods(pods: int) -> Events:
    """A node of a pool comes of which queues have parts, and so many pods run there."""
    cluster = Cluster()
    cluster.upsert(*[_in_pool(number) for number in range(pods // GPUS_PER_NODE)])
    part = QueueResource(GPU, quota=pods * WHOLE // 2, pool=_POOL)
    cluster.upsert(Queue("q", resources=(part,)), *running(pods // GPUS_PER_NODE))
    cluster.start()
    return Events(cluster, lambda round_: cluster.upsert(_in_pool(_MANY + round_)))


def _in_pool(number: int) -> Node:
    return node(number, labels={_LABEL: _POOL})


def pod_by_jobs_beyond(pods: int) -> Events:
    """A pod comes to a queue that limits submitted jobs, of a user within the limit; of another, half of the pods are beyond."""
    cluster = empty(pods // GPUS_PER_NODE + 10, [queue("q", per_user=UserLimits(submitted=pods // 2))])
    cluster.upsert(*[pod(f"run-{number}", user="many", created=float(number)) for number in range(pods)])
    cluster.upsert(*[pod(f"few-{number}", user=f"user-{number % 10}", created=float(number)) for number in range(50)])
    cluster.decide()
    cluster.upsert(pod("first", user="user-0", created=LATE))
    cluster.decide()  # who has a place now was counted
    return Events(cluster, lambda round_: cluster.upsert(pod(f"new-{round_}", user=f"user-{round_ % 10}", created=LATE)))

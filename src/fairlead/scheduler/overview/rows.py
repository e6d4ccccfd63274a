"""Rows of the overview: a job, a node, a queue, a quota. What shows them needs nothing of the core's state."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from fairlead.cluster.gpu_parts import held_milli
from fairlead.core.model.groups import Target
from fairlead.core.model.units import WHOLE

POD, POD_GROUP = "Pod", "PodGroup"


class State(StrEnum):
    """Where a job stands."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    ENDING = "Ending"
    SUSPENDED = "Suspended"
    RESTARTING = "Restarting"


class Why(msgspec.Struct, frozen=True, gc=False):
    """Why a job waits."""

    code: str
    message: str


class Job(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """One job: a pod group, a pod of its own, or an AIJob that has no pods now. gpus: what all its pods ask for.

    Times are in seconds since the epoch.

    expected_start: of a job that waits, as things stand; null where it is not foreseen. earliest_start, latest_start: it starts
    between them in eight cases of ten. spares: the node of each place that is reserved for its members beside them.
    """

    namespace: str
    name: str
    kind: str
    queue: str
    state: State
    pods: int
    running: int
    gpus: float
    priority: int
    submitted_at: float
    started_at: float | None = None
    nodes: list[str] = []
    reason: Why | None = None
    user: str = ""
    expected_start: float | None = None
    earliest_start: float | None = None
    latest_start: float | None = None
    spares: list[str] = []


def waits(job: Job) -> bool:
    """Whether none of its pods has a node."""
    return not job.nodes and job.state not in (State.RUNNING, State.ENDING)


class Others(msgspec.Struct, frozen=True, rename="camel"):
    """Jobs of other namespaces in one queue. gpus: what those that run hold; gpus_wanted: what the others ask for."""

    queue: str
    running: int
    pending: int
    gpus: float
    gpus_wanted: float


def suspended(namespace: str, name: str, target: Target, queue: str, created: float = 0.0) -> Job:
    """A suspended job without pods, by what its PodGroup keeps. queue: of the group; created: of it, where no pod is kept."""
    pods = [member.pod for member in target.members]
    return Job(
        namespace=namespace,
        name=name,
        kind=POD_GROUP,
        queue=queue or (pods[0].queue if pods else ""),
        state=State.SUSPENDED,
        pods=sum(member.count for member in target.members),
        running=0,
        gpus=sum(member.count * held_milli(member.pod.spec) for member in target.members) / WHOLE,
        priority=max((pod.priority for pod in pods), default=0),
        submitted_at=min((pod.created for pod in pods), default=created),
        user=pods[0].user if pods else "",
    )


class GpuPart(msgspec.Struct, frozen=True):
    """What a node offers that is less than a GPU. part_milli: thousandths of a GPU that one of it counts as.

    Of a driver's partitions, `DRIVER/PROFILE`, as many are offered as are used or would fit if no others were made.
    """

    resource: str
    part_milli: int
    offered: int
    used: int


class Domain(msgspec.Struct, frozen=True):
    """A domain of a topology level. name: the path of label values down to the level, `block/rack`."""

    level: str
    name: str


class SharedAmount(msgspec.Struct, frozen=True):
    """What the nodes of a pool share. used: what pods there take of it, and places that are kept; free: never below 0."""

    pool: str
    name: str
    declared: int
    used: int
    free: int


class NodeLine(msgspec.Struct, frozen=True):
    """One node. state: as sinfo's words: idle, mixed, allocated, drained, down; closed where something on it cannot be counted.

    gpus: a whole number but where there are partitions or replicas: these count as their parts of a GPU, see gpu_parts.
    gpu_free_milli: thousandths left of each GPU, as counted (the kubelet picks the real devices of plugins); where the device
    plugin offers partitions or replicas as `nvidia.com/gpu`, of each of these. GPUs of ResourceSlices follow.
    closed_by: what closes it: pods whose size cannot be known, or what of the node itself cannot be read.
    domains: where it is on the network, from the widest level of its pool to the narrowest of which it has the label.
    kept_gpus: the part of gpus_used on which no pod is: reserved for members that are replaced, or for followers.
    shared: what all nodes of its pools share.
    """

    name: str
    state: str
    gpu_model: str
    gpus: int | float
    gpus_used: float
    gpu_free_milli: list[int]
    cpu_milli: int
    cpu_milli_used: int
    memory_bytes: int
    memory_bytes_used: int
    pods: int
    closed_by: list[str] = []
    gpu_parts: list[GpuPart] = []
    domains: list[Domain] = []
    kept_gpus: float = 0.0
    shared: list[SharedAmount] = []


class Amount(msgspec.Struct, frozen=True):
    """One resource of a queue, in its own unit: devices, millicores, bytes. None: not given.

    fair_share: its deserved share now, None while all its siblings' demand can be met. weight: as given. foreign: the part of
    the allocation that pods of other schedulers hold.
    """

    resource: str
    allocated: float
    quota: float | None
    limit: float | None
    weight: int | str | None = None
    fair_share: float | None = None
    foreign: float = 0.0


class Share(msgspec.Struct, frozen=True):
    """One queue. share: what it holds as a part of its deserved share (1 is all of it); pending: pods that wait."""

    name: str
    parent: str
    priority: int
    share: float
    running: int
    pending: int
    resources: list[Amount]


class Shares(msgspec.Struct, frozen=True):
    """All queues. outside_queues: resource -> what pods hold for which no queue is charged, in its own unit.

    resource: what most queues are about: the GPUs that nodes offer, else CPUs.
    """

    queues: list[Share]
    outside_queues: dict[str, float] = {}
    resource: str = ""


class QuotaAmount(msgspec.Struct, frozen=True):
    """One resource of a queue in its own unit: devices, millicores, bytes. null: not limited, or not given.

    guaranteed_left: of its own quota. left: what it may still take before a limit, its own or of a queue above, stops it.
    """

    resource: str
    used: float
    quota: float | None
    guaranteed_left: float | None
    limit: float | None
    left: float | None


class User(msgspec.Struct, frozen=True):
    """One user in a queue. limits: what the queue allows each; null where it does not limit."""

    user: str
    used: dict[str, float]
    limits: dict[str, float]
    running: int
    running_limit: int | None
    submitted: int
    submitted_limit: int | None


class Quota(msgspec.Struct, frozen=True):
    """One queue. running, submitted: jobs, descendants' included. other_users: how many have jobs in it and are not listed."""

    queue: str
    parent: str
    resources: list[QuotaAmount]
    running: int
    running_limit: int | None
    submitted: int
    submitted_limit: int | None
    users: list[User]
    other_users: int = 0

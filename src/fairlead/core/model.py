"""What the core is told about: nodes, pods, queues and groups, free of any wire format.

All amounts are integers in base units (see `fairlead.api.quantity`). Objects are immutable; a
change arrives as a new object. `PodSpec` is everything that decides where a pod may run, so two
pods with equal specs are interchangeable for placement and share one shape.
"""

from __future__ import annotations

import msgspec

from fairlead.api.names import GPU_RESOURCES
from fairlead.api.reasons import Reason

WHOLE = 1000
"""Milli-units of one whole device."""


class Taint(msgspec.Struct, frozen=True):
    """A node's repellent; effects as in Kubernetes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(msgspec.Struct, frozen=True):
    """What a pod puts up with; empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True):
    """`key operator values`, operators as in a node selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class SelectorTerm(msgspec.Struct, frozen=True):
    """Requirements on labels and on fields, all of which must hold."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that decides where a pod may run.

    requests: (resource, amount) sorted by name, zero amounts left out, `pods: 1` included.
    gpus, gpu_milli: devices asked for and how much of each (1000 = whole devices).
    affinity: required node affinity, terms are alternatives; None means none was given, while an
    empty tuple matches nothing, as in Kubernetes.
    """

    requests: tuple[tuple[str, int], ...] = (("pods", 1),)
    gpus: int = 0
    gpu_milli: int = WHOLE
    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


class Pod(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One pod.

    node: where it is bound, or empty. created: seconds since the epoch, to the second.
    error: why its object cannot be used at all (bad quantity and the like), or None.
    ours: whether Fairlead places it; others only occupy their node.
    controlled: whether a controller would recreate it after an eviction.
    """

    uid: str
    namespace: str
    name: str
    spec: PodSpec
    queue: str = "default"
    group: str = ""
    priority: int = 0
    created: float = 0.0
    node: str = ""
    ours: bool = True
    gated: bool = False
    terminating: bool = False
    finished: bool = False
    never_preempts: bool = False
    controlled: bool = True
    error: Reason | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Node(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One node. `shares_gpus`: fractions of its devices can really be given out there."""

    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    shares_gpus: bool = False
    error: Reason | None = None


class QueueResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Quota and limit of one resource in base units (devices in milli); None means not given.

    The percentages, in thousandths of a percent, are of what all nodes together offer now.
    """

    name: str
    quota: int | None = None
    limit: int | None = None
    quota_percent: int | None = None
    limit_percent: int | None = None


class Queue(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A queue as the core sees it; parent empty: directly under the root."""

    name: str
    parent: str = ""
    priority: int = 0
    resources: tuple[QueueResource, ...] = ()


class Group(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PodGroup: `min_member` of its pods run, or none."""

    namespace: str
    name: str
    min_member: int = 1
    queue: str = ""
    created: float = 0.0

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide.

    strategy: name of a placement strategy. gpu_resources: which extended resources are devices.
    gang_grace: seconds after the last fault before a half-bound gang is taken down.
    backoff, backoff_limit: first and longest wait in seconds after a refused write.
    head_blocks: whether the first job of a queue that cannot start keeps all behind it waiting.
    strategy_options: passed to the strategy, e.g. the target workload of `fgd`.
    """

    strategy: str = "ai"
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    preempt: bool = True
    head_blocks: bool = False
    gang_grace: float = 60.0
    backoff: float = 1.0
    backoff_limit: float = 60.0
    strategy_options: dict[str, object] = {}

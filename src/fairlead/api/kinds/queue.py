"""Queue: who may use how much."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.kinds.common import (
    SPAN,
    Amount,
    Conditions,
    GroupReason,
    Kind,
    LabelSelector,
    Metadata,
    Quantity,
    Time,
    Weight,
)


class QueueResource(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue is given of one resource."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="Resource, e.g. nvidia.com/gpu or cpu.")]
    pool: Annotated[str, Meta(max_length=253, description="Only the nodes of this NodePool. Absent: all nodes.")] | None = None
    quota: Annotated[Amount, Meta(description="Guaranteed amount: a quantity or a percentage.")] | None = None
    limit: Annotated[Amount, Meta(description="Cap: a quantity or a percentage.")] | None = None
    weight: Annotated[Weight, Meta(description="Part of what is over: beside siblings', or a percentage.")] | None = None


class JobLimits(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How many jobs there may be; a job is a pod group, or a pod of its own."""

    running: Annotated[int, Meta(ge=0, description="Jobs that run at the same time.")] | None = None
    submitted: Annotated[int, Meta(ge=0, description="Jobs that wait or run; later ones do not even wait.")] | None = None


class UserLimits(JobLimits, rename="camel", kw_only=True, omit_defaults=True):
    """What one user may have."""

    resources: Annotated[dict[str, Quantity], Meta(description="Amounts that his pods may hold.")] = {}


class Budget(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue and those below it may cost. Nothing is stopped by it: it is told, and alerted."""

    amount: Annotated[float, Meta(ge=0, description="Within a period.")]
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$", description="ISO 4217; prices in others do not count.")] = "USD"
    period: Annotated[str, Meta(description="The time that counts, up to now.", pattern=SPAN)] = "30d"
    warn_percent: Annotated[int, Meta(ge=1, le=100, description="From which part of it on to warn.")] = 80


class QueueSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A node of the queue tree."""

    parent: Annotated[str, Meta(description="Parent queue. Absent: directly under the root.")] | None = None
    priority: Annotated[int, Meta(description="Band among its siblings; a higher band is served first.")] = 0
    resources: Annotated[list[QueueResource], Meta(max_length=64)] = []
    namespace_selector: (
        Annotated[LabelSelector, Meta(description="Namespaces whose pods may use the queue. Absent: all.")] | None
    ) = None
    users: Annotated[list[str], Meta(max_length=1024, description="Users who may use the queue. Absent: all.")] | None = None
    per_user: Annotated[UserLimits, Meta(description="Limits for each user, descendants' jobs included.")] | None = None
    jobs: Annotated[JobLimits, Meta(description="Limits for all users together, descendants' jobs included.")] | None = None
    user_fairness: Annotated[
        str,
        Meta(
            pattern="^(Order|Reclaim)$",
            description="Order: whoever holds least goes first. Reclaim: he may take from those who hold more, too.",
        ),
    ] = "Order"
    service_classes: (
        Annotated[list[str], Meta(max_length=64, description="Classes of service that may use the queue. Absent: all.")] | None
    ) = None
    budget: Annotated[Budget, Meta(description="What it may cost, by the prices of NodePools.")] | None = None


class UsageStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Device-seconds that were used of late, decayed to `at`."""

    device_seconds: float = 0.0
    at: Time
    users: Annotated[dict[str, float], Meta(description="Of its users, those who used most.")] = {}


class RunTimeStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How long jobs of one kind ran that ended of late: what the expected starts of others are learned from."""

    user: str = ""
    service_class: str = ""
    devices: Annotated[float, Meta(ge=0, description="Devices of the whole job.")] = 0.0
    seconds: Annotated[list[int], Meta(max_length=10, description="Run times, the oldest first.")] = []


class ForecastStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A start that was foretold and came: what the intervals of others are learned from."""

    devices: Annotated[float, Meta(ge=0, description="Devices of the whole job.")] = 0.0
    foretold: Annotated[int, Meta(ge=0, description="Seconds from its creation to its start, as foretold first.")] = 0
    waited: Annotated[int, Meta(ge=0, description="The same in truth.")] = 0


class QueueStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue holds now."""

    allocated: Annotated[dict[str, Quantity], Meta(description="Amounts held by placed pods.")] = {}
    pending: Annotated[int, Meta(ge=0, description="Pods waiting in this queue.")] = 0
    fair_share: Annotated[
        dict[str, Quantity], Meta(description="What is its due now, of resources that are scarce among its siblings.")
    ] = {}
    foreign: Annotated[
        dict[str, Quantity],
        Meta(description="Part of allocated: held by pods of other schedulers, charged to it by chargeForeignPods."),
    ] = {}
    usage: UsageStatus | None = None
    run_times: Annotated[list[RunTimeStatus], Meta(max_length=50, description="So that a restart does not forget them.")] = []
    forecasts: Annotated[list[ForecastStatus], Meta(max_length=20, description="Likewise: starts that were foretold.")] = []
    reason: Annotated[GroupReason, Meta(description="Why the first job that waits in it does.")] | None = None
    conditions: Conditions = []


class Queue(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A queue: quota that is guaranteed, a limit that caps, a place in the tree."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus | None = None


_SAME_RESOURCE = "s.name == r.name && (has(s.pool) ? s.pool : '') == (has(r.pool) ? r.pool : '')"
QUEUE = Kind(
    kind="Queue",
    plural="queues",
    singular="queue",
    short_names=("fq",),
    namespaced=False,
    spec=QueueSpec,
    status=QueueStatus,
    columns=(
        ("Parent", "string", ".spec.parent"),
        ("Priority", "integer", ".spec.priority"),
        ("Pending", "integer", ".status.pending"),
    ),
    rules=(
        (
            f"!has(self.resources) || self.resources.all(r, self.resources.exists_one(s, {_SAME_RESOURCE}))",
            "each resource is named once, and once for each pool",
        ),
    ),
)

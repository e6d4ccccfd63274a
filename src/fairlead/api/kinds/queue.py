"""Queue: who may use how much."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlead.api.kinds.common import (
    SPAN,
    SPAN_LENGTH,
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
from fairlead.api.kinds.rules import Rule


class QueueResource(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Quota, limit and weight of a queue for one resource."""

    name: Annotated[
        str, Rule(required=True, min_length=1, max_length=253, description="Resource, e.g. nvidia.com/gpu or cpu.")
    ] = ""
    pool: Annotated[str, Rule(max_length=253, description="Only the nodes of this NodePool. Default: all nodes.")] | None = None
    quota: Annotated[Amount, Rule(description="Guaranteed amount: a quantity or a percentage.")] | None = None
    limit: Annotated[Amount, Rule(description="Maximum amount: a quantity or a percentage.")] | None = None
    weight: (
        Annotated[
            Weight, Rule(description="Share of the capacity beyond quotas: a number relative to siblings, or a percentage.")
        ]
        | None
    ) = None


class JobLimits(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Limits on the number of jobs. A job is a pod group or a single pod."""

    running: Annotated[int, Rule(ge=0, description="Maximum number of running jobs.")] | None = None
    submitted: (
        Annotated[
            int,
            Rule(ge=0, description="Maximum number of pending and running jobs. Others are not queued."),
        ]
        | None
    ) = None


class UserLimits(JobLimits, rename="camel", kw_only=True, omit_defaults=True):
    """Limits of one user."""

    resources: Annotated[dict[str, Quantity], Rule(description="Maximum amounts held by pods of the user.")] | None = {}


class Budget(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Budget of a queue and its descendants. It stops nothing; it is reported and alerted."""

    amount: Annotated[float, Rule(ge=0, description="Maximum cost within a period.")]
    currency: Annotated[
        str, Rule(pattern="^[A-Z]{3}$", description="ISO 4217 code. Prices in other currencies do not count.")
    ] = "USD"
    period: Annotated[str, Rule(description="Length of the period, which ends now.", pattern=SPAN, max_length=SPAN_LENGTH)] = (
        "30d"
    )
    warn_percent: Annotated[int, Rule(ge=1, le=100, description="Percentage of the budget above which a warning is given.")] = 80


class QueueSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A node of the queue tree."""

    parent: Annotated[str, Rule(description="Parent queue. Default: the root.")] | None = None
    priority: Annotated[int, Rule(description="Priority among siblings. Higher values are served first.")] = 0
    resources: (
        Annotated[list[QueueResource], Rule(max_length=64, description="Quota, limit and weight by resource, and by pool.")]
        | None
    ) = []
    namespace_selector: (
        Annotated[LabelSelector, Rule(description="Namespaces whose pods may use the queue. Default: all.")] | None
    ) = None
    users: Annotated[list[str], Rule(max_length=1024, description="Users who may use the queue. Default: all.")] | None = None
    per_user: Annotated[UserLimits, Rule(description="Limits for each user, including jobs of descendant queues.")] | None = None
    jobs: Annotated[JobLimits, Rule(description="Limits for all users together, including jobs of descendant queues.")] | None = (
        None
    )
    user_fairness: Annotated[
        str,
        Rule(
            pattern="^(Order|Reclaim)$",
            description="Order: jobs of users who hold less are served first. Reclaim: they may also preempt jobs of users who "
            "hold more.",
        ),
    ] = "Order"
    service_classes: (
        Annotated[list[str], Rule(max_length=64, description="ServiceClasses that may use the queue. Default: all.")] | None
    ) = None
    budget: Annotated[Budget, Rule(description="Cost budget, at the prices of NodePools.")] | None = None
    scheduler_name: (
        Annotated[
            str,
            Rule(
                min_length=1,
                max_length=253,
                description="Scheduler that serves the queue and its descendants, as pods name it. Only a queue without a parent "
                "may name one. Default: those of the release fairlead.",
            ),
        ]
        | None
    ) = None


class UsageStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Past usage in device-seconds, decayed to `at`."""

    device_seconds: Annotated[float, Rule(description="Device-seconds of all users together.")] = 0.0
    at: Annotated[Time, Rule(required=True)] = ""
    users: Annotated[dict[str, float], Rule(description="Usage of the users with the highest usage.")] | None = {}


class RunTimeStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Run times of recently ended jobs of one kind, from which expected starts of other jobs are estimated."""

    user: Annotated[str, Rule(description="User of the jobs.")] = ""
    service_class: Annotated[str, Rule(description="ServiceClass of the jobs; empty: none.")] = ""
    devices: Annotated[float, Rule(ge=0, description="Devices of the whole job.")] = 0.0
    seconds: Annotated[list[int], Rule(max_length=10, description="Run times, oldest first.")] = []


class ForecastStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A predicted start and the actual one, from which the intervals of other predictions are estimated."""

    devices: Annotated[float, Rule(ge=0, description="Devices of the whole job.")] = 0.0
    foretold: Annotated[int, Rule(ge=0, description="Seconds from creation to start, as first predicted.")] = 0
    waited: Annotated[int, Rule(ge=0, description="Actual seconds from creation to start.")] = 0


class QueueStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Current state of a queue."""

    allocated: Annotated[dict[str, Quantity], Rule(description="Amounts held by placed pods.")] = {}
    pending: Annotated[int, Rule(ge=0, description="Pending pods of this queue.")] = 0
    fair_share: Annotated[
        dict[str, Quantity], Rule(description="Current fair share, for resources that are scarce among siblings.")
    ] = {}
    foreign: (
        Annotated[
            dict[str, Quantity],
            Rule(
                description="Part of allocated that is held by pods of other schedulers and charged because of chargeForeignPods."
            ),
        ]
        | None
    ) = {}
    usage: UsageStatus | None = None
    run_times: (
        Annotated[list[RunTimeStatus], Rule(max_length=50, description="Run times stored across restarts of the scheduler.")]
        | None
    ) = []
    forecasts: (
        Annotated[
            list[ForecastStatus], Rule(max_length=20, description="Predicted starts stored across restarts of the scheduler.")
        ]
        | None
    ) = []
    reason: Annotated[GroupReason, Rule(description="Why the first pending job of the queue waits.")] | None = None
    conditions: Conditions | None = []


class Queue(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A queue with a guaranteed quota, a limit and a place in the queue tree."""

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
        ("!has(self.budget) || self.budget.amount > 0.0", "budget.amount must be above 0: without a budget leave it out"),
        (
            f"!has(self.resources) || self.resources.all(r, self.resources.exists_one(s, {_SAME_RESOURCE}))",
            "each resource may appear only once, and once per pool",
        ),
        (
            "!has(self.schedulerName) || !has(self.parent) || self.parent == ''",
            "only a queue without a parent may name a scheduler: its descendants are served by the same",
        ),
    ),
)

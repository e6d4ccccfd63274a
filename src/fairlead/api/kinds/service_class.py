"""ServiceClass: how jobs of a class are scheduled."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlead.api.kinds.common import SPAN, SPAN_LENGTH, WORKLOAD_TYPE, Conditions, Kind, LabelSelector, Metadata
from fairlead.api.kinds.rules import Rule


class Preemption(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How jobs of the class are preempted, and which jobs they may preempt."""

    mode: Annotated[
        str,
        Rule(pattern="^(Requeue|Suspend|Never)$", description="What happens to a preempted job. Never: it is not preempted."),
    ] = "Requeue"
    scope: Annotated[
        str,
        Rule(
            pattern="^(Queue|Parent|Cluster)$",
            description="Where jobs of lower priority may be preempted: in the queue, under its parent, or in the cluster.",
        ),
    ] = "Queue"
    min_runtime: (
        Annotated[str, Rule(description="Minimum run time before a job may be preempted.", pattern=SPAN, max_length=SPAN_LENGTH)]
        | None
    ) = None
    grace_period: (
        Annotated[
            str,
            Rule(description="Time for a last checkpoint before a preempted job is ended.", pattern=SPAN, max_length=SPAN_LENGTH),
        ]
        | None
    ) = None
    consolidation: Annotated[
        str,
        Rule(
            pattern="^(Pods|Whole|Never)$",
            description="What may be moved to other nodes. Pods: single pods and elastic replicas. Whole: also gangs that "
            "restart from a checkpoint (checkpointInterval).",
        ),
    ] = "Pods"
    borrowing: Annotated[
        str,
        Rule(
            pattern="^(Allow|Unguaranteed)$",
            description="With mode Never, beyond the quota of the queue. Allow: jobs may use any idle capacity. "
            "Unguaranteed: only capacity that is guaranteed to no queue.",
        ),
    ] = "Allow"


class TimeLimit(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Time limits of jobs of the class."""

    default: (
        Annotated[str, Rule(description="Time limit of jobs that set none.", pattern=SPAN, max_length=SPAN_LENGTH)] | None
    ) = None
    max: Annotated[str, Rule(description="Maximum time limit.", pattern=SPAN, max_length=SPAN_LENGTH)] | None = None


class TimeSlicing(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Time slicing by attained service: jobs with less attained service are served first and may preempt those with more."""

    levels: Annotated[
        list[float],
        Rule(
            required=True,
            min_length=1,
            max_length=16,
            description="Device-hours at which the next level begins, in rising order.",
        ),
    ] = []
    express: Annotated[
        int,
        Rule(ge=0, le=16, description="Number of lowest levels whose jobs may preempt in any queue, regardless of fair shares."),
    ] = 0
    max_loss: (
        Annotated[
            str,
            Rule(
                description="Maximum work since the last checkpoint that time slicing and reclaim may lose per job. Moves "
                "for a job lose no more than this on as many devices as the job requests.",
                pattern=SPAN,
                max_length=SPAN_LENGTH,
            ),
        ]
        | None
    ) = None


class UtilizationPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """When the GPUs of a job count as used."""

    min_gpu_utilization: Annotated[
        int, Rule(ge=1, le=100, description="Utilization in percent that the busiest GPU of the job must reach.")
    ]
    time_window: Annotated[
        str, Rule(description="Time within which it must be reached at least once.", pattern=SPAN, max_length=SPAN_LENGTH)
    ]


class ServiceClassSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A service class."""

    priority_class_name: (
        Annotated[str, Rule(max_length=253, description="PriorityClass whose value is the priority of jobs of the class.")] | None
    ) = None
    preemption: Preemption = msgspec.field(default_factory=Preemption)
    checkpoint_interval: (
        Annotated[str, Rule(description="Time between two checkpoints.", pattern=SPAN, max_length=SPAN_LENGTH)] | None
    ) = None
    time_limit: TimeLimit | None = None
    start_timeout: (
        Annotated[str, Rule(description="Default of startTimeout for jobs of the class.", pattern=SPAN, max_length=SPAN_LENGTH)]
        | None
    ) = None
    max_wait: (
        Annotated[
            str, Rule(description="Maximum waiting time of jobs; exceeding it is reported.", pattern=SPAN, max_length=SPAN_LENGTH)
        ]
        | None
    ) = None
    time_slicing: TimeSlicing | None = None
    isolation: Annotated[
        str,
        Rule(
            pattern="^(None|GPU|Node)$",
            description="What jobs of the class share with other jobs. GPU: no GPU of theirs is shared; parts of GPUs are not "
            "allowed. Node: no pod with GPUs of another job runs on their nodes, whichever came first.",
        ),
    ] = "None"
    sharing: Annotated[
        str,
        Rule(
            pattern="^(None|Pairs)$",
            description="Pairs: a job of the class with one pod that requests one GPU gets half of a GPU on a node of "
            "Fairlead's agent, alone or beside one other such job, chosen by measured speeds. Excludes isolation.",
        ),
    ] = "None"
    namespace_selector: (
        Annotated[LabelSelector, Rule(description="Namespaces whose pods may use the class. Default: all.")] | None
    ) = None
    users: Annotated[list[str], Rule(max_length=1024, description="Users who may use the class. Default: all.")] | None = None
    default_for: Annotated[
        list[Annotated[str, Rule(pattern=WORKLOAD_TYPE)]],
        Rule(max_length=3, description="Types of AIJobs for which the class is the default, if all users may use it."),
    ] = []
    idle_duration: (
        Annotated[
            str,
            Rule(
                description="Interactive jobs are shut down after this time without activity.",
                pattern=SPAN,
                max_length=SPAN_LENGTH,
            ),
        ]
        | None
    ) = None
    utilization_policy: Annotated[UtilizationPolicy, Rule(description="Jobs that do not use their GPUs are ended.")] | None = None
    alternative_pools: (
        Annotated[
            list[Annotated[str, Rule(max_length=253)]],
            Rule(max_length=64, description="NodePools that alternatives of jobs of the class may use. Default: all."),
        ]
        | None
    ) = None


class ServiceClassStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """State of a service class."""

    conditions: Conditions | None = []


class ServiceClass(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A service class: priority, preemption and limits of its jobs."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ServiceClassSpec = msgspec.field(default_factory=ServiceClassSpec)
    status: ServiceClassStatus | None = None


_NO_MORE_EXPRESS_THAN_LEVELS = (
    "!has(self.timeSlicing) || !has(self.timeSlicing.express) || self.timeSlicing.express <= size(self.timeSlicing.levels)"
)
SERVICE_CLASS = Kind(
    kind="ServiceClass",
    plural="serviceclasses",
    singular="serviceclass",
    short_names=("fsc",),
    namespaced=False,
    spec=ServiceClassSpec,
    status=ServiceClassStatus,
    columns=(
        ("Priority-Class", "string", ".spec.priorityClassName"),
        ("Preemption", "string", ".spec.preemption.mode"),
        ("Scope", "string", ".spec.preemption.scope"),
    ),
    rules=(
        (
            "!has(self.timeSlicing) || self.timeSlicing.levels.all(i, i > 0.0)",
            "timeSlicing.levels must be above 0",
        ),
        (_NO_MORE_EXPRESS_THAN_LEVELS, "timeSlicing.express must not exceed the number of levels"),
    ),
)

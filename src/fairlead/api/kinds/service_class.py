"""ServiceClass: how a kind of work is treated."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.kinds.common import SPAN, WORKLOAD_TYPE, Conditions, Kind, LabelSelector, Metadata


class Preemption(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How work of a class falls, and whose it may take."""

    mode: Annotated[
        str, Meta(pattern="^(Requeue|Suspend|Never)$", description="What becomes of it when it falls; Never: it does not.")
    ] = "Requeue"
    scope: Annotated[
        str,
        Meta(
            pattern="^(Queue|Parent|Cluster)$", description="Whose work of lower standing it may take: its queue's, its parent's."
        ),
    ] = "Queue"
    min_runtime: Annotated[str, Meta(description="It does not fall before it has run so long.", pattern=SPAN)] | None = None
    grace_period: Annotated[str, Meta(description="Time for a last checkpoint.", pattern=SPAN)] | None = None
    consolidation: Annotated[
        str,
        Meta(
            pattern="^(Pods|Whole|Never)$",
            description="What may be evicted only to run elsewhere: single pods and members that their gangs can do without; "
            "Whole: gangs, too, that start again from a checkpoint (checkpointInterval).",
        ),
    ] = "Pods"
    borrowing: Annotated[
        str,
        Meta(
            pattern="^(Allow|Unguaranteed)$",
            description="With mode Never, beyond its queue's quota: whatever is idle, or only what no queue is guaranteed.",
        ),
    ] = "Allow"


class TimeLimit(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How long work of a class may run."""

    default: Annotated[str, Meta(description="Where it gives none itself.", pattern=SPAN)] | None = None
    max: Annotated[str, Meta(description="At most.", pattern=SPAN)] | None = None


class TimeSlicing(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Turns by attained service: whoever used less goes first, and may take the devices of who used more."""

    levels: Annotated[
        list[float], Meta(min_length=1, max_length=16, description="Device-hours, rising, at which the next level begins.")
    ]
    express: Annotated[
        int, Meta(ge=0, le=16, description="So many of the lowest levels take from any queue, whatever the shares.")
    ] = 0
    max_loss: (
        Annotated[
            str,
            Meta(
                description="A turn ends, and a share beyond a guarantee is taken, only while no more work than this was done "
                "since a checkpoint; moves for a job lose no more than that on as many devices as it asks for.",
                pattern=SPAN,
            ),
        ]
        | None
    ) = None


class UtilizationPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """When a job counts as not using its GPUs."""

    min_gpu_utilization: Annotated[int, Meta(ge=1, le=100, description="Percent; the busiest of its GPUs reaches it.")]
    time_window: Annotated[str, Meta(description="At least once within this time.", pattern=SPAN)]


class ServiceClassSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A class of service."""

    priority_class_name: (
        Annotated[str, Meta(max_length=253, description="The PriorityClass whose value is the priority of its work.")] | None
    ) = None
    preemption: Preemption = msgspec.field(default_factory=Preemption)
    checkpoint_interval: Annotated[str, Meta(description="Time between two checkpoints.", pattern=SPAN)] | None = None
    time_limit: TimeLimit | None = None
    start_timeout: (
        Annotated[str, Meta(description="Work that has its nodes starts within it, where it gives none itself.", pattern=SPAN)]
        | None
    ) = None
    max_wait: Annotated[str, Meta(description="How long it should wait at most.", pattern=SPAN)] | None = None
    time_slicing: TimeSlicing | None = None
    namespace_selector: (
        Annotated[LabelSelector, Meta(description="Namespaces whose pods may use the class. Absent: all.")] | None
    ) = None
    users: Annotated[list[str], Meta(max_length=1024, description="Users who may use the class. Absent: all.")] | None = None
    default_for: Annotated[
        list[Annotated[str, Meta(pattern=WORKLOAD_TYPE)]],
        Meta(max_length=3, description="AIJobs of these types that name no class are of this one, if it is open to everybody."),
    ] = []
    idle_duration: (
        Annotated[str, Meta(description="Interactive jobs without activity for so long are shut down.", pattern=SPAN)] | None
    ) = None
    utilization_policy: Annotated[UtilizationPolicy, Meta(description="Jobs that do not use their GPUs are ended.")] | None = None


class ServiceClassStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What the scheduler says about a class."""

    conditions: Conditions = []


class ServiceClass(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A class of service: who may take whose devices, and at what price."""

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
        (_NO_MORE_EXPRESS_THAN_LEVELS, "timeSlicing.express must not be more than there are levels"),
    ),
)

"""AIJob: a job of roles."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fairlead.api.kinds.common import MEMBERS, SPAN, WORKLOAD_TYPE, Conditions, Duration, Kind, Metadata, StartTimeout, Time
from fairlead.api.kinds.service_class import UtilizationPolicy


class Role(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Members of a job that are alike."""

    name: Annotated[
        str, Meta(pattern="^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$", max_length=32, description="E.g. worker, evaluator, ps.")
    ]
    replicas: Annotated[int, Meta(ge=1, le=MEMBERS, description="How many.")] = 1
    min_replicas: Annotated[int, Meta(ge=1, le=MEMBERS, description="Elastic: it starts with so many.")] | None = None
    max_replicas: Annotated[int, Meta(ge=1, le=MEMBERS, description="Elastic: it grows to so many.")] | None = None
    template: Annotated[
        dict[str, Any],
        Meta(
            description="A pod template, as in a Job: metadata.labels, metadata.annotations, spec.",
            extra_json_schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
    ]


class ExitCodeRule(msgspec.Struct, rename="camel", kw_only=True):
    """What a failure with one of these exit codes means."""

    codes: Annotated[list[Annotated[int, Meta(ge=1, le=255)]], Meta(min_length=1, max_length=255)]
    action: Annotated[
        str,
        Meta(
            pattern="^(Fail|Restart|Ignore)$", description="Fail: at once. Restart: for nothing. Ignore: as if it had succeeded."
        ),
    ]


class Restart(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What happens when a member fails: the whole job starts again."""

    limit: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=10_000,
                description="So often for its own faults; lost nodes and evictions do not count. Default: Training 3, "
                "Inference without end, Interactive 0.",
            ),
        ]
        | None
    ) = None
    backoff: Annotated[
        str, Meta(description="Before the first restart, at least 1s; doubled for each after, up to 10m.", pattern=SPAN)
    ] = "1s"
    exit_codes: Annotated[list[ExitCodeRule], Meta(max_length=64)] = []


class Checkpoint(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where and how often the job saves its work."""

    path: Annotated[str, Meta(min_length=1, description="Told to its members as FAIRLEAD_CHECKPOINT_PATH.")]
    interval: Annotated[str, Meta(description="Time between two of them.", pattern=SPAN)] | None = None
    grace_period: Annotated[str, Meta(description="Time from SIGTERM on for a last one.", pattern=SPAN)] | None = None


class Dependency(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Another job of the namespace that comes first."""

    job: Annotated[str, Meta(min_length=1, max_length=253)]
    when: Annotated[str, Meta(pattern="^(afterok|afterany|afternotok|aftercorr|singleton)$")] = "afterok"


class Array(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The same job many times, each with an index."""

    indexes: Annotated[str, Meta(pattern="^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$", description="E.g. 0-999 or 1,3,5.")]
    parallelism: Annotated[int, Meta(ge=1, description="So many at a time.")] | None = None


class SuccessPolicy(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """When the job has succeeded."""

    roles: Annotated[
        list[Annotated[str, Meta(max_length=32)]],
        Meta(min_length=1, max_length=16, description="When all members of these have; the others are ended then."),
    ]


class AIJobSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A job: it starts as a whole, ends as a whole, and comes back by itself."""

    queue: Annotated[str, Meta(max_length=253)] | None = None
    service_class: Annotated[str, Meta(max_length=253)] | None = None
    workload_type: Annotated[str, Meta(pattern=WORKLOAD_TYPE)] = "Training"
    roles: Annotated[list[Role], Meta(min_length=1, max_length=16)]
    time_limit: Duration | None = None
    expected_duration: Duration | None = None
    restart: Restart = msgspec.field(default_factory=Restart)
    checkpoint: Checkpoint | None = None
    depends_on: Annotated[list[Dependency], Meta(max_length=64)] = []
    array: Array | None = None
    start_timeout: StartTimeout | None = None
    success_policy: SuccessPolicy | None = None
    suspend: Annotated[bool, Meta(description="The user's: as long as it is true the job has no pods.")] = False
    ttl_after_finished: Duration | None = None
    idle_duration: (
        Annotated[str, Meta(description="Interactive: without activity for so long it is shut down.", pattern=SPAN)] | None
    ) = None
    utilization_policy: Annotated[UtilizationPolicy, Meta(description="It is ended when it does not use its GPUs.")] | None = None


class JobStarts(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Members beyond the minimum that had their nodes and did not start, since all members last ran."""

    failed: Annotated[int, Meta(ge=0, description="How many times in a row.")] = 0
    retry_at: Annotated[Time, Meta(description="They are made again no sooner.")] | None = None
    message: Annotated[str, Meta(max_length=1024, description="What kept the last one, in its container's own words.")] = ""


class ElementStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What an element of an array that is under way has behind it."""

    index: Annotated[int, Meta(ge=0)]
    attempt: Annotated[int, Meta(ge=0)] = 0
    restarts: Annotated[int, Meta(ge=0)] = 0
    interruptions: Annotated[int, Meta(ge=0)] = 0
    resume_at: Time | None = None
    avoided_nodes: Annotated[list[str], Meta(max_length=8, description="Where it failed by itself.")] = []
    starts: JobStarts | None = None


class RoleIndexes(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Members of a role, by their indexes."""

    role: str
    indexes: Annotated[str, Meta(description="Such as 0-4,7.")] = ""


class AIJobStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where a job stands; written by the operator alone."""

    phase: Annotated[str, Meta(pattern="^(Pending|Starting|Running|Restarting|Resizing|Suspended|Succeeded|Failed)$")] = "Pending"
    attempt: Annotated[int, Meta(ge=0, description="Which set of pods; the first is 0.")] = 0
    restarts: Annotated[int, Meta(ge=0, description="For faults of its own.")] = 0
    interruptions: Annotated[int, Meta(ge=0, description="For lost nodes, evictions and suspensions; they cost nothing.")] = 0
    complete_attempt: Annotated[int, Meta(description="The attempt whose members were all there at once; -1: none yet.")] = -1
    queue: Annotated[str, Meta(description="That is charged for it: the one it was made with.")] = ""
    service_class: Annotated[str, Meta(description="With which it was made.")] = ""
    members: Annotated[int, Meta(ge=0, description="How many it may have at most.")] = 0
    size: Annotated[int, Meta(ge=0, description="How many it ran with when nobody came or went.")] = 0
    resizes: Annotated[int, Meta(ge=0, description="How often that changed within an attempt.")] = 0
    running: Annotated[int, Meta(ge=0)] = 0
    succeeded: Annotated[int, Meta(ge=0)] = 0
    succeeded_members: Annotated[
        list[RoleIndexes], Meta(max_length=64, description="Of this attempt, also those whose pods are gone.")
    ] = []
    completed_indexes: Annotated[str, Meta(description="Array: elements that succeeded, such as 0-4,7.")] = ""
    failed_indexes: Annotated[str, Meta(description="Array: elements that failed for good.")] = ""
    elements: Annotated[list[ElementStatus], Meta(description="Array: elements under way that were started more than once.")] = []
    resume_at: (
        Annotated[Time, Meta(description="Restarting: when the next attempt begins. Resizing: when the size counts as settled.")]
        | None
    ) = None
    last_checkpoint: Annotated[Time, Meta(description="When a member that was to end had saved its work last.")] | None = None
    nodes: Annotated[
        list[str],
        Meta(max_length=1000, description="On which it ran last, without those that failed it."),
    ] = []
    preferred_nodes: Annotated[
        list[str],
        Meta(max_length=64, description="Where this attempt had rather run: where the one before it ran and did not fail."),
    ] = []
    avoided_nodes: Annotated[
        list[str],
        Meta(max_length=8, description="Where a member failed by itself: tried again there only where there is no other room."),
    ] = []
    starts: JobStarts | None = None
    running_since: Annotated[Time, Meta(description="When the attempt's first member began.")] | None = None
    started_at: Time | None = None
    finished_at: Time | None = None
    message: str = ""
    conditions: Conditions = []


class AIJob(msgspec.Struct, rename="camel", kw_only=True):
    """A job of one or more roles that runs, restarts, gives way and ends as a whole."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: AIJobSpec
    status: AIJobStatus | None = None


_MOST_MEMBERS = "self.roles.map(r, has(r.maxReplicas) ? r.maxReplicas : has(r.replicas) ? r.replicas : 1).sum()"
AI_JOB = Kind(
    kind="AIJob",
    plural="aijobs",
    singular="aijob",
    short_names=("aj",),
    namespaced=True,
    spec=AIJobSpec,
    status=AIJobStatus,
    columns=(
        ("Queue", "string", ".status.queue"),
        ("Phase", "string", ".status.phase"),
        ("Members", "integer", ".status.members"),
        ("Running", "integer", ".status.running"),
        ("Restarts", "integer", ".status.restarts"),
    ),
    rules=(
        ("self.roles.all(r, self.roles.exists_one(s, s.name == r.name))", "roles must have different names"),
        (
            "self.roles.all(r, !has(r.minReplicas) || r.minReplicas <= (has(r.replicas) ? r.replicas : 1))",
            "minReplicas must not be above replicas",
        ),
        (
            "self.roles.all(r, !has(r.maxReplicas) || r.maxReplicas >= (has(r.replicas) ? r.replicas : 1))",
            "maxReplicas must not be below replicas",
        ),
        (f"{_MOST_MEMBERS} <= {MEMBERS}", f"a job has at most {MEMBERS} members, those that it may grow to included"),
        (
            "!has(self.successPolicy) || self.successPolicy.roles.all(n, self.roles.exists(r, r.name == n))",
            "successPolicy names a role that there is not",
        ),
    ),
)

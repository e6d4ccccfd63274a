"""PodGroup: pods that start together, and what is meant with them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.kinds.common import Conditions, Duration, GroupReason, Kind, Metadata, StartTimeout, Time


class PodGroupSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Pods that start together. They carry the label `fairlead.dev/pod-group: <name>`."""

    queue: Annotated[str, Meta(description="Queue that is charged. Absent: that of the pods or the namespace.")] | None = None
    service_class: str | None = None
    min_member: Annotated[int, Meta(ge=1, le=1_000_000, description="This many pods run, or none.")] = 1
    max_member: Annotated[int, Meta(ge=1, description="Elastic: at most this many pods.")] | None = None
    time_limit: Duration | None = None
    expected_duration: Duration | None = None
    start_timeout: StartTimeout | None = None


class TargetOwner(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What makes a job's pods."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class TargetMember(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """So many pods that wait while their job is suspended."""

    count: Annotated[int, Meta(ge=1)] = 1
    pod: Annotated[str, Meta(max_length=65536, description="What one looks like, in the scheduler's own form.")] = ""


class GroupTarget(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What the scheduler means the job to be; the operator acts on it."""

    state: Annotated[str, Meta(pattern="^(Running|Suspended)$")] = "Running"
    replicas: Annotated[int, Meta(ge=0, description="How many pods it is to have. Absent: as many as it asks for.")] | None = None
    epoch: Annotated[int, Meta(ge=0, description="Rises with every change of it.")] = 0
    owners: Annotated[list[TargetOwner], Meta(max_length=64)] = []
    members: Annotated[list[TargetMember], Meta(max_length=64)] = []
    attained: Annotated[float, Meta(ge=0, description="Device-seconds that it had had when it resumed last.")] | None = None
    first_created: Annotated[Time, Meta(description="When it came first, before it was suspended.")] | None = None


class GroupRun(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The run of a pod group in which members succeeded. A job that starts all over begins another."""

    attempt: Annotated[int, Meta(ge=0, description="Of the job, where its pods tell.")] = 0
    since: Annotated[Time, Meta(description="When its first pod was made, where the pod group was used before.")] | None = None
    last_succeeded: Annotated[Time, Meta(description="When the last member ended that succeeded.")] | None = None


class GroupStarts(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Starts of a pod group that failed since it last started: it had its nodes, and members did not start in time."""

    failed: Annotated[int, Meta(ge=0, description="How many in a row.")] = 0
    retry_at: Annotated[Time, Meta(description="It is placed again no sooner.")] | None = None
    message: Annotated[str, Meta(max_length=1024, description="What kept the last one, in its container's own words.")] = ""


class PodGroupStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where a pod group stands; written by the scheduler alone."""

    phase: Annotated[str, Meta(pattern="^(Pending|Scheduled|Running|Suspended|Succeeded|Failed)$")] = "Pending"
    scheduled: Annotated[int, Meta(ge=0, description="Members that have a node.")] = 0
    succeeded: Annotated[int, Meta(ge=0, description="Members that ended with success; they count towards minMember.")] = 0
    run: GroupRun | None = None
    starts: GroupStarts | None = None
    reason: GroupReason | None = None
    expected_start: Annotated[Time, Meta(description="When it is expected to start, as things stand.")] | None = None
    earliest_start: Annotated[Time, Meta(description="Before it one start in ten is expected.")] | None = None
    latest_start: Annotated[Time, Meta(description="After it one start in ten is expected.")] | None = None
    target: GroupTarget | None = None
    conditions: Conditions = []


class PodGroup(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A gang or an elastic set of pods."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus | None = None


POD_GROUP = Kind(
    kind="PodGroup",
    plural="podgroups",
    singular="podgroup",
    short_names=("pg",),
    namespaced=True,
    spec=PodGroupSpec,
    status=PodGroupStatus,
    columns=(
        ("Queue", "string", ".spec.queue"),
        ("Min", "integer", ".spec.minMember"),
        ("Scheduled", "integer", ".status.scheduled"),
        ("Phase", "string", ".status.phase"),
        ("Reason", "string", ".status.reason.code"),
        ("Expected", "string", ".status.expectedStart"),
    ),
    rules=(("!has(self.maxMember) || self.maxMember >= self.minMember", "maxMember must not be below minMember"),),
)

"""PodGroup: pods that start together, and their target state."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlead.api.kinds.common import (
    MEMBERS,
    MOST_SPARES,
    Conditions,
    Duration,
    GroupReason,
    Kind,
    Metadata,
    RoleTopology,
    StartTimeout,
    Time,
    Topology,
)
from fairlead.api.kinds.rules import Rule
from fairlead.api.kinds.topology_rules import ROLE_RULES, TOPOLOGY_RULES


class GroupRole(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What is asked of the members of one role."""

    name: Annotated[
        str,
        Rule(
            required=True,
            min_length=1,
            max_length=63,
            description="The role, by label fairlead.dev/role of its pods, or that of Kubeflow, JobSet, Volcano or Ray.",
        ),
    ] = ""
    topology: RoleTopology | None = None


class PodGroupSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Pods that start together. They carry the label `fairlead.dev/pod-group: <name>`."""

    queue: (
        Annotated[str, Rule(description="Queue that is charged. Default: the queue of the pods or of the namespace.")] | None
    ) = None
    service_class: Annotated[str, Rule(description="ServiceClass of the pods.")] | None = None
    min_member: Annotated[int, Rule(ge=1, le=1_000_000, description="Minimum number of pods: fewer are not started.")] = 1
    max_member: Annotated[int, Rule(ge=1, description="Elastic job: maximum number of pods.")] | None = None
    time_limit: Duration | None = None
    expected_duration: Duration | None = None
    start_timeout: StartTimeout | None = None
    topology: Topology | None = None
    roles: Annotated[list[GroupRole], Rule(max_length=16, description="Roles with a topology of their own.")] | None = None


class TargetOwner(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """An owner of the pods of a job."""

    api_version: Annotated[str, Rule(description="API version of the owner.")] = ""
    kind: Annotated[str, Rule(description="Kind of the owner.")] = ""
    name: Annotated[str, Rule(description="Name of the owner.")] = ""
    uid: Annotated[str, Rule(description="UID of the owner.")] = ""


class TargetMember(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Identical pods of a suspended job."""

    count: Annotated[int, Rule(ge=1, description="Number of these pods.")] = 1
    pod: Annotated[str, Rule(max_length=65536, description="One of the pods, in the scheduler's internal format.")] = ""


class GroupTarget(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Target state of the job, set by the scheduler and carried out by the operator."""

    state: Annotated[str, Rule(pattern="^(Running|Suspended)$", description="What the job should be.")] = ""
    replicas: Annotated[int, Rule(ge=0, description="Target number of pods. Default: as many as requested.")] | None = None
    epoch: Annotated[int, Rule(ge=0, description="Incremented with every change.")] = 0
    owners: Annotated[list[TargetOwner], Rule(max_length=64, description="Objects that are suspended and resumed.")] | None = []
    members: (
        Annotated[list[TargetMember], Rule(max_length=64, description="The pods that a suspended job will have again.")] | None
    ) = []
    nodes: (
        Annotated[
            list[str],
            Rule(max_length=MEMBERS, description="Nodes of the places that are reserved for the members of a job that resumes."),
        ]
        | None
    ) = []
    kept_until: Annotated[Time, Rule(description="Time at which these places are given up.")] | None = None
    attained: Annotated[float, Rule(ge=0, description="Attained device-seconds at the last resumption.")] | None = None
    first_created: Annotated[Time, Rule(description="Creation time of the job before its suspension.")] | None = None


class GroupRun(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The current run of a pod group with succeeded members. A full restart of the job begins another run."""

    attempt: Annotated[int, Rule(ge=0, description="Attempt of the job, if its pods have one.")] = 0
    since: (
        Annotated[Time, Rule(description="Creation of the first pod of the run, if the pod group had an earlier run.")] | None
    ) = None
    last_succeeded: Annotated[Time, Rule(description="Time at which the last member succeeded.")] | None = None


class GroupStarts(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Failed starts since the last successful one: the pod group had nodes, and members did not start in time."""

    failed: Annotated[int, Rule(ge=0, description="Number of consecutive failures.")] = 0
    retry_at: Annotated[Time, Rule(description="The pod group is placed again at this time at the earliest.")] | None = None
    message: Annotated[str, Rule(max_length=1024, description="Cause of the last failure, as reported for the container.")] = ""


class GroupAlternative(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The form that the scheduler chose for an AIJob with alternatives."""

    index: Annotated[int, Rule(ge=0, description="Alternative of the job, from 1; 0: its role as it is written.")] = 0
    pool: Annotated[str, Rule(description="NodePool of the alternative.")] = ""
    attempt: Annotated[int, Rule(ge=0, description="Attempt of the job instead of which it is started in this form.")] = 0


class GroupSpares(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The spare places of a pod group that runs (spec.topology.spares)."""

    wanted: Annotated[int, Rule(ge=0, description="Number of spare places that the spec asks for.")] = 0
    kept: Annotated[int, Rule(ge=0, description="Number of spare places that are kept now.")] = 0
    nodes: Annotated[list[str], Rule(max_length=16 * MOST_SPARES, description="The node of each place that is kept.")] | None = []


class PodGroupStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """State of a pod group. Only the scheduler writes it."""

    phase: Annotated[
        str, Rule(pattern="^(Pending|Scheduled|Running|Suspended|Succeeded|Failed)$", description="State of the pod group.")
    ] = "Pending"
    scheduled: Annotated[int, Rule(ge=0, description="Members with a node.")] = 0
    succeeded: Annotated[int, Rule(ge=0, description="Members that succeeded. They count towards minMember.")] = 0
    run: GroupRun | None = None
    starts: GroupStarts | None = None
    reason: GroupReason | None = None
    expected_start: Annotated[Time, Rule(description="Expected start.")] | None = None
    earliest_start: (
        Annotated[Time, Rule(description="Lower end of the interval in which 8 of 10 starts are expected.")] | None
    ) = None
    latest_start: Annotated[Time, Rule(description="Upper end of the interval in which 8 of 10 starts are expected.")] | None = (
        None
    )
    target: GroupTarget | None = None
    alternative: GroupAlternative | None = None
    spares: GroupSpares | None = None
    conditions: Conditions | None = []


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
    rules=(
        ("!has(self.maxMember) || self.maxMember >= self.minMember", "maxMember must not be below minMember"),
        ("!has(self.roles) || self.roles.all(r, self.roles.exists_one(s, s.name == r.name))", "roles must have different names"),
        *TOPOLOGY_RULES,
        *ROLE_RULES,
    ),
)

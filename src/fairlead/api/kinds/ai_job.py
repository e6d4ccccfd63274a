"""AIJob: a job of roles."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fairlead.api.kinds.common import (
    MEMBERS,
    SPAN,
    SPAN_LENGTH,
    WORKLOAD_TYPE,
    Conditions,
    Duration,
    Kind,
    Metadata,
    RoleTopology,
    Share,
    StartTimeout,
    Time,
    Topology,
)
from fairlead.api.kinds.rules import Rule
from fairlead.api.kinds.service_class import UtilizationPolicy
from fairlead.api.kinds.topology_rules import ROLE_RULES, TOPOLOGY_RULES
from fairlead.api.pressure import PERCENTAGE
from fairlead.api.shared_resources import MOST, names_rule

_Share = Annotated[str, Rule(pattern=PERCENTAGE, max_length=6)]
_OF = "as a percentage of its capacity, e.g. 40%."


class Pressure(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Shares of a node's capacity that a member uses."""

    memory_bandwidth: Annotated[_Share, Rule(description="Memory bandwidth of the node, " + _OF)] | None = None
    pcie: Annotated[_Share, Rule(description="PCIe, " + _OF)] | None = None
    network: Annotated[_Share, Rule(description="Network of the node, " + _OF)] | None = None
    disk: Annotated[_Share, Rule(description="Disks of the node, " + _OF)] | None = None


class Role(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Identical members of a job."""

    name: Annotated[
        str, Rule(pattern="^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$", max_length=32, description="E.g. worker, evaluator, ps.")
    ]
    replicas: Annotated[int, Rule(ge=1, le=MEMBERS, description="Number of members.")] = 1
    min_replicas: Annotated[int, Rule(ge=1, le=MEMBERS, description="Elastic job: the minimum with which it starts.")] | None = (
        None
    )
    max_replicas: Annotated[int, Rule(ge=1, le=MEMBERS, description="Elastic job: the maximum to which it grows.")] | None = None
    pressure: (
        Annotated[
            Pressure,
            Rule(description="What each member uses of what the pods of its node share. Default: learned while jobs run."),
        ]
        | None
    ) = None
    shared_resources: (
        Annotated[
            dict[str, Share],
            Rule(
                max_length=MOST,
                description="What each member takes of what the nodes of its NodePool share, by the names in the NodePool's "
                "sharedResources, e.g. storage-bandwidth: 2G. It runs only where so much is free.",
            ),
        ]
        | None
    ) = None
    template: Annotated[
        dict[str, Any],
        Rule(
            description="A pod template, as in a Job: metadata.labels, metadata.annotations, spec.",
            extra_json_schema={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
    ]
    topology: RoleTopology | None = None


class ExitCodeRule(msgspec.Struct, rename="camel", kw_only=True):
    """The action for failures with one of these exit codes."""

    codes: Annotated[
        list[Annotated[int, Rule(ge=1, le=255)]], Rule(min_length=1, max_length=255, description="Exit codes of containers.")
    ]
    action: Annotated[
        str,
        Rule(
            pattern="^(Fail|Restart|Ignore)$",
            description="Fail: the job fails at once. Restart: the restart does not count towards the limit. "
            "Ignore: the member counts as succeeded.",
        ),
    ]


class Restart(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Restarts after the failure of a member: the whole job is started again."""

    limit: (
        Annotated[
            int,
            Rule(
                ge=0,
                le=10_000,
                description="Maximum number of restarts for failures of the job itself; lost nodes and evictions do not count. "
                "Default: Training 3, Inference unlimited, Interactive 0.",
            ),
        ]
        | None
    ) = None
    backoff: Annotated[
        str,
        Rule(
            description="Delay before the first restart, at least 1s; doubled with each further restart, up to 10m.",
            pattern=SPAN,
            max_length=SPAN_LENGTH,
        ),
    ] = "1s"
    exit_codes: Annotated[list[ExitCodeRule], Rule(max_length=64, description="Exceptions by exit code.")] = []


class Checkpoint(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where and how often the job writes checkpoints."""

    path: Annotated[str, Rule(min_length=1, description="Set in members as FAIRLEAD_CHECKPOINT_PATH.")]
    interval: Annotated[str, Rule(description="Time between two checkpoints.", pattern=SPAN, max_length=SPAN_LENGTH)] | None = (
        None
    )
    grace_period: (
        Annotated[str, Rule(description="Time for a last checkpoint after SIGTERM.", pattern=SPAN, max_length=SPAN_LENGTH)] | None
    ) = None


class Dependency(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Another job of the namespace that must end first."""

    job: Annotated[str, Rule(min_length=1, max_length=253, description="Name of the job; with singleton the value of the label.")]
    when: Annotated[
        str,
        Rule(
            pattern="^(afterok|afterany|afternotok|aftercorr|singleton)$",
            description="How it must end. afterok: succeeded. afternotok: failed. afterany: either. aftercorr: the element of "
            "the same index succeeded. singleton: no older job of the user with the label is left.",
        ),
    ] = "afterok"


class Array(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """An array of identical elements, each with an index."""

    indexes: Annotated[str, Rule(pattern="^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$", description="E.g. 0-999 or 1,3,5.")]
    parallelism: Annotated[int, Rule(ge=1, description="Maximum number of elements at a time.")] | None = None


class SuccessPolicy(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """When the job counts as succeeded."""

    roles: Annotated[
        list[Annotated[str, Rule(max_length=32)]],
        Rule(
            min_length=1,
            max_length=16,
            description="The job succeeds when all members of these roles have succeeded. The other members are then ended.",
        ),
    ]


class Alternative(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Another form in which the job may run. What it leaves open is as in the job's role."""

    pool: (
        Annotated[
            str,
            Rule(max_length=253, description="NodePool of its nodes. Default: any NodePool, the highest relativeSpeed first."),
        ]
        | None
    ) = None
    gpus_per_member: Annotated[int, Rule(ge=1, le=1024, description="GPUs of each member.")] | None = None
    replicas: Annotated[int, Rule(ge=1, le=MEMBERS, description="Number of members.")] | None = None


class AIJobSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A job whose members start, restart and end together."""

    queue: Annotated[str, Rule(max_length=253, description="Queue that is charged. Default: that of the namespace.")] | None = (
        None
    )
    service_class: (
        Annotated[str, Rule(max_length=253, description="ServiceClass. Default: the one for the type of work, if any.")] | None
    ) = None
    workload_type: Annotated[
        str, Rule(pattern=WORKLOAD_TYPE, description="Type of work. It decides how often the job is restarted by default.")
    ] = "Training"
    roles: Annotated[list[Role], Rule(min_length=1, max_length=16, description="Groups of identical members.")]
    time_limit: Duration | None = None
    expected_duration: Duration | None = None
    restart: Restart = msgspec.field(default_factory=Restart)
    checkpoint: Checkpoint | None = None
    depends_on: Annotated[list[Dependency], Rule(max_length=64, description="Jobs that must end before; all of them.")] = []
    array: Array | None = None
    start_timeout: StartTimeout | None = None
    topology: Topology | None = None
    success_policy: SuccessPolicy | None = None
    alternatives: Annotated[
        list[Alternative],
        Rule(
            max_length=8,
            description="Other forms of the job, in order of preference. While it waits it takes the first one, "
            "its role as written included, in which it can start. One role of fixed size whose members ask for GPUs; no array.",
        ),
    ] = []
    suspend: Annotated[bool, Rule(description="Set by the user. While it is true, the job has no pods.")] = False
    ttl_after_finished: Duration | None = None
    idle_duration: (
        Annotated[
            str,
            Rule(
                description="Interactive job: it is shut down after this time without activity.",
                pattern=SPAN,
                max_length=SPAN_LENGTH,
            ),
        ]
        | None
    ) = None
    utilization_policy: Annotated[UtilizationPolicy, Rule(description="The job is ended if it does not use its GPUs.")] | None = (
        None
    )


class JobStarts(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Failed starts of elastic replicas, which had nodes and did not start, since all members last ran."""

    failed: Annotated[int, Rule(ge=0, description="Number of consecutive failures.")] = 0
    retry_at: Annotated[Time, Rule(description="The pods are created again at this time at the earliest.")] | None = None
    message: Annotated[str, Rule(max_length=1024, description="Cause of the last failure, as reported for the container.")] = ""


class ElementStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """History of an array element that has not ended."""

    index: Annotated[int, Rule(ge=0, description="Index of the element.")]
    attempt: Annotated[int, Rule(ge=0, description="Number of its current set of pods; the first is 0.")] = 0
    restarts: Annotated[int, Rule(ge=0, description="Restarts for failures of the element itself.")] = 0
    interruptions: Annotated[int, Rule(ge=0, description="Restarts for lost nodes, evictions and suspensions.")] = 0
    resume_at: Annotated[Time, Rule(description="Start of its next attempt.")] | None = None
    avoided_nodes: Annotated[list[str], Rule(max_length=8, description="Nodes on which the element itself failed.")] = []
    starts: JobStarts | None = None


class AlternativeStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The form of the job."""

    index: Annotated[int, Rule(ge=0, description="Alternative, from 1; 0: the role as it is written.")] = 0
    pool: Annotated[str, Rule(description="NodePool of the alternative.")] = ""


class RoleIndexes(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Members of a role, by their indexes."""

    role: Annotated[str, Rule(description="Name of the role.")]
    indexes: Annotated[str, Rule(description="Indexes such as 0-4,7.")] = ""


class AIJobStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """State of a job. Only the operator writes it."""

    phase: Annotated[
        str,
        Rule(
            pattern="^(Pending|Starting|Running|Restarting|Resizing|Suspended|Succeeded|Failed)$", description="State of the job."
        ),
    ] = "Pending"
    attempt: Annotated[int, Rule(ge=0, description="Number of the current set of pods; the first is 0.")] = 0
    restarts: Annotated[int, Rule(ge=0, description="Restarts for failures of the job itself.")] = 0
    interruptions: Annotated[
        int, Rule(ge=0, description="Restarts for lost nodes, evictions and suspensions. They do not count towards the limit.")
    ] = 0
    complete_attempt: Annotated[int, Rule(description="The last attempt of which all members existed at once; -1: none.")] = -1
    alternative: Annotated[AlternativeStatus, Rule(description="The form of this attempt.")] | None = None
    queue: Annotated[str, Rule(description="The queue that is charged: the one of the job's creation.")] = ""
    service_class: Annotated[str, Rule(description="The ServiceClass of the job's creation.")] = ""
    members: Annotated[int, Rule(ge=0, description="Maximum number of members.")] = 0
    size: Annotated[int, Rule(ge=0, description="Number of members with which it last ran steadily.")] = 0
    resizes: Annotated[int, Rule(ge=0, description="Number of changes of the size within attempts.")] = 0
    running: Annotated[int, Rule(ge=0, description="Members that run.")] = 0
    succeeded: Annotated[int, Rule(ge=0, description="Members that succeeded in this attempt.")] = 0
    succeeded_members: Annotated[
        list[RoleIndexes],
        Rule(max_length=64, description="Succeeded members of this attempt, including members whose pods are deleted."),
    ] = []
    met_dependencies: Annotated[
        list[str],
        Rule(
            max_length=64,
            description="Dependencies that are met, such as afterok:prepare. They stay so when the job is deleted.",
        ),
    ] = []
    completed_indexes: Annotated[str, Rule(description="Array: elements that succeeded, such as 0-4,7.")] = ""
    failed_indexes: Annotated[str, Rule(description="Array: elements that failed permanently.")] = ""
    elements: Annotated[
        list[ElementStatus], Rule(description="Array: unfinished elements that were started more than once.")
    ] = []
    resume_at: (
        Annotated[
            Time,
            Rule(description="Restarting: start of the next attempt. Resizing: time at which the size counts as stable."),
        ]
        | None
    ) = None
    last_checkpoint: (
        Annotated[Time, Rule(description="Time of the last checkpoint that a member wrote on termination.")] | None
    ) = None
    nodes: Annotated[
        list[str],
        Rule(max_length=1000, description="Nodes of the last run, without nodes on which it failed."),
    ] = []
    preferred_nodes: Annotated[
        list[str],
        Rule(
            max_length=64,
            description="Nodes preferred by this attempt: those on which the previous attempt ran without a failure.",
        ),
    ] = []
    avoided_nodes: Annotated[
        list[str],
        Rule(max_length=8, description="Nodes on which a member failed. They are used again only if no other capacity is free."),
    ] = []
    starts: JobStarts | None = None
    running_since: Annotated[Time, Rule(description="Start of the first member of the attempt.")] | None = None
    started_at: Annotated[Time, Rule(description="Time at which the job first ran.")] | None = None
    finished_at: Annotated[Time, Rule(description="Time at which the job succeeded or failed.")] | None = None
    message: Annotated[str, Rule(description="Why the job is in its phase.")] = ""
    conditions: Conditions = []


class AIJob(msgspec.Struct, rename="camel", kw_only=True):
    """A job of one or more roles that runs, restarts, is preempted and ends as a whole."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: AIJobSpec
    status: AIJobStatus | None = None


_MOST_MEMBERS = "self.roles.map(r, has(r.maxReplicas) ? r.maxReplicas : has(r.replicas) ? r.replicas : 1).sum()"
_ALTERNATIVES_OF_ONE_ROLE = (
    "!has(self.alternatives) || size(self.alternatives) == 0 || (size(self.roles) == 1 && !has(self.array)"
    " && !has(self.roles[0].minReplicas) && !has(self.roles[0].maxReplicas))"
)
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
    selectable=(".status.phase",),
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
        (f"{_MOST_MEMBERS} <= {MEMBERS}", f"a job has at most {MEMBERS} members, including maxReplicas"),
        (
            "!has(self.successPolicy) || self.successPolicy.roles.all(n, self.roles.exists(r, r.name == n))",
            "successPolicy names a role that does not exist",
        ),
        (
            f"self.roles.all(r, !has(r.sharedResources) || {names_rule('r.sharedResources')})",
            "names of sharedResources are DNS labels, such as storage-bandwidth",
        ),
        *TOPOLOGY_RULES,
        *ROLE_RULES,
        (
            _ALTERNATIVES_OF_ONE_ROLE,
            "alternatives need a single role without minReplicas and maxReplicas, and no array",
        ),
    ),
)

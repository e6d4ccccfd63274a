"""The custom resources of `fairlead.dev/v1alpha1` as typed objects.

The CRD YAML in `crds/` is generated from these types by `fairlead.api.crds`; it is never edited
by hand. Field names follow Kubernetes' camelCase on the wire.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Quantity = Annotated[
    str | int,
    Meta(description="A Kubernetes quantity: a number, optionally with a suffix such as m, Gi or k."),
]
_SPAN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
_AMOUNT = r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)(%|[KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
_PERCENTAGE = r"^(100([.]0*)?|[0-9]{1,2}([.][0-9]*)?)%$"
_NotNegative = Annotated[int, Meta(ge=0)]
_Amount = Annotated[str, Meta(pattern=_AMOUNT, max_length=64)] | _NotNegative
_Weight = Annotated[str, Meta(pattern=_PERCENTAGE, max_length=64)] | _NotNegative
_WORKLOAD_TYPE = "^(Training|Inference|Interactive)$"
MEMBERS = 10_000
"""The most members that an AIJob, or an element of its array, may have."""
Time = Annotated[str, Meta(description="A time such as 2027-01-31T08:00:00Z.", extra_json_schema={"format": "date-time"})]
Duration = Annotated[str, Meta(description="A span of time such as 90s, 30m, 24h or 7d.", pattern=_SPAN)]
StartTimeout = Annotated[
    str,
    Meta(
        description="From when the whole gang has nodes: within it each member's containers have run once, or it is stopped "
        "and queued again. Default: the ServiceClass's, then 15m.",
        pattern=_SPAN,
    ),
]


class QueueResource(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a queue is given of one resource."""

    name: Annotated[str, Meta(min_length=1, max_length=253, description="Resource, e.g. nvidia.com/gpu or cpu.")]
    pool: Annotated[str, Meta(max_length=253, description="Only the nodes of this NodePool. Absent: all nodes.")] | None = None
    quota: Annotated[_Amount, Meta(description="Guaranteed amount: a quantity or a percentage.")] | None = None
    limit: Annotated[_Amount, Meta(description="Cap: a quantity or a percentage.")] | None = None
    weight: Annotated[_Weight, Meta(description="Part of what is over: beside siblings', or a percentage.")] | None = None


class LabelRequirement(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One rule of a label selector, as in Kubernetes."""

    key: str
    operator: Annotated[str, Meta(pattern="^(In|NotIn|Exists|DoesNotExist)$")]
    values: list[str] = []


class LabelSelector(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Which objects, by their labels; an empty one selects all."""

    match_labels: dict[str, str] = {}
    match_expressions: Annotated[list[LabelRequirement], Meta(max_length=64)] = []


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
    period: Annotated[str, Meta(description="The time that counts, up to now.", pattern=_SPAN)] = "30d"
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
    min_runtime: Annotated[str, Meta(description="It does not fall before it has run so long.", pattern=_SPAN)] | None = None
    grace_period: Annotated[str, Meta(description="Time for a last checkpoint.", pattern=_SPAN)] | None = None
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
            pattern="^(Allow|Unpromised)$",
            description="With mode Never, beyond its queue's quota: whatever is idle, or only what no queue is guaranteed.",
        ),
    ] = "Allow"


class TimeLimit(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How long work of a class may run."""

    default: Annotated[str, Meta(description="Where it gives none itself.", pattern=_SPAN)] | None = None
    max: Annotated[str, Meta(description="At most.", pattern=_SPAN)] | None = None


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
                pattern=_SPAN,
            ),
        ]
        | None
    ) = None


class UtilizationPolicy(msgspec.Struct, rename="camel", kw_only=True):
    """When a job counts as not using its GPUs."""

    min_gpu_utilization: Annotated[int, Meta(ge=1, le=100, description="Percent; the busiest of its GPUs reaches it.")]
    time_window: Annotated[str, Meta(description="At least once within this time.", pattern=_SPAN)]


class ServiceClassSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A class of service."""

    priority_class_name: (
        Annotated[str, Meta(max_length=253, description="The PriorityClass whose value is the priority of its work.")] | None
    ) = None
    preemption: Preemption = msgspec.field(default_factory=Preemption)
    checkpoint_interval: Annotated[str, Meta(description="Time between two checkpoints.", pattern=_SPAN)] | None = None
    time_limit: TimeLimit | None = None
    start_timeout: (
        Annotated[str, Meta(description="Work that has its nodes starts within it, where it gives none itself.", pattern=_SPAN)]
        | None
    ) = None
    max_wait: Annotated[str, Meta(description="How long it should wait at most.", pattern=_SPAN)] | None = None
    time_slicing: TimeSlicing | None = None
    namespace_selector: (
        Annotated[LabelSelector, Meta(description="Namespaces whose pods may use the class. Absent: all.")] | None
    ) = None
    users: Annotated[list[str], Meta(max_length=1024, description="Users who may use the class. Absent: all.")] | None = None
    default_for: Annotated[
        list[Annotated[str, Meta(pattern=_WORKLOAD_TYPE)]],
        Meta(max_length=3, description="AIJobs of these types that name no class are of this one, if it is open to everybody."),
    ] = []
    idle_duration: (
        Annotated[str, Meta(description="Interactive jobs without activity for so long are shut down.", pattern=_SPAN)] | None
    ) = None
    utilization_policy: Annotated[UtilizationPolicy, Meta(description="Jobs that do not use their GPUs are ended.")] | None = None


class Condition(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """One observation about an object, in Kubernetes' form."""

    type: str
    status: Annotated[str, Meta(pattern="^(True|False|Unknown)$")]
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


Conditions = Annotated[
    list[Condition],
    Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]
"""One for each type, so that several writers each apply their own."""


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


class GroupReason(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Why something waits."""

    code: str
    message: str = ""


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


class ServiceClassStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What the scheduler says about a class."""

    conditions: Conditions = []


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


class ReservationSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes kept for a window of time."""

    purpose: Annotated[
        str,
        Meta(
            pattern="^(Maintenance|Capacity)$",
            description="Maintenance: nothing runs there in the window. Capacity: only the queue's pods do.",
        ),
    ]
    start: Time
    end: Time
    node_selector: Annotated[LabelSelector, Meta(description="Nodes by their labels. Absent: all.")] | None = None
    queue: Annotated[str, Meta(description="Whose pods may use the nodes, descendants' included.")] | None = None
    resources: Annotated[
        dict[str, Quantity], Meta(description="So much only: the first nodes by name that have it together. Absent: all nodes.")
    ] = {}


class ReservationStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where a reservation stands; written by the scheduler alone."""

    phase: Annotated[str, Meta(pattern="^(Pending|Active|Over)$")] = "Pending"
    nodes: Annotated[list[str], Meta(max_length=1000, description="The nodes that are kept, the first thousand by name.")] = []
    conditions: Conditions = []


class TopologyLevel(msgspec.Struct, rename="camel", kw_only=True):
    """One level of the network, from far to near."""

    name: Annotated[str, Meta(min_length=1, max_length=63, description="What it is called, e.g. block, rack or nvlink.")]
    label: Annotated[str, Meta(min_length=1, max_length=317, description="Node label whose value tells the domain.")]


class PoolSize(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How many nodes a pool may have."""

    min: Annotated[int, Meta(ge=0, description="At least.")] = 0
    max: Annotated[int, Meta(ge=0, description="At most. Absent: not bounded.")] | None = None


class Price(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a node of a pool costs."""

    per_node_hour: Annotated[float, Meta(ge=0, description="For one node and hour.")]
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$", description="ISO 4217.")] = "USD"
    kind: Annotated[str, Meta(pattern="^(OnDemand|Spot|Reserved)$", description="How it is bought.")] = "OnDemand"


class NodePoolSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes of one device model."""

    node_selector: Annotated[LabelSelector, Meta(description="Its nodes, by their labels. Absent: all.")] | None = None
    topology_levels: Annotated[list[TopologyLevel], Meta(max_length=8, description="From far to near.")] = []
    size: PoolSize | None = None
    price: Price | None = None
    relative_speed: Annotated[float, Meta(gt=0, description="How fast its devices are, beside those of other pools.")] | None = (
        None
    )


class NodePoolStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What the scheduler says about a pool."""

    conditions: Conditions = []


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
        str, Meta(description="Before the first restart, at least 1s; doubled for each after, up to 10m.", pattern=_SPAN)
    ] = "1s"
    exit_codes: Annotated[list[ExitCodeRule], Meta(max_length=64)] = []


class Checkpoint(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where and how often the job saves its work."""

    path: Annotated[str, Meta(min_length=1, description="Told to its members as FAIRLEAD_CHECKPOINT_PATH.")]
    interval: Annotated[str, Meta(description="Time between two of them.", pattern=_SPAN)] | None = None
    grace_period: Annotated[str, Meta(description="Time from SIGTERM on for a last one.", pattern=_SPAN)] | None = None


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
    workload_type: Annotated[str, Meta(pattern=_WORKLOAD_TYPE)] = "Training"
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
        Annotated[str, Meta(description="Interactive: without activity for so long it is shut down.", pattern=_SPAN)] | None
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


class Metadata(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """The part of ObjectMeta that Fairlead reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class Queue(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A queue: quota that is guaranteed, a limit that caps, a place in the tree."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus | None = None


class ServiceClass(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A class of service: who may take whose devices, and at what price."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ServiceClassSpec = msgspec.field(default_factory=ServiceClassSpec)
    status: ServiceClassStatus | None = None


class PodGroup(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A gang or an elastic set of pods."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus | None = None


class Reservation(msgspec.Struct, rename="camel", kw_only=True):
    """Nodes kept for a window of time: for maintenance, or for a queue."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ReservationSpec
    status: ReservationStatus | None = None


class NodePool(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes of one device model, which queues may be given parts of."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: NodePoolSpec = msgspec.field(default_factory=NodePoolSpec)
    status: NodePoolStatus | None = None


class AIJob(msgspec.Struct, rename="camel", kw_only=True):
    """A job of one or more roles that runs, restarts, gives way and ends as a whole."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: AIJobSpec
    status: AIJobStatus | None = None


class Kind(msgspec.Struct, frozen=True):
    """How one of our kinds is served by the API server."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    namespaced: bool
    spec: type[Any]
    status: type[Any]
    columns: tuple[tuple[str, str, str], ...]
    rules: tuple[tuple[str, str], ...] = ()


_SAME_RESOURCE = "s.name == r.name && (has(s.pool) ? s.pool : '') == (has(r.pool) ? r.pool : '')"
_MOST_MEMBERS = "self.roles.map(r, has(r.maxReplicas) ? r.maxReplicas : has(r.replicas) ? r.replicas : 1).sum()"
_NO_MORE_EXPRESS_THAN_LEVELS = (
    "!has(self.timeSlicing) || !has(self.timeSlicing.express) || self.timeSlicing.express <= size(self.timeSlicing.levels)"
)

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
RESERVATION = Kind(
    kind="Reservation",
    plural="reservations",
    singular="reservation",
    short_names=("frsv",),
    namespaced=False,
    spec=ReservationSpec,
    status=ReservationStatus,
    columns=(
        ("Purpose", "string", ".spec.purpose"),
        ("Start", "string", ".spec.start"),
        ("End", "string", ".spec.end"),
        ("Queue", "string", ".spec.queue"),
        ("Phase", "string", ".status.phase"),
    ),
    rules=(
        ("self.end > self.start", "end must be after start"),
        ("self.purpose != 'Capacity' || has(self.queue)", "a reservation of Capacity names the queue that it is for"),
        ("self.purpose != 'Maintenance' || !has(self.queue)", "Maintenance is nobody's: leave queue out"),
    ),
)
NODE_POOL = Kind(
    kind="NodePool",
    plural="nodepools",
    singular="nodepool",
    short_names=("fnp",),
    namespaced=False,
    spec=NodePoolSpec,
    status=NodePoolStatus,
    columns=(
        ("Min", "integer", ".spec.size.min"),
        ("Max", "integer", ".spec.size.max"),
        ("Node-Hour", "number", ".spec.price.perNodeHour"),
    ),
    rules=(
        (
            "!has(self.size) || !has(self.size.max) || !has(self.size.min) || self.size.max >= self.size.min",
            "size.max must not be below size.min",
        ),
    ),
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
KINDS = (QUEUE, POD_GROUP, SERVICE_CLASS, RESERVATION, NODE_POOL, AI_JOB)

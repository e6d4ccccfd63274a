"""What the core is told about: nodes, pods, queues and groups, free of any wire format.

All amounts are integers in base units (see `fairlead.api.quantity`). Objects are immutable; a
change arrives as a new object. `PodSpec` is everything that decides where a pod may run, so two
pods with equal specs are interchangeable for placement and share one shape.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from fairlead.api.names import AI_PROFILE, GPU_RESOURCES
from fairlead.api.reasons import Reason
from fairlead.core.model.selectors import Selector, SelectorTerm

WHOLE = 1000
"""Milli-units of one whole device."""
START_TIMEOUT = 900.0
"""Seconds that members with nodes may take to start where nothing else is said."""
START_RETRIES = 30.0
"""Seconds for which a container says what hardly comes about by waiting until its kubelet has tried it again."""


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


class AffinityTerm(msgspec.Struct, frozen=True):
    """Pods near which, or away from which, a pod wants to be: those selected, in these namespaces.

    namespaces: by name; the pod's own where it gave none. namespace_selector: those whose labels match, besides.
    """

    topology_key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector = None


class SpreadConstraint(msgspec.Struct, frozen=True):
    """How evenly pods like this one are laid over the domains of a topology key.

    selector: whom to count, in the pod's own namespace; match label keys are merged into it already.
    honor_affinity, honor_taints: whether nodes count only if the pod's node affinity and tolerations admit them.
    """

    topology_key: str
    max_skew: int
    selector: Selector
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class HostPort(msgspec.Struct, frozen=True):
    """A port of the node itself; address 0.0.0.0 is all of the node's addresses."""

    address: str
    protocol: str
    port: int


class ClaimUse(msgspec.Struct, frozen=True):
    """A volume claim that a pod mounts. owner: the pod's UID where the claim must be its very own (ephemeral)."""

    key: str
    owner: str = ""

    @property
    def name(self) -> str:
        """Its name without the namespace."""
        return self.key.partition("/")[2]


class Disk(msgspec.Struct, frozen=True):
    """An inline disk that cannot be mounted twice on a node, unless read-only both times where its kind allows that.

    kind, name: what tells disks apart; monitors: for Ceph, of which one in common is enough.
    """

    kind: str
    name: str
    read_only: bool = False
    monitors: tuple[str, ...] = ()


class Mistake(msgspec.Struct, frozen=True):
    """A part of a pod that cannot be parsed: which plugin's concern it is, what is wrong, and whether only its scores are."""

    plugin: str
    message: str
    scoring: bool = False


class PodSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that decides where a pod may run.

    requests: (resource, amount) sorted by name, zero amounts left out, `pods: 1` included.
    gpus, gpu_milli: devices asked for and how much of each (1000 = whole devices).
    affinity: required node affinity, terms are alternatives; None means none was given, while an
    empty tuple matches nothing, as in Kubernetes. preferred_nodes: (weight, term).
    pod_affinity, pod_anti_affinity: required; preferred_pods: (weight, term), below 0 for anti-affinity.
    spread: required constraints; preferred_spread: those that only score; default_spread: whom to count for
    the constraints of the system's own that pods without any get, None for none.
    scored: (milli-CPU, bytes) with which the pod counts in scores: containers without a request count as 100 and
    200 MiB; None: as requested. scored_new: the same while its place is being looked for, None if no other.
    images: of all containers and image volumes, by the names nodes list them under; containers: how many there are.
    features: what a node must declare to be able to do.
    """

    requests: tuple[tuple[str, int], ...] = (("pods", 1),)
    gpus: int = 0
    gpu_milli: int = WHOLE
    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[SelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferred_nodes: tuple[tuple[int, SelectorTerm], ...] | None = None
    pod_affinity: tuple[AffinityTerm, ...] = ()
    pod_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_pods: tuple[tuple[int, AffinityTerm], ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    preferred_spread: tuple[SpreadConstraint, ...] = ()
    default_spread: Selector = None
    ports: tuple[HostPort, ...] = ()
    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    images: tuple[str, ...] = ()
    containers: int = 1
    scored: tuple[int, int] | None = None
    scored_new: tuple[int, int] | None = None
    features: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


Labels = tuple[tuple[str, str], ...]
"""(key, value), sorted by key."""


class StartTrouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """What keeps a pod that has a node from having started, in its container's words. reason: empty where that says none.

    hopeless: no waiting helps. retried: it hardly comes about by waiting, but the kubelet tries it again.
    """

    reason: str = ""
    message: str = ""
    hopeless: bool = False
    retried: bool = False


STAND_IN = "suspended/"
"""How the UIDs of stand-ins begin: no cluster knows them."""


def stands_in(uid: str) -> bool:
    """Whether it is no pod, but stands for one of a suspended job."""
    return uid.startswith(STAND_IN)


class Pod(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One pod.

    node: where it is bound, or empty. created: seconds since the epoch, to the second.
    error: what of its object cannot be read (bad quantity and the like), or None; it is not placed then.
    unsized: what it asks for cannot be known: a node that it is on takes nothing more.
    started: when it began to run, seconds since the epoch. nominated: the node kept for it while its victims leave.
    preempted: terminating because a scheduler chose it as a victim. profile: by which rules it is placed.
    root: the object that suspends it, `apiVersion/kind/name`, where there is one that can; its UID is that of its owner.
    user: who submitted it; empty: its namespace. service_class: name of its ServiceClass, or empty.
    attained: device-seconds that its job had already before this pod.
    time_limit, expected: seconds that it may run, and that it is thought to run, both 0 where it does not say; deadline:
    seconds after which its kubelet ends it.
    grace: seconds that it asks for to end. leaves: when it is to have ended, seconds since the epoch, once it is terminating.
    ours: whether Fairlead places it; others only occupy their node.
    surplus: its gang can do without it: others of its priority go first, and may have its place.
    stays: it asks not to be disturbed: it is never moved. Whose turn it is to fall for others still falls.
    controlled: whether a controller would recreate it after an eviction; owner: that controller's UID.
    succeeded: when it ended with success, seconds since the epoch; 0: it did not, or was deleted before. attempt: of its job.
    bound: when it got its node, seconds since the epoch, and starting: what keeps it there from starting, None once it has; both
    for members of gangs whose starts the scheduler watches.
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
    surplus: bool = False
    stays: bool = False
    controlled: bool = True
    error: Reason | None = None
    unsized: bool = False
    labels: Labels = ()
    started: float | None = None
    nominated: str = ""
    preempted: bool = False
    profile: str = AI_PROFILE
    service_class: str = ""
    attained: float = 0.0
    user: str = ""
    owner: str = ""
    root: str = ""
    deadline: float = 0.0
    time_limit: float = 0.0
    expected: float = 0.0
    grace: int = 30
    leaves: float = 0.0
    succeeded: float = 0.0
    attempt: int = 0
    bound: float = 0.0
    starting: StartTrouble | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Node(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One node.

    shares_gpus: fractions of its devices can really be given out there. images: (name, bytes) of what it holds.
    features: what its kubelet declares to be able to do.
    """

    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    shares_gpus: bool = False
    error: Reason | None = None
    images: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()


class Namespace(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A namespace and its labels, which selectors of pod affinity read."""

    name: str
    labels: Labels = ()


class DisruptionBudget(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PodDisruptionBudget. allowed: how many of those selected may be evicted now; disrupted: pods that are leaving already."""

    namespace: str
    name: str
    selector: Selector = None
    allowed: int = 0
    disrupted: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class QueueResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Quota and limit of one resource in base units (devices in milli), of one pool or of all nodes; None means not given.

    pool: of the nodes of this pool only; empty: of all. weight: how what is over is divided among siblings; where none of
    them gives one, by what each wants beyond its quota, else 1 where absent. weight_percent: so much of what is over, and the
    other siblings divide the rest by weight. The percentages, in thousandths of a percent,
    are of what all nodes, or those of the pool, offer now.
    """

    name: str
    quota: int | None = None
    limit: int | None = None
    quota_percent: int | None = None
    limit_percent: int | None = None
    weight: int | None = None
    pool: str = ""
    weight_percent: int | None = None


class UserLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one user may have in a queue and its descendants, or all of them together; None or absent: no limit.

    running, submitted: jobs that run; jobs that wait or run. resources: (resource, base units), devices in milli.
    """

    running: int | None = None
    submitted: int | None = None
    resources: tuple[tuple[str, int], ...] = ()


class UsageRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decayed use in device-seconds as of `at`, seconds since the epoch: of a queue, and of its users."""

    value: float
    at: float
    users: tuple[tuple[str, float], ...] = ()


class RunTimeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Run times in seconds of jobs that ended of late, oldest first: of one user and class, on so many devices, in milli."""

    user: str
    service_class: str
    devices: int
    seconds: tuple[int, ...]


class ForecastRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A start that was foretold and came: of a job of a queue on so many devices, in milli.

    foretold, waited: seconds from its creation to its start, as foretold first and in truth.
    """

    queue: str
    devices: int
    foretold: int
    waited: int


class Queue(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A queue as the core sees it; parent empty: directly under the root.

    namespaces: by their labels, those whose pods may use it; users: who may, None for all; classes: the classes of service
    that may, None for all. per_user: limits for each user; jobs: for all together. users_reclaim: whether a user may take from
    those who hold more of the queue. usage, run_times, forecasts: as last written.
    """

    name: str
    parent: str = ""
    priority: int = 0
    resources: tuple[QueueResource, ...] = ()
    namespaces: Selector = ()
    users: tuple[str, ...] | None = None
    classes: tuple[str, ...] | None = None
    per_user: UserLimits | None = None
    jobs: UserLimits | None = None
    usage: UsageRecord | None = None
    users_reclaim: bool = False
    run_times: tuple[RunTimeRecord, ...] = ()
    forecasts: tuple[ForecastRecord, ...] = ()


class ServiceClass(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A class of service: who may take whose devices, and at what price.

    mode: `Requeue` or `Suspend` when it falls, or `Never`. scope: whose work of lower standing it may take: its `Queue`'s,
    that of its `Parent` queue, the `Cluster`'s. min_runtime: seconds that a pod runs before it may fall; grace: that it has to
    end when it does, 0: its own.
    checkpoint_interval: seconds of work between two checkpoints, 0 if there are none.
    max_wait: seconds that its work should wait at most, 0: no such aim. time_limit, longest: seconds that its work may run
    where it gives no limit itself, and at most; 0: not limited.
    levels: device-seconds of attained service, rising: whoever attained less goes first and may take the devices of who
    attained more. express: so many of the lowest levels take from any queue, whatever the shares. max_loss: seconds of work since
    a checkpoint that are lost to a turn at most, 0: whatever it costs.
    namespaces: by their labels, those whose pods may use it; users: who may, None for all. movable: whether its pods, beyond
    what their gangs need, may be evicted only to run elsewhere; moves_whole: and whole gangs, stopped and started as one.
    borrows: whether its pods, where they never fall, get what other queues are guaranteed.
    start_timeout: seconds in which its gangs start that have their nodes, where they say nothing themselves; 0: nor does it.
    """

    name: str
    mode: str = "Requeue"
    scope: str = "Queue"
    min_runtime: float = 0.0
    grace: float = 0.0
    checkpoint_interval: float = 0.0
    max_wait: float = 0.0
    time_limit: float = 0.0
    longest: float = 0.0
    levels: tuple[float, ...] = ()
    express: int = 0
    namespaces: Selector = ()
    users: tuple[str, ...] | None = None
    movable: bool = True
    moves_whole: bool = False
    max_loss: float = 0.0
    borrows: bool = True
    start_timeout: float = 0.0

    @property
    def turn_interval(self) -> float:
        """Seconds of work between two checkpoints for which turns wait; 0: they wait for none."""
        return self.checkpoint_interval if self.max_loss else 0.0

    def ends_turn(self, worked: float, slack: float = 0.0) -> bool:
        """Whether a turn may end after so many seconds of work: after one interval at least, just after a checkpoint."""
        interval = self.turn_interval
        return not interval or (worked >= interval and worked % interval <= self.max_loss + slack)

    def level(self, attained: float) -> int:
        """On which level so much attained service is."""
        return bisect_right(self.levels, attained)

    def takes_turn(self, level: int, other: int, *, near: bool) -> bool:
        """Whether its work on a level takes the place of work on another that runs, is of no higher priority, and may be evicted.

        near: whether its scope reaches that work's queue. Express work takes from any queue what is not express any more.
        """
        return bool(self.levels) and level < other and (near or level < self.express <= other)


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """So many pods like this one."""

    count: int
    pod: Pod


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the scheduler means a job to be: `Running` or `Suspended`. owners: UIDs of what makes its pods.

    members: its pods, while it is suspended. attained: device-seconds that it had had when it resumed last, since: when it came
    first, once it has resumed.
    """

    state: str
    epoch: int = 0
    owners: tuple[str, ...] = ()
    members: tuple[Member, ...] = ()
    attained: float = 0.0
    since: float = 0.0


class Completed(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many members of a gang succeeded in a run of it, as last written.

    attempt: of the job; since: when the run's first pod was made, 0: not known; until: when the last of them ended; both in
    seconds since the epoch.
    """

    count: int = 0
    attempt: int = 0
    since: float = 0.0
    until: float = 0.0


class FailedStarts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Starts of a gang that failed in a row, as last written. until: it is placed again no sooner, seconds since the epoch."""

    count: int
    until: float
    message: str = ""


class Group(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A PodGroup: `min_member` of its pods run, or none.

    time_limit, expected: as for pods. start_timeout: seconds in which its members start that have nodes, 0: it does not say.
    target, completed, failed_starts: as last written. paused: its user has suspended it, whatever the scheduler means it to be.
    made: the scheduler made it, to keep an intent. roles: digest of the roles that its AIJob has now; empty: that is not told.
    """

    namespace: str
    name: str
    min_member: int = 1
    queue: str = ""
    created: float = 0.0
    service_class: str = ""
    time_limit: float = 0.0
    expected: float = 0.0
    target: Target | None = None
    completed: Completed | None = None
    start_timeout: float = 0.0
    failed_starts: FailedStarts | None = None
    paused: bool = False
    made: bool = False
    roles: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class NodePool(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Nodes of one kind, by their labels."""

    name: str
    nodes: Selector = ()


class Reservation(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Nodes kept by an administrator from `start` to `end`, seconds since the epoch.

    nodes: by their labels. queue: whose pods may use them all the same, empty: nobody's. resources: so much of them
    only, in base units as nodes have them; empty: all that are selected.
    """

    name: str
    start: float
    end: float
    nodes: Selector = ()
    queue: str = ""
    resources: tuple[tuple[str, int], ...] = ()


class Defragment(msgspec.Struct, frozen=True, kw_only=True):
    """When nodes are emptied though nobody waits: every so many seconds, between two times of the day.

    moves: pods at most at a time. threshold: only while at least that part of what is free lies in pieces. begins, ends:
    seconds of the UTC day; equal: always.
    """

    every: float
    moves: int = 20
    threshold: float = 0.5
    begins: float = 0.0
    ends: float = 0.0


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How to decide.

    preempt: whether work of the same queue may fall, reclaim: whether that of others may, for shares.
    strategy: name of a placement strategy. gpu_resources: which extended resources are devices.
    gang_grace: seconds after the last fault before a half-bound gang is taken down.
    backoff, backoff_limit: first and longest wait in seconds after a refused write.
    searches, search_backoff, search_backoff_limit: so many searches for victims in a row may be in vain before there is
    a rest before the next; the first and the longest in seconds, doubling between.
    look_again: seconds after which whoever speaks of other pods is tried again, whatever was heard; 0: never.
    fair_users: whether among equals in a queue the user who holds least of it goes first.
    share_wait: seconds after which a queue is given its share though a lender is left with less than its own, and for which
    its first job is passed by others that fit where it does not, 0: never.
    usage_half_life: seconds in which past use of devices counts half, 0: not at all; usage_weight: how much it counts.
    reservations: for how many units that wait in vain nodes are kept, after `patience` seconds.
    moves_per_minute: how many pods may be evicted a minute only to run elsewhere, so that what waits fits, 0: none;
    move_patience: for what has waited so many seconds. defragment: when nodes are emptied besides, None: never.
    budget_override: seconds after which work within its quota takes what others borrow although a disruption budget forbids it,
    0: never. victim_timeout: seconds beyond their grace that victims are waited for. max_grace: the longest time to end, in
    seconds, that an eviction gives a pod.
    pods_per_free_gpu, cpu_per_free_gpu: pod slots and milli-CPU that pods without devices leave on a node for each of its
    free GPUs, once a queue has a quota of GPUs.
    head_blocks: whether the first job of a queue that cannot start keeps all behind it waiting.
    charge_foreign: whether pods that somebody else placed count as held by the default queue of their namespace.
    strategy_options: passed to the strategy, e.g. the target workload of `fgd`.
    """

    strategy: str = "ai"
    gpu_resources: tuple[str, ...] = GPU_RESOURCES
    preempt: bool = True
    reclaim: bool = True
    fair_users: bool = True
    share_wait: float = 3600.0
    usage_half_life: float = 0.0
    usage_weight: float = 1.0
    reservations: int = 1
    patience: float = 300.0
    moves_per_minute: float = 20.0
    move_patience: float = 60.0
    defragment: Defragment | None = None
    budget_override: float = 600.0
    victim_timeout: float = 120.0
    max_grace: int = 3600
    pods_per_free_gpu: int = 1
    cpu_per_free_gpu: int = 1000
    head_blocks: bool = False
    charge_foreign: bool = False
    gang_grace: float = 60.0
    backoff: float = 1.0
    backoff_limit: float = 60.0
    searches: int = 3
    search_backoff: float = 0.1
    search_backoff_limit: float = 10.0
    look_again: float = 300.0
    strategy_options: dict[str, object] = {}

    def write_rest(self, faults: int) -> float:
        """Seconds before a write that was refused so many times is tried again."""
        return _doubled(self.backoff, faults - 1, self.backoff_limit)

    def search_rest(self, vain: int) -> float:
        """Seconds before victims are looked for again after so many searches in vain."""
        if vain < self.searches:
            return 0.0
        return _doubled(self.search_backoff, vain - self.searches, self.search_backoff_limit)

    def move_rest(self, vain: int) -> float:
        """Seconds before pods to be moved are looked for again after so many searches in vain."""
        return _doubled(_MOVE_REST, vain - 1, _LONGEST_MOVE_REST) if vain else 0.0


_MOVE_REST, _LONGEST_MOVE_REST = 60.0, 1800.0  # seconds


def _doubled(first: float, times: int, limit: float) -> float:
    return min(first * 2.0 ** min(times, 16), limit)

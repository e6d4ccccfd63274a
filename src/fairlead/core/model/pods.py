"""Pods as the core sees them, free of any wire format.

All amounts are integers in base units (see `fairlead.api.quantity`). Objects are immutable; a change arrives as a new object.
`PodSpec` is everything that decides where a pod may run, so two pods with equal specs are interchangeable for placement and
share one shape.
"""

from __future__ import annotations

import msgspec

from fairlead.api.names import AI_PROFILE
from fairlead.api.reasons import Reason
from fairlead.core.model.selectors import Labels, Selector, SelectorTerm
from fairlead.core.model.starts import StartTrouble
from fairlead.core.model.units import WHOLE
from fairlead.core.numa.model import NumaNeed


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


class DeviceUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ResourceClaim that a pod uses. name: as containers refer to it; key: `namespace/name`, empty before it is created.

    template: `namespace/name` of the template that it is made of for this pod alone; empty: it is there by itself.
    extended: it is the claim of the pod's extended resources, which the scheduler creates when it binds the pod.
    like: of a spare, `namespace/name` of a claim that asks for the same and that only another pod uses.
    """

    name: str
    key: str = ""
    template: str = ""
    extended: bool = False
    like: str = ""


class ExtendedRequest(msgspec.Struct, frozen=True, gc=False):
    """An extended resource that one container requests, as a device request would ask for it.

    position: of the container, init containers first. request: name of the device request. brief: of an init container that ends
    before others start, so that it can use devices of containers that come later.
    """

    container: str
    position: int
    resource: str
    request: str
    amount: int
    brief: bool = False


class Served(msgspec.Struct, frozen=True):
    """A resource that a DeviceClass serves where nodes do not advertise it. amount: of the pod, as a device plugin counts it.

    asks: (name of the request, devices) by which the class is asked for it.
    """

    resource: str
    device_class: str
    amount: int
    asks: tuple[tuple[str, int], ...]


class DeviceNeed(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pod needs by one ResourceClaim, as the state has found out.

    content: number of what it asks for; 0: that is not known. claim: its key where it matters which claim it is: it is allocated,
    or other pods use it. missing: it does not exist, so nothing can be allocated to it. milli: thousandths of a GPU that it is
    charged as; sharers: how many pods are charged for the claim in equal parts, of which it is one, 0: only others are. served:
    extended resources that are had by devices on nodes that do not advertise them, by name; content is what all of them ask for.
    """

    content: int = 0
    claim: str = ""
    missing: bool = False
    milli: int = 0
    sharers: int = 1
    served: tuple[Served, ...] = ()


class SliceRule(msgspec.Struct, frozen=True):
    """Members of one role in slices, by their indexes: each slice in one domain of a level.

    sizes: members of a slice, the largest first, each a divisor of the one before. The last one always holds; the largest for
    which there are places is chosen.
    """

    level: str
    sizes: tuple[int, ...]


class Closeness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where on the network the members of a gang are to be: levels, by their names or by the labels of nodes.

    required: of each of these levels all members are in one domain. preferred: of this level, in as few as possible.
    slices: from the widest level to the narrowest, by role. balanced: the domains of the preferred level (of that of the
    outermost slices, where none is preferred) get equal numbers of slices, or of members, up to one. roles: what is asked of
    single roles, instead of slices, balanced and preferred of all, and besides what is required of all. spares: so many further
    places are kept in the required domain; those of a role for its members, those of all for members of roles without their own.
    """

    required: tuple[str, ...] = ()
    preferred: str = ""
    slices: tuple[SliceRule, ...] = ()
    balanced: bool = False
    roles: tuple[tuple[str, Closeness], ...] = ()
    spares: int = 0


class Part(msgspec.Struct, frozen=True):
    """Some members of a gang that are in one domain of a level: a role, or a slice. key: what they are counted under."""

    key: str
    level: str


class Near(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where on the network a pod is to be for the sake of its gang, as the state has found out. gang: `namespace/name`, or empty.

    required, preferred: as in `Closeness`. domain: UID of the ComputeDomain that its claims name.
    team: the members of its role, as they are counted; empty where nothing is asked of them by role. own: its role, for each
    level that is required of it. slices: the slices that it belongs to, from the widest to the narrowest; sizes: as the rules
    give them. even: the level whose domains get equal parts, of `least` units at least. wrong: why what is asked cannot be had,
    whatever is free; it has no place then.
    """

    gang: str
    required: tuple[str, ...] = ()
    preferred: str = ""
    domain: str = ""
    team: str = ""
    own: tuple[Part, ...] = ()
    slices: tuple[Part, ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    even: str = ""
    least: int = 0
    wrong: str = ""

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that it belongs to."""
        return self.own + self.slices


class Disk(msgspec.Struct, frozen=True):
    """An inline disk that cannot be mounted twice on a node, unless read-only both times where its kind allows that.

    kind, name: what distinguishes disks; monitors: for Ceph, of which one in common is enough.
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
    200 MiB; None: as requested. scored_new: the same while its place is being searched for, None if no other.
    images: of all containers and image volumes, by the names nodes list them under; containers: how many there are.
    features: what a node must declare to be able to do.
    numa: what its containers need of NUMA nodes, for nodes that report theirs.
    devices: what it needs by ResourceClaims, in order; near: where its gang wants it. The state writes both.
    pressure: thousandths of a node's capacity that it uses of what a node's pods share, by the kinds of `api/pressure`; empty:
    nothing is known. The state writes these: isolated: the job that shares no node with other jobs' pods with GPUs, or empty;
    own_gpus: whether its GPUs must not be replicas that others may share; paired: the names of its kind, the most alike first,
    where it has half a GPU and may share it with one other such pod.
    shared: (name, amount) of what it takes of what the nodes of a pool share, sorted by name.
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
    devices: tuple[DeviceNeed, ...] = ()
    near: Near | None = None
    numa: NumaNeed = ()
    pressure: tuple[int, ...] = ()
    isolated: str = ""
    own_gpus: bool = False
    shared: tuple[tuple[str, int], ...] = ()
    paired: tuple[str, ...] = ()


class Pod(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One pod.

    node: where it is bound, or empty. created: seconds since the epoch, to the second.
    error: what of its object cannot be read (bad quantity and the like), or None; it is not placed then.
    unsized: what it asks for cannot be known: a node that it is on takes nothing more.
    started: when it began to run, seconds since the epoch. nominated: the node reserved for it while its victims leave.
    preempted: terminating because a scheduler chose it as a victim. profile: by which rules it is placed.
    root: the object that suspends it, `apiVersion/kind/name`, where there is one that can; its UID is that of its owner.
    user: who submitted it; empty: its namespace. service_class: name of its ServiceClass, or empty.
    attained: device-seconds that its job had already before this pod. suspended: when its job was, of what waits in its stead.
    time_limit, expected: seconds that it may run, and that it is thought to run, both 0 where not given; deadline:
    seconds after which its kubelet ends it.
    grace: seconds that it asks for to end. leaves: when it is to have ended, seconds since the epoch, once it is terminating.
    ours: whether Fairlead places it; others only occupy their node.
    elastic: its gang can do without it: others of its priority go first, and may have its place.
    stays: it asks not to be disturbed: it is never moved. It is preempted all the same.
    controlled: whether a controller would recreate it after an eviction; owner: that controller's UID.
    succeeded: when it ended with success, seconds since the epoch; 0: it did not, or was deleted before. attempt: of its job.
    bound: when it got its node, seconds since the epoch, and starting: what keeps it there from starting, None once it has; both
    for members of gangs whose starts the scheduler watches.
    placeholder: the cluster has no such pod: the scheduler made it, to wait for a suspended job, or to hold a place.
    spare: it is such a one, and holds a place that is reserved for members of its gang that are replaced, or
    for the followers of one: leader is the UID of that member, or empty.
    claims: the ResourceClaims that it uses. extended: the extended resources that its containers request; extended_claim: name of
    the claim that serves some of them, as its status has it. closeness: where on the network its gang is to be, unless its
    PodGroup has that. measured: its pressure as it was measured at `measured_at`, seconds since the epoch; empty: it was not.
    speed: steps per second as they were measured at `speed_at`, 0: not measured. partner: on a node, of a pod that has half a
    GPU: UID of the pod beside which it was placed, or `alone`.
    declares: whether its pressure is declared. moves_to: the node where a place is reserved for its replacement, once it was
    evicted to run there.
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
    elastic: bool = False
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
    placeholder: bool = False
    claims: tuple[DeviceUse, ...] = ()
    extended: tuple[ExtendedRequest, ...] = ()
    extended_claim: str = ""
    closeness: Closeness | None = None
    measured: tuple[int, ...] = ()
    measured_at: float = 0.0
    declares: bool = False
    speed: float = 0.0
    speed_at: float = 0.0
    partner: str = ""
    spare: bool = False
    suspended: float = 0.0
    leader: str = ""
    moves_to: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def on_paper(pod: Pod) -> Pod:
    """One that asks for what a pod does, and has not been made: no node, and nothing that it belongs to.

    Claims that a template makes for each pod are to be made for it anew; of those for extended resources nothing is left.
    """
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, devices=()) if pod.claims else pod.spec,
        claims=tuple(msgspec.structs.replace(use, key="") if use.template else use for use in pod.claims if not use.extended),
        extended_claim="",
        node="",
        nominated="",
        owner="",
        root="",
        controlled=False,
        started=None,
        preempted=False,
        moves_to="",
        partner="",
    )

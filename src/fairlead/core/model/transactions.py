"""What a pass decides, one group at a time. The state has already assumed it when it is yielded."""

from __future__ import annotations

import msgspec

from fairlead.api.reasons import Reason
from fairlead.core.model.allocations import Allocation
from fairlead.core.model.causes import NO_CAUSE, Cause
from fairlead.core.model.groups import Chosen, Member
from fairlead.core.model.pods import Pod


class PodRef(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A pod. placeholder: the cluster has no such pod; it waits for a suspended job."""

    uid: str
    namespace: str
    name: str
    placeholder: bool = False

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def ref_of(pod: Pod) -> PodRef:
    """How transactions name a pod."""
    return PodRef(pod.uid, pod.namespace, pod.name, pod.placeholder)


class VolumeChoice(msgspec.Struct, frozen=True, gc=False):
    """A claim that waited for its first consumer, `namespace/name`, and the volume it is to get; empty: have one made."""

    claim: str
    volume: str = ""


class RequestMapping(msgspec.Struct, frozen=True, gc=False):
    """A container's extended resource, and a request of the pod's claim whose devices it gets for that."""

    container: str
    resource: str
    request: str


class ExtendedClaim(msgspec.Struct, frozen=True):
    """A claim that is to be created for the extended resources of a pod. requests: (name, DeviceClass, devices).

    Without requests nothing is created: what the pod's status has of an earlier claim is taken back.
    """

    requests: tuple[tuple[str, str, int], ...] = ()
    mappings: tuple[RequestMapping, ...] = ()


class DeviceChoice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A ResourceClaim of a pod, `namespace/name`, and its devices. decided: by this scheduler, so they are to be written.

    allocation: None: none could be decided. uid: of the claim for which it was decided. extended: it is to be created; until then
    `claim` names none. removed: it is to be deleted, since it was created for a binding that is not made.
    """

    claim: str
    allocation: Allocation | None = None
    decided: bool = False
    uid: str = ""
    extended: ExtendedClaim | None = None
    removed: bool = False


class Binding(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A pod and its node; `devices` are those counted for it, exact only where we choose them.

    volumes: what must be bound or made before the pod can be bound. claims: what must be allocated to it, or reserved for it.
    partner: of a pod that has half a GPU: UID of the pod that has the other half, or `alone`.
    """

    pod: PodRef
    node: str
    devices: tuple[int, ...] = ()
    volumes: tuple[VolumeChoice, ...] = ()
    claims: tuple[DeviceChoice, ...] = ()
    partner: str = ""


class Place(msgspec.Struct, frozen=True, tag=True):
    """Bind these pods; for a gang all of them, in parallel."""

    bindings: tuple[Binding, ...]
    group: str = ""


class Deallocate(msgspec.Struct, frozen=True, tag=True):
    """Claims of these pods hold devices where the pods cannot run: they give them back. node: empty."""

    bindings: tuple[Binding, ...]
    group: str = ""


class Suspension(msgspec.Struct, frozen=True):
    """A job that is suspended: its pods go when its object is suspended, and wait as `members` until it resumes.

    group: the PodGroup, `namespace/name`, that holds the target state; made: it is made for this. owners: what makes the pods, as
    (`apiVersion/kind/name`, UID). pods: UIDs of those that go.
    """

    group: str
    epoch: int
    owners: tuple[tuple[str, str], ...]
    members: tuple[Member, ...]
    pods: tuple[str, ...]
    made: bool = False
    queue: str = ""
    service_class: str = ""


class Preempt(msgspec.Struct, frozen=True, tag=True):
    """Evict the victims; the beneficiaries' places are held until they are gone.

    outright: delete them whatever their disruption budgets, as kube-scheduler does, and nominate the node.
    graces: (UID, seconds) of victims that have other times to end than their own.
    suspends: jobs that are suspended; their pods are among the victims, and are not evicted.
    moved: UIDs of victims whose replacements have places, too; where all have, there may be no beneficiary. moved_to: the node of
    each of these places.
    groups: the gangs that victims are of; why: the reason, of which the decision log holds the sentence.
    overrides: UIDs of victims that are deleted although their disruption budgets forbid it.
    """

    victims: tuple[Binding, ...]
    beneficiaries: tuple[Binding, ...]
    group: str = ""
    outright: bool = False
    moved: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    why: Cause = NO_CAUSE
    suspends: tuple[Suspension, ...] = ()
    graces: tuple[tuple[str, int], ...] = ()
    overrides: tuple[str, ...] = ()
    moved_to: tuple[str, ...] = ()

    @property
    def moves(self) -> bool:
        """Whether victims only move."""
        return bool(self.moved)


class Evict(msgspec.Struct, frozen=True, tag=True):
    """Take these down: for their own gang's sake, or because their time is over. graces: as in `Preempt`."""

    victims: tuple[Binding, ...]
    group: str
    reason: Reason
    graces: tuple[tuple[str, int], ...] = ()


class Refuse(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Why these pods are not placed; reported once per pod and code. withdrawn: UIDs of those whose nomination is withdrawn."""

    pods: tuple[PodRef, ...]
    reason: Reason
    group: str = ""
    withdrawn: tuple[str, ...] = ()


class Overdue(msgspec.Struct, frozen=True, tag=True):
    """These wait longer than their class of service allows."""

    pods: tuple[PodRef, ...]
    service_class: str
    message: str
    group: str = ""


class Resume(msgspec.Struct, frozen=True, tag=True):
    """A suspended job may run again; places on `nodes` are reserved for `pods`, its placeholders. None: the target state is
    withdrawn.

    attained: device-seconds that it has had; since: when it came first. places: the node of the place that is reserved for each
    of its members, in their order, empty for none; until: when these places are given up, seconds since the epoch.
    """

    group: str
    epoch: int
    pods: tuple[PodRef, ...]
    nodes: tuple[str, ...]
    attained: float = 0.0
    since: float = 0.0
    places: tuple[str, ...] = ()
    until: float = 0.0


class Choose(msgspec.Struct, frozen=True, tag=True):
    """A job that waits can start at once in another of the forms that it names: its pods are to be made anew in that form."""

    group: str
    chosen: Chosen
    message: str


class Unread(msgspec.Struct, frozen=True, tag=True):
    """Something of a pod that is on a node, or of the node itself (pod is None), cannot be read.

    closes: what cannot be read is a size, so that the node takes nothing.
    """

    pod: PodRef | None
    node: str
    reason: Reason
    closes: bool = False
    group: str = ""


class Warn(msgspec.Struct, frozen=True, tag=True):
    """What pods that run are warned of. event: the reason of the event on each of them."""

    pods: tuple[PodRef, ...]
    event: str
    message: str
    group: str = ""


class Fault(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An exception was raised while these were served, at a step of the pass: they are set aside (see `core.isolation`).

    subject: whose data it was where that is not work which waits, such as `reservation/maintenance`; empty: not known.
    """

    site: str
    pods: tuple[PodRef, ...]
    reason: Reason
    group: str = ""
    subject: str = ""


class Kept(msgspec.Struct, frozen=True, tag=True):
    """A change of a pod that has a node does not count: what it was admitted with stays, or what it may have."""

    pod: PodRef
    reason: Reason
    group: str = ""


Transaction = Place | Deallocate | Preempt | Evict | Refuse | Overdue | Resume | Choose | Unread | Warn | Fault | Kept

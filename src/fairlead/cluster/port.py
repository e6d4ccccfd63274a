"""The port between the scheduler and a cluster.

An adapter translates the objects of its cluster into the core's, and carries out what the core
decided. Everything above speaks only in these terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from fairlead.api.reasons import Reason
from fairlead.cluster.kinds import KINDS
from fairlead.core.dra.model import DeviceObject
from fairlead.core.model.allocations import FailedDevice
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Chosen, Completed, Group, SparePlaces
from fairlead.core.model.kept_places import KeptPlaces
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.nodes import Node, NodePool, Reservation
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import ForecastRecord, Queue, RunTimeRecord, UsageRecord
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.starts import FailedStarts
from fairlead.core.model.transactions import Binding, PodRef, Resume, Suspension
from fairlead.core.nodes.storage import StorageObject
from fairlead.core.numa.model import NodeTopology
from fairlead.core.pairs.learned import LearnedSpeeds


class Upsert(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An object came or changed."""

    object: (
        Node
        | Pod
        | Queue
        | ServiceClass
        | Reservation
        | NodePool
        | NodeTopology
        | Group
        | Namespace
        | DisruptionBudget
        | StorageObject
        | DeviceObject
    )


class Gone(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An object is gone.

    kind: its name in `kinds`; key: UID for pods, else `namespace/name`, or the name of what has no namespace.
    """

    kind: str
    key: str


JUDGED = {kind.name: kind.plural for kind in KINDS if kind.judged}
"""Kinds whose objects report whether they could be used, as `Gone` names them and as `Judged` does."""


class Judged(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What could not be used of a queue, a class, a reservation or a node pool; empty if all could. kind: its plural."""

    kind: str
    name: str
    complaint: str


class StorageKnown(msgspec.Struct, frozen=True, gc=False, tag=True):
    """All storage objects that exist have been delivered: pods with claims may be placed."""


class DevicesKnown(msgspec.Struct, frozen=True, gc=False, tag=True):
    """All objects of `resource.k8s.io` that exist have been delivered: pods with ResourceClaims may be placed."""


class Synced(msgspec.Struct, frozen=True, gc=False, tag=True):
    """All objects that exist have been delivered: decisions may begin."""


class Bound(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A binding was written."""

    uid: str


class BindFailed(msgspec.Struct, frozen=True, gc=False, tag=True, omit_defaults=True):
    """A binding was refused, or was found not to have happened. devices: those that could not be bound."""

    uid: str
    message: str
    devices: tuple[FailedDevice, ...] = ()


class PastFailure(msgspec.Struct, frozen=True, gc=False):
    """A binding failed because of a device. at: seconds since the epoch."""

    at: float
    failed: FailedDevice


class DevicesFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What the scheduler that led before has kept of failures, by time. Delivered once, before `Synced`."""

    failures: tuple[PastFailure, ...]


class PlacesKept(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The places of pods that do not exist, as the scheduler that led before has kept them. Delivered once, before `Synced`."""

    places: KeptPlaces


class SpeedsKept(msgspec.Struct, frozen=True, gc=False, tag=True):
    """What the scheduler that led before has learned of speeds of jobs that share GPUs. Delivered once, before all else."""

    speeds: LearnedSpeeds


class EvictFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An eviction was refused, or was found not to have happened. message: as the API server puts it."""

    uid: str
    message: str

    @property
    def by_budget(self) -> bool:
        """Whether disruption budgets forbid it.

        Of several the API server, another program, reports it in words alone (500, not 429).
        """
        return "disruption" in self.message.lower()


ClusterEvent = (
    Upsert
    | Gone
    | Judged
    | StorageKnown
    | DevicesKnown
    | Synced
    | Bound
    | BindFailed
    | DevicesFailed
    | PlacesKept
    | SpeedsKept
    | EvictFailed
)


class GroupReport(msgspec.Struct, frozen=True):
    """Where a pod group stands: its phase, members that have a node, why not all have, and those that succeeded.

    expected_start: seconds since the epoch; None: not known; earliest_start, latest_start: the 10th and 90th percentile.
    completed: None where no member succeeded in the present run.
    failed_starts: None where the last start did not fail. chosen: the form that its job is to take, where it has alternatives.
    spares: None where it asks for no spare places, or does not run.
    """

    phase: str
    scheduled: int
    reason: Reason | None = None
    expected_start: float | None = None
    completed: Completed | None = None
    failed_starts: FailedStarts | None = None
    earliest_start: float | None = None
    latest_start: float | None = None
    chosen: Chosen | None = None
    spares: SparePlaces | None = None


class QueueReport(msgspec.Struct, frozen=True):
    """The state of a queue: what it and its descendants hold, its pending pods, its share; in base units, devices in milli.

    usage: what was used of late; None where it is not kept. run_times: of jobs that ended of late, kept likewise.
    forecasts: of starts that came of late, kept likewise.
    reason: why the first that waits does. foreign: the part of what is allocated that pods of other schedulers hold.
    """

    allocated: dict[str, int]
    pending: int
    fair_share: dict[str, int]
    usage: UsageRecord | None = None
    reason: Reason | None = None
    run_times: tuple[RunTimeRecord, ...] = ()
    foreign: dict[str, int] = {}
    forecasts: tuple[ForecastRecord, ...] = ()


Sink = Callable[[list[ClusterEvent]], None]
"""Takes events in order; called from the thread that does I/O, returns at once."""


class Outcome(Enum):
    """What became of a write. unknown never leaves an adapter: it reads before it answers."""

    DONE = "done"
    REFUSED = "refused"
    GONE = "gone"


class Allocated(NamedTuple):
    """What became of a binding's ResourceClaims. failed: the devices because of which they were refused."""

    outcome: Outcome
    message: str = ""
    failed: tuple[FailedDevice, ...] = ()


class Cluster(Protocol):
    """What the scheduler needs of a cluster."""

    async def run(self, sink: Sink) -> None:
        """Deliver what exists, then `Synced`, then every change, until cancelled."""

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Bind one pod; the answer is certain."""

    async def bind_volumes(self, binding: Binding) -> tuple[Outcome, str]:
        """Bind, or have made, what a binding's claims wait for; answers once that is done, which may take minutes."""

    async def allocate_claims(self, binding: Binding, settled: Callable[[], None] = lambda: None) -> Allocated:
        """Write what a binding's ResourceClaims are allocated, and reserve them for its pod; nothing of it where one is refused.

        Answers once the pod may be bound, which may take minutes where devices have binding conditions. settled: may be called
        before, once nothing but these is waited for.
        """

    async def release_claims(self, binding: Binding) -> None:
        """Take back what `allocate_claims` wrote: the pod was not bound."""

    async def evict(self, pod: PodRef, *, dry_run: bool, grace: int | None = None) -> tuple[Outcome, str]:
        """Evict one pod through the Eviction API."""

    async def suspend(self, job: Suspension) -> tuple[Outcome, str]:
        """Write into a job's PodGroup that it is to be suspended; the operator acts on that."""

    async def resume(self, job: Resume) -> tuple[Outcome, str]:
        """Write that a suspended job may run again, and what it has attained. `GONE`: there is no such group any more."""

    async def preempt(self, pod: PodRef, *, grace: int | None = None) -> tuple[Outcome, str]:
        """Mark a pod as disrupted by preemption and delete it, asking no disruption budget. grace: seconds, None: its own."""

    async def nominate(self, pod: PodRef, node: str, reason: Reason | None = None) -> None:
        """Write for which node a pod waits while its victims leave; with a reason that is written into its conditions, too."""

    # These and conditions raise `Unreachable` where they should be written again later.

    async def refuse(self, pod: PodRef, reason: Reason, *, withdraw: bool = False) -> None:
        """Write why a pod is not placed into its conditions. withdraw: no node is nominated for it any more."""

    async def group_status(self, group: str, status: GroupReport) -> None:
        """Write where a pod group stands."""

    async def condition(self, regarding: PodRef | str, kind: str, reason: str, message: str) -> None:
        """Write that a condition holds of a pod, or of the pod group `namespace/name`."""

    async def queue_status(self, queue: str, status: QueueReport) -> None:
        """Write where a queue stands."""

    async def verdict(self, kind: str, name: str, *, accepted: bool, reason: str, message: str) -> None:
        """Write whether a queue, a class, a reservation or a node pool is in force as it is. kind: its plural."""

    async def reservation_status(self, name: str, phase: str, nodes: Sequence[str]) -> None:
        """Write where a reservation stands and which nodes it keeps."""

    async def keep_speeds(self, speeds: LearnedSpeeds) -> None:
        """Write what is learned of speeds of jobs that share GPUs, for the scheduler that leads next."""

    async def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """One event on a pod, on the pod group `namespace/name`, or on a node by its name."""

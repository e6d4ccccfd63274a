"""The port between the scheduler and a cluster.

An adapter turns whatever its cluster says into the core's objects, and carries out what the core
decided. Everything above speaks only in these terms.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from fairlead.api.reasons import Reason
from fairlead.core.model import Group, Namespace, Node, Pod, Queue
from fairlead.core.transactions import Binding, PodRef


class Upsert(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An object came or changed."""

    object: Node | Pod | Queue | Group | Namespace


class Gone(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An object is gone.

    kind: `node`, `pod`, `queue`, `group` or `namespace`; key: name, UID, name, `namespace/name`, name.
    """

    kind: str
    key: str


class Synced(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Everything that exists has been said: decisions may begin."""


class Bound(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A binding was written."""

    uid: str


class BindFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """A binding was refused, or was found not to have happened."""

    uid: str
    message: str


class EvictFailed(msgspec.Struct, frozen=True, gc=False, tag=True):
    """An eviction was refused, or was found not to have happened."""

    uid: str
    message: str


ClusterEvent = Upsert | Gone | Synced | Bound | BindFailed | EvictFailed
Sink = Callable[[list[ClusterEvent]], None]
"""Takes events in order; called from the thread that does I/O, returns at once."""


class Outcome(Enum):
    """What became of a write. unknown never leaves an adapter: it reads before it answers."""

    DONE = "done"
    REFUSED = "refused"
    GONE = "gone"


class Cluster(Protocol):
    """What the scheduler needs of a cluster."""

    async def run(self, sink: Sink) -> None:
        """Say what exists, then `Synced`, then every change, until cancelled."""

    async def bind(self, binding: Binding, epoch: int | None) -> tuple[Outcome, str]:
        """Bind one pod; the answer is certain."""

    async def evict(self, pod: PodRef, *, dry_run: bool, grace: int | None = None) -> tuple[Outcome, str]:
        """Evict one pod through the Eviction API."""

    async def refuse(self, pod: PodRef, reason: Reason) -> None:
        """Write why a pod is not placed into its conditions."""

    async def group_status(self, group: str, phase: str, scheduled: int, reason: Reason | None) -> None:
        """Write where a pod group stands."""

    async def event(self, regarding: PodRef | str, reason: str, note: str, *, warning: bool = False, action: str = "") -> None:
        """One event on a pod, or on the pod group `namespace/name`."""

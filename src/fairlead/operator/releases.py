"""What this release of Fairlead serves, for the operator: queues and default queues, as the scheduler reads them.

AIJobs and PodGroups follow their queues (`fairlead.cluster.ownership`). Where no other release is named by any queue, everything
is served, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from fairlead.api import names
from fairlead.cluster import views
from fairlead.cluster.kubernetes.client import Client
from fairlead.cluster.kubernetes.informer import Informer
from fairlead.cluster.ownership import Ownership
from fairlead.cluster.translate import Change
from fairlead.operator.faults import About, Faults

log = structlog.get_logger("releases")


Serves = Callable[[str, str | None], bool]
"""Whether what is in a namespace and a queue is served here; None: in the default queue of the namespace."""


def everything(_namespace: str, _queue: str | None) -> bool:
    """Where no other release is known."""
    return True


class _QueueSpec(msgspec.Struct, rename="camel"):
    parent: str | None = None
    scheduler_name: str | None = None


class _Queue(msgspec.Struct):
    """A queue, as far as it counts here."""

    metadata: views.Metadata
    spec: _QueueSpec = msgspec.field(default_factory=_QueueSpec)


class Releases:
    """Knows who serves what. synced: whether all that decides it is listed; until then nothing is served.

    changed: called once that is so, and whenever something may have changed hands.
    """

    def __init__(self, client: Client, faults: Faults | None = None) -> None:
        self.ownership = Ownership()
        self.changed: list[Callable[[], None]] = []
        self._defaults: dict[str, str] = {}  # namespace -> its default queue
        self._missing = {"queues", "namespaces"}
        faults = faults or Faults(client)

        def of(what: str, path: str, view: type[Any], take: Callable[[Change[Any]], None], about: About) -> Informer[Any]:
            taken = faults.each("releases.observed", take, about)
            return Informer(client, path, view, taken, lambda: self._listed(what), key=lambda metadata: metadata.name)

        queues, namespaces = About(names.API_VERSION, "Queue"), About("v1", "Namespace")
        self.informers: dict[str, Informer[Any]] = {
            "releases.queues": of("queues", f"/apis/{names.API_VERSION}/queues", _Queue, self._queue_changed, queues),
            "releases.namespaces": of(
                "namespaces", "/api/v1/namespaces", views.OnlyMetadata, self._namespace_changed, namespaces
            ),
        }

    @property
    def synced(self) -> bool:
        """Whether it is known what is served."""
        return not self._missing

    @property
    def sole(self) -> bool:
        """Whether no other release is named by any queue, and this is the first."""
        return self.ownership.sole

    def serves(self, namespace: str, queue: str | None) -> bool:
        """Whether this release serves what is in a queue; in the default one of its namespace, where it names none."""
        if self._missing:
            return False
        return self.ownership.sole or not self.ownership.elsewhere(queue or self.default_queue(namespace))

    def default_queue(self, namespace: str) -> str:
        """The default queue of a namespace."""
        return self._defaults.get(namespace) or names.DEFAULT_QUEUE

    def _listed(self, what: str) -> None:
        self._missing.discard(what)
        self._report()

    def _report(self) -> None:
        if not self._missing:
            for each in self.changed:
                each()

    def _queue_changed(self, change: Change[_Queue]) -> None:
        sole = self.ownership.sole
        if change.view is None:
            moved = self.ownership.remove(change.key)
        elif change.error:
            log.error("Queue cannot be read; the release that served it goes on", queue=change.key, error=change.error)
            return
        else:
            spec = change.view.spec
            moved = self.ownership.set(change.key, spec.parent or "", spec.scheduler_name or "")
        if moved and not (sole and self.ownership.sole):
            self._report()

    def _namespace_changed(self, change: Change[views.OnlyMetadata]) -> None:
        labels = (change.view.metadata.labels if change.view is not None else None) or {}
        queue = labels.get(names.DEFAULT_QUEUE_LABEL, "")
        if self._defaults.get(change.key, "") == queue:
            return
        if queue:
            self._defaults[change.key] = queue
        else:
            self._defaults.pop(change.key, None)
        if not self.ownership.sole:
            self._report()

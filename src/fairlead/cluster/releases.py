"""Events as one of several releases of Fairlead receives them: of what another release serves only that it does.

The core knows of a queue of another release that it is there and by whom it is served, so that a pod which names it waits with
that reason. PodGroups follow their queues; a reservation for pods of such a queue holds its nodes all the same. None of them is
reported on here. What changes hands is delivered anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from fairlead.api import names
from fairlead.cluster.kinds import POD_GROUP, QUEUE, RESERVATION
from fairlead.cluster.ownership import Ownership
from fairlead.cluster.port import JUDGED, ClusterEvent, Gone, Judged, Upsert
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.queues import Queue


class Releases:
    """Keeps what is delivered anew when it changes hands. default_queue: that of a namespace."""

    def __init__(self, ownership: Ownership, default_queue: Callable[[str], str]) -> None:
        self.ownership = ownership
        self._default_queue = default_queue
        self._queues: dict[str, Queue] = {}
        self._reservations: dict[str, Reservation] = {}
        self._judged: dict[tuple[str, str], Judged] = {}
        self._groups: dict[str, Group] = {}
        self._delivered: dict[tuple[str, str], object] = {}  # what another release serves, as it was delivered

    def begin(self) -> list[ClusterEvent]:
        """What is known before anything is observed: the queue that exists by itself is the first release's."""
        elsewhere = self.ownership.elsewhere(names.DEFAULT_QUEUE)
        return [Upsert(Queue(names.DEFAULT_QUEUE, elsewhere=elsewhere))] if elsewhere else []

    def policies(self, events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
        """Events of queues, reservations, classes of service and node pools, as this release takes them."""
        taken: list[ClusterEvent] = []
        for event in events:
            if isinstance(event, Upsert) and isinstance(event.object, Queue):
                self._queues[event.object.name] = event.object
                taken += self._queue(event.object)
            elif isinstance(event, Upsert) and isinstance(event.object, Reservation):
                self._reservations[event.object.name] = event.object
                served = self._reservation(event.object)
                self._note(RESERVATION.name, served.name, None if served.ours else served)
                taken.append(Upsert(served))
            elif isinstance(event, Judged):
                self._judged[event.kind, event.name] = event
                taken += [event] if self._reports(event) else []
            elif isinstance(event, Gone):
                taken += self._gone(event)
            else:
                taken.append(event)
        return taken

    def group(self, group: Group) -> list[ClusterEvent]:
        """A PodGroup came or changed."""
        self._groups[group.key] = group
        return self._group(group)

    def group_gone(self, key: str) -> None:
        """A PodGroup is gone."""
        self._groups.pop(key, None)
        self._delivered.pop((POD_GROUP.name, key), None)

    def queues_moved(self) -> list[ClusterEvent]:
        """Queues may have changed hands, and all that follows them."""
        events: list[ClusterEvent] = []
        for name, queue in self._queues.items():
            if self.ownership.elsewhere(name) or (QUEUE.name, name) in self._delivered:
                events += self._queue(queue)
                events += self._report_anew(QUEUE.plural, name)
        for name, reservation in self._reservations.items():
            served = self._reservation(reservation)
            if served.ours == ((RESERVATION.name, name) in self._delivered):
                self._note(RESERVATION.name, name, None if served.ours else served)
                events.append(Upsert(served))
                events += self._report_anew(RESERVATION.plural, name)
        return events + self._groups_moved(self._groups.values())

    def default_changed(self, namespace: str) -> list[ClusterEvent]:
        """A namespace has another default queue."""
        if self.ownership.sole:
            return []
        return self._groups_moved(each for each in self._groups.values() if each.namespace == namespace and not each.queue)

    def _groups_moved(self, groups: Iterable[Group]) -> list[ClusterEvent]:
        return [
            event
            for each in groups
            if self._elsewhere(each) or (POD_GROUP.name, each.key) in self._delivered
            for event in self._group(each)
        ]

    def _queue(self, queue: Queue) -> list[ClusterEvent]:
        elsewhere = self.ownership.elsewhere(queue.name)
        if not elsewhere:
            self._note(QUEUE.name, queue.name, None)
            return [Upsert(queue)]
        return self._once(QUEUE.name, queue.name, Queue(queue.name, elsewhere=elsewhere))

    def _group(self, group: Group) -> list[ClusterEvent]:
        if not self._elsewhere(group):
            self._note(POD_GROUP.name, group.key, None)
            return [Upsert(group)]
        # It stands in its queue by name: pods of ours in it wait as those of the queue do.
        queue = group.queue or self._default_queue(group.namespace)
        known = Group(group.namespace, group.name, group.min_member, queue, group.created, ours=False)
        return self._once(POD_GROUP.name, group.key, known)

    def _elsewhere(self, group: Group) -> str:
        if self.ownership.sole:
            return ""
        return self.ownership.elsewhere(group.queue or self._default_queue(group.namespace))

    def _reservation(self, reservation: Reservation) -> Reservation:
        return reservation if self._has(reservation.queue) else msgspec.structs.replace(reservation, ours=False)

    def _has(self, queue: str) -> bool:
        """Whether this release has what is of a queue, or of none."""
        return not self.ownership.elsewhere(queue) if queue else self.ownership.first

    def _reports(self, event: Judged) -> bool:
        """Whether this release writes what was found out about an object."""
        if event.kind == QUEUE.plural:
            return not self.ownership.elsewhere(event.name)
        if event.kind == RESERVATION.plural and (known := self._reservations.get(event.name)) is not None:
            return self._has(known.queue)
        return self.ownership.first

    def _report_anew(self, plural: str, name: str) -> list[ClusterEvent]:
        found = self._judged.get((plural, name))
        return [found] if found is not None and self._reports(found) else []

    def _gone(self, event: Gone) -> list[ClusterEvent]:
        known: dict[str, Queue] | dict[str, Reservation] = self._queues if event.kind == QUEUE.name else self._reservations
        if event.kind in (QUEUE.name, RESERVATION.name):
            known.pop(event.key, None)
        self._judged.pop((JUDGED[event.kind], event.key), None)
        self._delivered.pop((event.kind, event.key), None)
        if event.kind == QUEUE.name and event.key == names.DEFAULT_QUEUE and (again := self.begin()):
            return again
        return [event]

    def _note(self, kind: str, key: str, what: object | None) -> None:
        if what is None:
            self._delivered.pop((kind, key), None)
        else:
            self._delivered[kind, key] = what

    def _once(self, kind: str, key: str, what: Queue | Group) -> list[ClusterEvent]:
        """What another release serves, if it was not delivered as it is now."""
        if self._delivered.get((kind, key)) == what:
            return []
        self._delivered[kind, key] = what
        return [Upsert(what)]

"""What a standby knows: the latest event about each object, for the core that begins once this process leads.

It has the events that a list would deliver, so a standby that takes over begins as a scheduler that has just listed the cluster
does. Nothing is decided or assumed before, and what was observed on the way leaves no trace.
"""

from __future__ import annotations

from fairlead.cluster.kinds import KINDS, OF_OBJECT, POD
from fairlead.cluster.port import JUDGED, ClusterEvent, DevicesKnown, Gone, Judged, StorageKnown, Synced, Upsert
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue


class Standby:
    """Keeps events. synced: whether all kinds have been listed."""

    def __init__(self) -> None:
        self.synced = False
        self._known: dict[type[ClusterEvent], ClusterEvent] = {}
        self._objects: dict[str, dict[str, Upsert]] = {kind.name: {} for kind in KINDS}
        self._judged: dict[str, dict[str, Judged]] = {plural: {} for plural in JUDGED.values()}

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def take(self, events: list[ClusterEvent]) -> None:
        """What a watch delivers."""
        for event in events:
            if isinstance(event, Upsert):
                about = event.object
                kind = OF_OBJECT[type(about)]
                key = about.uid if isinstance(about, Pod) else str(getattr(about, "key", "") or getattr(about, "name", ""))
                self._objects[kind.name][key] = event
                if _of_another(about):
                    self._judged[kind.plural].pop(key, None)
            elif isinstance(event, Gone):
                self._objects[event.kind].pop(event.key, None)
                if event.kind in JUDGED:
                    self._judged[JUDGED[event.kind]].pop(event.key, None)
            elif isinstance(event, Judged):
                self._judged[event.kind][event.name] = event
            elif isinstance(event, StorageKnown | DevicesKnown):
                self._known[type(event)] = event
            elif isinstance(event, Synced):
                self.synced = True

    def events(self) -> list[ClusterEvent]:
        """All of it, in the order of the first lists."""
        events: list[ClusterEvent] = []
        for kind in KINDS:
            if kind is POD:
                events += self._known.values()
            events += self._objects[kind.name].values()
            events += self._judged[kind.plural].values() if kind.judged else ()
        if self.synced:
            events.append(Synced())
        return events


def _of_another(about: object) -> bool:
    """Whether another release of Fairlead serves it, and reports on it."""
    return bool(about.elsewhere) if isinstance(about, Queue) else isinstance(about, Reservation) and not about.ours

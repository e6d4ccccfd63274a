"""Events that change nothing: echoes of our own writes of status, and lists after a watch broke.

They are a third of what a quiet scheduler observes, and none of them can change a decision. Another third confirms what was
decided; these events have to be applied, but no decision waits for the pass after them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import msgspec

from fairlead.cluster.kinds import OF_OBJECT, POD
from fairlead.cluster.port import JUDGED, Bound, ClusterEvent, Gone, Judged, Upsert
from fairlead.core.dra.model import DeviceObject
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue
from fairlead.core.nodes.storage import StorageObject
from fairlead.core.pods.tasks import Task


class Echoes:
    """Remembers what was observed last.

    tasks: the pods that the state knows, by UID; they remember themselves. finished: UIDs of those that ended and count on.
    """

    def __init__(self, tasks: Mapping[str, Task], finished: Container[str]) -> None:
        self._tasks = tasks
        self._finished = finished
        self._observed: dict[tuple[str, str], object] = {}
        self._judged: dict[tuple[str, str], str] = {}

    def is_echo(self, event: ClusterEvent) -> bool:  # noqa: PLR0911 - a kind each
        """Whether an event contains nothing new; it counts as observed from now on."""
        if isinstance(event, Upsert):
            about = event.object
            if isinstance(about, Pod):
                task = self._tasks.get(about.uid)
                if task is not None:
                    return _as_observed(task.pod) == about
                if about.finished:
                    return not (about.succeeded and about.ours and about.group) or about.uid in self._finished
                return not (about.node or about.ours)
            if isinstance(about, DisruptionBudget | StorageObject | DeviceObject):
                return False
            key = (OF_OBJECT[type(about)].name, about.key if isinstance(about, Group) else about.name)
            if (isinstance(about, Queue) and about.elsewhere) or (isinstance(about, Reservation) and not about.ours):
                self._judged.pop((JUDGED[key[0]], key[1]), None)  # it is reported on anew once this release serves it
            if isinstance(about, Queue):
                # What survives a restart is read once, by the scheduler that begins; after that it is this one's own.
                about = msgspec.structs.replace(about, usage=None, run_times=(), forecasts=())
            elif isinstance(about, Group):
                about = msgspec.structs.replace(about, completed=None, failed_starts=None, failed=False)  # likewise
            known = self._observed.get(key) == about
            self._observed[key] = about
            return known
        if isinstance(event, Gone):
            if event.kind == POD.name:
                return event.key not in self._tasks and event.key not in self._finished
            self._observed.pop((event.kind, event.key), None)
            self._judged.pop((JUDGED.get(event.kind, ""), event.key), None)
        elif isinstance(event, Judged):
            known = self._judged.get((event.kind, event.name)) == event.complaint
            self._judged[event.kind, event.name] = event.complaint
            return known
        return False

    def can_wait(self, event: ClusterEvent, placed_on: Callable[[Task], str]) -> bool:
        """Whether an event only confirms what was decided: a pod is bound where it was placed, or has started.

        placed_on: the name of the node that a pod has been given, empty: none.
        """
        if isinstance(event, Bound):
            return True
        if not isinstance(event, Upsert) or not isinstance(event.object, Pod):
            return False
        now = event.object
        task = self._tasks.get(now.uid)
        if task is None or not now.node or now.node != placed_on(task):
            return False
        begun = {"started": now.started, "bound": now.bound, "starting": now.starting}
        return msgspec.structs.replace(_as_observed(task.pod), node=now.node, **begun) == now

    def forget(self, kind: str, name: str) -> None:
        """Something that was observed is not in force: the next time it is observed it may be."""
        self._observed.pop((kind, name), None)


def _as_observed(pod: Pod) -> Pod:
    """A pod without what the state has found out about its claims."""
    if not pod.claims:
        return pod
    own = tuple(use for use in pod.claims if not use.extended)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, devices=()), claims=own)

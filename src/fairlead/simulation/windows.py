"""The judge of reserved windows: of objects alone, as pods are bound.

A node that a Reservation selects takes no pod of another queue, from when the Reservation is known until its end: the pods of
simulated days have no time limit, so each may run on beyond the beginning of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fairlead.api import names
from fairlead.cluster.simulated.resources import NODES, PODS
from fairlead.cluster.simulated.selectors import in_object
from fairlead.cluster.simulated.store import Change, Key, Object
from fairlead.simulation.audit import LATE, Auditor
from fairlead.simulation.world import World

RESERVATIONS = "fairlead.dev/reservations"
_SOON = 60.0  # seconds before its end in which a window is not judged any more


class WindowJudge:
    """Judges all bindings of a world.

    latest: the time by that scheduler's clock which is most ahead. judged: how many bindings were, while a window was known.
    """

    def __init__(self, world: World, auditor: Auditor, latest: Callable[[], float]) -> None:
        self.judged = 0
        self._world = world
        self._auditor = auditor
        self._latest = latest
        self._since: dict[str, float] = {}  # by name: when its spec was written
        world.api.store.listen(RESERVATIONS, self._window_changed)
        world.api.store.listen(PODS, self._pod_changed)

    def _window_changed(self, change: Change) -> None:
        name = change.key[1]
        if change.kind == "DELETED":
            self._since.pop(name, None)
        elif change.before is None or change.before.object["spec"] != change.record.object["spec"]:
            self._since[name] = self._world.clock.now()

    def _pod_changed(self, change: Change) -> None:
        pod = change.record.object
        node, before = pod["spec"].get("nodeName"), change.before
        if not self._since or not node or pod["spec"].get("schedulerName") not in names.SCHEDULERS:
            return
        if change.kind == "MODIFIED" and before is not None and not before.object["spec"].get("nodeName"):
            self._judge(change.key, pod, node)

    def _judge(self, key: Key, pod: Object, node: str) -> None:
        store, now = self._world.api.store, self._world.clock.now()
        host = store.get(NODES, ("", node))
        if host is None or not self._auditor.calm(node):
            return
        queue = (pod["metadata"].get("labels") or {}).get(names.QUEUE_LABEL, key[0])
        for (_, name), record in store.records(RESERVATIONS):
            spec = record.object["spec"]
            if now - self._since[name] < LATE or spec.get("resources"):
                continue
            self.judged += 1
            ours = spec.get("queue", "") == queue or self._latest() + _SOON > datetime.fromisoformat(spec["end"]).timestamp()
            if not ours and in_object(spec["nodeSelector"])(host.object["metadata"].get("labels") or {}):
                self._auditor.wrong(f"pod {key} of {queue} is bound to {node}, which window {name} reserves: {spec}")

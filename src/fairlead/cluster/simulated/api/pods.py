"""What the server makes of a pod's spec: its priority, and specs that came before."""

from __future__ import annotations

from fairlead.cluster.simulated import errors
from fairlead.cluster.simulated.resources import CLASSES
from fairlead.cluster.simulated.store import Object, Store

_SPECS = 1000


class KnownSpecs:
    """Specs of pods that were valid before, with their defaults."""

    def __init__(self) -> None:
        self._specs: dict[bytes, tuple[Object, Object]] = {}  # pod spec as sent -> (spec, status) as stored

    def fill(self, asked: bytes, pod: Object) -> bool:
        """Whether a pod with this very spec was valid before: it then gets the same one, defaults filled in.

        Pods come in thousands of equals; stored objects are never changed in place, so they may share.
        """
        found = self._specs.get(asked)
        if found is None:
            return False
        pod["spec"], status = found
        pod["status"] = dict(status)
        return True

    def remember(self, asked: bytes, pod: Object) -> None:
        """A pod was valid, and has its defaults."""
        if len(self._specs) >= _SPECS:
            self._specs.clear()
        if not pod["spec"].get("priorityClassName"):  # what a class means may change
            self._specs[asked] = (pod["spec"], pod["status"])


def resolve_priority(store: Store, pod: Object) -> None:
    """The admission plugin Priority."""
    spec = pod["spec"]
    name = spec.get("priorityClassName")
    if not name:
        for _, record in store.sorted(CLASSES):
            if record.object.get("globalDefault"):
                name = record.object["metadata"]["name"]
                break
    if not name:
        if spec.get("priority"):
            pod["spec"] = {**spec, "priority": 0}
        return
    found = store.get(CLASSES, ("", name))
    if found is None:
        raise errors.forbidden("", "pods", pod["metadata"].get("name", ""), f"no PriorityClass with name {name} was found")
    pod["spec"] = {
        **spec,
        "priorityClassName": name,
        "priority": found.object["value"],
        "preemptionPolicy": found.object.get("preemptionPolicy", "PreemptLowerPriority"),
    }

"""Which PodGroup is that of a pod which names none.

Its controllers' labels name what the pod belongs to (`fairlead.cluster.grouping`). That is the name of its PodGroup, unless
another declares that it serves it: for a part of an object that starts by itself, such as the second stage of a JobSet, or
since it was made by a version that gave other names. PodGroups and pods come and change in any order.
"""

from __future__ import annotations

import msgspec

from fairlead.api.names import POD_GROUP_LABEL
from fairlead.cluster import grouping
from fairlead.core.model.pods import Pod


class Serving:
    """Keeps what a pod's PodGroup depends on."""

    def __init__(self) -> None:
        self._serves: dict[str, tuple[str, ...]] = {}  # PodGroup, `namespace/name` -> what it serves
        self._by: dict[str, set[str]] = {}  # `namespace/gang` or `namespace/gang/part` -> names of the PodGroups that serve it
        self._pods: dict[str, dict[str, Pod]] = {}  # `namespace/gang` -> uid -> pod as it came
        self._gang_of: dict[str, str] = {}

    def of(self, pod: Pod) -> Pod:
        """The pod in the PodGroup that is its own."""
        if "." not in pod.group or not pod.ours or _names_its_group(pod):
            self.forget(pod.uid)
            return pod
        gang = f"{pod.namespace}/{pod.group}"
        if self._gang_of.get(pod.uid, gang) != gang:
            self.forget(pod.uid)
        self._gang_of[pod.uid] = gang
        self._pods.setdefault(gang, {})[pod.uid] = pod
        return self._served(pod)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        gang = self._gang_of.pop(uid, None)
        if gang is not None:
            self._pods[gang].pop(uid)
            if not self._pods[gang]:
                del self._pods[gang]

    def set_group(self, key: str, serves: tuple[str, ...]) -> list[Pod]:
        """A PodGroup came, changed or went; returns the pods that are another's from now on, or may be."""
        before = self._serves.get(key, ())
        if before == serves:
            return []
        namespace, _, name = key.partition("/")
        for each in before:
            served = self._by[f"{namespace}/{each}"]
            served.discard(name)
            if not served:
                del self._by[f"{namespace}/{each}"]
        for each in serves:
            self._by.setdefault(f"{namespace}/{each}", set()).add(name)
        if serves:
            self._serves[key] = serves
        else:
            del self._serves[key]
        gangs = sorted({f"{namespace}/{each.partition('/')[0]}" for each in (*before, *serves)})
        return [self._served(pod) for gang in gangs for pod in self._pods.get(gang, {}).values()]

    def _served(self, pod: Pod) -> Pod:
        if not self._by:
            return pod
        gang = f"{pod.namespace}/{pod.group}"
        keys = (*(grouping.part(gang, each) for each in grouping.parts_of(pod.labels)), gang)
        found = next((by for key in keys if (by := self._by.get(key))), None)
        return msgspec.structs.replace(pod, group=min(found)) if found else pod


def _names_its_group(pod: Pod) -> bool:
    return any(label == POD_GROUP_LABEL and value for label, value in pod.labels)

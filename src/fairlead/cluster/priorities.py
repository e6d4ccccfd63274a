"""The priority that a class of service gives: its PriorityClass's value goes before what the pod itself says.

A pod may name its class, or its PodGroup may; PriorityClasses, classes, groups and pods come and change in any order.
"""

from __future__ import annotations

import msgspec

from fairlead.cluster import views
from fairlead.core.model import Pod

_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Priorities:
    """Keeps what is needed to tell a pod's priority. All changes return the pods that another priority follows for."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, bool]] = {name: (value, False) for name, value in _SYSTEM.items()}
        self._named: dict[str, str] = {}  # class of service -> PriorityClass
        self._groups: dict[str, str] = {}  # pod group -> class of service
        self._pods: dict[str, dict[str, Pod]] = {}  # group, or "" for pods without one -> uid -> pod as it came

    def of(self, pod: Pod) -> Pod:
        """The pod with the priority that its class gives it, if it does."""
        if not pod.ours or not (pod.service_class or pod.group):
            return pod
        self._pods.setdefault(_group(pod), {})[pod.uid] = pod
        return self._ranked(pod)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        for pods in self._pods.values():
            pods.pop(uid, None)

    def set_value(self, view: views.PriorityClass | None, name: str) -> list[Pod]:
        """A PriorityClass came, changed or went."""
        if view is None:
            self._values.pop(name, None)
        else:
            self._values[name] = view.value, view.preemption_policy == "Never"
        return self._all()

    def set_class(self, name: str, priority_class: str | None) -> list[Pod]:
        """A class of service came, changed or went."""
        if self._named.get(name) == priority_class:
            return []
        if priority_class:
            self._named[name] = priority_class
        else:
            self._named.pop(name, None)
        return self._all()

    def set_group(self, key: str, service_class: str) -> list[Pod]:
        """A pod group came, changed or went."""
        if self._groups.get(key, "") == service_class:
            return []
        if service_class:
            self._groups[key] = service_class
        else:
            self._groups.pop(key, None)
        return [self._ranked(pod) for pod in self._pods.get(key, {}).values()]

    def missing(self, service: views.ServiceClass) -> str:
        """What to say of a class whose PriorityClass is not known."""
        name = service.spec.priority_class_name
        return f"PriorityClass {name!r} does not exist; pods keep their own priority" if name and name not in self._values else ""

    def _all(self) -> list[Pod]:
        return [self._ranked(pod) for pods in self._pods.values() for pod in pods.values()]

    def _ranked(self, pod: Pod) -> Pod:
        service = self._groups.get(_group(pod)) or pod.service_class
        given = self._values.get(self._named.get(service, ""))
        if given is None:
            return pod
        value, never = given
        return msgspec.structs.replace(pod, priority=value, never_preempts=never or pod.surplus)


def _group(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.group}" if pod.group else ""

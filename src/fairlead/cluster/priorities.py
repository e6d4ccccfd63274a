"""The priority that a class of service gives: its PriorityClass's value goes before the pod's own priority.

A pod may name its class, or its PodGroup may; PriorityClasses, classes, groups and pods come and change in any order. Where a
queue, or one above it, names `serviceClasses`, no pod there counts with more than the highest priority that these classes give,
0 where they give none: no pod gets ahead of a queue's classes by naming a PriorityClass, which any user may do.
"""

from __future__ import annotations

import msgspec

from fairlead.cluster import views
from fairlead.core.model.pods import Pod

_SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class Priorities:
    """Keeps what a pod's priority depends on. All changes return the pods whose priority changes with them."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, bool]] = {name: (value, False) for name, value in _SYSTEM.items()}
        self._named: dict[str, str] = {}  # class of service -> PriorityClass
        self._classes: dict[str, views.ServiceClass] = {}  # those that could be decoded
        self._groups: dict[str, str] = {}  # pod group -> class of service
        self._pods: dict[str, dict[str, Pod]] = {}  # group, or "" for pods without one -> uid -> pod as it came
        self._group_of: dict[str, str] = {}
        self._group_queues: dict[str, str] = {}
        # queue -> (parent, the classes that it takes, None: all)
        self._queues: dict[str, tuple[str, tuple[str, ...] | None]] = {}

    def of(self, pod: Pod) -> Pod:
        """The pod with the priority that its class gives it, if it does."""
        if not pod.ours or not (pod.service_class or pod.group or pod.priority > 0):
            self.forget(pod.uid)
            return pod
        group = _group(pod)
        if self._group_of.get(pod.uid, group) != group:
            self.forget(pod.uid)
        self._group_of[pod.uid] = group
        self._pods.setdefault(group, {})[pod.uid] = pod
        return self._ranked(pod)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        group = self._group_of.pop(uid, None)
        if group is not None:
            self._pods[group].pop(uid, None)
            if not self._pods[group]:
                del self._pods[group]

    def set_value(self, view: views.PriorityClass | None, name: str) -> list[Pod]:
        """A PriorityClass came, changed or went."""
        if view is None:
            self._values.pop(name, None)
        else:
            self._values[name] = view.value, view.preemption_policy == "Never"
        return self._all()

    def set_class(self, name: str, view: views.ServiceClass | None, *, readable: bool = True) -> list[Pod]:
        """A class of service came, changed or went. readable: whether it could be decoded; else what was known holds."""
        if view is None or not readable:
            self._classes.pop(name, None)
        else:
            self._classes[name] = view
        priority_class = view.spec.priority_class_name if view is not None and readable else None
        if not readable or self._named.get(name) == priority_class:
            return []
        if priority_class:
            self._named[name] = priority_class
        else:
            self._named.pop(name, None)
        return self._all()

    def naming(self, names: set[str]) -> list[views.ServiceClass]:
        """The classes of service that name one of these PriorityClasses, as they came last."""
        return [each for each in self._classes.values() if each.spec.priority_class_name in names]

    def set_group(self, key: str, service_class: str, queue: str = "") -> list[Pod]:
        """A pod group came, changed or went."""
        if self._groups.get(key, "") == service_class and self._group_queues.get(key, "") == queue:
            return []
        for known, value in ((self._groups, service_class), (self._group_queues, queue)):
            if value:
                known[key] = value
            else:
                known.pop(key, None)
        return [self._ranked(pod) for pod in self._pods.get(key, {}).values()]

    def set_queue(self, name: str, parent: str, classes: tuple[str, ...] | None) -> list[Pod]:
        """A queue came, changed or went (without a parent, for all classes)."""
        before = self._queues.get(name, ("", None))
        if before == (parent, classes):
            return []
        bounded = any(each is not None for _, each in (before, *self._queues.values(), (parent, classes)))
        if parent or classes is not None:
            self._queues[name] = parent, classes
        else:
            self._queues.pop(name, None)
        return self._all() if bounded else []

    def _most(self, queue: str) -> int | None:
        """The highest priority with which pods of a queue may count; None: any."""
        most: int | None = None
        seen: set[str] = set()
        while queue and queue not in seen:
            seen.add(queue)
            parent, classes = self._queues.get(queue, ("", None))
            if classes is not None:
                values = [self._values.get(self._named.get(each, ""), (0, False))[0] for each in classes]
                top = max([0, *values])
                most = top if most is None else min(most, top)
            queue = parent
        return most

    def missing(self, service: views.ServiceClass) -> str:
        """The message for a class whose PriorityClass is not known; empty if it is."""
        name = service.spec.priority_class_name
        return f"PriorityClass {name!r} does not exist; pods keep their own priority" if name and name not in self._values else ""

    def _all(self) -> list[Pod]:
        return [self._ranked(pod) for pods in self._pods.values() for pod in pods.values()]

    def _ranked(self, pod: Pod) -> Pod:
        service = self._groups.get(_group(pod)) or pod.service_class
        given = self._values.get(self._named.get(service, ""))
        value, never = given if given is not None else (pod.priority, pod.never_preempts)
        most = self._most(self._group_queues.get(_group(pod)) or pod.queue) if value > 0 else None
        if most is not None and most < value:
            value = most
        elif given is None:
            return pod
        return msgspec.structs.replace(pod, priority=value, never_preempts=never or pod.elastic)


def _group(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.group}" if pod.group else ""

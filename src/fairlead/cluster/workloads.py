"""What pods belong to: services, replication controllers, replica sets and stateful sets, as far as spreading asks.

A pod without spread constraints of its own is spread, softly, among the pods that its services and its controller
select together.
"""

from __future__ import annotations

import msgspec

from fairlead.cluster.selection import label_selector
from fairlead.cluster.views import LabelSelector, Metadata, View
from fairlead.core.model.selectors import Requirement, Selector

_KINDS = {
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
}


class PlainSelectorSpec(View):
    selector: dict[str, str] | None = None


class PlainWorkload(View):
    """A Service or a ReplicationController: its selector is a plain mapping."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PlainSelectorSpec = msgspec.field(default_factory=PlainSelectorSpec)


class SelectorSpec(View):
    selector: LabelSelector | None = None


class Workload(View):
    """A ReplicaSet or a StatefulSet."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: SelectorSpec = msgspec.field(default_factory=SelectorSpec)


class Workloads:
    """The selectors of all services and controllers."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, dict[str, str]]] = {}  # namespace -> name -> selector
        self._replications: dict[tuple[str, str], dict[str, str]] = {}  # (namespace, name) -> selector
        self._controllers: dict[tuple[str, str, str], Selector] = {}  # (kind, namespace, name) -> selector

    def upsert(self, kind: str, view: PlainWorkload | Workload) -> None:
        """One came or changed. kind: its plural, e.g. `services`."""
        metadata = view.metadata
        if isinstance(view, Workload):
            self._controllers[kind, metadata.namespace, metadata.name] = label_selector(view.spec.selector)[0]
        elif kind == "services":
            self.remove(kind, metadata.namespace, metadata.name)
            if view.spec.selector is not None:
                self._services.setdefault(metadata.namespace, {})[metadata.name] = view.spec.selector
        else:
            self._replications[metadata.namespace, metadata.name] = view.spec.selector or {}

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """One is gone."""
        if kind == "services":
            self._services.get(namespace, {}).pop(name, None)
        elif kind == "replicationcontrollers":
            self._replications.pop((namespace, name), None)
        else:
            self._controllers.pop((kind, namespace, name), None)

    def selector_of(self, metadata: Metadata) -> Selector:
        """Whom a pod is spread among by default; None where nothing selects it."""
        labels = metadata.labels or {}
        merged: dict[str, str] = {}
        for selector in self._services.get(metadata.namespace, {}).values():
            if all(labels.get(key) == value for key, value in selector.items()):
                merged |= selector
        more: Selector = None
        owner = next((each for each in metadata.owner_references or () if each.controller), None)
        if owner is not None:
            whose = owner.api_version, owner.kind
            if whose == ("v1", "ReplicationController"):
                merged |= self._replications.get((metadata.namespace, owner.name), {})
            elif whose in _KINDS:
                more = self._controllers.get((_KINDS[whose], metadata.namespace, owner.name))
        requirements = tuple(Requirement(key, "In", (value,)) for key, value in sorted(merged.items()))
        requirements += tuple(each for each in more or () if each not in requirements)
        return requirements or None

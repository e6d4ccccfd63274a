"""Typed views of Kubernetes objects: only the fields that are used; the rest is skipped while decoding.

Quantities stay text here: `convert.py` judges them, so that a bad one spoils its own object only.
"""

from __future__ import annotations

import msgspec

Quantities = dict[str, str | int | float]


class _View(msgspec.Struct, rename="camel", gc=False):
    pass


class OwnerReference(_View):
    kind: str = ""
    name: str = ""
    controller: bool = False


class Metadata(_View):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Resources(_View):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(_View):
    resources: Resources | None = None
    restart_policy: str | None = None


class Toleration(_View):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SelectorRequirement(_View):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(_View):
    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_View):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_View):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(_View):
    node_affinity: NodeAffinity | None = None


class SchedulingGate(_View):
    name: str = ""


class PodSpec(_View):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    containers: list[Container] = []
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class Condition(_View):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(_View):
    phase: str = ""
    reason: str = ""
    start_time: str | None = None
    conditions: list[Condition] | None = None


class Pod(_View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus | None = None


class Taint(_View):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(_View):
    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeStatus(_View):
    allocatable: Quantities | None = None
    conditions: list[Condition] | None = None


class Node(_View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus | None = None


class Namespace(_View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)


class QueueResource(_View):
    name: str = ""
    pool: str | None = None
    quota: str | int | float | None = None
    limit: str | int | float | None = None
    weight: int | None = None


class QueueSpec(_View):
    parent: str | None = None
    priority: int = 0
    resources: list[QueueResource] | None = None


class Queue(_View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)


class PodGroupSpec(_View):
    queue: str | None = None
    min_member: int = 1


class PodGroup(_View):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)


class ListMetadata(_View):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class RawList(_View):
    """A page of a list; each item is decoded on its own, so that a bad one spoils nothing else."""

    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)
    items: list[msgspec.Raw] = []


class WatchEvent(_View):
    """One line of a watch."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw()


class OnlyMetadata(_View):
    """What is left of an object whose other fields cannot be read, and of bookmarks."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class ErrorStatus(_View):
    """The object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""

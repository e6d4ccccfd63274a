"""The kinds of objects that a scheduler watches: one table, in the order of the first lists.

What an object refers to comes before it. A layer that knows more of each kind keeps it under the kind's name in a table of its
own, which `complete` compares with this one: a kind that is missing anywhere ends the import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.api import names
from fairlead.cluster import device_views, numa, storage_views, views, workloads
from fairlead.core.dra import model as dra
from fairlead.core.model.disruption_budgets import DisruptionBudget
from fairlead.core.model.groups import Group
from fairlead.core.model.namespaces import Namespace
from fairlead.core.model.nodes import Node, NodePool, Reservation
from fairlead.core.model.pods import Pod
from fairlead.core.model.queues import Queue
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.nodes import storage
from fairlead.core.numa.model import NodeTopology

View = TypeVar("View", bound=msgspec.Struct)
_Known = TypeVar("_Known")
Key = Callable[[views.Metadata], str]


class Watch(Enum):
    """When a kind is watched, and what waits until all of it has been listed."""

    ALWAYS = "always"  # all decisions wait
    ALONE = "alone"  # nothing waits, nor for the right to see it
    STORAGE = "storage"  # from the first pod with claims on; pods with claims wait
    DEVICES = "devices"  # from the first pod with ResourceClaims on; pods with such claims wait
    SERVED = "served"  # where the API server serves it; decisions wait until that is known
    UPSTREAM = "upstream"  # from the first pod of profile kubernetes on; nothing waits


class Kind(msgspec.Struct, Generic[View], frozen=True):
    """One kind. name: as in `Gone`; kind, api_version, plural: as in Kubernetes; view: what is read of an object.

    key: what identifies an object; made: the core's object, None: it only changes pods.
    judged: the condition Accepted reports whether it could be used.
    """

    name: str
    kind: str
    api_version: str
    plural: str
    view: type[View]
    key: Key
    made: type[Any] | None = None
    watch: Watch = Watch.ALWAYS
    judged: bool = False

    @property
    def path(self) -> str:
        """Where all of them are served."""
        root = "apis" if "/" in self.api_version else "api"
        return f"/{root}/{self.api_version}/{self.plural}"

    @property
    def table(self) -> str:
        """Group and plural."""
        group = self.api_version.rpartition("/")[0]
        return f"{group}/{self.plural}" if group else self.plural

    @property
    def is_ours(self) -> bool:
        """Whether it is a custom resource of Fairlead's."""
        return self.api_version == names.API_VERSION


def _name(metadata: views.Metadata) -> str:
    return metadata.name


def _key(metadata: views.Metadata) -> str:
    return metadata.key


def _uid(metadata: views.Metadata) -> str:
    return metadata.uid


_OURS, _APPS, _STORAGE, _RESOURCE = names.API_VERSION, "apps/v1", "storage.k8s.io/v1", "resource.k8s.io/v1"

NAMESPACE = Kind("namespace", "Namespace", "v1", "namespaces", views.Namespace, _name, Namespace)
PRIORITY_CLASS = Kind("priority", "PriorityClass", "scheduling.k8s.io/v1", "priorityclasses", views.PriorityClass, _name)
SERVICE_CLASS = Kind("class", "ServiceClass", _OURS, "serviceclasses", views.ServiceClass, _name, ServiceClass, judged=True)
QUEUE = Kind("queue", "Queue", _OURS, "queues", views.Queue, _name, Queue, judged=True)
NODE_POOL = Kind("pool", "NodePool", _OURS, "nodepools", views.NodePool, _name, NodePool, judged=True)
RESERVATION = Kind("reservation", "Reservation", _OURS, "reservations", views.Reservation, _name, Reservation, judged=True)
NODE = Kind("node", "Node", "v1", "nodes", views.Node, _name, Node)
BUDGET = Kind(
    "budget",
    "PodDisruptionBudget",
    "policy/v1",
    "poddisruptionbudgets",
    views.Budget,
    _key,
    DisruptionBudget,
    Watch.ALONE,
)
POD_GROUP = Kind("group", "PodGroup", _OURS, "podgroups", views.PodGroup, _key, Group)
POD = Kind("pod", "Pod", "v1", "pods", views.Pod, _uid, Pod)


def _workloads(kind: str, version: str, plural: str, view: type[msgspec.Struct]) -> Kind[Any]:
    return Kind(plural, kind, version, plural, view, _key, watch=Watch.UPSTREAM)


def _stored(
    name: str, kind: str, version: str, plural: str, view: type[msgspec.Struct], made: type[Any], key: Key = _name
) -> Kind[Any]:
    return Kind(name, kind, version, plural, view, key, made, Watch.STORAGE)


def _allocated(
    name: str, kind: str, view: type[msgspec.Struct], made: type[Any], key: Key = _name, plural: str = ""
) -> Kind[Any]:
    return Kind(name, kind, _RESOURCE, plural or f"{name}s", view, key, made, Watch.DEVICES)


WORKLOADS = (
    _workloads("Service", "v1", "services", workloads.PlainWorkload),
    _workloads("ReplicationController", "v1", "replicationcontrollers", workloads.PlainWorkload),
    _workloads("ReplicaSet", _APPS, "replicasets", workloads.Workload),
    _workloads("StatefulSet", _APPS, "statefulsets", workloads.Workload),
)
STORAGE = (
    _stored("claim", "PersistentVolumeClaim", "v1", "persistentvolumeclaims", storage_views.Claim, storage.Claim, _key),
    _stored("volume", "PersistentVolume", "v1", "persistentvolumes", storage_views.Volume, storage.Volume),
    _stored("storageclass", "StorageClass", _STORAGE, "storageclasses", storage_views.StorageClass, storage.StorageClass),
    _stored("nodedrivers", "CSINode", _STORAGE, "csinodes", storage_views.NodeDrivers, storage.NodeDrivers),
    _stored("driver", "CSIDriver", _STORAGE, "csidrivers", storage_views.Driver, storage.Driver),
    _stored(
        "capacity",
        "CSIStorageCapacity",
        _STORAGE,
        "csistoragecapacities",
        storage_views.StorageCapacity,
        storage.StorageCapacity,
        _key,
    ),
    _stored("attachment", "VolumeAttachment", _STORAGE, "volumeattachments", storage_views.Attachment, storage.Attachment),
)
SLICE: Kind[device_views.ResourceSlice] = _allocated("resourceslice", "ResourceSlice", device_views.ResourceSlice, dra.Slice)
RESOURCE_CLAIM: Kind[device_views.ResourceClaim] = _allocated(
    "resourceclaim", "ResourceClaim", device_views.ResourceClaim, dra.DeviceClaim, _key
)
DEVICES = (
    SLICE,
    _allocated("deviceclass", "DeviceClass", device_views.DeviceClass, dra.DeviceClass, plural="deviceclasses"),
    _allocated("resourceclaimtemplate", "ResourceClaimTemplate", device_views.ResourceClaimTemplate, dra.DeviceTemplate, _key),
    RESOURCE_CLAIM,
)
NODE_TOPOLOGY = Kind(
    "numa",
    "NodeResourceTopology",
    "topology.node.k8s.io/v1alpha2",
    "noderesourcetopologies",
    numa.NodeResourceTopology,
    _name,
    NodeTopology,
    Watch.SERVED,
)
KINDS: tuple[Kind[Any], ...] = (
    NAMESPACE,
    PRIORITY_CLASS,
    SERVICE_CLASS,
    QUEUE,
    NODE_POOL,
    RESERVATION,
    NODE,
    NODE_TOPOLOGY,
    BUDGET,
    *STORAGE,
    *DEVICES,
    *WORKLOADS,
    POD_GROUP,
    POD,
)
OF_OBJECT: Mapping[type[Any], Kind[Any]] = {kind.made: kind for kind in KINDS if kind.made is not None}
"""By the type of the core's object."""


def watched(watch: Watch) -> tuple[Kind[Any], ...]:
    """The kinds that are watched at one time."""
    return tuple(kind for kind in KINDS if kind.watch is watch)


def complete(known: Mapping[str, _Known], kinds: tuple[Kind[Any], ...]) -> Mapping[str, _Known]:
    """What a layer knows of each of these kinds, by name. Raises `TypeError` where it knows one too few or too many."""
    if different := known.keys() ^ {kind.name for kind in kinds}:
        raise TypeError(f"kinds that are watched, but not known here, or the other way round: {', '.join(sorted(different))}")
    return known

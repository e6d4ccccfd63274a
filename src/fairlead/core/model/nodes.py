"""Nodes, their pools, and reservations of them, as the core sees them."""

from __future__ import annotations

import msgspec

from fairlead.api.reasons import Reason
from fairlead.core.links.matrix import Links
from fairlead.core.model.selectors import Selector
from fairlead.core.numa.model import NodeTopology


class Taint(msgspec.Struct, frozen=True):
    """A node's repellent; effects as in Kubernetes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Node(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One node.

    shares_gpus: fractions of its devices can really be given out there. images: (name, bytes) of what it holds.
    features: what its kubelet declares to be able to do. links: how its GPUs are connected, as an annotation has it; links_fault:
    why that cannot be used. numa: its NUMA nodes by an annotation. load: thousandths of what its pods share that were
    in use at `loaded_at`, seconds since the epoch, by the kinds of `api/pressure`; empty: not measured. load_fault: why that
    cannot be read.
    """

    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    shares_gpus: bool = False
    error: Reason | None = None
    images: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    links: Links | None = None
    links_fault: str = ""
    numa: NodeTopology | None = None
    load: tuple[int, ...] = ()
    loaded_at: float = 0.0
    load_fault: str = ""

    def without_load(self) -> Node:
        """The node but for what is measured of it."""
        return msgspec.structs.replace(self, load=(), loaded_at=0.0) if self.load else self


class NetworkLevel(msgspec.Struct, frozen=True):
    """A level of the network of a pool's nodes. label: of nodes, its value is the domain."""

    name: str
    label: str


class NodePool(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Nodes of one kind, by their labels. levels: of their network, from the widest to the narrowest.

    shared: (name, amount) of what the nodes share, sorted by name.
    """

    name: str
    nodes: Selector = ()
    levels: tuple[NetworkLevel, ...] = ()
    shared: tuple[tuple[str, int], ...] = ()


class Reservation(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Nodes reserved by an administrator from `start` to `end`, seconds since the epoch.

    nodes: by their labels. queue: whose pods may use them all the same, empty: none's. resources: so much of them
    only, in base units as nodes have them; empty: all that are selected. ours: whether this release writes its status.
    """

    name: str
    start: float
    end: float
    nodes: Selector = ()
    queue: str = ""
    resources: tuple[tuple[str, int], ...] = ()
    ours: bool = True

"""NodePool: nodes of one kind."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlead.api.kinds.common import Conditions, Kind, LabelSelector, Metadata
from fairlead.api.kinds.rules import Rule


class TopologyLevel(msgspec.Struct, rename="camel", kw_only=True):
    """One level of the network topology."""

    name: Annotated[
        str, Rule(required=True, min_length=1, max_length=63, description="Name of the level, e.g. block, rack or nvlink.")
    ] = ""
    label: Annotated[
        str, Rule(required=True, min_length=1, max_length=317, description="Node label whose value is the domain.")
    ] = ""


class PoolSize(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Minimum and maximum number of nodes."""

    min: Annotated[int, Rule(ge=0, description="Minimum.")] = 0
    max: Annotated[int, Rule(ge=0, description="Maximum. Default: unlimited.")] | None = None


class Price(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Price of a node."""

    per_node_hour: Annotated[float, Rule(ge=0, description="Price of one node per hour.")]
    currency: Annotated[str, Rule(pattern="^[A-Z]{3}$", description="ISO 4217.")] = "USD"
    kind: Annotated[str, Rule(pattern="^(OnDemand|Spot|Reserved)$", description="Kind of purchase.")] = "OnDemand"


class NodePoolSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes of one device model."""

    node_selector: Annotated[LabelSelector, Rule(description="Label selector of the nodes. Default: all nodes.")] | None = None
    topology_levels: (
        Annotated[
            list[TopologyLevel],
            Rule(max_length=8, description="Levels of the network topology, from the widest to the narrowest."),
        ]
        | None
    ) = []
    size: PoolSize | None = None
    price: Price | None = None
    relative_speed: Annotated[float, Rule(gt=0, description="Speed of the devices relative to other pools.")] | None = None


class NodePoolStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """State of a pool."""

    conditions: Conditions | None = []


class NodePool(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes of one device model, of which queues can have quotas and limits."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: NodePoolSpec = msgspec.field(default_factory=NodePoolSpec)
    status: NodePoolStatus | None = None


NODE_POOL = Kind(
    kind="NodePool",
    plural="nodepools",
    singular="nodepool",
    short_names=("fnp",),
    namespaced=False,
    spec=NodePoolSpec,
    status=NodePoolStatus,
    columns=(
        ("Min", "integer", ".spec.size.min"),
        ("Max", "integer", ".spec.size.max"),
        ("Node-Hour", "number", ".spec.price.perNodeHour"),
    ),
    rules=(
        (
            "!has(self.size) || !has(self.size.max) || !has(self.size.min) || self.size.max >= self.size.min",
            "size.max must not be below size.min",
        ),
    ),
)

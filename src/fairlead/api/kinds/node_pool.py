"""NodePool: nodes of one kind."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.kinds.common import Conditions, Kind, LabelSelector, Metadata


class TopologyLevel(msgspec.Struct, rename="camel", kw_only=True):
    """One level of the network, from far to near."""

    name: Annotated[str, Meta(min_length=1, max_length=63, description="What it is called, e.g. block, rack or nvlink.")]
    label: Annotated[str, Meta(min_length=1, max_length=317, description="Node label whose value tells the domain.")]


class PoolSize(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """How many nodes a pool may have."""

    min: Annotated[int, Meta(ge=0, description="At least.")] = 0
    max: Annotated[int, Meta(ge=0, description="At most. Absent: not bounded.")] | None = None


class Price(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What a node of a pool costs."""

    per_node_hour: Annotated[float, Meta(ge=0, description="For one node and hour.")]
    currency: Annotated[str, Meta(pattern="^[A-Z]{3}$", description="ISO 4217.")] = "USD"
    kind: Annotated[str, Meta(pattern="^(OnDemand|Spot|Reserved)$", description="How it is bought.")] = "OnDemand"


class NodePoolSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes of one device model."""

    node_selector: Annotated[LabelSelector, Meta(description="Its nodes, by their labels. Absent: all.")] | None = None
    topology_levels: Annotated[list[TopologyLevel], Meta(max_length=8, description="From far to near.")] = []
    size: PoolSize | None = None
    price: Price | None = None
    relative_speed: Annotated[float, Meta(gt=0, description="How fast its devices are, beside those of other pools.")] | None = (
        None
    )


class NodePoolStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What the scheduler says about a pool."""

    conditions: Conditions = []


class NodePool(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes of one device model, which queues may be given parts of."""

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

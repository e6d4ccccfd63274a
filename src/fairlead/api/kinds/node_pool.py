"""NodePool: nodes of one kind."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlead.api.kinds.common import SPAN, SPAN_LENGTH, Conditions, Kind, LabelSelector, Metadata, Share
from fairlead.api.kinds.rules import Rule
from fairlead.api.shared_resources import MOST, names_rule


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


class MigDevices(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """What some GPUs of a node are partitioned into: an entry of mig-parted's `mig-configs`."""

    devices: (
        Annotated[
            list[Annotated[int, Rule(ge=0, le=63)]], Rule(max_length=64, description="Indexes of the GPUs. Default: all (`all`).")
        ]
        | None
    ) = None
    mig_enabled: Annotated[bool, Rule(description="Whether MIG is on: `mig-enabled` of mig-parted.")] = True
    mig_devices: (
        Annotated[
            dict[str, Annotated[int, Rule(ge=0, le=8)]],
            Rule(description="Number of partitions by profile, of one GPU: `mig-devices` of mig-parted."),
        ]
        | None
    ) = {}


class MigConfig(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """A configuration that mig-manager knows, as its ConfigMap has it."""

    name: Annotated[
        str,
        Rule(required=True, min_length=1, max_length=63, description="Its name, the value of the label nvidia.com/mig.config."),
    ] = ""
    devices: Annotated[
        list[MigDevices], Rule(required=True, min_length=1, max_length=64, description="The GPUs of a node; each once.")
    ] = []


class MigPolicy(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Permission to reconfigure idle nodes of a pool through mig-manager, for pods that wait for partitions."""

    gpus_per_node: Annotated[int, Rule(required=True, ge=1, le=64, description="GPUs of a node of the pool.")] = 0
    configs: Annotated[
        list[MigConfig],
        Rule(
            required=True,
            min_length=1,
            max_length=64,
            description="Configurations that nodes may get.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = []
    pending_for: Annotated[
        str,
        Rule(
            pattern=SPAN,
            max_length=SPAN_LENGTH,
            description="Time for which a pod must have been unschedulable before nodes are reconfigured for it.",
        ),
    ] = "30s"
    settle: Annotated[
        str,
        Rule(
            pattern=SPAN,
            max_length=SPAN_LENGTH,
            description="Time from the taint of an idle node to the label, in which bindings that were decided before arrive.",
        ),
    ] = "30s"
    cooldown: Annotated[
        str, Rule(pattern=SPAN, max_length=SPAN_LENGTH, description="Minimum time between two reconfigurations of one node.")
    ] = "10m"
    timeout: Annotated[
        str,
        Rule(
            pattern=SPAN,
            max_length=SPAN_LENGTH,
            description="Time after which a reconfiguration without a result counts as hung.",
        ),
    ] = "15m"
    max_concurrent: (
        Annotated[
            int, Rule(ge=1, description="Maximum number of nodes that are reconfigured at the same time. Default: unlimited.")
        ]
        | None
    ) = None


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
    shared_resources: (
        Annotated[
            dict[str, Share],
            Rule(
                max_length=MOST,
                description="Amounts that all nodes of the pool share, by names of your choice, e.g. storage-bandwidth: 40G. "
                "Pods take of them what their AIJob's role, or the annotation fairlead.dev/shared-resources, asks for.",
            ),
        ]
        | None
    ) = {}
    mig: (
        Annotated[MigPolicy, Rule(description="Idle nodes may be reconfigured through mig-manager. Default: they are not.")]
        | None
    ) = None


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
        # `exclusiveMinimum` of JSON Schema is a number there, and a boolean in a CustomResourceDefinition.
        ("!has(self.relativeSpeed) || self.relativeSpeed > 0.0", "relativeSpeed must be above 0"),
        (
            f"!has(self.sharedResources) || {names_rule('self.sharedResources')}",
            "names of sharedResources are DNS labels, such as storage-bandwidth",
        ),
    ),
)

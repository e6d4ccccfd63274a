"""What several kinds share: quantities, spans, selectors, conditions, metadata, and what a kind's CRD is made from."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fairlead.api.kinds.rules import Rule

Quantity = Annotated[
    str | int,
    Rule(description="A Kubernetes quantity: a number, optionally with a suffix such as m, Gi or k."),
]
Share = (
    Annotated[
        str,
        Rule(pattern=r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$", max_length=64),
    ]
    | Annotated[int, Rule(ge=0)]
)
"""An amount of what the nodes of a pool share, at least 0."""
SPAN_LENGTH = 100
SPAN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"
_AMOUNT = r"^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)(%|[KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
_PERCENTAGE = r"^(100([.]0*)?|[0-9]{1,2}([.][0-9]*)?)%$"
NotNegative = Annotated[int, Rule(ge=0)]
Amount = Annotated[str, Rule(pattern=_AMOUNT, max_length=64)] | NotNegative
Weight = Annotated[str, Rule(pattern=_PERCENTAGE, max_length=64)] | NotNegative
WORKLOAD_TYPE = "^(Training|Inference|Interactive)$"
MEMBERS = 10_000
"""The most members that an AIJob, or an element of its array, may have."""
Time = Annotated[str, Rule(description="A time such as 2027-01-31T08:00:00Z.", extra_json_schema={"format": "date-time"})]
Duration = Annotated[
    str, Rule(description="A duration such as 90s, 30m, 24h or 7d, at most a century.", pattern=SPAN, max_length=SPAN_LENGTH)
]
StartTimeout = Annotated[
    str,
    Rule(
        description="Maximum time from the assignment of all nodes until the containers of every member have run once. "
        "Otherwise the gang is stopped and queued again. Default: from the ServiceClass, else 15m.",
        pattern=SPAN,
        max_length=SPAN_LENGTH,
    ),
]


class LabelRequirement(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """One rule of a label selector, as in Kubernetes."""

    key: Annotated[str, Rule(required=True, description="Name of the label.")] = ""
    operator: Annotated[
        str,
        Rule(required=True, pattern="^(In|NotIn|Exists|DoesNotExist)$", description="How the label and the values are compared."),
    ] = ""
    values: Annotated[list[str], Rule(description="Values for In and NotIn; empty for the others.")] | None = []


class LabelSelector(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """A label selector. An empty one selects all objects."""

    match_labels: Annotated[dict[str, str], Rule(description="Labels that an object must have, with their values.")] | None = {}
    match_expressions: (
        Annotated[list[LabelRequirement], Rule(max_length=64, description="Rules that an object must satisfy, all of them.")]
        | None
    ) = []


class Condition(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """A Kubernetes condition."""

    type: Annotated[str, Rule(required=True, description="What the condition is about, such as Accepted.")] = ""
    status: Annotated[str, Rule(required=True, pattern="^(True|False|Unknown)$", description="Whether it holds.")] = ""
    reason: Annotated[str, Rule(description="Why, as one word for programs.")] = ""
    message: Annotated[str, Rule(description="Why, for people.")] = ""
    last_transition_time: Annotated[str, Rule(description="Time of the last change of its status.")] = ""


Conditions = Annotated[
    list[Condition],
    Rule(
        description="Conditions, one of each type.",
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]
"""One for each type, so that several writers each apply their own."""


LONGEST_LEVEL = 317
_LEVEL = "a topology level of a NodePool, by its name or its label"


class TopologySlice(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Members with consecutive indexes that run in one domain of a level."""

    level: Annotated[
        str, Rule(required=True, min_length=1, max_length=LONGEST_LEVEL, description=f"Level of the slices: {_LEVEL}.")
    ] = ""
    size: (
        Annotated[int, Rule(ge=1, le=MEMBERS, description="Members of each slice; the last slice of a role may have fewer.")]
        | None
    ) = None
    sizes: (
        Annotated[
            list[Annotated[int, Rule(ge=1, le=MEMBERS)]],
            Rule(
                min_length=1,
                max_length=4,
                description="Instead of size: sizes of which the scheduler uses the largest for which it finds places. Each "
                "divides the one before; slices of the last size are always kept together.",
            ),
        ]
        | None
    ) = None


MOST_SPARES = 1_000
"""The spare places of a job, or of one role, at most."""


class Topology(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where on the network the members of a gang run, by the topology levels of NodePools."""

    required: (
        Annotated[
            str,
            Rule(min_length=1, max_length=LONGEST_LEVEL, description=f"All members run in one domain of this level: {_LEVEL}."),
        ]
        | None
    ) = None
    preferred: (
        Annotated[
            str,
            Rule(
                min_length=1,
                max_length=LONGEST_LEVEL,
                description=f"They run in as few domains of this level as possible: {_LEVEL}.",
            ),
        ]
        | None
    ) = None
    slices: (
        Annotated[
            list[TopologySlice],
            Rule(
                max_length=3,
                description="Slices of each role, by the indexes of its members; from the widest level to the narrowest, each "
                "inside of the one before.",
            ),
        ]
        | None
    ) = None
    balanced: Annotated[
        bool,
        Rule(
            description="The domains of the preferred level that a role uses (of the level of its outermost slices, without a "
            "preferred level) get equal numbers of its slices, or of members without slices, up to one."
        ),
    ] = False
    spares: Annotated[
        int,
        Rule(
            ge=0,
            le=MOST_SPARES,
            description="Number of further places of the largest member's size that are kept in the required domain, for "
            "members that are replaced. The job starts only where there are these, too, and its queue is charged for them.",
        ),
    ] = 0


RoleTopology = Annotated[
    Topology,
    Rule(
        description="Topology of the members of this role. Its required level holds besides that of all members; its "
        "slices, balanced and preferred hold instead of those of all. Its spares are for its members; those of all are for "
        "members of roles without spares of their own."
    ),
]


class GroupReason(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Why a job waits."""

    code: Annotated[str, Rule(required=True, description="A reason code (docs/reasons.md).")] = ""
    message: Annotated[str, Rule(description="The reason as a sentence, with its numbers.")] = ""


class OwnerReference(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """The object that another belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True, gc=False):
    """The part of ObjectMeta that Fairlead reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


class Kind(msgspec.Struct, frozen=True):
    """How one of our kinds is served by the API server. selectable: paths of fields that field selectors may name."""

    kind: str
    plural: str
    singular: str
    short_names: tuple[str, ...]
    namespaced: bool
    spec: type[Any]
    status: type[Any]
    columns: tuple[tuple[str, str, str], ...]
    rules: tuple[tuple[str, str], ...] = ()
    selectable: tuple[str, ...] = ()

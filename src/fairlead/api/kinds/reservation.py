"""Reservation: nodes reserved for a window of time."""

from __future__ import annotations

from typing import Annotated

import msgspec

from fairlead.api.kinds.common import Conditions, Kind, LabelSelector, Metadata, Quantity, Time
from fairlead.api.kinds.rules import Rule


class ReservationSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes reserved for a window of time."""

    purpose: Annotated[
        str,
        Rule(
            required=True,
            pattern="^(Maintenance|Capacity)$",
            description="Maintenance: no pods run on the nodes in the window. Capacity: only pods of the queue do.",
        ),
    ] = "Maintenance"
    start: Annotated[Time, Rule(required=True)] = ""
    end: Annotated[Time, Rule(required=True)] = ""
    node_selector: Annotated[LabelSelector, Rule(description="Label selector of the nodes. Default: all nodes.")] | None = None
    queue: Annotated[str, Rule(description="Queue whose pods, including descendants', may use the nodes.")] | None = None
    resources: (
        Annotated[
            dict[str, Quantity],
            Rule(description="Amount to reserve: the first nodes by name that offer it in total. Default: all nodes."),
        ]
        | None
    ) = {}


class ReservationStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """State of a reservation. Only the scheduler writes it."""

    phase: Annotated[str, Rule(pattern="^(Pending|Active|Over)$", description="Before, within or after the window.")] = "Pending"
    nodes: Annotated[list[str], Rule(max_length=1000, description="The reserved nodes, the first 1000 by name.")] = []
    conditions: Conditions | None = []


class Reservation(msgspec.Struct, rename="camel", kw_only=True):
    """Nodes reserved for a window of time, for maintenance or for a queue."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: Annotated[ReservationSpec, Rule(required=True)] = msgspec.field(default_factory=ReservationSpec)
    status: ReservationStatus | None = None


RESERVATION = Kind(
    kind="Reservation",
    plural="reservations",
    singular="reservation",
    short_names=("frsv",),
    namespaced=False,
    spec=ReservationSpec,
    status=ReservationStatus,
    columns=(
        ("Purpose", "string", ".spec.purpose"),
        ("Start", "string", ".spec.start"),
        ("End", "string", ".spec.end"),
        ("Queue", "string", ".spec.queue"),
        ("Phase", "string", ".status.phase"),
    ),
    rules=(
        ("self.end > self.start", "end must be after start"),
        ("self.purpose != 'Capacity' || has(self.queue)", "purpose Capacity needs a queue"),
        ("self.purpose != 'Maintenance' || !has(self.queue)", "purpose Maintenance allows no queue"),
    ),
)

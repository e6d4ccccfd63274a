"""Reservation: nodes kept for some for a time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.kinds.common import Conditions, Kind, LabelSelector, Metadata, Quantity, Time


class ReservationSpec(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Nodes kept for a window of time."""

    purpose: Annotated[
        str,
        Meta(
            pattern="^(Maintenance|Capacity)$",
            description="Maintenance: nothing runs there in the window. Capacity: only the queue's pods do.",
        ),
    ]
    start: Time
    end: Time
    node_selector: Annotated[LabelSelector, Meta(description="Nodes by their labels. Absent: all.")] | None = None
    queue: Annotated[str, Meta(description="Whose pods may use the nodes, descendants' included.")] | None = None
    resources: Annotated[
        dict[str, Quantity], Meta(description="So much only: the first nodes by name that have it together. Absent: all nodes.")
    ] = {}


class ReservationStatus(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    """Where a reservation stands; written by the scheduler alone."""

    phase: Annotated[str, Meta(pattern="^(Pending|Active|Over)$")] = "Pending"
    nodes: Annotated[list[str], Meta(max_length=1000, description="The nodes that are kept, the first thousand by name.")] = []
    conditions: Conditions = []


class Reservation(msgspec.Struct, rename="camel", kw_only=True):
    """Nodes kept for a window of time: for maintenance, or for a queue."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: ReservationSpec
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
        ("self.purpose != 'Capacity' || has(self.queue)", "a reservation of Capacity names the queue that it is for"),
        ("self.purpose != 'Maintenance' || !has(self.queue)", "Maintenance is nobody's: leave queue out"),
    ),
)

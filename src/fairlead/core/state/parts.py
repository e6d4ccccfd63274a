"""Parts: what the state does with its tables, each on top of those before it; pods' events come on top of all."""

from __future__ import annotations

from fairlead.core.state.belonging import Belonging
from fairlead.core.state.bound import BoundPods
from fairlead.core.state.departures import Departures
from fairlead.core.state.evictions import Evictions
from fairlead.core.state.isolation import Isolation
from fairlead.core.state.leftovers import Leftovers
from fairlead.core.state.moves import Moves
from fairlead.core.state.neighbours import Neighbours
from fairlead.core.state.overrides import Overrides
from fairlead.core.state.pending import Pending
from fairlead.core.state.placement import Placement
from fairlead.core.state.places_before import PlacesBefore
from fairlead.core.state.starts import Starts
from fairlead.core.state.tables import Tables


class Parts:
    """Made in an order in which each part gets only parts that were made before."""

    def __init__(self, tables: Tables) -> None:
        self.placement = Placement(tables)
        self.isolation = Isolation(tables)
        self.departures = Departures(tables.policy, tables.tasks, tables.services)
        tables.timers.derive("departures", self.departures.next_due)
        self.overrides = Overrides(tables.policy, tables.tasks)
        self.starts = Starts(tables, self.departures, self.isolation)
        self.belonging = Belonging(tables, self.placement, self.isolation)
        self.pending = Pending(tables, self.placement, self.isolation, self.starts)
        self.bound = BoundPods(tables, self.placement, self.belonging, self.pending, self.starts)
        self.neighbours = Neighbours(tables, self.placement, self.pending)
        self.leftovers = Leftovers(tables, self.placement)
        self.moves = Moves(tables, self.placement, self.leftovers, self.departures)
        self.places_before = PlacesBefore()
        self.evictions = Evictions(
            tables,
            self.placement,
            self.departures,
            self.leftovers,
            self.moves,
            self.overrides,
            self.pending,
            self.bound,
        )

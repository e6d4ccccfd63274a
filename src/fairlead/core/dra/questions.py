"""What a gang asks of nodes: whether claims fit there beside what is held, within a budget for all questions of the gang."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from fairlead.core.dra.allocator import BUDGET, Options, Work, allocate, fits
from fairlead.core.dra.covering import GaveUp
from fairlead.core.dra.held import Held, NodeState
from fairlead.core.dra.inventory import Inventory
from fairlead.core.dra.model import Allocation, Claim, DeviceClass
from fairlead.core.dra.refusals import Kind, Refusal
from fairlead.core.model.nodes import Node

_MOST_ASKED = 4000
"""How often one gang may ask whether a set of members fits on a node."""

_MOST_WORK = 2 * BUDGET
"""Units of work for all questions of a gang and for the steps by which its members are spread over nodes."""


class Place(msgspec.Struct):
    """A node, what it can use of devices, and what of its other resources is free, by name."""

    node: Node
    inventory: Inventory
    amounts: Mapping[str, int] = {}


class Questions:
    """The questions of one gang. asked: how often a set of members was tried on a node; undecided: how often without a result."""

    def __init__(self, places: Sequence[Place], held: Held, classes: Mapping[str, DeviceClass], options: Options) -> None:
        self.asked = self.undecided = 0
        self.work = Work(_MOST_WORK)
        self.places, self.classes = places, classes
        self._held, self._options = held, options
        self._states: dict[str, NodeState] = {}

    def ask(self, place: Place, claims: Sequence[Claim]) -> list[Allocation] | Refusal:
        """Whether claims fit on a node together with what is held."""
        self._count(claims)
        answer = allocate(self.state(place), place.node.name, claims, self.classes, self._options, self.work)
        self.undecided += isinstance(answer, Refusal) and answer.kind is Kind.GAVE_UP
        return answer

    def fits(self, place: Place, claims: Sequence[Claim]) -> bool:
        """Whether there is an allocation of claims on a node; where that is not decided within the budget, none is assumed."""
        self._count(claims)
        try:
            return fits(self.state(place), claims, self.classes, self._options, self.work)
        except GaveUp:
            self.undecided += 1
            return False

    def spend(self, units: int) -> None:
        """Count work that is not a question's own."""
        self.work.done += units
        if self.work.done > self.work.budget:
            raise GaveUp

    def _count(self, claims: Sequence[Claim]) -> None:
        self.asked += 1
        if self.asked > _MOST_ASKED:
            raise GaveUp
        self.spend(1 + len(claims))

    def state(self, place: Place) -> NodeState:
        """What of a node's devices is free; kept until something is taken or released."""
        name = place.node.name
        if name not in self._states:
            self._states[name] = self._held.on(place.inventory)
        return self._states[name]

    def take(self, allocations: Sequence[Allocation]) -> None:
        """Hold devices while what follows is tried."""
        self._held.take(allocations)
        self._states.clear()

    def release(self, allocations: Sequence[Allocation]) -> None:
        """Give back what was taken."""
        self._held.release(allocations)
        self._states.clear()

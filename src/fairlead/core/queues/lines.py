"""Lines: what waits in one queue, in the order in which it is served.

Level by level of precedence (priority, urgency, attained service). On a level, users in a heap by what they hold; under each user
its heads, the first unit of each of its lines, in a heap by age. A placement changes what one user holds: it moves one
entry of each heap, whatever else waits.

A pending class that is tried again has many lines at once. It stands for them as one, beside the users, until it has been served
about as often as it has lines; only then are these put under their users again.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Protocol

from fairlead.api.reasons import Reason
from fairlead.core.pods.rank import Rank
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.users import UserAmounts, UserHeap, UserKey

Age = tuple[float, str]
"""When a unit was created, and its name."""

Precedence = tuple[int, int, int]
"""What comes before all else: priority, urgency and level, as ranks have them."""

_FEW = 4
"""So many lines of a class are put under their users at once."""


class LineOwner(Protocol):
    """A pending class, as its lines know it."""

    lines: dict[str, Line]
    limited: dict[str, Reason]
    unschedulable: Reason | None
    precedence: Precedence
    offered: UserKey | None
    moved: int

    def first(self) -> Unit | None:
        """Its unit to serve next."""

    def drop(self, line: Line) -> None:
        """Nothing is left of a line."""


class Line:
    """The units of one user in a pending class. offered: the age of its entry among its user's heads; None: it has none."""

    __slots__ = ("offered", "pending_class", "units", "user")

    def __init__(self, pending_class: LineOwner, user: str) -> None:
        self.pending_class = pending_class
        self.user = user
        self.units: list[tuple[Rank, Unit]] = []
        self.offered: Age | None = None

    def first(self) -> Unit | None:
        """The oldest that still waits; drops those that do not."""
        units = self.units
        while units:
            unit = units[0][1]
            if unit.alive:
                return unit
            heappop(units)
        return None

    @property
    def open(self) -> bool:
        """Whether its units may be tried: no limit stops its user, and its class is not unschedulable."""
        return self.pending_class.unschedulable is None and self.user not in self.pending_class.limited


class Level:
    """What waits with one precedence."""

    __slots__ = ("_amounts", "_classes", "_heads", "_number", "_seen", "_users")

    def __init__(self, amounts: UserAmounts) -> None:
        self._amounts = amounts
        self._heads: dict[str, list[tuple[Age, int, Line]]] = {}
        self._users = UserHeap(amounts, self._first_of)
        self._classes: list[tuple[UserKey, int, LineOwner]] = []
        self._number = 0
        self._seen = amounts.changes

    def offer(self, line: Line) -> None:
        """A line has a unit that may be tried, or an older one than before."""
        unit = line.first()
        if unit is None or not line.open:
            return
        age = unit.rank.created, unit.rank.name
        if line.offered is None or age < line.offered:
            line.offered = age
            self._number += 1
            heads = self._heads.setdefault(line.user, [])
            heappush(heads, (age, self._number, line))
            if heads[0][2] is line:
                self._users.put(line.user)

    def gather(self, pending_class: LineOwner) -> None:
        """A pending class stands for its lines."""
        unit = pending_class.first()
        if unit is None:
            return
        key = self._amounts.key(unit)
        if pending_class.offered is None or key < pending_class.offered:
            pending_class.offered = key
            self._number += 1
            heappush(self._classes, (key, self._number, pending_class))

    def first(self) -> Unit | None:
        """The unit that goes first."""
        if not self._classes:
            return self._users.first()
        other = self._first_of_classes()  # before the users, under whom it may put lines
        unit = self._users.first()
        if other is None or unit is None:
            return unit or other
        return other if self._amounts.key(other) < self._amounts.key(unit) else unit

    def _first_of(self, user: str) -> Unit | None:
        """The oldest of a user's heads."""
        heads = self._heads.get(user)
        while heads:
            age, number, line = heads[0]
            if line.offered is age:
                units, pending_class = line.units, line.pending_class
                unit = units[0][1] if units and units[0][1].alive else line.first()
                if unit is not None and pending_class.unschedulable is None and user not in pending_class.limited:
                    rank = unit.rank
                    if rank.created == age[0] and rank.name == age[1]:
                        return unit
                    line.offered = rank.created, rank.name
                    heapreplace(heads, (line.offered, number, line))
                    if heads[0][0] is line.offered:
                        return unit
                    continue
                line.offered = None
                if unit is None:
                    pending_class.drop(line)
            heappop(heads)
        self._heads.pop(user, None)
        return None

    def _first_of_classes(self) -> Unit | None:
        """The first of those that pending classes stand for."""
        if self._seen != self._amounts.changes:
            self._follow()
        classes = self._classes
        while classes:
            key, number, pending_class = classes[0]
            unit = pending_class.first() if pending_class.offered is key else None
            if unit is None:
                heappop(classes)
                if pending_class.offered is key:
                    pending_class.offered = None
                continue
            present = self._amounts.key(unit)
            if present == key:
                return unit
            pending_class.offered = present
            heapreplace(classes, (present, number, pending_class))
            pending_class.moved += 1
            if pending_class.moved > len(pending_class.lines):
                self._spread(pending_class)
        return None

    def _follow(self) -> None:
        """Some users hold less than when classes were put in order."""
        self._seen = self._amounts.changes
        known, self._classes = self._classes, []
        for key, _, pending_class in known:
            if pending_class.offered is key:
                pending_class.offered = None
                self.gather(pending_class)

    def _spread(self, pending_class: LineOwner) -> None:
        """The lines of a class are put under their users."""
        pending_class.offered, pending_class.moved = None, 0
        for line in pending_class.lines.values():
            self.offer(line)


class QueueLines:
    """All that waits in a queue and may be tried."""

    __slots__ = ("_amounts", "_levels", "_order")

    def __init__(self, amounts: UserAmounts) -> None:
        self._amounts = amounts
        self._levels: dict[Precedence, Level] = {}
        self._order: list[Precedence] = []  # a heap of the levels that are listed

    def offer(self, line: Line) -> None:
        """A line has a unit that may be tried, or an older one than before."""
        level = self._level(line.pending_class.precedence)
        if line.pending_class.offered is not None:
            level.gather(line.pending_class)
        else:
            level.offer(line)

    def offer_all(self, pending_class: LineOwner) -> None:
        """All lines of a pending class may be tried."""
        level = self._level(pending_class.precedence)
        if len(pending_class.lines) > _FEW:
            level.gather(pending_class)
        else:
            for line in pending_class.lines.values():
                level.offer(line)

    def first(self) -> Unit | None:
        """The unit that goes first."""
        order, levels = self._order, self._levels
        while order:
            unit = levels[order[0]].first()
            if unit is not None:
                return unit
            del levels[heappop(order)]
        return None

    def clear(self) -> None:
        """Nothing is offered; what waits is offered anew afterwards."""
        self._levels.clear()
        self._order.clear()

    def _level(self, precedence: Precedence) -> Level:
        level = self._levels.get(precedence)
        if level is None:
            level = self._levels[precedence] = Level(self._amounts)
            heappush(self._order, precedence)
        return level

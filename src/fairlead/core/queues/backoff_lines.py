"""The lines of one queue's classes in backoff, in the order in which they would be served.

They compare as lines that are tried do (`lines`): level by level of precedence, on a level by what users hold, under each user by
age. The order lasts while rows come and go: what is not eligible is put aside once it is met, and comes back when more is.
"""

from __future__ import annotations

import math
from bisect import insort
from heapq import heapify, heappop, heapreplace

from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.backoff_columns import BackoffColumns
from fairlead.core.queues.lines import Age, Line, Precedence
from fairlead.core.queues.queue_node import PendingClass, QueueNode
from fairlead.core.queues.users import UserAmounts, UserHeap

_Entry = tuple[Age, int, int, Line]
"""The age of a line's first unit, the number of the entry, the line's slot in the columns, and the line."""


class _Level:
    """Lines of one precedence. An entry may be out of date in one way only: the first unit of its line is younger by now."""

    def __init__(self, amounts: UserAmounts, columns: BackoffColumns) -> None:
        self._columns = columns
        self.entries: dict[int, int] = {}  # slot -> the number of its entry
        self._heads: dict[str, list[_Entry]] = {}  # of each user, in heaps
        self._aside: list[_Entry] = []  # that are not eligible
        self._users = UserHeap(amounts, self._first_of)

    def add(self, line: Line, unit: Unit, slot: int, number: int) -> None:
        """A line that is not eligible yet."""
        self.entries[slot] = number
        self._aside.append((_age(unit), number, slot, line))

    def open_up(self) -> None:
        """More are eligible."""
        entries, users = self.entries, dict[str, list[_Entry]]()
        aside = [entry for entry in self._aside if entry[2] in entries and entries[entry[2]] == entry[1]]
        self._aside = []
        for entry, eligible in zip(aside, self._columns.which_eligible([entry[2] for entry in aside]), strict=True):
            user = entry[3].user
            if not eligible:
                self._aside.append(entry)
            elif user in users:
                users[user].append(entry)
            else:
                users[user] = [entry]
        for user, more in users.items():
            heads = self._heads[user] + more if user in self._heads else more
            heapify(heads)
            self._heads[user] = heads
            self._users.put(user)

    def first(self) -> Unit | None:
        """The unit that goes first of what is eligible."""
        return self._users.first()

    def _first_of(self, user: str) -> Unit | None:
        heads = self._heads.get(user)
        while heads:
            age, number, slot, line = heads[0]
            unit = line.first() if self.entries.get(slot) == number else None
            if unit is None:
                heappop(heads)
            elif not self._columns.is_eligible(slot):
                self._aside.append(heappop(heads))
            elif age == (present := _age(unit)):
                return unit
            else:
                heapreplace(heads, (present, number, slot, line))
        self._heads.pop(user, None)
        return None


class BackoffLines:
    """The lines of one queue's classes in backoff. number: of the queue, in the columns.

    open: whether some are eligible; stale: they are not in order yet. came: how many classes came; oldest: no unit is older.
    """

    def __init__(self, node: QueueNode, columns: BackoffColumns, number: int) -> None:
        self.node = node
        self.number = number
        self._columns = columns
        self.classes: dict[PendingClass, list[int]] = {}  # slots of their lines
        self.open = False
        self.stale = False
        self.came = 0
        self.oldest = math.inf
        self._levels: dict[Precedence, _Level] = {}
        self._order: list[Precedence] = []
        self._entered = 0

    def add(self, pending_class: PendingClass) -> None:
        """A class is in backoff; no row that gained capacity before helps it."""
        slots = self.classes[pending_class] = []
        self.came += 1
        level = self._levels.get(pending_class.precedence)
        if level is None:
            level = self._levels[pending_class.precedence] = _Level(self.node.users, self._columns)
            insort(self._order, pending_class.precedence)
        for line in pending_class.lines.values():
            unit = line.first()
            if unit is not None:
                slot = self._columns.put(line, unit, self.number)
                slots.append(slot)
                self._entered += 1
                self.oldest = min(self.oldest, unit.rank.created)
                level.add(line, unit, slot, self._entered)

    def remove(self, pending_class: PendingClass) -> None:
        """A class is in backoff no longer, or is tried."""
        level = self._levels[pending_class.precedence]
        for slot in self.classes.pop(pending_class):
            self._columns.release(slot)
            del level.entries[slot]
        if not level.entries:
            del self._levels[pending_class.precedence]
            self._order.remove(pending_class.precedence)

    # -- eligible ------------------------------------------------------------------------------

    def is_eligible(self, pending_class: PendingClass) -> bool:
        """Whether a row that gained capacity had enough for a class, and it was not tried since."""
        return self.open and any(map(self._columns.is_eligible, self.classes[pending_class]))

    def eligible(self) -> set[PendingClass]:
        """All classes of which that is so, where anything of the queue is eligible."""
        is_eligible = self._columns.is_eligible
        return {each for each, slots in self.classes.items() if any(map(is_eligible, slots))}

    def first(self) -> Unit | None:
        """The first unit of what is eligible; None if nothing is."""
        if self.open:
            if self.stale:
                self.stale = False
                for level in self._levels.values():
                    level.open_up()
            for precedence in self._order:
                unit = self._levels[precedence].first()
                if unit is not None:
                    return unit
            self.open = False
        return None


def _age(unit: Unit) -> Age:
    return unit.rank.created, unit.rank.name

"""Classes in backoff: unschedulable ones that were tried again before their search backoff is over, of each queue in columns.

Until the backoff is over no victims are searched for, so only a free place helps such a class, and to try it in vain once more
changes nothing. So when rows have new capacity, which classes they may hold is one comparison for all of a queue, and only the
first of these, in the order of service, is offered; the next once that was served, as long as a row still holds one.
`actions.backoff` decides which classes are kept here, and when one is offered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.filters import devices
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.shapes import Shape
from fairlead.core.queues.lines import Line
from fairlead.core.queues.tree import PendingClass, QueueNode

_FIRST = 16  # lines that fit in at first
_COLUMNS = [
    ("created", np.float64),  # of the line's first unit
    ("precedence", np.int64, (3,)),
    ("user", np.int64),  # its number
    ("terms", np.int64),  # under which nodes admit it
    ("devices", np.int64),  # for how many it asks, in milli
    ("used", np.bool_),
    ("eligible", np.bool_),  # a row that gained capacity had enough for it then
]


class BackoffLines:
    """The lines of one queue's classes in backoff: what one unit of each asks for, and what puts it in order.

    least, most: what the smallest and the largest of them ask for, as charged; highest: the highest priority. Where classes were
    removed they may be too wide, until as many were removed as are left. shares: what a check of each class by itself would have
    noted of fair shares (`Seen.shares`); None: they were checked so.
    """

    def __init__(self, node: QueueNode, nodes: NodeTable) -> None:
        self.node = node
        self._nodes = nodes
        self._rows = np.zeros(0, _COLUMNS)
        self._demand: Ints = np.zeros((0, 4), np.int64)  # by column of the nodes
        self._lines: list[Line | None] = []
        self._rankings: list[Ranking | None] = []
        self._unused: list[int] = []
        self._users: dict[str, int] = {}
        self._terms: dict[tuple[object, ...], int] = {}  # under which nodes admit pods -> number
        self._admitted: list[Ranking] = []  # one of each
        self._exact: set[int] = set()  # slots of which amounts alone do not decide
        self.classes: dict[PendingClass, dict[str, int]] = {}  # user -> slot
        self.open = False  # whether some are eligible
        self.shares: tuple[int, int] | None = None
        self.least: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.highest = -math.inf
        self._removed = 0

    def add(self, pending_class: PendingClass) -> None:
        """A class is in backoff; no row that gained capacity before helps it."""
        self.classes[pending_class] = {}
        self._measure(pending_class)
        for line in pending_class.lines.values():
            self.put(pending_class, line)

    def put(self, pending_class: PendingClass, line: Line) -> None:
        """A line of a class has another first unit."""
        unit, slots = line.first(), self.classes[pending_class]
        if unit is None:
            return
        slot = slots.get(line.user)
        if slot is None:
            if not self._unused:
                self._grow()
            slot = slots[line.user] = self._unused.pop()
            first = unit.tasks[0]
            shape = first.shape
            self._lines[slot], self._rankings[slot] = line, first.ranking
            self._ask(slot, shape)
            row = self._rows[slot]
            row["used"], row["eligible"], row["precedence"] = True, False, pending_class.precedence
            row["terms"], row["user"] = self._terms_of(first.ranking), self._users.setdefault(line.user, len(self._users))
            row["devices"] = shape.device_milli
        self._rows["created"][slot] = unit.rank.created

    def remove(self, pending_class: PendingClass) -> None:
        """A class is in backoff no longer, or is offered."""
        if self.shares is not None:
            pending_class.seen = pending_class.seen._replace(shares=self.shares)
        for slot in self.classes.pop(pending_class).values():
            self._rows["used"][slot] = self._rows["eligible"][slot] = False
            self._lines[slot] = self._rankings[slot] = None
            self._exact.discard(slot)
            self._unused.append(slot)
        self._removed += 1
        if self._removed > len(self.classes):
            self._removed, self.least, self.most, self.highest = 0, {}, {}, -math.inf
            for each in self.classes:
                self._measure(each)

    def _measure(self, pending_class: PendingClass) -> None:
        for name, amount in pending_class.core.items():
            self.least[name] = min(amount, self.least.get(name, amount))
            self.most[name] = max(amount, self.most.get(name, amount))
        self.highest = max(self.highest, -pending_class.precedence[0])

    def is_eligible(self, pending_class: PendingClass) -> bool:
        """Whether a row that gained capacity had enough for a class, and it was not offered since."""
        return self.open and any(self._rows["eligible"][slot] for slot in self.classes[pending_class].values())

    def list_rows(self, rows: Iterable[int], free: int, created: float) -> bool:
        """Rows gained capacity: what one of them holds now is eligible; returns whether anything is.

        free: pods may be moved for what asks for no more devices, in milli, and came by `created`: that is eligible, too.
        """
        used = self._rows["used"]
        eligible = np.zeros(len(used), np.bool_)
        for row in rows:
            eligible |= self._enough(row, used)
        if free >= 0:
            eligible |= used & (self._rows["devices"] <= free) & (self._rows["created"] <= created)
        if eligible.any():
            self._rows["eligible"] |= eligible
            self.open = True
        return self.open

    def take_all(self) -> list[PendingClass]:
        """All that are eligible."""
        slots = np.flatnonzero(self._rows["eligible"]).tolist()
        self._rows["eligible"] = False
        self.open = False
        owners = [line.pending_class for slot in slots if (line := self._lines[slot]) is not None]
        return list(dict.fromkeys(each for each in owners if isinstance(each, PendingClass)))

    def take(self, rows: Sequence[int]) -> PendingClass | None:
        """The eligible class that goes first of those that a row holds now; None once no row holds any."""
        return self._first_of(lambda: self._fitting(rows))

    def first(self) -> PendingClass | None:
        """The eligible class that goes first, whether a row still holds it or not; None once none is eligible."""
        return self._first_of(lambda: self._rows["eligible"])

    def holds(self, pending_class: PendingClass, rows: Sequence[int]) -> bool:
        """Whether a row holds one of a class now."""
        mine = np.zeros(len(self._rows), np.bool_)
        mine[list(self.classes[pending_class].values())] = True
        return any(self._fit(row, mine).any() for row in rows)

    def is_helped(self, rows: Sequence[int]) -> bool:
        """Whether a row still holds an eligible class."""
        return bool(self._fitting(rows).any())

    def pass_over(self, pending_class: PendingClass) -> None:
        """No row holds a class when it is the next."""
        self._rows["eligible"][list(self.classes[pending_class].values())] = False

    def close(self) -> None:
        """None is eligible."""
        self._rows["eligible"] = False
        self.open = False

    def _fitting(self, rows: Sequence[int]) -> Mask:
        """Which eligible slots a row holds now."""
        eligible = self._rows["eligible"]
        found: Mask = np.zeros(len(eligible), np.bool_)
        for row in rows:
            found |= self._fit(row, eligible)
        return found

    def _first_of(self, among: Callable[[], Mask]) -> PendingClass | None:
        """The class that goes first of some; none is eligible any more if there is none."""
        while True:
            slots = np.flatnonzero(among())
            if not len(slots):
                self.close()
                return None
            line = self._first(slots)
            if line is not None and isinstance(line.pending_class, PendingClass):
                return line.pending_class

    def _enough(self, row: int, among: Mask) -> Mask:
        """Which of some slots ask for no more than a row has, and are admitted there; blind to devices, as searches are."""
        demand = self._demand
        free = np.zeros(demand.shape[1], np.int64)
        columns = self._nodes.matrix[: len(free), row]
        free[: len(columns)] = columns
        found: Mask = among & (demand <= free).all(axis=1)
        if found.any():
            found &= np.array([ranking.admits(row) for ranking in self._admitted])[self._rows["terms"]]
        return found

    def _fit(self, row: int, among: Mask) -> Mask:
        """Which of some slots a row holds now."""
        found = self._enough(row, among)
        if not self._nodes.open.item(row):
            found[:] = False
        elif found.any():
            found &= np.array([_has_devices(ranking, row) for ranking in self._admitted])[self._rows["terms"]]
            for slot in self._exact:
                ranking = self._rankings[slot]
                found[slot] &= ranking is not None and ranking.fits_row(row)
        return found

    def _first(self, slots: Ints) -> Line | None:
        """The line that goes first of some; None if what is known of it was out of date, and is put right."""
        rows, held = self._rows, self.node.users
        for column in range(3):
            values = rows["precedence"][slots, column]
            slots = slots[values == values.min()]
        if len(slots) > 1:
            users, names = rows["user"][slots], list(self._users)
            amounts = {number: held.of(names[number]) for number in np.unique(users).tolist()}
            least = min(amounts.values())
            slots = slots[np.isin(users, [number for number, amount in amounts.items() if amount == least])]
            created = rows["created"][slots]
            slots = slots[created == created.min()]
        found: tuple[str, Line] | None = None
        for slot in slots.tolist():
            line = self._lines[slot]
            unit = line.first() if line is not None else None
            if line is None or unit is None:
                rows["used"][slot] = rows["eligible"][slot] = False
                return None
            if unit.rank.created != rows["created"][slot]:
                rows["created"][slot] = unit.rank.created
                return None
            if found is None or unit.rank.name < found[0]:
                found = unit.rank.name, line
        return found[1] if found is not None else None

    def _ask(self, slot: int, shape: Shape) -> None:
        width = max((column for column, _ in shape.demand), default=0) + 1
        if width > self._demand.shape[1]:
            more = np.zeros((len(self._demand), width - self._demand.shape[1]), np.int64)
            self._demand = np.concatenate([self._demand, more], axis=1)
        self._demand[slot] = np.iinfo(np.int64).min
        for column, amount in shape.demand:
            self._demand[slot, column] = amount
        if shape.asks_no_device:
            self._exact.add(slot)

    def _terms_of(self, ranking: Ranking) -> int:
        shape, spec = ranking.shape, ranking.shape.spec
        wanted = (shape.gpus, shape.gpu_milli) if shape.asks_devices else ()
        terms = wanted, spec.node_name, spec.node_selector, spec.affinity, spec.tolerations, spec.features
        number = self._terms.get(terms)
        if number is None:
            number = self._terms[terms] = len(self._admitted)
            self._admitted.append(ranking)
        return number

    def _grow(self) -> None:
        old = len(self._lines)
        more = max(_FIRST, old)
        self._rows = np.concatenate([self._rows, np.zeros(more, _COLUMNS)])
        self._demand = np.concatenate([self._demand, np.zeros((more, self._demand.shape[1]), np.int64)])
        self._lines += [None] * more
        self._rankings += [None] * more
        self._unused += range(old + more - 1, old - 1, -1)


class BackoffClasses:
    """All of them, by queue, and what of them was offered one by one.

    rows: those that gained capacity since all that they help was tried. served: the queue of which a unit is being served, if
    some of its classes are eligible. first: the class that is offered of those of several queues, the first of them. versions: of
    what all of this rests on.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._lines: dict[QueueNode, BackoffLines] = {}
        self.versions: tuple[int, ...] = ()
        self.rows: set[int] = set()
        self.served: QueueNode | None = None
        self.first: PendingClass | None = None

    @property
    def queues(self) -> list[BackoffLines]:
        """Those of each queue."""
        return list(self._lines.values())

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __contains__(self, pending_class: PendingClass) -> bool:
        lines = self._lines.get(pending_class.queue)
        return lines is not None and pending_class in lines.classes

    def __iter__(self) -> Iterator[PendingClass]:
        return (pending_class for lines in self._lines.values() for pending_class in lines.classes)

    def add(self, pending_class: PendingClass) -> None:
        """A class is in backoff."""
        node = pending_class.queue
        lines = self._lines.get(node)
        if lines is None:
            lines = self._lines[node] = BackoffLines(node, self._nodes)
        lines.add(pending_class)

    def discard(self, pending_class: PendingClass) -> None:
        """A class is in backoff no longer, if it was."""
        lines = self._lines.get(pending_class.queue)
        if lines is not None and pending_class in lines.classes:
            lines.remove(pending_class)
            if not lines.classes:
                del self._lines[pending_class.queue]

    def clear(self) -> None:
        """None is in backoff."""
        for lines in self._lines.values():
            for pending_class in list(lines.classes):
                lines.remove(pending_class)
        self._lines.clear()
        self.rows.clear()
        self.served = None
        self.first = None

    def is_eligible(self, pending_class: PendingClass) -> bool:
        """Whether a class is in backoff and is still to be offered in this pass, if a row holds it then."""
        return pending_class in self and self._lines[pending_class.queue].is_eligible(pending_class)

    def list_rows(
        self, rows: Sequence[int], checked: Sequence[BackoffLines] = (), free: int = -1, created: float = 0.0
    ) -> list[BackoffLines]:
        """Rows gained capacity; returns the queues of which some classes are eligible. free, created: as for one queue.

        checked: queues for whose classes that was asked one by one.
        """
        if not self._lines or not rows:
            return []
        self.rows.update(rows)
        skipped = {id(lines) for lines in checked}
        return [lines for lines in self._lines.values() if id(lines) not in skipped and lines.list_rows(rows, free, created)]

    def serves(self, pending_class: PendingClass) -> None:
        """A unit of a class is the next."""
        if self.first is not None:
            if pending_class is self.first:
                self.served = pending_class.queue
            return
        lines = self._lines.get(pending_class.queue) if self._lines else None
        if lines is not None and lines.open:
            self.served = pending_class.queue

    def open(self) -> list[BackoffLines]:
        """The queues of which some classes are eligible."""
        return [lines for lines in self._lines.values() if lines.open]

    def take(self, node: QueueNode, gained: set[int]) -> PendingClass | None:
        """The next of a queue that is to be offered. gained: rows with new capacity since."""
        lines = self._lines.get(node)
        return lines.take(sorted(self.rows | gained)) if lines is not None and lines.open else None

    def end(self) -> None:
        """All that these rows help was tried."""
        self.rows.clear()
        self.served = None
        self.first = None


def _has_devices(ranking: Ranking, row: int) -> bool:
    return not ranking.shape.asks_devices or devices.fits_one(ranking.nodes, ranking.shape, row)

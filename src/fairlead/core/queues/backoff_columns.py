"""Columns of lines in backoff, of all queues: what the first unit of each asks for, and which of them rows have enough for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.filters import devices
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.shapes import Shape
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.lines import Line

_FIRST = 16  # lines that fit in at first


class BackoffColumns:
    """One slot for each line."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._used: Mask = np.zeros(0, np.bool_)
        self._eligible: Mask = np.zeros(0, np.bool_)  # a row that gained capacity had enough for it then
        self._queues: Ints = np.zeros(0, np.int64)  # the queue's number
        self._terms: Ints = np.zeros(0, np.int64)  # under which nodes admit it
        self._counted: Mask = np.zeros(0, np.bool_)  # free amounts decide, whatever its neighbours are
        self._demand: Ints = np.zeros((4, 0), np.int64)  # by column of the nodes
        self._lines: list[Line | None] = []
        self._rankings: list[Ranking | None] = []
        self._unused: list[int] = []
        self._numbers: dict[tuple[object, ...], int] = {}  # under which nodes admit pods -> number
        self._admitted: list[Ranking] = []  # one of each
        # What is free on some rows, as of the changes that were seen.
        self._at: tuple[int, int, int, frozenset[int]] = (-1, -1, 0, frozenset())
        self._seen: Ints = np.zeros(0, np.int64)
        self._number: dict[int, int] = {}  # by row: the place in `_seen`
        self._free: Ints = np.zeros((0, 0), np.int64)
        self._held: bool | None = None  # whether any of them has enough for something eligible; None: not asked yet

    def put(self, line: Line, unit: Unit, queue: int) -> int:
        """A line with its first unit; returns its slot."""
        if not self._unused:
            self._grow()
        slot, ranking = self._unused.pop(), unit.tasks[0].ranking
        self._lines[slot], self._rankings[slot] = line, ranking
        self._ask(slot, ranking.shape)
        self._queues[slot] = queue
        self._terms[slot] = self._terms_of(ranking)
        self._counted[slot] = not (ranking.shape.asks_no_device or self._nodes.tenants.active or ranking.shape.minds_partners)
        self._used[slot] = True
        return slot

    def release(self, slot: int) -> None:
        """A line is in backoff no longer."""
        self._used[slot] = self._eligible[slot] = False
        self._lines[slot] = self._rankings[slot] = None
        self._unused.append(slot)

    def is_eligible(self, slot: int) -> bool:
        """Whether a line is eligible."""
        return self._eligible.item(slot)

    def which_eligible(self, slots: list[int]) -> list[bool]:
        """Which of some lines are."""
        found: list[bool] = self._eligible[slots].tolist() if slots else []
        return found

    def shut(self, slot: int) -> None:
        """A line is not eligible any more."""
        self._eligible[slot] = False

    def shut_all(self) -> None:
        """No line is eligible any more."""
        self._eligible[:] = False

    # -- rows ----------------------------------------------------------------------------------

    def list_rows(self, rows: Sequence[int]) -> list[int]:
        """What one of these rows has enough for is eligible; returns the numbers of queues of which more is."""
        left = np.flatnonzero(self._used & ~self._eligible)
        found = []
        for row in rows:
            if not len(left):
                break
            enough = self._enough(row, left)
            found.append(left[enough])
            left = left[~enough]
        slots = np.concatenate(found) if found else left
        self._eligible[slots] = True
        self._held = None
        numbers: list[int] = np.unique(self._queues[slots]).tolist()
        return numbers

    def _enough(self, row: int, slots: Ints) -> Mask:
        """Which of some slots ask for no more than a row has, and are admitted there, also by its devices."""
        found: Mask = np.all(self._demand[:, slots] <= self._free_on([row]), axis=0)
        if found.any():
            found = found & np.array([self._admits(ranking, row) for ranking in self._admitted])[self._terms[slots]]
            for place in np.flatnonzero(found & ~self._counted[slots]).tolist():
                ranking = self._rankings[slots.item(place)]
                found[place] = ranking is not None and ranking.fits_alone(row)
        return found

    def _admits(self, ranking: Ranking, row: int) -> bool:
        shape = ranking.shape
        return ranking.admits(row) and (not shape.asks_devices or devices.fits_one(self._nodes, shape, row))

    def holds(self, slot: int, rows: Iterable[int]) -> bool:
        """Whether one of these rows holds a line's first unit now."""
        ranking = self._rankings[slot]
        if ranking is None:
            return False
        self._see(rows)
        enough = np.all(self._demand[:, slot, None] <= self._free, axis=0)
        return any(self._nodes.open.item(row) and ranking.fits_row(row) for row in self._seen[enough].tolist())

    def holds_any(self, rows: Iterable[int]) -> bool:
        """Whether one of these rows has enough for something eligible, or had when it was asked first since any changed."""
        self._see(rows)
        if self._held is None:
            self._held = self._any_fits(self._demand[:, self._eligible])
        return self._held

    def _any_fits(self, demand: Ints) -> bool:
        """Whether one of the rows that were seen has enough for what one column of a demand asks."""
        if not len(self._seen):
            return False
        likely = demand[:, np.all(demand <= self._free.max(axis=1, keepdims=True), axis=0)]
        return any(np.all(likely <= free[:, None], axis=0).any() for free in self._free.T)

    def _see(self, rows: Iterable[int]) -> None:
        """See what is free on some rows now."""
        changes, wanted = self._nodes.changes, frozenset(rows)
        at = changes.generation, changes.end, len(self._demand), wanted
        generation, place, width, seen = self._at
        if at == self._at:
            return
        self._at = at
        self._held = None
        if (generation, width, seen) == (changes.generation, len(self._demand), wanted):
            for row in changes.since(place).tolist():
                if (number := self._number.get(row)) is not None:
                    self._free[:, number] = self._free_on([row])[:, 0]
            return
        self._seen = np.array(sorted(wanted), np.int64)
        self._number = {row: number for number, row in enumerate(self._seen.tolist())}
        self._free = self._free_on(self._seen)

    def _free_on(self, rows: Ints | list[int]) -> Ints:
        """What some rows have left, as the demand has it: shape (columns, rows); nothing of what no node offers."""
        matrix = self._nodes.matrix[: len(self._demand), rows]
        free = np.zeros((len(self._demand), len(rows)), np.int64)
        free[: len(matrix)] = matrix
        return free

    # -- upkeep --------------------------------------------------------------------------------

    def _ask(self, slot: int, shape: Shape) -> None:
        width = max((column for column, _ in shape.demand), default=0) + 1
        if width > len(self._demand):
            self._demand = np.concatenate(
                [self._demand, np.full((width - len(self._demand), len(self._used)), np.iinfo(np.int64).min)]
            )
        self._demand[:, slot] = np.iinfo(np.int64).min
        for column, amount in shape.demand:
            self._demand[column, slot] = amount

    def _terms_of(self, ranking: Ranking) -> int:
        shape = ranking.shape
        terms = ranking.terms, (shape.gpus, shape.gpu_milli) if shape.asks_devices else ()
        number = self._numbers.get(terms)
        if number is None:
            if len(self._admitted) > 2 * (len(self._lines) - len(self._unused)) + _FIRST:
                self._renumber()
            number = self._numbers[terms] = len(self._admitted)
            self._admitted.append(ranking)
        return number

    def _renumber(self) -> None:
        """Forget terms of lines that are in backoff no longer."""
        self._numbers.clear()
        self._admitted.clear()
        for slot in np.flatnonzero(self._used).tolist():
            ranking = self._rankings[slot]
            if ranking is not None:
                self._terms[slot] = self._terms_of(ranking)

    def _grow(self) -> None:
        old = len(self._lines)
        more = max(_FIRST, old)

        def grown(column: np.ndarray) -> np.ndarray:
            return np.concatenate([column, np.zeros(more, column.dtype)])

        self._used, self._eligible = grown(self._used), grown(self._eligible)
        self._queues, self._terms, self._counted = grown(self._queues), grown(self._terms), grown(self._counted)
        self._demand = np.concatenate([self._demand, np.zeros((len(self._demand), more), np.int64)], axis=1)
        self._lines += [None] * more
        self._rankings += [None] * more
        self._unused += range(old + more - 1, old - 1, -1)

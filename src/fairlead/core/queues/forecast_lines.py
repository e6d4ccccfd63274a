"""Lines of equal jobs that wait, as a forecast plays them: which fit, and which of those is next.

What a line needs is kept in arrays, one entry for each shape of which it needs some, so which lines fit is one operation over all
entries. The order of jobs inside their queues does not change in a forecast: it is found once, as a rank. What changes are the
shares of queues, by which the queue is chosen, and limits: lines that the same limits keep out are passed over together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.model.charges import Charge
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.queue_node import PendingClass, QueueNode

QueueOrder = tuple[int, tuple[float, ...]]
"""Of two queues the smaller goes first."""


@dataclass(slots=True)
class Line:
    """The jobs of one composition in one queue, in their order: they ask for the same.

    needs: (shape's number among those that wait, how many). demand: what one of them is charged for. limits, on the queue's path:
    (what is held there, resource, one's amount, limit). ranks: those of its units among all that wait.
    """

    pending_class: PendingClass
    units: deque[Unit]
    service: ServiceClass
    needs: list[tuple[int, int]]
    demand: Charge
    non_preemptible: bool
    limits: list[tuple[dict[str, int], str, int, int]]
    ranks: deque[int]

    @property
    def queue(self) -> QueueNode:
        """Where they wait."""
        return self.pending_class.queue


class Lines:
    """All lines. waiting: in how many of them something waits. counted: entries compared so far."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._queues: list[QueueNode] = []
        self.counted = 0
        self.waiting = len(lines)
        self._all = lines
        self._order(lines)
        self._lay(lines)

    @staticmethod
    def _order(lines: Sequence[Line]) -> None:
        """Give every unit its rank; equal ones have equal ranks."""
        keys = sorted((line.queue.unit_key(unit), number) for number, line in enumerate(lines) for unit in line.units)
        rank, last = 0, None
        for key, number in keys:
            rank += key != last
            last = key
            lines[number].ranks.append(rank)

    def _lay(self, lines: Sequence[Line]) -> None:
        """Lay out what lines need, and what orders them, as arrays."""
        self._live = list(lines)
        self._at = {id(line): at for at, line in enumerate(lines)}
        needs = [need for line in lines for need in line.needs]
        self._shapes: Ints = np.array([shape for shape, _ in needs], np.int64)
        self._wanted: Ints = np.array([count for _, count in needs], np.int64)
        starts = np.cumsum([0, *(len(line.needs) for line in lines)], dtype=np.int64)
        self._starts: Ints = starts[:-1]
        self._alone = len(needs) == len(lines)
        self._rank: Ints = np.array([line.ranks[0] for line in lines], np.int64)
        numbers: dict[str, int] = {}
        self._queue: Ints = np.array([numbers.setdefault(line.queue.name, len(numbers)) for line in lines], np.int64)
        self._queues = list({line.queue.name: line.queue for line in lines}.values())
        known: dict[tuple[object, ...], int] = {}
        self._limits: Ints = np.array([known.setdefault(_limited_as(line), len(known)) for line in lines], np.int64)

    def fitting(self, capacity: Ints, without: Sequence[int] = ()) -> Ints:
        """The lines, but for some, for which so many places for each shape are enough, by their numbers until `leave_out`."""
        self.counted += len(self._wanted)
        enough = capacity[self._shapes] >= self._wanted
        if not self._alone:
            enough = np.logical_and.reduceat(enough, self._starts)
        if without:
            enough[list(without)] = False
        return np.flatnonzero(enough)

    def line(self, number: int) -> Line:
        """The line of a number."""
        return self._live[number]

    def waiting_lines(self) -> list[Line]:
        """Those in which something waits."""
        return [line for line in self._live if line.units]

    def next(self, fitting: Ints, share: Callable[[QueueNode], QueueOrder], limited: Callable[[Line], bool]) -> int | None:
        """Of some lines, by number, the one whose first job is next of all that no limit keeps out; None if there is none.

        share: by which queues are ordered.
        """
        while fitting.size:
            queues = self._queue[fitting]
            there = np.flatnonzero(np.bincount(queues, minlength=len(self._queues))).tolist()
            shares = [share(self._queues[number]) for number in there] if len(there) > 1 else []
            if shares:
                least = min(shares)
                chosen = np.zeros(len(self._queues), np.bool_)
                chosen[[number for number, each in zip(there, shares, strict=True) if each == least]] = True
                first = chosen[queues]
                near, fitting = fitting[first], fitting[~first]
            else:
                near, fitting = fitting, fitting[:0]
            while near.size:
                number = near.item(self._rank[near].argmin())
                if not limited(self._live[number]):
                    return number
                near = near[self._limits[near] != self._limits[number]]
        return None

    def start(self, line: Line) -> None:
        """The first of a line waits no longer."""
        number = self._at[id(line)]
        line.units.popleft()
        line.ranks.popleft()
        if line.units:
            self._rank[number] = line.ranks[0]
        else:
            self.waiting -= 1
            first = self._starts[number]
            self._wanted[first : first + len(line.needs)] = np.iinfo(np.int64).max

    def worn(self) -> bool:
        """Whether nothing waits any more in most of those that are laid out."""
        return 2 * self.waiting < len(self._live)

    def leave_out(self) -> list[int]:
        """Lay out only lines in which something waits, and number the shapes anew; returns their numbers so far."""
        lines = self.waiting_lines()
        shapes = sorted({shape for line in lines for shape, _ in line.needs})
        number = {shape: at for at, shape in enumerate(shapes)}
        for line in lines:
            line.needs = [(number[shape], count) for shape, count in line.needs]
        self._lay(lines)
        return shapes


def _limited_as(line: Line) -> tuple[object, ...]:
    """Equal for lines that the same limits allow, or do not."""
    limits = tuple((id(used), *limit) for used, *limit in line.limits)
    return (limits, line.queue.name, line.demand) if line.non_preemptible else (limits,)

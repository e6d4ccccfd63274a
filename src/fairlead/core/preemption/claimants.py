"""Claimants: what waits in other queues, in the order in which it would be served after what was just placed.

The order is that of `QueueOrder`, a tournament over the tree of queues, in small: only queues in which something may claim
are in it, and in each the pending classes that a larger share could help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import TypeVar

from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.search import by_upstream
from fairlead.core.preemption.trial import Trial
from fairlead.core.queues.order import QueueOrder
from fairlead.core.queues.queue_node import Key, PendingClass, QueueNode, UnitKey, pending_class_of
from fairlead.core.queues.requests import is_hopeless
from fairlead.core.state.cluster import ClusterState

_MOST = 256
"""So many units of a pending class find free places in one trial; what is behind them is not tried."""

T = TypeVar("T")


class _Line:
    """A pending class. unit: the next of it that is served, as of the last `key`."""

    __slots__ = ("_behind", "queue", "unit")

    def __init__(self, queue: QueueNode, first: Unit) -> None:
        self.queue = queue
        self.unit = first
        self._behind: list[tuple[UnitKey, int, Unit]] | None = None  # put in order only once the first has found a place

    def key(self) -> UnitKey:
        """The key of its next in its queue, as of now: by what users hold by now, that of another user may be the next."""
        if self._behind is not None:
            self.unit = _next(self._behind, self.queue.unit_key)
        elif (pending_class := pending_class_of(self.unit)) is not None:
            self.unit = pending_class.first() or self.unit
        return self.queue.unit_key(self.unit)

    def go_on(self) -> bool:
        """Its next was tried: those behind it are only if it found a place. Whether there is another."""
        pending_class = pending_class_of(self.unit)
        if self.unit.tasks[0].row < 0 or pending_class is None:
            return False
        if self._behind is None:
            others = [unit for unit in pending_class.in_order()[:_MOST] if unit is not self.unit]
            self._behind = [(self.queue.unit_key(unit), number, unit) for number, unit in enumerate(others)]
            heapify(self._behind)
        else:
            heappop(self._behind)
        return bool(self._behind)


def _next(heap: list[tuple[UnitKey, int, T]], key: Callable[[T], UnitKey]) -> T:
    """What is next, the first in the heap then. Keys only get worse while others are placed: what is out of date sinks."""
    while (present := key(heap[0][2])) != heap[0][0]:
        heapreplace(heap, (present, heap[0][1], heap[0][2]))
    return heap[0][2]


class _Contender:
    """A queue in the tournament. lines: of its own; below: the queues below it in which, or below which, something claims."""

    __slots__ = ("above", "below", "lines", "node")

    def __init__(self, node: QueueNode, above: _Contender | None) -> None:
        self.node = node
        self.above = above
        self.lines: list[tuple[UnitKey, int, _Line]] = []
        self.below: list[tuple[Key, int, _Contender]] = []


class _Tournament:
    """Whose turn it is. Keys only get worse while units are placed: what is out of date sinks when it is met at the top."""

    def __init__(self, order: QueueOrder, waiting: list[list[_Line]]) -> None:
        self._order = order
        self._numbers = count()
        self._top: list[tuple[Key, int, _Contender]] = []
        known: dict[QueueNode, _Contender] = {}
        for lines in filter(None, waiting):
            contender = self._contender(lines[0].queue, known)
            contender.lines = [(line.key(), next(self._numbers), line) for line in lines]
            heapify(contender.lines)
        for contender in sorted(known.values(), key=lambda each: -len(each.node.path)):  # from below
            self._enter(contender)

    def _contender(self, node: QueueNode, known: dict[QueueNode, _Contender]) -> _Contender:
        found = known.get(node)
        if found is None:
            above = self._contender(node.parent, known) if node.parent is not None else None
            found = known[node] = _Contender(node, above)
        return found

    def _heap(self, contender: _Contender) -> list[tuple[Key, int, _Contender]]:
        return self._top if contender.above is None else contender.above.below

    def _enter(self, contender: _Contender) -> None:
        first = self._first(contender)
        if first is not None:
            key = self._order.key(contender.node, first.lines[0][2].unit)
            heappush(self._heap(contender), (key, next(self._numbers), contender))

    def next(self) -> _Contender | None:
        """The queue whose line is next, `lines[0]`; None: nothing is left."""
        return self._pick(self._top)

    def served(self, contender: _Contender) -> None:
        """The next of a queue was served, or is another: it, and those above it, are put in their places."""
        each: _Contender | None = contender
        while each is not None:
            heappop(self._heap(each))
            self._enter(each)
            each = each.above

    def add(self, contender: _Contender, line: _Line) -> None:
        """More waits in a queue; `served` puts it in its place."""
        heappush(contender.lines, (line.key(), next(self._numbers), line))

    def _pick(self, heap: list[tuple[Key, int, _Contender]]) -> _Contender | None:
        while heap:
            key, number, contender = heap[0]
            first = self._first(contender)
            if first is None:
                heappop(heap)
                continue
            present = self._order.key(contender.node, first.lines[0][2].unit)
            if present == key:
                return first
            heapreplace(heap, (present, number, contender))
        return None

    def _first(self, contender: _Contender) -> _Contender | None:
        """Of a queue and those below it the one whose line is next."""
        own = _next(contender.lines, _Line.key).unit if contender.lines else None
        below = self._pick(contender.below) if own is None or not own.express else None
        if below is not None and (own is None or below.lines[0][2].unit.express):
            return below
        return contender if own is not None else None


def claimants(trial: Trial) -> Iterator[Unit]:
    """What waits in other queues, as it would be served: what is to be tried in this pass, then what was refused before.

    Queue by queue, in each by place. The next of a pending class comes only if the one before it found a place, members beyond
    their gang's minimum only if that did.
    """
    state = trial.state
    for refused in (False, True):
        queues = [[_Line(node, first) for first in _firsts(trial, node, refused=refused)] for node in trial.queues()]
        yield from _in_turn(state, queues)


def _in_turn(state: ClusterState, waiting: list[list[_Line]]) -> Iterator[Unit]:
    """The units of pending classes, queue by queue, as they would be served."""
    tournament = _Tournament(state.queues.waiting.order, waiting)
    while (contender := tournament.next()) is not None:
        _, number, line = contender.lines[0]
        yield line.unit
        later = _later(state, line.unit)
        if line.go_on():
            heapreplace(contender.lines, (line.key(), number, line))
        else:
            heappop(contender.lines)
        for first in later:
            tournament.add(contender, _Line(line.queue, first))
        tournament.served(contender)


def _later(state: ClusterState, unit: Unit) -> list[Unit]:
    """The first of each pending class of those members of a gang that come to wait once its minimum, just tried, has places."""
    log = state.log
    if not unit.later or unit.tasks[0].row < 0:
        return []
    node, pending_classes = state.queues.queues[unit.tasks[0].queue], dict[tuple[object, ...], PendingClass]()
    for task in unit.later:
        if task.queue != node.name:
            continue  # hardly any gang has members in several queues
        log.set(task, "beyond", True)  # noqa: FBT003 - what the attribute becomes
        task.become(task.state, log)
        each = Unit((task,), 1, unit.gang)
        log.set(task, "unit", each)
        pending_class = pending_classes.get(each.composition)
        if pending_class is None:
            pending_class = pending_classes[each.composition] = PendingClass(node, each.composition, each)
        each.pending_class = pending_class
        pending_class.add(each)
    return [first for pending_class in pending_classes.values() if (first := pending_class.first()) is not None]


def _firsts(trial: Trial, node: QueueNode, *, refused: bool) -> Iterator[Unit]:
    """The first of each pending class of a queue that a larger share could help. refused: of those that were, or the others.

    None where no class of the queue is entitled to take from others: what is placed meanwhile makes none more entitled.
    """
    if not trial.may_claim(node):
        return
    is_refused = trial.state.queues.waiting.is_refused
    for pending_class in node.pending_classes.values():
        if not pending_class.waiting or is_refused(pending_class) is not refused or is_hopeless(pending_class):
            continue
        first = pending_class.first()
        if first is None or by_upstream(first) or first.tasks[0].pod.never_preempts:
            continue
        if node.blocked is None or first.rank <= node.blocked:
            yield first

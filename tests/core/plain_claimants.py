"""Claimants by the plain rule: nothing is kept from trial to trial, and every key is found anew when it is met."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count

from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption import claimants as kept
from fairlead.core.preemption.claimants import _Line, _next
from fairlead.core.preemption.search import by_upstream
from fairlead.core.preemption.trial import Trial, may_claim
from fairlead.core.queues.order import QueueOrder
from fairlead.core.queues.queue_node import Key, QueueNode, UnitKey
from fairlead.core.queues.requests import is_hopeless
from fairlead.core.state.cluster import ClusterState


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
        later = kept._later(state, line.unit)
        if line.go_on():
            heapreplace(contender.lines, (line.key(), number, line))
        else:
            heappop(contender.lines)
        for first in later:
            tournament.add(contender, _Line(line.queue, first))
        tournament.served(contender)


def claiming(state: ClusterState, node: QueueNode) -> bool:
    """Whether anything that waits in a queue may be entitled to more."""
    classes = [each for each in node.pending_classes.values() if each.waiting]
    return any(may_claim(state, node, each.core_charge) for each in classes)


def firsts(state: ClusterState, node: QueueNode, *, refused: bool) -> list[Unit]:
    """The first of each pending class of a queue that a larger share could help. refused: of those that were, or the others."""
    is_refused, found = state.queues.waiting.is_refused, []
    for pending_class in node.pending_classes.values():
        if not pending_class.waiting or is_refused(pending_class) is not refused or is_hopeless(pending_class):
            continue
        first = pending_class.first()
        if first is None or by_upstream(first) or first.tasks[0].pod.never_preempts:
            continue
        if not node.keeps_back(first):
            found.append(first)
    return found


def _firsts(trial: Trial, node: QueueNode, *, refused: bool) -> list[Unit]:
    """The same; none where no class of the queue is entitled to take from others."""
    if not trial.state.queues.tree.by_row and not claiming(trial.state, node):
        return []
    return firsts(trial.state, node, refused=refused)

"""Claimants: what waits in other queues, in the order in which it would be served after what was just placed.

The order is that of `QueueOrder`, a tournament over the tree of queues, in small: only queues in which something may claim
are in it, and in each the pending classes that a larger share could help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import TypeVar

from fairlead.core.model.charges import Charge
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.firsts import Entry, Firsts
from fairlead.core.preemption.trial import Trial
from fairlead.core.queues.queue_node import Key, PendingClass, QueueNode, UnitKey, pending_class_of
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
    """A queue in the tournament. entries: pending classes of its own, from the last one to the first, as long as none of their
    units has found a place; lines: those of which one has; below: the queues below it in which, or below which, something claims.

    first: of it and those below it the one whose line is next. stale: whether what it holds may be another since that was found,
    and its key. shares: the part of its deserved share that it would hold, by what is asked for.
    """

    __slots__ = ("above", "below", "entries", "first", "lines", "names", "node", "shares", "stale")

    def __init__(self, node: QueueNode, above: _Contender | None, names: frozenset[str] | None) -> None:
        self.node = node
        self.above = above
        self.names = names
        self.entries: list[Entry] = []
        self.lines: list[tuple[UnitKey, int, _Line]] = []
        self.below: list[tuple[Key, int, _Contender]] = []
        self.first: _Contender | None = None
        self.stale = False
        self.shares: dict[Charge, float] = {}

    def charged(self) -> None:
        """What it holds, and its users hold of it, may be another."""
        self.stale = True
        self.shares.clear()
        if self.entries:
            key = self.node.unit_key
            firsts = ((number, _first_of(unit)) for _, number, unit in self.entries)
            self.entries = sorted(((key(unit), number, unit) for number, unit in firsts), reverse=True)

    @property
    def unit(self) -> Unit | None:
        """The next of its own."""
        if not self.lines:
            return self.entries[-1][2] if self.entries else None
        line = _next(self.lines, _Line.key)
        return self.entries[-1][2] if self.entries and self.entries[-1] < self.lines[0][:2] else line.unit


class _Tournament:
    """Whose turn it is. Keys only get worse while units are placed: what is out of date sinks when it is met at the top."""

    def __init__(self, state: ClusterState, waiting: Iterable[tuple[QueueNode, list[Entry]]]) -> None:
        self._accounts = state.queues.accounts
        self._fair = state.queues.fair
        self._order = state.queues.waiting.order
        self._numbers = count()
        self._top: list[tuple[Key, int, _Contender]] = []
        self._known: dict[QueueNode, _Contender] = {}
        self._pools = bool(state.queues.tree.pools.named)
        self._version, self._place = self._accounts.version, self._accounts.charged.place
        for node, entries in waiting:
            if entries:
                self._contender(node).entries = entries[::-1]
        for contender in sorted(self._known.values(), key=lambda each: -len(each.node.path)):  # from below
            self._enter(contender)

    def _contender(self, node: QueueNode) -> _Contender:
        found = self._known.get(node)
        if found is None:
            above = self._contender(node.parent) if node.parent is not None else None
            names = self._fair.names_that_count(node)
            found = self._known[node] = _Contender(node, above, names)
        return found

    def _heap(self, contender: _Contender) -> list[tuple[Key, int, _Contender]]:
        return self._top if contender.above is None else contender.above.below

    def _enter(self, contender: _Contender) -> None:
        first = self._first(contender)
        if first is not None and (unit := first.unit) is not None:
            heappush(self._heap(contender), (self._key(contender, unit), next(self._numbers), contender))

    def next(self) -> _Contender | None:
        """The queue whose line is next; None: nothing is left."""
        return self._pick(self._top)

    def served(self, contender: _Contender) -> None:
        """The next of a queue was served: it, and those above it, are put in their places."""
        self._follow()
        each: _Contender | None = contender
        while each is not None:
            heap, first = self._heap(each), self._first(each)
            if first is None or (unit := first.unit) is None:
                heappop(heap)
            else:
                heapreplace(heap, (self._key(each, unit), next(self._numbers), each))
            each = each.above

    def take(self, contender: _Contender, unit: Unit) -> None:
        """A queue's next, a unit, is served: what is behind it in its pending class comes only if it found a place."""
        if contender.entries and contender.entries[-1][2] is unit:
            _, number, _ = contender.entries.pop()
            line = _Line(contender.node, unit)
            if line.go_on():
                self.add(contender, line, number)
            return
        _, number, line = heappop(contender.lines)
        if line.go_on():
            self.add(contender, line, number)

    def add(self, contender: _Contender, line: _Line, number: int | None = None) -> None:
        """More waits in a queue; `served` puts it in its place."""
        heappush(contender.lines, (line.key(), next(self._numbers) if number is None else number, line))

    def _follow(self) -> None:
        """Note which queues hold something else."""
        accounts = self._accounts
        if accounts.version != self._version:
            changed = accounts.charged.since(self._place)
            for node in list(self._known) if changed is None else changed:
                if (contender := self._known.get(node)) is not None:
                    contender.charged()
            self._version = accounts.version
        self._place = accounts.charged.place

    def _key(self, contender: _Contender, unit: Unit) -> Key:
        """How a queue compares with its siblings, with a unit as its next."""
        pending_class, node = unit.pending_class, contender.node
        if self._pools or not isinstance(pending_class, PendingClass):
            return self._order.key(node, unit)
        names = contender.names
        charge = pending_class.core_charge if names is None else pending_class.core_of(names)
        share = contender.shares.get(charge)
        if share is None:
            share = contender.shares[charge] = self._fair.dominant_share(node, pending_class.core)
        return self._order.key_of(node, unit, share)

    def _pick(self, heap: list[tuple[Key, int, _Contender]]) -> _Contender | None:
        while heap:
            key, number, contender = heap[0]
            if not contender.stale:
                return contender.first
            first = self._first(contender)
            if first is None or (unit := first.unit) is None:
                heappop(heap)
                continue
            present = self._key(contender, unit)
            if present == key:
                return first
            heapreplace(heap, (present, number, contender))
        return None

    def _first(self, contender: _Contender) -> _Contender | None:
        """Of a queue and those below it the one whose line is next."""
        own = contender.unit
        below = self._pick(contender.below) if own is None or not own.express else None
        unit = below.unit if below is not None else None
        contender.stale = False
        if unit is not None and (own is None or unit.express):
            contender.first = below
        else:
            contender.first = contender if own is not None else None
        return contender.first


def _first_of(unit: Unit) -> Unit:
    """The first of a unit's pending class by now."""
    pending_class = pending_class_of(unit)
    return unit if pending_class is None else pending_class.first() or unit


def claimants(trial: Trial) -> Iterator[Unit]:
    """What waits in other queues, as it would be served: what is to be tried in this pass, then what was refused before.

    Queue by queue, in each by place. The next of a pending class comes only if the one before it found a place, members beyond
    their gang's minimum only if that did. None of a queue in which none is entitled to take from others: what is placed meanwhile
    makes none more entitled.
    """
    state = trial.state
    firsts = state.caches.get(Firsts)
    firsts.follow()
    for refused in (False, True):
        queues = [(node, firsts.of(node, refused=refused)) for node in trial.queues() if trial.may_claim(node)]
        yield from _in_turn(state, queues)


def _in_turn(state: ClusterState, waiting: Iterable[tuple[QueueNode, list[Entry]]]) -> Iterator[Unit]:
    """The units of pending classes, queue by queue, as they would be served."""
    tournament = _Tournament(state, waiting)
    while (contender := tournament.next()) is not None and (unit := contender.unit) is not None:
        yield unit
        later = _later(state, unit)
        tournament.take(contender, unit)
        for first in later:
            tournament.add(contender, _Line(contender.node, first))
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

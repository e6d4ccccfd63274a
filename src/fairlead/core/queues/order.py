"""The order in which queues are served: level by level, first the one that is furthest below its deserved share with its next
job.

A tournament over the tree. Every queue keeps a heap of its children; a child is entered with the key of the unit that would be
served next below it, its head. Among siblings: express work, higher priority of the queue, smaller dominant part of its
deserved share with the head placed (`FairShares.dominant_share`), larger guarantee, then the head's time of creation and its
pod's UID: no tie is decided by a queue's name. A queue's own pods go before those of its children.

Keys only get worse while units are placed, so an entry that is out of date is put back with its present key when it is met at
the top; whatever may make a key better lists the queue, and those above it, anew. A head and its key hold until something
changes in the queue or below it (`QueueNode.touch`), in what all nodes offer, or in shares.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from heapq import heapify, heappop, heappush, heapreplace

from fairlead.core.model.agenda import SLACK
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.queue_node import Entry, Key, QueueNode, QueuePosition, Step

_MANY = 4  # entries for each that is dropped at once


class QueueOrder:
    """The heaps, and the next unit.

    first: the unit that a queue itself would serve next. share: (queue, unit) -> part of its deserved share that the queue
    would hold. offered: a version of what all nodes offer. blocked: queues that their heads block, and some that are open again.
    """

    def __init__(
        self,
        queues: dict[str, QueueNode],
        first: Callable[[QueueNode], Unit | None],
        share: Callable[[QueueNode, Unit], float],
        offered: Callable[[], int],
    ) -> None:
        self.queues = queues
        self._first = first
        self._share = share
        self._offered = offered
        self._seen = -1
        self._top: list[Entry] = []
        self._sequence = 0
        self.blocked: dict[QueueNode, None] = {}

    def clear(self) -> None:
        """No queue is listed."""
        self._top.clear()
        for node in self.queues.values():
            node.below.clear()
            node.listed = 0

    def next(self) -> Unit | None:
        """The unit that is served next, or None when nothing waits that could be tried."""
        offered = self._offered()
        if offered != self._seen:
            self._seen = offered
            self.touch_all()
        return self._pick(self._top)

    def touch_all(self) -> None:
        """No head, and no key, is known to hold."""
        for node in self.queues.values():
            node.touched = True

    def enlist(self, node: QueueNode) -> None:
        """Put a queue, and those above it, in their places."""
        for each in node.path:
            self._put(each)

    def reopen(self, node: QueueNode) -> None:
        """A queue may have a head again, or another one."""
        node.touch()
        if not node.listed:
            self.enlist(node)

    def pass_heads(self) -> None:
        """Queues go on whose head is gone, or comes after something else since users hold less than they did."""
        for node in list(self.blocked):
            if node.blocked is None or not node.blocked.alive:
                del self.blocked[node]
            if (first := node.lines.first()) is not None and not node.keeps_back(first):
                self.reopen(node)

    def enlist_all(self, nodes: Iterable[QueueNode]) -> None:
        """The same for several; those above them once."""
        found = {id(each): each for node in nodes for each in node.path}
        for each in sorted(found.values(), key=lambda each: -len(each.path)):  # from below
            self._put(each)

    def enlist_least(self, nodes: Iterable[tuple[QueueNode, Key]]) -> None:
        """Put queues in line with keys that theirs are no less than; the heads of those that are met at the top are determined.

        Queues that are listed already, or have queues below them, are put in their places.
        """
        anew: list[QueueNode] = []
        entries: dict[QueueNode | None, list[Entry]] = {}
        sequence = self._sequence
        for node, least in nodes:
            if node.listed or node.below:
                anew.append(node)
                continue
            node.touched = True
            sequence += 1
            node.listed = sequence
            entries.setdefault(node.parent, []).append((least, sequence, node))
        self._sequence = sequence
        for parent, more in entries.items():
            heap = self._top if parent is None else parent.below
            heap += more  # there may be one for each queue, so they are put in order at once
            heapify(heap)
            self._tidy(heap)
        self.enlist_all([*anew, *(parent for parent in entries if parent is not None)])

    def unlist(self, nodes: Collection[QueueNode]) -> None:
        """Nothing of these waits that could be tried."""
        heaps: dict[int, list[Entry]] = {}
        for node in nodes:
            node.listed = 0
            heap = self._top if node.parent is None else node.parent.below
            heaps[id(heap)] = heap
        for heap in heaps.values():
            if len(heap) < _MANY * len(nodes):  # else they are dropped when they are met
                heap[:] = [entry for entry in heap if entry[1] == entry[2].listed]
                heapify(heap)

    def again(self, changed: QueueNode | None = None) -> None:
        """Shares may have changed: of all queues, or of one that holds less, and those above it."""
        if changed is not None:
            for each in changed.path:
                if each.listed:
                    self._put(each)
            return
        listed = [each for each in self.queues.values() if each.listed]
        heaps = [self._top, *(each.below for each in self.queues.values())]
        for heap in heaps:
            heap.clear()
        self.enlist_all(listed)

    def position(self, node: QueueNode, unit: Unit, share: Callable[[QueueNode, Unit], float] | None = None) -> QueuePosition:
        """The position of a queue among all with a unit as its head, and as that of all above it. share: another than its own."""
        steps = tuple(self._step(each, unit, share or self._share) for each in reversed(node.path))
        return steps[0][0], not unit.express, steps

    def _put(self, node: QueueNode) -> None:
        """Put a queue among its siblings anew."""
        head = self._find_head(node)
        if head is None:
            node.listed = 0
        else:
            self._enter(node, self.key(node, head))

    def _enter(self, node: QueueNode, key: Key) -> None:
        self._sequence += 1
        node.listed = self._sequence
        heap = self._top if node.parent is None else node.parent.below
        heappush(heap, (key, node.listed, node))
        self._tidy(heap)

    def _tidy(self, heap: list[Entry]) -> None:
        """Drop what is out of date where that is most of a heap."""
        if len(heap) > 2 * len(self.queues) + SLACK:
            heap[:] = [entry for entry in heap if entry[1] == entry[2].listed]
            heapify(heap)

    @staticmethod
    def _step(node: QueueNode, head: Unit, share: Callable[[QueueNode, Unit], float]) -> Step:
        return -node.policy.priority, share(node, head), -node.guarantee, head.rank.created, head.tasks[0].pod.uid

    def key(self, node: QueueNode, head: Unit) -> Key:
        """How a queue compares with its siblings, with a unit as its head."""
        return self.key_of(node, head, self._share(node, head))

    @staticmethod
    def key_of(node: QueueNode, head: Unit, share: float) -> Key:
        """The same where the part of its deserved share is known."""
        priority, rank = -node.policy.priority, head.rank
        step = priority, share, -node.guarantee, rank.created, head.tasks[0].pod.uid
        return priority if node.parent is None else 0, not head.express, step

    def _pick(self, heap: list[Entry]) -> Unit | None:
        """The head of the first in a heap."""
        while heap:
            key, entry, node = heap[0]
            if entry != node.listed:
                heappop(heap)
                continue
            if not node.touched:
                return node.head
            head = self._find_head(node)
            if head is None:
                heappop(heap)
                node.listed = 0
                continue
            present = self.key(node, head)
            if present == key:
                return head
            heapreplace(heap, (present, entry, node))
        return None

    def _find_head(self, node: QueueNode) -> Unit | None:
        """The same as `_head_of`, remembered until something changes."""
        head = node.head = self._head_of(node)
        node.touched = False  # not before: where it cannot be determined, no earlier head counts
        return head

    def _head_of(self, node: QueueNode) -> Unit | None:
        """The unit that would be served next of a queue and those below it."""
        own = self._first(node)
        if not node.below or (own is not None and own.express):
            return own
        below = self._pick(node.below)
        return below if below is not None and (own is None or below.express) else own

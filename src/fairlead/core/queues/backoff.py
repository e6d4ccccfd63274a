"""Classes in backoff: unschedulable ones that were tried again before their search backoff is over, or are without victims.

Until the backoff is over, or something may be preempted for it (`without_victims`), no victims are searched for. So only a free
place helps such a class, and to try it in vain once more changes nothing. When rows have new capacity, which classes these may
hold is one comparison for all (`backoff_columns`). Those are eligible: the first of each queue stands in the order of service
beside what is listed there, and whether a row holds it is asked once it is the next. If none does, the one behind it stands
there. `actions.backoff` decides which classes are kept here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.tasks import Unit
from fairlead.core.queues.backoff_columns import BackoffColumns
from fairlead.core.queues.backoff_lines import BackoffLines
from fairlead.core.queues.queue_node import PendingClass, QueueNode, touch_all


class BackoffClasses:
    """All of them, by queue.

    rows: those that gained capacity since all that they help was tried. versions: of what all of this rests on.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.columns = BackoffColumns(nodes)
        self._nodes = nodes
        self._lines: dict[QueueNode, BackoffLines] = {}
        self._numbers: dict[int, BackoffLines] = {}
        self._opened: list[BackoffLines] = []  # of which something is eligible, or was
        self._last = 0
        self.versions: tuple[int, ...] = ()
        self.rows: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __contains__(self, pending_class: PendingClass) -> bool:
        lines = self._lines.get(pending_class.queue)
        return lines is not None and pending_class in lines.classes

    def __iter__(self) -> Iterator[PendingClass]:
        return (pending_class for lines in self._lines.values() for pending_class in lines.classes)

    def add(self, pending_class: PendingClass) -> None:
        """Only a free place helps a class for now."""
        node = pending_class.queue
        lines = self._lines.get(node)
        if lines is None:
            self._last += 1
            lines = self._lines[node] = self._numbers[self._last] = BackoffLines(node, self.columns, self._last)
        lines.add(pending_class)

    def discard(self, pending_class: PendingClass) -> None:
        """A class is in backoff no longer, if it was."""
        lines = self._lines.get(pending_class.queue)
        if lines is not None and pending_class in lines.classes:
            lines.remove(pending_class)
            if lines.open:
                lines.node.touch()
            if not lines.classes:
                del self._lines[pending_class.queue]
                del self._numbers[lines.number]

    def clear(self) -> None:
        """None is in backoff."""
        self.close()
        for lines in self._lines.values():
            for pending_class in list(lines.classes):
                lines.remove(pending_class)
        self._lines.clear()
        self._numbers.clear()
        self.rows.clear()

    # -- eligible ------------------------------------------------------------------------------

    def eligible(self, node: QueueNode) -> set[PendingClass]:
        """The classes of a queue that are eligible."""
        lines = self._lines.get(node)
        return lines.eligible() if lines is not None and lines.open else set()

    def is_eligible(self, pending_class: PendingClass) -> bool:
        """Whether a class is in backoff and is still to be tried in this pass, if a row holds it then."""
        return pending_class in self and self._lines[pending_class.queue].is_eligible(pending_class)

    def list_rows(self, rows: Sequence[int]) -> list[BackoffLines]:
        """Rows gained capacity: what one of them holds now is eligible. Returns those of which more is."""
        if not self._lines or not rows:
            return []
        self.rows.update(rows)
        numbers = self.columns.list_rows(rows)
        found = [self._numbers[number] for number in numbers]
        for lines in found:
            lines.open = lines.stale = True
        self._opened += found
        return found

    def first(self, node: QueueNode) -> Unit | None:
        """The first unit of what is eligible of a queue."""
        lines = self._lines.get(node)
        return lines.first() if lines is not None else None

    def holds(self, pending_class: PendingClass) -> bool:
        """Whether a row that gained capacity holds one of a class now."""
        slots = self._lines[pending_class.queue].classes[pending_class]
        return bool(slots) and self.columns.holds(slots[0], self.rows | self._nodes.gained)

    def holds_any(self) -> bool:
        """Whether a row that gained capacity may still hold something that is eligible."""
        return self.columns.holds_any(self.rows | self._nodes.gained)

    def pass_over(self, pending_class: PendingClass) -> None:
        """A class is the next, and no row holds it."""
        for slot in self._lines[pending_class.queue].classes[pending_class]:
            self.columns.shut(slot)
        pending_class.queue.touch()

    def close(self) -> list[QueueNode]:
        """Nothing is eligible. Returns the queues of which something was."""
        self.columns.shut_all()
        closed = [lines.node for lines in self._opened if lines.open]
        for lines in self._opened:
            lines.open = False
        touch_all(closed)
        self._opened.clear()
        return closed

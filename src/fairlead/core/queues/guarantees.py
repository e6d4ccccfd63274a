"""Guarantees: what one queue is guaranteed is not given to non-preemptible work of others.

Work of a class with mode `Never` is non-preemptible: what it would hold beyond its queue's quota could not be reclaimed. With
`borrowing: Unguaranteed` in the class it gets only what no other queue is guaranteed; only such work counts here. A queue's
claim is its quota, or what its own non-preemptible work and the claims of the queues below it come to, where that is more. The
claims of all queues under one with a limit keep within that limit, those of all within what there is. Where guarantees alone are
more than that, such work still starts as long as it raises no claim: within its quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fairlead.core.model.charges import Charge
from fairlead.core.model.undo import UndoLog

if TYPE_CHECKING:
    from fairlead.core.pods.tasks import Task
    from fairlead.core.queues.queue_node import QueueNode


class Broken(NamedTuple):
    """A guarantee that could not be honoured: claims of `resource` would be `claimed` of `bound` under a queue (None: all)."""

    resource: str
    under: QueueNode | None
    claimed: int
    bound: int
    requested: int


class Guarantees:
    """The claims of all queues, kept while something is placed and taken back by the undo log.

    classes: names of those whose work is non-preemptible and may not borrow guaranteed capacity; where there are any, pods of
    other schedulers that a queue is charged for count alike.
    capacity: how much there is of a resource, in base units.
    """

    def __init__(self, log: UndoLog, capacity: Callable[[str], int]) -> None:
        self.log = log
        self.capacity = capacity
        self.classes: frozenset[str] = frozenset()
        self.guaranteed: frozenset[str] = frozenset()  # resources of which some queue has a quota
        # uid of non-preemptible work that has a node -> (queue, what it is charged for)
        self.held: dict[str, tuple[str, Charge]] = {}
        # (queue, resource) -> its own non-preemptible work and the claims of queues below it
        self.below: dict[tuple[str, str], int] = {}
        self.claimed: dict[str, int] = {}  # of all queues together
        self.excess: dict[tuple[str, str], int] = {}  # (queue, resource) -> what quotas below it claim beyond its own

    def non_preemptible(self, task: Task) -> bool:
        """Whether a task is non-preemptible, and may not borrow what is guaranteed."""
        return bool(self.classes) and (task.service_class in self.classes or not task.pod.ours)

    def charge(self, task: Task, path: tuple[QueueNode, ...], charge: Charge, sign: int) -> None:
        """A task got a node (1) or left it (-1). path: its queue and those above it."""
        uid = task.pod.uid
        if sign > 0:
            if not self.non_preemptible(task):
                return
            self.log.insert(self.held, uid, (path[0].name, charge))
        else:
            known = self.held.get(uid)
            if known is None:
                return
            charge = known[1]
            self.log.remove(self.held, uid)
        self.add(path, charge, sign)

    def add(self, path: tuple[QueueNode, ...], charge: Charge, sign: int) -> None:
        """Non-preemptible work of a queue holds so much more (1), or less (-1)."""
        for resource, amount in charge:
            change = sign * amount
            for node in path:
                before = self.claim(node, resource)
                self.log.add(self.below, (node.name, resource), change)
                change = self.claim(node, resource) - before
                if not change:
                    break
            if change:
                self.log.add(self.claimed, resource, change)

    def broken(self, path: tuple[QueueNode, ...], charge: Charge, count: int = 1) -> Broken | None:
        """The guarantee that `count` times so much more non-preemptible work in a queue would break, or None."""
        for resource, amount in charge:
            change = amount * count
            if resource not in self.guaranteed or not change:
                continue
            for node in path:
                before, below = self.claim(node, resource), self.below.get((node.name, resource), 0)
                claim = max(node.quota.get(resource, 0), below + change)
                change = claim - before
                if not change:
                    break
                limit = node.limits.get(resource)
                if limit is not None and claim > limit:
                    return Broken(resource, node, claim, limit, amount * count)
            claimed = self.claimed.get(resource, 0) + change
            if change and claimed > (capacity := self.capacity(resource)):
                return Broken(resource, None, claimed, capacity, amount * count)
        return None

    def recount(self, queues: Mapping[str, QueueNode]) -> None:
        """Quotas or the tree have changed: all claims are made anew. Not while something is tried."""
        self.below, self.claimed, self.excess = {}, {}, {}
        if not self.classes:
            self.held = {}
            return
        self.guaranteed = frozenset(resource for node in queues.values() for resource, quota in node.quota.items() if quota)
        children: dict[str, list[QueueNode]] = {}
        for node in queues.values():
            children.setdefault(node.parent.name if node.parent is not None else "", []).append(node)
        self._guarantee(children, "")
        for queue, charge in self.held.values():
            self.add(queues[queue].path, charge, 1)

    def hold_again(self, queues: Mapping[str, QueueNode], placed: Iterable[tuple[Task, Charge]]) -> None:
        """Other work is non-preemptible now, or charged otherwise. placed: all that has a node, with what it is charged for."""
        self.held = {task.pod.uid: (task.queue, charge) for task, charge in placed if self.non_preemptible(task)}
        self.recount(queues)

    def copy(self, log: UndoLog) -> Guarantees:
        """The same claims, to be played on with. log: of the play."""
        twin = Guarantees(log, self.capacity)
        twin.classes, twin.guaranteed = self.classes, self.guaranteed
        twin.below, twin.claimed, twin.excess = dict(self.below), dict(self.claimed), self.excess
        return twin

    def claim(self, node: QueueNode, resource: str) -> int:
        """What a queue must be able to hold: its quota, or its non-preemptible work and the claims of the queues below it."""
        return max(node.quota.get(resource, 0), self.below.get((node.name, resource), 0))

    def guaranteed_to(self, node: QueueNode, resource: str) -> int:
        """What a queue is guaranteed against its siblings: its quota, and what non-preemptible work below it holds beyond
        quotas there.

        Quotas below it that come to more than its own claim that much too, so that non-preemptible work leaves them free, but
        guarantee nothing: it is not reclaimed from siblings.
        """
        return self.claim(node, resource) - self.excess.get((node.name, resource), 0)

    def _guarantee(self, children: Mapping[str, list[QueueNode]], parent: str) -> None:
        """Add up the quotas of a queue's descendants, from below."""
        for node in children.get(parent, ()):
            self._guarantee(children, node.name)
            for resource in self.guaranteed:
                claim = self.claim(node, resource)
                if (excess := claim - node.quota.get(resource, 0)) > 0:
                    self.excess[node.name, resource] = excess
                if claim and parent:
                    self.below[parent, resource] = self.below.get((parent, resource), 0) + claim
                elif claim:
                    self.claimed[resource] = self.claimed.get(resource, 0) + claim

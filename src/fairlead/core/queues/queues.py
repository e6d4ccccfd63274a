"""Queues as a whole: what changes more than one of tree, shares, accounts, limits and waiting work at once.

Callers ask the part that knows: `tree` (policies, amounts), `fair` (shares), `guarantees`, `accounts`, `limits`,
`reclaim`, `waiting`. What is here is what one of them does and others must follow: something is charged, a policy changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.api.names import DEFAULT_QUEUE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.mig.parts import WHOLE as GPU
from fairlead.core.model.agenda import Timers
from fairlead.core.model.charges import split
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.policy import Policy
from fairlead.core.model.queues import Queue
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.accounts import Accounts
from fairlead.core.queues.charged import ChargedQueues
from fairlead.core.queues.guarantees import Guarantees
from fairlead.core.queues.lenders import Lenders
from fairlead.core.queues.limits import Limits
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.reclaim import Reclaim
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import QueueTree
from fairlead.core.queues.waiting import Waiting


class Queues:
    """The parts, and what keeps them in step. queues: the tree's, by name."""

    def __init__(self, log: UndoLog, nodes: NodeTable, policy: Policy, timers: Timers) -> None:
        self.log = log
        self.tree = QueueTree(nodes)
        self.queues = self.tree.queues
        charged = ChargedQueues()
        self.fair = FairShares(self.tree, policy, charged)
        self.guarantees = Guarantees(log, self.fair.offered)
        self.accounts = Accounts(log, self.tree, self.guarantees, charged, fair_users=policy.fair_users)
        self.lenders = Lenders(self.tree, self.accounts, self.fair)
        self.limits = Limits(self.tree, self.guarantees)
        self.reclaim = Reclaim(self.fair, self.guarantees)
        self.waiting = Waiting(self.tree, self.fair, charged, timers)
        self._asked = (-1, False)  # the version of nodes for which pending classes were asked what they ask for
        self.upsert(Queue(DEFAULT_QUEUE))

    # -- policies ------------------------------------------------------------------------------

    def upsert(self, queue: Queue) -> Reason | None:
        """Add a queue or change its policy. A change that would close a cycle is refused."""
        tree = self.tree
        node = tree.node_of(queue.name)
        if node.exists and node.policy == queue and queue.name != DEFAULT_QUEUE:
            return None  # only its status changed
        parent = tree.node_of(queue.parent) if queue.parent else None
        if parent is not None and node in parent.path:
            above = [each.name for each in parent.path[: parent.path.index(node) + 1]]
            cycle = " -> ".join((queue.name, *above))
            message = f"queue {queue.name!r} cannot have parent {queue.parent!r}: they would form a cycle, {cycle}"
            return Reason(ReasonCode.INVALID_SPEC, message)
        self._move(node, parent)
        self.accounts.changes.everything |= node.policy.users_reclaim != queue.users_reclaim
        node.policy = queue
        node.exists = True
        self.accounts.measure(node)
        if tree.name_pools():
            self._recount_pools()
        tree.resolve(node)
        self.fair.touch()
        self.guarantees.recount(self.queues)
        self.waiting.policy_changed()
        self.waiting.order.again()
        self.accounts.freed.add(queue.name)
        return None

    def remove(self, name: str) -> None:
        """The queue's object is gone: its policy ends, what it holds stays charged."""
        node = self.queues.get(name)
        if node is not None:
            self.upsert(Queue(name))
            self.tree.lose(node)

    def _move(self, node: QueueNode, parent: QueueNode | None) -> None:
        if node.parent is parent and node.exists:
            return
        accounts = self.accounts
        debts = dict(accounts.debts)
        for uid in debts:
            self.repay(uid)
        above = node.path[1:]
        accounts.freed.update(ancestor.name for ancestor in above)
        accounts.shift(above, node, -1)
        self.tree.hang(node, parent)
        accounts.shift(node.path[1:], node, 1)
        for debt in debts.values():
            accounts.charge_debt(debt)
        if any(each.placed or each.guests for each in self.queues.values() if node in each.path):
            accounts.measure_anew(dict.fromkeys((*above, *node.path[1:])))

    def upsert_pool(self, pool: NodePool) -> None:
        """A node pool came or changed."""
        given = self.tree.pools.given
        if given.get(pool.name) != pool.nodes:
            given[pool.name] = pool.nodes
            self._sort_pools(pool.name)
        self.tree.nodes.shared.upsert_pool(pool)

    def remove_pool(self, name: str) -> None:
        """A node pool is gone: its name means a device model now."""
        if self.tree.pools.given.pop(name, None) is not None:
            self._sort_pools(name)
        self.tree.nodes.shared.remove_pool(name)

    def _sort_pools(self, pool: str) -> None:
        if pool in self.tree.pools.named:
            self.tree.pools.sort()
            self._recount_pools()

    def node_changed(self, row: int) -> None:
        """A node came, went, or changed: it may be in other pools now, or its GPUs other parts of one.

        Nothing is on it that was not before.
        """
        if self.tree.parts.follow(row):
            self.tree.by_row = bool(self.tree.pools.named) or self.tree.parts.varies
            self._recount(lambda key: split(key)[0] == GPU, row)
        if self.tree.pools.follow(row):
            self._recount_pools(row)

    def _recount_pools(self, row: int | None = None) -> None:
        """Pools are made of other rows, or of one more or less."""
        self._recount(lambda key: bool(split(key)[1]), row)

    def _recount(self, concerned: Callable[[str], bool], row: int | None) -> None:
        """What is charged under some keys is another, on one row or (None) anywhere."""
        if row is None or self.accounts.charges_on(row):
            self.accounts.recount(concerned)
        self.tree.pools_changed()
        self.fair.touch()
        self.waiting.order.touch_all()

    def settle(self, now: float) -> None:
        """Bring percentages up to the nodes' present capacity, and shares up to what is held and asked for."""
        if self.tree.parts.varies or self._asked[1]:
            self._ask_anew()
        if self.tree.resolve_all():
            self.accounts.freed.update(self.queues)
            self.fair.touch()
            self.guarantees.recount(self.queues)
            self.waiting.order.again()
        if self.fair.refresh(now):
            self.waiting.order.again()

    def _ask_anew(self) -> None:
        """Where GPUs are parts of one, what pending classes ask for depends on the nodes that there are."""
        parts, version = self.tree.parts, self.tree.nodes.described
        known, self._asked = self._asked, (version, parts.varies)
        if known == self._asked:
            return
        changed = False
        for node in self.queues.values():
            for pending_class in list(node.pending_classes.values()):
                unit = next(pending_class.units, None)
                for task in unit.tasks if unit is not None else ():
                    parts.asked(task.ranking)
                if unit is not None and unit.demand != pending_class.demand:
                    changed = True
                    if pending_class.unschedulable is not None:
                        self.waiting.requeue(pending_class)  # before: it is listed by what it asked for
                    pending_class.ask(unit)
                    node.changed[pending_class] = None
        if changed:
            self.accounts.freed.update(self.queues)
            self.fair.touch()
            self.waiting.order.again()

    # -- accounts ------------------------------------------------------------------------------

    def charge(self, task: Task, sign: int, row: int) -> None:
        """Add (`sign` 1) or take back (-1) what a task holds on a row, up to the root. -1: its node is not known."""
        queue = self.accounts.charge(task, sign, row)
        if not self.log.depth:
            self.fair.touch()
            if sign < 0:
                self.waiting.order.again(queue)

    def relieve(self, names: set[str]) -> None:
        """Work of these queues was preempted, in a trial that was kept: they may hold less than before it."""
        for name in sorted(names):
            node = self.tree.node_of(name)
            self.accounts.freed.update(each.name for each in node.path)
            self.waiting.order.again(node)

    def repay(self, uid: str) -> None:
        """A victim is gone, or stays and is charged as what runs."""
        debt = self.accounts.repay(uid)
        if debt is not None and not self.log.depth:
            self.fair.touch()
            self.waiting.order.again(self.tree.node_of(debt.queue))

    def uncredit(self, victim: str, beneficiary: str) -> None:
        """A beneficiary is charged in a victim's stead no more: it does not start, or not once the victim is gone."""
        debt = self.accounts.debts.get(victim)
        if debt is not None and any(uid == beneficiary for uid, _ in debt.credits):
            self.repay(victim)
            self.accounts.charge_debt(debt.without(beneficiary))

    def charge_moved(self, moved: Task, row: int, instead: Task | None) -> None:
        """A pod that moves is charged anew until it is gone; see `Accounts.debt_of_moved`."""
        self.repay(moved.pod.uid)
        self.accounts.charge_debt(self.accounts.debt_of_moved(moved, row, instead))

    def name_non_preemptible(self, classes: frozenset[str]) -> None:
        """The classes of service whose work is non-preemptible, and borrows nothing that others are guaranteed."""
        if classes != self.guarantees.classes:
            self.guarantees.classes = classes
            self.accounts.guarantee_anew()

    def charge_anew(self, charged: Iterable[tuple[Task, int]]) -> None:
        """All that queues hold and all that waits in them is counted anew. charged: the tasks, and on which row each is."""
        self.accounts.charge_anew(charged)
        self.waiting.count_anew()
        self.fair.touch()

"""Accounts: what every queue holds, and the debts of victims whose places are given away while they still run.

What a pod holds is charged along the path from its queue to the root, to its user where a policy limits users, and to what queues
are guaranteed where its class is non-preemptible. What follows from a change for shares and
for the order of queues is not theirs: they return what changed, and `queues.Queues` acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from fairlead.core.model.charges import Charge
from fairlead.core.model.undo import UndoLog, new_version
from fairlead.core.pods.changes import Changes
from fairlead.core.pods.tasks import Task
from fairlead.core.queues.charged import ChargedQueues
from fairlead.core.queues.guarantees import Guarantees
from fairlead.core.queues.meters import Meter, wanted
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.tree import QueueTree


class Debt(NamedTuple):
    """What a victim that still runs is charged for, though its place is given away.

    beneficiary: the queue that gets it, if any. Queues above both are charged for beneficiaries, so they are for the victim only
    beyond that. credits: by the UIDs of beneficiaries what of their charges stands for the victim's; they start once it is gone.
    row: where the victim is; -1: on a node that is not known. moves: it only moves, and what keeps its new place is credited: to
    its user, too, only what goes beyond that.
    """

    victim: Task
    row: int
    queue: str
    beneficiary: str
    charge: Charge
    credits: tuple[tuple[str, Charge], ...] = ()
    moves: bool = False

    @property
    def measured(self) -> Charge:
        """What its user is charged for."""
        return self.rest if self.moves else self.charge

    @property
    def rest(self) -> Charge:
        """What no beneficiary is charged for in its stead."""
        if len(self.credits) == 1 and self.credits[0][1] == self.charge:
            return ()  # one for one, as most are
        credit: dict[str, int] = {}
        for _, charge in self.credits:
            for name, amount in charge:
                credit[name] = credit.get(name, 0) + amount
        return tuple((name, amount - credit.get(name, 0)) for name, amount in self.charge if amount > credit.get(name, 0))

    def without(self, uid: str) -> Debt:
        """The same once a beneficiary is charged in its stead no more."""
        return self._replace(credits=tuple(each for each in self.credits if each[0] != uid))


class Accounts:
    """What queues hold, in `QueueNode`, and debts."""

    def __init__(
        self, log: UndoLog, tree: QueueTree, guarantees: Guarantees, charged: ChargedQueues, *, fair_users: bool
    ) -> None:
        self.log = log
        self.tree = tree
        self.guarantees = guarantees
        self._debts: dict[str, Debt] = {}
        self.debts: Mapping[str, Debt] = self._debts  # by the victim's UID
        self.freed: set[str] = set()  # queues that hold less, or may hold more, since it was cleared
        self.changes = Changes()
        self.version = new_version()  # of what queues hold: where that was taken back it is as before
        self.charged = charged
        self._fair_users = fair_users

    def charge(self, task: Task, sign: int, row: int) -> QueueNode:
        """Add (`sign` 1) or take back (-1) what a task holds on a row, up to the root; returns its queue.

        row: -1: its node is not known.
        """
        log, pod, charge = self.log, task.pod, self.tree.charge_at(task.shape, row)
        own = self.tree.node_of(task.queue)
        if not pod.ours:
            self._charge_guest(own, task, charge, sign)
            return own
        self.changes.pods[pod.uid] = None
        if not log.depth:
            # The hot path: nothing to remember.
            if sign > 0:
                own.placed[pod.uid] = task
            else:
                del own.placed[pod.uid]
            own.priorities[pod.priority] = own.priorities.get(pod.priority, 0) + sign
        else:
            if sign > 0:
                log.insert(own.placed, pod.uid, task)
            else:
                log.remove(own.placed, pod.uid)
            log.add(own.priorities, pod.priority, sign)
        self._count(own, task, charge, sign)
        return own

    def _is_another(self, nodes: Iterable[QueueNode]) -> None:
        """What these queues hold is another."""
        if self.log.depth:
            nodes = tuple(nodes)
            self.log.call(self._is_as_before, (self.version, nodes))
        self.version = new_version()
        self.charged.note(nodes)

    def _is_as_before(self, before: tuple[int, tuple[QueueNode, ...]]) -> None:
        self.version, nodes = before
        self.charged.note(nodes)

    def _all_are_others(self) -> None:
        """What all queues hold is another: nothing is tried meanwhile."""
        self.version = new_version()
        self.charged.renew()

    def _charge_guest(self, own: QueueNode, task: Task, charge: Charge, sign: int) -> None:
        """The same for a pod of another scheduler: it counts in every account, and is never a victim."""
        log = self.log
        if sign > 0:
            log.insert(own.guests, task.pod.uid, task)
        else:
            log.remove(own.guests, task.pod.uid)
        self._count(own, task, charge, sign)
        for node in own.path:
            log.add_all(node.foreign, charge, sign)

    def _count(self, own: QueueNode, task: Task, charge: Charge, sign: int) -> None:
        """Add or take back an amount in all accounts from a task's queue up to the root."""
        log = self.log
        self._is_another(own.path)
        self._hold(own, task, sign)
        if self.guarantees.classes:
            self.guarantees.charge(task, own.path, charge, sign)
        for node in own.path:
            if node.meter is not None:
                node.meter.charge(task, charge, sign)
            log.add_all(node.used, charge, sign)
            node.touched = True
            if sign < 0 and not log.depth:
                self.freed.add(node.name)

    def _hold(self, node: QueueNode, task: Task, sign: int) -> None:
        """What users hold of a queue; kept only where it decides who goes first."""
        if not self._fair_users:
            return
        shape, user, users, log = task.shape, task.user, node.users, self.log
        devices, cpu = users.held.get(user, (0, 0))
        if log.depth and sign > 0:
            log.call(users.less, user)  # once it is taken back
        log.insert(users.held, user, (devices + sign * shape.counted_milli, cpu + sign * shape.cpu))
        if sign < 0:
            users.less(user)

    def reclassify(self, task: Task) -> None:
        """A task, or its gang, names another class of service."""
        node = self.tree.node_of(task.queue)
        self.changes.pods[task.pod.uid] = None
        if task.pod.uid in node.placed:
            charge = self.tree.charge_at(task.shape, task.row)
            for sign in (-1, 1):
                self.guarantees.charge(task, node.path, charge, sign)

    def debts_of(self, victims: Sequence[tuple[Task, int]], placed: Sequence[Task] = ()) -> list[Debt]:
        """What victims on some rows are charged for until they are gone. placed: the beneficiaries, charged already.

        Each amount of a beneficiary stands for that of one victim; those of its own queue, and those nearest to it, come first.
        """
        beneficiary = placed[0].queue if placed else ""
        above = self.tree.node_of(beneficiary).path if placed else ()
        queues = {task.queue for task, _ in victims}
        common = {
            queue: sum(node in above for node in self.tree.node_of(queue).path) for queue in queues
        }  # how many are above both
        near = [(common[task.queue], task, row) for task, row in victims]
        left: dict[str, list[tuple[str, int]]] = {}  # resource -> of which beneficiaries how much is left, the first one last
        if any(common.values()):
            near.sort(key=lambda each: -each[0])
            for task in reversed(placed):
                for resource, amount in self.tree.charge_at(task.shape, task.row) if task.queue == beneficiary else ():
                    left.setdefault(resource, []).append((task.pod.uid, amount))
        found = []
        for count, task, row in near:
            charge = self.tree.charge_at(task.shape, row)
            # Where no queue is above both, nothing is charged twice.
            parts = _credits(charge, left) if count else ()
            found.append(Debt(task, row, task.queue, beneficiary, charge, parts))
        return found

    def debt_of_moved(self, moved: Task, row: int, instead: Task | None) -> Debt:
        """What a pod that moves is charged for. instead: what is charged in its stead; its debt is what it holds beyond that."""
        (debt,) = self.debts_of([(moved, row)], [instead] if instead is not None else [])
        return debt._replace(moves=instead is not None)

    def charges_of(self, debt: Debt) -> Iterator[tuple[QueueNode, Charge]]:
        """Which queues a debt is charged to, and how much of it."""
        others = self.tree.node_of(debt.beneficiary).path if debt.beneficiary else ()
        rest: Charge | None = None
        for node in self.tree.node_of(debt.queue).path:
            if node in others:
                rest = debt.rest if rest is None else rest
                yield node, rest
            else:
                yield node, debt.charge

    def charge_debt(self, debt: Debt) -> None:
        """A victim's place is given away, but it still runs and is charged for until it is gone; to its user in full."""
        self.log.insert(self._debts, debt.victim.pod.uid, debt)
        self._add_debt(debt, 1)
        self._measure_debt(debt, 1)

    def is_moved(self, uid: str) -> bool:
        """Whether something is charged in a victim's stead: one that moves."""
        debt = self.debts.get(uid)
        return debt is not None and debt.moves

    def repay(self, uid: str) -> Debt | None:
        """The victim is gone, or stays and is charged as what runs; returns its debt, if it has one."""
        debt = self.debts.get(uid)
        if debt is not None:
            self.log.remove(self._debts, uid)
            self._add_debt(debt, -1)
            self._measure_debt(debt, -1)
        return debt

    def repay_all(self) -> None:
        """In a trial: all victims that still run are gone. As `repay` of each, but what a queue gets back is added up first."""
        if not self.debts:
            return
        log, back = self.log, dict[QueueNode, dict[str, int]]()
        for debt in self.debts.values():
            for node, charge in self.charges_of(debt):
                amounts = back.setdefault(node, {})
                for name, amount in charge:
                    amounts[name] = amounts.get(name, 0) + amount
            self._measure_debt(debt, -1)
        self._is_another(back)
        for node, amounts in back.items():
            log.add_all(node.used, amounts.items(), -1)
            log.add_all(node.leaving, amounts.items(), -1)
            node.touched = True
        none: dict[str, Debt] = {}
        log.set(self, "_debts", none)
        log.set(self, "debts", none)

    def note_debt(self, debt: Debt) -> None:
        """Something has a debt that is not charged yet: everything is charged anew after this."""
        self._debts[debt.victim.pod.uid] = debt

    def forget_debt(self, uid: str) -> None:
        """Something has no debt, without giving anything back: everything is charged anew after this."""
        self._debts.pop(uid, None)

    def _add_debt(self, debt: Debt, sign: int) -> None:
        log, charges = self.log, list(self.charges_of(debt))
        self._is_another([node for node, _ in charges])
        for node, charge in charges:
            log.add_all(node.used, charge, sign)
            log.add_all(node.leaving, charge, sign)
            node.touched = True
            if charge and sign < 0 and not log.depth:
                self.freed.add(node.name)

    def _measure_debt(self, debt: Debt, sign: int) -> None:
        for node in self.tree.node_of(debt.queue).path:
            if node.meter is not None:
                node.meter.charge(debt.victim, debt.measured, sign)
                if not self.log.depth:
                    self.freed.add(node.name)

    def charge_anew(self, charged: Iterable[tuple[Task, int]]) -> None:
        """Everything that queues hold, and users hold of them, is added up anew. charged: the tasks, and on which row each is."""
        self.changes.everything = True
        self._all_are_others()
        for node in self.tree.queues.values():
            for account in (node.used, node.leaving, node.foreign, node.placed, node.guests, node.priorities, node.holds):
                account.clear()
            node.users.anew()
            node.touched = True
        for task, row in charged:
            own, charge = self.tree.node_of(task.queue), self.tree.charge_at(task.shape, row)
            if task.pod.ours:
                own.placed[task.pod.uid] = task
                own.priorities[task.pod.priority] = own.priorities.get(task.pod.priority, 0) + 1
            else:
                own.guests[task.pod.uid] = task
                self._note_foreign(own.path, charge, 1)
            self._hold(own, task, 1)
            self._add(own.path, charge, 1)
        for debt in self.debts.values():
            self._add_debt(debt, 1)
        self.measure_anew()
        self.freed.update(self.tree.queues)
        self.guarantee_anew()

    def recount(self, concerned: Callable[[str], bool]) -> None:
        """Nodes are in other pools, other pools are named, or GPUs are other parts: what is charged under such keys is added up
        anew.
        """
        self._all_are_others()
        for debt in self.debts.values():
            self._add_debt(debt, -1)
        for node in self.tree.queues.values():
            for account in (node.used, node.leaving, node.foreign):
                for key in [key for key in account if concerned(key)]:
                    del account[key]
        for own in self.tree.queues.values():
            for task in own.charged:
                self._add(own.path, [each for each in self.tree.charge_at(task.shape, task.row) if concerned(each[0])], 1)
            for task in own.guests.values():
                charge = [each for each in self.tree.charge_at(task.shape, task.row) if concerned(each[0])]
                self._note_foreign(own.path, charge, 1)
        self._credit_anew()
        for debt in self.debts.values():
            self._add_debt(debt, 1)
        self.measure_anew()
        self.guarantee_anew()
        self._all_are_others()

    def charges_on(self, row: int) -> bool:
        """Whether anything is charged for on a row, or may be: victims hold what others are credited with."""
        return bool(self.debts) or any(task.charged for task in self.tree.nodes.pods[row].values())

    def measure_anew(self, nodes: Iterable[QueueNode] | None = None) -> None:
        """What users and jobs hold is added up anew, wherever account of it is kept, or of these queues."""
        for node in self.tree.queues.values() if nodes is None else nodes:
            if node.meter is not None:
                self._add_up(node)

    def measure(self, node: QueueNode) -> None:
        """Begin, or end, to keep account of users and jobs; what is kept goes on by the present policy."""
        node.measured_anew = True
        if not wanted(node.policy):
            node.meter = None
        elif node.meter is None:
            self._add_up(node)
        else:
            node.meter.policy = node.policy

    def _add_up(self, node: QueueNode) -> None:
        node.measured_anew = True
        node.meter = Meter(self.log, node.policy)
        for each in self.tree.queues.values():
            for task in each.charged if node in each.path else ():
                node.meter.charge(task, self.tree.charge_at(task.shape, task.row), 1)
        for debt in self.debts.values():
            if node in self.tree.node_of(debt.queue).path:
                node.meter.charge(debt.victim, debt.measured, 1)

    def guarantee_anew(self) -> None:
        """Other work is non-preemptible now, or is charged otherwise."""
        if self.guarantees.classes or self.guarantees.held:
            placed = [task for node in self.tree.queues.values() for task in node.charged]
            self.guarantees.hold_again(self.tree.queues, ((task, self.tree.charge_at(task.shape, task.row)) for task in placed))

    def shift(self, above: Iterable[QueueNode], node: QueueNode, sign: int) -> None:
        """What a queue holds counts in those above it (1), or no more (-1): it moves in the tree."""
        self._add(above, tuple(node.used.items()), sign)
        self._note_foreign(above, tuple(node.foreign.items()), sign)

    def _credit_anew(self) -> None:
        """Pools were made up anew, so victims and their beneficiaries are charged for others; plan by plan, as before."""
        plans: dict[int, list[Debt]] = {}
        plan_of: dict[str, list[Debt]] = {}  # UID of a beneficiary -> the debts of its plan
        for debt in self.debts.values():
            same = list({id(plan_of[uid]): plan_of[uid] for uid, _ in debt.credits if uid in plan_of}.values())
            plan = same[0] if same else []
            for other in same[1:]:
                plan += plans.pop(id(other))
                plan_of.update((uid, plan) for each in other for uid, _ in each.credits)
            plan.append(debt)
            plans[id(plan)] = plan
            plan_of.update((uid, plan) for uid, _ in debt.credits)
        for debts in plans.values():
            uids = dict.fromkeys(uid for debt in debts for uid, _ in debt.credits)
            charged = self.tree.node_of(debts[0].beneficiary).placed if uids else {}
            placed = [charged[uid] for uid in uids if uid in charged]
            for debt in self.debts_of([(each.victim, each.row) for each in debts], placed):
                uid = debt.victim.pod.uid
                self._debts[uid] = debt._replace(moves=self._debts[uid].moves)

    @staticmethod
    def _note_foreign(nodes: Iterable[QueueNode], charge: Iterable[tuple[str, int]], sign: int) -> None:
        for node in nodes:
            for resource, amount in charge:
                node.foreign[resource] = node.foreign.get(resource, 0) + sign * amount

    @staticmethod
    def _add(nodes: Iterable[QueueNode], charge: Iterable[tuple[str, int]], sign: int) -> None:
        for node in nodes:
            node.touched = True
            for resource, amount in charge:
                node.used[resource] = node.used.get(resource, 0) + sign * amount


def _credits(charge: Charge, left: dict[str, list[tuple[str, int]]]) -> tuple[tuple[str, Charge], ...]:
    """What of a charge those in `left` stand for, by UID; it is taken from there."""
    found: dict[str, list[tuple[str, int]]] = {}
    for resource, amount in charge:
        missing, amounts = amount, left.get(resource)
        while amounts and missing > 0:
            uid, there = amounts.pop()
            if there > missing:
                amounts.append((uid, there - missing))
            if taken := min(there, missing):
                found.setdefault(uid, []).append((resource, taken))
                missing -= taken
    return tuple((uid, tuple(each)) for uid, each in found.items())

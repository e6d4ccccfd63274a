"""Queues: who is served next, and how much each may hold.

Queues form a tree: what a pod holds is charged along the path to the root, and limits are checked on it. Which queue is
served next `core.order` decides: the one that would hold the smallest dominant part of its due (`core.shares`) with its next job.

Inside a queue, waiting units are kept in rooms: one per composition (shape, priority, size), since
every verdict about one unit of a room holds for all of them. A room whose first unit cannot be
placed is parked as a whole until something happens that could help. In a room each user has a line of
his own: among equals whoever holds least of the queue goes first, and a limit for one user stops his line alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from fairlead.api.names import CPU, DEFAULT_QUEUE, MEMORY
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.model.arrays import Mask
from fairlead.core.model.charges import Charge, key_of, split, sum_of
from fairlead.core.model.objects import WHOLE, NodePool, Policy, Queue
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.queues.guarantees import Promises
from fairlead.core.queues.meters import Meter, by_others, wanted
from fairlead.core.queues.order import QueueOrder
from fairlead.core.queues.shares import FairShares
from fairlead.core.queues.tree import Behind, Debt, Place, QueueNode, Room, Standing, Tree, room_of

if TYPE_CHECKING:
    pass

_NOTHING: dict[str, int] = {}


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


class QueueTree(Tree):
    """All queues and the order in which they are served."""

    def __init__(self, log: UndoLog, nodes: NodeTable, policy: Policy) -> None:
        super().__init__(nodes)
        self.log = log
        self.fair = FairShares(self, policy)
        self.promises = Promises(log, self.offered)
        self.order = QueueOrder(self.queues, self._first, self.share_with)
        self._sequence = 0
        self._totals = -1
        self.eased: set[str] = set()
        self.parked: set[Room] = set()
        self.held_back: set[Room] = set()  # those parked rooms that are held back for a job that waits
        self.ripening: dict[Room, float] = {}  # parked rooms for which pods may be moved from some time on
        self.limited: set[Room] = set()  # where limits stop some users
        self.owed: dict[str, Debt] = {}  # by the victim's uid
        self.behind: dict[Room, Behind] = {}  # would take from others in vain -> who would take that in turn
        self.unlisted: list[tuple[Room, Exception]] = []  # could not be put in order, and why
        self.resting: set[Room] = set()  # were to search for victims, but did so in vain too often of late
        self._scales = dict.fromkeys(nodes.gpu_resources, WHOLE)
        self.upsert(Queue(DEFAULT_QUEUE))

    # -- events --------------------------------------------------------------------------------

    def upsert(self, queue: Queue) -> Reason | None:
        """Add a queue or change its policy. A change that would close a cycle is refused."""
        node = self.node_of(queue.name)
        if node.exists and node.policy == queue and queue.name != DEFAULT_QUEUE:
            return None  # only its status changed
        parent = self.node_of(queue.parent) if queue.parent else None
        ancestor = parent
        while ancestor is not None:
            if ancestor is node:
                message = f"queue {queue.name!r} cannot have parent {queue.parent!r}: it would be its own ancestor"
                return Reason(ReasonCode.INVALID_SPEC, message)
            ancestor = ancestor.parent
        self._move(node, parent)
        node.policy = queue
        node.exists = True
        self._measure(node)
        self._name_pools()
        self._resolve(node)
        self.promises.recount(self.queues)
        self.restart()
        self.eased.add(queue.name)
        return None

    def upsert_pool(self, pool: NodePool) -> None:
        """A node pool came or changed."""
        if self.pools.given.get(pool.name) != pool.nodes:
            self.pools.given[pool.name] = pool.nodes
            self._sort_pools(pool.name)

    def remove_pool(self, name: str) -> None:
        """A node pool is gone: its name means a device model now."""
        if self.pools.given.pop(name, None) is not None:
            self._sort_pools(name)

    def _sort_pools(self, pool: str) -> None:
        if pool in self.pools.named:
            self.pools.sort()
            self._recount_pools()

    def node_changed(self, row: int) -> None:
        """A node came, went, or changed: it may be in other pools now. Nothing is on it that was not before."""
        if self.pools.follow(row):
            self._recount_pools()

    def _name_pools(self) -> None:
        """Which pools queues name, and which resources of them."""
        named: dict[str, set[str]] = {}
        for node in self.queues.values():
            for each in node.policy.resources:
                if each.pool:
                    named.setdefault(each.pool, set()).add(each.name)
        if self.pools.name({pool: frozenset(resources) for pool, resources in named.items()}):
            self._recount_pools()

    def _recount_pools(self) -> None:
        """Pools are made up of other nodes, or other pools are named: what is held there is added up anew."""
        for debt in self.owed.values():
            self._add_debt(debt, -1)
        for node in self.queues.values():
            for account in (node.used, node.leaving, node.foreign):
                for key in [key for key in account if split(key)[1]]:
                    del account[key]
        for own in self.queues.values():
            for task in own.charged:
                self._add(own.path, self.pools.extras(task.shape.charge, task.row), 1)
            for task in own.guests.values():
                self._note_foreign(own.path, self.pools.extras(task.shape.charge, task.row), 1)
        self._credit_anew()
        for debt in self.owed.values():
            self._add_debt(debt, 1)
        for node in self.queues.values():
            if node.meter is not None:
                self._measure(node)
        self._totals = -1
        self.fair.touch()
        self.promise_anew()

    @staticmethod
    def _note_foreign(nodes: Iterable[QueueNode], charge: Charge, sign: int) -> None:
        for node in nodes:
            for resource, amount in charge:
                node.foreign[resource] = node.foreign.get(resource, 0) + sign * amount

    @staticmethod
    def _add(nodes: Iterable[QueueNode], charge: Charge, sign: int) -> None:
        for node in nodes:
            for resource, amount in charge:
                node.used[resource] = node.used.get(resource, 0) + sign * amount

    def _credit_anew(self) -> None:
        """Pools were made up anew, so victims and their beneficiaries are charged for others; plan by plan, as before."""
        plans: dict[int, list[Debt]] = {}
        plan_of: dict[str, list[Debt]] = {}  # UID of a beneficiary -> the debts of its plan
        for debt in self.owed.values():
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
            charged = self.node_of(debts[0].beneficiary).placed if uids else {}
            placed = [charged[uid] for uid in uids if uid in charged]
            for debt in self.debts([(each.victim, each.row) for each in debts], placed):
                uid = debt.victim.pod.uid
                self.owed[uid] = debt._replace(moves=self.owed[uid].moves)

    def promise_anew(self) -> None:
        """Other work never falls now, or is charged otherwise."""
        if self.promises.classes or self.promises.held:
            placed = [task for node in self.queues.values() for task in node.charged]
            self.promises.hold_anew(self.queues, ((task, self.charge_at(task.shape, task.row)) for task in placed))

    def reclassify(self, task: Task) -> None:
        """A task, or its gang, names another class of service."""
        node = self.node_of(task.queue)
        if task.pod.uid in node.placed:
            charge = self.charge_at(task.shape, task.row)
            for sign in (-1, 1):
                self.promises.charge(task, node.path, charge, sign)

    def name_firm(self, classes: frozenset[str]) -> None:
        """The classes of service whose work never falls and borrows nothing promised."""
        if classes != self.promises.classes:
            self.promises.classes = classes
            self.promise_anew()

    def _measure(self, node: QueueNode) -> None:
        """Begin, or end, to keep account of users and jobs."""
        if not wanted(node.policy):
            node.meter = None
            return
        node.meter = Meter(self.log, node.policy)
        for each in self.queues.values():
            for task in each.charged if node in each.path else ():
                node.meter.charge(task, self.charge_at(task.shape, task.row), 1)
        for debt in self.owed.values():
            if node in self.node_of(debt.queue).path:
                node.meter.charge(debt.victim, debt.measured, 1)

    def _resolve(self, node: QueueNode) -> None:
        """Amounts from the policy; percentages are of what the nodes offer now."""
        quotas, limits = {}, {}
        self.fair.touch()
        node.named = {key_of(each.name, each.pool): each for each in node.policy.resources}
        for key, each in node.named.items():
            total = self.total(key)
            if each.quota is not None:
                quotas[key] = each.quota
            elif each.quota_percent is not None:
                quotas[key] = total * each.quota_percent // 100_000
            if each.limit is not None:
                limits[key] = each.limit
            elif each.limit_percent is not None:
                limits[key] = total * each.limit_percent // 100_000
        of_pools: dict[str, int] = {}
        for key, quota in quotas.items():
            resource, pool = split(key)
            if pool:
                of_pools[resource] = of_pools.get(resource, 0) + quota
        for resource, together in of_pools.items():
            quotas[resource] = max(quotas.get(resource, 0), together)  # what is its due in pools is its due of the whole
        node.quota, node.limits = quotas, limits
        node.pool_limits = [(*split(key), limit) for key, limit in limits.items() if split(key)[1]]
        node.guarantee = max((quota / max(1, self.total(key)) for key, quota in quotas.items()), default=0.0)

    def settle(self, now: float) -> None:
        """Bring percentages up to the nodes' present capacity, and shares up to what is held and asked for."""
        self._settle_totals()
        if self.fair.refresh(now):
            self.restart()

    def _settle_totals(self) -> None:
        if self._totals == self.nodes.totals_version:
            return
        self._totals = self.nodes.totals_version
        for node in self.queues.values():
            self._resolve(node)
            self.eased.add(node.name)
        self.promises.recount(self.queues)
        self.restart()

    def remove(self, name: str) -> None:
        """The queue's object is gone: its policy falls away, what it holds stays charged."""
        node = self.queues.get(name)
        if node is not None:
            self.upsert(Queue(name))
            node.exists = node.seen = False
            self._settle_default()

    def doubt(self, name: str) -> tuple[bool, str, str] | None:
        """What an administrator should know of a queue's policy: (whether it is in force as it is, reason, message)."""
        node = self.node_of(name)
        parent = node.parent
        if parent is not None and not parent.exists:
            message = f"parent queue {parent.name!r} does not exist; until it is created, it guarantees and limits nothing"
            return False, "ParentNotFound", message
        for pool in sorted({each.pool for each in node.policy.resources if each.pool}):
            if self.pools.empty(pool):
                return (
                    False,
                    "PoolNotFound",
                    f"pool {pool!r} has no node: there is no such NodePool, and no device model of that name",
                )
        for resource, quota in sorted(node.quota.items()):
            scale = self.scale(resource)
            limit = node.limits.get(resource)
            if limit is not None and quota > limit:
                return (
                    True,
                    "QuotaAboveLimit",
                    f"its quota of {quota / scale:g} {resource} is above its limit of {limit / scale:g}",
                )
            above = parent.quota.get(resource) if parent is not None else None
            if parent is not None and above is not None:
                together = sum(each.quota.get(resource, 0) for each in self.queues.values() if each.parent is parent)
                if together > above:
                    message = (
                        f"the children of {parent.name!r} have quotas of {together / scale:g} {resource} in total, "
                        f"{parent.name!r} has {above / scale:g}: the excess is not guaranteed"
                    )
                    return True, "QuotaAboveParent", message
        for resource, limit in sorted(node.limits.items()):
            used, scale = node.used.get(resource, 0), self.scale(resource)
            if used > limit:
                others = by_others(node.foreign.get(resource, 0), scale)
                message = (
                    f"it holds {used / scale:g} of at most {limit / scale:g} {resource}{others}: no more pods start, "
                    "and none is evicted"
                )
                return True, "OverLimit", message
        return None

    def above(self, name: str, queue: str) -> bool:
        """Whether one queue is another, or stands above it."""
        return any(node.name == name for node in self.node_of(queue).path)

    def knows(self, name: str) -> bool:
        """Whether there is such a queue."""
        node = self.queues.get(name)
        return node is not None and node.exists

    def see(self, name: str) -> None:
        """There is a Queue object of that name: queue `default` is there by itself only where there is none at all."""
        self.node_of(name).seen = True
        self._settle_default()

    def _settle_default(self) -> None:
        default = self.node_of(DEFAULT_QUEUE)
        default.exists = default.seen or not any(node.seen for node in self.queues.values())

    def has_object(self, name: str) -> bool:
        """Whether a Queue object of that name was seen."""
        return self.knows(name) and self.queues[name].seen

    def _move(self, node: QueueNode, parent: QueueNode | None) -> None:
        if node.parent is parent and node.exists:
            return
        owed = dict(self.owed)
        for uid in owed:
            self.repay(uid)
        self.eased.update(ancestor.name for ancestor in node.path[1:])
        self._add(node.path[1:], tuple(node.used.items()), -1)
        self._note_foreign(node.path[1:], tuple(node.foreign.items()), -1)
        node.parent = parent
        for each in self.queues.values():
            path = [each]
            while (above := path[-1].parent) is not None:
                path.append(above)
            each.path = tuple(path)
        self._add(node.path[1:], tuple(node.used.items()), 1)
        self._note_foreign(node.path[1:], tuple(node.foreign.items()), 1)
        for debt in owed.values():
            self.owe(debt)
        for each in self.queues.values():
            if each.meter is not None:
                self._measure(each)

    # -- accounts ------------------------------------------------------------------------------

    def charge(self, task: Task, sign: int, row: int) -> None:
        """Add (`sign` 1) or take back (-1) what a task holds on a row, up to the root. -1: its node is not known."""
        log, pod, charge = self.log, task.pod, self.charge_at(task.shape, row)
        own = self.node_of(task.queue)
        if not pod.ours:
            self._charge_guest(own, task, charge, sign)
            return
        if not log.depth:
            self.fair.touch()
            # The hot path: nothing to remember.
            if sign > 0:
                own.placed[pod.uid] = task
            else:
                del own.placed[pod.uid]
            own.priorities[pod.priority] = own.priorities.get(pod.priority, 0) + sign
            self._hold(own, task, sign)
            if self.promises.classes:
                self.promises.charge(task, own.path, charge, sign)
            for node in own.path:
                if node.meter is not None:
                    node.meter.charge(task, charge, sign)
                log.add_all(node.used, charge, sign)
                if sign < 0:
                    self.eased.add(node.name)
            if sign < 0:
                self.restart(own)
            return
        if sign > 0:
            log.insert(own.placed, pod.uid, task)
        else:
            log.remove(own.placed, pod.uid)
        log.add(own.priorities, pod.priority, sign)
        self._hold(own, task, sign)
        if self.promises.classes:
            self.promises.charge(task, own.path, charge, sign)
        for node in own.path:
            if node.meter is not None:
                node.meter.charge(task, charge, sign)
            log.add_all(node.used, charge, sign)

    def _charge_guest(self, own: QueueNode, task: Task, charge: Charge, sign: int) -> None:
        """The same for a pod of another scheduler: it counts in every account, and is nobody's victim."""
        log = self.log
        if sign > 0:
            log.insert(own.guests, task.pod.uid, task)
        else:
            log.remove(own.guests, task.pod.uid)
        self._hold(own, task, sign)
        if self.promises.classes:
            self.promises.charge(task, own.path, charge, sign)
        for node in own.path:
            if node.meter is not None:
                node.meter.charge(task, charge, sign)
            log.add_all(node.used, charge, sign)
            log.add_all(node.foreign, charge, sign)
        if not log.depth:
            self.fair.touch()
            if sign < 0:
                self.eased.update(node.name for node in own.path)
                self.restart(own)

    def charge_anew(self, charged: Iterable[tuple[Task, int]]) -> None:
        """Everything that queues hold, users hold of them, and lines count is reckoned anew. charged: who, and on which row."""
        for node in self.queues.values():
            for account in (node.used, node.leaving, node.foreign, node.placed, node.guests, node.priorities, node.holds):
                account.clear()
            for room in node.rooms.values():
                room.waiting = sum(1 for _ in room.units)
            node.pods_waiting = sum(room.waiting * room.pods for room in node.rooms.values())
        for task, row in charged:
            own, charge = self.node_of(task.queue), self.charge_at(task.shape, row)
            if task.pod.ours:
                own.placed[task.pod.uid] = task
                own.priorities[task.pod.priority] = own.priorities.get(task.pod.priority, 0) + 1
            else:
                own.guests[task.pod.uid] = task
                self._note_foreign(own.path, charge, 1)
            self._hold(own, task, 1)
            self._add(own.path, charge, 1)
        for debt in self.owed.values():
            self._add_debt(debt, 1)
        for node in self.queues.values():
            if node.meter is not None:
                self._measure(node)
            self.eased.add(node.name)
        self.promise_anew()
        self.fair.touch()

    def relist(self) -> None:
        """Put all lines, and all queues, in order anew: who was about to be put back when an exception came is there again."""
        self.order.clear()
        for node in self.queues.values():
            node.heads.clear()
            node.fell = False
            for room in list(node.rooms.values()):
                room.offered = None
                if not room.waiting:
                    self.parked.discard(room)
                    self.ripening.pop(room, None)
                    self.resting.discard(room)
                    self._dissolve(room)
                elif room.parked is None:
                    try:
                        self._offer(node, room)
                    except Exception as error:  # the others stand in line all the same
                        self.unlisted.append((room, error))
        self.held_back = {room for room in self.parked if room.held_back is not None}

    def _hold(self, node: QueueNode, task: Task, sign: int) -> None:
        """What users hold of a queue; kept only where it decides who goes first."""
        if not self.fair.policy.fair_users:
            return
        shape, user = task.shape, task.user
        devices, cpu = node.holds.get(user, (0, 0))
        self.log.insert(node.holds, user, (devices + sign * shape.device_milli, cpu + sign * shape.cpu))
        node.fell = node.fell or sign < 0

    def relieve(self, names: set[str]) -> None:
        """Work of these queues has fallen, in a trial that was kept: they may hold less than before it."""
        for name in sorted(names):
            node = self.node_of(name)
            self.eased.update(each.name for each in node.path)
            self.restart(node)

    def debts(self, victims: Sequence[tuple[Task, int]], placed: Sequence[Task] = ()) -> list[Debt]:
        """What victims on some rows are charged for until they are gone. placed: the beneficiaries, charged already.

        Each amount of a beneficiary stands for that of one victim; those of its own queue, and those nearest to it, come first.
        """
        beneficiary = placed[0].queue if placed else ""
        above = self.node_of(beneficiary).path if placed else ()
        queues = {task.queue for task, _ in victims}
        common = {queue: sum(node in above for node in self.node_of(queue).path) for queue in queues}  # how many are above both
        near = [(common[task.queue], task, row) for task, row in victims]
        left: dict[str, list[tuple[str, int]]] = {}  # resource -> of which beneficiaries how much is left, the first one last
        if any(common.values()):
            near.sort(key=lambda each: -each[0])
            for task in reversed(placed):
                for resource, amount in self.charge_at(task.shape, task.row) if task.queue == beneficiary else ():
                    left.setdefault(resource, []).append((task.pod.uid, amount))
        found = []
        for count, task, row in near:
            charge = self.charge_at(task.shape, row)
            # Where no queue is above both, nothing is charged twice.
            parts = _credits(charge, left) if count else ()
            found.append(Debt(task, row, task.queue, beneficiary, charge, parts))
        return found

    def owing(self, debt: Debt) -> Iterator[tuple[QueueNode, Charge]]:
        """Which queues a debt is charged to, and how much of it."""
        others = self.node_of(debt.beneficiary).path if debt.beneficiary else ()
        rest: Charge | None = None
        for node in self.node_of(debt.queue).path:
            if node in others:
                rest = debt.rest if rest is None else rest
                yield node, rest
            else:
                yield node, debt.charge

    def uncredit(self, victim: str, beneficiary: str) -> None:
        """A beneficiary is charged in a victim's stead no more: it does not start, or not once the victim is gone."""
        debt = self.owed.get(victim)
        if debt is not None and any(uid == beneficiary for uid, _ in debt.credits):
            self.repay(victim)
            self.owe(debt.without(beneficiary))

    def owe(self, debt: Debt) -> None:
        """A victim's room is given away, but it still runs and is charged for until it is gone; to its user in full."""
        self.log.insert(self.owed, debt.victim.pod.uid, debt)
        self._add_debt(debt, 1)
        self._measure_debt(debt, 1)

    def owe_moved(self, moved: Task, row: int, instead: Task | None) -> None:
        """A pod that moves is charged anew until it is gone; see `debt_of_moved`."""
        self.repay(moved.pod.uid)
        self.owe(self.debt_of_moved(moved, row, instead))

    def debt_of_moved(self, moved: Task, row: int, instead: Task | None) -> Debt:
        """What a pod that moves is charged for. instead: what is charged in its stead; it owes what it holds beyond that."""
        (debt,) = self.debts([(moved, row)], [instead] if instead is not None else [])
        return debt._replace(moves=instead is not None)

    def repay(self, uid: str) -> None:
        """The victim is gone, or stays and is charged as what runs."""
        log, debt = self.log, self.owed.get(uid)
        if debt is None:
            return
        log.remove(self.owed, uid)
        self._add_debt(debt, -1)
        self._measure_debt(debt, -1)
        if not log.depth:
            self.fair.touch()
            self.restart(self.node_of(debt.queue))

    def _add_debt(self, debt: Debt, sign: int) -> None:
        log = self.log
        for node, charge in self.owing(debt):
            log.add_all(node.used, charge, sign)
            log.add_all(node.leaving, charge, sign)
            if charge and sign < 0 and not log.depth:
                self.eased.add(node.name)

    def _measure_debt(self, debt: Debt, sign: int) -> None:
        for node in self.node_of(debt.queue).path:
            if node.meter is not None:
                node.meter.charge(debt.victim, debt.measured, sign)
                if not self.log.depth:
                    self.eased.add(node.name)

    def over_limit(self, task: Task, count: int = 1, row: int = -1) -> Reason | None:
        """Why `count` more pods like this one would break a limit on the path, or None. 0: why what is charged breaks it.

        row: where they would be placed; limits for its pools count, too. -1: anywhere, these are not looked at.
        """
        charge = self.charge_at(task.shape, row)
        for node in self.node_of(task.queue).path:
            if node.meter is not None:
                refused = node.meter.refused(task, charge, count, self._scales)
                if refused is not None:
                    return refused
            if not node.limits:
                continue
            for resource, amount in charge:
                limit = node.limits.get(resource)
                if limit is not None and node.used.get(resource, 0) + amount * count > limit:
                    return self._beyond(node, resource, limit, amount * count)
        return self._promised(task, charge, count)

    def over_limits(self, unit: Unit) -> Reason | None:
        """The limit on its queue's path that keeps a unit out wherever it is placed; those of users not counted."""
        core = unit.tasks[: unit.need]
        for node in self.node_of(core[0].queue).path:
            for resource, amount in self.asked_together(core) if node.limits else ():
                limit = node.limits.get(resource)
                if limit is not None and node.used.get(resource, 0) + amount > limit:
                    return self._beyond(node, resource, limit, amount)
        return self._promised(core[0], self.asked_together(core), 1)

    def may_start(self, unit: Unit, without: Sequence[Task]) -> bool:
        """Whether limits let a unit start, were some tasks gone. Its user's are not looked at where one of these is his."""
        core, first = unit.tasks[: unit.need], unit.tasks[0]
        if self._promised(first, self.asked_together(core), 1) is not None:
            return False
        if not any(node.limits or node.meter is not None for node in self.node_of(first.queue).path):
            return True
        demand = self.asked_together(core)
        for node in self.node_of(first.queue).path:
            gone = [each for each in without if node in self.node_of(each.queue).path]
            eased = dict(sum_of([self.charge_at(each.shape, each.row) for each in gone]))
            for resource, amount in demand if node.limits else ():
                if node.used.get(resource, 0) - eased.get(resource, 0) + amount > node.limits.get(resource, math.inf):
                    return False
            if node.meter is not None and not any(each.user == first.user for each in gone):
                charge = self.charge_at(first.shape, -1)
                if node.meter.refused(first, charge, unit.need, self._scales) is not None:
                    return False
        return True

    def within_limits(self, queue: str, demand: Charge) -> bool:
        """Whether the limits on a queue's path let it hold so much more, wherever it is placed; those of users not counted."""
        return all(
            node.used.get(resource, 0) + amount <= node.limits.get(resource, math.inf)
            for node in self.node_of(queue).path
            if node.limits
            for resource, amount in demand
        )

    def most(self, node: QueueNode, unit: Unit) -> dict[str, int]:
        """Resource -> what a queue may hold of it with a unit: its limit, and its share if that can be reclaimed."""
        policy, share = self.fair.policy, self.fair.entitled.get(node.name, _NOTHING)
        if unit.express or not (policy.reclaim and policy.preempt):
            return node.limits
        return node.limits | {name: min(may, node.limits.get(name, may)) for name, may in share.items()}

    def devices_waited_for(self, room: Room) -> int:
        """For how many devices the units of a room wait, in milli."""
        return room.waiting * sum(amount for resource, amount in room.demand if resource in self.nodes.gpu_resources)

    def _beyond(self, node: QueueNode, key: str, limit: int, more: int) -> Reason:
        used, scale, (resource, pool) = node.used.get(key, 0), self.scale(key), split(key)
        where, others = f" of pool {pool!r}" if pool else "", node.foreign.get(key, 0)
        message = (
            f"queue {node.name!r} holds {used / scale:g} of at most {limit / scale:g} {resource}{where}"
            f"{by_others(others, scale)}; {more / scale:g} more would exceed its limit"
        )
        numbers = {"used": used, "limit": limit, "requested": more} | ({"foreign": others} if others else {})
        return Reason(ReasonCode.LIMIT_EXCEEDED, message, numbers)

    def _promised(self, task: Task, charge: Charge, count: int) -> Reason | None:
        """Why `count` times so much more of work that never falls would break what others are guaranteed, or None."""
        if not self.promises.firm(task):
            return None
        broken = self.promises.broken(self.node_of(task.queue).path, charge, count)
        if broken is None:
            return None
        scale, (resource, pool) = self.scale(broken.resource), split(broken.resource)
        where = f" of pool {pool!r}" if pool else ""
        under = "in total" if broken.under is None else f"under queue {broken.under.name!r}"
        quota, more = self.node_of(task.queue).quota.get(broken.resource, 0) / scale, broken.requested / scale
        message = (
            f"ServiceClass {task.service_class!r} is non-preemptible and may not borrow guaranteed capacity: {more:g} more would "
            f"raise the guarantees {under} to {broken.claimed / scale:g} of {broken.bound / scale:g} {resource}{where} (own "
            f"quota: {quota:g})"
        )
        numbers = {"used": broken.claimed - broken.requested, "limit": broken.bound, "requested": broken.requested}
        return Reason(ReasonCode.QUOTA_EXCEEDED, message, numbers)

    def full_pools(self, task: Task) -> list[tuple[str, Reason]]:
        """The pools of which this task's queue, or one above it, may hold no more, not even this task."""
        found = []
        for node in self.node_of(task.queue).path if self.pools.named else ():
            for resource, pool, limit in node.pool_limits:
                amount = next((amount for name, amount in task.shape.charge if name == resource), 0)
                key = key_of(resource, pool)
                if amount and node.used.get(key, 0) + amount > limit:
                    found.append((pool, self._beyond(node, key, limit, amount)))
        if self.promises.firm(task):
            for pool in sorted(self.pools.named):
                refused = self._promised(task, self.pools.of(task.shape.charge, pool), 1)
                if refused is not None:
                    found.append((pool, refused))
        return found

    def closed(self, task: Task) -> Mask | None:
        """For each row whether limits for its pools keep a task out; None if none does."""
        closed: Mask | None = None
        for pool, _ in self.full_pools(task):
            mask = self.pools.mask(pool)
            closed = mask if closed is None else closed | mask
        return closed

    def limited_by_pool(self, queue: str) -> bool:
        """Whether a queue, or one above it, has a limit for a pool."""
        return any(node.pool_limits for node in self.node_of(queue).path)

    def share(self, node: QueueNode, more: Mapping[str, int] = _NOTHING) -> float:
        """Dominant part of its due that a queue holds: above 1 it holds more than is fair, or than it is guaranteed.

        Its due of a resource that is scarce among its siblings is its fair share, or its quota if that is more. Where
        nothing is scarce, resources with a quota count; a queue without any quota is guaranteed nothing: its share is 1
        plus its dominant share of the whole cluster. more: what it would hold besides.
        """
        used = node.used
        scarce = self.fair.entitled.get(node.name)
        top = 0.0
        if scarce:
            for resource, may in scarce.items():
                held = used.get(resource, 0) + more.get(resource, 0)
                top = max(top, held / may if may else 1 + self._of_cluster(resource, held))
            return top
        if any(node.quota.values()):
            for resource, quota in node.quota.items():
                held = used.get(resource, 0) + more.get(resource, 0)
                if held:
                    top = max(top, held / quota if quota else 1 + self._of_cluster(resource, held))
            return top
        for resource in (CPU, MEMORY, *self.nodes.gpu_resources):
            held = used.get(resource, 0) + more.get(resource, 0)
            if held:
                top = max(top, self._of_cluster(resource, held))
        return 1 + top

    def share_with(self, node: QueueNode, unit: Unit) -> float:
        """The same with a unit of it, or of a queue below it, placed."""
        room = room_of(unit)
        if room is not None and not self.pools.named:
            return self.share(node, room.core)
        return self.share(node, dict(self.asked_together(unit.tasks[: unit.need])))

    def _of_cluster(self, resource: str, held: int) -> float:
        total = self.total(resource)
        return held / total if total else 1.0

    def offered(self, resource: str) -> int:
        """The same without what pods of other schedulers hold that no queue is charged for."""
        return self.total(resource) - self.fair.foreign(resource, [node for node in self.queues.values() if node.parent is None])

    def guaranteed(
        self, queue: QueueNode, top: QueueNode, wanted: Sequence[tuple[str, int]], held: Callable[[QueueNode, str], int]
    ) -> bool:
        """Whether what a queue holds, with so much more, is guaranteed to it against siblings of `top`, itself or one above.

        Either `top` stays within its quota, or the queue does, and only what never falls brings those above it beyond theirs.
        """
        if all(held(top, name) + amount <= top.quota.get(name, 0) for name, amount in wanted):
            return True
        return (
            bool(self.promises.classes)
            and queue is not top
            and all(held(queue, name) + amount <= queue.quota.get(name, 0) for name, amount in wanted)
            and all(
                held(node, name) + amount <= self.promises.guaranteed_to(node, name)
                for node in queue.up_to(top)[1:]
                for name, amount in wanted
            )
        )

    def is_due_before(self, queue: QueueNode, demand: Charge, other: QueueNode, others: Charge) -> bool:
        """Whether a queue would hold what is its due with so much more, and another queue more than is its."""
        rivals = queue.rivals(other)
        if rivals is None:
            return False
        (mine, theirs), fair = rivals, self.fair
        names = fair.contested(mine, insists=True)
        wanted = [(name, amount) for name, amount in demand if name in names]
        theirs_then = {name: theirs.used.get(name, 0) + dict(others).get(name, 0) for name, _ in wanted}
        # Within its own quota it is guaranteed that, too: siblings of its that hold what those above are guaranteed give way.
        own = all(
            queue.used.get(name, 0) + amount <= queue.quota.get(name, 0) <= node.quota.get(name, 0)
            for node in queue.up_to(mine)
            for name, amount in wanted
        )
        if own or self.guaranteed(queue, mine, wanted, QueueNode.holds_of):
            return any(held > theirs.quota.get(name, 0) for name, held in theirs_then.items())
        may = fair.entitled.get(theirs.name, {})
        over = any(held > may[name] for name, held in theirs_then.items() if name in may)
        return over and mine.name in fair.share and all(fair.within(node, demand) for node in queue.up_to(mine))

    # -- waiting units -------------------------------------------------------------------------

    def push(self, name: str, unit: Unit) -> None:
        """Let a unit wait in its queue."""
        node = self.node_of(name)
        composition = unit.composition
        room = node.rooms.get(composition)
        if room is None:
            room = node.rooms[composition] = Room(node, composition, unit)
        unit.room = room
        room.waiting += 1
        room.elastic = room.elastic or bool(unit.later)
        node.pods_waiting += room.pods
        self.fair.touch()
        heappush(room.lines.setdefault(unit.user, []), (unit.rank, unit))
        if node.blocked is not None and unit.rank < node.blocked:
            node.blocked = None
            self._reopen(node)
        room.untold.append(unit)
        if room.parked is None and unit.user not in room.limited and room.lines[unit.user][0][1] is unit:
            self._offer(node, room)
        elif room.parked is not None and node.policy.users_reclaim and room.first() is unit:
            self.unpark(room)  # what was in vain for another user need not be for this one

    def unpark(self, room: Room) -> None:
        """Something happened that could help the units of this room."""
        self.parked.discard(room)
        self.held_back.discard(room)
        self.ripening.pop(room, None)
        room.parked = room.held_back = None
        if room.queue.blocked is not None:
            room.queue.blocked = None
            self._reopen(room.queue)
        if not room.waiting:
            self._dissolve(room)
        else:
            self._offer(room.queue, room)

    def park(self, room: Room, reason: Reason) -> list[Unit]:
        """None of the units of this room can be placed for now; returns those that must be told why."""
        room.parked = reason
        self.parked.add(room)
        if room.held_back is not None:
            self.held_back.add(room)
        if room.told != reason.code:
            room.told = reason.code
            room.untold = sorted(room.units)
        return self.to_tell(room)

    @property
    def releases(self) -> bool:
        """Whether a pending class is held back for a job that waits no longer."""
        return any(room.held_back is not None and not room.held_back.alive for room in self.held_back)

    def limit(self, room: Room, user: str, reason: Reason) -> list[Unit]:
        """A limit stops one user here: his line waits until the limit eases, others are served. Returns his units."""
        room.limited[user] = reason
        self.limited.add(room)
        self._offer(room.queue, room)
        theirs = sorted(unit for _, unit in room.lines.get(user, ()) if unit.alive)
        room.untold = [unit for unit in room.untold if unit.user != user]
        return theirs

    def ease(self, eased: set[str]) -> None:
        """These queues hold less, or may hold more: users whom limits stopped are looked at again."""
        for room in sorted(
            (each for each in self.limited if any(node.name in eased for node in each.queue.path)), key=Room.order
        ):
            self.limited.discard(room)
            room.limited.clear()
            if room.parked is None:
                self._offer(room.queue, room)

    def _dissolve(self, room: Room) -> None:
        """Nobody waits in a room any more."""
        room.queue.rooms.pop(room.composition, None)
        self.limited.discard(room)
        self.behind.pop(room, None)

    def rested(self, now: float) -> list[Room]:
        """Rooms whose rest is over: they may search again. Each is returned once."""
        found = sorted((each for each in self.resting if each.rests_until <= now), key=Room.order)
        self.resting.difference_update(found)
        return found

    def to_tell(self, room: Room) -> list[Unit]:
        """Units that wait in a parked room and do not know why yet."""
        units, room.untold = [unit for unit in room.untold if unit.alive], []
        return units

    def block(self, room: Room) -> None:
        """Nothing behind the first unit of this room is served before it, in its queue."""
        unit = room.first()
        if unit is not None:
            room.queue.blocked = unit.rank

    def _reopen(self, node: QueueNode) -> None:
        if node.heads and not node.listed:
            self.order.enlist(node)

    def _offer(self, node: QueueNode, room: Room) -> None:
        unit = room.first()
        if unit is None:
            return
        self._head(node, room, unit)
        if not node.listed or node.heads[0][2] is room:
            self.order.enlist(node)  # once more if it may go before others now

    def standing(self, unit: Unit, *, held: bool = False) -> Standing:
        """Where the queue of a unit stands among all, with the unit as its next. held: the unit has places already."""
        share = (lambda node, _: self.share(node)) if held else None
        return self.order.standing(self.node_of(unit.tasks[0].queue), unit, share)

    def turn(self, unit: Unit, *, held: bool = False) -> tuple[Standing, Place]:
        """What orders units of all queues: where its queue stands, then its place in that queue. held: see `standing`."""
        return self.standing(unit, held=held), self.node_of(unit.tasks[0].queue).place(unit)

    def restart(self, changed: QueueNode | None = None) -> None:
        """Shares may have fallen: order the queues anew before serving the next.

        changed: only what this queue and those above it hold did.
        """
        self.order.again(changed)

    def next(self) -> Unit | None:
        """The unit that is served next, or None when nothing waits that could be tried."""
        return self.order.next()

    def _first(self, node: QueueNode) -> Unit | None:
        if node.fell:
            # Somebody holds less than when the heads were put in order: he may go before others now.
            node.fell = False
            node.heads.clear()
            for room in node.rooms.values():
                if room.parked is None and (unit := room.first()) is not None:
                    self._head(node, room, unit)
        heads = node.heads
        while heads and node.blocked is None:
            place, _, room = heads[0]
            unit = room.first() if room.parked is None else None
            if unit is not None:
                present = node.place(unit)
                if present == place:
                    return unit
                if room.offered == place:  # it is out of date: its user holds more now, or another unit is its first
                    self._sequence += 1
                    room.offered = present
                    heapreplace(heads, (present, self._sequence, room))
                    continue
            heappop(heads)
            if unit is None and room.parked is None and room.offered == place and not room.waiting:
                self._dissolve(room)
        return None

    def _head(self, node: QueueNode, room: Room, unit: Unit) -> None:
        self._sequence += 1
        room.offered = node.place(unit)
        heappush(node.heads, (room.offered, self._sequence, room))

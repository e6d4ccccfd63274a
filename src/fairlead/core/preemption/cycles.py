"""What prevents preemption cycles, where several preemption reasons meet.

Each reason alone comes to an end: what was taken for it is not taken back for it. But where classes reach beyond their queue, or
express work or pods of profile `kubernetes` take from any, one queue may lose to a third for another reason what it took from a
second for its share, and so on round. So no work is preempted for shares that would come back for another reason, or whose
preemption would push on work that would; and no unit takes from another queue what a job that waits would take from the unit.

Work is compared by preemption class (`preemption_classes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairlead.core.model.charges import Charge, split, sum_of
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.preemption_classes import PreemptionClass, preemption_classes
from fairlead.core.preemption.protected import may_stay
from fairlead.core.queues.entitlement import against, beyond_quota, beyond_share
from fairlead.core.queues.queue_node import PendingClass, QueueNode, pending_class_of
from fairlead.core.queues.waiting import BlockedBy

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


def note_bound(state: ClusterState) -> None:
    """What was being bound could not be preempted: its row is tried again for what waits and goes before it."""
    bound, state.pods.newly_bound = state.pods.newly_bound, []
    if not state.queues.waiting.unschedulable or not state.policy.preempt:
        return
    classes = preemption_classes(state)
    for task in bound:
        if task.row >= 0 and classes.is_wanted(classes.of(task, state.services.level(task)), elastic=task.pod.elastic):
            state.nodes.gained.add(task.row)


def requeue_blocked(state: ClusterState) -> None:
    """Requeue the classes blocked by a job that would have taken what they took, and that waits, or would take it, no longer."""
    queues = state.queues
    for pending_class, blocked_by in sorted(queues.waiting.blocked_by.items(), key=lambda each: PendingClass.order(each[0])):
        with state.isolation.guard("requeue", pending_class):
            first = pending_class.first()
            if first is None or not Cycle(state, first, pending_class.demand).is_blocked_by(blocked_by):
                queues.waiting.blocked_by.pop(pending_class, None)
                if pending_class.unschedulable is not None:
                    queues.waiting.requeue(pending_class)


What = str | Charge | tuple[str, ...]
"""What is preempted: a gang by its key, what is charged alike, or the uids of all that are preempted together."""


class Blocking:
    """What blocks a unit, as far as was asked: data of those who ask, not of the state. blocked_by: what was found last."""

    def __init__(self) -> None:
        self.blocked_by: BlockedBy | None = None


class Cycle:
    """One unit that would take from other queues, and who takes from it in turn. blocking: where it is kept what blocks it."""

    def __init__(self, state: ClusterState, unit: Unit, demand: Charge, blocking: Blocking | None = None) -> None:
        self._blocking = blocking if blocking is not None else Blocking()
        self._state = state
        self._classes = preemption_classes(state)
        self._unit = unit
        self._offered = dict(demand)  # what another unit would find in its place
        self._demand = demand
        self._work = self._classes.of_unit(unit)
        self._stays: dict[tuple[str, str], bool] = {}  # two queues -> whether the first one's work is protected from the other's
        self._own_classes: list[PreemptionClass] | None = None  # of the unit and its queue
        self._keeps: dict[int, bool] | None = None  # id of a class -> whether it keeps its place
        self._kept_for: dict[int, Unit] = {}  # id of a class -> what waits, on which it would push
        self._claimants: dict[str, QueueNode | None] = {}
        self._reclaimable: dict[tuple[str, str], tuple[QueueNode | None, bool]] = {}
        self._takers: list[tuple[Unit, Charge]] | None = None
        # what is preempted -> the units for which its place is enough by devices, and what each lacks besides
        self._fitting: dict[What, list[tuple[Unit, Charge]]] = {}
        # unit, what is preempted, its queue and user -> whether limits allow it
        self._within: dict[tuple[object, ...], bool] = {}

    def in_vain(self, task: Task) -> bool:
        """Whether a job that waits would take from it what it took from a task of another queue."""
        together = task.gang if task.gang is not None and not task.gang.spares() else None
        if together is not None:
            return self._is_followed(together.key, together.placed() or [task])
        return self._is_followed(self._state.queues.tree.charge_at(task.shape, task.row), [task])

    def in_vain_together(self, victims: list[Task]) -> bool:
        """The same of all its victims: what several leave together may be enough for a job for which no single place is."""
        return self._is_followed(tuple(sorted(task.pod.uid for task in victims)), victims)

    def _is_followed(self, what: What, victims: list[Task]) -> bool:
        if self._takers is None:
            self._takers = list(self._followers())
        if not self._takers:
            return False
        queues, first = self._state.queues, victims[0]
        rows = sorted({task.row for task in victims})
        for taker, lacking in self._fit_for(what, victims):
            if lacking and not self._is_free_beside(rows, lacking):
                continue
            if not any(each.ranking.admits(row) for each in taker.tasks[: taker.need] for row in rows):
                continue
            key = id(taker), what, first.queue, first.user
            within = self._within.get(key)
            if within is None:
                within = self._within[key] = queues.limits.may_start(taker, victims)
            if within:
                self._blocking.blocked_by = BlockedBy(taker, victims)
                return True
        return False

    def _fit_for(self, what: What, victims: list[Task]) -> list[tuple[Unit, Charge]]:
        """The units for which, by devices, what victims leave is enough: the unit's place, and what it does not need of theirs.

        With each what it lacks of other resources, which may be free beside it.
        """
        fitting = self._fitting.get(what)
        if fitting is None:
            queues, offered = self._state.queues, dict(self._offered)
            for name, amount in sum_of([queues.tree.charge_at(each.shape, each.row) for each in victims]):
                offered[name] = max(offered.get(name, 0), amount)
            fitting = self._fitting[what] = []
            for unit, demand in self._takers or ():
                lacking = tuple((name, amount - offered.get(name, 0)) for name, amount in demand if amount > offered.get(name, 0))
                if not any(split(name)[0] in self._state.nodes.gpu_resources for name, _ in lacking):
                    fitting.append((unit, lacking))
        return fitting

    def _is_free_beside(self, rows: list[int], lacking: Charge) -> bool:
        """Whether so much is free on some rows."""
        nodes = self._state.nodes
        free = {
            name: sum(nodes.free[nodes.resources[name]].item(row) for row in rows)
            for name, _ in lacking
            if name in nodes.resources
        }
        return all(amount <= free.get(name, 0) for name, amount in lacking)

    def _followers(self) -> Iterator[tuple[Unit, Charge]]:
        """The units that wait and would take its place: of its own queue, or of another, and what they ask for."""
        mine = self._work
        for _, queue in sorted(self._state.queues.queues.items()) if mine.preemptible else ():
            if queue is mine.queue or self._claimant(queue) is not None or self._classes.waits_far(queue):
                for work, pending_class, first in self._classes.waiting(queue):
                    if self._follows(work, first, pending_class.demand):
                        yield first, pending_class.demand

    def is_blocked_by(self, blocked_by: BlockedBy) -> bool:
        """Whether that still holds: the other waits and would take the place, and the victims still run."""
        other, victims = blocked_by
        pending_class = pending_class_of(other)
        if pending_class is None or not other.alive or not self._work.preemptible or any(task.row < 0 for task in victims):
            return False
        work = self._classes.of_unit(other)
        return self._follows(work, other, pending_class.demand) and self._state.queues.limits.may_start(other, victims)

    def _follows(self, work: PreemptionClass, first: Unit, demand: Charge) -> bool:
        """Whether a unit that waits, of a class, would take its place; whether it could is not checked."""
        return self._goes_before(work, first) if work.queue is self._work.queue else self._goes_beyond(work, demand)

    def _goes_before(self, work: PreemptionClass, first: Unit) -> bool:
        """Whether a unit of its own queue goes before it."""
        unit = self._unit
        if not work.preempts:
            return False
        users = work.queue.policy.users_reclaim and self._state.policy.reclaim and not work.upstream
        if work.priority != unit.priority or not users:
            return work.priority > unit.priority
        return first.user != unit.user and work.queue.unit_key(first) < work.queue.unit_key(unit)

    def _goes_beyond(self, work: PreemptionClass, demand: Charge) -> bool:
        """Whether a unit of another queue would take its place, whatever the shares or because that queue is within its quota."""
        mine = self._work
        return self._outranks(work, mine) or (
            self._claims(work, demand) and not self._outranks(mine, work._replace(preemptible=True))
        )

    def _outranks(self, work: PreemptionClass, other: PreemptionClass) -> bool:
        """Whether work of a class that waits would take from another, whatever the shares."""
        return work.outranks(other) and not (work.upstream and self._is_protected(other, work.queue))

    def _is_protected(self, other: PreemptionClass, takers: QueueNode) -> bool:
        """Whether pods of profile `kubernetes` of a queue may not take work of a class, the unit's or one that runs."""
        if other.upstream:
            return False
        if other.service.mode == "Never":
            return True
        key = other.queue.name, takers.name
        if key not in self._stays:
            own = other.queue is self._work.queue  # where the unit comes to be, too
            more = tuple((name, amount if own else 0) for name, amount in self._demand)
            self._stays[key] = may_stay(self._state, other.queue, more, takers)
        return self._stays[key]

    def keeps(self, task: Task, level: int) -> bool:
        """Whether a task of another queue, on a level of service, keeps its place though this unit's queue deserves more."""
        work = self._classes.of(task, level)
        if self._keeps is None:
            self._keeps = self._all_that_keep()
        keeps = self._keeps.get(id(work), False)
        if (waits := self._kept_for.get(id(work))) is not None:
            self._blocking.blocked_by = BlockedBy(waits, [task])
        if keeps or not self._unit.tasks[0].pod.elastic or task.pod.elastic:
            return keeps
        return work.preempts and work.priority >= self._work.priority and work.reaches(self._work.queue)

    def spares(self, priority: int) -> bool:
        """Whether express work of a priority keeps its place: for all but other express work, of no lower priority."""
        return not (self._work.express and self._work.priority >= priority)

    def _returns(self, work: PreemptionClass) -> bool:
        """Whether work preempted for this unit would take from it, or from others of its queue, whatever the shares."""
        if work.express and self.spares(work.priority):
            return True
        if not work.express and work.service.scope == "Queue" and not work.upstream:
            return False  # the hot path
        if self._own_classes is None:
            self._own_classes = [self._work._replace(preemptible=True), *self._classes.running(self._work.queue)]
        return any(self._outranks(work, each) for each in self._own_classes)

    def _claims(self, work: PreemptionClass, more: Charge = ()) -> bool:
        """Whether work whose queue is within its quota, with so much more, takes from the unit's, which would be over its own."""
        theirs = self._claimant(work.queue) if work.preempts and not work.upstream else None
        names = self._state.queues.fair.contested(theirs, enforce_quota=True) if theirs is not None else ()
        extra = dict(more)
        wanted = [(name, extra.get(name, 0)) for name in names]
        return (
            theirs is not None
            and bool(wanted)
            and self._state.queues.reclaim.guaranteed(work.queue, theirs, wanted, QueueNode.stays)
        )

    def _claimant(self, queue: QueueNode) -> QueueNode | None:
        """The rival above another queue that could reclaim from the unit's what that would hold beyond its quota."""
        if queue.name not in self._claimants:
            claim = against(queue, self._work.queue) if self._state.policy.reclaim else None
            names = self._state.queues.fair.contested(claim.mine, enforce_quota=True) if claim is not None else ()
            beyond = claim is not None and bool(names) and beyond_quota(claim.lenders, names, self._held_then)
            self._claimants[queue.name] = claim.mine if claim is not None and beyond else None
        return self._claimants[queue.name]

    def _held_then(self, node: QueueNode, name: str) -> int:
        """What a queue on the unit's path would hold with the unit."""
        return node.used.get(name, 0) + self._offered.get(name, 0)

    def _all_that_keep(self) -> dict[int, bool]:
        """By class that runs: whether it would return, or could take from one that would, and so on."""
        keeps: dict[int, bool] = {}
        keeping: list[PreemptionClass] = []
        rest: dict[tuple[str, bool], list[PreemptionClass]] = {}  # by queue, and whether it takes from others whatever the shares
        for work in self._classes.everywhere():
            keeps[id(work)] = returns = self._returns(work) or self._claims(work)
            if returns:
                keeping.append(work)
            elif work.preempts:
                rest.setdefault((work.queue.name, work.far), []).append(work)
        self._push_on(keeping, rest, keeps)
        for first, work in self._waiting_upstream():
            pushing: list[PreemptionClass] = [work]
            self._push_on(pushing, rest, keeps)
            self._kept_for.update((id(each), first) for each in pushing[1:])
        return keeps

    def _push_on(
        self,
        keeping: list[PreemptionClass],
        rest: dict[tuple[str, bool], list[PreemptionClass]],
        keeps: dict[int, bool],
    ) -> None:
        """Find of the rest what could take from what keeps its place, and from that in turn: it is added to both."""
        for each in keeping:  # which grows
            for (name, far), classes in rest.items():
                if classes and (far or name == each.queue.name or self._is_reclaimable(each, classes[0].queue)):
                    pushing = [work for work in classes if self._could_take(work, each)]
                    if pushing:
                        keeping += pushing
                        keeps.update((id(work), True) for work in pushing)
                        classes[:] = [work for work in classes if not keeps[id(work)]]

    def _waiting_upstream(self) -> Iterator[tuple[Unit, PreemptionClass]]:
        """The pods of profile `kubernetes` that wait, and would take from the unit, or from its queue, once it is placed."""
        for _, queue in sorted(self._state.queues.queues.items()) if self._state.pods.upstream else ():
            for work, _, first in self._classes.waiting(queue) if self._classes.waits_far(queue) else ():
                if work.upstream and self._returns(work):
                    yield first, work

    def _could_take(self, work: PreemptionClass, other: PreemptionClass) -> bool:
        """Whether work of a class that waits could take from another that runs, for any reason."""
        if self._outranks(work, other):
            return True
        if work.upstream:
            return False
        if not other.preemptible or (other.express and not (work.express and work.priority >= other.priority)):
            return False
        if work.queue is other.queue:
            return work.queue.policy.users_reclaim and other.priority == work.priority
        return self._is_reclaimable(other, work.queue)

    def _is_reclaimable(self, work: PreemptionClass, claimant: QueueNode) -> bool:
        """Whether a queue, once it holds less, may reclaim from that of a class."""
        pair = work.queue.name, claimant.name
        if pair not in self._reclaimable:
            self._reclaimable[pair] = self._excess(work.queue, claimant)
        over, quota = self._reclaimable[pair]
        if quota or over is None:
            return quota
        least = self._classes.least(work)
        return least is None or self._state.queues.fair.keeps(over, None, (least,))

    def _excess(self, lender: QueueNode, claimant: QueueNode) -> tuple[QueueNode | None, bool]:
        """The rival above the lender if it is over its fair share; and whether the claimant may reclaim because of quotas."""
        claim, queues = against(claimant, lender), self._state.queues
        if claim is None or any(map(queues.fair.over, claim.claimants)):
            return None, False
        over = claim.theirs if beyond_share(queues.fair, claim.lenders, None) else None
        names = queues.fair.contested(claim.mine, enforce_quota=True)  # as the preemption policy compares those between them
        above = beyond_quota(claim.lenders, names, QueueNode.stays)
        return over, above and queues.reclaim.guaranteed(claimant, claim.mine, [(name, 0) for name in names], QueueNode.stays)

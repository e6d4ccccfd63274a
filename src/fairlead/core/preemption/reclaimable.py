"""Whether what starts beyond its queue's share would be reclaimed at once: then it does not start.

A job may borrow what no other job can use: that is decided by asking the search for victims, right after the start and under the
undo log, for every job that waits in another queue. If one of them could be placed by reclaiming from what has just started, or
from its queue (in a tree: from any below the queue that parts it from the other's), the start is taken back. A job too large
for any place, or one that finds a free place all the same, holds no start back.

Costs nothing while nothing is scarce or the queue stays within its quota; else a search for each pending class that
deserves something then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from fairlead.api.reasons import ReasonCode
from fairlead.core import allocation
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption.claimants import claimants
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.policy import PreemptionPolicy, share_due
from fairlead.core.preemption.preemption_classes import preemption_classes
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.search import preempt
from fairlead.core.preemption.trial import Trial, goes_beyond
from fairlead.core.preemption.unclaimed import is_unclaimed
from fairlead.core.preemption.victims import victims_of
from fairlead.core.queues.entitlement import within_share
from fairlead.core.queues.queue_node import PendingClass, QueueNode, pending_class_of
from fairlead.core.queues.waiting import BlockedBy
from fairlead.core.state.cluster import ClusterState


class Reclaimed(NamedTuple):
    """It may not start, as a job of another queue would take back at once what it would borrow. Amounts in charged units.

    queue, claimant: the two queues. used: what the first holds of a resource; share: its fair share; requested: of the unit.
    """

    queue: str
    claimant: str
    resource: str
    used: int
    share: int
    requested: int
    code: ReasonCode = ReasonCode.FAIR_SHARE


Refused = allocation.Refused | Reclaimed
"""Why a unit does not start."""


class HeldBack:
    """For whom single pods are held back from places, free or of the same victims, as long as queues hold the same in one pass.

    What is alike for preemption, takes no less of the same node, and would be charged the same of what is scarce, would be taken
    back as well: what waits meets no other places, and the same victims. So a GPU that many jobs may not have costs few trials
    per queue, not one per job.
    claimant: the last for whom something was held back, if nothing that goes before it had found a place in the trial. It would
    most often reclaim what is placed next, too, so it is asked first.
    """

    def __init__(self, _: ClusterState) -> None:
        self._version = -1
        self._known: dict[tuple[object, ...], list[tuple[tuple[tuple[int, int], ...], Unit]]] = {}  # with what it took
        self.claimant: Unit | None = None

    def as_of(self, state: ClusterState) -> HeldBack:
        """The same, without what was found before queues held what they hold now."""
        if self._version != state.queues.accounts.version:
            self._version = state.queues.accounts.version
            self._known.clear()
            self.claimant = None
        return self

    def known(self, state: ClusterState, unit: Unit, placed: Sequence[Task], victims: Sequence[Task] = ()) -> Unit | None:
        """The unit that would reclaim what was just placed, as it would what was before; None: not known."""
        key = _alike(state, unit, placed, victims)
        taken = dict(placed[0].shape.taken)
        for before, other in self._known.get(key, ()) if key is not None else ():
            if other.alive and all(amount <= taken.get(column, 0) for column, amount in before):
                return other
        return None

    def note(self, state: ClusterState, unit: Unit, placed: Sequence[Task], other: Unit, victims: Sequence[Task] = ()) -> None:
        """What was just placed would be reclaimed by another unit."""
        key = _alike(state, unit, placed, victims)
        if key is not None:
            self._known.setdefault(key, []).append((placed[0].shape.taken, other))


def _alike(state: ClusterState, unit: Unit, placed: Sequence[Task], victims: Sequence[Task]) -> tuple[object, ...] | None:
    """What decides who would reclaim a single pod; None: more does."""
    pending_class, (first, *more) = pending_class_of(unit), placed
    if more or unit.gang is not None or pending_class is None or first.shape.holds or first.pod.claims:
        return None
    work = preemption_classes(state).of(first, unit.level)
    user = unit.user if pending_class.queue.policy.users_reclaim else ""
    gone = tuple(sorted(task.pod.uid for task in victims))
    return id(work), user, first.row, pending_class.core_of(state.queues.fair.disputed), gone


class Reclaimer(NamedTuple):
    """The unit that would reclaim, if there is one; and what blocks the pending classes that were tried for it.

    borrowed: something that waits found a free place beyond its queue's quota. first: nothing found one before that unit.
    """

    unit: Unit | None
    blocked: dict[PendingClass, BlockedBy]
    borrowed: bool = False
    first: bool = False


def reclaimer(state: ClusterState, unit: Unit, placed: Sequence[Task]) -> Reclaimer:
    """The first unit found that waits and could be placed by reclaiming from what was just placed, or from its queue.

    placed: tasks of `unit` that have places now, inside an open mark of the undo log. The state is left as it was. Those that
    wait are tried in the order in which they would be served, and one that finds a free place keeps it meanwhile: each may fit
    where all together do not. What goes beyond its own queue's quota may be held back, too, and then others find other
    places: so if there was such a thing, all are tried once more without it.
    """
    if _is_not_reclaimed(state, placed[0]):
        return Reclaimer(None, {})
    found = _of_some_queues(state, unit, placed, borrowing=True)
    if found.unit is not None or not found.borrowed:
        return found
    again = _of_some_queues(state, unit, placed, borrowing=False)
    return Reclaimer(again.unit, found.blocked | again.blocked)


def claims_again(state: ClusterState, unit: Unit, placed: Sequence[Task], other: Unit | None) -> Reclaimer | None:
    """The same if it is a certain unit, before which nothing that waits finds a place; None: it is not."""
    pending_class = pending_class_of(other) if other is not None else None
    if other is None or pending_class is None or pending_class.first() is not other or _is_not_reclaimed(state, placed[0]):
        return None
    found = _search(state, unit, placed, all_queues=True, borrowing=True, only=other)
    return found if found is not None and found.unit is not None else None


def _of_some_queues(state: ClusterState, unit: Unit, placed: Sequence[Task], *, borrowing: bool) -> Reclaimer:
    """A trial without the queues in which all seems in vain; if some of these must be tried, one of all queues."""
    found = _search(state, unit, placed, all_queues=False, borrowing=borrowing)
    return found or _search(state, unit, placed, all_queues=True, borrowing=borrowing) or Reclaimer(None, {})


def _search(
    state: ClusterState, unit: Unit, placed: Sequence[Task], *, all_queues: bool, borrowing: bool, only: Unit | None = None
) -> Reclaimer | None:
    """One trial. all_queues: also of queues in which all seems in vain; None: some of these must be tried.

    borrowing: what goes beyond its own queue's quota keeps a free place. only: nothing else is tried.
    """
    # The queue in which it waits: members of a gang may be in others, too.
    log, own = state.log, state.queues.queues[unit.tasks[0].queue]
    mark, tried, blocked = log.mark(), list[Unit](), dict[PendingClass, BlockedBy]()
    for task in placed:
        task.become(TaskState.ASSUMED, log)
        log.set(task, "started", state.services.now)
    with _without_leaving(state):
        trial = _begin(state, own, placed, all_queues=all_queues, borrowing=borrowing)
        found = None
        if only is not None or not is_unclaimed(trial):
            found = _first_that_reclaims(trial, claimants(trial) if only is None else (only,), tried, blocked)
    log.rollback(mark)
    for each in tried:
        for task in each.tasks:
            task.become(TaskState.WAITING)
    return None if trial.stale else Reclaimer(found, blocked, trial.borrowed, trial.no_places)


def _begin(state: ClusterState, own: QueueNode, placed: Sequence[Task], *, all_queues: bool, borrowing: bool) -> Trial:
    """A trial of what was placed. own: its queue."""
    _suppose_gone(state)
    within = within_share(state.queues.fair, own.path, [(name, 0) for name, _ in state.queues.tree.asked_together(placed)])
    return Trial(state, own, within=within, all_queues=all_queues, borrowing=borrowing)


def _first_that_reclaims(
    trial: Trial, waiting: Iterable[Unit], tried: list[Unit], blocked: dict[PendingClass, BlockedBy]
) -> Unit | None:
    """The first of some units that would reclaim what a trial is about."""
    for each in waiting:
        if _could_reclaim(trial, each, tried, blocked):
            return each
        if trial.stale or trial.over:
            break
    return None


def _without_leaving(state: ClusterState) -> AbstractContextManager[None]:
    """In a trial: pods that terminate though no plan waits for them have left, and the fair shares are those without them.

    What waits is planned with their places (`actions.leaving`), so what starts beside them is judged by the same. After a
    restart the victims of plans that were made before are such pods, too.
    """
    now = state.services.now
    leaving = [task for task, _ in state.departures.leaving_soon(now)] if state.departures.going else []
    if not leaving:
        return nullcontext()
    victims_of(state).list_now()  # as things stand: a gang of which a member leaves is no victim
    gone = Removal(state)
    gone.take(leaving)
    return state.queues.fair.without(frozenset(gone.places), now)


def know_shares(state: ClusterState) -> None:
    """Before something is placed: the fair shares of a trial in which leaving pods have left are those without it.

    They are made once, and what is placed while it still counts as waiting would be requested twice.
    """
    leaving = [task.pod.uid for task, _ in state.departures.leaving_soon(state.services.now)] if state.departures.going else []
    if leaving and not state.queues.fair.knows(frozenset(leaving)):
        mark = state.log.mark()
        with _without_leaving(state):
            pass
        state.log.rollback(mark)


def _suppose_gone(state: ClusterState) -> None:
    """In a trial: victims that are leaving are gone from their queues' accounts, and what is kept closed for them is free.

    What waits may deserve, or have capacity for, just what they hold until then: it would reclaim a moment later.
    """
    state.queues.accounts.repay_all()
    for placeholder in state.leftovers.of(list(state.queues.tree.closing)):
        state.placement.unassign(placeholder)


def reclaimed_by(state: ClusterState, unit: Unit, other: Unit) -> Reclaimed:
    """Why a unit may not start for another."""
    queues = state.queues
    node, theirs = queues.queues[unit.tasks[0].queue], queues.queues[other.tasks[0].queue]
    wanted = dict(queues.tree.asked_together(unit.tasks[: unit.need]))
    fair = queues.fair.entitled.get(node.name, {})
    disputed = [name for name in sorted(queues.fair.disputed) if wanted.get(name)]
    resource = max(disputed, key=lambda name: (wanted[name] + node.used.get(name, 0)) / max(1, fair.get(name, 0)))
    share = fair.get(resource, node.quota.get(resource, 0))
    return Reclaimed(node.name, theirs.name, resource, node.used.get(resource, 0), share, wanted[resource])


def _is_not_reclaimed(state: ClusterState, task: Task) -> bool:
    """Express work takes from any queue and is not reclaimed for shares: it does not wait for one either."""
    service = state.services.of(task)
    return bool(service.express) and task.level < service.express


def _could_reclaim(trial: Trial, unit: Unit, tried: list[Unit], blocked: dict[PendingClass, BlockedBy]) -> bool:
    """Whether a unit that waits could be placed by reclaiming below the queue that parts another from its own.

    Where it finds a free place it gets that. tried: units that were placed, to be put right; blocked: what blocks it is added.
    """
    state, own = trial.state, trial.own
    if trial.in_vain(unit):
        return False
    waited = share_due(state, unit) <= state.services.now
    preemption = PreemptionPolicy(state, unit, waited=waited)
    rivals = own.rivals(preemption.queue)
    scarce = state.queues.fair.scarce(preemption.queue)
    if rivals is None or (scarce and not preemption.entitled):
        return False
    tried.append(unit)
    mark, beyond = state.log.mark(), goes_beyond(state, unit)
    if isinstance(allocation.allocate(state, unit), list):
        if beyond and not trial.borrowing:
            state.log.rollback(mark)
            return False
        state.log.commit()
        trial.borrowed = trial.borrowed or beyond
        trial.placed(unit)
        return False
    if not preemption.entitled or not any(preemption.reclaims_from(each) for each in trial.lenders(preemption)):
        state.log.rollback(mark)
        return False
    with state.reserved.weighed(unit):
        victims_of(state).suppose_started()
        plan = preempt(state, unit, waited=waited, blocking=(blocking := Blocking()))
    if blocking.blocked_by is not None and (pending_class := pending_class_of(unit)) is not None:
        blocked[pending_class] = blocking.blocked_by
    state.log.rollback(mark)
    # What the search finds is the cheapest: where the other's queue is over its share, too, that could be evicted instead.
    evicted = {state.queues.queues[task.queue] for task in plan.victims} if plan is not None else set()
    return any(preemption.reclaims_from(each) for each in evicted)

"""Whether what starts beyond its queue's share would be reclaimed at once: then it does not start.

A job may borrow what no other job can use: that is decided by asking the search for victims, right after the start and under the
undo log, for every job that waits in another queue. If one of them could be placed by reclaiming from what has just started, or
from its queue (in a tree: from any below the queue that parts it from the other's), the start is taken back. A job too large
for any place, or one that finds a free place all the same, holds no start back.

Costs nothing while nothing is scarce or the queue stays within its quota; else a search for each pending class that
deserves something then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import NamedTuple, TypeVar

from fairlead.api.reasons import ReasonCode
from fairlead.core import allocation
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.policy import PreemptionPolicy, share_due
from fairlead.core.preemption.search import by_upstream, preempt
from fairlead.core.preemption.trial import Trial, may_claim
from fairlead.core.preemption.victims import victims_of
from fairlead.core.queues.entitlement import beyond_quota, within_share
from fairlead.core.queues.requests import is_hopeless
from fairlead.core.queues.tree import PendingClass, QueueNode, QueuePosition, UnitKey, pending_class_of
from fairlead.core.queues.waiting import BlockedBy
from fairlead.core.state.cluster import ClusterState

_MOST = 256
"""So many units of a pending class find free places in one trial; what is behind them is not tried."""

T = TypeVar("T")


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


class _Line:
    """A pending class. unit: the next of it that is served."""

    __slots__ = ("_behind", "queue", "unit")

    def __init__(self, queue: QueueNode, first: Unit) -> None:
        self.queue = queue
        self.unit = first
        self._behind: list[tuple[UnitKey, int, Unit]] | None = None  # put in order only once the first has found a place

    def key(self) -> UnitKey:
        """The key of its next in its queue, as of now."""
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
        if not self._behind:
            return False
        self.unit = _next(self._behind, self.queue.unit_key)
        heappop(self._behind)
        return True


def _next(heap: list[tuple[UnitKey, int, T]], key: Callable[[T], UnitKey]) -> T:
    """What is next, the first in the heap then. Keys only get worse while others are placed: what is out of date sinks."""
    while (present := key(heap[0][2])) != heap[0][0]:
        heapreplace(heap, (present, heap[0][1], heap[0][2]))
    return heap[0][2]


def goes_beyond(state: ClusterState, unit: Unit) -> bool:
    """Whether a unit would bring its queue beyond its quota of something that is scarce: only then can it be reclaimed."""
    disputed = state.queues.fair.disputed
    pending_class = pending_class_of(unit)
    if not disputed or not state.policy.reclaim or not state.policy.preempt or pending_class is None:
        return False
    node = pending_class.queue
    wanted = (
        dict(state.queues.tree.asked_together(unit.tasks[: unit.need])) if state.queues.tree.pools.named else pending_class.core
    )
    names = [name for name in disputed if name in wanted]
    return beyond_quota([node], names, lambda each, name: each.stays(name) + wanted[name])


class Reclaimer(NamedTuple):
    """The unit that would reclaim, if there is one; and what blocks the pending classes that were tried for it."""

    unit: Unit | None
    blocked: dict[PendingClass, BlockedBy]


def reclaimer(state: ClusterState, unit: Unit, placed: Sequence[Task]) -> Reclaimer:
    """The first unit found that waits and could be placed by reclaiming from what was just placed, or from its queue.

    placed: tasks of `unit` that have places now, inside an open mark of the undo log. The state is left as it was. Those that
    wait are tried in the order in which they would be served, and one that finds a free place keeps it meanwhile: each may fit
    where all together do not.
    """
    if _is_not_reclaimed(state, placed[0]):
        return Reclaimer(None, {})
    found = _search(state, unit, placed, all_queues=False)
    return found if found is not None else _search(state, unit, placed, all_queues=True) or Reclaimer(None, {})


def _search(state: ClusterState, unit: Unit, placed: Sequence[Task], *, all_queues: bool) -> Reclaimer | None:
    """One trial. all_queues: also of queues in which all seems in vain; None: some of these must be tried."""
    # The queue in which it waits: members of a gang may be in others, too.
    log, own = state.log, state.queues.queues[unit.tasks[0].queue]
    mark, tried, blocked = log.mark(), list[Unit](), dict[PendingClass, BlockedBy]()
    for task in placed:
        task.become(TaskState.ASSUMED, log)
        log.set(task, "started", state.services.now)
    _suppose_gone(state)
    within = within_share(state.queues.fair, own.path, [(name, 0) for name, _ in state.queues.tree.asked_together(placed)])
    trial, found = Trial(state, own, within=within, all_queues=all_queues), None
    for each in _claimants(trial):
        if _could_reclaim(trial, each, tried, blocked):
            found = each
            break
        if trial.stale or trial.over:
            break
    log.rollback(mark)
    for each in tried:
        for task in each.tasks:
            task.become(TaskState.WAITING)
    return None if trial.stale else Reclaimer(found, blocked)


def _suppose_gone(state: ClusterState) -> None:
    """In a trial: victims that are leaving are gone from their queues' accounts, and what is kept closed for them is free.

    What waits may deserve, or have capacity for, just what they hold until then: it would reclaim a moment later.
    """
    for uid in list(state.queues.accounts.debts):
        state.queues.repay(uid)
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


def _claimants(trial: Trial) -> Iterator[Unit]:
    """What waits in other queues, as it would be served: what is to be tried in this pass, then what was refused before.

    Queue by queue, in each by place. The next of a pending class comes only if the one before it found a place, members beyond
    their gang's minimum only if that did.
    """
    state = trial.state
    for refused in (False, True):
        queues = [[_Line(node, first) for first in _firsts(state, node, refused=refused)] for node in trial.queues()]
        yield from _in_turn(state, queues)


def _in_turn(state: ClusterState, waiting: list[list[_Line]]) -> Iterator[Unit]:
    """The units of pending classes, queue by queue, as they would be served."""
    queues, numbers = state.queues, count()
    order: list[tuple[QueuePosition, int, list[tuple[UnitKey, int, _Line]]]] = []
    for classes in waiting:
        lines = [(line.key(), next(numbers), line) for line in classes]
        heapify(lines)
        if lines:
            order.append((queues.waiting.queue_position(lines[0][2].unit), next(numbers), lines))
    heapify(order)
    while order:
        queue_position, number, lines = order[0]
        _, line_number, line = lines[0]
        if (present := queues.waiting.queue_position(line.unit)) != queue_position:
            heapreplace(order, (present, number, lines))
            continue
        yield line.unit
        later = _later(state, line.unit)
        if line.go_on():
            heapreplace(lines, (line.key(), line_number, line))
        else:
            heappop(lines)
        for first in later:
            heappush(lines, (line.queue.unit_key(first), next(numbers), _Line(line.queue, first)))
        if lines:
            heapreplace(order, (queues.waiting.queue_position(_next(lines, _Line.key).unit), number, lines))
        else:
            heappop(order)


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


def _firsts(state: ClusterState, node: QueueNode, *, refused: bool) -> Iterator[Unit]:
    """The first of each pending class of a queue that a larger share could help. refused: of those that were, or the others.

    None where no class of the queue is entitled to take from others: what is placed meanwhile makes none more entitled.
    """
    waiting = [each for each in node.pending_classes.values() if each.waiting]
    claims = may_claim(state, node)
    if not any(claims(pending_class.core) for pending_class in waiting):
        return
    for pending_class in waiting:
        if state.queues.waiting.is_refused(pending_class) is not refused or is_hopeless(pending_class):
            continue
        first = pending_class.first()
        if first is None or by_upstream(first) or first.tasks[0].pod.never_preempts:
            continue
        if node.blocked is None or first.rank <= node.blocked:
            yield first


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
    mark = state.log.mark()
    if isinstance(allocation.allocate(state, unit), list):
        state.log.commit()
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

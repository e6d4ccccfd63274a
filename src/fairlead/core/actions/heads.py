"""Heads: how long the first job of a queue is passed by others that fit where it does not is bounded.

Once it was passed for `share_wait` seconds a hold reserves what it needs, whatever the setting `reservations` is. While its
queue, or one above, may not hold it that is headroom: jobs after it in the order start there only beside it. Else it is the rows
on which it fits first if everything runs for its expected time: what runs is taken off under the undo log and the unit is placed
in a trial, so that parts of devices, relations and gangs of unlike pods need no cases of their own. `Reservations` decides what
goes before it.
"""

from __future__ import annotations

import math

from fairlead.api.reasons import ReasonCode
from fairlead.core import allocation
from fairlead.core.actions.foresee import kept_devices, left_on, take_off
from fairlead.core.actions.reserve import REPLAN_AFTER, REST, end_claims, name_of, still_waits
from fairlead.core.model.agenda import SLACK
from fairlead.core.model.backoff import backoff
from fairlead.core.nodes.claim_users import pools_of
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption.search import by_upstream
from fairlead.core.queues.attained import begun
from fairlead.core.queues.queue_node import QueueNode, UnitKey, pending_class_of
from fairlead.core.queues.reservations import HEADS, Head, Hold, Kept
from fairlead.core.queues.reserved_devices import ReservedDevices
from fairlead.core.queues.reserved_shared import kept_shared
from fairlead.core.state.cluster import ClusterState

_MOST, _PART = 4, 8
"""For so many heads nodes are reserved at a time, besides reservations: for one, for more while those are less than that part."""
_CHECKS = 60
"""So often in `share_wait` seconds the first unit of each queue is determined."""
_PAUSE = 3
"""After a hold that came to nothing: so many times the setting, doubled each time."""
_LONGEST_REST = 3600.0
"""Between two plans in vain, each twice as long after the one before, in seconds."""
_HEADROOM = (ReasonCode.FAIR_SHARE, ReasonCode.LIMIT_EXCEEDED, ReasonCode.QUOTA_EXCEEDED)
_BOUND = (ReasonCode.RESERVATION, ReasonCode.DISRUPTION_BUDGET, ReasonCode.SHARED_RESOURCES, *_HEADROOM)


def bound_waits(state: ClusterState, now: float) -> None:
    """After all were served: which waits of first units begin, and for which units something is reserved now."""
    table, wait = state.reserved, state.policy.share_wait
    if not wait:
        return
    _renew(state, now)
    if now < min(table.check_at, math.inf if table.head_due is None else table.head_due):
        return
    table.check_at, table.head_due, heads = now + wait / _CHECKS, None, []
    for unit in _firsts(state):
        heads.append(head := table.waits.setdefault(name_of(unit), Head(unit, now)))
        head.unit = unit
    for head in sorted(heads, key=lambda each: (each.since, each.unit.created, each.unit.tasks[0].pod.uid)):
        key = name_of(head.unit)
        due = max(head.since + wait, head.again, table.backoff_until(HEADS + key))
        if due > now:
            table.head_due = due if table.head_due is None else min(table.head_due, due)
        elif (known := table.holds.get(key)) is None or known.head is None:
            with state.isolation.guard("reserve", head.unit):
                _keep(state, head, now)
    if len(table.waits) > 2 * len(heads) + SLACK:
        for key in [key for key, head in table.waits.items() if still_waits(state, head.unit) is None]:
            del table.waits[key]


def _firsts(state: ClusterState) -> list[Unit]:
    """The first of each queue that was refused and could be placed once others have ended."""
    firsts: dict[str, tuple[UnitKey, Unit]] = {}
    for pending_class in state.queues.waiting.unschedulable:
        why, unit = pending_class.unschedulable, pending_class.first()
        if why is None or unit is None or not (why.is_capacity or why.code in _BOUND):
            continue
        if unit.tasks[0].pod.elastic or unit.tasks[0].beyond or by_upstream(unit):
            continue
        if any(amount > state.queues.tree.total(name) for name, amount in pending_class.core.items()):
            continue  # more than there is
        key, name = pending_class.queue.unit_key(unit), pending_class.queue.name
        if name not in firsts or key < firsts[name][0]:
            firsts[name] = key, unit
    return [unit for _, unit in firsts.values()]


def _keep(state: ClusterState, head: Head, now: float) -> None:
    table, unit = state.reserved, head.unit
    kept = [hold for hold in table.of_units() if hold.head is not None and hold.rows]
    many = len(kept) >= _MOST or sum(len(hold.rows) for hold in kept) * _PART >= len(state.nodes.rows)
    if kept and many and not _lacks_headroom(unit):
        return
    if any(_is_full(state, node, unit, alone=True) for node in state.queues.queues[unit.tasks[0].queue].path):
        head.again = now + REST  # what is within its share goes before it
        return
    unit.overdue = True  # what is reserved for others does not bind it
    hold = plan(state, unit, now)
    unit.overdue = hold is not None and bool(hold.rows)
    head.vain = head.vain + 1 if hold is None else 0
    head.again = now + backoff(REST, head.vain + 1, _LONGEST_REST) if head.vain else 0.0
    if hold is not None:
        table.keep(hold)
        end_claims(state, hold)


def _lacks_headroom(unit: Unit) -> bool:
    """Whether a unit waits because its queue, or one above, may not hold it."""
    pending_class = pending_class_of(unit)
    return pending_class is not None and pending_class.unschedulable is not None and pending_class.unschedulable.code in _HEADROOM


def _renew(state: ClusterState, now: float) -> None:
    """Holds for heads go on until those start; what is kept stays the same while something in the way is still there."""
    table = state.reserved
    for hold in [each for each in table.of_units() if each.head is not None]:
        head, unit = hold.head, hold.unit
        pending_class = pending_class_of(unit) if unit is not None else None
        if head is None or unit is None or pending_class is None or pending_class.unschedulable is None:
            continue
        left = frozenset(uid for uid in head.blockers if (task := state.tasks.get(uid)) is not None and task.row >= 0)
        if left != head.blockers:
            head.blockers, head.moved_on = left, now
        unit.overdue = bool(hold.rows)
        if now > head.moved_on + _patience(state, head, now):
            table.give_up(hold, now, _PAUSE * state.policy.share_wait)
            unit.overdue = False
        elif hold.stale or not left or (not hold.rows and not _lacks_headroom(unit)):
            table.drop(hold)  # planned again at once, if it is still the first and due
            table.check_at, unit.overdue = now, False
        elif hold.start <= now:
            hold.start, hold.late = now + REPLAN_AFTER, hold.late + 1


def _patience(state: ClusterState, head: Kept, now: float) -> float:
    """For how long nothing in the way of a head may end before it is taken to be endless, in seconds."""
    tasks = [state.tasks[uid] for uid in head.blockers]
    limits = [limit - (now - begun(task)) for task in tasks if math.isfinite(limit := state.services.limits.of(task))]
    return max(state.policy.share_wait, state.runtimes.longest(), now - head.moved_on + max(limits, default=-math.inf))


def plan(state: ClusterState, unit: Unit, now: float) -> Hold | None:
    """What is to be reserved for a unit, and until when; None if it starts as it is, or not even with all gone that runs."""
    queues, nodes, log = state.queues, state.nodes, state.log
    path, below = queues.queues[unit.tasks[0].queue].path, _lacks_headroom(unit)
    if below:
        full = {path[0], *(node for node in path if _is_full(state, node, unit))}
        running = [task for each in queues.queues.values() if not full.isdisjoint(each.path) for task in each.charged]
    else:
        running = [task for row in nodes.rows.values() for task in nodes.pods[row].values()]
    ends = sorted((now + state.runtimes.remaining(task, now), task.pod.uid, task) for task in running if task.row >= 0)
    mark = log.mark()
    gone = take_off(state, ends, lambda: (_may_hold if below else _fits)(state, unit))
    placed = allocation.allocate(state, unit) if gone and not below else []
    spare = {task.row: left_on(state, task.row) for task in placed} if isinstance(placed, list) else {}
    devices = kept_devices(state, placed) if isinstance(placed, list) else None
    shared = kept_shared(state.nodes.shared, placed) if isinstance(placed, list) else None
    log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    if not gone:
        return None
    blockers = frozenset(
        task.pod.uid
        for _, _, task in ends[:gone]
        if below or task.row in spare or _has_of(state, task, devices) or (shared is not None and shared.concerns(task))
    )
    kept = Kept(queues.tree.asked_together(unit.tasks[: unit.need]), blockers, now)
    start = max(ends[gone - 1][0], now + REPLAN_AFTER)
    return Hold(name_of(unit), sorted(spare), start, unit=unit, spare=spare, head=kept, devices=devices, shared=shared)


def _has_of(state: ClusterState, task: Task, devices: ReservedDevices | None) -> bool:
    """Whether a task has devices of the pools of which some are reserved, perhaps on another row."""
    return devices is not None and not devices.pools.isdisjoint(pools_of(state.device_claims, task.pod))


def _may_hold(state: ClusterState, unit: Unit) -> bool:
    """Whether a unit's queue, and those above it, may hold it besides what they hold."""
    path = state.queues.queues[unit.tasks[0].queue].path
    return not any(_is_full(state, node, unit) for node in path) and state.queues.limits.over_limits(unit) is None


def _is_full(state: ClusterState, node: QueueNode, unit: Unit, *, alone: bool = False) -> bool:
    """Whether a queue may not hold a unit besides what it holds, or alone."""
    most, used = state.queues.fair.most(node, unit), {} if alone else node.used
    demand = state.queues.tree.asked_together(unit.tasks[: unit.need])
    return any(used.get(name, 0) + amount > most.get(name, math.inf) for name, amount in demand)


def _fits(state: ClusterState, unit: Unit) -> bool:
    return allocation.fits(state, unit)

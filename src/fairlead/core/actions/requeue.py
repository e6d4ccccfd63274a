"""Requeue: when an unschedulable pending class is tried again. This file answers why a job is not tried again.

A class whose first unit has no place is unschedulable, with the reason. It is tried again

- at a time: when its search backoff ends (`requeue_after_backoff`), or from when on more may be done for it (`_again_at`);
- soon after a node came, went or changed, since its reason may be another (`Waiting.renew_reasons`);
- when work that blocks it no longer waits (`cycles.requeue_blocked`), or limits let its users go on (`queues.stopped`);
- when one of the conditions in `CONDITIONS` holds, each for the reasons that it is there for;
- when something may be preempted for those alike, and it is the first that one of these conditions helps (`_check_groups`);
- at once, where that happens: another user's unit becomes its first (`Waiting.push`), or the head that blocked its queue is gone;
  or another is held back for it, and pods have begun to leave since it was tried (`try_with_leaving`).

What conditions saw and found out is recorded here once they were asked. Classes in backoff are not checked at all
(`actions.backoff`), nor are those for which nothing may be preempted (`actions.victimless`): only a place helps them.
"""

from __future__ import annotations

import math
from functools import partial

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions import backoff, victimless
from fairlead.core.actions.conditions import CONDITIONS, Check, kept_out
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.actions.reserve import may_qualify
from fairlead.core.pods.tasks import TaskState, Unit
from fairlead.core.preemption import cycles
from fairlead.core.preemption.policy import PreemptionPolicy, share_due
from fairlead.core.preemption.search import could_free_capacity
from fairlead.core.queues.queue_node import PendingClass, pending_class_of
from fairlead.core.queues.waiting import Versions
from fairlead.core.state.cluster import ClusterState

_TIMED = (
    ReasonCode.RESOURCES,
    ReasonCode.SHARED_RESOURCES,
    ReasonCode.TOPOLOGY,
    ReasonCode.DISRUPTION_BUDGET,
)  # what may be done later helps against these
_LIMITS = (ReasonCode.LIMIT_EXCEEDED, ReasonCode.USER_LIMIT)  # a victim relieves limits above its queue and the beneficiary's


# -- unschedulable -----------------------------------------------------------------------------


def mark_unschedulable(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> list[Unit]:
    """No unit of a class can be placed for now; returns those for which the reason is new. unit: its first, which was tried."""
    if any(task.shape.leaves_gpu_headroom for task in unit.tasks):
        state.nodes.gpu_headroom_wanted = True
    pending_class.seen = pending_class.seen._replace(
        reservations=state.reserved.version,
        kept_out=kept_out(state, unit),
        exhausted=state.reserved.exhausted_by(unit) is not None,
        leaving=state.departures.begun,
    )
    if may_qualify(unit, reason):
        state.queues.waiting.plannable.add(pending_class)
    waiting = state.queues.waiting
    unreported = waiting.mark_unschedulable(pending_class, reason, _again_at(state, pending_class, unit, reason, now))
    victimless.note_refused(state, pending_class, unit, reason)
    backoff.note_refused(state, pending_class, unit, reason, now)
    return unreported


def try_with_leaving(state: ClusterState, pending_class: PendingClass, now: float) -> None:
    """A class was just held back for a unit that would reclaim from it once what is leaving has left: that is tried now.

    Pods that begin to leave make no place yet, so those that may plan with theirs are not tried. Where it is in vain, it is not
    repeated before others begin to leave.
    """
    other = pending_class.held_back
    theirs = pending_class_of(other) if other is not None and state.departures.going else None
    if theirs is None or theirs.unschedulable is None or theirs.seen.leaving == state.departures.begun:
        return
    if now < theirs.search.backoff_until:
        backoff.put_off(state, theirs)
    else:
        state.queues.waiting.requeue(theirs)


def stop_line(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> list[Unit]:
    """A limit of its user keeps a unit from its places: its line is stopped; returns those for which the reason is new."""
    again_at = _again_at(state, pending_class, unit, reason, now)
    by_row = state.queues.limits.limited_by_row(pending_class.queue.name)
    return state.queues.waiting.limit(pending_class, unit.user, reason, again_at, by_row=by_row)


def _again_at(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> float | None:
    """When a class is tried again although nothing happened, since more may be done for it from then on; None: never."""
    search, related = pending_class.search, state.policy.recheck > 0 and any(task.ranking.relations for task in unit.tasks)
    limited = reason.code in _LIMITS
    if reason.code is ReasonCode.PREFERRED_TOPOLOGY:
        return unit.created + state.policy.preferred_wait
    if reason.code is ReasonCode.FAIR_SHARE:
        # What it would be reclaimed for may have been planned with pods that leave, as long as they are trusted to. And by time
        # alone, as a reservation comes near, it may find nothing any more.
        trusted = state.departures.trusts_others_at(now) if state.departures.going else None
        checked = now + state.policy.recheck if state.policy.recheck > 0 else None
        return min((time for time in (trusted, checked) if time is not None), default=None)
    if not limited and reason.code not in _TIMED and not (related and reason.is_capacity):
        return None
    times = [reclaims_from(state, unit), share_due(state, unit)]
    if not limited or state.queues.limits.limited_by_row(pending_class.queue.name):  # a limit of a pool leaves places elsewhere
        again = search.moves_again if search.moves_wanted else 0.0
        times.append(max(moves_from(state, unit), state.moves.budget.refills_at, again))
    if related:
        times.append(now + state.policy.recheck)
    if reason.code is ReasonCode.DISRUPTION_BUDGET:
        times.append(search.check_at)
    return min((time for time in times if now < time < math.inf), default=None)


# -- requeueing -------------------------------------------------------------------------------


def requeue_after_backoff(state: ClusterState, now: float) -> None:
    """Classes whose search backoff is over are tried again; so are users whom limits stop, where a search was due for them."""
    waiting = state.queues.waiting
    for pending_class in waiting.backing_off.awaiting(now):
        if any(uid not in state.tasks for uid in pending_class.search.awaited):
            pending_class.search.backoff_until = pending_class.search.awaits = 0.0  # if that is not its place, it searches again
            waiting.backing_off.add(pending_class)
    for pending_class in waiting.backing_off.over(now):
        with state.isolation.guard("requeue", pending_class):
            users, pending_class.search.put_off = pending_class.search.put_off, {}
            if users:
                waiting.retry_stopped(waiting.tree.stopped.may_search(pending_class, users, partial(_may_take_own, state)))
            if pending_class.unschedulable is not None:
                waiting.requeue(pending_class)


def requeue(state: ClusterState, now: float) -> None:
    """Classes that rows with new capacity, queues with new headroom, or others' new victims could help are tried again."""
    state.settle(now)
    nodes, freed, waiting, guard = state.nodes, state.queues.accounts.freed, state.queues.waiting, state.isolation.guard
    waiting.renew_reasons(now)
    waiting.order.pass_heads()
    for pending_class in waiting.due(state.services.now):
        with guard("requeue", pending_class):
            group, unit = waiting.without_victims.group_of(pending_class), pending_class.first()
            if group is not None and unit is not None:
                waiting.without_victims.seek(group).tried.add(unit)
            waiting.requeue(pending_class)
    with guard("requeue"):
        victimless.retry(state, now)
    cycles.requeue_blocked(state)
    with guard("requeue"):
        for task in state.services.due(state.tasks):  # pods that have run, or attained, long enough to be preempted
            if task.state is TaskState.BOUND:
                nodes.gained.add(task.row)
    versions = _versions(state)
    if not nodes.gained and not freed and waiting.checked == versions and not waiting.releases:
        return
    waiting.checked = versions
    rows, queues = sorted(nodes.gained), set(freed)
    waiting.rows_gained = waiting.rows_gained or bool(rows)
    nodes.gained.clear()
    freed.clear()
    nodes.gpu_headroom_wanted = nodes.gpu_headroom_wanted and bool(waiting.unschedulable)
    could_take = _CouldTake(state, rows) if rows else None
    waiting.retry_stopped(waiting.tree.stopped.freed(waiting.tree.queues, queues, partial(_may_take_own, state), could_take))
    backoff.doubt(state)
    with guard("requeue"):
        victimless.forget_empty(state)
        _check_groups(state, rows, queues, now)
    _check_all(state, waiting.others, rows, queues)
    with guard("requeue"):
        waiting.offer_backoff(rows, express=state.services.any_express)


def _check_groups(state: ClusterState, rows: list[int], queues: set[str], now: float) -> None:
    """Where something may be preempted by now, the first of a group that something which happened could help is tried again."""
    waiting = state.queues.waiting
    victimless.regroup(state)
    for group in victimless.with_victims(state, now):
        unhelped = waiting.without_victims.seek(group).unhelped
        covered: set[Unit] = set()
        while (first := victimless.next_of(state, group, unhelped, covered=covered)) is not None:
            pending_class, unit = first
            waiting.may_take(pending_class)
            _check_all(state, {pending_class}, rows, queues)
            if pending_class.unschedulable is None:
                waiting.without_victims.seek(group).tried.add(unit)
                break
            unhelped.append(unit)
            if pending_class not in waiting.backing_off:
                victimless.keep(state, pending_class, unit)
        waiting.without_victims.seek(group).covered.update(covered)


def _check_all(state: ClusterState, pending_classes: set[PendingClass], rows: list[int], queues: set[str]) -> None:
    """Those that something which happened could help are tried again. rows, queues: see `Check`."""
    waiting = state.queues.waiting
    for pending_class in sorted(pending_classes, key=PendingClass.order):
        with state.isolation.guard("requeue", pending_class):
            helped, check = _check(state, pending_class, rows, queues)
            if check is not None:
                # A job that came since its last search may be what blocks the victims there: tried again once that is gone.
                waiting.note_blocked(pending_class, check.blocking.blocked_by)
            if check is not None and (check.released or check.claim_is_over):
                waiting.backing_off.end(pending_class)  # its search was in vain for the sake of that claim
            if helped:
                waiting.requeue(pending_class, for_a_place=True)
            elif check is not None and check.search_due:
                backoff.put_off(state, pending_class)


def _may_take_own(state: ClusterState, unit: Unit) -> bool:
    """Whether there may be pods that a unit which a limit of its user stops would preempt, and that are of that user.

    Shares help only where users are limited above its queue: pods of its own queue are not preempted for these.
    """
    first = unit.tasks[0]
    if not state.policy.preempt or first.pod.never_preempts:
        return False
    queue, service = state.queues.queues[first.queue], state.services.of(first)
    if state.pods.elastic or service.levels or service.scope != "Queue":
        return True
    if any(count and each < unit.priority for each, count in queue.priorities.items()):
        return True
    return any(node.meter is not None for node in queue.path[1:]) and (
        state.queues.fair.scarce(queue) or reclaims_from(state, unit) <= state.services.now
    )


class _CouldTake:
    """Whether one of some rows could hold a unit, were all gone from it that it may preempt.

    It is asked once for all units of a class that are alike in this; where users take from each other, once for each user.
    """

    def __init__(self, state: ClusterState, rows: list[int]) -> None:
        self._state = state
        self._rows = rows
        self._known: dict[tuple[PendingClass | None, str, bool], bool] = {}

    def __call__(self, unit: Unit) -> bool:
        state, pending_class = self._state, pending_class_of(unit)
        user = unit.user if pending_class is None or pending_class.queue.policy.users_reclaim else ""
        key = pending_class, user, unit.created + state.policy.move_patience <= state.services.now  # as in `reclaims_from`
        known = self._known.get(key)
        if known is None:
            preemption = PreemptionPolicy(state, unit, enforce_quota=reclaims_from(state, unit) <= state.services.now)
            known = self._known[key] = any(could_free_capacity(preemption, row) for row in self._rows)
        return known


def must_requeue(state: ClusterState) -> bool:
    """Whether in this very pass reservations changed, or a job that others are held back for has got its places."""
    return state.queues.waiting.checked.reservations != state.reserved.version or state.queues.waiting.releases


def _versions(state: ClusterState) -> Versions:
    return Versions(
        state.pairs.stamp,
        state.storage.version,
        state.device_claims.version,
        state.queues.fair.version,
        state.services.starts,
        state.reserved.version,
        state.network.version,
        state.nodes.shared.described,
    )


def _check(state: ClusterState, pending_class: PendingClass, rows: list[int], freed: set[str]) -> tuple[bool, Check | None]:
    """Whether something happened that could help an unschedulable class, and what was found out; what it saw is noted."""
    unit = pending_class.first()
    if unit is None or pending_class.unschedulable is None:
        return True, None
    check = Check(state, pending_class, unit, pending_class.unschedulable, rows, freed)
    for condition in CONDITIONS:
        if condition.matters(check):
            helps = condition.helps(check, pending_class.seen)
            pending_class.seen = condition.notes(check, pending_class.seen)
            if helps:
                return True, check
    return False, check

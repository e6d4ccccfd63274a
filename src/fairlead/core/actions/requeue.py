"""Requeue: when an unschedulable pending class is tried again. This file answers why a job is not tried again.

A class whose first unit has no place is unschedulable, with the reason. It is tried again

- at a time: when its search backoff ends (`requeue_after_backoff`), or from when on more may be done for it (`_again_at`);
- soon after a node came, went or changed, since its reason may be another (`Waiting.renew_reasons`);
- when work that blocks it no longer waits (`cycles.requeue_blocked`), or limits let its users go on (`queues.stopped`);
- when one of the conditions in `CONDITIONS` holds, each for the reasons that it is there for;
- at once, where that happens: another user's unit becomes its first (`Waiting.push`), or the head that blocked its queue is gone.

Conditions are questions and change nothing. What was seen is one record, `PendingClass.seen`, which this file replaces. What
blocks a class, and that a search is due for it once its backoff is over, is collected in its `Check` and recorded once they were
asked. Classes in backoff are not checked at all (`actions.backoff`): only a place helps them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions import backoff, victimless
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.actions.reserve import may_qualify
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import TaskState, Unit, rankings_of
from fairlead.core.preemption import cycles
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.policy import PreemptionPolicy, share_due
from fairlead.core.preemption.search import could_free_capacity, holds_victims
from fairlead.core.preemption.trial import may_reclaim
from fairlead.core.queues.queue_node import PendingClass, pending_class_of
from fairlead.core.queues.searches import Seen
from fairlead.core.queues.waiting import Versions
from fairlead.core.state.cluster import ClusterState

_NO_SHARES = Seen().shares
_TIMED = (ReasonCode.RESOURCES, ReasonCode.TOPOLOGY, ReasonCode.DISRUPTION_BUDGET)  # what may be done later helps against these
_LIMITS = (ReasonCode.LIMIT_EXCEEDED, ReasonCode.USER_LIMIT)  # a victim relieves limits above its queue and the beneficiary's


# -- unschedulable -----------------------------------------------------------------------------


def mark_unschedulable(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> list[Unit]:
    """No unit of a class can be placed for now; returns those for which the reason is new. unit: its first, which was tried."""
    if any(task.shape.leaves_gpu_headroom for task in unit.tasks):
        state.nodes.gpu_headroom_wanted = True
    pending_class.seen = pending_class.seen._replace(reservations=state.reserved.version, kept_out=_kept_out(state, unit))
    if may_qualify(unit, reason):
        state.queues.waiting.plannable.add(pending_class)
    waiting = state.queues.waiting
    unreported = waiting.mark_unschedulable(pending_class, reason, _again_at(state, pending_class, unit, reason, now))
    victimless.note_refused(state, pending_class, unit, reason)
    backoff.note_refused(state, pending_class, unit, reason, now)
    return unreported


def stop_line(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> list[Unit]:
    """A limit of its user keeps a unit from its places: its line is stopped; returns those for which the reason is new."""
    again_at = _again_at(state, pending_class, unit, reason, now)
    by_row = state.queues.limits.limited_by_row(pending_class.queue.name)
    return state.queues.waiting.limit(pending_class, unit.user, reason, again_at, by_row=by_row)


def _kept_out(state: ClusterState, unit: Unit) -> int:
    """How many holds keep rows from a unit."""
    return len(state.reserved.against(unit.tasks[0])) if state.reserved.holds else 0


def _again_at(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> float | None:
    """When a class is tried again although nothing happened, since more may be done for it from then on; None: never."""
    search, related = pending_class.search, state.policy.recheck > 0 and any(task.ranking.relations for task in unit.tasks)
    limited = reason.code in _LIMITS
    if reason.code is ReasonCode.PREFERRED_TOPOLOGY:
        return unit.created + state.policy.preferred_wait
    if reason.code is ReasonCode.FAIR_SHARE and state.departures.going:
        # What it would be reclaimed for may have been planned with pods that leave, as long as they are trusted to.
        return min((due for _, due in state.departures.leaving_soon(now)), default=None)
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
    for pending_class in waiting.due(state.services.now):
        with guard("requeue", pending_class):
            waiting.without_victims.seek(pending_class)
            waiting.may_take(pending_class)
            waiting.requeue(pending_class)
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
        waiting.offer_backoff(rows)


def _check_groups(state: ClusterState, rows: list[int], queues: set[str], now: float) -> None:
    """Where something may be preempted by now, the first of a group that something which happened could help is tried again."""
    waiting = state.queues.waiting
    for group in victimless.with_victims(state, now):
        unhelped: list[Unit] = []
        while (first := victimless.next_of(state, group, unhelped)) is not None:
            pending_class, unit = first
            waiting.without_victims.seek(pending_class)
            waiting.may_take(pending_class)
            _check_all(state, {pending_class}, rows, queues)
            if pending_class.unschedulable is None:
                break
            unhelped.append(unit)
            if pending_class not in waiting.backing_off:
                victimless.keep(state, pending_class, group)


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
                waiting.requeue(pending_class)
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


class Check:
    """An unschedulable class while it is checked. rows: those with new capacity, freed: queues with new headroom.

    search_due: there may be victims for it now, or pods to be moved, which are not searched for before its backoff is over.
    released: the job for which it is held back may not have more.
    """

    def __init__(
        self, state: ClusterState, pending_class: PendingClass, unit: Unit, why: Reason, rows: list[int], freed: set[str]
    ) -> None:
        self.state = state
        self.pending_class = pending_class
        self.unit = unit
        self.why = why
        self.rows = rows
        self.freed = freed
        self.blocking = Blocking()
        self.preempts = state.policy.preempt and not unit.tasks[0].pod.never_preempts
        self.search_due = False
        self.released = False

    @cached_property
    def preemption(self) -> PreemptionPolicy:
        """Whom its first unit may preempt."""
        return PreemptionPolicy(
            self.state,
            self.unit,
            enforce_quota=reclaims_from(self.state, self.unit) <= self.state.services.now,
            blocking=self.blocking,
        )

    @cached_property
    def hunts(self) -> bool:
        """Whether there may be victims for it at all."""
        preemption = self.preemption
        return self.preempts and preemption.any_preemptible()

    @cached_property
    def claims(self) -> bool:
        """Whether it is below its fair share, or its user below others."""
        return self.preempts and (self.preemption.entitled or self.preemption.reclaims_from_users)

    @cached_property
    def may_reclaim(self) -> bool:
        """Whether there is a queue, or a user of its own, from which it may reclaim something now."""
        return self.preemption.reclaims_from_users or may_reclaim(self.preemption)

    @cached_property
    def claim_is_over(self) -> bool:
        """Whether the job for which it is held back waits no longer, or does not deserve anything before it any more."""
        queues, other, pending_class = self.state.queues, self.pending_class.held_back, self.pending_class
        if other is None:
            return False
        if not other.alive:
            return True
        theirs, demand = queues.queues[other.tasks[0].queue], queues.tree.asked_together(other.tasks[: other.need])
        return not queues.reclaim.is_due_before(theirs, demand, pending_class.queue, pending_class.demand)

    @cached_property
    def rests(self) -> bool:
        """Whether only a place helps: a search is due for it once its backoff is over, or nothing may be preempted for it."""
        waiting, pending_class = self.state.queues.waiting, self.pending_class
        search = pending_class.search
        return search.without_victims or (pending_class in waiting.backing_off and self.state.services.now < search.backoff_until)

    def may_search(self) -> bool:
        """Whether a search is made for it when it is tried; else one is due once its backoff is over."""
        self.search_due = self.search_due or self.state.services.now < self.pending_class.search.backoff_until
        return not self.search_due

    @property
    def limited(self) -> bool:
        """Whether a limit blocks it. Where a budget does, a limit may, too: the victims that it protects would free that."""
        return self.why.code in (ReasonCode.LIMIT_EXCEEDED, ReasonCode.DISRUPTION_BUDGET)

    @cached_property
    def rankings(self) -> list[Ranking]:
        """Of what it asks for."""
        return rankings_of(self.unit.tasks)

    @cached_property
    def surroundings(self) -> tuple[int, ...]:
        """How those of its shapes stand that depend on other pods."""
        return tuple(ranking.surroundings() for ranking in self.rankings if ranking.relations)

    @property
    def shares(self) -> tuple[int, int]:
        """Which fair shares there are, and how many jobs have started."""
        return self.state.queues.fair.version, self.state.services.starts

    @property
    def path_freed(self) -> bool:
        """Whether its queue, or one above it, holds less or may hold more."""
        return any(node.name in self.freed for node in self.pending_class.queue.path)


# -- for which reasons a condition matters -----------------------------------------------------


def _always(_: Check) -> bool:
    return True


def _held_back(check: Check) -> bool:
    """It is blocked by a job that would reclaim from its queue at once."""
    return check.pending_class.held_back is not None


def _guaranteed_to_others(check: Check) -> bool:
    """It is non-preemptible, and would hold what others are guaranteed."""
    return check.why.code is ReasonCode.QUOTA_EXCEEDED


def _limited(check: Check) -> bool:
    return check.limited


def _lacks_place(check: Check) -> bool:
    """It has no place. Against a limit a place helps only where victims of its own would free that, or the limit is of a pool:
    a place outside it helps, too.
    """
    if check.why.code is ReasonCode.QUOTA_EXCEEDED:
        return False
    if check.why.code is not ReasonCode.LIMIT_EXCEEDED or check.hunts:
        return True
    return check.state.queues.limits.limited_by_row(check.pending_class.queue.name)


def _may_search(check: Check) -> bool:
    """It has no place, and no search is due for it already."""
    return not check.rests and _lacks_place(check)


# -- conditions --------------------------------------------------------------------------------


def _reservations_changed(check: Check, seen: Seen) -> bool:
    """Rows that were reserved for others may be free now. Pods on such rows were no victims, and may be now, too."""
    kept_out = check.why.code is ReasonCode.RESERVATION or (seen.kept_out and check.preempts)
    return bool(kept_out) and seen.reservations != check.state.reserved.version


def _fewer_holds_exclude_it(check: Check, seen: Seen) -> bool:
    """It is known by now to end in time for some of the holds."""
    return bool(seen.kept_out) and _kept_out(check.state, check.unit) < seen.kept_out


def _claim_is_gone(check: Check, seen: Seen) -> bool:
    """The job for which it is held back may have no claim any more: it waits no longer, or shares moved."""
    if check.claim_is_over:
        return True
    if seen.shares[0] == check.state.queues.fair.version:
        return False
    other = check.pending_class.held_back
    check.released = other is not None and check.state.queues.limits.over_limits(other) is not None
    if check.released:
        return True
    return all(ranking.best() >= 0 for ranking in check.rankings) or check.may_search()  # a place needs no search


def _others_need_less(check: Check, _: Seen) -> bool:
    """Limits, and what others are guaranteed, leave enough for it; the rest is held by non-preemptible work."""
    return check.state.queues.limits.over_limits(check.unit) is None


def _limit_freed(check: Check, _: Seen) -> bool:
    """Queues on its path hold less: it is within limits, or what it lacked besides may have come."""
    return check.path_freed and (
        check.hunts or check.state.queues.limits.within_limits(check.pending_class.queue.name, check.preemption.demand)
    )


def _surroundings_changed(check: Check, seen: Seen) -> bool:
    """A pod that came or went anywhere may have opened a place, or victims, elsewhere, where it matters which pods are where."""
    if check.surroundings == seen.surroundings:
        return False
    return check.hunts or any(ranking.relations and ranking.best() >= 0 for ranking in check.rankings)


def _shares_changed(check: Check, seen: Seen) -> bool:
    """It may reclaim from jobs that started, or since shares moved; its own queue may hold less, and be within quota."""
    if not check.claims:
        return False
    preemption = check.preemption
    changed = check.shares != seen.shares or (
        preemption.entitled
        and any(node.name in check.freed and preemption.within_quota(node) for node in check.pending_class.queue.path)
    )
    return changed and check.may_reclaim and check.may_search()


def _rows_gained(check: Check, _: Seen) -> bool:
    """A row with new capacity takes it, with victims or without. Against a limit victims help anywhere."""
    if any(ranking.fits_row(row) for ranking in check.rankings for row in check.rows):
        return True
    if not check.preempts:
        return False
    preemption, limited = check.preemption, check.limited
    return (
        not check.rests
        and any(could_free_capacity(preemption, row) or (limited and holds_victims(preemption, row)) for row in check.rows)
        and check.may_search()
    )


def _enough_in_fragments(check: Check, _: Seen) -> bool:
    """What became free may be enough with the fragments elsewhere."""
    state, unit = check.state, check.unit
    return (
        bool(check.rows)
        and moves_from(state, unit) <= state.services.now
        and state.moves.enough_free(unit)
        and check.may_search()
    )


# -- what is remembered once a condition was asked ---------------------------------------------


def _nothing(_: Check, seen: Seen) -> Seen:
    return seen


def _fair_version(check: Check, seen: Seen) -> Seen:
    return seen._replace(shares=(check.shares[0], seen.shares[1]))


def _surroundings(check: Check, seen: Seen) -> Seen:
    return seen._replace(surroundings=check.surroundings)


def _shares(check: Check, seen: Seen) -> Seen:
    return seen._replace(shares=check.shares if check.claims else _NO_SHARES)


class Condition(NamedTuple):
    """When a class is tried again: for which classes this matters, whether it holds, and what is remembered once it was asked."""

    matters: Callable[[Check], bool]
    helps: Callable[[Check, Seen], bool]
    notes: Callable[[Check, Seen], Seen] = _nothing


CONDITIONS = (
    Condition(_always, _reservations_changed),
    Condition(_always, _fewer_holds_exclude_it),
    Condition(_held_back, _claim_is_gone, _fair_version),
    Condition(_guaranteed_to_others, _others_need_less),
    Condition(_limited, _limit_freed),
    Condition(_lacks_place, _surroundings_changed, _surroundings),
    Condition(_may_search, _shares_changed, _shares),
    Condition(_lacks_place, _rows_gained),
    Condition(_may_search, _enough_in_fragments),
)
"""In the order in which they are asked; the first that holds is enough."""

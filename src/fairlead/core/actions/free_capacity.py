"""Free capacity: victims for a unit that has no place, or pods to be moved, or which disruption budgets protect those.

The more often a search was in vain, the longer until the next one. When a class in backoff is tried again: `requeue`.
"""

from __future__ import annotations

import math
from functools import partial

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions import victimless
from fairlead.core.actions.combine import Laid, combine, leaves_fragments
from fairlead.core.actions.combine_claims import combine_claims, leaves_devices, wants_devices
from fairlead.core.actions.consolidate import Moved, consolidate
from fairlead.core.actions.leaving import Leaving, awaited_before, beyond_leaving, enough_leaves
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.gang_topology import could_hold, near_of
from fairlead.core.pods.tasks import TaskState, Unit
from fairlead.core.preemption.cycles import Blocking
from fairlead.core.preemption.override import override
from fairlead.core.preemption.policy import PreemptionPolicy, share_due
from fairlead.core.preemption.search import Plan, by_upstream, preempt
from fairlead.core.queues.queue_node import PendingClass, pending_class_of
from fairlead.core.queues.searches import Search
from fairlead.core.state.cluster import ClusterState

_DOMAINS = 8
"""In so many domains of the network moves are sought for a gang that must be in one: those that hold most of it now."""


def free_capacity(state: ClusterState, unit: Unit, code: ReasonCode, now: float) -> Plan | Moved | Reason | None:
    """Victims for a unit, or pods to be moved, or which budgets protect those.

    The more often there were none, the longer until the next search. Whether a search could help is decided without devices,
    gangs and budgets, so a search may be in vain. A free place needs no victims, and no unit waits for one.
    code: why it has no place. A unit that one user's limit blocks reports no budgets: others of its pending class may start.
    """
    pending_class, asks = pending_class_of(unit), code is not ReasonCode.USER_LIMIT
    if pending_class is None:
        return preempt(state, unit)
    search = pending_class.search
    if search.without_victims:
        return None
    if now < search.backoff_until:
        _put_off(state, unit, pending_class, code)
        return search.budgets if asks else None
    leaving = state.departures.leaving_soon(now) if state.departures.going and not by_upstream(unit) else []
    if leaving and (until := enough_leaves(state, unit, leaving)) is not None:
        # No pod is evicted or moved meanwhile.
        search.backoff_until = search.awaits = until
        search.awaited = frozenset(task.pod.uid for task, _ in leaving)
        search.budgets = None
        _put_off(state, unit, pending_class, code)
        return None
    search.awaits, search.given_up = 0.0, None
    if leaving and awaited_before(state, unit, now):
        leaving = []
    if victimless.is_in_vain(state, pending_class, unit, now):
        search.without_victims = True
        return None
    blocking = Blocking()
    plan = _search(state, unit, search, now, leaving, blocking)
    search.budgets, again = None, math.inf
    found = None
    if plan is None and asks:
        found = override(state, unit, now, blocking, enforce_quota=reclaims_from(state, unit) <= now)
    if found is not None:
        answer, at = found
        again = at or math.inf
        if isinstance(answer, Reason):
            # The reason that was reported stays the same while only its numbers change.
            search.budgets = answer
        else:
            plan = answer
    if found is not None or not victimless.note(state, pending_class, unit, now, blocking, found=plan is not None):
        _rest(state, search, 0 if plan else search.vain + 1, now)
    search.check_at = again
    state.queues.waiting.note_blocked(pending_class, blocking.blocked_by)
    return plan or search.budgets


def _search(
    state: ClusterState, unit: Unit, search: Search, now: float, leaving: Leaving, blocking: Blocking
) -> Plan | Moved | None:
    """Victims for a unit, or pods to be moved, by one rule after the other. leaving: what it need not evict."""
    plan = beyond_leaving(state, leaving, partial(_evict, state, unit, now, blocking))
    if plan is None and moves_from(state, unit) <= now:
        plan = _search_moves(state, unit, search, now, blocking)
    if plan is None and reclaims_from(state, unit) <= now:
        plan = beyond_leaving(state, leaving, partial(_evict, state, unit, now, blocking, enforce_quota=True))
    if plan is None and share_due(state, unit) <= now:
        plan = beyond_leaving(state, leaving, partial(_take_share, state, unit, blocking))
    return plan


def give_up(state: ClusterState, unit: Unit, other: Unit | None, vain: int, now: float) -> None:
    """What was found for a unit is no good, or would be taken back by another: that search was in vain, too.

    vain: how many were before it.
    """
    pending_class = pending_class_of(unit)
    if pending_class is not None:
        pending_class.search.given_up = other
        _rest(state, pending_class.search, vain + 1, now)


def given_up_for(unit: Unit, now: float) -> Unit | None:
    """For whom what was found for a unit was given up, if that still waits and the unit's search rests."""
    pending_class = pending_class_of(unit)
    other = pending_class.search.given_up if pending_class is not None and now < pending_class.search.backoff_until else None
    return other if other is not None and other.alive else None


def _rest(state: ClusterState, search: Search, vain: int, now: float) -> None:
    """So many searches in a row were in vain: the more, the longer until the next one."""
    search.vain = vain
    search.backoff_until = now + state.policy.search_rest(vain)


def _put_off(state: ClusterState, unit: Unit, pending_class: PendingClass, code: ReasonCode) -> None:
    """A search is due for a unit once the backoff of its class is over."""
    state.queues.waiting.backing_off.add(pending_class)
    if code is ReasonCode.USER_LIMIT:
        pending_class.search.put_off[unit.user] = None


def _search_moves(state: ClusterState, unit: Unit, search: Search, now: float, blocking: Blocking) -> Moved | None:
    """Pods to be moved for a unit, with victims or without. The more often there were none, the rarer the searches become."""
    search.moves_wanted = now < search.moves_again
    if search.moves_wanted:
        return None
    moved = _moved(state, unit, now, blocking)
    search.moves_vain = 0 if moved else search.moves_vain + 1
    search.moves_again = now + state.policy.move_rest(search.moves_vain)
    return moved


def _moved(state: ClusterState, unit: Unit, now: float, blocking: Blocking) -> Moved | None:
    """The same in one domain of the network after the other, for a gang that must be in one."""
    near = near_of(state, unit)
    if near is None or not near.required or len(unit.tasks) == 1:
        return consolidate(state, unit, now) or _combined(state, unit, now, None, blocking)
    for rows in list(could_hold(state, unit.core(), near, _DOMAINS)):
        with state.network.within(near.gang, rows):
            moved = consolidate(state, unit, now) or _combined(state, unit, now, None, blocking)
        if moved is not None:
            return moved
    return None


def _evict(
    state: ClusterState, unit: Unit, now: float, blocking: Blocking, *, enforce_quota: bool = False
) -> Plan | Moved | None:
    """Victims for a unit; fewer, or none, where others can move to the fragments that would be left free."""
    mark = state.log.mark()
    plan = preempt(state, unit, enforce_quota=enforce_quota, blocking=blocking)
    less = plan is not None and (leaves_fragments(state, plan) or leaves_devices(state, unit, plan))
    if plan is None or not less or moves_from(state, unit) == math.inf:
        state.log.commit()
        return plan
    laid = Laid.of(state, plan)
    state.log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    return _combined(state, unit, now, plan, blocking, enforce_quota=enforce_quota) or laid.again(state)


def _take_share(state: ClusterState, unit: Unit, blocking: Blocking) -> Plan | None:
    """Victims for a unit that has waited for its queue's share as long as one may.

    Where its queue is not entitled to more, a search found nothing a moment ago for which that wait decides anything.
    """
    if not by_upstream(unit) and not PreemptionPolicy(state, unit, waited=True).minds_shares:
        return None
    return preempt(state, unit, waited=True, blocking=blocking)


def _combined(
    state: ClusterState, unit: Unit, now: float, plan: Plan | None, blocking: Blocking, *, enforce_quota: bool = False
) -> Moved | None:
    """A plan that evicts and moves: by amounts of devices, or where these come from claims by trying which there are."""
    found = None
    if not wants_devices(unit) or all(need.served for task in unit.tasks for need in task.shape.spec.devices):
        found = combine(state, unit, now, plan, blocking, enforce_quota=enforce_quota)
    if found is None and wants_devices(unit) and state.device_claims.devices.known:
        found = combine_claims(state, unit, now, plan, blocking, enforce_quota=enforce_quota)
    return found

"""Make room: victims for a unit that has no place, or pods to be moved, or which disruption budgets keep those.

The more often a search was in vain, the longer until the next one. When a class that rests is tried again: `requeue`.
"""

from __future__ import annotations

import math
from functools import partial

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions.combine import Laid, combine, leaves_pieces
from fairlead.core.actions.consolidate import Moved, consolidate
from fairlead.core.actions.leaving import awaited_before, beyond_leaving, enough_leaves
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.pods.tasks import TaskState, Unit
from fairlead.core.preemption.override import override
from fairlead.core.preemption.policy import share_due
from fairlead.core.preemption.search import Plan, by_upstream, preempt
from fairlead.core.queues.tree import Search, room_of
from fairlead.core.state.cluster import ClusterState


def make_room(state: ClusterState, unit: Unit, code: ReasonCode, now: float) -> Plan | Moved | Reason | None:
    """Victims for a unit, or pods to be moved, or which budgets keep those.

    The more often there were none, the longer until they are looked for again. What could help is told without looking at
    devices, gangs and budgets, so a search may be in vain. A place that is free needs none and is never waited for.
    code: why it has no place. What one user's limit keeps out is no budget's matter: others in its room may start.
    """
    room, asks = room_of(unit), code is not ReasonCode.USER_LIMIT
    if room is None:
        return preempt(state, unit)
    search = room.search
    if now < search.rests_until:
        state.queues.waiting.resting.add(room)
        return search.budgets if asks else None
    leaving = state.departures.leaving_soon(now) if state.departures.going and not by_upstream(unit) else []
    if leaving and (until := enough_leaves(state, unit, leaving)) is not None:
        # No pod is evicted or moved meanwhile.
        search.rests_until = search.awaits = until
        search.budgets = None
        state.queues.waiting.resting.add(room)
        return None
    search.awaits = 0.0
    if leaving and awaited_before(state, unit, now):
        leaving = []
    plan = beyond_leaving(state, leaving, partial(_evict, state, unit, now))
    if plan is None and moves_from(state, unit) <= now:
        plan = _look_for_moves(state, unit, search, now)
    if plan is None and reclaims_from(state, unit) <= now:
        plan = beyond_leaving(state, leaving, partial(_evict, state, unit, now, insists=True))
    if plan is None and share_due(state, unit) <= now:
        plan = beyond_leaving(state, leaving, partial(preempt, state, unit, waited=True))
    search.budgets, again = None, math.inf
    found = override(state, unit, now, insists=reclaims_from(state, unit) <= now) if plan is None and asks else None
    if found is not None:
        answer, at = found
        again = at or math.inf
        if isinstance(answer, Reason):
            # The same as it was told, while only the numbers behind it change.
            search.budgets = answer
        else:
            plan = answer
    search.vain = 0 if plan else search.vain + 1
    search.rests_until = now + state.policy.search_rest(search.vain)
    search.looks_at = again
    return plan or search.budgets


def _look_for_moves(state: ClusterState, unit: Unit, search: Search, now: float) -> Moved | None:
    """Pods to be moved for a unit, with victims or without. The more often there were none, the rarer the searches become."""
    search.moves_wanted = now < search.moves_again
    if search.moves_wanted:
        return None
    moved = consolidate(state, unit, now) or combine(state, unit, now, None)
    search.moves_vain = 0 if moved else search.moves_vain + 1
    search.moves_again = now + state.policy.move_rest(search.moves_vain)
    return moved


def _evict(state: ClusterState, unit: Unit, now: float, *, insists: bool = False) -> Plan | Moved | None:
    """Victims for a unit; fewer, or none, where others can move to what would be left free in pieces."""
    mark = state.log.mark()
    plan = preempt(state, unit, insists=insists)
    if plan is None or not leaves_pieces(state, plan) or moves_from(state, unit) == math.inf:
        state.log.commit()
        return plan
    laid = Laid.of(plan)
    state.log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    return combine(state, unit, now, plan, insists=insists) or laid.again(state)

"""Leaving: what is on its way out is part of what a plan gets, and only what is missing beyond it is evicted.

Pods of other schedulers count, and deletions by users, for as long as they are trusted to go (`Departures.leaving_soon`). The
search for victims is made as if they were gone, also for the fair shares. Of those, a plan waits for the ones that fill its
places only. If one does not go in time, the plan is given up as with any other victim (`outwait.release_late`), and the unit is
planned anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fairlead.core.actions.consolidate import Moved
from fairlead.core.allocation import fits
from fairlead.core.pods import amounts
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.search import Plan
from fairlead.core.preemption.victims import victims_of
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state.cluster import ClusterState

Leaving = Sequence[tuple[Task, float]]
"""Terminating pods, each with the time until which it is trusted to go."""


def enough_leaves(state: ClusterState, unit: Unit, leaving: Leaving) -> float | None:
    """Until when a unit waits for these if it fits once they are gone; None if it does not. The state is left as it was."""
    mark, _ = _gone(state, leaving)
    with state.reserved.weighed(unit):  # anew: what its queue, and others, hold once these are gone
        enough = fits(state, unit.core())
    state.log.rollback(mark)
    return max(due for _, due in leaving) if enough else None


def beyond_leaving(state: ClusterState, leaving: Leaving, search: Callable[[], Plan | Moved | None]) -> Plan | Moved | None:
    """The plan that a search finds when these are gone, with those of them for which it waits; None changes nothing."""
    if not leaving:
        return search()
    victims_of(state).list_now()  # as things stand: a gang of which a member leaves is no victim
    mark, gone = _gone(state, leaving)
    with state.queues.fair.without(frozenset(gone.places), state.services.now):
        found = search()
    if found is None:
        state.log.rollback(mark)
        return None
    plan = found.plan if isinstance(found, Moved) else found
    awaited = [task for task, _ in leaving if not put_back(state, task, gone, plan)]
    state.log.commit()
    plan = plan._replace(leaving=awaited, places=plan.places | gone.places)
    return Moved(plan, found.placeholders) if isinstance(found, Moved) else plan


def awaited_before(state: ClusterState, unit: Unit, now: float) -> bool:
    """Whether a unit that stands before this one waits for what is leaving: then that is not this one's to plan with."""
    queues, pending_class = state.queues, pending_class_of(unit)
    if pending_class is None:
        return False
    firsts = [each.first() for each in queues.waiting.backing_off.awaiting(now) if each is not pending_class]
    if not firsts:
        return False
    mine = queues.waiting.order_key(unit)
    return any(first is not None and queues.waiting.order_key(first) < mine for first in firsts)


def _gone(state: ClusterState, leaving: Leaving) -> tuple[int, Removal]:
    """In a trial: these are off their rows."""
    mark, gone = state.log.mark(), Removal(state)
    gone.take([task for task, _ in leaving])
    return mark, gone


def put_back(state: ClusterState, task: Task, gone: Removal, plan: Plan) -> bool:
    """Put a pod back where it runs if all that a plan places fits beside it; whether it does."""
    row, devices = gone.places[task.pod.uid]
    shape, placed = task.shape, plan.placed
    if task.ranking.relations or task.shape.isolates or any(each.ranking.relations for each in placed):
        return False  # it may keep them off wherever it is
    nodes = state.nodes
    free = nodes.devices.states[nodes.device.item(row)]
    if not amounts.fits(nodes, row, shape.demand):
        return False
    if any(free[device] < shape.gpu_milli for device in devices):
        return False
    mark = state.log.mark()
    state.placement.assign(task, row, devices)
    if any(state.queues.limits.over_limit(each, 0, each.row) is not None for each in placed):
        state.log.rollback(mark)
        return False
    state.log.commit()
    del gone.places[task.pod.uid]
    return True

"""Patience: from when on others may be moved for a unit, and from when on it takes its guarantee from what is free in fragments.

Both wait for a while after the unit came: most often a place is free before. See `preemption.policy.share_due` for the third.
"""

from __future__ import annotations

import math

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.filters.network_topology import depends_on_others
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.search import by_upstream
from fairlead.core.state.cluster import ClusterState


def moves_from(state: ClusterState, unit: Unit) -> float:
    """From when on others may be moved for a unit."""
    policy = state.policy
    if not (policy.preempt and policy.moves_per_minute) or by_upstream(unit) or unit.tasks[0].pod.never_preempts:
        return math.inf
    core = unit.tasks[: unit.need]
    if any(depends_on_others(task.ranking.relations) for task in core):
        return math.inf  # its places depend on who is where, which moves would change
    if len(core) == 1 and core[0].shape.device_milli == WHOLE and not state.moves.enough_free(unit):
        return math.inf  # a single device is there as soon as anything ends
    return unit.created + policy.move_patience


def reclaims_from(state: ClusterState, unit: Unit) -> float:
    """From when on a unit takes what its queue is guaranteed from those beyond their quotas, though nothing is scarce.

    By amounts there is enough for all then, but in fragments: what can be moved is moved first.
    """
    fair, node = state.queues.fair, state.queues.queues[unit.tasks[0].queue]
    if not state.policy.reclaim or not any(each.quota for each in node.path) or by_upstream(unit):
        return math.inf
    if all(fair.contested(each, enforce_quota=True) == fair.contested(each) for each in node.path):
        return math.inf
    return unit.created + state.policy.move_patience

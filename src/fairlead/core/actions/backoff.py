"""Backoff: what is tried again before its search for victims may be repeated, and lacks nothing but a free place.

Until the backoff of a class is over neither victims nor pods to be moved are searched for, so only a row with new capacity
helps it, and to try it in vain changes nothing. So it is not searched for again why it has no place, where that is known
(`refused_again`). And classes for which nothing but a place decides are kept by themselves (`queues.backoff`): which of them a
row may hold is one comparison for all. Those stand in line as they are, and only one that a row still holds when it is the next
is tried. Once no row holds any of them they are done with: what has no place does not decide when other queues are served.
"""

from __future__ import annotations

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.search import by_upstream
from fairlead.core.queues.queue_node import PendingClass
from fairlead.core.state.cluster import ClusterState

_FEW_LINES = 8  # a class with more is checked by itself: to keep it with others costs as much as it has lines


def note_refused(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> None:
    """A class was just refused: what may help it now. unit: its first, which was tried."""
    waiting = state.queues.waiting
    pending_class.lacks_place = None
    if reason.code is not ReasonCode.RESOURCES or not is_plain(state, pending_class, unit):
        return
    pending_class.lacks_place = reason, _versions(state)
    if (pending_class in waiting.without_victims and len(pending_class.lines) <= _FEW_LINES) or (
        pending_class in waiting.backing_off and now < pending_class.search.backoff_until
    ):
        waiting.back_off(pending_class)


def put_off(state: ClusterState, pending_class: PendingClass) -> None:
    """A search is due for a refused class once its backoff is over."""
    state.queues.waiting.backing_off.add(pending_class)
    keep(state, pending_class)


def keep(state: ClusterState, pending_class: PendingClass) -> None:
    """Nothing but a place helps a refused class for now."""
    known = pending_class.lacks_place
    if known is not None and known[1] == _versions(state) and len(pending_class.lines) <= _FEW_LINES:
        state.queues.waiting.back_off(pending_class)


def is_plain(state: ClusterState, pending_class: PendingClass, unit: Unit) -> bool:
    """Whether a unit is a pod by itself whose place depends on no other pods, and that no limit may keep out."""
    first, queue = unit.tasks[0], pending_class.queue
    if len(unit.tasks) > 1 or unit.gang is not None or first.pod.placeholder or first.shape.holds or first.ranking.relations:
        return False
    if state.policy.head_blocks or queue.policy.users_reclaim or state.queues.guarantees.non_preemptible(first):
        return False
    if pending_class.held_back is not None or pending_class.limited or by_upstream(unit):
        return False
    return not any(node.limits or node.pool_limits or node.meter is not None for node in queue.path)


def _versions(state: ClusterState) -> tuple[int, int, int]:
    """Of what decides why a class that fits no row is refused."""
    return state.nodes.described, state.pairs.terms_version, state.queues.waiting.policies


# -- tried again ------------------------------------------------------------------------------


def refused_again(state: ClusterState, pending_class: PendingClass, unit: Unit, now: float) -> Reason | None:
    """The reason for which a unit of a class that is the next would be refused as it was before; None: it must be tried."""
    waiting = state.queues.waiting
    known = pending_class.lacks_place
    if known is None or not (pending_class.search.without_victims or now < pending_class.search.backoff_until):
        return None
    if pending_class.unreported or pending_class.late or known[1] != _versions(state) or pending_class.held_back is not None:
        return None
    if unit.tasks[0].ranking.best() >= 0:
        return None
    if not pending_class.search.without_victims:
        waiting.backing_off.add(pending_class)
    return known[0]


# -- kept by themselves -------------------------------------------------------------------------


def doubt(state: ClusterState) -> None:
    """Where nodes, terms of other pods, or reservations are others by now, more than a place may help classes in backoff."""
    waiting, versions = state.queues.waiting, (*_versions(state), state.reserved.version)
    if waiting.backoff and waiting.backoff.versions != versions:
        waiting.others.update(waiting.backoff)
        waiting.backoff.clear()
    waiting.backoff.versions = versions


def stands_by(pending_class: PendingClass) -> bool:
    """Whether a class whose unit is the next is in backoff, and stands in line for a free place."""
    return pending_class.unschedulable is not None


def try_again(state: ClusterState, pending_class: PendingClass) -> None:
    """A class in backoff is the next: if a row holds it, it is tried; else what is behind it is the next.

    Once no row holds any, and nothing else is to be served, all are done with.
    """
    waiting = state.queues.waiting
    if waiting.backoff.holds(pending_class):
        with state.isolation.guard("requeue", pending_class):
            waiting.requeue(pending_class, for_a_place=True)
    elif not waiting.backoff.holds_any():
        waiting.close_backoff()
    else:
        waiting.backoff.pass_over(pending_class)

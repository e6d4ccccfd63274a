"""Backoff: what is tried again before its search for victims may be repeated, and lacks nothing but a free place.

Until the backoff of a class is over, to try it in vain changes nothing, if it was tried in it before. So it is not searched for
again why it has no place, where that is known (`refused_again`). And where nothing but a row with new capacity can help the
classes of a queue, these are kept by themselves (`queues.backoff`): which of them a row may hold is one comparison for all. Those
stand in line as they are, and only one that a row still holds when it is the next is tried.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.search import by_upstream
from fairlead.core.queues.backoff_lines import BackoffLines
from fairlead.core.queues.searches import Seen
from fairlead.core.queues.tree import PendingClass
from fairlead.core.state.cluster import ClusterState


def note_refused(state: ClusterState, pending_class: PendingClass, unit: Unit, reason: Reason, now: float) -> None:
    """A class was just refused: what may help it now. unit: its first, which was tried."""
    waiting = state.queues.waiting
    pending_class.lacks_place = None
    if reason.code is not ReasonCode.RESOURCES or not _is_plain(state, pending_class, unit):
        return
    pending_class.lacks_place = reason, _versions(state)
    if pending_class in waiting.backing_off and now < pending_class.search.backoff_until and _preempts_plainly(state, unit):
        waiting.back_off(pending_class)


def _is_plain(state: ClusterState, pending_class: PendingClass, unit: Unit) -> bool:
    """Whether a unit is a pod by itself whose place depends on no other pods, and that no limit may keep out."""
    first, queue = unit.tasks[0], pending_class.queue
    if len(unit.tasks) > 1 or unit.gang is not None or first.pod.placeholder or first.shape.holds or first.ranking.relations:
        return False
    if state.policy.head_blocks or queue.policy.users_reclaim or state.queues.guarantees.non_preemptible(first):
        return False
    if pending_class.held_back is not None or pending_class.limited or by_upstream(unit):
        return False
    return not any(node.limits or node.pool_limits or node.meter is not None for node in queue.path)


def _preempts_plainly(state: ClusterState, unit: Unit) -> bool:
    """Whether a unit preempts, for its queue's share and by priority in its queue only; `_is_quiet` asks about these."""
    first, service = unit.tasks[0], state.services.of(unit.tasks[0])
    if not state.policy.preempt or first.pod.never_preempts:
        return False
    return not (service.levels or service.express) and service.scope == "Queue"


def _versions(state: ClusterState) -> tuple[int, int, int]:
    """Of what decides why a class that fits no row is refused."""
    return state.nodes.described, state.pairs.terms_version, state.queues.waiting.policies


# -- tried again ------------------------------------------------------------------------------


def refused_again(state: ClusterState, pending_class: PendingClass, unit: Unit, now: float) -> Reason | None:
    """The reason for which a unit of a class that is the next would be refused as it was before; None: it must be tried."""
    waiting = state.queues.waiting
    known = pending_class.lacks_place
    if known is None or now >= pending_class.search.backoff_until or pending_class not in waiting.backing_off:
        return None
    if pending_class.unreported or pending_class.late or known[1] != _versions(state) or pending_class.held_back is not None:
        return None
    return known[0] if unit.tasks[0].ranking.best() < 0 else None


# -- kept by themselves -------------------------------------------------------------------------


def doubt(state: ClusterState) -> None:
    """Where nodes, terms of other pods, or reservations are others by now, more than a place may help classes in backoff."""
    waiting, versions = state.queues.waiting, (*_versions(state), state.reserved.version)
    if waiting.backoff and waiting.backoff.versions != versions:
        waiting.doubt_backoff()
    waiting.backoff.versions = versions


def alone(state: ClusterState) -> bool:
    """Whether all classes in backoff are of one queue, and no other has work: then only what finds a place is of any effect."""
    queues, waiting = state.queues, state.queues.waiting
    lines = waiting.backoff.queues[0] if len(waiting.backoff.queues) == 1 else None
    if lines is None or waiting.order.lists_others(lines.node):
        return False
    claims = state.policy.reclaim and _may_be_entitled(state, lines)
    if claims and not (queues.fair.scarce(lines.node) and queues.fair.within(lines.node, list(lines.most.items()))):
        return False  # some are entitled, perhaps not all
    lines.note((queues.fair.version, state.services.starts) if claims else Seen().shares)
    return True


def unquiet(state: ClusterState) -> list[BackoffLines]:
    """Of the queues that may preempt something: where other queues are served, too, their classes are checked one by one."""
    found = []
    for lines in state.queues.waiting.backoff.queues:
        quiet = _is_quiet(state, lines)
        lines.note(Seen().shares if quiet else None)
        if not quiet:
            found.append(lines)
    return found


def _is_quiet(state: ClusterState, lines: BackoffLines) -> bool:
    """Whether no class of a queue may preempt anything."""
    node, highest = lines.node, lines.highest
    if state.pods.elastic or any(count and priority < highest for priority, count in node.priorities.items()):
        return False
    return not (state.policy.reclaim and _may_be_entitled(state, lines))


def _may_be_entitled(state: ClusterState, lines: BackoffLines) -> bool:
    """Whether its queue may be within its share, or its quota, with one of its classes."""
    node, fair = lines.node, state.queues.fair
    if not fair.scarce(node) and not any(each.quota for each in node.path):
        return False
    least = list(lines.least.items())
    if fair.within(node, least):
        return True
    for enforce_quota in (False, True):
        names = fair.contested(node, enforce_quota=enforce_quota)
        if all(node.holds_of(name) + amount <= node.quota.get(name, 0) for name, amount in least if name in names):
            return True
    return False


def offer_all(state: ClusterState, rows: Sequence[int], checked: list[BackoffLines]) -> None:
    """The classes stand in line that one of these rows may hold, but for those of queues that were checked.

    What is first in each queue decides when others are served, whether it finds a place or not.
    """
    waiting, policy = state.queues.waiting, state.policy
    free = state.moves.free.total() if policy.preempt and policy.moves_per_minute else -1
    waiting.offer_backoff(rows, checked, free, state.services.now - policy.move_patience)


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
            waiting.requeue(pending_class)
    elif not waiting.backoff.holds_any() and not waiting.waits_listed():
        waiting.backoff.close()
    else:
        waiting.backoff.pass_over(pending_class)

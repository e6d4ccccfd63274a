"""Serve: one unit gets its places, else capacity is freed for it, else its class is unschedulable, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import explain
from fairlead.core.actions import requeue
from fairlead.core.actions.assume import begin, preempted
from fairlead.core.actions.consolidate import Moved
from fairlead.core.actions.deallocate import deallocate, idle_claims
from fairlead.core.actions.free_capacity import free_capacity, give_up, given_up_for
from fairlead.core.actions.refusals import refuse
from fairlead.core.actions.reserve import reserve_for
from fairlead.core.allocation import NoCapacity, allocate
from fairlead.core.model.causes import PreemptionReason
from fairlead.core.model.transactions import Transaction
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.preemption.reclaimable import HeldBack, Reclaimed, Refused, claims_again, know_shares, reclaimed_by, reclaimer
from fairlead.core.preemption.search import Plan
from fairlead.core.preemption.trial import goes_beyond
from fairlead.core.queues.entitlement import against, within_share
from fairlead.core.queues.queue_node import QueueNode, pending_class_of
from fairlead.core.state.cluster import ClusterState

_MAY_BE_TAKEN = (
    *(ReasonCode.RESOURCES, ReasonCode.TOPOLOGY, ReasonCode.RESERVATION),
    *(ReasonCode.LIMIT_EXCEEDED, ReasonCode.USER_LIMIT),
)


def serve(state: ClusterState, unit: Unit, now: float) -> Iterator[Transaction]:
    """Place a unit, else free capacity for it, else refuse it."""
    return (_serve_weighed if state.reserved.holds else _serve)(state, unit, now)


def _serve(state: ClusterState, unit: Unit, now: float) -> Iterator[Transaction]:
    state.shapes.used(unit.tasks[0].ranking)
    if state.pairs.active:
        prepare(state, unit)
    beyond = goes_beyond(state, unit)
    outcome = allocated(state, unit, beyond=beyond)
    if isinstance(outcome, list):
        yield from begin(state, unit, outcome, now)
        return
    refused: Refused | Reason = outcome
    idle = idle_claims(state, unit.tasks) if isinstance(outcome, NoCapacity) else []
    yield from deallocate(idle)
    if outcome.code in _MAY_BE_TAKEN and not idle:
        # Until the transaction is made all of it can be taken back: victims run on as before.
        mark, pending_class = state.log.mark(), pending_class_of(unit)
        vain = pending_class.search.vain if pending_class is not None else 0
        plan: Plan | Moved | Reclaimed | Reason | None = free_capacity(state, unit, outcome.code, now)
        if isinstance(plan, Plan | Moved) and _is_too_dear(state, unit, plan):
            _is_no_good(state, unit, None, vain, now)
            plan = None
        if beyond and isinstance(plan, Plan | Moved):
            plan = _plan_unless_reclaimed(state, unit, plan, vain, now)
        elif plan is None and (other := given_up_for(unit, now)) is not None:
            plan = _held_back(state, unit, other)
        if isinstance(plan, Reason | Reclaimed):
            refused = plan
        elif plan is not None:
            made = preempted(state, unit, plan, now)
            with state.isolation.guard("settled"):
                state.log.commit()
                if state.spares.keys:
                    state.spares.leave((plan.plan if isinstance(plan, Moved) else plan).victims)
            yield made
            return
        state.log.rollback(mark)
    yield from _mark_unschedulable(
        state, unit, refused if isinstance(refused, Reason) else explain.refused(state, unit, refused), now
    )


def _serve_weighed(state: ClusterState, unit: Unit, now: float) -> Iterator[Transaction]:
    """Serve a unit where there are holds: these are weighed first, since members with places change what its queue holds."""
    with state.reserved.weighed(unit):
        yield from _serve(state, unit, now)


def prepare(state: ClusterState, unit: Unit) -> None:
    """What the nodes are asked about a unit holds for how things are now."""
    for task in unit.tasks if state.pairs.active else ():
        task.ranking.prepare()


def allocated(state: ClusterState, unit: Unit, *, beyond: bool) -> list[Task] | Refused:
    """Those placed on free capacity, or why none is. beyond: whether it goes beyond its queue's share."""
    if not beyond:
        return allocate(state, unit)
    know_shares(state)
    held = state.pass_caches.get(HeldBack).as_of(state)
    mark = state.log.mark()
    return _unless_reclaimed(state, unit, allocate(state, unit), mark, held)


def _unless_reclaimed(
    state: ClusterState, unit: Unit, placed: list[Task] | Refused, mark: int, held: HeldBack
) -> list[Task] | Refused:
    """What was just placed, or, with all taken back, why it may not start: another job would reclaim from its queue at once."""
    if not isinstance(placed, list):
        state.log.commit()
        return placed
    other = held.known(state, unit, placed) or _reclaimer(state, unit, placed)
    if other is None:
        state.log.commit()
        return placed
    held.note(state, unit, placed, other)
    state.log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    return _held_back(state, unit, other)


def _plan_unless_reclaimed(
    state: ClusterState, unit: Unit, plan: Plan | Moved, vain: int, now: float
) -> Plan | Moved | Reclaimed:
    """The same for a place that others leave. Queues held the same when its free places were judged (`allocated`)."""
    evicts, held = plan.plan if isinstance(plan, Moved) else plan, state.pass_caches.get(HeldBack)
    moves = isinstance(plan, Moved)
    other = None if moves else held.known(state, unit, evicts.placed, evicts.victims)
    other = other or _reclaimer(state, unit, evicts.placed)
    if other is None:
        return plan
    if not moves:
        held.note(state, unit, evicts.placed, other, evicts.victims)
    _is_no_good(state, unit, other, vain, now)
    return _held_back(state, unit, other)


def _is_too_dear(state: ClusterState, unit: Unit, plan: Plan | Moved) -> bool:
    """Whether the queue of a unit that reclaims would hold more than it may where the unit is to be.

    By the cheapest nodes it was entitled. Those who lose dearer ones would reclaim them in turn, without end: if the queue is
    beyond its share there, or beyond its quota while by the cheapest nodes theirs would hold no more than their quotas.
    """
    evicts, tree, fair = plan.plan if isinstance(plan, Moved) else plan, state.queues.tree, state.queues.fair
    if not tree.parts.varies or PreemptionReason.SHARE not in evicts.why.reasons:
        return False
    queue, least = state.queues.queues[unit.tasks[0].queue], dict(tree.asked_together(unit.tasks))
    nothing = [(name, 0) for name, amount in tree.dearest_together(unit.tasks) if amount != least.get(name)]
    if not nothing:
        return False
    victims: dict[str, list[Task]] = {}
    for victim in evicts.victims:
        victims.setdefault(victim.queue, []).append(victim)
    for name, gone in victims.items():
        meets = against(queue, state.queues.queues[name])
        if meets is None or all(_within_quota(node, nothing) for node in meets.claimants):
            continue
        again = dict(tree.asked_together(gone))
        back = [(each, again.get(each, 0)) for each, _ in nothing]
        if all(_within_quota(node, back) for node in meets.lenders) or not within_share(fair, meets.claimants, nothing):
            return True
    return False


def _within_quota(node: QueueNode, charge: Sequence[tuple[str, int]]) -> bool:
    """Whether a queue stays within its quotas with so much more."""
    return all(node.stays(name) + amount <= node.quota.get(name, 0) for name, amount in charge)


def _is_no_good(state: ClusterState, unit: Unit, other: Unit | None, vain: int, now: float) -> None:
    """What was found for a unit is not carried out, perhaps for the sake of another: that search was in vain."""
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    give_up(state, unit, other, vain, now)


def _reclaimer(state: ClusterState, unit: Unit, placed: list[Task]) -> Unit | None:
    """The unit that would reclaim what was just placed. Queues held before as they do for `HeldBack`."""
    held = state.pass_caches.get(HeldBack)
    found = claims_again(state, unit, placed, held.claimant) or reclaimer(state, unit, placed)
    held.claimant = found.unit if found.first else held.claimant
    # What a pending job blocks holds no start back: it is tried again once that job is gone, as after its own search.
    for pending_class, blocked_by in found.blocked.items():
        state.queues.waiting.note_blocked(pending_class, blocked_by)
    return found.unit


def _held_back(state: ClusterState, unit: Unit, other: Unit) -> Reclaimed:
    if (pending_class := pending_class_of(unit)) is not None:
        pending_class.held_back = other
    return reclaimed_by(state, unit, other)


def refuse_again(state: ClusterState, unit: Unit, reason: Reason, now: float) -> None:
    """A unit that has no place, as it had none before, is refused for the same reason: nothing new is reported."""
    pending_class = pending_class_of(unit)
    if pending_class is not None:
        requeue.mark_unschedulable(state, pending_class, unit, reason, now)
        reserve_for(state, unit, now)


def _mark_unschedulable(state: ClusterState, unit: Unit, reason: Reason, now: float) -> Iterator[Transaction]:
    pending_class = pending_class_of(unit)
    if pending_class is None:
        return
    if reason.code is ReasonCode.USER_LIMIT:
        yield from refuse(state, requeue.stop_line(state, pending_class, unit, reason, now), reason)
        return
    unreported = requeue.mark_unschedulable(state, pending_class, unit, reason, now)
    if state.policy.head_blocks:
        state.queues.waiting.block(pending_class)
    yield from refuse(state, unreported, reason)
    with state.isolation.guard("reserve", unit):
        reserve_for(state, unit, now)
    with state.isolation.guard("requeue", unit):
        requeue.try_with_leaving(state, pending_class, now)

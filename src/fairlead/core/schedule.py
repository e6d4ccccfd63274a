"""One pass: from the state to transactions. Read this first.

`schedule` is a generator. Each transaction is already assumed in the state when it is yielded, so
its writes can start at once, and events may be applied to the state between two of them. Same
state, policy and time give the same transactions. What each step does lies in `actions/`.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.actions import backoff
from fairlead.core.actions.alternatives import choose_alternatives
from fairlead.core.actions.defragment import empty_nodes
from fairlead.core.actions.ending import dismantle, end_overtime
from fairlead.core.actions.heads import bound_waits
from fairlead.core.actions.kept_places import bring_back, redeem_holds, start_free_places
from fairlead.core.actions.nominated import hold_again, keep_moves_again
from fairlead.core.actions.outwait import hurry, note_freed, release_late, report_waiting
from fairlead.core.actions.part import part_pairs
from fairlead.core.actions.refusals import notify, report_overdue
from fairlead.core.actions.requeue import must_requeue, requeue, requeue_after_backoff
from fairlead.core.actions.reserve import renew, reserve
from fairlead.core.actions.serve import refuse_again, serve
from fairlead.core.actions.spares import hand_over, refill, releasing, replace
from fairlead.core.actions.victimless import go_on
from fairlead.core.model.transactions import Transaction
from fairlead.core.model.undo import OpenTrialsError
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption import cycles, victims
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state.cluster import ClusterState


def schedule(state: ClusterState, now: float, budget: int | None = None) -> Iterator[Transaction]:
    """Decide until nothing more can be placed, or `budget` units have been tried.

    now: seconds since the epoch; the only clock there is. budget: work, not time, so that the
    result does not depend on the machine; a pass cut short goes on where it stopped.
    """
    guard, first = state.isolation.guard, state.belonging.believes
    # 1. Gangs whose members changed become units again, backoffs end, shares follow what is held and asked for.
    _begin(state, now)
    # 2. Tasks whose victims are gone start in the places held for them, or in other free ones.
    if first and state.pods.nominated:
        yield from hold_again(state, now)
    if first:
        keep_moves_again(state, now)
    yield from redeem_holds(state, now)
    yield from bring_back(state, now)
    if state.spares.keys:
        yield from replace(state, now)
        yield from hand_over(state, now)
    with guard("departures"):
        yield from release_late(state, now)
        yield from hurry(state, now)
    note_freed(state)
    with guard("departures"):
        yield from start_free_places(state, now, last=False)
    # 3. Unschedulable classes are requeued only if something happened that could help them.
    requeue(state, now)
    # 4. The first of those that have waited in vain for long get nodes for later.
    reserve(state, now)
    # 5. Serve queue after queue: place the next unit, else free capacity for it, else report why not.
    tried = 0
    while (unit := _next(state, now)) is not None and (budget is None or tried < budget):
        tried += 1
        with guard("serve", unit) as served:
            yield from serve(state, unit, now)
        if served.failed:
            yield from state.isolation.drain()
    # 6. What is left serves those that still wait: places for units that are held, what heads need, whole nodes, other forms.
    if unit is None:
        with guard("departures"):
            yield from start_free_places(state, now, last=True)
    if not state.isolation.rests("heads"):
        with guard("heads"):
            bound_waits(state, now)
    if unit is None and must_requeue(state):
        state.reserved.pass_soon(now)  # what was reserved until now is free
    if not state.isolation.rests("defragment"):
        with guard("defragment"):
            yield from empty_nodes(state, now)
    yield from choose_alternatives(state, now)
    if unit is None and state.spares.asking:
        refill(state)
    # 7. Jobs that have run for their time limits are ended, pairs that disturb each other parted; suspensions without an answer
    # become evictions.
    yield from releasing(state, end_overtime(state, now))
    if state.nodes.partners.due:
        yield from part_pairs(state)
    with guard("suspended"):
        yield from state.suspended.unanswered(now)
    # 8. Gangs that do not start in time, or run in part and cannot be completed, are evicted.
    yield from releasing(state, state.starts.judge(now, state.suspended.targets))
    yield from releasing(state, dismantle(state, now))
    # 9. Reasons are published: why work waits, and what users should know of what runs; usage is recorded.
    yield from _report(state, now)


def has_work(state: ClusterState) -> bool:
    """Whether a pass cut short left units untried."""
    return state.queues.waiting.next() is not None


def _begin(state: ClusterState, now: float) -> None:
    state.begin(now)
    guard = state.isolation.guard
    if state.log.depth > 0:
        with guard("trials"):
            raise OpenTrialsError(state.log.end_all())
    with guard("departures"):
        state.evictions.follow_pools(now)
    if state.nodes.partners.active:
        with guard("pairs"):
            state.neighbours.hurry(now)
    with guard("requeue"):
        cycles.note_bound(state)
    with guard("starts"):
        state.starts.end_backoffs(now)
    state.settle(now)
    if not state.isolation.rests("shares"):
        with guard("shares"):
            state.queues.settle(now)
    with guard("victims"):
        victims.catch_up(state)
    requeue_after_backoff(state, now)
    renew(state, now)


def _next(state: ClusterState, now: float) -> Unit | None:
    """The unit to serve; once none is left, what was blocked by something that is over meanwhile is tried again."""
    while True:
        unit = _first(state, now)
        if unit is None and must_requeue(state):
            requeue(state, now)
            unit = _first(state, now)
        if unit is None and go_on(state, now):
            unit = _first(state, now)
        if unit is None:
            state.queues.waiting.close_backoff(end=True)
            return None
        pending_class = pending_class_of(unit)
        if pending_class is None:
            return unit
        if backoff.stands_by(pending_class):
            backoff.try_again(state, pending_class)
            continue
        if pending_class.lacks_place is None:
            return unit
        reason = backoff.refused_again(state, pending_class, unit, now)
        if reason is None:
            return unit
        with state.isolation.guard("serve", unit):
            refuse_again(state, unit, reason, now)


def _first(state: ClusterState, now: float) -> Unit | None:
    """The first in line, once whatever the last decision changed is settled."""
    state.settle(now)
    try:
        return state.queues.waiting.next()
    except Exception as error:  # noqa: BLE001 - isolation finds the unit at fault
        state.isolation.probe(error)
        return state.queues.waiting.next()


def _report(state: ClusterState, now: float) -> Iterator[Transaction]:
    guard = state.isolation.guard
    yield from notify(state)
    with guard("departures"):
        yield from report_waiting(state, now)
        yield from state.overrides.warnings()
    yield from report_overdue(state)
    with guard("unread"):
        yield from state.bound.unread.report()
        yield from state.belonging.report()
    if not state.isolation.rests("usage"):
        with guard("usage"):
            state.queues.fair.follow(now)
    yield from state.isolation.drain()

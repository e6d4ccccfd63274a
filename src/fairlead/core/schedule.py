"""One pass: from the state to transactions. Read this first.

`schedule` is a generator. Each transaction is already assumed in the state when it is yielded, so
its writes can start at once, and events may be applied to the state between two of them. Same
state, policy and time give the same transactions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import explain
from fairlead.core.actions import requeue
from fairlead.core.actions.combine import Laid, combine, leaves_pieces
from fairlead.core.actions.consolidate import Moved, consolidate
from fairlead.core.actions.defragment import Emptied, defragment, next_run
from fairlead.core.actions.heads import bound_waits
from fairlead.core.actions.leaving import awaited_before, beyond_leaving, enough_leaves
from fairlead.core.actions.outwait import hurry, note_freed, release_late, take_free_places, tell_waiting
from fairlead.core.actions.patience import moves_from, reclaims_from
from fairlead.core.actions.reserve import name_of, renew, reserve, reserve_for
from fairlead.core.allocation import NO_ROW, allocate
from fairlead.core.model.objects import stands_in
from fairlead.core.model.transactions import Binding, Evict, Overdue, Place, PodRef, Preempt, Refuse, Transaction
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit, refusal_told
from fairlead.core.preemption import cycles
from fairlead.core.preemption.override import override
from fairlead.core.preemption.policy import share_due
from fairlead.core.preemption.reclaimable import goes_beyond, reclaimer, refusal
from fairlead.core.preemption.search import Plan, by_upstream, preempt
from fairlead.core.queues.tree import Room, room_of
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.leftovers import GivenUp

_MAY_BE_TAKEN = (ReasonCode.LIMIT_EXCEEDED, ReasonCode.USER_LIMIT, ReasonCode.RESERVATION)


def schedule(state: ClusterState, now: float, budget: int | None = None) -> Iterator[Transaction]:
    """Decide until nothing more can be placed, or `budget` units have been tried.

    now: seconds since the epoch; the only clock there is. budget: work, not time, so that the
    result does not depend on the machine; a pass cut short goes on where it stopped.
    """
    state.begin(now)
    guard = state.isolation.guard
    with guard("wake"):
        cycles.note_bound(state)
    # 1. Gangs whose members changed become units again; backoffs that ended let tasks wait again.
    with guard("starts"):
        state.starts.wake(now)
    state.settle(now)
    if not state.isolation.rests("shares"):
        with guard("shares"):
            state.queues.settle(now)
    requeue.wake_rested(state, now)
    renew(state, now)
    # 2. Places held for preemptors are theirs once their victims are gone, if they are still any good.
    yield from _redeem_holds(state, now)
    yield from _bring_back(state, now)
    with guard("departures"):
        yield from release_late(state, now)
        yield from hurry(state, now)
    note_freed(state)
    with guard("departures"):
        yield from _take_free_places(state, now, last=False)
    if state.pending.must_settle:
        state.settle(now)
    # 3. Whatever was given up is tried again only if something happened that could help it.
    requeue.wake(state)
    # 4. The first of those that have waited in vain for long get nodes for later.
    reserve(state, now)
    # 5. Serve queue after queue: place the next unit, else make room for it, else say why not.
    tried = 0
    while (unit := _next(state)) is not None and (budget is None or tried < budget):
        tried += 1
        with guard("serve", unit) as served:
            yield from (_serve_weighed if state.reserved.holds else _serve)(state, unit, now)
        if served.failed:
            yield from state.isolation.drain()
        if state.pending.must_settle:
            state.settle(now)
    if unit is None:
        with guard("departures"):
            yield from _take_free_places(state, now, last=True)
    # What the first of a queue needs is kept for it once others passed it for too long.
    if not state.isolation.rests("heads"):
        with guard("heads"):
            bound_waits(state, now)
    if not state.isolation.rests("defragment"):
        with guard("defragment"):
            yield from _empty_nodes(state, now)
    # 6. Whoever has run as long as it may is ended.
    yield from _end(state, now)
    with guard("suspended"):
        yield from state.suspended.unanswered(now)
    # 7. A gang that has its nodes and does not start gives them back.
    yield from state.starts.judge(now, state.suspended.targets)
    # 8. A gang that half runs and cannot be completed in time is taken down as a whole.
    yield from _dismantle(state, now)
    # 9. Whoever came to wait where others wait in vain, or cannot wait at all, is told why.
    yield from _notify(state)
    with guard("departures"):
        yield from tell_waiting(state, now)
        yield from state.overrides.warnings()
    yield from _tell_overdue(state)
    with guard("unread"):
        yield from state.bound.unread.tell()
        yield from state.belonging.tell()
    if not state.isolation.rests("usage"):
        with guard("usage"):
            state.queues.fair.follow(now)
    yield from state.isolation.drain()


def _next(state: ClusterState) -> Unit | None:
    """The unit to serve; once none is left, what was kept out by something that is over meanwhile is looked at again."""
    unit = _first(state)
    if unit is None and requeue.must_wake(state):
        requeue.wake(state)
        unit = _first(state)
    return unit


def _first(state: ClusterState) -> Unit | None:
    try:
        return state.queues.waiting.next()
    except Exception as error:
        state.isolation.probe(error)
        return state.queues.waiting.next()


def has_work(state: ClusterState) -> bool:
    """Whether a pass cut short left units untried."""
    return state.queues.waiting.next() is not None


def _serve(state: ClusterState, unit: Unit, now: float) -> Iterator[Transaction]:
    state.shapes.used(unit.tasks[0].shape)
    _prepare(state, unit)
    beyond = goes_beyond(state, unit)
    outcome = _allocated(state, unit, beyond=beyond)
    if isinstance(outcome, list):
        yield from _begin(state, unit, outcome, now)
        return
    if outcome.is_capacity or outcome.code in _MAY_BE_TAKEN:
        # Until the transaction is made all of it can be taken back: victims run as if nobody had looked at them.
        mark = state.log.mark()
        plan = _search(state, unit, outcome.code, now)
        if plan is not None and not isinstance(plan, Reason) and beyond:
            plan = _plan_unless_reclaimed(state, unit, plan)
        if isinstance(plan, Reason):
            outcome = plan
        elif plan is not None:
            made = _moved(state, unit, plan, now) if isinstance(plan, Moved) else _preempted(state, unit, plan, now)
            with state.isolation.guard("settled"):
                state.log.commit()
            yield made
            return
        state.log.rollback(mark)
    if outcome is NO_ROW:
        outcome = explain.no_row(state, unit.tasks[0])
    yield from _park(state, unit, outcome, now)


def _prepare(state: ClusterState, unit: Unit) -> None:
    """What the nodes are asked about a unit holds for how things are now."""
    state.shapes.refresh()
    for task in unit.tasks if state.pairs.active else ():
        task.shape.prepare()


def _begin(state: ClusterState, unit: Unit, placed: list[Task], now: float) -> Iterator[Transaction]:
    """Those of a unit that have places start, unless members with places wait for victims."""
    _placed(state, unit, placed, now)
    if not _joins_held(state, unit, placed):
        yield from _start(state, placed, now)


def _allocated(state: ClusterState, unit: Unit, *, beyond: bool) -> list[Task] | Reason:
    """Those placed on free capacity, or why none is. beyond: whether it goes beyond its queue's share."""
    if not beyond:
        return allocate(state, unit)
    mark = state.log.mark()
    return _unless_reclaimed(state, unit, allocate(state, unit), mark)


def _serve_weighed(state: ClusterState, unit: Unit, now: float) -> Iterator[Transaction]:
    """Serve a unit where there are holds: these are weighed first, since members with places change what its queue holds."""
    state.reserved.weigh(unit)
    try:
        yield from _serve(state, unit, now)
    finally:
        state.reserved.weigh(None)


def _unless_reclaimed(state: ClusterState, unit: Unit, placed: list[Task] | Reason, mark: int) -> list[Task] | Reason:
    """What was just placed, or, with all taken back, why it may not start: another job would reclaim from its queue at once."""
    other = reclaimer(state, unit, placed) if isinstance(placed, list) else None
    if other is None:
        state.log.commit()
        return placed
    state.log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    return _held_back(state, unit, other)


def _plan_unless_reclaimed(state: ClusterState, unit: Unit, plan: Plan | Moved) -> Plan | Moved | Reason:
    """The same for a place that others leave."""
    other = reclaimer(state, unit, (plan.plan if isinstance(plan, Moved) else plan).placed)
    if other is None:
        return plan
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    return _held_back(state, unit, other)


def _held_back(state: ClusterState, unit: Unit, other: Unit) -> Reason:
    if (room := room_of(unit)) is not None:
        room.held_back = other
    return refusal(state, unit, other)


def _search(state: ClusterState, unit: Unit, code: ReasonCode, now: float) -> Plan | Moved | Reason | None:
    """Victims for a unit, or pods to be moved, or which budgets keep those.

    The more often there were none, the longer until they are looked for again. What could help is told without looking at
    devices, gangs and budgets, so a search may be in vain. A place that is free needs none and is never waited for.
    code: why it has no place. What one user's limit keeps out is no budget's matter: others in its room may start.
    """
    room, asks = room_of(unit), code is not ReasonCode.USER_LIMIT
    if room is None:
        return preempt(state, unit)
    if now < room.rests_until:
        state.queues.waiting.resting.add(room)
        return room.behind if asks else None
    leaving = state.departures.leaving_soon(now) if state.departures.going and not by_upstream(unit) else []
    if leaving and (until := enough_leaves(state, unit, leaving)) is not None:
        # No pod is evicted or moved meanwhile.
        room.rests_until = room.awaits = until
        room.behind = None
        state.queues.waiting.resting.add(room)
        return None
    room.awaits = 0.0
    if leaving and awaited_before(state, unit, now):
        leaving = []
    plan = beyond_leaving(state, leaving, partial(_evict, state, unit, now))
    if plan is None and moves_from(state, unit) <= now:
        plan = _look_for_moves(state, unit, room, now)
    if plan is None and reclaims_from(state, unit) <= now:
        plan = beyond_leaving(state, leaving, partial(_evict, state, unit, now, insists=True))
    if plan is None and share_due(state, unit) <= now:
        plan = beyond_leaving(state, leaving, partial(preempt, state, unit, waited=True))
    room.behind, again = None, math.inf
    found = override(state, unit, now, insists=reclaims_from(state, unit) <= now) if plan is None and asks else None
    if found is not None:
        answer, at = found
        again = at or math.inf
        if isinstance(answer, Reason):
            # The same as it was told, while only the numbers behind it change.
            room.behind = answer
        else:
            plan = answer
    room.searched = 0 if plan else room.searched + 1
    room.rests_until = now + state.policy.search_rest(room.searched)
    room.looks_at = again
    return plan or room.behind


def _look_for_moves(state: ClusterState, unit: Unit, room: Room, now: float) -> Moved | None:
    """Pods to be moved for a unit, with victims or without. The more often there were none, the rarer the searches become."""
    room.moves_wanted = now < room.moves_again
    if room.moves_wanted:
        return None
    moved = consolidate(state, unit, now) or combine(state, unit, now, None)
    room.moves_vain = 0 if moved else room.moves_vain + 1
    room.moves_again = now + state.policy.move_rest(room.moves_vain)
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


def _moved(state: ClusterState, unit: Unit, moved: Moved, now: float) -> Preempt:
    plan, stand_ins = moved
    rows = sorted({stand_in.row for stand_in in stand_ins.values()})
    after = {row: state.moves.after(plan.places, plan.placed, row) for row in rows}
    for task in plan.victims:
        if (stand_in := stand_ins.get(task.pod.uid)) is not None:
            state.moves.keep(task, stand_in, now, after[stand_in.row])
    state.moves.spend(len(stand_ins))
    return _preempted(state, unit, plan, now, frozenset(stand_ins))


def _empty_nodes(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Now and then nodes that hold little are emptied, where that is asked for."""
    policy, moves = state.policy.defragment, state.moves
    if policy is None:
        return
    if moves.defragments_at is None:
        moves.defragments_at = next_run(policy, now)
    if now < moves.defragments_at:
        return
    moves.defragments_at = next_run(policy, now)
    found = defragment(state, policy)
    while True:
        state.log.mark()
        emptied = next(found, None)
        if emptied is None:
            state.log.commit()
            return
        for task in emptied.moved:
            moves.keep(task, emptied.stand_ins[task.pod.uid], now)
        made = _emptied(state, emptied)
        state.log.commit()
        yield made


def _emptied(state: ClusterState, emptied: Emptied) -> Preempt:
    node = state.nodes.names[emptied.row]
    return Preempt(
        tuple(Binding(_ref(task), node) for task in emptied.moved),
        (),
        moved=tuple(sorted(task.pod.uid for task in emptied.moved)),
        why=f"node {node} is drained so that whole nodes are free",
        graces=state.departures.graces(emptied.moved),
    )


def _take_free_places(state: ClusterState, now: float, *, last: bool) -> Iterator[Transaction]:
    for tasks in take_free_places(state, last=last):
        with state.isolation.guard("holds", tasks):
            for task in tasks:
                task.started = now
            yield from _start(state, tasks, now)


def _bring_back(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Whoever replaces a pod that was moved, or comes again with a job that resumes, gets the place that was kept for it."""
    returning = state.moves.returning
    for uid in sorted(returning):
        task = state.tasks.get(uid)  # None: it went while others were brought back
        if task is None or uid not in returning:
            continue
        if task.row >= 0:
            state.moves.release(uid)  # it has found a place elsewhere meanwhile
            continue
        unit = task.unit or _needed_of(task.gang)
        if task.state is TaskState.WAITING and unit is not None:
            with state.isolation.guard("returns", unit):
                together = _share_out(state, unit)
                if len(together) >= unit.need:
                    yield from _place_returned(state, unit, together, now)
                elif not _still_to_come(state, unit, together):
                    yield from _place_anew(state, unit, together, now)


def _needed_of(gang: Gang | None) -> Unit | None:
    """The unit of the members of a gang that come first, if these are there."""
    members = gang.tasks.values() if gang is not None else ()
    return next((each.unit for each in members if each.unit is not None), None)


def _share_out(state: ClusterState, unit: Unit) -> list[Task]:
    """Those of a unit for which places are kept: the places of members that come after it are for members that it needs."""
    returning = state.moves.returning
    if unit.gang is not None:
        later = [each for each in unit.gang.later(state.services.now) if each.pod.uid in returning]
        for task in unit.tasks if later else ():
            other = next((each for each in later if each.shape is task.shape and each.queue == task.queue), None)
            if task.pod.uid not in returning and other is not None:
                later.remove(other)
                returning[task.pod.uid] = returning.pop(other.pod.uid)
    return [each for each in unit.tasks if each.pod.uid in returning]


def _still_to_come(state: ClusterState, unit: Unit, together: list[Task]) -> bool:
    """Whether the unit may yet get all places: others of its gang have places that they have not come to, or victims leave."""
    moves, gang = state.moves, unit.gang
    if any(moves.awaited(moves.returning[each.pod.uid]) for each in together):
        return True
    return gang is not None and (moves.awaits(gang) or state.suspended.awaits(gang.key))


def _place_anew(state: ClusterState, unit: Unit, together: list[Task], now: float) -> Iterator[Transaction]:
    """A gang needs more members than places were kept for: it is placed as a whole before others may have these, or waits."""
    for each in together:
        state.moves.release(each.pod.uid)
    _prepare(state, unit)
    state.reserved.weigh(unit)
    try:
        placed = _allocated(state, unit, beyond=goes_beyond(state, unit))
    finally:
        state.reserved.weigh(None)
    if isinstance(placed, list):
        yield from _begin(state, unit, placed, now)


def _place_returned(state: ClusterState, unit: Unit, together: list[Task], now: float) -> Iterator[Transaction]:
    placed: list[Task] = []
    places: dict[str, GivenUp] = {}
    awaited: set[str] = set()
    for each in together:
        kept = state.moves.returning.pop(each.pod.uid)
        place, waits = kept.given_up(), state.moves.awaited(kept)
        state.moves.vacate(kept)
        state.shapes.refresh()
        places[each.pod.uid] = place
        if (
            place.row >= 0
            and not state.placement.takes(each, place.row)
            and state.moves.may_succeed(each, kept.victim, place.row)
        ):
            each.instead_of = kept.victim
            waits.add(kept.victim)
        if place.row >= 0 and (each.instead_of or state.placement.takes(each, place.row)):
            if waits:
                state.placement.assign(each, place.row, place.devices)  # on no others: these are not free yet
            else:
                state.placement.place(each, place.row)
            awaited |= waits
            placed.append(each)
    if len(placed) < unit.need:
        for each in placed:
            state.placement.unassign(each)
        placed = []
    for each in together:
        if each not in placed:
            state.leftovers.keep_closed(places[each.pod.uid])
    if not placed:
        return
    for each in placed:
        each.become(TaskState.ASSUMED)
    _placed(state, unit, placed, now)
    if not awaited:
        yield from _start(state, placed, now)
        return
    for each in placed:
        each.become(TaskState.HELD)
        each.waits_for = set(awaited)
        for uid in awaited:
            state.evictions.holds.setdefault(uid, set()).add(each.pod.uid)


def _start(state: ClusterState, tasks: list[Task], now: float) -> Iterator[Transaction]:
    """Tasks that have places are bound; those that stand in for a suspended job let it resume."""
    gang, pods = tasks[0].gang, [task for task in tasks if not stands_in(task.pod.uid)]
    if pods:
        yield Place(tuple(_binding(state, task) for task in pods), gang.key if gang is not None else "")
    if len(pods) < len(tasks):
        yield state.suspended.resume([task for task in tasks if stands_in(task.pod.uid)], now)


def _placed(state: ClusterState, unit: Unit, placed: list[Task], now: float) -> None:
    unit.retire()
    state.queues.fair.touch()
    state.reserved.started(name_of(unit))
    state.foretold.started(unit.tasks[0].job, now)
    if (room := room_of(unit)) is not None:
        room.searched, room.rests_until = 0, 0.0
        room.moves_vain, room.moves_again = 0, 0.0
    for task in unit.tasks:
        task.unit = None
    for task in placed:
        task.started = now
        task.told = None
    first = unit.tasks[0]
    if unit.gang is not None and not first.beyond and len(placed) < len(unit.gang.tasks):
        state.tables.unsettle(unit.gang)  # the others may have places now, too


def _joins_held(state: ClusterState, unit: Unit, placed: list[Task]) -> bool:
    """Members of a gang that waits for victims wait with it: until those are gone they would come on top of them."""
    mates = [task for task in unit.gang.tasks.values() if task.state is TaskState.HELD] if unit.gang is not None else []
    victims = {uid for task in mates for uid in task.waits_for}
    for task in placed if victims else ():
        task.become(TaskState.HELD)
        task.waits_for = set(victims)
        for uid in victims:
            state.evictions.holds[uid].add(task.pod.uid)
    return bool(victims)


def _preempted(state: ClusterState, unit: Unit, plan: Plan, now: float, moved: frozenset[str] = frozenset()) -> Preempt:
    """moved: UIDs of victims that only move: the stand-ins that keep their new places are charged in their stead."""
    victims, placed = [*plan.victims, *plan.leaving], plan.placed
    _placed(state, unit, placed, now)
    names = state.nodes.names
    uids, waiting = frozenset(task.pod.uid for task in victims), frozenset(each.pod.uid for each in placed)
    log = state.log
    for task in victims:
        task.become(TaskState.EVICTING, log)
        log.insert(state.evictions.holds, task.pod.uid, set(waiting))
        log.insert(state.evictions.plans, task.pod.uid, uids)
        row = plan.places[task.pod.uid][0]
        state.placement.linger(task, row)
        state.nodes.gained.add(row)
    owing = [(task, plan.places[task.pod.uid][0]) for task in victims if task.charged and task.pod.uid not in moved]
    for debt in state.queues.accounts.debts(owing, placed):
        state.queues.accounts.owe(debt)
    for uid in sorted(moved):
        state.placement.charge_instead(state.moves.kept[uid].stand_in)
    state.queues.relieve({task.queue for task in victims if task.charged})
    for task in placed:
        task.become(TaskState.HELD)
        task.waits_for = set(uids)
    state.leftovers.hold(plan.places, ((kept.after, kept.stand_in) for kept in state.moves.kept.values()))
    state.departures.begin(victims, placed, now)
    for gang in {task.gang.key: task.gang for task in victims if task.gang is not None}.values():
        state.tables.unsettle(gang)
    held = tuple(Binding(_ref(task), names[task.row], task.devices) for task in placed)
    evicted = [task for task in plan.victims if task.pod.uid not in moved]
    groups = tuple(sorted({task.gang.key for task in evicted if task.gang is not None}))
    outright = by_upstream(unit)
    suspends = () if outright else state.suspended.ask(evicted, now)
    group = unit.gang.key if unit.gang else ""
    graces = () if outright else state.departures.graces(plan.victims)
    return Preempt(
        tuple(Binding(_ref(task), task.pod.node) for task in plan.victims),
        held,
        group,
        outright,
        moved=tuple(sorted(moved)),
        groups=groups,
        why=plan.why,
        suspends=suspends,
        graces=graces,
        overrides=plan.overrides,
    )


def _park(state: ClusterState, unit: Unit, reason: Reason, now: float) -> Iterator[Transaction]:
    room = room_of(unit)
    if room is None:
        return
    if reason.code is ReasonCode.USER_LIMIT:
        yield from _refuse(state, state.queues.waiting.limit(room, unit.user, reason), reason)
        return
    untold = requeue.park(state, room, unit, reason, now)
    if state.policy.head_blocks:
        state.queues.waiting.block(room)
    yield from _refuse(state, untold, reason)
    with state.isolation.guard("reserve", unit):
        reserve_for(state, unit, now)


def _refuse(state: ClusterState, units: list[Unit], reason: Reason) -> Iterator[Transaction]:
    """One refusal for all single pods of a room to which the same is said, one for each gang."""
    singles: dict[str, tuple[Reason, list[Task]]] = {}
    own_of = explain.owner(state, reason)
    for unit in sorted(units):
        own = own_of(unit) if any(task.told != reason.code for task in unit.tasks) else reason
        told = [task for task in unit.tasks if refusal_told(task, own)]
        if len(unit.tasks) == 1:
            singles.setdefault(own.message, (own, []))[1].extend(told)
        elif told:
            yield Refuse(tuple(_ref(task) for task in told), own, unit.gang.key if unit.gang else "")
    for own, told in singles.values():
        if told:
            yield Refuse(tuple(_ref(task) for task in told), own)


def _redeem_holds(state: ClusterState, now: float) -> Iterator[Transaction]:
    ready: dict[str, list[Task]] = {}
    for uid, task in sorted(state.evictions.freed.items()):
        if task.state is TaskState.HELD and task.row >= 0:
            ready.setdefault(task.gang.key if task.gang else uid, []).append(task)
    state.evictions.freed.clear()
    for tasks in ready.values():
        with state.isolation.guard("holds", tasks):
            yield from _redeem(state, tasks, now)


def _redeem(state: ClusterState, tasks: list[Task], now: float) -> Iterator[Transaction]:
    limited = any(state.queues.limits.over_limit(task, 0, task.row) is not None for task in tasks)
    if limited or not all(_still_fits(state, task) for task in tasks):
        state.evictions.release_holds(tasks)
        return
    for task in tasks:
        task.become(TaskState.ASSUMED)
    yield from _start(state, tasks, now)


def _still_fits(state: ClusterState, task: Task) -> bool:
    """Whether the place that was held is still good: meanwhile others may have bound there, or the node changed."""
    row = task.row
    mark = state.log.mark()
    state.placement.unassign(task)
    fits = task.shape.fits_row(row)
    state.log.rollback(mark)
    return fits


def _end(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Time limits kill; learned run times never do."""
    jobs: dict[str, list[Task]] = {}
    asked = False
    while not asked:
        # Whoever could not be asked is asked again later; the others now.
        with state.isolation.guard("time-limits"):
            for task in state.services.over_time(state.tasks):
                if task.state is TaskState.BOUND and (not task.pod.terminating or state.departures.stays_on(task, now)):
                    jobs.setdefault(task.job, []).append(task)
            asked = True
    for job, tasks in sorted(jobs.items()):
        with state.isolation.guard("time-limits", f"job/{job}"):
            yield _ended(state, tasks)


def _ended(state: ClusterState, tasks: list[Task]) -> Evict:
    first = tasks[0]
    limit = state.services.enforced_limit(first)
    group = first.gang.key if first.gang is not None else ""
    reason = Reason(ReasonCode.TIME_LIMIT, f"it has reached its time limit of {limit:g} s", {"limit": int(limit)})
    ordered = sorted(tasks, key=lambda each: each.rank)
    return Evict(tuple(Binding(_ref(task), task.pod.node) for task in ordered), group, reason, state.departures.graces(ordered))


def _dismantle(state: ClusterState, now: float) -> Iterator[Transaction]:
    for key in sorted(state.pending.faulty):
        gang = state.gangs.get(key)
        if gang is None:
            state.pending.faulty.discard(key)
        elif not state.isolation.rests("dismantle", f"gang/{key}"):
            with state.isolation.guard("dismantle", gang):
                yield from _look_at_broken(state, gang, now)


def _look_at_broken(state: ClusterState, gang: Gang, now: float) -> Iterator[Transaction]:
    if not gang.broken():
        state.pending.faulty.discard(gang.key)
        return
    if gang.fault_at is None:
        gang.fault_at = now
    if now < gang.fault_at + state.policy.gang_grace:
        return
    gang.fault_at = now  # an eviction may fail, too: it is tried again after another grace
    yield from _take_down(state, gang)


def _take_down(state: ClusterState, gang: Gang) -> Iterator[Transaction]:
    bound = sorted(gang.bound(), key=lambda task: task.rank)
    victims = [task for task in bound if task.pod.controlled]
    if not victims:
        state.pending.faulty.discard(gang.key)
    kept = len(bound) - len(victims)
    done = gang.succeeded
    also = f" ({done} more have succeeded)" if done else ""
    message = f"gang {gang.key} runs {len(bound)} of the {gang.min_member} pods it needs{also} and could not be completed"
    if kept:
        message += f"; {kept} of them have no controller and stay"
    reason = Reason(
        ReasonCode.GANG_INCOMPLETE, message, {"bound": len(bound), "min_member": gang.min_member, "kept": kept, "succeeded": done}
    )
    if victims or kept:
        taken = tuple(Binding(_ref(task), task.pod.node) for task in victims)
        yield Evict(taken, gang.key, reason, state.departures.graces(victims))


def _tell_overdue(state: ClusterState) -> Iterator[Transaction]:
    """Whoever waits longer than his class allows: once for each job."""
    overdue, state.pending.overdue = state.pending.overdue, []
    jobs: dict[str, list[Task]] = {}
    for task in overdue:
        if task.pod.uid in state.tasks and task.row < 0:
            jobs.setdefault(task.job, []).append(task)
    for _, tasks in sorted(jobs.items()):
        with state.isolation.guard("overdue", tasks):
            first = tasks[0]
            service = state.services.of(first)
            message = f"it has waited longer than the {service.max_wait:g} s that ServiceClass {service.name!r} allows"
            group = first.gang.key if first.gang is not None else ""
            yield Overdue(tuple(_ref(task) for task in tasks), service.name, message, group)


def _notify(state: ClusterState) -> Iterator[Transaction]:
    for tasks, reason in state.notices.take():
        waiting = [task for task in tasks if state.tasks.get(task.pod.uid) is task]
        if reason.code is not ReasonCode.INTERNAL_ERROR:
            waiting = [task for task in waiting if state.isolation.why(task.pod.uid) is None]
        with state.isolation.guard("notices", waiting):
            told = [task for task in waiting if refusal_told(task, reason)]
            if told:
                gang = told[0].gang
                yield Refuse(tuple(_ref(task) for task in told), reason, gang.key if gang else "")
    for room in sorted(state.queues.waiting.parked, key=Room.order):
        if room.untold and room.parked is not None:
            with state.isolation.guard("notices", room):
                yield from _refuse(state, state.queues.waiting.to_tell(room), room.parked)
    for room in sorted(state.queues.waiting.limited, key=Room.order):
        with state.isolation.guard("notices", room):
            late = [unit for unit in room.untold if unit.alive and unit.user in room.limited]
            room.untold = [unit for unit in room.untold if unit.user not in room.limited]
            for unit in late:
                yield from _refuse(state, [unit], room.limited[unit.user])


def _ref(task: Task) -> PodRef:
    pod = task.pod
    return PodRef(pod.uid, pod.namespace, pod.name)


def _binding(state: ClusterState, task: Task) -> Binding:
    volumes = state.placement.volumes_of(task) if task.shape.spec.claims else ()
    return Binding(_ref(task), state.nodes.names[task.row], task.devices, volumes)

"""Kept places: those of preemptors until their victims are gone, and of pods that were moved or whose jobs resume.

They are redeemed before others are served, if they are still any good.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.core.actions.assume import assume, begin, joins_held, start
from fairlead.core.actions.outwait import holds_place, take_free_places
from fairlead.core.actions.serve import allocated, prepare
from fairlead.core.model.transactions import Transaction
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.preemption.trial import goes_beyond
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.in_flight import GivenUp


def redeem_holds(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Preemptors whose victims are gone start, if their places are still good."""
    ready: dict[str, list[Task]] = {}
    for task in state.in_flight.take_freed():
        if holds_place(state, task):
            ready.setdefault(task.gang.key if task.gang else task.pod.uid, []).append(task)
    for tasks in ready.values():
        there = [task for task in tasks if holds_place(state, task)]  # others went while what comes before them started
        if there:
            with state.isolation.guard("holds", there):
                yield from _redeem(state, there, now)


def _redeem(state: ClusterState, tasks: list[Task], now: float) -> Iterator[Transaction]:
    gang = tasks[0].gang
    if gang is not None and gang.lacks_some(tasks) and not tasks[0].pod.placeholder:
        # Members that it needs have gone meanwhile: these wait with those that still wait for victims, or in line.
        if not joins_held(state, gang, tasks):
            state.evictions.release_holds(tasks)
        return
    limited = any(state.queues.limits.over_limit(task, 0, task.row) is not None for task in tasks)
    if limited or not all(_still_fits(state, task) for task in tasks):
        state.evictions.release_holds(tasks)
        return
    for task in tasks:
        task.become(TaskState.ASSUMED)
    yield from start(state, tasks, now)


def _still_fits(state: ClusterState, task: Task) -> bool:
    """Whether the place that was held is still good: meanwhile others may have bound there, or the node changed."""
    row, devices = task.row, task.devices
    mark = state.log.mark()
    state.placement.unassign(task)
    fits = task.ranking.fits_row(row)
    if fits and task.shape.spec.devices:
        state.placement.assign(task, row, devices)  # with what its claims can have now, which may be other devices
        state.log.commit()
    else:
        state.log.rollback(mark)
    return fits


def start_free_places(state: ClusterState, now: float, *, last: bool) -> Iterator[Transaction]:
    """Preemptors whose victims have not gone start in places that became free elsewhere. last: once nothing else is served."""
    for tasks in take_free_places(state, last=last):
        with state.isolation.guard("holds", tasks):
            for task in tasks:
                task.started = now
            yield from start(state, tasks, now)


def bring_back(state: ClusterState, now: float) -> Iterator[Transaction]:
    """A pod that replaces a moved one, or belongs to a job that resumes, gets the place that was reserved for it."""
    returning = state.in_flight.returning
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
    returning = state.in_flight.returning
    if unit.gang is not None:
        later = [each for each in unit.gang.later(state.services.now) if each.pod.uid in returning]
        for task in unit.tasks if later else ():
            other = next((each for each in later if each.shape is task.shape and each.queue == task.queue), None)
            if task.pod.uid not in returning and other is not None:
                later.remove(other)
                state.in_flight.pass_on(other.pod.uid, task.pod.uid)
    return [each for each in unit.tasks if each.pod.uid in returning]


def _still_to_come(state: ClusterState, unit: Unit, together: list[Task]) -> bool:
    """Whether the unit may yet get all places: others of its gang have places that they have not come to, or victims leave."""
    moves, gang, returning = state.moves, unit.gang, state.in_flight.returning
    if any(moves.awaited(returning[each.pod.uid]) for each in together):
        return True
    return gang is not None and (moves.awaits(gang) or state.suspended.awaits(gang.key))


def _place_anew(state: ClusterState, unit: Unit, together: list[Task], now: float) -> Iterator[Transaction]:
    """A gang needs more members than have places: it is placed as a whole before others may have these, or waits."""
    for each in together:
        state.moves.release(each.pod.uid)
    prepare(state, unit)
    with state.reserved.weighed(unit):
        placed = allocated(state, unit, beyond=goes_beyond(state, unit))
    if isinstance(placed, list):
        yield from begin(state, unit, placed, now)


def _take_reserved(state: ClusterState, task: Task, places: dict[str, GivenUp]) -> set[str] | None:
    """Give a task the place that was reserved for it; returns the pods that must leave it first, None: it cannot have it.

    The place is noted in `places` in any case.
    """
    kept, place, waits = state.moves.take(task.pod.uid)
    places[task.pod.uid] = place
    if place.row >= 0 and not state.placement.takes(task, place.row) and state.moves.may_succeed(task, kept.victim, place.row):
        task.instead_of = kept.victim
        waits.add(kept.victim)
    if place.row < 0 or not (task.instead_of or state.placement.takes(task, place.row)):
        return None
    if waits:
        state.placement.assign(task, place.row, place.devices)  # on no others: these are not free yet
    else:
        state.placement.place(task, place.row)
    return waits


def _place_returned(state: ClusterState, unit: Unit, together: list[Task], now: float) -> Iterator[Transaction]:
    placed: list[Task] = []
    places: dict[str, GivenUp] = {}
    awaited: set[str] = set()
    for each in together:
        waits = _take_reserved(state, each, places)
        if waits is not None:
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
    assume(state, unit, placed, now)
    if awaited:
        for each in placed:
            each.become(TaskState.HELD)
        state.in_flight.wait(sorted(awaited), placed)
    if not joins_held(state, unit.gang, placed) and not awaited:
        yield from start(state, placed, now)

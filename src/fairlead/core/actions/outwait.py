"""Held places: what becomes of them while their victims do not go.

A unit whose place is held takes free places elsewhere as soon as there are any, in its order among those that wait. When its
victims' time is over it is released and planned again; the victims count where they run, and none is chosen twice in a row.
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.actions.ahead import Ahead
from fairlead.core.allocation import allocate
from fairlead.core.model.instants import at_time
from fairlead.core.model.transactions import Binding, Evict, Refuse, Warn
from fairlead.core.pods.tasks import Task, TaskState, Unit, note_reported
from fairlead.core.pods.waits import awaited_by
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.in_flight import GivenUp


def release_late(state: ClusterState, now: float) -> Iterator[Warn]:
    """Units that wait for victims whose time is over wait in line again, and the victims are charged where they run."""
    departures = state.departures
    if state.network.asked:
        state.claims.release_nodes()
    departures.tidy(now)
    late = departures.late(now)
    for victim in late:
        departures.stays(victim, now)
    for victim in late:
        name = _subject(victim)
        if state.isolation.rests("departures", name):
            continue
        with state.isolation.guard("departures", name):
            since, _, deleted = departures.leaving[victim.pod.uid]
            if victim.state is TaskState.EVICTING:
                state.evictions.give_up(victim.pod.uid, now)
            what = "was terminating already and has been waited for since" if deleted else "was evicted at"
            message = (
                f"it {what} {at_time(since)}; it has not ended after {now - since:.0f} s (a finalizer, or a node that does "
                "not respond?): its resources count as used, and jobs that waited for it are planned elsewhere"
            )
            yield Warn((victim.ref,), "EvictionTimedOut", message)
    if late:
        departures.tidy(now)


def hurry(state: ClusterState, now: float) -> Iterator[Evict]:
    """Victims that were deleted with a longer time to end than an eviction may give get the shorter one."""
    for victim in state.departures.slow(now):
        with state.isolation.guard("departures", _subject(victim)):
            ((uid, grace),) = state.departures.graces([victim])
            message = (
                f"it was deleted with time to end until {at_time(victim.pod.leaves)}, longer than an eviction may take while "
                f"other jobs wait for its resources: its grace period is {grace} s in total"
            )
            reason = Reason(ReasonCode.WAITING_FOR_VICTIMS, message, {"grace": grace})
            yield Evict((Binding(victim.ref, victim.pod.node),), "", reason, ((uid, grace),))


def report_waiting(state: ClusterState, now: float) -> Iterator[Refuse]:
    """For pods that have waited for victims for some time it is reported for which: all members of a gang at once."""
    jobs: dict[str, list[Task]] = {}
    for task in state.departures.unreported(now):
        jobs.setdefault(task.job, []).append(task)
    for job, tasks in sorted(jobs.items()):
        with state.isolation.guard("notices", f"job/{job}"):
            reason = state.departures.reason(tasks)
            reported = [task for task in tasks if reason is not None and note_reported(task, reason)]
            if reported and reason is not None:
                gang = reported[0].gang
                yield Refuse(tuple(task.ref for task in reported), reason, gang.key if gang is not None else "")


def note_freed(state: ClusterState) -> None:
    """Before it is forgotten where something became free: held places may be had there."""
    if state.departures.leaving:
        state.departures.freed |= state.nodes.gained


def take_free_places(state: ClusterState, *, last: bool) -> Iterator[list[Task]]:
    """Units that wait for victims move to places that are free; yields the tasks of each, all placed.

    last: all other units were served already. Before that no unit that goes before such a unit is overtaken.
    """
    departures = state.departures
    if not departures.freed or not departures.leaving:
        return
    ahead = Ahead(state)
    for held in _held(state):
        tasks = [task for task in held if holds_place(state, task)]  # others went while what comes before them started
        if not tasks:
            continue
        moved: bool | None = None
        with state.isolation.guard("holds", tasks):
            moved = _moves(state, tasks, None if last else ahead)
        if moved:
            yield tasks
        if moved is not False:
            ahead.forget()  # events may have come, or something was set aside
    if last:
        departures.freed.clear()


def _moves(state: ClusterState, tasks: list[Task], ahead: Ahead | None) -> bool:
    """Whether held tasks are given free places instead; their victims are charged where they run then.

    ahead: what waits, which is not overtaken; None: all was served already.
    """
    if state.claims.held_with(tasks):
        return False  # the devices of their claims are those of victims
    lingering, awaited = state.in_flight.lingering, awaited_by(tasks)
    blocked = {lingering[uid] for uid in awaited if uid in lingering}
    short = {key for uid in awaited if uid in lingering for key in _takes(state, state.tasks[uid], lingering[uid])}
    moving = [task for task in tasks if task.row in blocked or not short.isdisjoint(_takes(state, task, task.row))]
    rows = [row for row in sorted(state.departures.freed) if moving and moving[0].ranking.fits_row(row)]
    if not rows or (ahead is not None and ahead.goes_before(_unit(moving), rows)) or not _would_fit(state, moving):
        return False
    if ahead is not None:
        ahead.forget()
    victims = sorted(awaited)
    places = [GivenUp(task.pod.spec, task.row, task.devices, tuple(sorted(task.waits_for))) for task in moving]
    for task in moving:
        state.placement.unassign(task)
    state.evictions.release_victims(tasks, victims, places)
    gang = tasks[0].gang
    # Where members that its gang needs have gone meanwhile the others wait in line, for these and for what is free.
    lacks = gang is not None and not tasks[0].pod.placeholder and gang.lacks_some(tasks)
    if lacks or not _allocate(state, moving):
        state.evictions.release_holds(tasks)
        return False
    for task in tasks:
        task.become(TaskState.ASSUMED)
        task.reported = None
    return True


def _takes(state: ClusterState, task: Task, row: int) -> set[tuple[str, str]]:
    """From which pools a task on a row takes of what their nodes share, and by which names."""
    return {key for key, _ in state.nodes.shared.parts(task.shape.spec.shared, row)}


def _held(state: ClusterState) -> list[list[Task]]:
    """The tasks whose places are held, gang by gang, the first in rank first."""
    jobs: dict[str, list[Task]] = {}
    for uid in sorted({uid for wait in state.in_flight.all_waits(state.in_flight.waits) for uid in wait.tasks}):
        task = state.tasks.get(uid)
        if task is not None and holds_place(state, task) and task.pod.ours:
            jobs.setdefault(task.job, []).append(task)
    return sorted(jobs.values(), key=lambda tasks: min(task.rank for task in tasks))


def holds_place(state: ClusterState, task: Task) -> bool:
    """Whether a place is held for a task that is still known: it may have been deleted, or released, since it was listed."""
    return state.tasks.get(task.pod.uid) is task and task.state is TaskState.HELD and task.row >= 0


def _would_fit(state: ClusterState, moving: list[Task]) -> bool:
    """Whether these fit elsewhere while their victims stay. The state is left as it was."""
    mark = state.log.mark()
    for task in moving:
        state.placement.unassign(task)
    victims = sorted(awaited_by(moving))
    for placeholder in state.leftovers.of(victims):
        state.placement.unassign(placeholder)
    for uid in victims:
        row = state.in_flight.lingering.get(uid)
        if row is not None:
            state.evictions.occupy(state.tasks[uid], row)
    fits = _allocate(state, moving)
    state.log.rollback(mark)
    for task in moving:
        task.become(TaskState.HELD)
    return fits


def _allocate(state: ClusterState, moving: list[Task]) -> bool:
    """Place these together; whether they have places."""
    unit = _unit(moving).adopt()
    try:
        return isinstance(allocate(state, unit), list)
    finally:
        unit.retire()


def _subject(victim: Task) -> str:
    return f"victim/{victim.pod.key}"


def _unit(tasks: list[Task]) -> Unit:
    return Unit(tuple(tasks), len(tasks), tasks[0].gang)

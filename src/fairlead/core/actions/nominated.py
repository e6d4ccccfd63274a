"""Nominated: places that were held when the scheduler ended are held again in the first pass of the next one.

While victims leave, the pods for which they were evicted have `nominatedNodeName`. Without it the first pass would know no
plan: others could take the place that the victims leave, and more would be evicted for the pods that lost it. Where no pod could
show that, for jobs that are suspended and for replacements that have not come, the scheduler before has recorded the place
(`kept_places`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.actions.assume import begin, hold
from fairlead.core.actions.leaving import put_back
from fairlead.core.allocation import best_row, closed_to
from fairlead.core.model.kept_places import HeldPlaces, KeptPlaces, MovedPlace
from fairlead.core.model.transactions import Transaction
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.pods.waits import awaited_by
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.search import Plan
from fairlead.core.preemption.trial import goes_beyond
from fairlead.core.queues.queue_node import pending_class_of
from fairlead.core.state import stand_ins
from fairlead.core.state.cluster import ClusterState


def hold_again(state: ClusterState, now: float) -> Iterator[Transaction]:
    """In the order of the line each unit whose needed members are nominated gets these places, once more terminating pods have
    left them; one that needs nothing to leave starts there at once, if it stays within its queue's share.

    What does not fit any more is served as all others are. Pods of kube-scheduler's rules are not held: those have rules of their
    own for nominated pods.
    """
    tried: dict[int, Unit] = {}
    while units := {id(unit): unit for unit in map(_unit_of, _nominated(state)) if unit is not None and id(unit) not in tried}:
        tried |= units
        for unit in sorted(units.values(), key=state.queues.waiting.order_key):
            with state.isolation.guard("holds", unit):
                yield from _hold(state, unit, now)
        state.settle(now)  # members beyond the minimum come to wait once the others have places
    for task in [task for there in state.pods.nominated.values() for task in there.values() if task.pod.placeholder]:
        state.pods.withdraw_nomination(task.pod.uid)  # no refusal does: it is written nowhere


def _nominated(state: ClusterState) -> list[Task]:
    tasks = [task for there in state.pods.nominated.values() for task in there.values()]
    return [task for task in tasks if task.state is TaskState.WAITING and task.pod.profile != KUBERNETES_PROFILE]


def _unit_of(task: Task) -> Unit | None:
    """The unit that a task waits in, if it may be served."""
    unit = task.unit
    return unit if unit is not None and unit.alive and pending_class_of(unit) is not None else None


def _hold(state: ClusterState, unit: Unit, now: float) -> Iterator[Transaction]:
    rows = {task: row for task in unit.tasks if (row := state.nodes.rows.get(task.pod.nominated)) is not None}
    spares = [task for task in unit.tasks if task.pod.spare]
    needed = [task for task in unit.tasks[: unit.need] if not task.pod.spare]
    if any(task not in rows for task in needed):
        return
    beyond, mark, removal, leaving = goes_beyond(state, unit), state.log.mark(), Removal(state), _leaving(state, now)
    with state.reserved.weighed(unit):
        found = all(_place(state, task, [rows[task]], removal, leaving) for task in needed)
        found = found and all(_place_spare(state, task, removal, leaving) for task in spares)
        others = [task for task in rows if task not in needed] if found else []
        placed = [*needed, *spares, *(task for task in others if _place(state, task, [rows[task]], removal, leaving))]
    plan = Plan([], placed, removal.places)
    taken = [task for there in leaving.values() for task in there if task.pod.uid in removal.places]
    awaited = [task for task in taken if not put_back(state, task, removal, plan)] if found else []
    if not found or (beyond and not awaited):
        state.log.rollback(mark)
        for task in placed:
            task.become(TaskState.WAITING)
        return
    state.log.commit()
    if not awaited:
        yield from begin(state, unit, placed, now)
        return
    hold(state, unit, Plan(awaited, placed, removal.places), now)


def _leaving(state: ClusterState, now: float) -> dict[int, list[Task]]:
    """What leaves each row, the smallest first: what one unit does not need is another's."""
    found: dict[int, list[Task]] = {}
    for task, _ in state.departures.leaving_soon(now):
        found.setdefault(task.row, []).append(task)
    for there in found.values():
        there.sort(key=lambda task: (task.shape.gpus * task.shape.gpu_milli, task.pod.uid))
    return found


def _place_spare(state: ClusterState, task: Task, removal: Removal, leaving: dict[int, list[Task]]) -> bool:
    """The same of a spare place, of which no pod names the node: where one is free, or else where pods leave."""
    free = best_row(state, task)
    rows = sorted(leaving, key=state.nodes.names.__getitem__)
    return _place(state, task, [free, *rows] if free >= 0 else rows, removal, leaving)


def _place(state: ClusterState, task: Task, rows: list[int], removal: Removal, leaving: dict[int, list[Task]]) -> bool:
    """A place on the first of these rows that takes a task once pods left it, of which no more are taken off than it needs."""
    if state.pairs.active:
        task.ranking.prepare()
    closed = closed_to(state, task)
    for row in rows:
        if closed is not None and closed[row]:
            continue
        mark, before = state.log.mark(), dict(removal.places)
        there = _victims(state, task, row, leaving)
        while not (fits := state.placement.takes(task, row)) and (victim := next(there, None)) is not None:
            if victim.pod.uid not in removal.places:
                removal.take([victim])
        if fits:
            state.log.commit()
            state.placement.place(task, row)
            if state.reserved.holds:
                state.reserved.take(task, row)
            task.become(TaskState.ASSUMED)
            return True
        state.log.rollback(mark)
        removal.places = before
    return False


def _victims(state: ClusterState, task: Task, row: int, leaving: dict[int, list[Task]]) -> Iterator[Task]:
    """What leaves a row, and then, while a limit keeps a task out, what leaves others."""
    yield from leaving.get(row, ())
    for other in sorted(leaving, key=state.nodes.names.__getitem__):
        for each in leaving[other] if other != row else ():
            if state.queues.limits.over_limit(task, row=row) is not None:
                yield each


def keep_moves_again(state: ClusterState, now: float) -> None:
    """New places of pods that are on their way out to run there are reserved again for their replacements."""
    replaced: set[str] = set()
    for uid in sorted(state.departures.going):
        task = state.tasks.get(uid)
        if task is None or not task.pod.moves_to or task.state not in (TaskState.BOUND, TaskState.EVICTING):
            continue
        with state.isolation.guard("moves"):
            if not state.moves.is_replaced(task, replaced):
                state.moves.keep_again(task, now)
    for recorded in state.places_before.take_moved():
        place = _by_our_clock(recorded, now)
        if place.uid not in state.tasks and now < place.until:
            with state.isolation.guard("moves"):
                _keep_for_gone(state, place, replaced)


def _by_our_clock(place: MovedPlace, now: float) -> MovedPlace:
    """A place is reserved for as long as was decided, also if the clock of the scheduler that wrote it was ahead."""
    ahead = max(0.0, place.since - now)
    return msgspec.structs.replace(place, since=place.since - ahead, until=place.until - ahead) if ahead else place


def _keep_for_gone(state: ClusterState, place: MovedPlace, replaced: set[str]) -> None:
    victim = Task(place.pod, state.bound.ranking(place.pod))
    try:
        victim.gang = state.gangs.get(f"{place.pod.namespace}/{place.pod.group}") if place.pod.group else None
        if not state.moves.is_replaced(victim, replaced, place.since):
            state.moves.keep_for_gone(victim, place.since, place.until)
    finally:
        state.shapes.release(victim.ranking)


# -- what the next scheduler must be given ---------------------------------------------------------


def kept_places(state: ClusterState) -> KeptPlaces:
    """The places that a scheduler which begins cannot see, as no pod shows them; those that are given up last at the end."""
    return KeptPlaces(tuple(state.moves.recorded()), tuple(_held(state)))


def _held(state: ClusterState) -> list[HeldPlaces]:
    """The places that are held for suspended jobs until others have left them."""
    waiting: dict[str, list[Task]] = {}
    for task in state.suspended.kept if state.in_flight.waits else ():
        if task.state is TaskState.HELD and task.gang is not None and task.gang.key in state.suspended.targets:
            waiting.setdefault(task.gang.key, []).append(task)
    found = []
    for key, tasks in waiting.items():
        leaving = (state.departures.leaving.get(uid) for uid in awaited_by(tasks))
        until = max((each.due for each in leaving if each is not None), default=0.0)
        places = stand_ins.places(tasks, state.nodes.names)
        found.append(HeldPlaces(key, state.suspended.targets[key].epoch, places, until))
    return sorted(found, key=lambda each: (each.until, each.group))

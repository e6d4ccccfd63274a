"""Reserve: the first of those that are blocked get nodes for later, so that no stream of small jobs starves a big one.

EASY backfilling with one reservation, conservative with more (Feitelson and Weil, 1998), on nodes instead of totals: what
runs is taken off in the order of its expected end until the unit fits; that is its expected start, and the rows where it
fits then are kept for it. Others may use them if they end before, or take only what is over. Units whose places depend
on other pods get none.
"""

from __future__ import annotations

import numpy as np

from fairlead.api.reasons import ReasonCode
from fairlead.core.model import WHOLE
from fairlead.core.nodes import Ints
from fairlead.core.queues import Room
from fairlead.core.reservations import Hold
from fairlead.core.shapes import Shape
from fairlead.core.state import ClusterState
from fairlead.core.tasks import Task, Unit

_LOOK_AGAIN = 120.0  # seconds; sooner than this no start is foretold
_REST = 300.0  # seconds before it is planned again for a unit that will never fit as things stand
_WAITS_FOR_ROOM = (ReasonCode.RESOURCES, ReasonCode.RESERVATION)


def renew(state: ClusterState, now: float) -> None:
    """Holds follow their units: gone when those start or leave, planned anew when they should have started and did not."""
    for hold in list(state.reserved.of_units()):
        unit = _still_waits(state, hold)
        if unit is None:
            state.reserved.drop(hold)
            continue
        hold.unit = unit
        if hold.stale or hold.start <= now:
            again = plan(state, unit, now)
            if again is None or again.rows != hold.rows:
                state.reserved.drop(hold)
            if again is not None:
                again.late = hold.late + (hold.start <= now)
                state.reserved.keep(again)


def _still_waits(state: ClusterState, hold: Hold) -> Unit | None:
    """The unit that waits for what is held; a gang may have been made a unit anew."""
    unit = hold.unit
    if unit is None or unit.alive:
        return unit
    if unit.gang is None:
        task = state.tasks.get(unit.tasks[0].pod.uid)
        return task.unit if task is not None and task.unit is not None and task.unit.alive else None
    if len(unit.gang.placed()) >= unit.gang.min_member:
        return None
    return next((task.unit for task in unit.gang.tasks.values() if task.unit is not None and task.unit.alive), None)


def reserve(state: ClusterState, now: float) -> None:
    """Keep nodes for the first units that wait in vain and have had patience enough, as many as the policy says."""
    table = state.reserved
    table.due = None
    if not _left(state) or not state.queues.parked:
        return
    waiting = []
    for room in state.queues.parked:
        unit = room.first()
        if unit is None or not _qualifies(state, room, unit):
            continue
        ripe = _ripe(state, room, unit)
        if ripe > now:
            table.due = ripe if table.due is None else min(table.due, ripe)
        else:
            waiting.append((state.queues.standing(room.queue), room.queue.place(unit), room, unit))
    for _, _, room, unit in sorted(waiting, key=lambda each: each[:2]):
        if not _left(state):
            break
        _keep(state, room, unit, now)


def reserve_for(state: ClusterState, unit: Unit, now: float) -> None:
    """The same for one unit that was just refused: whoever is served after it must leave it what it needs."""
    room = unit.room
    if room is not None and _left(state) and _qualifies(state, room, unit) and _ripe(state, room, unit) <= now:
        _keep(state, room, unit, now)


def _left(state: ClusterState) -> int:
    return state.policy.reservations - sum(1 for _ in state.reserved.of_units())


def _qualifies(state: ClusterState, room: Room, unit: Unit) -> bool:
    why = room.parked
    if why is None or unit.tasks[0].pod.surplus:
        return False
    return why.code in _WAITS_FOR_ROOM and name_of(unit) not in state.reserved.holds and can_be_planned(unit)


def _ripe(state: ClusterState, room: Room, unit: Unit) -> float:
    return max(unit.created + state.policy.patience, room.replans_at)


def _keep(state: ClusterState, room: Room, unit: Unit, now: float) -> None:
    hold = plan(state, unit, now)
    room.replans_at = now + _REST if hold is None else 0.0
    if hold is not None:
        state.reserved.keep(hold)


def name_of(unit: Unit) -> str:
    """What a unit's hold is called."""
    return f"gang/{unit.gang.key}" if unit.gang is not None else f"pod/{unit.tasks[0].pod.uid}"


def can_be_planned(unit: Unit) -> bool:
    """Whether its places can be foretold, and need to be: a single device is there as soon as anything ends."""
    core = unit.tasks[: unit.need]
    if len(core) == 1 and core[0].shape.gpus == 1:
        return False
    return not any(task.shape.relations or (task.shape.gpus and task.shape.gpu_milli < WHOLE) for task in core)


def plan(state: ClusterState, unit: Unit, now: float) -> Hold | None:
    """The earliest time at which a unit fits if all run as long as they are thought to, and where; None if it never does."""
    wanted: dict[int, list[Task]] = {}
    for task in unit.tasks[: unit.need]:
        wanted.setdefault(task.shape.number, []).append(task)
    ends = _ends(state, now)
    taken: set[int] = set(_kept_for_others(state, unit))
    rows: list[int] = []
    spare: dict[int, dict[int, int]] = {}
    start = now
    # Shapes that are hard to place first; each keeps rows of its own, which is more than needed where several are small.
    for tasks in sorted(wanted.values(), key=lambda each: (-each[0].shape.device_milli * len(each), each[0].shape.number)):
        found = _earliest(state, tasks[0].shape, len(tasks), ends, taken)
        if found is None:
            return None
        at, places = found
        start = max(start, at)
        rows += places
        taken.update(places)
        spare |= places
    return Hold(name_of(unit), rows, max(start, now + _LOOK_AGAIN), unit=unit, spare=spare)


def _ends(state: ClusterState, now: float) -> list[tuple[float, str, Task]]:
    """Whatever has a node, with when it is thought to end."""
    running = [task for row in state.nodes.rows.values() for task in state.nodes.pods[row].values()]
    return sorted((now + state.runtimes.remaining(task, now), task.pod.uid, task) for task in running)


def _kept_for_others(state: ClusterState, unit: Unit) -> list[int]:
    """Rows that are kept from a unit already."""
    return [row for hold in state.reserved.against(unit.tasks[0]) for row in hold.rows]


def _earliest(
    state: ClusterState, shape: Shape, needed: int, ends: list[tuple[float, str, Task]], taken: set[int]
) -> tuple[float, dict[int, dict[int, int]]] | None:
    """When so many pods of a shape fit, and on which rows, with what is left there."""
    nodes = state.nodes
    count = nodes.count
    usable = shape.admitted(slice(0, count)) & nodes.open[:count]
    usable[list(taken)] = False
    columns = [column for column, _ in shape.demand]
    free = {column: nodes.free[column][:count].copy() for column in columns}
    held: Ints = np.full(count, np.iinfo(np.int64).max, np.int64)
    for column, amount in shape.demand:
        held = np.minimum(held, np.maximum(free[column], 0) // amount)
    held[~usable] = 0
    total = int(held.sum())
    at = 0.0
    for end, _, task in ends:
        if total >= needed:
            break
        row = task.row
        if not usable[row]:
            continue
        at = end
        for column, amount in task.shape.demand:
            if column in free:
                free[column][row] += amount
        now_held = min(max(0, free[column].item(row)) // amount for column, amount in shape.demand)
        total += now_held - held.item(row)
        held[row] = now_held
    if total < needed:
        return None
    places: dict[int, dict[int, int]] = {}
    for row in np.argsort(-held, kind="stable").tolist():
        if needed <= 0:
            break
        here = min(needed, held.item(row))
        needed -= here
        places[row] = {column: free[column].item(row) - here * amount for column, amount in shape.demand}
    return at, places

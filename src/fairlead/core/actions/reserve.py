"""Reserve: the first of those that are blocked get nodes for later, so that no stream of small jobs starves a big one.

EASY backfilling with one reservation, conservative with more (Feitelson and Weil, 1998), on nodes instead of totals: what
runs is taken off in the order of its expected end until the unit fits; that is its expected start, and the rows where it
fits then are reserved for it. Others may use them if they end before, or take only what it does not need. Units with claims are
placed in a trial, since only that shows which devices they get (`foresee`). Units whose places depend on other pods get none.
"""

from __future__ import annotations

import math

import numpy as np

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import allocation
from fairlead.core.actions.foresee import kept_devices, left_on, take_off
from fairlead.core.gang_slices import divided
from fairlead.core.gang_topology import could_hold, near_of
from fairlead.core.model.arrays import Ints
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.amounts import asked_by, lacking
from fairlead.core.pods.filters.network_topology import depends_on_others
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.queues.attained import begun
from fairlead.core.queues.queue_node import PendingClass, pending_class_of
from fairlead.core.queues.reservations import Hold, key_of_job
from fairlead.core.queues.reserved_devices import ReservedDevices
from fairlead.core.queues.reserved_shared import ReservedShared, kept_shared
from fairlead.core.state.cluster import ClusterState

REPLAN_AFTER = 120.0  # seconds; no start is expected sooner than this
_CHECK = 300.0  # seconds after which something must have ended where starts are guessed
_VAIN = 1  # so many starts in a row may be missed while nothing that is in the way ends
REST = 300.0  # seconds before it is planned again for a unit that will never fit as things stand
_DOMAINS = 16  # of the network, in which places are planned for a gang that must be in one
_WAITS_FOR_CAPACITY = (
    *(ReasonCode.RESOURCES, ReasonCode.DEVICES, ReasonCode.TOPOLOGY, ReasonCode.RESERVATION),
    *(ReasonCode.DISRUPTION_BUDGET, ReasonCode.SHARED_RESOURCES),
)


def renew(state: ClusterState, now: float) -> None:
    """Holds follow their units: gone when those start or leave, planned anew when they should have started and did not."""
    for hold in list(state.reserved.of_units()):
        unit = still_waits(state, hold.unit)
        if unit is None:
            state.reserved.drop(hold)
            continue
        hold.unit = unit
        if hold.head is not None:
            continue
        if hold.stale or hold.start <= now or hold.check <= now:
            with state.isolation.guard("reserve", unit) as planned:
                missed = hold.start <= now or hold.check <= now
                lacking = _lacking(state, hold) if missed else hold.lacking
                vain = 0 if lacking < hold.lacking else hold.vain + missed
                if vain > _VAIN:
                    state.reserved.give_up(hold, now)
                    continue
                again = plan(state, unit, now)
                if again is None or again.rows != hold.rows:
                    state.reserved.drop(hold)
                if again is not None:
                    again.late, again.vain = hold.late + (hold.start <= now), vain
                    again.lacking = min(lacking, hold.lacking, again.lacking)
                    state.reserved.keep(again)
            if planned.failed:
                state.reserved.drop(hold)


def still_waits(state: ClusterState, unit: Unit | None) -> Unit | None:
    """A unit, if it waits; a gang may have been made a unit anew."""
    if unit is None or unit.alive:
        return unit
    if unit.gang is None:
        task = state.tasks.get(unit.tasks[0].pod.uid)
        return task.unit if task is not None and task.unit is not None and task.unit.alive else None
    if len(unit.gang.placed()) >= unit.gang.needed:
        return None
    return next((task.unit for task in unit.gang.tasks.values() if task.unit is not None and task.unit.alive), None)


def reserve(state: ClusterState, now: float) -> None:
    """Reserve nodes for the first units that have waited in vain for long enough, for as many as the policy allows."""
    table = state.reserved
    table.due = None
    if not state.queues.waiting.plannable or not _left(state):
        return
    waiting = []
    for pending_class in list(state.queues.waiting.plannable):
        with state.isolation.guard("reserve", pending_class):
            unit = pending_class.first()
            if unit is None or not _qualifies(state, pending_class, unit):
                continue
            due_from = _due_from(state, pending_class, unit)
            if due_from > now:
                table.due = due_from if table.due is None else min(table.due, due_from)
            else:
                waiting.append((state.queues.waiting.order_key(unit), pending_class, unit))
    for _, pending_class, unit in sorted(waiting, key=lambda each: each[0]):
        if not _left(state):
            break
        with state.isolation.guard("reserve", unit):
            _keep(state, pending_class, unit, now)


def end_claims(state: ClusterState, hold: Hold) -> None:
    """Something was reserved: what it is reserved against may reclaim less, so what was held back for that is tried again."""
    for pending_class in sorted(state.queues.waiting.held_back, key=PendingClass.order):
        other = pending_class.held_back
        if other is not None and other.alive and hold in state.reserved.against(other.tasks[0]):
            state.queues.waiting.requeue(pending_class)


def reserve_for(state: ClusterState, unit: Unit, now: float) -> None:
    """The same for one unit that was just refused: units that are served after it must leave it what it needs."""
    pending_class = pending_class_of(unit)
    if (
        pending_class is not None
        and _left(state)
        and _qualifies(state, pending_class, unit)
        and _due_from(state, pending_class, unit) <= now
    ):
        _keep(state, pending_class, unit, now)


def _left(state: ClusterState) -> int:
    return state.policy.reservations - sum(hold.head is None for hold in state.reserved.of_units())


def _qualifies(state: ClusterState, pending_class: PendingClass, unit: Unit) -> bool:
    why = pending_class.unschedulable
    if why is None or unit.tasks[0].pod.elastic:
        return False
    if why.code not in _WAITS_FOR_CAPACITY or name_of(unit) in state.reserved.holds or not can_be_planned(unit):
        return False
    stopped = any(each.stop() is not None for task in unit.tasks[: unit.need] for each in task.ranking.relations)
    return not stopped and state.queues.limits.over_limits(unit) is None


def _due_from(state: ClusterState, pending_class: PendingClass, unit: Unit) -> float:
    return max(unit.created + state.policy.patience, pending_class.replans_at, state.reserved.backoff_until(name_of(unit)))


def _keep(state: ClusterState, pending_class: PendingClass, unit: Unit, now: float) -> None:
    hold = plan(state, unit, now)
    pending_class.replans_at = now + REST if hold is None else 0.0
    if hold is not None:
        state.reserved.keep(hold)
        end_claims(state, hold)


def name_of(unit: Unit) -> str:
    """What a unit's hold is called."""
    return key_of_job(unit.gang, unit.tasks[0].pod.uid)


def may_qualify(unit: Unit, why: Reason) -> bool:
    """Whether capacity may be reserved for units like one that has no place, as far as that does not change while it has none."""
    return why.code in _WAITS_FOR_CAPACITY and can_be_planned(unit)


def can_be_planned(unit: Unit) -> bool:
    """Whether its places can be foretold, and need to be: a single device is there as soon as anything ends."""
    core = unit.tasks[: unit.need]
    first = core[0].shape
    if len(core) == 1 and first.gpus == 1 and not first.spec.shared and all(need.served for need in first.spec.devices):
        return False
    return not any(
        depends_on_others(task.ranking.relations) or (task.shape.gpus and task.shape.gpu_milli < WHOLE) for task in core
    )


def plan(state: ClusterState, unit: Unit, now: float) -> Hold | None:
    """The earliest time at which a unit fits if all run as long as they are thought to, and where; None if it never does."""
    near, ends = near_of(state, unit), _ends(state, now)
    if near is None or not near.required:
        return _plan(state, unit, now, ends)
    holds = []
    for rows in list(could_hold(state, unit.core(), near, _DOMAINS)):
        with state.network.within(near.gang, rows):
            hold = _plan(state, unit, now, ends)
        holds += [] if hold is None else [hold]
    return min(holds, key=lambda hold: hold.start, default=None)


def _plan(state: ClusterState, unit: Unit, now: float, ends: list[tuple[float, str, Task]]) -> Hold | None:
    """The same in the domain of the network in which its gang is tried, if it is to be in one."""
    if divided(unit) or any(task.shape.spec.devices or task.shape.spec.shared for task in unit.tasks[: unit.need]):
        return _plan_in_trial(state, unit, now)
    wanted: dict[int, list[Task]] = {}
    for task in unit.tasks[: unit.need]:
        wanted.setdefault(task.shape.number, []).append(task)
    taken: set[int] = set(_kept_for_others(state, unit))
    spare: dict[int, dict[int, int]] = {}
    start = now
    # Shapes that are hard to place first; each keeps rows of its own, which is more than needed where several are small.
    for tasks in sorted(wanted.values(), key=lambda each: (-each[0].shape.device_milli * len(each), each[0].shape.number)):
        found = _earliest(state, tasks[0].ranking, len(tasks), ends, taken)
        if found is None:
            return None
        at, places = found
        start = max(start, at)
        taken.update(places)
        spare |= places
    return _hold(state, unit, start, spare, now)


def _plan_in_trial(state: ClusterState, unit: Unit, now: float) -> Hold | None:
    """The same for a unit with claims, or that takes of what pools share: what it gets, and where, is known once it is placed."""
    log, ends = state.log, _ends(state, now)
    mark = log.mark()
    gone = take_off(state, ends, lambda: allocation.fits(state, unit))
    start = max(ends[gone - 1][0], now + REPLAN_AFTER) if gone else now
    for at, _, task in ends[gone:] if gone else ():
        if at > start:
            break
        state.placement.unassign(task)
    placed = allocation.allocate(state, unit.core()) if gone else None
    found = placed if isinstance(placed, list) else []
    spare, devices = {task.row: left_on(state, task.row) for task in found}, kept_devices(state, found)
    shared = kept_shared(state.nodes.shared, found)
    log.rollback(mark)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    return _hold(state, unit, start, spare, now, devices, shared) if gone and found else None


def _hold(
    state: ClusterState,
    unit: Unit,
    start: float,
    spare: dict[int, dict[int, int]],
    now: float,
    devices: ReservedDevices | None = None,
    shared: ReservedShared | None = None,
) -> Hold:
    """What is reserved for a unit on the rows of which so much is left."""
    rows = list(spare)
    queue = unit.tasks[0].queue
    running = [task for row in rows for task in state.nodes.pods[row].values()]
    own = bool(running) and all(task.pod.ours and task.queue == queue for task in running)
    guessed = any((total := state.runtimes.total(task)) is None or total <= now - begun(task) for task in running)
    check = now + _CHECK if guessed else math.inf
    own = own and devices is None and shared is None  # devices of the network, and what pools share, are kept elsewhere, too
    start = max(start, now + REPLAN_AFTER)
    hold = Hold(name_of(unit), rows, start, unit=unit, spare=spare, own=own, check=check, devices=devices, shared=shared)
    hold.lacking = _lacking(state, hold)
    return hold


def _lacking(state: ClusterState, hold: Hold) -> int:
    """What is missing on the rows that are reserved for a unit, in thousandths of what it asks for."""
    if hold.unit is None:
        return 0
    worst = max((each.missing() for each in (hold.devices, hold.shared) if each is not None), default=0)
    core, alloc = hold.unit.tasks[: hold.unit.need], state.nodes.alloc
    wanted = asked_by(core)
    for column, amount in (each for task in core for each in task.shape.offered):
        if all(alloc[column].item(row) for row in hold.rows):
            wanted[column] = wanted.get(column, 0) + amount
    for column, amount in lacking(state.nodes, hold.rows, wanted).items():
        worst = max(worst, 1000 * max(0, amount) // wanted[column] if wanted[column] else 0)
    return worst


def _ends(state: ClusterState, now: float) -> list[tuple[float, str, Task]]:
    """Whatever has a node, with when it is thought to end."""
    running = [task for row in state.nodes.rows.values() for task in state.nodes.pods[row].values()]
    return sorted((now + state.runtimes.remaining(task, now), task.pod.uid, task) for task in running)


def _kept_for_others(state: ClusterState, unit: Unit) -> list[int]:
    """Rows that are kept from a unit already."""
    return [row for hold in state.reserved.against(unit.tasks[0]) for row in hold.rows]


def _earliest(
    state: ClusterState, ranking: Ranking, needed: int, ends: list[tuple[float, str, Task]], taken: set[int]
) -> tuple[float, dict[int, dict[int, int]]] | None:
    """When so many pods of a shape fit, and on which rows, with what is left there."""
    nodes, demand = state.nodes, ranking.shape.demand
    count = nodes.count
    usable = ranking.admitted(slice(0, count)) & nodes.open[:count]
    usable[list(taken)] = False
    near = ranking.shape.spec.near
    if near is not None and (far := state.network.closed(near)) is not None:
        usable &= ~far
    columns = [column for column, _ in demand]
    free = {column: nodes.free[column][:count].copy() for column in columns}
    held: Ints = np.full(count, np.iinfo(np.int64).max, np.int64)
    for column, amount in demand:
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
        for column, amount in task.shape.taken:
            if column in free:
                free[column][row] += amount
        now_held = min(max(0, free[column].item(row)) // amount for column, amount in demand)
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
        places[row] = {column: free[column].item(row) - here * amount for column, amount in demand}
    return at, places

"""Heads: how long the first job of a queue is passed by others that started because it did not fit is bounded.

After `share_wait` seconds as the first that was refused in its queue, what it needs is kept for it by a hold, whatever
reservations there are: the rows on which it fits first if all runs as long as it is thought to, and, where a limit or the share
of a queue stops it, what that queue may hold. What runs is taken off under the undo log and the unit is placed in a trial, so
that parts of devices, relations, limits and gangs of unlike pods need no cases of their own. `Reservations` says who may go
before it all the same, and who may use what is kept until then.

A unit that nothing passes costs a comparison when it is refused; a hold costs a few trials and as many removals of pods as are in
its way, when it is made and when a start was missed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fairlead.api.reasons import ReasonCode
from fairlead.core.actions import allocate
from fairlead.core.actions.preempt import by_upstream
from fairlead.core.actions.reserve import CHECK, LOOK_AGAIN, REST, name_of, still_waits
from fairlead.core.model import WHOLE
from fairlead.core.queues import QueueNode, Room
from fairlead.core.reservations import HEADS, Head, Hold, Passed
from fairlead.core.services import begun
from fairlead.core.shares import HOPELESS
from fairlead.core.state import ClusterState
from fairlead.core.tasks import Task, TaskState, Unit

_MOST = 16
"""For so many heads something is kept at a time."""
_BOUND = (
    ReasonCode.RESERVATION,
    ReasonCode.DISRUPTION_BUDGET,
    ReasonCode.FAIR_SHARE,
    ReasonCode.LIMIT_EXCEEDED,
    ReasonCode.QUOTA_EXCEEDED,
)
_PAUSE, _LONGEST_PAUSE = 3, 86400.0
"""After a hold that came to nothing: so many times the setting, doubled each time, to so many seconds."""
_Ends = Sequence[tuple[float, Task]]


def refused(state: ClusterState, unit: Unit, now: float) -> None:
    """A unit has no place: if it is the first of its queue its wait begins; if that is over, what it needs is kept for it."""
    if not state.policy.share_wait or unit.room is None or not _may_be_held_for(state, unit.room, unit):
        return
    table, node, key = state.reserved, unit.room.queue, name_of(unit)
    known = _present(state, node) or _next_of(state, node, now)
    if known is not None and known.unit is not unit and node.place(known.unit) < node.place(unit):
        return
    table.heads[node.name] = key
    head = table.waits.setdefault(key, Head(unit, now))
    head.unit = unit
    if _due(state, head) <= now:
        _keep(state, head, now)


def keep(state: ClusterState, now: float) -> None:
    """Keep what they need for heads whose wait is over, the longest first; holds that are there follow what happened."""
    table = state.reserved
    table.head_due = None
    if not table.heads:
        return
    _renew(state, now)
    ripe: list[Head] = []
    for name in list(table.heads):
        with state.isolation.guard("reserve", name):
            head = _present(state, state.queues.queues[name]) or _next_of(state, state.queues.queues[name], now)
            if head is None:
                del table.heads[name]
            elif (due := _due(state, head)) > now:
                table.head_due = due if table.head_due is None else min(table.head_due, due)
            elif head.unit.room is not None and head.unit.room.parked is not None:
                ripe.append(head)
    for head in sorted(ripe, key=lambda each: (each.since, each.unit.created, each.unit.tasks[0].pod.uid)):
        with state.isolation.guard("reserve", head.unit):
            _keep(state, head, now)
    if len(table.waits) > 2 * len(table.heads) + _MOST:
        for key in [key for key, head in table.waits.items() if still_waits(state, head.unit) is None]:
            del table.waits[key]


def _may_be_held_for(state: ClusterState, room: Room, unit: Unit) -> bool:
    """Whether a unit that was refused could be placed once others have ended, and its wait is bounded."""
    why = room.parked
    if why is None or why.code in HOPELESS or not (why.is_capacity or why.code in _BOUND):
        return False
    if any(amount > state.queues.total(name) for name, amount in room.core.items()):
        return False  # more than there is
    return not (unit.tasks[0].pod.surplus or unit.tasks[0].beyond or by_upstream(unit))


def _present(state: ClusterState, node: QueueNode) -> Head | None:
    """The head of a queue as far as it is known, if it still waits; a gang may have been made a unit anew."""
    table = state.reserved
    key = table.heads.get(node.name, "")
    head = table.waits.get(key)
    if head is None:
        return None
    unit = still_waits(state, head.unit)
    if unit is None or unit.room is None or unit.room.queue is not node:
        table.waits.pop(key, None)
        return None
    head.unit = unit
    return head


def _next_of(state: ClusterState, node: QueueNode, now: float) -> Head | None:
    """Of those that were refused in a queue before, the first is its head now."""
    table = state.reserved
    waiting = [unit for room in node.rooms.values() if (unit := room.first()) is not None and _may_be_held_for(state, room, unit)]
    if not waiting:
        return None
    unit = min(waiting, key=node.place)
    table.heads[node.name] = key = name_of(unit)
    head = table.waits.setdefault(key, Head(unit, now))
    head.unit = unit
    return head


def _due(state: ClusterState, head: Head) -> float:
    """From when on something may be kept for a head."""
    return max(head.since + state.policy.share_wait, head.again, state.reserved.rests_until(HEADS + name_of(head.unit)))


def _keep(state: ClusterState, head: Head, now: float) -> None:
    table, key = state.reserved, name_of(head.unit)
    head.unit.overdue = True
    known = table.holds.get(key)
    if known is not None and known.head is not None:
        return
    if sum(hold.head is not None for hold in table.of_units()) >= _MOST:
        return
    hold = plan(state, head.unit, now)
    head.again = now + REST if hold is None else 0.0
    if hold is not None:
        table.keep(hold)
        table.version += 1


def _renew(state: ClusterState, now: float) -> None:
    """Holds for heads follow their units; a start that was missed is put off, on the same rows if they will do."""
    for hold in [hold for hold in state.reserved.of_units() if hold.head is not None]:
        unit = still_waits(state, hold.unit)
        if unit is None:
            state.reserved.drop(hold)
            continue
        hold.unit = unit
        unit.overdue = True
        if hold.stale or hold.start <= now or hold.check <= now:
            with state.isolation.guard("reserve", unit) as planned:
                _put_off(state, unit, hold, now)
            if planned.failed:
                state.reserved.drop(hold)


def _put_off(state: ClusterState, unit: Unit, hold: Hold, now: float) -> None:
    table, head = state.reserved, hold.head
    if head is None or unit.room is None:
        return
    if any((task := state.tasks.get(uid)) is None or task.row < 0 for uid in head.blockers):
        head.moved_on = now
    if now > head.moved_on + _patience(state, head, now):
        table.give_up(hold, now, _PAUSE * state.policy.share_wait, _LONGEST_PAUSE)
        return
    if not hold.stale and now < hold.start:
        hold.check = now + CHECK  # who was let in ends by then, so it is not put off
        return
    if unit.room.parked is None:
        return  # it is tried in this pass
    again = (None if hold.stale else plan(state, unit, now, hold)) or plan(state, unit, now)
    if again is None or again.head is None:
        table.drop(hold)
        return
    again.late = hold.late + 1  # whatever ends there from now on is left to it
    again.head.moved_on = head.moved_on
    table.keep(again)


def _patience(state: ClusterState, head: Passed, now: float) -> float:
    """For how long nothing in the way of a head may end before it is taken to be endless, in seconds."""
    limits = [
        limit - (now - begun(task))
        for uid in head.blockers
        if (task := state.tasks.get(uid)) is not None and math.isfinite(limit := state.services.time_limit(task))
    ]
    return max(state.policy.share_wait, state.runtimes.longest(), now - head.moved_on + max(limits, default=-math.inf))


# -- planning ----------------------------------------------------------------------------------


def plan(state: ClusterState, unit: Unit, now: float, before: Hold | None = None) -> Hold | None:
    """What is to be kept for a unit, and until when; None if it would not start were all gone that runs.

    before: what was kept for it so far: only what stands in its way there is taken off.
    """
    log = state.log
    head = Passed(state.queues.asked_together(unit.tasks[: unit.need]), moved_on=now)
    path = state.queues.queues[unit.tasks[0].queue].path
    full = [node for node in path if _is_full(state, node, head)]
    ends = _in_the_way(state, now, before, full)
    mark = log.mark()
    gone = _take_off(state, unit, ends, head)
    if gone is None:
        log.rollback(mark)
        return None
    placed = _try(state, unit, head) or []
    rows = sorted({task.row for task in placed})
    spare = {row: _left_on(state, row) for row in rows}
    log.rollback(mark)
    _wait_on(unit)
    off = ends[:gone]
    queues = state.queues.queues
    head.blockers = frozenset(
        task.pod.uid
        for _, task in off
        if task.row in spare or (task.charged and any(node in queues[task.queue].path for node in full))
    )
    start = max(off[-1][0] if off else now, now + LOOK_AGAIN)
    return Hold(name_of(unit), rows, start, unit=unit, spare=spare, check=now + CHECK, head=head)


def _is_full(state: ClusterState, node: QueueNode, head: Passed) -> bool:
    """Whether a queue may not hold a head besides what it holds."""
    most = state.queues.bounds(node, head.demand)
    return any(node.used.get(name, 0) + amount > most.get(name, math.inf) for name, amount in head.demand)


def _in_the_way(state: ClusterState, now: float, before: Hold | None, full: Sequence[QueueNode]) -> _Ends:
    """What has a node, in the order in which it is thought to end. before: only what is kept then, and queues that are full."""
    nodes, queues = state.nodes, state.queues.queues.values()
    rows = nodes.rows.values() if before is None else before.rows
    found = {task.pod.uid: task for row in rows for task in nodes.pods[row].values()}
    if before is not None and full:
        below = [node for node in queues if any(each in node.path for each in full)]
        found |= {task.pod.uid: task for node in below for task in node.charged if task.row >= 0}
    timed = sorted((now + state.runtimes.remaining(task, now), task.pod.uid, task) for task in found.values())
    return [(at, task) for at, _, task in timed]


def _take_off(state: ClusterState, unit: Unit, ends: _Ends, head: Passed) -> int | None:
    """How many must have ended at least until a unit starts; they are off their rows afterwards. None: it never does."""
    if _starts(state, unit, head):
        return 0
    log, low, step = state.log, 0, 1
    while True:
        if low == len(ends):
            return None
        high = min(len(ends), low + step)
        inner = log.mark()
        _unassign(state, ends[low:high])
        if _starts(state, unit, head):
            log.rollback(inner)
            break
        log.commit()
        low, step = high, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        inner = log.mark()
        _unassign(state, ends[low:middle])
        if _starts(state, unit, head):
            log.rollback(inner)
            high = middle
        else:
            log.commit()
            low = middle
    _unassign(state, ends[low:high])
    return high


def _unassign(state: ClusterState, ends: _Ends) -> None:
    for _, task in ends:
        state.unassign(task)


def _starts(state: ClusterState, unit: Unit, head: Passed) -> bool:
    mark = state.log.mark()
    placed = _try(state, unit, head)
    state.log.rollback(mark)
    _wait_on(unit)
    return placed is not None


def _try(state: ClusterState, unit: Unit, head: Passed) -> list[Task] | None:
    """Where a unit is placed as things stand, within its queue's headroom; None, with what was tried still there, if not."""
    state.shapes.refresh()
    placed = allocate.allocate(state, unit)
    if not isinstance(placed, list):
        return None
    for node in state.queues.queues[unit.tasks[0].queue].path:
        most = state.queues.bounds(node, head.demand)
        if any(node.used.get(name, 0) > most.get(name, math.inf) for name, _ in head.demand):
            return None
    return placed


def _wait_on(unit: Unit) -> None:
    for task in unit.tasks:
        task.state = TaskState.WAITING


def _left_on(state: ClusterState, row: int) -> dict[int, int]:
    """What is free on a row, by column; of devices those of which nothing is given out."""
    nodes = state.nodes
    left = {column: free.item(row) for column, free in enumerate(nodes.free)}
    whole = sum(each == WHOLE for each in nodes.devices.states[nodes.device.item(row)])
    for name in nodes.gpu_resources:
        column = nodes.resources.get(name)
        if column is not None and left[column] > 0:
            left[column] = min(left[column], whole)
    return left

"""Preempt: make room for a unit by evicting lower-priority work of the same queue.

Everything is tried on the state itself under the undo log: victims are taken off, the unit is
placed, and victims are put back for as long as the unit still fits, most valuable first. Only
then is anyone evicted, so nobody is evicted in vain. A gang falls as a whole once it would drop
below its minimum; its surplus members fall one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlead.api.names import KUBERNETES_PROFILE
from fairlead.core.actions import allocate
from fairlead.core.state import ClusterState
from fairlead.core.tasks import Task, TaskState, Unit

_CANDIDATES = 100
"""How many nodes are examined exactly for a single pod, cheapest-looking first (kube-scheduler's bound)."""

_SKEW = 1 << 31  # makes every priority positive, as kube-scheduler does when it sums them

Victim = tuple[Task, ...]
"""Tasks that only fall together."""


class Plan(NamedTuple):
    """Who falls and who is placed, both already so in the state.

    places: victim's UID -> the row and devices it still occupies until it is gone.
    """

    victims: list[Task]
    placed: list[Task]
    places: dict[str, tuple[int, tuple[int, ...]]]


def preempt(state: ClusterState, unit: Unit) -> Plan | None:
    """Room for a unit by evicting others; None changes nothing."""
    if not state.policy.preempt or unit.tasks[0].pod.never_preempts:
        return None
    if by_upstream(unit):
        return _as_upstream(state, unit)
    victims = _eligible(state, unit)
    if not victims:
        return None
    if len(unit.tasks) == 1:
        return _for_one(state, unit, victims)
    return _for_gang(state, unit, victims)


def by_upstream(unit: Unit) -> bool:
    """Whether a unit makes room as kube-scheduler does: anybody's pods of lower priority, on one node. Gangs do not."""
    return len(unit.tasks) == 1 and unit.tasks[0].pod.profile == KUBERNETES_PROFILE


def _as_upstream(state: ClusterState, unit: Unit) -> Plan | None:
    task = unit.tasks[0]
    if _waits_for_victims(state, task) or state.queues.over_limit(task.queue, task.shape.charge) is not None:
        return None
    choice = state.candidates.of(task.shape, unit.priority).best()
    if choice is None:
        return None
    fallen = _Fallen(state)
    for victim in choice.victims:
        fallen.take((victim,))
    state.shapes.refresh()
    state.assign(task, choice.row, task.shape.strategy.pick(task.shape, choice.row))
    return Plan(choice.victims, [task], fallen.places)


def _waits_for_victims(state: ClusterState, task: Task) -> bool:
    """Whether victims of an earlier preemption for this pod, perhaps before a restart, are still leaving its node."""
    row = state.nodes.rows.get(task.pod.nominated)
    return row is not None and any(
        each.pod.priority < task.pod.priority and each.pod.terminating and each.pod.preempted
        for each in state.nodes.pods[row].values()
    )


def _eligible(state: ClusterState, unit: Unit) -> list[Victim]:
    """What may fall: running, of this queue, strictly lower in priority; least valuable first."""
    queue, priority = state.queues.queues[unit.tasks[0].queue], unit.priority
    if not any(count and each < priority for each, count in queue.priorities.items()):
        return []
    seen: set[str] = set()
    victims: list[Victim] = []
    for task in queue.placed.values():
        if not may_fall(task, priority):
            continue
        gang = task.gang
        if gang is None or gang.group is None:
            victims.append((task,))
        elif gang.key not in seen:
            seen.add(gang.key)
            victims += _of_gang(gang.placed(), gang.min_member, priority, unit)
    victims.sort(key=_value)
    return victims


def may_fall(task: Task, priority: int) -> bool:
    """Whether a placed task may be evicted for work of a class priority in its queue."""
    return task.state is TaskState.BOUND and task.row >= 0 and task.pod.priority < priority and not task.pod.terminating


def holds_victims(state: ClusterState, unit: Unit, row: int) -> bool:
    """Whether somebody on a row may be evicted for a unit."""
    return bool(_falling(state, unit, row))


def _falling(state: ClusterState, unit: Unit, row: int) -> list[Task]:
    queue = unit.tasks[0].queue
    return [task for task in state.nodes.pods[row].values() if task.queue == queue and may_fall(task, unit.priority)]


def could_make_room(state: ClusterState, unit: Unit, row: int) -> bool:
    """Whether one member of a unit could fit a row, were everybody gone from it who may be evicted.

    Exact by resource, blind to devices and gangs: a cheap test of whether a full search is worth while.
    """
    if by_upstream(unit):
        shape = unit.tasks[0].shape
        return shape.fits_row(row) or state.candidates.of(shape, unit.priority).least(row) is not None
    freed: dict[int, int] = {}
    for task in _falling(state, unit, row):
        for column, amount in task.shape.demand:
            freed[column] = freed.get(column, 0) + amount
    return any(
        all(state.nodes.free[column].item(row) + freed.get(column, 0) >= amount for column, amount in shape.demand)
        and bool(shape.admitted(slice(row, row + 1))[0])
        for shape in {task.shape.number: task.shape for task in unit.tasks}.values()
    )


def _of_gang(members: list[Task], min_member: int, priority: int, unit: Unit) -> list[Victim]:
    if members and members[0].gang is unit.gang:
        return []
    if any(task.state is not TaskState.BOUND or task.row < 0 for task in members):
        return []  # still being placed: its fate is open
    members = sorted(members, key=lambda task: (task.pod.priority, -task.pod.created, task.pod.key))
    surplus = members[: max(0, len(members) - min_member)]
    core = tuple(members[len(surplus) :])
    result: list[Victim] = [(task,) for task in surplus if task.pod.priority < priority]
    # The core counts as dearer than the surplus: `_value` sees its size.
    if core and all(task.pod.priority < priority for task in core):
        result.append(core)
    return result


def _value(victim: Victim) -> tuple[int, int, float, str]:
    """Order of falling: lowest priority, then fewest pods, then latest started, then name."""
    return (
        max(task.pod.priority for task in victim),
        len(victim),
        -max(task.pod.created for task in victim),
        min(task.pod.key for task in victim),
    )


class _Fallen:
    """Victims taken off their rows, with where they were, so that they can be put back."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.places: dict[str, tuple[int, tuple[int, ...]]] = {}

    def take(self, victim: Victim) -> None:
        for task in victim:
            self.places[task.pod.uid] = (task.row, task.devices)
            self.state.unassign(task)

    def put_back(self, victim: Victim) -> None:
        for task in victim:
            self.state.assign(task, *self.places.pop(task.pod.uid))


def _for_one(state: ClusterState, unit: Unit, victims: Sequence[Victim]) -> Plan | None:
    """The cheapest node for a single pod: each candidate is solved exactly, then compared."""
    task = unit.tasks[0]
    by_row: dict[int, list[Victim]] = {}
    for victim in victims:
        for row in {each.row for each in victim}:
            by_row.setdefault(row, []).append(victim)
    admitted = task.shape.admitted(slice(0, state.nodes.count))
    rows = [row for row in by_row if admitted[row] and state.nodes.open[row]]
    rows.sort(key=lambda row: (_value(by_row[row][0]), state.nodes.names[row]))
    best: tuple[tuple[object, ...], int, list[Victim]] | None = None
    examined = 0
    for row in rows:
        if examined >= max(_CANDIDATES, len(rows) // 10):
            break
        mark = state.log.mark()
        chosen = _least_on(state, unit, row, by_row[row])
        state.log.rollback(mark)
        if chosen is None:
            continue
        examined += 1
        cost = (*_cost(chosen), state.nodes.names[row])
        if best is None or cost < best[0]:
            best = (cost, row, chosen)
    if best is None:
        # What its queue holds elsewhere may stand in its way, too: where there is a place, or could be but for the limit.
        limited = state.queues.over_limit(task.queue, task.shape.charge) is not None
        somewhere = limited and (task.shape.best() >= 0 or any(_could_fit(state, unit, row, by_row[row]) for row in rows))
        return _for_gang(state, unit, victims) if somewhere else None
    _, row, chosen = best
    fallen = _Fallen(state)
    for victim in chosen:
        fallen.take(victim)
    state.shapes.refresh()
    state.assign(task, row, task.shape.strategy.pick(task.shape, row))
    return Plan([each for victim in chosen for each in victim], [task], fallen.places)


def _could_fit(state: ClusterState, unit: Unit, row: int, victims: Sequence[Victim]) -> bool:
    """Whether a single pod fits a row without all of these victims, whatever limits say."""
    mark = state.log.mark()
    fallen = _Fallen(state)
    for victim in victims:
        fallen.take(victim)
    fits = unit.tasks[0].shape.fits_row(row)
    state.log.rollback(mark)
    return fits


def _least_on(state: ClusterState, unit: Unit, row: int, victims: Sequence[Victim]) -> list[Victim] | None:
    """The victims that must fall on one row, or None if even all of them are not enough."""
    task = unit.tasks[0]
    fallen = _Fallen(state)
    taken: list[Victim] = []

    def fits() -> bool:
        return task.shape.fits_row(row) and state.queues.over_limit(task.queue, task.shape.charge) is None

    for victim in victims:
        fallen.take(victim)
        taken.append(victim)
        if fits():
            break
    else:
        return None
    return _reprieve(fallen, taken, fits)


def _for_gang(state: ClusterState, unit: Unit, victims: Sequence[Victim]) -> Plan | None:
    """Least threshold of victims that makes room for the gang, then put back whoever need not fall."""
    core = Unit(unit.tasks[: unit.need], unit.need, unit.gang)
    for task in unit.tasks:
        task.unit = unit

    def fits() -> bool:
        mark = state.log.mark()
        placed = isinstance(allocate.allocate(state, core), list)
        for task in core.tasks:
            task.state = TaskState.WAITING
        state.log.rollback(mark)
        return placed

    mark = state.log.mark()
    low, high = 1, len(victims)
    while low <= high:
        middle = (low + high) // 2
        trial = state.log.mark()
        fallen = _Fallen(state)
        for victim in victims[:middle]:
            fallen.take(victim)
        enough = fits()
        state.log.rollback(trial)
        if enough:
            high = middle - 1
        else:
            low = middle + 1
    if low > len(victims):
        state.log.rollback(mark)
        return None
    fallen = _Fallen(state)
    for victim in victims[:low]:
        fallen.take(victim)
    chosen = _reprieve(fallen, list(victims[:low]), fits)
    placed = allocate.allocate(state, core)
    if not isinstance(placed, list):  # cannot be: fits() held a moment ago
        state.log.rollback(mark)
        return None
    state.log.commit()
    for each in chosen:
        for task in each:
            state.nodes.gained.add(fallen.places[task.pod.uid][0])
    return Plan([task for victim in chosen for task in victim], placed, fallen.places)


def _reprieve(fallen: _Fallen, taken: list[Victim], fits: Callable[[], bool]) -> list[Victim]:
    """Put victims back, most valuable first, for as long as the beneficiary still fits."""
    kept: list[Victim] = []
    for victim in reversed(taken):
        places = {task.pod.uid: fallen.places[task.pod.uid] for task in victim}
        fallen.put_back(victim)
        if not fits():
            fallen.take(victim)
            fallen.places.update(places)
            kept.append(victim)
    kept.reverse()
    return kept


def _cost(victims: Sequence[Victim]) -> tuple[object, ...]:
    """Lowest top priority, least sum of priorities, fewest pods, latest start."""
    tasks = [task for victim in victims for task in victim]
    top = max(task.pod.priority for task in tasks)
    return (
        top,
        sum(task.pod.priority + _SKEW for task in tasks),
        len(tasks),
        -min(task.pod.created for task in tasks if task.pod.priority == top),
    )

"""Consolidate: where enough is free but fragmented, move the fewest pods so that whole places are free.

Members that are alike and ask for whole devices are counted: a row gives one more place for them if the pods that make up what
it lacks go elsewhere, to fragments that are too small for the unit anyway. Rows that lack least give first; fragments that waste
least take first. Each exchange is tried on the state under the undo log, and whatever does not gain a place is taken back. For
parts of devices, for gangs with unlike members, and where no exchange of that kind helps, moves are searched for
(`rearrange`); gangs that move as a whole only if no single pods do. No pod is moved in vain, and a pod that
is moved has a new place before it goes.

No pod moves for less than is lost with it. Only pods with a controller are moved, of no higher priority than the unit, whose
class lets them be preempted and moved, and whose disruption budgets allow it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.core import allocation
from fairlead.core.gang_topology import near_of
from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.causes import NO_CAUSE, Cause
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.shared_resources import wanted_by
from fairlead.core.pods.amounts import asked_by, covers, lacking
from fairlead.core.pods.filters.network_topology import depends_on_others
from fairlead.core.pods.tasks import Placeholder, Task, TaskState, Unit, rankings_of
from fairlead.core.preemption.claim_bounds import enough_devices
from fairlead.core.preemption.device_bounds import could_be_free
from fairlead.core.preemption.movers import Movers
from fairlead.core.preemption.rearrange import Rearrangement, closed_to_moved
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.search import Plan
from fairlead.core.preemption.worth import Worth
from fairlead.core.state.cluster import ClusterState

Places = Mapping[str, tuple[int, tuple[int, ...]]]
"""Victim's UID -> its row and devices."""

_NOWHERE: Places = {}


class Moved(NamedTuple):
    """A plan in which victims have new places: victim's UID -> placeholder."""

    plan: Plan
    placeholders: dict[str, Placeholder]


def consolidate(state: ClusterState, unit: Unit, now: float) -> Moved | None:
    """A place for a unit by moving others; None changes nothing."""
    core = unit.core()
    if not can_be_placed(state, core) or not _enough(state, core):
        return None
    whole = any(service.moves_whole for service in state.services.classes.values())
    if not could_be_free(state, Movers(state, unit, whole=whole), core.tasks):
        return None
    worth, first = Worth(state, now, work_waited(unit, now), gpus_of(core.tasks), later=True), core.tasks[0]
    alike = all(task.shape is first.shape for task in core.tasks) and first.shape.gpu_milli == WHOLE
    alike = alike and not first.shape.spec.devices
    found = _by_counting(state, core, unit, worth) if alike else None
    found = found or _by_search(state, core, unit, worth, whole=False)
    if found is None and whole:
        found = _by_search(state, core, unit, worth, whole=True)
    return found


def can_be_placed(state: ClusterState, core: Unit) -> bool:
    """Whether a unit's places depend on nothing but free amounts, devices and its own gang, and no limit is in its way."""
    if state.pods.nominated or any(depends_on_others(ranking.relations) for ranking in rankings_of(core.tasks)):
        return False
    first = core.tasks[0]
    if any(task.queue != first.queue for task in core.tasks):
        return False
    if state.nodes.shared.lacks(wanted_by(task.shape.spec.shared for task in core.tasks)):
        return False  # no moves between nodes of a pool relieve that
    return state.queues.limits.over_limits(core) is None and state.queues.limits.over_limit(first) is None


def usable_by(state: ClusterState, core: Unit) -> Mask:
    """For each row whether some member may have it, whatever runs there."""
    rows = slice(0, state.nodes.count)
    usable = np.zeros(state.nodes.count, np.bool_)
    for task in {task.shape.number: task for task in core.tasks}.values():
        admitted = task.ranking.admitted(rows)
        closed = allocation.closed_to(state, task)
        usable |= admitted if closed is None else admitted & ~closed
    return usable & state.nodes.open[rows]


def devices_free(state: ClusterState, usable: Mask) -> int:
    """What is free of devices on some rows, in milli."""
    total = state.nodes.devices.total[state.nodes.device[np.flatnonzero(usable)]]
    return int(np.maximum(total, 0).sum())


def _enough(state: ClusterState, core: Unit) -> bool:
    """Whether what is free would do if it were in one piece."""
    wanted = devices_of(core.tasks)
    # For a gang in one domain others may move to all other domains.
    usable = usable_by(state, core) if near_of(state, core) is None else state.nodes.open[: state.nodes.count]
    if wanted and devices_free(state, usable) < wanted:
        return False
    with_claims = [task for task in core.tasks if task.shape.spec.devices]
    if with_claims and not enough_devices(state, with_claims):
        return False
    nodes, rows = state.nodes, np.flatnonzero(usable)
    return covers({}, lacking(nodes, rows, asked_by(core.tasks)))


def work_waited(unit: Unit, now: float) -> float:
    """Device-seconds that a unit could have done while it waited."""
    return (now - unit.created) * gpus_of(unit.tasks[: unit.need]) / WHOLE


def devices_of(tasks: Sequence[Task]) -> int:
    """What tasks ask for of devices, in milli."""
    return sum(task.shape.device_milli for task in tasks)


def gpus_of(tasks: Sequence[Task]) -> int:
    """The same with what they ask for by claims."""
    return sum(task.shape.device_milli + task.shape.claimed_milli for task in tasks)


def _by_search(state: ClusterState, core: Unit, unit: Unit, worth: Worth, *, whole: bool) -> Moved | None:
    search = Rearrangement(state, Movers(state, unit, whole=whole), worth)
    return rearranged(search, core) if search.place_with_moves(core.tasks) else None


def rearranged(
    search: Rearrangement, core: Unit, down: Sequence[Task] = (), places: Places = _NOWHERE, why: Cause = NO_CAUSE
) -> Moved:
    """The plan that a search found; the unit's members are where they are to be.

    down: who is evicted besides, with the places where they still are; why: the reason.
    """
    for task in core.tasks:
        task.become(TaskState.ASSUMED)
    plan = Plan([*down, *search.moved], list(core.tasks), {**places, **search.removal.places}, why)
    return Moved(plan, search.placeholders)


def _by_counting(state: ClusterState, core: Unit, unit: Unit, worth: Worth) -> Moved | None:
    mark = state.log.mark()
    search = _Search(state, core.tasks[0], unit)
    placed = None
    if search.gain(unit.need) and worth.of(search.moved):
        outcome = allocation.allocate(state, core)
        placed = outcome if isinstance(outcome, list) else None
    worth.note()
    if placed is None:
        state.log.rollback(mark)
        for task in core.tasks:
            task.become(TaskState.WAITING)
        for placeholder in search.placeholders.values():
            state.shapes.release(placeholder.ranking)
        return None
    state.log.commit()
    return Moved(Plan(search.moved, placed, search.removal.places), search.placeholders)


class _Search:
    """Gains places for pods like one."""

    def __init__(self, state: ClusterState, first: Task, unit: Unit) -> None:
        self.state, self.first = state, first
        self.movers = Movers(state, unit)
        self.guard = state.budgets.guard() if state.budgets.may_block else None
        self.ranking = first.ranking
        self._column = self._scarce()
        self._size = max(1, self._asked(first))
        self.removal = Removal(state)
        self.moved: list[Task] = []
        self.placeholders: dict[str, Placeholder] = {}
        self.givers: set[int] = set()

    def gain(self, needed: int) -> bool:
        """Move pods until so many places are there; False if that is not possible."""
        state, ranking = self.state, self.ranking
        held = ranking.counts()
        closed = allocation.closed_to(state, self.first)
        usable = ranking.admitted(slice(0, state.nodes.count)) & state.nodes.open[: state.nodes.count]
        if closed is not None:
            usable &= ~closed
        held = np.where(usable, held, 0)
        places = int(held.sum())
        if places >= needed:
            return False
        heap = self._by_lack(np.flatnonzero(usable))
        while places < needed and heap:
            _, _, row = heappop(heap)
            if self._give(row):
                places += 1
                heappush(heap, (self._lacks(row), state.nodes.names[row], row))
        return places >= needed

    def _by_lack(self, rows: npt.NDArray[np.intp]) -> list[tuple[tuple[int, int], str, int]]:
        """Rows as a heap: (what it lacks, as `_lacks` counts it; name; row)."""
        free: Ints = np.maximum(self.state.nodes.free[self._column][rows], 0)
        lacks, names = self._size - free % self._size, self.state.nodes.names
        heap = [
            ((lack, -left), names[row], row) for lack, left, row in zip(lacks.tolist(), free.tolist(), rows.tolist(), strict=True)
        ]
        heapify(heap)
        return heap

    def _lacks(self, row: int) -> tuple[int, int]:
        """What a row lacks for one more place: of devices, else of CPU."""
        free, size = self._free(row), self._size
        lacks = size - free % size
        return lacks, -free

    def _scarce(self) -> int:
        """The column that is scarce: that of devices, else of CPU."""
        nodes = self.state.nodes
        gpus = nodes.gpu_columns()
        return next((column for column, _ in self.first.shape.demand if column in gpus), nodes.resources["cpu"])

    def _asked(self, task: Task) -> int:
        """What a pod asks for of that."""
        return next((amount for column, amount in task.shape.demand if column == self._column), 0)

    def _free(self, row: int) -> int:
        return max(0, self.state.nodes.free[self._column].item(row))

    def _give(self, row: int) -> bool:
        """Move pods off a row so that it has one more place; False changes nothing."""
        state, ranking = self.state, self.ranking
        before = ranking.count_on(row)
        mark = state.log.mark()
        removal, moved, placeholders = dict(self.removal.places), list(self.moved), dict(self.placeholders)
        self.givers.add(row)
        chosen, guard = self._chosen(row, self._lacks(row)[0]), self.guard
        if guard is not None and chosen:
            self.guard = guard.copy()
            if not self.guard.admits(chosen):
                chosen = []
        for task in chosen:
            self.removal.take((task,))
            target = self._target(task)
            if target < 0:
                break
            placeholder = state.moves.placeholder(task, charged=True)
            devices = task.ranking.strategy.pick(task.shape, target) if task.shape.gpus else ()
            state.placement.assign(placeholder, target, devices)
            state.reserved.take_moved(placeholder, target)
            self.moved.append(task)
            self.placeholders[task.pod.uid] = placeholder
        else:
            if ranking.count_on(row) > before:
                state.log.commit()
                return True
        state.log.rollback(mark)
        for uid in set(self.placeholders) - set(placeholders):
            state.shapes.release(self.placeholders[uid].ranking)
        self.removal.places, self.moved, self.placeholders, self.guard = removal, moved, placeholders, guard
        self.givers.discard(row)
        return False

    def _chosen(self, row: int, lacking: int) -> list[Task]:
        """The fewest pods of a row that make up what it lacks, the cheapest of equals."""
        movable = [(self._asked(task), task) for task in self._movable(row)]
        movable.sort(key=lambda each: (each[0], self.state.services.lost_with(each[1]), each[1].pod.key))
        chosen: list[Task] = []
        while lacking > 0 and movable:
            index = next((place for place, (amount, _) in enumerate(movable) if amount >= lacking), len(movable) - 1)
            amount, task = movable.pop(index)
            if amount <= 0:
                break
            chosen.append(task)
            lacking -= amount
        return chosen if lacking <= 0 else []

    def _movable(self, row: int) -> list[Task]:
        return [task for block in self.movers.on(row) for task in block.tasks if task.row == row]

    def _target(self, task: Task) -> int:
        """Where a moved pod goes: a piece in which the unit's pods lose no place, the smallest; -1 if there is none."""
        state, keys = self.state, task.ranking.keys()
        size = self._size
        free: Ints = np.maximum(state.nodes.free[self._column][: state.nodes.count], 0)
        asked = self._asked(task)
        loses = free // size > (free - asked) // size
        fits = (keys >= 0) & ~loses
        fits[list(self.givers)] = False
        closed = closed_to_moved(state, task)
        if closed is not None:
            fits &= ~closed
        rows = np.flatnonzero(fits)
        if not len(rows):
            return -1
        wasted = (free[rows] - asked) % size
        least = rows[wasted == wasted.min()]
        return int(least[keys[least].argmax()])

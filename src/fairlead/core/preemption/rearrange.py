"""Rearrange: which pods must move, and where, so that some tasks fit: a search by exchange chains.

What needs a place, the largest first, takes one that is free, or one from which pods that may move are taken; these need places
then, and may take others'. The number of pods, or of gangs that move as one, that may be taken is raised from one on, so the
fewest are found first. Everything is tried on the state under the undo log. Devices are compared one by one, so parts of
devices are put together as whole ones are, also on one node.

The search ends after a number of steps. On small clusters nothing is left out by then; on large ones the rows that lack least
are tried. Iterative deepening: R. Korf, "Depth-first iterative-deepening", 1985; ejection chains: F. Glover, 1996.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from fairlead.core import allocation
from fairlead.core.model.arrays import Mask
from fairlead.core.model.pods import Pod
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import INFEASIBLE
from fairlead.core.pods import amounts
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Placeholder, Task, Unit
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.worth import Worth
from fairlead.core.state.budgets import Guard
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.moves import beyond_minimum

SMALL = 32
"""So many nodes at most, and every choice that differs is tried."""
_STEPS_SMALL, _STEPS = 600, 250
_CHOICES_SMALL, _CHOICES = 24, 3
_ROWS = 48  # on so many rows at most pods to be taken are searched for, on large clusters
_ENOUGH = 12  # so many choices at most are compared there
_SETS = 160  # so many sets of pods at most are tried on one row
_FEW = 12  # so many members at most are placed together; of larger gangs one after the other
_MOST = 6  # so many at most move for members that are placed together
_MOST_EACH = 3  # the same for each member of a larger gang


class Block(NamedTuple):
    """Pods that only move together. lost: device-seconds of work that are lost with them."""

    tasks: tuple[Task, ...]
    lost: float


class Movers:
    """Who may move for a unit, row by row: found once for all that is tried. whole: gangs, too.

    ended: keys of gangs that lose members which they need: to move another of theirs would help nothing.
    """

    def __init__(self, state: ClusterState, unit: Unit, *, whole: bool = False, ended: AbstractSet[str] = frozenset()) -> None:
        self._state, self._unit, self._whole, self._ended = state, unit, whole, ended
        self._rows: dict[int, list[Block]] = {}
        self._beyond: dict[str, list[Task]] = {}
        self._gangs: dict[str, Block | None] = {}

    def on(self, row: int) -> list[Block]:
        """The blocks of which a pod is on a row, those with which least is lost first."""
        known = self._rows.get(row)
        if known is None:
            found = {id(block): block for task in self._state.nodes.pods[row].values() if (block := self._of(task)) is not None}
            known = self._rows[row] = sorted(
                found.values(), key=lambda each: (len(each.tasks), each.lost, -each.tasks[0].pod.created, each.tasks[0].pod.uid)
            )
        return known

    def _of(self, task: Task) -> Block | None:
        state, gang = self._state, task.gang
        if task.pod.priority > self._unit.priority:
            return None
        if gang is None or gang.group is None:
            return self._alone(task) if state.moves.may_leave(task) else None
        if gang is self._unit.gang or gang.key in self._ended:
            return None
        if gang.key not in self._beyond:
            self._beyond[gang.key] = beyond_minimum(gang)
        if task in self._beyond[gang.key] and state.moves.may_leave(task):
            return self._alone(task)
        return self._gang_of(task) if self._whole else None

    def _alone(self, task: Task) -> Block:
        return Block((task,), self._state.services.lost_with(task))

    def _gang_of(self, task: Task) -> Block | None:
        gang, state = task.gang, self._state
        if gang is None:
            return None
        if gang.key not in self._gangs:
            members = state.moves.movable_gang(task)
            if any(each.pod.priority > self._unit.priority for each in members):
                members = ()
            lost = sum(state.services.lost_with(each) for each in members)
            self._gangs[gang.key] = Block(members, lost) if members else None
        return self._gangs[gang.key]


class Rearrangement:
    """Tasks that get places while others move. worth: asked whether what moves is worth it, and notified once the search is over.

    moved: whose places are given up for new ones; placeholders: by their UIDs what holds those. without: who is evicted besides,
    so that disruption budgets allow less. steps: at most.
    """

    def __init__(
        self,
        state: ClusterState,
        movers: Movers,
        worth: Worth,
        without: Sequence[Task] = (),
        steps: int = _STEPS_SMALL,
    ) -> None:
        self.state, self._movers, self._worth = state, movers, worth
        self.removal = Removal(state)
        self.moved: list[Task] = []
        self.placeholders: dict[str, Placeholder] = {}
        self._small = len(state.nodes) <= SMALL
        self._left = state.moves.budget.steps(min(steps, _STEPS_SMALL if self._small else _STEPS))
        self.taken = 0  # steps that the search took
        self._without = without
        self._guard = self._budgets()

    def _budgets(self) -> Guard | None:
        """What disruption budgets allow besides those who are evicted and those who move."""
        if not self.state.budgets.may_block:
            return None
        guard = self.state.budgets.guard()
        guard.admits([*self._without, *self.moved])
        return guard

    def place_with_moves(self, tasks: Sequence[Task]) -> bool:
        """Place all of these, with as few moves as are found; else nothing has changed."""
        mark, before = self.state.log.mark(), self._left
        pending = tuple(sorted(tasks, key=_largest_first))
        found = self._together(pending) if len(pending) <= _FEW else self._one_by_one(pending)
        self.taken = before - self._left
        self.state.moves.budget.spend_steps(self.taken)
        self._worth.note()
        if found:
            self.state.log.commit()
        else:
            self.state.log.rollback(mark)
            self.removal.places.clear()
            self.moved, self.placeholders = [], {}
        return found

    def _together(self, pending: tuple[Task, ...]) -> bool:
        return any(self._solve(pending, most, self._guard, self._worth.of) for most in range(_MOST + 1))

    def _one_by_one(self, pending: tuple[Task, ...]) -> bool:
        for task in pending:
            if not any(self._solve((task,), most, self._guard, lambda _: True) for most in range(_MOST_EACH + 1)):
                return False
            self._guard = self._budgets()
        return self._worth.of(self.moved)

    def _solve(self, pending: tuple[Task, ...], most: int, guard: Guard | None, worth: Callable[[Sequence[Task]], bool]) -> bool:
        """Place what is pending while at most so many blocks move; the state is as before if that cannot be."""
        if not pending:
            return worth(self.moved)
        if self._left <= 0:
            return False
        self._left -= 1
        task, rest = pending[0], pending[1:]
        closed = self._closed(task)
        for row in self._free(task, closed):
            if self._try(task, row, (), rest, most, guard, worth):
                return True
        if most:
            for row, blocks in self._taken(task, most, closed):
                if self._try(task, row, blocks, rest, most, guard, worth):
                    return True
        return False

    def _try(
        self,
        task: Task,
        row: int,
        blocks: tuple[Block, ...],
        rest: tuple[Task, ...],
        most: int,
        guard: Guard | None,
        worth: Callable[[Sequence[Task]], bool],
    ) -> bool:
        state = self.state
        if guard is not None and blocks:
            guard = guard.copy()
            if not all(guard.admits(block.tasks) for block in blocks):
                return False
        mark, places, moved, placeholders = state.log.mark(), dict(self.removal.places), self.moved, self.placeholders
        if blocks:
            self.moved, self.placeholders = list(moved), dict(placeholders)
            rest = tuple(sorted((*rest, *(made for block in blocks for made in self._take(block))), key=_largest_first))
        # What costs too much does not cost less with more that move.
        if (not blocks or worth(self.moved)) and self._place(task, row) and self._solve(rest, most - len(blocks), guard, worth):
            state.log.commit()
            return True
        state.log.rollback(mark)
        self.removal.places, self.moved, self.placeholders = places, moved, placeholders
        return False

    def _take(self, block: Block) -> Iterator[Task]:
        """Pods leave their places; yields what needs places in their stead."""
        self.removal.take(block.tasks)
        for task in block.tasks:
            made = self.placeholders[task.pod.uid] = self.state.moves.placeholder(task, charged=True)
            self.state.log.call(self.state.shapes.release, made.ranking)
            self.moved.append(task)
            yield made

    def _place(self, task: Task, row: int) -> bool:
        state, own = self.state, task.unit is not None
        if not task.ranking.fits_row(row) or (own and state.queues.limits.over_limit(task, row=row) is not None):
            return False
        state.placement.place(task, row)
        if own:
            state.reserved.take(task, row)
        return True

    # -- choices -------------------------------------------------------------------------------

    def _closed(self, task: Task) -> Mask | None:
        """The rows that a task may not have though it may fit; a moved pod gets none that is reserved."""
        return allocation.closed_to(self.state, task) if task.unit is not None else closed_to_moved(self.state, task)

    def _free(self, task: Task, closed: Mask | None) -> list[int]:
        """Rows where a task fits, those with the least free capacity first; of rows that are alike one."""
        nodes, shape = self.state.nodes, task.shape
        keys = task.ranking.keys()
        fits = keys >= 0 if closed is None else (keys >= 0) & ~closed
        rows = np.flatnonzero(fits)
        if not len(rows):
            return []
        free = nodes.devices.total[nodes.device[rows]] if shape.gpus else nodes.free[nodes.resources["cpu"]][rows]
        return self._differing(task, rows[np.lexsort((-keys[rows], free))].tolist())

    def _differing(self, task: Task, rows: list[int]) -> list[int]:
        nodes = self.state.nodes
        found: dict[tuple[object, ...], int] = {}
        for row in rows:
            alike: tuple[object, ...] = (nodes.classes.column.item(row), nodes.device.item(row))
            if self._small:
                there = (block.tasks for block in self._movers.on(row) if block.tasks[0].row >= 0)
                alike = (
                    *alike,
                    tuple(nodes.free[column].item(row) for column, _ in task.shape.demand),
                    tuple(sorted((each.shape.number, len(tasks)) for tasks in there for each in tasks if each.row == row)),
                )
            found.setdefault(alike, row)
            if len(found) >= (_CHOICES_SMALL if self._small else _CHOICES):
                break
        return list(found.values())

    def _taken(self, task: Task, most: int, closed: Mask | None) -> list[tuple[int, tuple[Block, ...]]]:
        """Rows with pods to take from them so that a task fits: as few as possible, least loss first."""
        nodes, shape = self.state.nodes, task.shape
        rows = slice(0, nodes.count)
        usable = task.ranking.admitted(rows) & nodes.open[rows] & (task.ranking.keys() < 0)
        if closed is not None:
            usable &= ~closed
        if shape.asks_devices and shape.gpu_milli < WHOLE:
            usable &= nodes.shares[rows]
        found = np.flatnonzero(usable)
        if not len(found):
            return []
        free = nodes.devices.total[nodes.device[found]] if shape.gpus else nodes.free[nodes.resources["cpu"]][found]
        choices: list[tuple[tuple[int, float, str], int, tuple[Block, ...]]] = []
        tried = 0
        for row in found[np.lexsort((-nodes.name_ranks.column[found], -free))].tolist():
            if not self._movers.on(row):
                continue
            tried += 1
            for blocks in _Sets(self.state, task, row, self._movers.on(row), most).find(thorough=self._small):
                pods, lost = sum(len(block.tasks) for block in blocks), sum(block.lost for block in blocks)
                choices.append(((pods, lost, nodes.names[row]), row, blocks))
            if not self._small and (tried >= _ROWS or len(choices) >= _ENOUGH):
                break
        choices.sort(key=lambda each: each[0])
        kept = choices[: _CHOICES_SMALL if self._small else 2 * _CHOICES]
        return [(row, blocks) for _, row, blocks in kept]


class _Sets:
    """Sets of blocks on one row without which a task fits there; none that contains a smaller one."""

    def __init__(self, state: ClusterState, task: Task, row: int, blocks: Sequence[Block], most: int) -> None:
        self._nodes, self._shape, self._row, self._most = state.nodes, task.shape, row, most
        alike: dict[tuple[object, ...], list[Block]] = {}
        for block in blocks:
            if block.tasks[0].row < 0:
                continue  # taken already
            here = [each for each in block.tasks if each.row == row]
            if here and not (len(block.tasks) == 1 and here[0].shape is task.shape):
                key = (len(block.tasks) > 1 and id(block), *((each.shape.number, _shared_by(each)) for each in here))
                alike.setdefault(key, []).append(block)
        self._groups = list(alike.values())
        self._tried = 0
        self._found: list[tuple[Block, ...]] = []

    def find(self, *, thorough: bool) -> list[tuple[Block, ...]]:
        """The sets, smallest first. thorough: larger ones, too, of pods that may find places more easily."""
        nodes, row = self._nodes, self._row
        there = [each for group in self._groups for block in group for each in block.tasks if each.row == row]
        if not amounts.fits(nodes, row, self._shape.demand, amounts.by_column(there)):
            return []
        start = {column: nodes.free[column].item(row) for column, _ in self._shape.demand}
        for size in range(1, self._most + 1):
            self._choose(0, size, (), start, nodes.device.item(row))
            if self._tried >= _SETS or (self._found and not thorough):
                break
        return self._found

    def _choose(self, first: int, size: int, chosen: tuple[Block, ...], free: dict[int, int], state: int) -> None:
        if not size:
            self._tried += 1
            if self._fits(free, state) and not any(set(map(id, less)) <= set(map(id, chosen)) for less in self._found):
                self._found.append(chosen)
            return
        devices = self._nodes.devices
        for index in range(first, len(self._groups)):
            left, after, taken = dict(free), state, chosen
            for count, block in enumerate(self._groups[index][:size], 1):
                taken = (*taken, block)
                for each in block.tasks:
                    if each.row != self._row:
                        continue
                    for column, amount in each.shape.demand:
                        if column in left:
                            left[column] += amount
                    if each.devices:
                        after = devices.give(after, each.devices, each.shape.gpu_milli)
                if self._tried >= _SETS:
                    return
                self._choose(index + 1, size - count, taken, left, after)

    def _fits(self, free: dict[int, int], state: int) -> bool:
        shape = self._shape
        if any(free[column] < amount for column, amount in shape.demand):
            return False
        return not shape.asks_devices or shape.fit.one_cost(state) != INFEASIBLE


def _shared_by(task: Task) -> tuple[int, ...]:
    """The devices by which pods of one shape differ: those of which they have a part."""
    return task.devices if task.shape.gpus and task.shape.gpu_milli < WHOLE else ()


def _largest_first(task: Task) -> tuple[int, int, int, int, str]:
    shape = task.shape
    return -shape.device_milli, -shape.cpu, -shape.memory, task.unit is None, task.pod.uid


def closed_to_moved(state: ClusterState, task: Task) -> Mask | None:
    """The rows that a moved pod may not have: reserved for other work, or in a pool whose limit its queue has reached."""
    kept = state.reserved.closed(_reserved_for_none(task.ranking)) if state.reserved.holds else None
    full = state.queues.limits.closed(task) if state.queues.tree.pools.named else None
    return full if kept is None else kept if full is None else kept | full


def _reserved_for_none(ranking: Ranking) -> Task:
    """A pod of a shape for which nothing is reserved."""
    return Task(Pod("", "", "", ranking.shape.spec), ranking)

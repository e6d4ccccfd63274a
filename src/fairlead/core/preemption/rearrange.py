"""Rearrange: which pods must move, and where, so that some tasks fit: a search by exchange chains.

What needs a place, the largest first, takes one that is free, or one from which pods that may move are taken; these need places
then, and may take others'. The number of pods, or of gangs that move as one, that may be taken is raised from one on, so the
fewest are found first. Everything is tried on the state under the undo log. Devices are compared one by one, so parts of
devices are put together as whole ones are, also on one node.

The search ends after a number of steps. On small clusters nothing is left out by then; on large ones the rows that lack least
are tried. Iterative deepening: R. Korf, "Depth-first iterative-deepening", 1985; ejection chains: F. Glover, 1996.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from fairlead.api.names import AI_PROFILE
from fairlead.core import allocation
from fairlead.core.model.arrays import Mask
from fairlead.core.model.pods import Pod
from fairlead.core.model.units import WHOLE
from fairlead.core.pods import amounts
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Placeholder, Task
from fairlead.core.preemption.claim_sets import ClaimSets, holders_elsewhere
from fairlead.core.preemption.movers import Block, Movers, Sets
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.worth import Worth
from fairlead.core.state.budgets import Guard
from fairlead.core.state.cluster import ClusterState

SMALL = 32
"""So many nodes at most, and every choice that differs is tried."""
_STEPS_SMALL, _STEPS = 600, 250
_STEPS_CLAIMS = 100  # where devices are allocated at each step, which costs ten times as much
_CHOICES_SMALL, _CHOICES = 24, 3
_ROWS = 48  # on so many rows at most pods to be taken are searched for, on large clusters
_ENOUGH = 12  # so many choices at most are compared there
_FEW = 12  # so many members at most are placed together; of larger gangs one after the other
_MOST = 6  # so many at most move for members that are placed together
_MOST_EACH = 3  # the same for each member of a larger gang


_Choice = tuple[tuple[int, float, str], int, tuple[Block, ...]]
"""(pods, work lost, name), row, what moves off it."""


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
        self._touched: dict[int, int] = {}  # row -> how often something is placed there, or taken from it
        self._sets: dict[tuple[int, int], Sets | ClaimSets] = {}  # (shape, row) as the row was before anything was tried
        self._choices: dict[tuple[int, int, int], list[_Choice]] = {}  # the same with a bound: what those come to
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
        if any(task.shape.spec.devices for task in tasks):
            self._left = before = min(before, _STEPS_CLAIMS)
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
        if not self._step():
            return False
        task, rest = pending[0], pending[1:]
        closed = self._closed(task)
        for row in self._free(task, closed):
            if self._try(task, row, rest, most, guard, worth):
                return True
        if most:
            last = _Last(self.state, task, rest)
            for row, blocks in self._taken(task, most, closed):
                if self._try_without(task, row, blocks, rest, most - len(blocks), guard, worth, last):
                    return True
        return False

    def _step(self) -> bool:
        """Take one of the steps that are left; False if none is."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def _try(
        self,
        task: Task,
        row: int,
        rest: tuple[Task, ...],
        most: int,
        guard: Guard | None,
        worth: Callable[[Sequence[Task]], bool],
    ) -> bool:
        """Place a task on a row, and then the rest; False changes nothing."""
        if rest and self._left <= 0:
            return False
        mark = self.state.log.mark()
        self._touched[row] = self._touched.get(row, 0) + 1
        if self._place(task, row) and self._solve(rest, most, guard, worth):
            self.state.log.commit()
            return True
        self.state.log.rollback(mark)
        self._touched[row] -= 1
        return False

    def _try_without(
        self,
        task: Task,
        row: int,
        blocks: tuple[Block, ...],
        rest: tuple[Task, ...],
        most: int,
        guard: Guard | None,
        worth: Callable[[Sequence[Task]], bool],
        last: _Last,
    ) -> bool:
        """The same where blocks move off the row, and get places after the task. most: so many may move besides."""
        if guard is not None:
            guard = guard.copy()
            if not all(guard.admits(block.tasks) for block in blocks):
                return False
        # What costs too much does not cost less with more that move.
        if not worth([*self.moved, *(each for block in blocks for each in block.tasks)]) or self._left <= 0:
            return False
        if not most and last.ends_there(row, blocks):
            self._step()
            return False
        state, rows = self.state, {each.row for block in blocks for each in block.tasks}
        mark, places, moved, placeholders = state.log.mark(), dict(self.removal.places), self.moved, self.placeholders
        self.moved, self.placeholders = list(moved), dict(placeholders)
        for each in rows:
            self._touched[each] = self._touched.get(each, 0) + 1
        made = (each for block in blocks for each in self._take(block))
        if self._try(task, row, tuple(sorted((*rest, *made), key=_largest_first)), most, guard, worth):
            state.log.commit()
            return True
        state.log.rollback(mark)
        for each in rows:
            self._touched[each] -= 1
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
        elif state.reserved.holds:
            state.reserved.take_moved(task, row)
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
        if shape.spec.devices:
            free = np.fromiter((self._devices_free(row) for row in rows.tolist()), np.int64, len(rows))
        else:
            free = nodes.devices.total[nodes.device[rows]] if shape.gpus else nodes.free[nodes.resources["cpu"]][rows]
        return self._differing(task, rows[np.lexsort((-keys[rows], free))].tolist())

    def _differing(self, task: Task, rows: list[int]) -> list[int]:
        nodes = self.state.nodes
        found: dict[tuple[object, ...], int] = {}
        for row in rows:
            alike: tuple[object, ...] = (nodes.classes.column.item(row), nodes.device.item(row))
            if task.shape.spec.devices:
                alike = (*alike, row if self._small else self._devices_free(row))
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
        choices: list[_Choice] = []
        tried = 0
        for row in found[np.lexsort((-nodes.name_ranks.column[found], -free))].tolist():
            if not self._near(task, row):
                continue
            tried += 1
            choices += self._without_some(task, row, most)
            if not self._small and (tried >= _ROWS or len(choices) >= _ENOUGH):
                break
        choices.sort(key=lambda each: each[0])
        kept = choices[: _CHOICES_SMALL if self._small else 2 * _CHOICES]
        return [(row, blocks) for _, row, blocks in kept]

    def _without_some(self, task: Task, row: int, most: int) -> list[_Choice]:
        """The sets of blocks on a row without which a task fits there; remembered as long as nothing was tried on it."""
        if self._touched.get(row):
            return self._priced(row, self._sets_of(task, row).up_to(most))
        shape = task.shape.number
        choices = self._choices.get((shape, row, most))
        if choices is None:
            sets = self._sets.get((shape, row))
            if sets is None:
                sets = self._sets[shape, row] = self._sets_of(task, row)
            choices = self._choices[shape, row, most] = self._priced(row, sets.up_to(most))
        return choices

    def _sets_of(self, task: Task, row: int) -> Sets | ClaimSets:
        if task.shape.spec.devices:
            return ClaimSets(self.state, task, row, self._near(task, row))
        return Sets(self.state, task, row, self._movers.on(row), thorough=self._small)

    def _priced(self, row: int, sets: Iterable[tuple[Block, ...]]) -> list[_Choice]:
        name = self.state.nodes.names[row]
        return [
            ((sum(len(block.tasks) for block in blocks), sum(block.lost for block in blocks), name), row, blocks)
            for blocks in sets
        ]

    def _near(self, task: Task, row: int) -> list[Block]:
        """What may move off a row, and what may give up devices of the network that the row could use."""
        here = self._movers.on(row)
        elsewhere = holders_elsewhere(self.state, task, row)
        if not elsewhere:
            return here
        uids = {each.pod.uid for tasks in elsewhere.values() for each in tasks}
        more = [block for other in sorted(elsewhere) for block in self._movers.on(other)]
        more = [block for block in more if any(each.pod.uid in uids for each in block.tasks)]
        return list({id(block): block for block in (*here, *more)}.values())

    def _devices_free(self, row: int) -> int:
        """How many devices of claims can be had on a row, each by itself."""
        state = self.state.device_claims.devices.state_of(row)
        return 0 if state is None else (state.inventory.all & ~(state.alone | state.unservable)).bit_count()


class _Last:
    """Whether the search ends where a task takes a place from the last blocks that may move; found without trying it.

    The largest of what is pending then is placed next. It has a place only where it had one before, or on the row that was left.
    rest: what is pending besides what moves.
    """

    def __init__(self, state: ClusterState, task: Task, rest: tuple[Task, ...]) -> None:
        self._state, self._task, self._rest = state, task, rest
        self._rows: dict[tuple[int, bool], list[int]] = {}  # (shape, whether it is of the unit) -> where it fits

    def ends_there(self, row: int, blocks: tuple[Block, ...]) -> bool:
        """Whether what is placed next has no place for certain; False: it may have one."""
        gone = [each for block in blocks for each in block.tasks]
        if not all(each.row == row and each.shape.labels is None and each.shape.profile == AI_PROFILE for each in gone):
            return False  # other rows have more, too, or their placeholders are of another shape
        pending = [(each, each.unit is not None) for each in self._rest] + [(each, False) for each in gone]
        largest = max(_size(each) for each, _ in pending)
        following = {(each.shape.number, own): each for each, own in pending if _size(each) == largest}
        return self._is_placed(row) and not any(self._has_place(each, row, gone, own=own) for (_, own), each in following.items())

    def _is_placed(self, row: int) -> bool:
        """Whether the task itself has its place for certain once the blocks are gone."""
        task = self._task
        if task.ranking.relations or task.shape.minds_neighbours:
            return False
        return task.unit is None or self._state.queues.limits.over_limit(task, row=row) is None

    def _has_place(self, task: Task, left: int, gone: Sequence[Task], *, own: bool) -> bool:
        """Whether what is placed next may have a place, on the row that was left or elsewhere. own: it is of the unit."""
        if task.ranking.relations or task.shape.isolates:
            return True
        back = amounts.by_column((self._task,))
        if amounts.fits(self._state.nodes, left, task.shape.demand, amounts.by_column(gone), back):
            return True
        return any(row != left for row in self._open(task.ranking, own=own))

    def _open(self, ranking: Ranking, *, own: bool) -> list[int]:
        """The rows where it fits now. What moves gets none that is reserved; no reservation ends because others leave a row."""
        rows = self._rows.get((ranking.shape.number, own))
        if rows is None:
            fits = ranking.keys() >= 0
            kept = None if own else self._state.reserved.closed_to_moved(_reserved_for_none(ranking))
            rows = self._rows[ranking.shape.number, own] = np.flatnonzero(fits if kept is None else fits & ~kept).tolist()
        return rows


def _size(task: Task) -> tuple[int, int, int]:
    shape = task.shape
    return shape.device_milli + shape.claimed_milli, shape.cpu, shape.memory


def _largest_first(task: Task) -> tuple[int, int, int, int, str]:
    devices, cpu, memory = _size(task)
    return -devices, -cpu, -memory, task.unit is None, task.pod.uid


def closed_to_moved(state: ClusterState, task: Task) -> Mask | None:
    """The rows that a moved pod may not have: reserved for other work, or in a pool whose limit its queue has reached."""
    kept = state.reserved.closed_to_moved(_reserved_for_none(task.ranking)) if state.reserved.holds else None
    full = state.queues.limits.closed(task) if state.queues.tree.by_row else None
    return full if kept is None else kept if full is None else kept | full


def _reserved_for_none(ranking: Ranking) -> Task:
    """A pod of a shape for which nothing is reserved."""
    return Task(Pod("", "", "", ranking.shape.spec), ranking)

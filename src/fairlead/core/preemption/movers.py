"""Movers: which pods on a row may move for a unit, and sets of them without which a task fits there."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from operator import add, ge
from typing import NamedTuple

from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import INFEASIBLE
from fairlead.core.pods import amounts
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.moves import beyond_minimum

_SETS = 160  # so many sets of pods at most are tried on one row


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


class Sets:
    """Sets of blocks on one row without which a task fits there, by size; none that contains a smaller one.

    thorough: larger ones than the smallest, too, of pods that may find places more easily. What was found for a bound is kept
    for greater ones: it is as the row was when these were made.
    """

    def __init__(self, state: ClusterState, task: Task, row: int, blocks: Sequence[Block], *, thorough: bool) -> None:
        self._devices, self._shape, self._row, self._thorough = state.nodes.devices, task.shape, row, thorough
        alike: dict[tuple[object, ...], list[Block]] = {}
        for block in blocks:
            if block.tasks[0].row < 0:
                continue  # taken already
            here = [each for each in block.tasks if each.row == row]
            if here and not (len(block.tasks) == 1 and here[0].shape is task.shape):
                key = (len(block.tasks) > 1 and id(block), *((each.shape.number, _shared_by(each)) for each in here))
                alike.setdefault(key, []).append(block)
        self._groups = [(self._freed(group[0]), group) for group in alike.values()]
        self._needed = tuple(amount for _, amount in task.shape.demand)
        self._free = tuple(state.nodes.free[column].item(row) for column, _ in task.shape.demand)
        self._device = state.nodes.device.item(row)
        self._tried = 0
        self._found: list[tuple[Block, ...]] = []
        self._counts = [0]  # how many are found, by size
        there = [each for group in alike.values() for block in group for each in block.tasks if each.row == row]
        self._over = not amounts.fits(state.nodes, row, task.shape.demand, amounts.by_column(there))

    def up_to(self, most: int) -> list[tuple[Block, ...]]:
        """Those of so many blocks at most, smallest first."""
        counts = self._counts
        while len(counts) <= most and not self._over:
            self._choose(0, len(counts), (), self._free, self._device)
            counts.append(len(self._found))
            self._over = self._tried >= _SETS or (bool(self._found) and not self._thorough)
        return self._found[: counts[min(most, len(counts) - 1)]]

    def _freed(self, block: Block) -> tuple[int, ...]:
        """What a block that leaves frees on the row of what the task asks for; the same for all that are alike."""
        freed = amounts.by_column(each for each in block.tasks if each.row == self._row)
        return tuple(freed.get(column, 0) for column, _ in self._shape.demand)

    def _choose(self, first: int, size: int, chosen: tuple[Block, ...], free: tuple[int, ...], device: int) -> None:
        if not size:
            self._tried += 1
            if self._fits(free, device) and not any(set(map(id, less)) <= set(map(id, chosen)) for less in self._found):
                self._found.append(chosen)
            return
        for index in range(first, len(self._groups)):
            freed, group = self._groups[index]
            left, after, taken = free, device, chosen
            for count, block in enumerate(group[:size], 1):
                taken = (*taken, block)
                left = tuple(map(add, left, freed))
                for each in block.tasks:
                    if each.devices and each.row == self._row:
                        after = self._devices.give(after, each.devices, each.shape.gpu_milli)
                if self._tried >= _SETS:
                    return
                self._choose(index + 1, size - count, taken, left, after)

    def _fits(self, free: tuple[int, ...], device: int) -> bool:
        shape = self._shape
        return all(map(ge, free, self._needed)) and (not shape.asks_devices or shape.fit.one_cost(device) != INFEASIBLE)


def _shared_by(task: Task) -> tuple[int, ...]:
    """The devices by which pods of one shape differ: those of which they have a part."""
    return task.devices if task.shape.gpus and task.shape.gpu_milli < WHOLE else ()

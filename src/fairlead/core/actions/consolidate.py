"""Consolidate: where enough is free but in pieces, move the fewest pods that make whole places of them.

A row gives one more place for the unit's pods if the pods that make up what it lacks go elsewhere: to pieces that are too
small for the unit anyway. Rows that lack least give first; pieces that waste least take first. Each exchange is tried on
the state under the undo log, and whatever does not gain a place is taken back, so nobody is moved in vain and whoever is
moved has a new place before he goes.

Nobody moves for less than is lost with it. Only pods of their own with a controller are moved, of no higher priority than
the unit, whose class lets them fall and be moved.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from fairlead.core.actions import allocate
from fairlead.core.actions.fallen import Fallen
from fairlead.core.actions.preempt import Plan
from fairlead.core.model import WHOLE, Pod
from fairlead.core.moves import movable
from fairlead.core.nodes import Ints
from fairlead.core.shapes import Shape
from fairlead.core.state import ClusterState
from fairlead.core.tasks import Task, TaskState, Unit


class Moved(NamedTuple):
    """A plan whose victims have new places: victim's uid -> stand-in."""

    plan: Plan
    stand_ins: dict[str, Task]


def consolidate(state: ClusterState, unit: Unit, now: float) -> Moved | None:
    """Room for a unit by moving others; None changes nothing."""
    core = Unit(unit.tasks[: unit.need], unit.need, unit.gang)
    for task in unit.tasks:
        task.unit = unit
    first = core.tasks[0]
    shape = first.shape
    alike = all(task.shape is shape and task.queue == first.queue for task in core.tasks)
    if not alike or shape.relations or state.nominated or state.queues.over_limit(first, unit.need) is not None:
        return None
    mark = state.log.mark()
    search = _Search(state, first, unit.priority)
    placed = None
    if search.gain(unit.need) and _worth_it(state, unit, search.moved, now) and state.moves.allowed(now, len(search.moved)):
        state.shapes.refresh()
        outcome = allocate.allocate(state, core)
        placed = outcome if isinstance(outcome, list) else None
    if placed is None:
        state.log.rollback(mark)
        for task in core.tasks:
            task.state = TaskState.WAITING
        for stand_in in search.stand_ins.values():
            state.shapes.release(stand_in.shape)
        return None
    state.log.commit()
    return Moved(Plan(search.moved, placed, search.fallen.places), search.stand_ins)


def _worth_it(state: ClusterState, unit: Unit, moved: list[Task], now: float) -> bool:
    """Whether no more work is lost with those that move than the unit could have done while it waited."""
    lost = sum(state.services.lost_with(task) for task in moved)
    waited = now - unit.created
    return bool(moved) and lost <= waited * sum(task.shape.device_milli for task in unit.tasks[: unit.need]) / WHOLE


class _Search:
    """Gains places for pods like one. priority: of the unit they are for."""

    def __init__(self, state: ClusterState, first: Task, priority: int) -> None:
        self.state, self.first, self.priority = state, first, priority
        self.shape = first.shape
        self.fallen = Fallen(state)
        self.moved: list[Task] = []
        self.stand_ins: dict[str, Task] = {}
        self.givers: set[int] = set()

    def gain(self, needed: int) -> bool:
        """Move pods until so many places are there; False if that is not possible."""
        state, shape = self.state, self.shape
        held = shape.counts()
        closed = allocate.closed_to(state, self.first)
        usable = shape.admitted(slice(0, state.nodes.count)) & state.nodes.open[: state.nodes.count]
        if closed is not None:
            usable &= ~closed
        held = np.where(usable, held, 0)
        places = int(held.sum())
        if places >= needed or not self._enough(usable, needed):
            return False
        heap = [(self._lacks(row), state.nodes.names[row], row) for row in np.flatnonzero(usable).tolist()]
        heapify(heap)
        while places < needed and heap:
            _, _, row = heappop(heap)
            if self._give(row):
                places += 1
                heappush(heap, (self._lacks(row), state.nodes.names[row], row))
        return places >= needed

    def _enough(self, usable: np.ndarray[tuple[int], np.dtype[np.bool_]], needed: int) -> bool:
        """Whether what is free would do if it were in one piece."""
        nodes = self.state.nodes
        rows = np.flatnonzero(usable)
        return all(int(np.maximum(nodes.free[column][rows], 0).sum()) >= amount * needed for column, amount in self.shape.demand)

    def _lacks(self, row: int) -> tuple[int, int]:
        """What a row lacks for one more place: of devices, else of CPU."""
        free, size = self._free(row), self._size
        lacks = size - free % size
        return lacks, -free

    @property
    def _column(self) -> int:
        """The resource that is scarce in pieces: devices, else CPU."""
        nodes = self.state.nodes
        gpus = [nodes.resources[name] for name in nodes.gpu_resources if name in nodes.resources]
        return next((column for column, _ in self.shape.demand if column in gpus), nodes.resources["cpu"])

    @property
    def _size(self) -> int:
        return max(1, dict(self.shape.demand).get(self._column, 1))

    def _free(self, row: int) -> int:
        return max(0, self.state.nodes.free[self._column].item(row))

    def _give(self, row: int) -> bool:
        """Move pods off a row so that it has one more place; False changes nothing."""
        state, shape = self.state, self.shape
        before = shape.count_on(row)
        mark = state.log.mark()
        fallen, moved, stand_ins = dict(self.fallen.places), list(self.moved), dict(self.stand_ins)
        self.givers.add(row)
        lacking = self._lacks(row)[0]
        for task in self._chosen(row, lacking):
            self.fallen.take((task,))
            target = self._target(task)
            if target < 0:
                break
            stand_in = state.moves.stand_in(task)
            state.assign(stand_in, target, task.shape.strategy.pick(task.shape, target) if task.shape.gpus else ())
            self.moved.append(task)
            self.stand_ins[task.pod.uid] = stand_in
        else:
            state.shapes.refresh()
            if shape.count_on(row) > before:
                state.log.commit()
                return True
        state.log.rollback(mark)
        for uid in set(self.stand_ins) - set(stand_ins):
            state.shapes.release(self.stand_ins[uid].shape)
        self.fallen.places, self.moved, self.stand_ins = fallen, moved, stand_ins
        self.givers.discard(row)
        return False

    def _chosen(self, row: int, lacking: int) -> list[Task]:
        """The fewest pods of a row that make up what it lacks, the cheapest of equals."""
        movable = [(dict(task.shape.demand).get(self._column, 0), task) for task in self._movable(row)]
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
        state = self.state
        return [task for task in state.nodes.pods[row].values() if task.pod.priority <= self.priority and movable(state, task)]

    def _target(self, task: Task) -> int:
        """Where a moved pod goes: a piece in which the unit's pods lose no place, the smallest; -1 if there is none."""
        state, shape = self.state, task.shape
        state.shapes.refresh()
        keys = shape.keys()
        size = self._size
        free: Ints = np.maximum(state.nodes.free[self._column][: state.nodes.count], 0)
        asked = dict(shape.demand).get(self._column, 0)
        loses = free // size > (free - asked) // size
        fits = (keys >= 0) & ~loses
        fits[list(self.givers)] = False
        for closed in (
            state.reserved.closed(_nobody(shape)) if state.reserved.holds else None,
            state.queues.closed(task) if state.queues.pools.named else None,
        ):
            if closed is not None:
                fits &= ~closed
        rows = np.flatnonzero(fits)
        if not len(rows):
            return -1
        wasted = (free[rows] - asked) % size
        least = rows[wasted == wasted.min()]
        return int(least[keys[least].argmax()])


def _nobody(shape: Shape) -> Task:
    """A pod of a shape for whom nothing is kept."""
    return Task(Pod("", "", "", shape.spec), shape)

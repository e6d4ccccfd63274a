"""Capacity: how many more pods of each of some shapes every row takes, by amounts, on copies of what is free now.

A fraction of a device holds its part of the row's: devices are not counted one by one. GPUs of claims are one more amount, of
the nodes that have such devices. Two more are whether no pod of a job that isolates nodes is on a row, and no other with GPUs:
all of it is taken by the first such pod, and asked for by pods of the other kind; jobs that isolate nodes do not keep each
other off. What a pod that comes or goes changes is one operation over all shapes on its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.pods import DeviceNeed
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.filters.base import MANY
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.shapes import Shape
from fairlead.core.pods.tasks import Task

_FREE = 1  # asked of what only the first pod takes
_TAKEN = MANY  # all that is there of it
Demand = tuple[tuple[int, int], ...]
RowsFor = Callable[[tuple[DeviceNeed, ...], int], Mask]


class Capacity:
    """total: how many pods of each shape all rows take. demands: what one of each takes. counted: amounts compared so far.

    rows_for: which of so many rows could have devices for needs by claims; None: claims are not counted.
    """

    def __init__(self, nodes: NodeTable, running: Iterable[Task], rows_for: RowsFor | None = None) -> None:
        self._nodes, self._rows_for = nodes, rows_for
        self._rows = nodes.count
        self._free: Ints = nodes.matrix[: len(nodes.free), : self._rows].copy()
        self._devices = {nodes.resources[name] for name in nodes.gpu_resources if name in nodes.resources}
        for column in self._devices:
            self._free[column] = np.clip(self._free[column], -MANY, MANY) * WHOLE
        self._claims = -1  # the line of GPUs by claims
        if nodes.claimed.any and rows_for is not None:
            self._claims = len(self._free)
            claimed = nodes.claimed
            free = [len(claimed.gpus_on(row)) * WHOLE - claimed.used(row).milli for row in range(self._rows)]
            self._free = np.concatenate([self._free, np.array([free], np.int64)])
        self._apart = -1  # the first of two lines: whether no pod that isolates is there, and no other with GPUs
        if nodes.tenants.active:
            self._apart = len(self._free)
            self._free = np.concatenate([self._free, np.full((2, self._rows), _TAKEN, np.int64)])
        for task in running:
            shape = task.shape
            if shape.gpus and shape.gpu_milli < WHOLE:
                for column in sorted(self._devices)[:1]:
                    self._free[column, task.row] -= shape.device_milli
            for column, amount in self._keeps_apart(shape):
                self._free[column, task.row] -= amount
        self.counted = 0
        self.count([])

    def demand_of(self, shape: Shape) -> Demand:
        """What a pod of a shape takes: (column, amount), devices in milli."""
        demand = self._of_resources(shape)
        if self._claims >= 0 and shape.claimed_milli:
            demand = (*demand, (self._claims, shape.claimed_milli))
        return (*demand, *self._keeps_apart(shape))

    def _keeps_apart(self, shape: Shape) -> Demand:
        """What a pod takes, as it keeps others off its row."""
        if self._apart < 0 or not (shape.spec.isolated or shape.counted_milli):
            return ()
        return ((self._apart if shape.spec.isolated else self._apart + 1, _TAKEN),)

    def _asked_of(self, shape: Shape, demand: Demand) -> Demand:
        """What must be free of each amount for one pod of a shape: what it takes, and what others take that would keep it off."""
        if not (apart := self._keeps_apart(shape)):
            return demand
        other = self._apart + 1 if shape.spec.isolated else self._apart
        return (*demand[: -len(apart)], (other, _FREE))

    def _of_resources(self, shape: Shape) -> Demand:
        if shape.gpus and shape.gpu_milli < WHOLE:
            return (*shape.taken, *((column, shape.device_milli) for column in sorted(self._devices)[:1]))
        return tuple((column, min(amount, MANY) * WHOLE if column in self._devices else amount) for column, amount in shape.taken)

    def count(self, rankings: Sequence[Ranking]) -> None:
        """Count some shapes from now on."""
        self.demands = [self.demand_of(each.shape) for each in rankings]
        self._usable = np.zeros((len(rankings), self._rows), np.bool_)
        self._amounts: Ints = np.zeros((len(rankings), len(self._free)), np.int64)
        self._held: Ints = np.full((len(rankings), self._rows), MANY, np.int64)
        free = np.maximum(self._free, 0)
        for number, (ranking, demand) in enumerate(zip(rankings, self.demands, strict=True)):
            self._usable[number] = ranking.admitted(slice(0, self._rows)) & self._nodes.open[: self._rows]
            if self._rows_for is not None and ranking.shape.spec.devices:
                self._usable[number] &= self._rows_for(ranking.shape.spec.devices, self._rows)
            for column, amount in self._asked_of(ranking.shape, demand):
                self._amounts[number, column] = amount
                np.minimum(self._held[number], free[column] // amount, out=self._held[number])
        self._held[~self._usable] = 0
        self.total: Ints = self._held.sum(axis=1)
        # A pod comes or goes far more often than a row is chosen: what shapes find on one row lies together.
        self._held, self._usable = np.asfortranarray(self._held), np.asfortranarray(self._usable)
        asks = self._amounts > 0
        self._columns = np.flatnonzero(asks.any(axis=0))
        self._amounts[~asks] = 1
        self._amounts = self._amounts[:, self._columns]
        self._unasked: Ints = np.where(asks[:, self._columns], 0, MANY)

    def keep(self, shapes: Sequence[int]) -> None:
        """Of the shapes that are counted only these are from now on, by their numbers so far."""
        self.demands = [self.demands[number] for number in shapes]
        self._usable, self._held = np.asfortranarray(self._usable[shapes]), np.asfortranarray(self._held[shapes])
        self._amounts, self._unasked = self._amounts[shapes], self._unasked[shapes]
        self.total = self.total[shapes]

    def change(self, row: int, demand: Demand, sign: int) -> None:
        """A pod left a row (1) or came to it (-1)."""
        for column, amount in demand:
            self._free[column, row] += sign * amount
        found = self._held_with(row, self._free[:, row])
        self.total += found - self._held[:, row]
        self._held[:, row] = found

    def total_with(self, gone: Mapping[int, Iterable[Demand]]) -> Ints:
        """How many pods of each shape there would be places for, were so much given back on some rows."""
        counts = self.total.copy()
        for row, demands in gone.items():
            free = self._free[:, row].copy()
            for demand in demands:
                for column, amount in demand:
                    free[column] += amount
            counts += self._held_with(row, free) - self._held[:, row]
        return counts

    def _held_with(self, row: int, free: Ints) -> Ints:
        """How many pods of each shape a row takes with so much free."""
        self.counted += self._amounts.size
        each = np.maximum(free[self._columns], 0) // self._amounts + self._unasked
        found: Ints = np.minimum.reduce(each, axis=1, initial=MANY) * self._usable[:, row]
        return found

    def place(self, needs: Iterable[tuple[int, int]]) -> list[tuple[int, Demand]] | None:
        """Places for so many pods of some shapes, which take them; None, and all as before, where there are too few.

        One pod gets the row that takes fewest more, so that large free capacity is not fragmented; several the emptiest rows.
        """
        places: list[tuple[int, Demand]] = []
        for shape, needed in needs:
            held, demand, left = self._held[shape], self.demands[shape], needed
            rows = np.argsort(-held, kind="stable").tolist() if needed > 1 else [int(np.where(held > 0, held, MANY).argmin())]
            for row in rows:
                here = min(left, held.item(row))
                if here <= 0:
                    break
                left -= here
                for _ in range(here):
                    places.append((row, demand))
                    self.change(row, demand, -1)
            if left:
                for row, demand in places:
                    self.change(row, demand, 1)
                return None
        return places

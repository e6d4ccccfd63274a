"""GPUs by parts: what partitions and replicas of device plugins count as, pod by pod and node by node.

A pod that asks for `nvidia.com/mig-1g.5gb` is charged for so many thousandths of `nvidia.com/gpu` beside the resource
itself (`core/mig/parts`). What the name shows is enough for most; where a node's labels give another part (strategy `single`,
replicas, a profile that is another part on that model), its row has a `Kind`, and what a pod is charged for depends on its
row. Kinds are found when nodes come or change. Where no node has one, and nothing offers partitions, nothing of this costs
anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.mig.parts import GPU_PRODUCT, GPU_REPLICAS, SINGLE, WHOLE, PartTable, Sharing, counts, milli_of, sharing_of
from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.charges import Charge
from fairlead.core.model.nodes import Node
from fairlead.core.model.units import WHOLE as UNIT
from fairlead.core.nodes.gpu_kinds import Kind

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.pods.ranking import Ranking
    from fairlead.core.pods.shapes import Shape
    from fairlead.core.pods.tasks import Task

_REMEMBERED = 4096


class GpuParts:
    """What one of a resource is of a GPU, by row, and sums of it."""

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.table: PartTable = nodes.gpu_table
        self.varies = False  # whether what a pod is charged for depends on its row
        self.version = 0  # raised when a row's kind is another
        self._kinds: dict[int, Kind] = {}
        self._interned: dict[Sharing, Kind] = {}
        self._listed: list[Kind] = []
        self._read: dict[int, Node] = {}
        self._number: Ints = np.zeros(0, np.int64)  # of each row's kind, 0: none
        self._rates: dict[int, Ints] = {}  # column -> thousandths of a GPU, by row
        self._seen = 0  # so many columns are known
        self._total: tuple[tuple[int, int, int], int] = ((-1, -1, -1), 0)
        self._asked: dict[int, tuple[tuple[int, ...], Charge]] = {}
        self._choices: tuple[tuple[int, int], dict[int, list[tuple[Mask, Charge]]]] = ((-1, -1), {})

    # -- events --------------------------------------------------------------------------------

    def follow(self, row: int) -> bool:
        """A node came, changed or went; whether its row is of another kind now."""
        node = self.nodes.objects[row]
        if node is self._read.get(row):
            return False
        if node is None:
            self._read.pop(row, None)
        else:
            self._read[row] = node
        kind, before = self._kind_of(node) if node is not None else None, self._kinds.get(row)
        if kind is before:
            return False
        if kind is None:
            del self._kinds[row]
        else:
            self._kinds[row] = kind
        self.varies = bool(self._kinds)
        self.version += 1
        self._fit()
        self._number[row] = kind.number if kind is not None else 0
        for name, column in self.nodes.resources.items():
            if column in self._rates:
                self._rates[column][row] = kind.milli(name) if kind is not None else self.by_name(name)
        return True

    def _kind_of(self, node: Node) -> Kind | None:
        labels, parts = node.labels, self.nodes.partitions
        if parts.isdisjoint(node.allocatable) and GPU_REPLICAS not in labels and not self.table:
            product = labels.get(GPU_PRODUCT)
            if product is None or SINGLE not in product:
                return None  # as most nodes are
        sharing = sharing_of(labels)
        offered = [each for each in node.allocatable if each == WHOLE or each in parts]
        if not sharing.by_unit and all(milli_of(each, sharing, self.table) == self.by_name(each) for each in offered):
            return None
        known = self._interned.get(sharing)
        if known is None:
            known = self._interned[sharing] = Kind(len(self._interned) + 1, sharing, self.table)
            self._listed.append(known)
        return known

    def by_name(self, resource: str) -> int:
        """Thousandths of a GPU that one of a resource is, by its name alone."""
        return milli_of(resource, table=self.table)

    def _fit(self) -> None:
        """Extend the arrays to rows and columns that are new."""
        rows = self.nodes.capacity
        if self._seen == len(self.nodes.resources) and len(self._number) == rows:
            return
        if len(self._number) < rows:
            self._number = np.concatenate([self._number, np.zeros(rows - len(self._number), np.int64)])
        columns = self.nodes.resources
        for name in list(columns)[self._seen :]:  # in the order of their columns
            if counts(name, self.table):
                made = np.full(rows, self.by_name(name), np.int64)
                for row, kind in self._kinds.items():
                    made[row] = kind.milli(name)
                self._rates[columns[name]] = made
        self._seen = len(columns)
        for column, rates in self._rates.items():
            if len(rates) < rows:
                name = next(each for each, index in columns.items() if index == column)
                more = np.full(rows - len(rates), self.by_name(name), np.int64)
                self._rates[column] = np.concatenate([rates, more])

    # -- charges -------------------------------------------------------------------------------

    def at(self, shape: Shape, row: int) -> Charge:
        """What a pod of a shape is charged for on a row, pools aside; -1: on a node that is not known."""
        kind = self._kinds.get(row) if shape.parted else None
        return shape.charge if kind is None else shape.charge_on(kind)

    def asked(self, ranking: Ranking) -> Charge:
        """What a pod of a shape is charged for at least, on the nodes that have so much and admit it."""
        shape = ranking.shape
        if not shape.parted:
            return shape.charge
        if not self._kinds:
            shape.asked = shape.charge
            return shape.charge
        nodes = self.nodes
        stamp = (self.version, nodes.totals_version, nodes.classes.epoch, nodes.topologies.version)
        known = self._asked.get(shape.number)
        if known is None or known[0] != stamp:
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            known = self._asked[shape.number] = stamp, self._least(ranking)
        shape.asked = known[1]
        return known[1]

    def dearest(self, shape: Shape) -> Charge:
        """What a pod of a shape is charged for at most, on whatever nodes."""
        return self.choices(shape)[-1][1]

    def _least(self, ranking: Ranking) -> Charge:
        nodes, shape = self.nodes, ranking.shape
        rows: Mask = ranking.admitted(slice(0, nodes.count)) & nodes.open[: nodes.count]
        for column, amount in shape.demand:
            if column in self._rates:
                rows = rows & (nodes.alloc[column][: nodes.count] >= amount)
        charges = [self._of_number(shape, number) for number in np.unique(self._number[: nodes.count][rows]).tolist()]
        return min(charges, key=_gpus, default=shape.charge)

    def _of_number(self, shape: Shape, number: int) -> Charge:
        return shape.charge_on(self._listed[number - 1]) if number else shape.charge

    def of(self, task: Task) -> int:
        """Thousandths of GPUs that a task holds, or asks for at least while it has no node; of other vendors, too."""
        if not task.shape.parted:
            return task.shape.device_milli + task.shape.claimed_milli
        charge = self.at(task.shape, task.row) if task.row >= 0 else self.asked(task.ranking)
        return sum(amount for resource, amount in charge if resource in self.nodes.gpu_resources)

    def of_each(self, task: Task) -> list[tuple[str, int, int]]:
        """What a task asks for that is less than a GPU where it is, or by its name: (resource, how many, thousandths of one)."""
        kind, parted = self._kinds.get(task.row), task.shape.parted
        found = []
        for resource, milli in parted:
            part = kind.milli(resource) if kind is not None else self.by_name(resource)
            if task.row < 0 and len(parted) == 1:
                part = _gpus(self.asked(task.ranking)) * UNIT // milli  # on the cheapest node that it may have
            if milli % UNIT == 0 and (resource != WHOLE or part != UNIT):
                found.append((resource, milli // UNIT, part))
        return found

    def choices(self, shape: Shape) -> Sequence[tuple[Mask | None, Charge]]:
        """Rows by what a pod of a shape is charged for on them, the cheapest first; None: all. Do not write to the masks."""
        if not self._kinds or not shape.parted:
            return [(None, shape.charge)]
        count = self.nodes.count
        stamp = (self.version, count)
        if self._choices[0] != stamp or len(self._choices[1]) >= _REMEMBERED:
            self._choices = stamp, {}
        known = self._choices[1].get(shape.number)
        if known is None:
            number = self._number[:count]
            found: dict[Charge, Mask] = {}
            for each in np.unique(number).tolist():
                charge, mask = self._of_number(shape, each), number == each
                found[charge] = found[charge] | mask if charge in found else mask
            known = self._choices[1][shape.number] = [(found[charge], charge) for charge in sorted(found, key=_gpus)]
        return known

    # -- sums ----------------------------------------------------------------------------------

    def total(self, among: Mask | None = None) -> int:
        """What all nodes, or some rows, offer, in thousandths of a GPU."""
        stamp = (self.nodes.totals_version, self.version, self._seen)
        if among is None and self._total[0] == stamp:
            return self._total[1]
        found = sum(int((alloc * rates)[_among(among)].sum()) for alloc, _, rates in self._columns())
        if among is None:
            self._total = stamp, found
        return found

    def held(self, among: Mask | None = None) -> int:
        """What pods hold of that, whichever scheduler placed them, but for fractions."""
        return sum(int(((alloc - free) * rates)[_among(among)].sum()) for alloc, free, rates in self._columns())

    def unused(self, among: Mask | None = None) -> int:
        """What is free on nodes that take nothing new."""
        nodes, count = self.nodes, self.nodes.count
        shut = nodes.cordoned[:count] if among is None else nodes.cordoned[:count] & among
        found, gpus = 0, nodes.resources.get(WHOLE)
        self._fit()
        for column, rates in self._rates.items():
            free = nodes.devices.total[nodes.device[:count]] // UNIT if column == gpus else nodes.free[column][:count]
            rows = shut & (nodes.alloc[column][:count] > 0)
            found += int((np.maximum(free, 0) * rates[:count])[rows].sum())
            if column == gpus:
                rest = nodes.devices.total[nodes.device[:count]] % UNIT
                found += int((rest * rates[:count] // UNIT)[rows].sum())
        return found

    def on(self, row: int) -> tuple[int, int]:
        """What a row's device plugins offer and what its pods hold of that, in thousandths of GPUs, of all vendors."""
        nodes = self.nodes
        free = nodes.devices.states[nodes.device.item(row)]
        taken = len(free) * UNIT - sum(free)
        whole = sum((nodes.alloc[column].item(row) - nodes.free[column].item(row)) * UNIT for column in nodes.gpu_columns())
        if not self.has(row):
            # Devices show all, but where more is held than the node offers: it shrank, or another scheduler filled it.
            plain = taken == whole and min(free, default=0) >= 0
            return len(free) * UNIT, taken if plain else self._held_on(row)
        offered = sum(nodes.alloc[column].item(row) * rates.item(row) for column, rates in self._rates.items())
        others = (nodes.resources[name] for name in nodes.gpu_resources if name in nodes.resources and name != WHOLE)
        return offered + sum(nodes.alloc[column].item(row) * UNIT for column in others), self._held_on(row)

    def _held_on(self, row: int) -> int:
        return sum(self.of(task) - task.shape.claimed_milli for task in self.nodes.pods[row].values())

    def listed(self, row: int) -> list[tuple[str, int, int, int]]:
        """What a row offers by parts of a GPU: (resource, thousandths, offered, held)."""
        nodes, found = self.nodes, []
        for name, column in nodes.resources.items() if self.has(row) else ():
            offered, rates = nodes.alloc[column].item(row), self._rates.get(column)
            if rates is not None and offered and (name != WHOLE or rates.item(row) != UNIT):
                found.append((name, rates.item(row), offered, offered - nodes.free[column].item(row)))
        return sorted(found)

    def has(self, row: int) -> bool:
        """Whether a row has partitions or replicas, or pods that hold some."""
        if row in self._kinds:
            return True
        nodes = self.nodes
        if not nodes.partitions:
            return False
        self._fit()
        gpus = nodes.resources.get(WHOLE)
        return any(nodes.alloc[column].item(row) or nodes.free[column].item(row) for column in self._rates if column != gpus)

    def _columns(self) -> list[tuple[Ints, Ints, Ints]]:
        nodes, count = self.nodes, self.nodes.count
        self._fit()
        return [(nodes.alloc[column][:count], nodes.free[column][:count], rates[:count]) for column, rates in self._rates.items()]


def _gpus(charge: Charge) -> int:
    return next((amount for resource, amount in charge if resource == WHOLE), 0)


def _among(rows: Mask | None) -> Mask | slice:
    return slice(None) if rows is None else rows

"""GPUs that nodes offer by ResourceSlices, and what claims hold of them, by row: beside what device plugins offer.

**A GPU is counted once.** Where both a device plugin and a driver of the same vendor offer GPUs of a node, no object shows which
of them are the same: the node has as many as the larger of both, and all that pods hold by either way counts as used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from fairlead.core.dra.gpus import Gpus, Part
from fairlead.core.dra.model import Chosen, Device, Slice
from fairlead.core.dra.reach import reaches
from fairlead.core.mig.parts import PartTable
from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.nodes import Node
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.gpu_kinds import beyond


class Holdings(Protocol):
    """What claims hold. version: another one whenever that is different."""

    version: int

    def chosen(self) -> Iterable[tuple[Chosen, Device | None, bool]]:
        """Devices that are held: (device, what is counted instead of it, whether it is kept closed for a beneficiary)."""


class Rows(Protocol):
    """What is read of the table of nodes, and its number of the state of totals."""

    objects: list[Node | None]
    rows: dict[str, int]
    count: int
    capacity: int
    cordoned: Mask
    described: int
    totals_version: int
    gpu_resources: tuple[str, ...]
    gpu_table: PartTable

    def resource(self, name: str) -> int:
        """The column of a resource, made on first use."""


class Used(NamedTuple):
    """What claims hold of a node's GPUs, in thousandths. closed: part of it that is kept closed where victims are leaving.

    by_gpu: (driver, pool, GPU) -> held. parts: (name, thousandths of a GPU) -> how many are held.
    """

    milli: int
    closed: int
    by_gpu: dict[tuple[str, str, str], int]
    parts: dict[tuple[str, int], int]


NOTHING = Used(0, 0, {}, {})


class ClaimedGpus:
    """Of all rows. What depends on nodes is brought up to date when it is asked for; without GPUs of drivers nothing is done."""

    def __init__(self, nodes: Rows) -> None:
        self.gpus = Gpus()
        self.seen = 0  # slices of all drivers that came, changed or went
        self._nodes = nodes
        self._holdings: Holdings | None = None
        self._more: Ints = np.zeros(0, np.int64)  # thousandths that a row has beyond those of device plugins
        self._sum = 0
        self._doubtful: set[str] = set()  # names of nodes whose row may be different
        self._used: tuple[tuple[int, int], dict[str, Used]] | None = None
        self._of_none: tuple[tuple[int, int], int] = ((-1, -1), 0)

    @property
    def any(self) -> bool:
        """Whether there is anything to count."""
        return self.gpus.any

    def follow(self, holdings: Holdings) -> None:
        """Count what these claims hold."""
        self._holdings = holdings

    # -- events --------------------------------------------------------------------------------

    def put(self, item: Slice) -> None:
        """A slice came or changed."""
        self.seen += 1
        if self.gpus.put(item):
            self._changed()

    def remove(self, name: str) -> None:
        """A slice is gone."""
        self.seen += 1
        if self.gpus.remove(name):
            self._changed()

    def _changed(self) -> None:
        self._nodes.resource(self._nodes.gpu_resources[0])  # so that it counts as a resource that is known
        self._nodes.totals_version += 1

    def node_changed(self, name: str, row: int, *, gone: bool = False) -> None:
        """A node came, changed, or is gone."""
        if gone:
            self._set(row, 0)
            self._doubtful.discard(name)
        elif self.gpus.any:
            self._doubtful.add(name)

    # -- what there is -------------------------------------------------------------------------

    def more(self, row: int) -> int:
        """Thousandths of GPUs that drivers offer of a row's node beyond what its device plugins offer of the same GPUs."""
        self._settle()
        return self._more.item(row) if row < len(self._more) else 0

    def total(self, among: Mask | None = None) -> int:
        """The same of all nodes together, with GPUs of the network that some node can use; or of some rows."""
        if not self.any:
            return 0
        self._settle()
        if among is None:
            return self._sum + self._reached()
        count = min(len(among), len(self._more))
        return int(self._more[:count][among[:count]].sum())

    def unused(self, among: Mask | None = None) -> int:
        """What is free of it on nodes that take nothing new."""
        if not self.any:
            return 0
        self._settle()
        count = min(self._nodes.count, len(self._more))
        shut = self._nodes.cordoned[:count] & (self._more[:count] > 0)
        if among is not None:
            shut = shut & among[:count]
        return sum(max(0, self._more.item(row) - self.used(row).milli) for row in np.flatnonzero(shut).tolist())

    def gpus_on(self, row: int) -> list[tuple[str, str, str]]:
        """The GPUs that drivers offer of a row's node: (driver, pool, GPU)."""
        node = self._nodes.objects[row]
        if node is None or not self.any:
            return []
        return [(*pool, gpu) for pool, gpus in self.gpus.on(node.name) for gpu in gpus]

    def _settle(self) -> None:
        if not self.any and not self._sum:
            return
        doubtful = self.gpus.settle() | self._doubtful
        self._doubtful = set()
        for name in doubtful:
            row = self._nodes.rows.get(name)
            node = self._nodes.objects[row] if row is not None else None
            if row is not None and node is not None:
                self._set(row, self._beyond(node))

    def _beyond(self, node: Node) -> int:
        offered: dict[str, int] = {}
        for (driver, _), gpus in self.gpus.on(node.name):
            offered[driver] = offered.get(driver, 0) + len(gpus) * WHOLE
        return beyond(offered, node.allocatable, node.labels, self._nodes.gpu_resources, self._nodes.gpu_table)

    def _set(self, row: int, milli: int) -> None:
        if row >= len(self._more):
            if not milli:
                return
            more = max(self._nodes.capacity, row + 1) - len(self._more)
            self._more = np.concatenate([self._more, np.zeros(more, np.int64)])
        self._sum += milli - self._more.item(row)
        self._more[row] = milli

    def _reached(self) -> int:
        """Thousandths of GPUs of the network that any node can use."""
        stamp = self.gpus.version, self._nodes.described
        if self._of_none[0] != stamp:
            known: dict[object, bool] = {}
            found = 0
            for _, _, its in self.gpus.of_none():
                for reach in its:
                    if reach not in known:
                        known[reach] = any(each is not None and reaches(reach, each) for each in self._nodes.objects)
                found += WHOLE * any(known[reach] for reach in its)
            self._of_none = stamp, found
        return self._of_none[1]

    # -- what is held --------------------------------------------------------------------------

    def used(self, row: int) -> Used:
        """What claims hold of the GPUs of a row's node."""
        node = self._nodes.objects[row]
        return self._by_node().get(node.name, NOTHING) if node is not None else NOTHING

    def held(self, among: Mask | None = None) -> int:
        """Thousandths that claims hold of all GPUs, or of those of some rows, without what is kept closed for beneficiaries."""
        found = 0
        for name, used in self._by_node().items():
            row = self._nodes.rows.get(name, -1)
            counts = (row >= 0 or not name) if among is None else 0 <= row < len(among) and among.item(row)
            found += (used.milli - used.closed) if counts else 0
        return found

    def _by_node(self) -> dict[str, Used]:
        if self._holdings is None or not self.any:
            return {}
        stamp = self._holdings.version, self.gpus.version
        if self._used is None or self._used[0] != stamp:
            found: dict[str, Used] = {}
            for chosen, stand_in, closed in self._holdings.chosen():
                part = self.gpus.part(chosen, stand_in)
                if part is not None:
                    found[part.node] = _with(found.get(part.node), part, closed=closed)
            self._used = stamp, found
        return self._used[1]


def _with(used: Used | None, part: Part, *, closed: bool) -> Used:
    if used is None:
        used = Used(0, 0, {}, {})
    gpu = part.driver, part.pool, part.gpu
    used.by_gpu[gpu] = used.by_gpu.get(gpu, 0) + part.milli
    if part.name and not closed:
        used.parts[part.name, part.milli] = used.parts.get((part.name, part.milli), 0) + 1
    return used._replace(milli=used.milli + part.milli, closed=used.closed + (part.milli if closed else 0))

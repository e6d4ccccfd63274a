"""Nodes in columns: free amounts, device states and static classes, one array each.

Rows are reused slots; identity and every tie is by name, through `name_rank`: a number per row that
sorts as the names do (greater = earlier name), so that one integer key can hold score and tie.
Every change of a row is entered into the ring; caches that are out of date repair just those rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints
from fairlead.core.model.nodes import Node, Taint
from fairlead.core.model.policy import Policy
from fairlead.core.model.selectors import NAME_FIELD
from fairlead.core.model.undo import UndoLog
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.devices import DeviceStates
from fairlead.core.nodes.topology import EachRow, Topology

NAME_RANK_BITS = 30
_NAME_RANKS = 1 << NAME_RANK_BITS
_RING = 1 << 16
_BULK = 16
_FEW_RESOURCES = 8
CLOSED = 0  # the static class of rows that take nothing: vacant, or with an object that cannot be read
_PLACES = np.arange(_RING)
_CEILING = 1 << 60
_CPU_CEILING = 1 << 50
_EACH_ROW = "\0"  # no label key
_TAKES_NOTHING = frozenset(
    f"node.kubernetes.io/{each}"
    for each in ("unschedulable", "not-ready", "unreachable", "out-of-service", "network-unavailable")
)
"""Taints of nodes that take no new pods for now, but those few that are to run on every node."""


class NodeClass:
    """What filters that never read free amounts may know about a node."""

    __slots__ = ("features", "labels", "name", "taints", "unschedulable")

    def __init__(
        self,
        labels: dict[str, str],
        taints: tuple[Taint, ...],
        *,
        unschedulable: bool,
        features: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        self.labels = labels
        self.features = features
        self.name = name  # only where a filter reads it
        self.taints = taints
        self.unschedulable = unschedulable


_CLOSED_CLASS = NodeClass({}, (), unschedulable=True)


class NodeTable:
    """All nodes. Amounts are int64 columns; a resource unknown to a node is 0 there."""

    def __init__(self, log: UndoLog, policy: Policy) -> None:
        self.log = log
        self.policy = policy
        self.gpu_resources = policy.gpu_resources
        self.guards_gpus = False  # whether capacity is reserved beside free GPUs, see filters/gpu_headroom
        self.gpu_headroom_wanted = False  # whether work waits that this headroom may keep out: GPUs taken open places for it, too
        self.devices = DeviceStates()
        self.capacity = 64
        self.count = 0  # rows ever used; free slots lie below it
        self.names: list[str] = []
        self.objects: list[Node | None] = []
        self.rows: dict[str, int] = {}
        self.resources: dict[str, int] = {}
        # One matrix, resources x rows, so that many rows are gathered at once; `free` are views of its lines.
        self.matrix: Ints = np.zeros((_FEW_RESOURCES, self.capacity), np.int64)
        self.free: list[Ints] = []
        self.alloc: list[Ints] = []
        self.totals: list[int] = []  # allocatable of all nodes together, exact
        self.totals_version = 0
        self.described = 0  # raised when a node comes, goes or changes, whatever runs there
        # (2, rows): milli-CPU and bytes that pods count with in scores beyond what they ask for.
        self.extra: Ints = np.zeros((2, self.capacity), np.int64)
        self.images: dict[str, dict[int, int]] = {}  # image name -> row -> bytes
        self.images_version = 0
        self.device: npt.NDArray[np.int32] = np.zeros(self.capacity, np.int32)
        self.name_rank: Ints = np.zeros(self.capacity, np.int64)
        self.open: npt.NDArray[np.bool_] = np.zeros(self.capacity, np.bool_)
        self.cordoned: npt.NDArray[np.bool_] = np.zeros(self.capacity, np.bool_)  # takes nothing new for now
        self.shares: npt.NDArray[np.bool_] = np.zeros(self.capacity, np.bool_)
        self.static: npt.NDArray[np.int32] = np.zeros(self.capacity, np.int32)
        self.classes: list[NodeClass] = [_CLOSED_CLASS]
        self._class_ids: dict[Any, int] = {}
        self.class_epoch = 0
        self.label_keys: set[str] = set()
        self.labels_version = 0  # raised when a node comes, goes, or changes its labels
        self.topologies: dict[str, Topology] = {}
        self.pods: list[dict[str, Any]] = []
        self.ring: npt.NDArray[np.int32] = np.zeros(_RING, np.int32)
        self.ring_end = 0
        self._stamp: Ints = np.full(self.capacity, -1, np.int64)  # a row's latest place in the ring
        self.generation = 0
        self.gained: set[int] = set()
        self._vacant: list[int] = []
        self._sorted: list[str] = []
        self._name_ranks: dict[str, int] = {}
        self._unranked: list[str] = []
        self.by_name_rank: dict[int, int] = {}
        self.poisoned: dict[str, set[str]] = {}
        for resource in ("cpu", "memory", "pods"):
            self.resource(resource)
        self.cpu, self.memory = self.free[0], self.free[1]

    # -- columns -------------------------------------------------------------------------------

    def resource(self, name: str) -> int:
        """The column number of a resource, made on first use."""
        index = self.resources.get(name)
        if index is None:
            index = self.resources[name] = len(self.free)
            if index == len(self.matrix):
                self._set_matrix(np.concatenate([self.matrix, np.zeros_like(self.matrix)]), index)
            self.free.append(self.matrix[index])
            self.alloc.append(np.zeros(self.capacity, np.int64))
            self.totals.append(0)
        return index

    def gpu_columns(self) -> list[int]:
        """The columns that count GPUs, of all vendors known."""
        return [self.resources[name] for name in self.gpu_resources if name in self.resources]

    def guard_gpus(self, *, on: bool) -> None:
        """Reserve capacity beside free GPUs from now on, or no longer."""
        on = on and bool(self.policy.pods_per_free_gpu or self.policy.cpu_per_free_gpu)
        if on != self.guards_gpus:
            self.guards_gpus = on
            self.renew()
            self.gained.update(self.rows.values())

    def touch(self, row: int) -> None:
        """A row changed: every shape must score it again."""
        end = self.ring_end
        if end == _RING:
            self.renew()
            end = 0
        self.ring[end] = row
        self._stamp[row] = end
        self.ring_end = end + 1

    def changed_since(self, place: int) -> npt.NDArray[np.int32]:
        """The rows entered into the ring from a place on, each once."""
        rows = self.ring[place : self.ring_end]
        latest: npt.NDArray[np.int32] = rows[self._stamp[rows] == _PLACES[place : self.ring_end]]
        return latest

    def renew(self) -> None:
        """Too much changed: every shape starts afresh."""
        self.generation += 1
        self.ring_end = 0

    def __len__(self) -> int:
        return len(self.rows)

    def total(self, resource: str) -> int:
        """Allocatable of all nodes together, exact."""
        index = self.resources.get(resource)
        return 0 if index is None else self.totals[index]

    def unused(self, resource: str, among: npt.NDArray[np.bool_] | None = None) -> int:
        """What is free of a resource on nodes that take nothing new, of devices in milli. among: on these rows only."""
        column, shut = self.resources.get(resource), self.cordoned[: self.count]
        if column is None or not shut.any():
            return 0
        rows = np.flatnonzero((shut if among is None else shut & among) & (self.alloc[column][: self.count] > 0))
        free = self.devices.total[self.device[rows]] if resource in self.gpu_resources else self.free[column][rows]
        return int(np.maximum(free, 0).sum())

    # -- events --------------------------------------------------------------------------------

    def upsert(self, node: Node) -> int:
        """Add a node or take over its new description; what its pods hold stays charged."""
        row = self.rows.get(node.name)
        if row is None:
            row = self._slot(node.name)
        old = self.objects[row]
        if old == node:
            return row
        self.objects[row] = node
        self.described += 1
        if old is None or old.allocatable != node.allocatable:
            self._resize(row, old, node)
        if old is None or old.labels != node.labels:
            self.labels_version += 1
            for topology in self.topologies.values():
                topology.set(row, node.labels)
        if (old.images if old is not None else ()) != node.images or (old is None and self.images):
            self._list_images(row, old, node)
        self._open(row)
        self.shares[row] = node.shares_gpus
        self._classify(row)
        self.touch(row)
        self.gained.add(row)
        return row

    def remove(self, name: str) -> None:
        """Forget a node; the caller has released its pods."""
        row = self.rows.pop(name, None)
        if row is None:
            return
        self.open[row] = self.cordoned[row] = False
        self.static[row] = CLOSED
        self.totals_version += 1
        self.described += 1
        for index, column in enumerate(self.alloc):
            self.totals[index] -= column.item(row)
        for column in (*self.free, *self.alloc):
            column[row] = 0
        self.device[row] = 0
        self.extra[:, row] = 0
        if self.images:
            self._list_images(row, self.objects[row], None)
        self.objects[row] = None
        self.labels_version += 1
        for topology in self.topologies.values():
            topology.clear(row)
        self.pods[row] = {}
        self.settle_name_ranks(row_gone=(name, row))
        self._vacant.append(row)
        self.touch(row)

    def poison(self, node: str, pod: str, *, bad: bool) -> None:
        """A pod whose size is not known sits on a node: the node is closed while it is there."""
        holders = self.poisoned.setdefault(node, set())
        if bad:
            holders.add(pod)
        else:
            holders.discard(pod)
            if not holders:
                del self.poisoned[node]
        row = self.rows.get(node)
        if row is not None:
            self.described += 1
            self._open(row)
            self._classify(row)
            self.touch(row)
            self.gained.add(row)

    @property
    def each_row(self) -> Topology:
        """Every row a domain of its own."""
        return self.topology(_EACH_ROW)

    def topology(self, key: str) -> Topology:
        """The domains of a topology key, from now on kept up to date."""
        made = self.topologies.get(key)
        if made is None:
            made = self.topologies[key] = (EachRow if key == _EACH_ROW else Topology)(key, self.capacity)
            for row in self.rows.values():
                node = self.objects[row]
                if node is not None:
                    made.set(row, node.labels)
        return made

    def read_labels(self, keys: set[str]) -> None:
        """From now on filters read these labels: classes must distinguish nodes by them."""
        if keys <= self.label_keys:
            return
        self.label_keys |= keys
        del self.classes[CLOSED + 1 :]
        self._class_ids.clear()
        self.class_epoch += 1
        for row in self.rows.values():
            self._classify(row)

    def settle_name_ranks(self, row_gone: tuple[str, int] | None = None) -> None:
        """Give new rows name ranks between those of their neighbours by name; all anew where crowded."""
        if row_gone is not None:
            name, row = row_gone
            if name in self._name_ranks:
                self.by_name_rank.pop(self._name_ranks.pop(name), None)
                del self._sorted[bisect_left(self._sorted, name)]
            self.name_rank[row] = 0
        if not self._unranked:
            return
        new = [name for name in self._unranked if name in self.rows and name not in self._name_ranks]
        self._unranked.clear()
        for done, name in enumerate(new):
            at = bisect_left(self._sorted, name)
            above = self._name_ranks[self._sorted[at - 1]] if at else _NAME_RANKS
            below = self._name_ranks[self._sorted[at]] if at < len(self._sorted) else 0
            if len(new) - done > _BULK or above - below < 2:
                self._rank_all()
                return
            insort(self._sorted, name)
            self._set_name_rank(name, self.rows[name], (above + below) // 2)
            self.touch(self.rows[name])

    @property
    def unranked(self) -> bool:
        """Whether rows came that have no name rank yet."""
        return bool(self._unranked)

    # -- inside --------------------------------------------------------------------------------

    def _slot(self, name: str) -> int:
        if self._vacant:
            row = self._vacant.pop()
            self.names[row] = name
        else:
            row = self.count
            if row == self.capacity:
                self._grow()
            self.count += 1
            self.names.append(name)
            self.objects.append(None)
            self.pods.append({})
        self.rows[name] = row
        self._unranked.append(name)
        return row

    def _grow(self) -> None:
        def double(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([column, np.zeros_like(column)])

        self._set_matrix(np.concatenate([self.matrix, np.zeros_like(self.matrix)], axis=1), len(self.free))
        self.alloc = [double(column) for column in self.alloc]
        self.extra = np.concatenate([self.extra, np.zeros_like(self.extra)], axis=1)
        self.device, self.name_rank, self.open = double(self.device), double(self.name_rank), double(self.open)
        self.shares, self.static, self.cordoned = double(self.shares), double(self.static), double(self.cordoned)
        self._stamp = double(self._stamp)
        for topology in self.topologies.values():
            topology.domain = double(topology.domain)
        self.capacity *= 2
        self.renew()

    def _set_matrix(self, matrix: Ints, lines: int) -> None:
        self.matrix = matrix
        self.free = list(matrix[:lines])
        self.renew()
        if lines:
            self.cpu, self.memory = self.free[0], self.free[1]

    def _rank_all(self) -> None:
        self._sorted = sorted(self.rows)
        step = _NAME_RANKS // (len(self._sorted) + 1)
        self.by_name_rank.clear()
        for place, name in enumerate(self._sorted, 1):
            self._set_name_rank(name, self.rows[name], _NAME_RANKS - place * step)
        self.renew()

    def _set_name_rank(self, name: str, row: int, name_rank: int) -> None:
        self._name_ranks[name] = name_rank
        self.name_rank[row] = name_rank
        self.by_name_rank[name_rank] = row

    def _resize(self, row: int, old: Node | None, node: Node) -> None:
        before = old.allocatable if old else {}
        for resource in node.allocatable:
            self.resource(resource)
        for resource, index in self.resources.items():
            ceiling = _CPU_CEILING if resource == "cpu" else _CEILING
            was, now = (min(each.get(resource, 0), ceiling) for each in (before, node.allocatable))
            if was != now:
                self.free[index][row] += now - was
                self.alloc[index][row] = now
                self.totals[index] += now - was
                self.totals_version += 1
        had, has = self._device_count(before), self._device_count(node.allocatable)
        if had != has:
            free = self.devices.states[self.device.item(row)]
            self.device[row] = self.devices.intern((*free[:has], *(WHOLE,) * (has - len(free))))
            for task in self.pods[row].values():
                # A pod on a device that is gone keeps its claim on the count, not on the device.
                if task.devices and max(task.devices) >= has:
                    task.devices = tuple(device for device in task.devices if device < has)

    def forget_devices(self) -> bool:
        """Forget the device states that no node has any more, once they are many. Returns whether states have other ids now.

        Not while something is tried: the undo log knows them by their ids.
        """
        if not self.devices.crowded:
            return False
        self.device[: self.count] = self.devices.keep(self.device[: self.count])
        return True

    def _list_images(self, row: int, old: Node | None, node: Node | None) -> None:
        self.images_version += 1
        for name, _ in old.images if old is not None else ():
            holders = self.images.get(name, {})
            holders.pop(row, None)
            if not holders:
                self.images.pop(name, None)
        for name, size in node.images if node is not None else ():
            self.images.setdefault(name, {})[row] = size

    def _device_count(self, allocatable: dict[str, int]) -> int:
        for resource in self.gpu_resources:
            if allocatable.get(resource):
                return min(allocatable[resource], 1024)
        return 0

    def _open(self, row: int) -> None:
        node = self.objects[row]
        self.open[row] = node is not None and node.error is None and node.name not in self.poisoned
        cordoned = node is not None and (
            not self.open[row]
            or node.unschedulable
            or any(each.key in _TAKES_NOTHING and each.effect != "PreferNoSchedule" for each in node.taints)
        )
        if cordoned != self.cordoned[row]:
            self.cordoned[row] = cordoned
            self.totals_version += 1

    def _classify(self, row: int) -> None:
        node = self.objects[row]
        if node is None or not self.open[row]:
            self.static[row] = CLOSED
            return
        labels = {key: value for key, value in node.labels.items() if key in self.label_keys}
        name = node.name if NAME_FIELD in self.label_keys else ""
        key = (tuple(sorted(labels.items())), node.taints, node.unschedulable, node.features, name)
        number = self._class_ids.get(key)
        if number is None:
            number = self._class_ids[key] = len(self.classes)
            self.classes.append(
                NodeClass(labels, node.taints, unschedulable=node.unschedulable, features=node.features, name=name)
            )
        self.static[row] = number

"""Nodes in columns: free amounts, device states and static classes, one array each.

Rows are reused slots; identity and every tie is by name (`NameRanks`). Every change of a row is recorded (`RowChanges`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fairlead.core.mig.parts import WHOLE as WHOLE_GPU
from fairlead.core.mig.parts import counts
from fairlead.core.model.arrays import Ints
from fairlead.core.model.nodes import Node
from fairlead.core.model.policy import Policy
from fairlead.core.model.undo import UndoLog
from fairlead.core.model.units import LARGE_AMOUNT, MOST_AMOUNT, WHOLE
from fairlead.core.nodes.claimed_gpus import ClaimedGpus
from fairlead.core.nodes.contention import Contention
from fairlead.core.nodes.devices import DeviceStates
from fairlead.core.nodes.free_rows import FreeRows
from fairlead.core.nodes.gpu_kinds import table_of
from fairlead.core.nodes.images import Images
from fairlead.core.nodes.name_ranks import NameRanks
from fairlead.core.nodes.node_classes import NodeClasses
from fairlead.core.nodes.partners import Partners
from fairlead.core.nodes.row_changes import RowChanges
from fairlead.core.nodes.shared_resources import SharedResources
from fairlead.core.nodes.shortages import Shortages
from fairlead.core.nodes.tenants import Tenants
from fairlead.core.nodes.topology import Topologies

_FEW_RESOURCES = 8
_TAKES_NOTHING = frozenset(
    f"node.kubernetes.io/{each}"
    for each in ("unschedulable", "not-ready", "unreachable", "out-of-service", "network-unavailable")
)
"""Taints of nodes that take no new pods for now, but those few that are to run on every node."""


class NodeTable:
    """All nodes. Amounts are int64 columns; a resource unknown to a node is 0 there."""

    def __init__(self, log: UndoLog, policy: Policy) -> None:
        self.log = log
        self.policy = policy
        self.gpu_resources = policy.gpu_resources
        self.guards_gpus = False  # whether capacity is reserved beside free GPUs, see filters/gpu_headroom
        self.gpu_headroom_wanted = False  # whether work waits that this headroom may keep out: GPUs taken open places for it, too
        self.devices = DeviceStates()
        self.claimed = ClaimedGpus(self)  # GPUs by ResourceSlices
        self.capacity = 64
        self.count = 0  # rows ever used; free slots lie below it
        self.names: list[str] = []
        self.objects: list[Node | None] = []
        self.rows: dict[str, int] = {}
        self.changes = RowChanges(self.capacity)
        self.name_ranks = NameRanks(self.capacity, self.rows, self.changes)
        self.classes = NodeClasses(self.capacity)
        self.topologies = Topologies(self.capacity, self.rows, self.objects)
        self.resources: dict[str, int] = {}
        self.gpu_table = table_of(policy.gpu_parts)
        self.partitions: set[str] = set()  # resources that count as parts of a GPU by their names
        # One matrix, resources x rows, so that many rows are gathered at once; `free` are views of its lines.
        self.matrix: Ints = np.zeros((_FEW_RESOURCES, self.capacity), np.int64)
        self.free: list[Ints] = []
        self.alloc: list[Ints] = []
        self.totals: list[int] = []  # allocatable of all nodes together, exact
        self.totals_version = 0
        self.described = 0  # raised when a node comes, goes or changes, whatever runs there
        # (2, rows): milli-CPU and bytes that pods count with in scores beyond what they ask for.
        self.extra: Ints = np.zeros((2, self.capacity), np.int64)
        self.images = Images()
        self.contention = Contention(self.capacity, self.changes)
        self.free_rows = FreeRows(self.changes)
        self.shortages = Shortages(self.changes)
        self.tenants = Tenants(log, self.capacity)
        self.shared = SharedResources(log, self.rows, self.objects)
        self.partners = Partners(self)
        self.device: npt.NDArray[np.int32] = np.zeros(self.capacity, np.int32)
        self.open: npt.NDArray[np.bool_] = np.zeros(self.capacity, np.bool_)
        self.cordoned: npt.NDArray[np.bool_] = np.zeros(self.capacity, np.bool_)  # takes nothing new for now
        self.shares: npt.NDArray[np.bool_] = np.zeros(self.capacity, np.bool_)
        self.pods: list[dict[str, Any]] = []
        self.gained: set[int] = set()
        self._vacant: list[int] = []
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
            if name != WHOLE_GPU and counts(name, self.gpu_table):
                self.partitions.add(name)
            if index == len(self.matrix):
                self._set_matrix(np.concatenate([self.matrix, np.zeros_like(self.matrix)]), index)
            self.free.append(self.matrix[index])
            self.alloc.append(np.zeros(self.capacity, np.int64))
            self.totals.append(0)
        return index

    @property
    def gpus_known(self) -> list[str]:
        """The resources of GPUs that nodes offer or pods ask for; that of NVIDIA also where there are partitions only."""
        return [name for name in self.gpu_resources if name in self.resources or (name == WHOLE_GPU and self.partitions)]

    def is_gpu(self, resource: str) -> bool:
        """Whether a resource counts as GPUs, or as parts of them, by its name."""
        return resource in self.gpu_resources or counts(resource, self.gpu_table)

    def gpu_columns(self) -> list[int]:
        """The columns that count GPUs, of all vendors known."""
        return [self.resources[name] for name in self.gpu_resources if name in self.resources]

    def guard_gpus(self, *, on: bool) -> None:
        """Reserve capacity beside free GPUs from now on, or no longer."""
        on = on and bool(self.policy.pods_per_free_gpu or self.policy.cpu_per_free_gpu)
        if on != self.guards_gpus:
            self.guards_gpus = on
            self.changes.renew()
            self.gained.update(self.rows.values())

    def __len__(self) -> int:
        return len(self.rows)

    def total(self, resource: str) -> int:
        """Allocatable of all nodes together, exact."""
        index = self.resources.get(resource)
        return 0 if index is None else self.totals[index]

    def held(self, resource: str) -> int:
        """What pods on all nodes hold of a resource, fractions not counted."""
        index = self.resources.get(resource)
        return 0 if index is None else int((self.alloc[index] - self.free[index]).sum())

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
        if self.contention.measured(row, node):
            self.changes.touch(row)
        if old is not None and old.without_load() == node.without_load():
            self.objects[row] = node
            return row
        self.objects[row] = node
        self.described += 1
        if old is None or old.allocatable != node.allocatable:
            self._resize(row, old, node)
        if old is None or old.labels != node.labels:
            self.topologies.set(row, node.labels)
            self.shared.follow(row)
            self.totals_version += self.claimed.any  # by labels a node can use GPUs of the network
        if (old.images if old is not None else ()) != node.images or (old is None and self.images.rows):
            self.images.change(row, old, node)
        self._open(row)
        self.shares[row] = node.shares_gpus
        self._classify(row)
        self.changes.touch(row)
        self.gained.add(row)
        self.claimed.node_changed(node.name, row)
        return row

    def remove(self, name: str) -> None:
        """Forget a node; the caller has released its pods."""
        row = self.rows.pop(name, None)
        if row is None:
            return
        self.open[row] = self.cordoned[row] = False
        self.classes.classify(row, None)
        self.totals_version += 1
        self.described += 1
        for index, column in enumerate(self.alloc):
            self.totals[index] -= column.item(row)
        for column in (*self.free, *self.alloc):
            column[row] = 0
        self.device[row] = 0
        self.extra[:, row] = 0
        self.contention.clear(row, name)
        self.tenants.clear(row)
        self.partners.clear(row)
        if self.images.rows:
            self.images.change(row, self.objects[row], None)
        self.objects[row] = None
        self.shared.follow(row)
        self.claimed.node_changed(name, row, gone=True)
        self.topologies.clear(row)
        self.pods[row] = {}
        self.name_ranks.remove(name, row)
        self._vacant.append(row)
        self.changes.touch(row)

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
            self.changes.touch(row)
            self.gained.add(row)

    def read_labels(self, keys: set[str]) -> None:
        """From now on filters read these labels: classes must distinguish nodes by them."""
        if self.classes.read_labels(keys):
            for row in self.rows.values():
                self._classify(row)

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
        self.name_ranks.unranked.append(name)
        return row

    def _grow(self) -> None:
        def double(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([column, np.zeros_like(column)])

        self._set_matrix(np.concatenate([self.matrix, np.zeros_like(self.matrix)], axis=1), len(self.free))
        self.alloc = [double(column) for column in self.alloc]
        self.extra = np.concatenate([self.extra, np.zeros_like(self.extra)], axis=1)
        self.device, self.open = double(self.device), double(self.open)
        self.shares, self.cordoned = double(self.shares), double(self.cordoned)
        self.contention.grow()
        self.tenants.grow()
        self.classes.grow()
        self.name_ranks.grow()
        self.topologies.grow()
        self.capacity *= 2
        self.changes.grow()

    def _set_matrix(self, matrix: Ints, lines: int) -> None:
        self.matrix = matrix
        self.free = list(matrix[:lines])
        self.changes.renew()
        if lines:
            self.cpu, self.memory = self.free[0], self.free[1]

    def _resize(self, row: int, old: Node | None, node: Node) -> None:
        before = old.allocatable if old else {}
        for resource in node.allocatable:
            self.resource(resource)
        for resource, index in self.resources.items():
            ceiling = LARGE_AMOUNT if resource == "cpu" else MOST_AMOUNT
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

    def device_count(self, row: int) -> int:
        """How many devices a row has."""
        return len(self.devices.states[self.device.item(row)])

    def forget_devices(self) -> bool:
        """Forget the device states that no node has any more, once they are many. Returns whether states have other ids now.

        Not while something is tried: the undo log knows them by their ids.
        """
        if not self.devices.crowded:
            return False
        self.device[: self.count] = self.devices.keep(self.device[: self.count])
        return True

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
        self.classes.classify(row, self.objects[row] if self.open[row] else None)

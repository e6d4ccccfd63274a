"""What pods have of the NUMA nodes of each node: by our own accounting, in the order in which pods were placed.

A kubelet admits pods in the order in which they are bound, so what each has follows from that order, and does not wait for the
next report of the node. Where a kubelet's choice cannot be known (which of equal devices a plugin prefers) all its possible
results are kept, and a pod is admitted only if each of them admits it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.core.model.nodes import Node
from fairlead.core.model.undo import UndoLog
from fairlead.core.numa.admission import MOST_RESULTS, Refused, Result, admit, release
from fairlead.core.numa.model import Free, Held, Machine, NodeTopology, NumaNeed, unused

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable

_MOST_STATES = 100_000
_KEPT = 1 << 16


class World(NamedTuple):
    """One possible state of a node. holds: what pods have, by UID, in the order in which they came."""

    free: Free
    holds: tuple[tuple[str, Held], ...] = ()


class NumaRow(NamedTuple):
    """One node. worlds: its possible states; none: they are too many, and nothing is admitted until it is empty."""

    machine: Machine
    worlds: tuple[World, ...]


admitted = lru_cache(maxsize=_KEPT)(admit)


class NumaNodes:
    """NUMA nodes by row. any: whether some node reports its own; epoch: raised when that changes.

    state: by row the number of what is free there; 0: it reports none. generation: raised when numbers are given anew.
    """

    def __init__(self, log: UndoLog, nodes: NodeTable) -> None:
        self._log, self._nodes = log, nodes
        self.any = False
        self.epoch = self.generation = 0
        self.reported: dict[str, NodeTopology] = {}
        self.rows: dict[int, NumaRow] = {}
        self.faults: dict[str, str] = {}
        self.state: npt.NDArray[np.int32] = np.zeros(nodes.capacity, np.int32)
        self._numbers: dict[tuple[Machine, tuple[Free, ...]], int] = {}
        self.states: list[tuple[Machine, tuple[Free, ...]] | None] = [None]

    # -- events --------------------------------------------------------------------------------

    def upsert(self, topology: NodeTopology) -> None:
        """A NodeResourceTopology came or changed. What is free by it is older than our own accounting, and is not read."""
        self.reported[topology.name] = topology
        self.node_changed(topology.name)

    def remove(self, name: str) -> None:
        """It is gone: pods are placed there as if it had never been."""
        self.reported.pop(name, None)
        self.node_changed(name)

    def node_changed(self, name: str) -> None:
        """A node came, changed or is gone, or what it reports its NUMA nodes did."""
        row = self._nodes.rows.get(name)
        if row is None:
            self.faults.pop(name, None)
            return
        node = self._nodes.objects[row]
        known = self.rows.get(row)
        shown = node.numa if node is not None and node.numa is not None else self.reported.get(name)
        fault = ""
        if shown is not None and node is not None:
            fault = shown.fault or (contradiction(shown.machine, node) if shown.machine is not None else "")
        if fault:
            self.faults[name] = fault
        else:
            self.faults.pop(name, None)
        machine = shown.machine if shown is not None and not fault else None
        if machine is None and known is None:
            return
        if machine is None or known is None or known.machine != machine:
            self._begin(row, machine)

    def clear(self, row: int) -> None:
        """The node of a row is gone."""
        if row in self.rows:
            self._begin(row, None)

    def _begin(self, row: int, machine: Machine | None) -> None:
        """A row's NUMA nodes are these from now on; its pods get theirs in the order in which they came."""
        if machine is None:
            self.rows.pop(row, None)
            self.state[row] = 0
        else:
            self._set(row, NumaRow(machine, (World(unused(machine)),)))
            there = list(self._nodes.pods[row].values())
            for task in sorted(there, key=lambda each: each.pod.started or float("inf")):
                self.take(row, task.pod.uid, task.shape.spec.numa)
        if bool(self.rows) != self.any:
            self.any = bool(self.rows)
            self.epoch += 1
        self._nodes.changes.touch(row)
        self._nodes.gained.add(row)

    def recount(self) -> None:
        """What pods have, anew."""
        for row, known in list(self.rows.items()):
            self._begin(row, known.machine)

    # -- pods ----------------------------------------------------------------------------------

    def take(self, row: int, uid: str, need: NumaNeed) -> None:
        """A pod is on a row from now on. In a state that would not admit it, it has nothing, unless another does admit it."""
        known = self.rows.get(row)
        if known is None or not need:
            return
        found: dict[World, None] = {}
        for world in known.worlds:
            results = admitted(known.machine, world.free, need)
            if isinstance(results, list):
                for each in results:
                    found[World(each.free, (*world.holds, (uid, each.held)))] = None
        if found or not known.worlds:
            self._set(row, known._replace(worlds=tuple(found) if len(found) <= MOST_RESULTS else ()))

    def give(self, row: int, uid: str, others: Iterable[NumaNeed]) -> None:
        """A pod is on a row no longer. others: what those that still are need; daemons, as a rule, nothing."""
        known = self.rows.get(row)
        if known is None:
            return
        if not known.worlds:
            if not any(others):
                self._set(row, known._replace(worlds=(World(unused(known.machine)),)))
            return
        found: dict[World, None] = {}
        for world in known.worlds:
            held = next((held for other, held in world.holds if other == uid), None)
            left = tuple(each for each in world.holds if each[0] != uid)
            found[world if held is None else World(release(known.machine, world.free, held), left)] = None
        self._set(row, known._replace(worlds=tuple(found)))

    def _set(self, row: int, known: NumaRow) -> None:
        if len(self.state) < self._nodes.capacity:
            self.state = np.concatenate([self.state, np.zeros(self._nodes.capacity - len(self.state), np.int32)])
        if len(self.states) > _MOST_STATES and not self._log.depth:
            self._renumber()
        self._log.insert(self.rows, row, known)
        self._log.put(self.state, row, self._number(known))

    def _number(self, known: NumaRow) -> int:
        key = known.machine, tuple({world.free: None for world in known.worlds})
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.states)
            self.states.append(key)
        return number

    def _renumber(self) -> None:
        """Forget the states that no node has any more. Not while something is tried: the undo log knows them by number."""
        self._numbers.clear()
        self.states[1:] = []
        self.generation += 1
        for row, known in self.rows.items():
            self.state[row] = self._number(known)

    # -- questions -----------------------------------------------------------------------------

    def judge(self, number: int, need: NumaNeed) -> int:
        """Whether nodes in a state admit a pod for certain: -1 no, else by how many NUMA nodes wider than needed it may get."""
        known = self.states[number]
        if known is None:
            return 0
        machine, frees = known
        results: list[Result] = []
        for free in frees:
            found = admitted(machine, free, need)
            if isinstance(found, Refused):
                return -1
            results += found
        if not results:
            return -1
        return max(each.span if not each.preferred else each.span - 1 for each in results)

    def why(self, row: int, need: NumaNeed) -> Refused | None:
        """Why a row does not admit a pod for certain; None if it does, or if its state is not known."""
        known = self.rows.get(row)
        found = (admitted(known.machine, world.free, need) for world in known.worlds) if known is not None else ()
        return next((each for each in found if isinstance(each, Refused)), None)

    def problems(self) -> list[str]:
        """What of the accounting does not follow from the pods that are there."""
        wrong = []
        for row, known in self.rows.items():
            uids = self._nodes.pods[row].keys()
            for world in known.worlds:
                free = world.free
                for uid, held in world.holds:
                    free = release(known.machine, free, held)
                    if uid not in uids:
                        wrong.append(f"{uid} has NUMA nodes of {self._nodes.names[row]}, and is not there")
                if free != unused(known.machine):
                    wrong.append(f"what pods have of the NUMA nodes of {self._nodes.names[row]} is not what is missing there")
        return wrong


def contradiction(machine: Machine, node: Node) -> str:
    """How zones contradict what the node itself states is allocatable; empty: they do not."""
    totals: dict[str, int] = {}
    for zone in machine.zones:
        for name, count in zone.devices:
            totals[name] = totals.get(name, 0) + count
    for name, count in sorted(totals.items()):
        if node.allocatable.get(name, 0) != count:
            return f"its zones have {count} {name}, and {node.allocatable.get(name, 0)} are allocatable on the node"
    cpus = sum(zone.cpus for zone in machine.zones)
    if machine.static and node.allocatable.get("cpu", 0) > cpus * 1000:
        return f"its zones have {cpus} CPUs, and {node.allocatable['cpu'] / 1000:g} are allocatable on the node"
    memory = sum(size for zone in machine.zones for name, size in zone.memory if name == "memory")
    if machine.memory_static and node.allocatable.get("memory", 0) > memory * 2:
        return f"its zones have {memory} bytes of memory, and {node.allocatable['memory']} are allocatable on the node"
    return ""

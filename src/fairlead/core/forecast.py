"""Forecast: when everything that waits is expected to start, if all runs as long as it is thought to.

The cluster is played forward from now: what runs ends in the order of its expected ends, and whatever then fits starts,
in the order in which queues and their jobs are served, within the limits of queues. It is played with amounts, on copies:
which devices, what pods ask of each other, limits of users, and whom somebody may evict is left out, so a start may come
sooner or later. Work that starts in the forecast and whose run time is not known is thought to run as long as half of
what ended, else an hour.

Per end of a pod the shapes that wait are recounted on one row, and the first job of each composition is looked at only if
its shape's count allows it: the cost is (ends + starts) x (shapes + compositions), whatever the number of nodes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from fairlead.api.reasons import ReasonCode
from fairlead.core.model import WHOLE
from fairlead.core.nodes import Ints
from fairlead.core.queues import QueueNode, Room
from fairlead.core.shapes import Shape
from fairlead.core.state import ClusterState
from fairlead.core.tasks import Task, Unit

_UNKNOWN = 3600.0
_NEVER = (ReasonCode.TOO_LARGE, ReasonCode.NODE_AFFINITY, ReasonCode.TAINTS, ReasonCode.INVALID_SPEC)

Demand = tuple[tuple[int, int], ...]


def forecast(state: ClusterState, now: float, most: int = 100_000) -> dict[str, float]:
    """Job -> expected start, seconds since the epoch; jobs that will not start as things stand are left out.

    most: ends to play at most; jobs that have not started by then are left out.
    """
    return _Play(state, now).run(most)


@dataclass(slots=True)
class _Waiting:
    """The jobs of one composition in one queue, in their order."""

    room: Room
    units: deque[Unit]
    needs: list[tuple[int, int]]  # (shape, how many)


@dataclass(slots=True)
class _Rows:
    """How many pods of a shape each row would take now."""

    demand: Demand
    usable: np.ndarray[tuple[int], np.dtype[np.bool_]]
    held: Ints
    total: int = 0


@dataclass(slots=True, order=True)
class _End:
    at: float
    order: int
    row: int = field(compare=False)
    demand: Demand = field(compare=False)
    queue: str = field(compare=False)
    charge: tuple[tuple[str, int], ...] = field(compare=False)


class _Play:
    def __init__(self, state: ClusterState, now: float) -> None:
        self.state, self.now = state, now
        nodes = state.nodes
        self.count = nodes.count
        self.free: Ints = nodes.matrix[: len(nodes.free), : self.count].copy()
        self.gpu_columns = {nodes.resources[name] for name in nodes.gpu_resources if name in nodes.resources}
        for column in self.gpu_columns:
            self.free[column] *= WHOLE
        self.used = {name: dict(node.used) for name, node in state.queues.queues.items()}
        self.shapes: dict[int, _Rows] = {}
        self.lines: dict[str, list[_Waiting]] = {}
        self.starts: dict[str, float] = {}
        self._orders = 0
        self._spread_fractions()
        self.ends = [self._end(task, now + state.runtimes.remaining(task, now)) for task in self._running()]
        heapify(self.ends)
        for node in state.queues.queues.values():
            self._line_up(node)

    def _running(self) -> list[Task]:
        nodes = self.state.nodes
        return [task for row in nodes.rows.values() for task in nodes.pods[row].values()]

    def _spread_fractions(self) -> None:
        """Fractions of devices ask for no device by amount: here they hold their part of the row's."""
        for task in self._running():
            shape = task.shape
            if shape.gpus and shape.gpu_milli < WHOLE:
                for column in sorted(self.gpu_columns)[:1]:
                    self.free[column, task.row] -= shape.device_milli

    def _demand(self, shape: Shape) -> Demand:
        if shape.gpus and shape.gpu_milli < WHOLE:
            return (*shape.demand, *((column, shape.device_milli) for column in sorted(self.gpu_columns)[:1]))
        return tuple((column, amount * WHOLE if column in self.gpu_columns else amount) for column, amount in shape.demand)

    def _end(self, task: Task, at: float) -> _End:
        self._orders += 1
        return _End(
            at,
            self._orders,
            task.row,
            self._demand(task.shape),
            task.queue,
            self.state.queues.charge_at(task.shape, task.row) if task.pod.ours else (),
        )

    def _line_up(self, node: QueueNode) -> None:
        lines = []
        for room in node.rooms.values():
            if room.parked is not None and room.parked.code in _NEVER:
                continue
            units = deque(sorted(room.units, key=node.place))
            if not units:
                continue
            needs: dict[int, int] = {}
            for task in units[0].tasks[: units[0].need]:
                needs[task.shape.number] = needs.get(task.shape.number, 0) + 1
                self._count(task.shape)
            lines.append(_Waiting(room, units, list(needs.items())))
        if lines:
            self.lines[node.name] = lines

    def _count(self, shape: Shape) -> None:
        if shape.number in self.shapes:
            return
        demand = self._demand(shape)
        usable = shape.admitted(slice(0, self.count)) & self.state.nodes.open[: self.count]
        held: Ints = np.full(self.count, np.iinfo(np.int64).max, np.int64)
        for column, amount in demand:
            held = np.minimum(held, np.maximum(self.free[column], 0) // amount)
        held[~usable] = 0
        self.shapes[shape.number] = _Rows(demand, usable, held, int(held.sum()))

    def run(self, most: int) -> dict[str, float]:
        """Play until nobody waits, or nothing ends any more."""
        at = self.now
        self._start_all(at)
        for _ in range(most):
            if not self.lines or not self.ends:
                break
            end = heappop(self.ends)
            at = max(at, end.at)
            self._change(end.row, end.demand, 1)
            for node in self.state.queues.queues[end.queue].path if end.charge else ():
                used = self.used[node.name]
                for resource, amount in end.charge:
                    used[resource] = used.get(resource, 0) - amount
            if not self.ends or self.ends[0].at > at:
                self._start_all(at)
        for hold in self.state.reserved.of_units():
            if hold.unit is not None:
                job = hold.unit.tasks[0].job
                self.starts[job] = min(self.starts.get(job, hold.start), hold.start)
        return self.starts

    def _change(self, row: int, demand: Demand, sign: int) -> None:
        """A pod came to a row or left it: what each shape finds there is counted anew."""
        for column, amount in demand:
            self.free[column, row] += sign * amount
        for rows in self.shapes.values():
            if rows.usable[row]:
                held = min(max(0, self.free.item(column, row)) // amount for column, amount in rows.demand)
                rows.total += held - rows.held.item(row)
                rows.held[row] = held

    def _start_all(self, at: float) -> None:
        """Start whatever fits, the queue that holds least of its due first."""
        vain: set[int] = set()
        while True:
            best = None
            for name, lines in self.lines.items():
                ready = [line for line in lines if id(line) not in vain and self._counts_allow(line)]
                node = self.state.queues.queues[name]
                standing = (-node.path[-1].policy.priority, self._share(node)) if ready else None
                for line in ready:
                    place = (standing, node.place(line.units[0]))
                    if best is None or place < best[0]:
                        best = (place, line)
            if best is None:
                return
            line = best[1]
            if not self._start(line, at):
                vain.add(id(line))

    def _share(self, node: QueueNode) -> tuple[float, ...]:
        """What a queue and those above it hold of what is theirs, from the root down."""
        return tuple(self._part(each) for each in reversed(node.path))

    def _part(self, node: QueueNode) -> float:
        top = 0.0
        for resource in self.state.nodes.gpu_resources:
            held = self.used[node.name].get(resource, 0)
            due = max(self.state.queues.fair.share.get(node.name, {}).get(resource, 0), node.quota.get(resource, 0))
            top = max(top, held / due if due else float(held))
        return top

    def _start(self, line: _Waiting, at: float) -> bool:
        unit = line.units[0]
        if self._limited(unit):
            return False
        core = unit.tasks[: unit.need]
        places: list[tuple[int, Demand]] = []
        for number, needed in line.needs:
            rows, count = self.shapes[number], needed
            for row in np.argsort(-rows.held, kind="stable").tolist() if needed > 1 else [self._tightest(rows)]:
                here = min(count, rows.held.item(row))
                if here <= 0:
                    break
                count -= here
                for _ in range(here):
                    places.append((row, rows.demand))
                    self._change(row, rows.demand, -1)
            if count:
                for row, demand in places:
                    self._change(row, demand, 1)
                return False
        job, first = unit.tasks[0].job, core[0]
        self.starts.setdefault(job, at)
        total = self.state.runtimes.total(first) or self.state.runtimes.usual() or _UNKNOWN
        for (row, demand), task in zip(places, core, strict=True):
            self._orders += 1
            heappush(self.ends, _End(at + total, self._orders, row, demand, task.queue, self.state.queues.asked(task.shape)))
        for task in core:
            for node in self.state.queues.queues[task.queue].path:
                used = self.used[node.name]
                for resource, amount in self.state.queues.asked(task.shape):
                    used[resource] = used.get(resource, 0) + amount
        line.units.popleft()
        if not line.units:
            lines = self.lines[line.room.queue.name]
            lines.remove(line)
            if not lines:
                del self.lines[line.room.queue.name]
        return True

    def _counts_allow(self, line: _Waiting) -> bool:
        return all(self.shapes[number].total >= count for number, count in line.needs)

    @staticmethod
    def _tightest(rows: _Rows) -> int:
        """The row that takes fewest more: big pieces stay whole."""
        held = rows.held
        return int(np.where(held > 0, held, np.iinfo(np.int64).max).argmin())

    def _limited(self, unit: Unit) -> bool:
        demand = dict(self.state.queues.asked_together(unit.tasks[: unit.need]))
        for node in self.state.queues.queues[unit.tasks[0].queue].path:
            for resource, limit in node.limits.items():
                if resource in demand and self.used[node.name].get(resource, 0) + demand[resource] > limit:
                    return True
        return False

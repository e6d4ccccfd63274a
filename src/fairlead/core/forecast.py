"""Forecast: when each pending job is expected to start, if everything runs for its expected time.

The cluster is simulated forward from now. Running pods end in the order of their expected ends. Whatever then fits starts, in
the order in which queues and their jobs are served, within the limits of queues. A job whose time slice is over loses its place
to a job that attained less (`queues/time_slices.py`), and is not simulated further. A job within its queue's share starts at the
latest when its wait for that share is over (`shareWaitSeconds`); which victims leave for it is not simulated. Amounts are
simulated, on copies. Devices, relations between pods, limits of users, and earlier evictions for priority or shares are left
out, so a start may come sooner or later. A job that starts in the forecast and has no known run time is expected to run for the
median of the jobs that ended, else for an hour.

When a pod ends, all pending shapes are recounted on its row at once. Of the lines of equal jobs only those are considered for
whose shapes enough capacity is free. The cost is (ends + starts) x (shapes + lines), as array operations, and does not depend
on the number of nodes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints
from fairlead.core.model.charges import Charge
from fairlead.core.model.service_classes import ServiceClass
from fairlead.core.model.undo import UndoLog
from fairlead.core.model.units import WHOLE
from fairlead.core.pods.ranking import RankedShape
from fairlead.core.pods.tasks import ELASTIC_LEVEL, Task, Unit
from fairlead.core.queues.time_slices import TimeSlice, first_times, time_slices
from fairlead.core.queues.tree import PendingClass, Place, QueueNode
from fairlead.core.state.cluster import ClusterState

_UNKNOWN = 3600.0
_MOST_ASKED = 5_000  # ends of time slices that are tried; after that only ends of pods are simulated
_MANY = 1 << 40  # more than any row takes, and of many rows the sum is still no overflow
_NEVER = (ReasonCode.TOO_LARGE, ReasonCode.NODE_AFFINITY, ReasonCode.TAINTS, ReasonCode.INVALID_SPEC)

Demand = tuple[tuple[int, int], ...]
QueueOrder = tuple[int, tuple[float, ...]]


def forecast(state: ClusterState, now: float, most: int = 100_000) -> dict[str, float]:
    """Job -> expected start, seconds since the epoch; jobs that will not start as things stand are left out.

    most: ends to play at most; jobs that have not started by then are left out.
    """
    return _Play(state, now).run(most)


@dataclass(slots=True)
class _Waiting:
    """The jobs of one composition in one queue, in their order: they ask for the same."""

    pending_class: PendingClass
    units: deque[Unit]
    service: ServiceClass
    needs: list[tuple[int, int]]  # (shape's place among those that wait, how many)
    demand: Charge  # what one of them is charged for
    non_preemptible: bool
    limits: list[tuple[dict[str, int], str, int, int]]  # on the queue's path: (what is held there, resource, one's amount, limit)


@dataclass(slots=True, order=True)
class _End:
    at: float
    order: int
    row: int = field(compare=False)
    demand: Demand = field(compare=False)
    queue: str = field(compare=False)
    charge: Charge = field(compare=False)
    over: bool = field(compare=False, default=False)
    non_preemptible: bool = field(compare=False, default=False)  # it is charged to guarantees (`guarantees`)
    time_slice: TimeSlice | None = field(compare=False, default=None)


class _Play:
    def __init__(self, state: ClusterState, now: float) -> None:
        self.state, self.now = state, now
        nodes = state.nodes
        self.count = nodes.count
        self.free: Ints = nodes.matrix[: len(nodes.free), : self.count].copy()
        self.gpu_columns = {nodes.resources[name] for name in nodes.gpu_resources if name in nodes.resources}
        for column in self.gpu_columns:
            self.free[column] = np.clip(self.free[column], -_MANY, _MANY) * WHOLE
        self.used = {name: dict(node.used) for name, node in state.queues.queues.items()}
        self.guarantees = state.queues.guarantees.copy(UndoLog())
        self.lines: list[_Waiting] = []
        self.starts: dict[str, float] = {}
        self.share_starts: dict[str, float] = {}  # job -> when it starts at the latest, by its queue's share
        self._orders = 0
        self._spread_fractions()
        end_of = {task.pod.uid: self._end(task, now + state.runtimes.remaining(task, now)) for task in self._running()}
        self.ends = list(end_of.values())
        heapify(self.ends)
        self._least: int | None = None  # lowest level of those that wait first in their lines; None: not known now
        self._slices_on: dict[int, list[TimeSlice]] = {}
        self._ends_of: dict[TimeSlice, list[_End]] = {}
        for time_slice in time_slices(self._running(), state.services):
            self._ends_of[time_slice] = [end_of[task.pod.uid] for task in time_slice.tasks]
            for end in self._ends_of[time_slice]:
                end.time_slice = time_slice
            for row in time_slice.rows:
                self._slices_on.setdefault(row, []).append(time_slice)
        self.time_slices = first_times(self._ends_of, now)
        heapify(self.time_slices)
        shapes: dict[int, tuple[int, RankedShape]] = {}
        for node in state.queues.queues.values():
            known = len(self.lines)
            self._line_up(node, shapes)
            self._note_share_starts(node, self.lines[known:])
        self._count([shape for _, shape in shapes.values()])
        self.waiting = len(self.lines)
        self.needs: Ints = np.zeros((len(self.lines), len(shapes)), np.int64)  # by line and shape
        for number, line in enumerate(self.lines):
            for place, count in line.needs:
                self.needs[number, place] = count

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

    def _demand(self, shape: RankedShape) -> Demand:
        if shape.gpus and shape.gpu_milli < WHOLE:
            return (*shape.demand, *((column, shape.device_milli) for column in sorted(self.gpu_columns)[:1]))
        return tuple(
            (column, min(amount, _MANY) * WHOLE if column in self.gpu_columns else amount) for column, amount in shape.demand
        )

    def _end(self, task: Task, at: float) -> _End:
        self._orders += 1
        return _End(
            at,
            self._orders,
            task.row,
            self._demand(task.shape),
            task.queue,
            self.state.queues.tree.charge_at(task.shape, task.row) if task.charged else (),
            non_preemptible=task.charged and self.guarantees.non_preemptible(task),
        )

    def _line_up(self, node: QueueNode, shapes: dict[int, tuple[int, RankedShape]]) -> None:
        for pending_class in node.pending_classes.values():
            if pending_class.unschedulable is not None and pending_class.unschedulable.code in _NEVER:
                continue
            units = deque(sorted(pending_class.units, key=node.place))
            if not units:
                continue
            needs: dict[int, int] = {}
            core = units[0].tasks[: units[0].need]
            for task in core:
                place, _ = shapes.setdefault(task.shape.number, (len(shapes), task.shape))
                needs[place] = needs.get(place, 0) + 1
            demand = self.state.queues.tree.asked_together(core)
            limits = [
                (self.used[each.name], resource, amount, each.limits[resource])
                for each in node.path
                for resource, amount in demand
                if resource in each.limits
            ]
            non_preemptible = self.guarantees.non_preemptible(core[0])
            service = self.state.services.of(core[0])
            self.lines.append(_Waiting(pending_class, units, service, list(needs.items()), demand, non_preemptible, limits))

    def _note_share_starts(self, node: QueueNode, lines: list[_Waiting]) -> None:
        """Note when a queue's jobs start by its share: those that stay within it together with those before them."""
        state, fair = self.state, self.state.queues.fair
        if not state.policy.reclaim or not fair.scarce(node):
            return
        waiting = [(unit, line.demand) for line in lines for unit in line.units]
        more: dict[str, int] = {}
        for unit, demand in sorted(waiting, key=lambda each: node.place(each[0])):
            due = fair.due(unit, node, state.policy.share_wait)
            together = {resource: more.get(resource, 0) + amount for resource, amount in demand}
            if due < math.inf and all(fair.within(each, list(together.items())) for each in node.path):
                more.update(together)
                self.share_starts[unit.tasks[0].job] = max(due, self.now)

    def _count(self, shapes: list[RankedShape]) -> None:
        """How many pods of each shape each row would take now: `held`, (shapes, rows); `total`, (shapes,)."""
        self.demands = [self._demand(shape) for shape in shapes]
        self.usable = np.zeros((len(shapes), self.count), np.bool_)
        self.amounts: Ints = np.zeros((len(shapes), len(self.free)), np.int64)
        self.held: Ints = np.full((len(shapes), self.count), _MANY, np.int64)
        for number, (shape, demand) in enumerate(zip(shapes, self.demands, strict=True)):
            self.usable[number] = shape.admitted(slice(0, self.count)) & self.state.nodes.open[: self.count]
            for column, amount in demand:
                self.amounts[number, column] = amount
                self.held[number] = np.minimum(self.held[number], np.maximum(self.free[column], 0) // amount)
        self.held[~self.usable] = 0
        self.total: Ints = self.held.sum(axis=1)
        asks = self.amounts > 0
        self.amounts[~asks] = 1
        self.unasked: Ints = np.where(asks, 0, _MANY)

    def run(self, most: int) -> dict[str, float]:
        """Simulate until no job waits, or nothing ends any more."""
        at = self.now
        self._start_all(at)
        asked = 0
        for _ in range(most):
            while (
                self.time_slices
                and self.ends
                and self.time_slices[0][0] < self.ends[0].at
                and self.waiting
                and asked < _MOST_ASKED
            ):
                asked += 1
                at = max(at, self._next_time_slice())
            if not self.waiting or not self.ends:
                break
            end = heappop(self.ends)
            if end.over:
                continue  # it lost its place before
            if end.time_slice is not None:
                end.time_slice.over = True  # what is left of a gang has no time slice any more
            at = max(at, end.at)
            self._release(end, 1)
            if not self.ends or self.ends[0].at > at:
                self._start_all(at)
        for job, due in self.share_starts.items():
            self.starts[job] = min(self.starts.get(job, due), due)
        for hold in self.state.reserved.of_units():
            if hold.unit is not None:
                job = hold.unit.tasks[0].job
                self.starts[job] = min(self.starts.get(job, hold.start), hold.start)
        return self.starts

    def _release(self, end: _End, sign: int) -> None:
        """A pod's place is given back, or (-1) taken again."""
        end.over = sign > 0
        self._change(end.row, end.demand, sign)
        path = self.state.queues.queues[end.queue].path if end.charge else ()
        if end.non_preemptible:
            self.guarantees.add(path, end.charge, -sign)
        for node in path:
            used = self.used[node.name]
            for resource, amount in end.charge:
                used[resource] = used.get(resource, 0) - sign * amount

    def _next_time_slice(self) -> float:
        """Try the next time slice that ends; returns when that is."""
        at, number, time_slice = heappop(self.time_slices)
        if time_slice.over:
            return at
        if self._ends_time_slice(time_slice, at):
            self._start_all(at)
            return at
        later = time_slice.next(at)
        if later is not None:
            heappush(self.time_slices, (later, number, time_slice))
        return at

    def _ends_time_slice(self, time_slice: TimeSlice, at: float) -> bool:
        """Whether a pending job takes the place of a running one, with others on its rows where one is not enough."""
        if not time_slice.open(at) or not self._any_attained_less(time_slice, at):
            return False
        near = dict.fromkeys(each for row in sorted(time_slice.rows) for each in self._slices_on[row])
        beside = [each for each in near if each is not time_slice and not each.over and each.open(at)]
        could = np.flatnonzero(
            (self.needs <= self._capacity_without((time_slice, *beside), time_slice.rows)).all(axis=1)
        ).tolist()
        takers = [number for number in could if self.lines[number].units and self._takes_from(self.lines[number], time_slice, at)]
        queue_orders: dict[str, QueueOrder] = {}
        for number in sorted(takers, key=lambda each: self._order_of(self.lines[each], queue_orders)):
            if self._takes_places(number, time_slice, beside, at):
                return True
        return False

    def _capacity_without(self, gone: tuple[TimeSlice, ...], rows: frozenset[int]) -> Ints:
        """How many pods of each shape would fit, were the places of these on some rows free; shape (shapes,)."""
        free = {row: self.free[:, row].copy() for row in rows}
        for time_slice in gone:
            for end in self._ends_of[time_slice]:
                for column, amount in end.demand if end.row in free else ():
                    free[end.row][column] += amount
        counts = self.total.copy()
        for row, amounts in free.items():
            counts += self._held_with(row, amounts) - self.held[:, row]
        return counts

    def _takes_places(self, number: int, time_slice: TimeSlice, beside: list[TimeSlice], at: float) -> bool:
        """Whether the first of a line starts in the place of one that runs and, where it must, of others on its rows."""
        line = self.lines[number]
        gone: list[TimeSlice] = []
        for each in (time_slice, *beside):
            if each is not time_slice and not self._takes_from(line, each, at):
                continue
            for end in self._ends_of[each]:
                self._release(end, 1)
            gone.append(each)
            if (self.needs[number] <= self.total).all() and not self._limited(line) and self._start(number, at):
                for one in gone:
                    one.over = True
                return True
        for each in gone:
            for end in self._ends_of[each]:
                self._release(end, -1)
        return False

    def _takes_from(self, line: _Waiting, time_slice: TimeSlice, at: float) -> bool:
        """Whether the first of a line may take the place of one that runs."""
        near = line.pending_class.queue.within_scope(line.service.scope, self.state.queues.queues[time_slice.queue])
        return time_slice.gives_to(line.units[0], line.service, at, near=near)

    def _any_attained_less(self, time_slice: TimeSlice, at: float) -> bool:
        """Whether any pending job attained less; asked of all running jobs again and again."""
        if self._least is None:
            self._least = min(
                (line.units[0].level for line in self.lines if line.units and line.service.levels), default=ELASTIC_LEVEL
            )
        return self._least < time_slice.level(at)

    def _change(self, row: int, demand: Demand, sign: int) -> None:
        """A pod came to a row or left it: what each shape finds there is counted anew."""
        for column, amount in demand:
            self.free[column, row] += sign * amount
        found = self._held_with(row, self.free[:, row])
        self.total += found - self.held[:, row]
        self.held[:, row] = found

    def _held_with(self, row: int, free: Ints) -> Ints:
        """How many pods of each shape a row takes with so much free; shape (shapes,)."""
        each = np.maximum(free, 0) // self.amounts + self.unasked
        found: Ints = np.minimum.reduce(each, axis=1, initial=_MANY) * self.usable[:, row]
        return found

    def _start_all(self, at: float) -> None:
        """Start whatever fits, the queue that holds the smallest part of its deserved share first."""
        vain: set[int] = set()
        while True:
            best = None
            queue_orders: dict[str, QueueOrder] = {}
            for number in np.flatnonzero((self.needs <= self.total).all(axis=1)).tolist():
                line = self.lines[number]
                if number in vain or not line.units or self._limited(line):
                    continue
                place = self._order_of(line, queue_orders)
                if best is None or place < best[0]:
                    best = (place, number)
            if best is None:
                return
            if not self._start(best[1], at):
                vain.add(best[1])

    def _order_of(self, line: _Waiting, known: dict[str, QueueOrder]) -> tuple[QueueOrder, Place]:
        """The order of a line's first job among all pending jobs: smaller goes first. known: the orders of queues."""
        queue = line.pending_class.queue
        queue_order = known.get(queue.name)
        if queue_order is None:
            queue_order = known[queue.name] = (-queue.path[-1].policy.priority, self._share(queue))
        return queue_order, queue.place(line.units[0])

    def _share(self, node: QueueNode) -> tuple[float, ...]:
        """Which part of their deserved shares a queue and those above it hold, from the root down."""
        return tuple(self._part(each) for each in reversed(node.path))

    def _part(self, node: QueueNode) -> float:
        top = 0.0
        for resource in self.state.nodes.gpu_resources:
            held = self.used[node.name].get(resource, 0)
            deserved = max(self.state.queues.fair.share.get(node.name, {}).get(resource, 0), node.quota.get(resource, 0))
            top = max(top, held / deserved if deserved else float(held))
        return top

    def _start(self, number: int, at: float) -> bool:
        line = self.lines[number]
        unit = line.units[0]
        core = unit.tasks[: unit.need]
        places: list[tuple[int, Demand]] = []
        for shape, needed in line.needs:
            held, demand, count = self.held[shape], self.demands[shape], needed
            for row in np.argsort(-held, kind="stable").tolist() if needed > 1 else [self._tightest(held)]:
                here = min(count, held.item(row))
                if here <= 0:
                    break
                count -= here
                for _ in range(here):
                    places.append((row, demand))
                    self._change(row, demand, -1)
            if count:
                for row, demand in places:
                    self._change(row, demand, 1)
                return False
        job, first = unit.tasks[0].job, core[0]
        self.starts.setdefault(job, at)
        total = self.state.runtimes.total(first) or self.state.runtimes.usual() or _UNKNOWN
        for (row, demand), task in zip(places, core, strict=True):
            self._orders += 1
            charge = self.state.queues.tree.asked(task.shape)
            heappush(
                self.ends, _End(at + total, self._orders, row, demand, task.queue, charge, non_preemptible=line.non_preemptible)
            )
        if line.non_preemptible:
            self.guarantees.add(line.pending_class.queue.path, line.demand, 1)
        for node in line.pending_class.queue.path:
            used = self.used[node.name]
            for resource, amount in line.demand:
                used[resource] = used.get(resource, 0) + amount
        line.units.popleft()
        self._least = None
        if not line.units:
            self.needs[number] = _MANY
            self.waiting -= 1
        return True

    @staticmethod
    def _tightest(held: Ints) -> int:
        """The row that takes fewest more, so that large free capacity is not fragmented."""
        return int(np.where(held > 0, held, _MANY).argmin())

    def _limited(self, line: _Waiting) -> bool:
        if line.non_preemptible and self.guarantees.broken(line.pending_class.queue.path, line.demand) is not None:
            return True
        return any(used.get(resource, 0) + amount > limit for used, resource, amount, limit in line.limits)

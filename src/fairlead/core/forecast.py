"""Forecast: when each pending job is expected to start, if everything runs for its expected time.

The cluster is simulated forward from now. Running pods end in the order of their expected ends. Whatever then fits starts, in
the order in which queues and their jobs are served, within the limits of queues. A job whose time slice is over loses its place
to a job that attained less (`queues/time_slices.py`), and is not simulated further. A job within its queue's share starts at
the latest when its wait for that share is over (`shareWaitSeconds`); which victims leave for it is not simulated. Amounts are
simulated, on copies. Devices, relations between pods, limits of users, and earlier evictions for priority or shares are left
out, so a start may come sooner or later. Devices of claims are one amount of GPUs on the nodes that have such devices: which of
them are free together is not simulated, and devices that are no GPUs are not counted; where nodes are reserved for a job with
claims, its start is known by that. So it is for a gang that waits for a domain of the network. What pools share is one amount
of each name. Jobs that isolate nodes are kept apart from others with GPUs, but not from one another. A job that starts in the
forecast and has no known run time is expected to run for the median of the jobs that ended, else for an hour.

When a pod ends, all pending shapes are recounted on its row at once (`pods/capacity`). `queues/forecast_lines` answers which
lines of equal jobs fit then, and which is next. Shapes and lines of which nothing waits any more are left out from time to time.
The cost is (ends + starts) x (shapes + lines) as array operations, at most `_MOST_COUNTED`, and does not depend on the number of
nodes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints
from fairlead.core.model.charges import Charge
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.shared_resources import Amounts, Key, wanted_by
from fairlead.core.pods.capacity import Capacity, Demand
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import ELASTIC_LEVEL, Task
from fairlead.core.queues.forecast_lines import Line, Lines, QueueOrder
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.time_slices import TimeSlice, first_times, time_slices
from fairlead.core.state.cluster import ClusterState

_UNKNOWN = 3600.0
_MOST_ASKED = 5_000  # ends of time slices that are tried; after that only ends of pods are simulated
_MOST_COUNTED = 1_000_000_000  # amounts that are compared; what has not started by then is left out
_NEVER = (ReasonCode.TOO_LARGE, ReasonCode.NODE_AFFINITY, ReasonCode.TAINTS, ReasonCode.INVALID_SPEC)
_IN_DOMAINS = (ReasonCode.TOPOLOGY, ReasonCode.RESERVATION)  # not for want of amounts, where a gang must be in one domain


def forecast(state: ClusterState, now: float, most: int = 100_000) -> dict[str, float]:
    """Job -> expected start, seconds since the epoch; jobs that will not start as things stand are left out.

    most: ends to play at most; jobs that have not started by then are left out.
    """
    return _Play(state, now).run(most)


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
    shared: Amounts = field(compare=False, default=())  # what it takes of what pools share


def _confined(tasks: Sequence[Task]) -> bool:
    """Whether members of a gang, or of a part of it, must be in one domain of the network."""
    return any((near := task.shape.spec.near) is not None and (near.required or near.team) for task in tasks)


def _of_pools(state: ClusterState) -> tuple[dict[str, int], dict[str, int]]:
    """What pods take of what pools share, and what that is, by name: in all pools together."""
    shared = state.nodes.shared
    used, declared = dict[str, int](), dict[str, int]()
    for pool, amounts in shared.declared.items():
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + shared.used.get((pool, name), 0)
            declared[name] = declared.get(name, 0) + amount
    return used, declared


class _Play:
    def __init__(self, state: ClusterState, now: float) -> None:
        self.state, self.now = state, now
        self.used = {name: dict(node.used) for name, node in state.queues.queues.items()}
        self.guarantees = state.queues.guarantees.copy(UndoLog())
        self.capacity = Capacity(state.nodes, self._running(), state.device_claims.rows_for)
        self.shared, self.declared = _of_pools(state)
        self.starts: dict[str, float] = {}
        self.share_starts: dict[str, float] = {}  # job -> when it starts at the latest, by its queue's share
        self.not_before: dict[str, float] = {}  # job -> until when it waits at most for fewer domains of the network
        self._orders = 0
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
        shapes: dict[int, tuple[int, Ranking]] = {}
        lines: list[Line] = []
        for node in state.queues.queues.values():
            of_queue = list(self._line_up(node, shapes))
            self._note_share_starts(node, of_queue)
            lines += of_queue
        self.capacity.count([ranking for _, ranking in shapes.values()])
        self.lines = Lines(lines)
        self._parts: dict[str, float] = {}  # queue -> which part of its deserved share it holds

    def _running(self) -> list[Task]:
        nodes = self.state.nodes
        return [task for row in nodes.rows.values() for task in nodes.pods[row].values()]

    def _end(self, task: Task, at: float) -> _End:
        self._orders += 1
        return _End(
            at,
            self._orders,
            task.row,
            self.capacity.demand_of(task.shape),
            task.queue,
            self.state.queues.tree.charge_at(task.shape, task.row) if task.charged else (),
            non_preemptible=task.charged and self.guarantees.non_preemptible(task),
            shared=tuple((name, amount) for (_, name), amount in self._parts_of(task)) if task.shape.spec.shared else (),
        )

    def _parts_of(self, task: Task) -> Iterator[tuple[Key, int]]:
        return self.state.nodes.shared.parts(task.shape.spec.shared, task.row)

    def _line_up(self, node: QueueNode, shapes: dict[int, tuple[int, Ranking]]) -> Iterator[Line]:
        for pending_class in node.pending_classes.values():
            why = pending_class.unschedulable
            if why is not None and why.code in _NEVER:
                continue
            units = deque(sorted(pending_class.units, key=node.unit_key))
            if not units:
                continue
            needs: dict[int, int] = {}
            core = units[0].tasks[: units[0].need]
            if any(need.served for task in core for need in task.shape.spec.devices):
                continue  # which of devices and amounts serve it depends on the node: foretold once nodes are reserved for it
            if why is not None and why.code in _IN_DOMAINS and _confined(core):
                continue  # enough may be free, but in no domain: the same
            if why is not None and why.code is ReasonCode.PREFERRED_TOPOLOGY:
                wait = self.state.policy.preferred_wait
                self.not_before.update({unit.tasks[0].job: unit.created + wait for unit in units})
            for task in core:
                place, _ = shapes.setdefault(task.shape.number, (len(shapes), task.ranking))
                needs[place] = needs.get(place, 0) + 1
            demand = self.state.queues.tree.asked_together(core)
            limits = [
                (self.used[each.name], resource, amount, each.limits[resource])
                for each in node.path
                for resource, amount in demand
                if resource in each.limits
            ]
            taken = wanted_by(task.shape.spec.shared for task in core)
            limits += [(self.shared, name, amount, self.declared.get(name, 0)) for name, amount in sorted(taken.items())]
            non_preemptible = self.guarantees.non_preemptible(core[0])
            service = self.state.services.of(core[0])
            yield Line(pending_class, units, service, list(needs.items()), demand, non_preemptible, limits, deque())

    def _note_share_starts(self, node: QueueNode, lines: list[Line]) -> None:
        """Note when a queue's jobs start by its share: those that stay within it together with those before them."""
        state, fair = self.state, self.state.queues.fair
        if not state.policy.reclaim or not fair.scarce(node):
            return
        waiting = [(unit, line.demand) for line in lines for unit in line.units]
        more: dict[str, int] = {}
        for unit, demand in sorted(waiting, key=lambda each: node.unit_key(each[0])):
            due = fair.due(unit, node, state.policy.share_wait)
            together = {resource: more.get(resource, 0) + amount for resource, amount in demand}
            if due < math.inf and all(fair.within(each, list(together.items())) for each in node.path):
                more.update(together)
                self.share_starts[unit.tasks[0].job] = max(due, self.now)

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
                and self.lines.waiting
                and asked < _MOST_ASKED
            ):
                asked += 1
                at = max(at, self._next_time_slice())
            if not self.lines.waiting or not self.ends or self.capacity.counted + self.lines.counted > _MOST_COUNTED:
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
        for job, until in self.not_before.items():
            if job in self.starts:  # enough is free for it: when fewer domains hold it is not known
                self.starts[job] = max(self.starts[job], until)
        for job, due in self.share_starts.items():
            self.starts[job] = min(self.starts.get(job, due), due)
        for hold in self.state.reserved.of_units():
            if hold.unit is not None:
                job = hold.unit.tasks[0].job
                tasks = hold.unit.tasks
                planned = any(task.shape.spec.devices for task in tasks) or _confined(tasks)  # amounts would be too early
                self.starts[job] = hold.start if planned else min(self.starts.get(job, hold.start), hold.start)
        return self.starts

    def _release(self, end: _End, sign: int) -> None:
        """A pod's place is given back, or (-1) taken again."""
        end.over = sign > 0
        self.capacity.change(end.row, end.demand, sign)
        for name, amount in end.shared:
            self.shared[name] -= sign * amount
        path = self.state.queues.queues[end.queue].path if end.charge else ()
        if end.non_preemptible:
            self.guarantees.add(path, end.charge, -sign)
        self._hold(path, end.charge, -sign)

    def _hold(self, path: Iterable[QueueNode], charge: Charge, sign: int) -> None:
        """Queues hold so much more (1), or less (-1)."""
        for node in path:
            used = self.used[node.name]
            self._parts.pop(node.name, None)
            for resource, amount in charge:
                used[resource] = used.get(resource, 0) + sign * amount

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
        fitting = self.lines.fitting(self._capacity_without((time_slice, *beside), time_slice.rows))
        takers = [line for line in map(self.lines.line, fitting.tolist()) if self._takes_from(line, time_slice, at)]
        for line in sorted(takers, key=lambda each: (self._queue_order(each.queue), each.ranks[0])):
            if self._takes_places(line, time_slice, beside, at):
                return True
        return False

    def _capacity_without(self, gone: tuple[TimeSlice, ...], rows: frozenset[int]) -> Ints:
        """How many pods of each shape would fit, were the places of these on some rows free; shape (shapes,)."""
        gone_on: dict[int, list[Demand]] = {row: [] for row in rows}
        for time_slice in gone:
            for end in self._ends_of[time_slice]:
                if end.row in gone_on:
                    gone_on[end.row].append(end.demand)
        return self.capacity.total_with(gone_on)

    def _takes_places(self, line: Line, time_slice: TimeSlice, beside: list[TimeSlice], at: float) -> bool:
        """Whether the first of a line starts in the place of one that runs and, where it must, of others on its rows."""
        gone: list[TimeSlice] = []
        for each in (time_slice, *beside):
            if each is not time_slice and not self._takes_from(line, each, at):
                continue
            for end in self._ends_of[each]:
                self._release(end, 1)
            gone.append(each)
            if self._fits(line) and not self._limited(line) and self._start(line, at):
                for one in gone:
                    one.over = True
                return True
        for each in gone:
            for end in self._ends_of[each]:
                self._release(end, -1)
        return False

    def _fits(self, line: Line) -> bool:
        """Whether enough is free for the first of a line."""
        return all(self.capacity.total.item(shape) >= count for shape, count in line.needs)

    def _takes_from(self, line: Line, time_slice: TimeSlice, at: float) -> bool:
        """Whether the first of a line may take the place of one that runs."""
        near = line.queue.within_scope(line.service.scope, self.state.queues.queues[time_slice.queue])
        return time_slice.gives_to(line.units[0], line.service, at, near=near)

    def _any_attained_less(self, time_slice: TimeSlice, at: float) -> bool:
        """Whether any pending job attained less; asked of all running jobs again and again."""
        if self._least is None:
            self._least = min(
                (line.units[0].level for line in self.lines.waiting_lines() if line.service.levels), default=ELASTIC_LEVEL
            )
        return self._least < time_slice.level(at)

    def _start_all(self, at: float) -> None:
        """Start whatever fits, the queue that holds the smallest part of its deserved share first."""
        if self.lines.worn():
            self.capacity.keep(self.lines.leave_out())
        vain: list[int] = []
        while (fitting := self.lines.fitting(self.capacity.total, vain)).size:
            number = self.lines.next(fitting, self._queue_order, self._limited)
            if number is None:
                return
            if not self._start(self.lines.line(number), at):
                vain.append(number)

    def _queue_order(self, queue: QueueNode) -> QueueOrder:
        """The order of a queue among all: smaller goes first."""
        return -queue.path[-1].policy.priority, self._share(queue)

    def _share(self, node: QueueNode) -> tuple[float, ...]:
        """Which part of their deserved shares a queue and those above it hold, from the root down."""
        return tuple(self._part(each) for each in node.path[::-1])

    def _part(self, node: QueueNode) -> float:
        known = self._parts.get(node.name)
        if known is not None:
            return known
        top = 0.0
        for resource in self.state.nodes.gpu_resources:
            held = self.used[node.name].get(resource, 0)
            deserved = max(self.state.queues.fair.share.get(node.name, {}).get(resource, 0), node.quota.get(resource, 0))
            top = max(top, held / deserved if deserved else float(held))
        self._parts[node.name] = top
        return top

    def _start(self, line: Line, at: float) -> bool:
        unit = line.units[0]
        core = unit.tasks[: unit.need]
        places = self.capacity.place(line.needs)
        if places is None:
            return False
        job, first = unit.tasks[0].job, core[0]
        self.starts.setdefault(job, at)
        total = self.state.runtimes.total(first) or self.state.runtimes.usual() or _UNKNOWN
        for (row, demand), task in zip(places, core, strict=True):
            self._orders += 1
            charge = self.state.queues.tree.asked(task.ranking)
            shared = task.shape.spec.shared
            for name, amount in shared:
                self.shared[name] = self.shared.get(name, 0) + amount
            end = _End(at + total, self._orders, row, demand, task.queue, charge, shared=shared)
            end.non_preemptible = line.non_preemptible
            heappush(self.ends, end)
        if line.non_preemptible:
            self.guarantees.add(line.queue.path, line.demand, 1)
        self._hold(line.queue.path, line.demand, 1)
        self.lines.start(line)
        self._least = None
        return True

    def _limited(self, line: Line) -> bool:
        if line.non_preemptible and self.guarantees.broken(line.queue.path, line.demand) is not None:
            return True
        return any(used.get(resource, 0) + amount > limit for used, resource, amount, limit in line.limits)

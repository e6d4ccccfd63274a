"""Reservations: nodes reserved for later.

A hold closes rows from now until its start to all that would still run then, and until its end to all that it does not
admit. The scheduler makes holds for blocked units (`actions/reserve.py`: backfill with reservations), administrators by
Reservation objects: `Maintenance` admits no pod, `Capacity` the pods of a queue. For units estimates of run times count;
for administrators only time limits do, since no pod is evicted when a window begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.mig.parts import WHOLE as GPU
from fairlead.core.model.arrays import Mask
from fairlead.core.model.backoff import backoff
from fairlead.core.model.charges import Charge
from fairlead.core.model.nodes import Reservation
from fairlead.core.model.selectors import matches
from fairlead.core.model.units import WHOLE
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.tasks import Gang, Placeholder, Task, Unit
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.queues import Queues
from fairlead.core.queues.reserved_devices import ReservedDevices
from fairlead.core.queues.reserved_shared import ReservedShared
from fairlead.core.queues.runtimes import RunTimes

if TYPE_CHECKING:
    from fairlead.core.dra.held import NodeState
    from fairlead.core.model.undo import UndoLog
    from fairlead.core.pods.shapes import Shape


_FIRST_PAUSE, _LONGEST_PAUSE = 600.0, 6 * 3600.0
_SOON = 1.0  # seconds
HEADS = "head/"
"""Before a key: what was reserved for a unit because it had been passed for too long."""


def key_of_reservation(name: str) -> str:
    """The key of an administrator's reservation among holds."""
    return f"reservation/{name}"


def key_of_job(gang: Gang | None, uid: str) -> str:
    """The key of the hold for a gang, or a pod without one."""
    return f"gang/{gang.key}" if gang is not None else f"pod/{uid}"


@dataclass(slots=True)
class Hold:
    """Rows reserved from `start` to `end`, seconds since the epoch; before `start` they are open to what ends in time.

    unit: for whom, if a unit waits for them; else `given` names it. spare: row -> column -> what is left there at the
    start, for all. devices: of units with claims, what is spoken for of devices then; shared: the same of what pools share.
    late: how often the start came and what ran was still there. stale: to be planned anew. lacking: the least that was missing
    on its rows so far, in thousandths of what is asked for; vain: how often in a row a start was missed and no less was missing
    than before. own: all that runs there is of the unit's own queue. check: when something must have ended there, where run
    times are guessed. head: what is known of a unit that was passed for too long (`actions/heads.py`); without rows only
    headroom is reserved for it.
    """

    key: str
    rows: list[int]
    start: float
    end: float = math.inf
    unit: Unit | None = None
    given: Reservation | None = None
    spare: dict[int, dict[int, int]] = field(default_factory=dict)
    late: int = 0
    stale: bool = False
    lacking: int = 0
    vain: int = 0
    own: bool = False
    check: float = math.inf
    head: Kept | None = None
    devices: ReservedDevices | None = None
    shared: ReservedShared | None = None

    def kept_rows(self, task: Task) -> list[int]:
        """The rows of which it keeps something from a task; devices of the network are kept from tasks with claims anywhere."""
        rows, spec = {*self.rows}, task.shape.spec
        if self.devices is not None and spec.devices:
            rows.update(self.devices.rows())
        if self.shared is not None and spec.shared:
            rows.update(np.flatnonzero(self.shared.closed(spec.shared)).tolist())
        return self.rows if len(rows) == len(self.rows) else sorted(rows)


@dataclass(slots=True)
class Kept:
    """What a head needs. demand: what its queue will be charged for it.

    blockers: UIDs of what is in its way; moved_on: when one of them ended last.
    """

    demand: Charge
    blockers: frozenset[str]
    moved_on: float


@dataclass(slots=True)
class Head:
    """The first unit of a queue that was refused. since: from when on it is passed by others.

    vain: so often in a row nothing would have helped; again: no plan before.
    """

    unit: Unit
    since: float
    again: float = 0.0
    vain: int = 0


class Reservations:
    """All holds. version: changes when work that was closed out may be let in."""

    def __init__(self, log: UndoLog, nodes: NodeTable, queues: Queues, runtimes: RunTimes) -> None:
        self.log = log
        self.nodes = nodes
        self.queues = queues
        self.runtimes = runtimes
        self.holds: dict[str, Hold] = {}
        self.given: dict[str, Reservation] = {}
        self.lacking: dict[str, dict[str, int]] = {}  # administrators' reservation -> what its nodes have too little of
        self.version = 0
        self.now = 0.0
        self.due: float | None = None  # when a hold should be made for a unit that waits
        self.waits: dict[str, Head] = {}  # key -> since when it is passed, also of those that are not first now
        self.check_at = -math.inf  # the heads of queues are not checked before
        self.head_due: float | None = None  # when a head will have been passed for long enough
        self.again_at: float | None = None  # when what a hold excluded is tried again, if no pass comes before
        self._labels = -1
        self._totals = -1
        self._weighed: tuple[Unit | None, dict[int, bool]] = (None, {})  # a unit -> id of another -> `_would_take_back`
        self._given_up: dict[str, tuple[int, float]] = {}  # key -> how often it came to nothing, and until when there is none

    # -- holds ---------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """A pass begins: windows open and close, nodes come and go. Holds of units are renewed by `actions/reserve.py`."""
        self.now, self.again_at = now, None
        if self._labels != self.nodes.topologies.version:
            self._labels = self.nodes.topologies.version
            self._totals = -1
            for hold in self.of_units():
                hold.stale = True  # its rows may be others' now
        if self._totals != self.nodes.totals_version:
            self._totals = self.nodes.totals_version
            for reservation in self.given.values():
                self._lay(reservation)
        for key in [key for key, (_, until) in self._given_up.items() if until + _LONGEST_PAUSE <= now]:
            del self._given_up[key]
        for hold in list(self.holds.values()):
            if hold.end <= now:
                self.drop(hold)

    def of_units(self) -> Iterator[Hold]:
        """Those made for units that wait."""
        return (hold for hold in self.holds.values() if hold.unit is not None)

    def keep(self, hold: Hold) -> None:
        """Reserve rows. What ends before may have them meanwhile: the later the hold begins, the more does."""
        old = self.holds.get(hold.key)
        if old is not None and (hold.start > old.start or hold.spare != old.spare or hold.shared is not old.shared):
            self.version += 1
        self.holds[hold.key] = hold

    def drop(self, hold: Hold) -> None:
        """Reserve them no longer."""
        if self.holds.pop(hold.key, None) is not None:
            self.version += 1

    def give_up(self, hold: Hold, now: float, first: float = _FIRST_PAUSE) -> None:
        """It came to nothing: there is none for its unit before a pause that doubles each time. first: of that, in seconds."""
        key = hold.key if hold.head is None else HEADS + hold.key
        times = self._given_up.get(key, (0, 0.0))[0] + 1
        self._given_up[key] = times, now + backoff(first, times, max(first, _LONGEST_PAUSE))
        self.drop(hold)

    def backoff_until(self, key: str) -> float:
        """Before this nothing is reserved for a unit again, since it came to nothing."""
        return self._given_up.get(key, (0, 0.0))[1]

    def started(self, key: str) -> None:
        """A unit got its place."""
        if self._given_up:
            self._given_up.pop(key, None)
            self._given_up.pop(HEADS + key, None)
        if self.waits:
            self.waits.pop(key, None)
        if key in self.holds:
            self.drop(self.holds[key])

    def upsert(self, reservation: Reservation) -> None:
        """An administrator's reservation came or changed."""
        if self.given.get(reservation.name) != reservation:
            self.given[reservation.name] = reservation
            self._lay(reservation)

    def remove(self, name: str) -> None:
        """It is gone."""
        self.given.pop(name, None)
        self.lacking.pop(name, None)
        if key_of_reservation(name) in self.holds:
            self.drop(self.holds[key_of_reservation(name)])

    def _lay(self, reservation: Reservation) -> None:
        """The rows of an administrator's reservation: all that it selects, or the first by name that have what it asks for."""
        nodes = self.nodes
        rows: list[int] = []
        missing = dict(reservation.resources)
        for name in sorted(nodes.rows):
            row = nodes.rows[name]
            node = nodes.objects[row]
            if node is None or not matches(reservation.nodes, node.labels):
                continue
            if reservation.resources:
                offered = {resource: self._offered(resource, row) for resource, amount in missing.items() if amount > 0}
                if not any(offered.values()):
                    if not offered:
                        break
                    continue  # it has nothing of what is still missing
                for resource, amount in offered.items():
                    missing[resource] -= amount
            rows.append(row)
        key = key_of_reservation(reservation.name)
        old = self.holds.get(key)
        self.lacking[reservation.name] = {resource: amount for resource, amount in missing.items() if amount > 0}
        if old is not None and old.given == reservation and old.rows == rows:
            return
        self.holds.pop(key, None)
        self.version += 1
        if reservation.end > self.now and rows:
            self.holds[key] = Hold(key, rows, reservation.start, reservation.end, given=reservation)

    def _offered(self, resource: str, row: int) -> int:
        """What a node has of a resource; of GPUs also those that only a driver offers."""
        nodes = self.nodes
        more = nodes.claimed.more(row) // WHOLE if resource == GPU else 0
        return nodes.alloc[nodes.resource(resource)].item(row) + more

    def doubt(self, name: str) -> tuple[bool, str, str] | None:
        """What an administrator should know of a reservation: (whether it is in force as it is, reason, message)."""
        reservation = self.given.get(name)
        if reservation is None or reservation.end <= self.now:
            return None
        if reservation.queue and not self.queues.tree.has_object(reservation.queue):
            return False, "QueueNotFound", f"queue {reservation.queue!r} does not exist: no pod may use the nodes"
        hold, lacking = self.holds.get(key_of_reservation(name)), self.lacking.get(name, {})
        if hold is None:
            which = "no node that it selects has what it asks for" if reservation.resources else "it selects no node"
            return False, "NoNodes", f"{which}: nothing is reserved"
        if overlapping := self._overlapping(hold):
            return True, "SameNodes", overlapping
        for resource, amount in sorted(lacking.items()):
            wanted = dict(reservation.resources)[resource]
            message = f"the nodes that it selects have {wanted - amount} {resource} of the {wanted} that it asks for"
            return True, "TooFewNodes", message
        return None

    def _overlapping(self, hold: Hold) -> str:
        """Which other reservation keeps the pods of a reservation's queue off its nodes, in words; empty: none does."""
        mine = hold.given
        if mine is None or not mine.queue:
            return ""
        rows = set(hold.rows)
        for name in sorted(self.given):
            other, theirs = self.given[name], self.holds.get(key_of_reservation(name))
            if theirs is None or theirs is hold or not (other.start < mine.end and mine.start < other.end):
                continue
            if other.queue and any(
                self.queues.tree.above(above, below) for above, below in ((other.queue, mine.queue), (mine.queue, other.queue))
            ):
                continue
            if both := sum(row in rows for row in theirs.rows):
                whom = f"queue {other.queue!r}" if other.queue else "maintenance"
                all_of = f"{both} of its {len(hold.rows)} nodes"
                return f"reservation {name!r} of {whom} is for {all_of} at the same time: no pod may use them then"
        return ""

    def pass_soon(self, now: float) -> None:
        """Holds ended after everything was served: what they excluded is tried in another pass, a second later at most."""
        self.again_at = now + _SOON

    def next_due(self) -> float | None:
        """When something changes by itself."""
        times = [due for due in (self.due, self.head_due, self.again_at) if due is not None]
        for hold in self.holds.values():
            times += [time for time in (hold.start, hold.end, hold.check) if self.now < time < math.inf]
        return min(times, default=None)

    # -- questions -----------------------------------------------------------------------------

    def closed(self, task: Task) -> Mask | None:
        """For each row whether it is kept from a task; None if none is."""
        return self._closed_by(self.against(task), task)

    def closed_to_moved(self, task: Task) -> Mask | None:
        """The same of a pod that is moved: nothing is reserved for it, and its queue holds no more than before.

        So it stays, whatever else leaves its place. task: of its shape.
        """
        return self._closed_by([hold for hold in self.holds.values() if hold.rows or hold.shared is not None], task, moved=True)

    def closed_by_administrators(self, task: Task) -> Mask | None:
        """The same of what administrators reserve, whatever is reserved for units that wait."""
        return self._closed_by([hold for hold in self.against(task) if hold.given is not None], task) if self.given else None

    def _closed_by(self, against: list[Hold], task: Task, *, moved: bool = False) -> Mask | None:
        if not against:
            return None
        closed, demand = np.zeros(self.nodes.count, np.bool_), self._demand(task.shape)
        for hold in against:
            if not moved and self.exhausts(hold, task) is not None:
                closed[:] = True
                break
            for row in hold.rows:
                spare = hold.spare.get(row)
                if spare is None or any(spare.get(column, 0) < amount for column, amount in self._on(row, task.shape, demand)):
                    closed[row] = True
            if hold.devices is not None and task.shape.spec.devices:
                closed |= hold.devices.closed(task.ranking)
            if hold.shared is not None and task.shape.spec.shared:
                closed |= hold.shared.closed(task.shape.spec.shared)
        return closed

    def devices_for(self, task: Task, row: int) -> NodeState | None:
        """What a task may have of the devices of a row where some are kept from it; None: all that is free.

        It was asked before whether the row is closed to the task.
        """
        state: NodeState | None = None
        for devices in self._devices_against(task):
            if (left := devices.state_on(row)) is not None:
                state = left if state is None else state.less(left)
        return state

    def closed_together(self, task: Task) -> Mask | None:
        """The rows from where devices can be had that are kept from a task; None: there are none."""
        found = [devices.all_closed() for devices in self._devices_against(task)]
        return np.logical_or.reduce(found) if found else None

    def _devices_against(self, task: Task) -> list[ReservedDevices]:
        """The devices that are kept from a task."""
        moved = isinstance(task, Placeholder) and task.moved  # nothing is reserved for what moves
        holds = [hold for hold in self.holds.values() if hold.devices is not None]
        return [hold.devices for hold in holds if hold.devices is not None and (moved or not self._lets(hold, task))]

    def exhausts(self, hold: Hold, task: Task, charge: Charge | None = None) -> QueueNode | None:
        """The queue that may not hold both a task and the head for which a hold is; None if all on their paths may.

        charge: what is asked for, if more than the task has.
        """
        head, unit, queues = hold.head, hold.unit, self.queues
        if head is None or unit is None:
            return None
        first, asked = unit.tasks[0], dict(queues.tree.asked(task.ranking) if charge is None else charge)
        path, theirs = queues.queues[task.queue].path, queues.queues[first.queue]
        wanted = [(name, amount + asked[name]) for name, amount in head.demand if asked.get(name)]
        for node in theirs.path if wanted else ():
            if node in path:
                most = queues.fair.most(node, unit)
                if all(amount <= most.get(name, amount) for name, amount in head.demand) and any(
                    node.used.get(name, 0) + amount > most.get(name, math.inf) for name, amount in wanted
                ):
                    return node
        fixed = queues.guarantees.non_preemptible(task) and queues.guarantees.non_preemptible(first)
        return theirs if fixed and queues.guarantees.broken(theirs.path, tuple(wanted)) is not None else None

    def exhausted_by(self, unit: Unit) -> tuple[Hold, QueueNode] | None:
        """The first hold for a head that keeps what a queue may hold from a unit as a whole, and the queue; None: none does."""
        charge: Charge | None = None
        for hold in self.against(unit.tasks[0]) if self.holds else ():
            if hold.head is not None:
                charge = charge or self.queues.tree.asked_together(unit.tasks[: unit.need])
                if (queue := self.exhausts(hold, unit.tasks[0], charge)) is not None:
                    return hold, queue
        return None

    def _on(self, row: int, shape: Shape, demand: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """What a pod takes of what is left on a row, by column. demand: on every row."""
        if not shape.offered:
            return demand
        alloc = self.nodes.alloc
        return (*demand, *((column, amount) for column, amount in shape.offered if alloc[column].item(row)))

    def _demand(self, shape: Shape) -> Sequence[tuple[int, int]]:
        """What a pod takes on every row, by column: of a device that is shared, it spoils one."""
        if shape.offered:
            return shape.demand
        if not shape.gpus or shape.gpu_milli >= WHOLE:
            return shape.demand
        column = self.nodes.resources.get(self.nodes.gpu_resources[0])
        return shape.demand if column is None else (*shape.demand, (column, shape.gpus))

    def against(self, task: Task) -> list[Hold]:
        """The holds that keep rows from a task."""
        return [hold for hold in self.holds.values() if not self._lets(hold, task)]

    def take(self, task: Task, row: int) -> None:
        """A task is placed: where it takes what a hold can spare, less is left for others."""
        for hold in self.holds.values():
            spare = hold.spare.get(row)
            if spare is not None and not self._lets(hold, task):
                for column, amount in self._on(row, task.shape, self._demand(task.shape)):
                    self.log.add(spare, column, -amount)
            if hold.devices is not None and task.shape.spec.devices and not self._lets(hold, task):
                hold.devices.take(task)
            if hold.shared is not None and task.shape.spec.shared and not self._lets(hold, task):
                hold.shared.take(self.log, task.shape.spec.shared, row)

    def take_moved(self, task: Task, row: int) -> None:
        """The same of what holds the new place of a pod that moves; what its claims have is kept by no hold any more."""
        for hold in self.holds.values():
            if (spare := hold.spare.get(row)) is not None:
                for column, amount in self._on(row, task.shape, self._demand(task.shape)):
                    self.log.add(spare, column, -amount)
            if hold.devices is not None and task.pod.claims:
                hold.devices.take(task)
            if hold.shared is not None and task.shape.spec.shared:
                hold.shared.take(self.log, task.shape.spec.shared, row)

    def _lets(self, hold: Hold, task: Task) -> bool:  # noqa: PLR0911 - the first rule
        if hold.given is not None:
            if hold.given.queue and self.queues.tree.above(hold.given.queue, task.queue):
                return True
            return self.now + self.runtimes.services.limits.of(task) <= hold.start
        unit = hold.unit
        if unit is None or task.unit is unit or (task.gang is not None and task.gang is unit.gang):
            return True
        if hold.head is not None:
            if not hold.rows and self.queues.queues[task.queue].path[-1] is not self.queues.queues[unit.tasks[0].queue].path[-1]:
                return True  # only what its own queues may hold is kept
            ends_before = not hold.late and self.now + self.runtimes.services.limits.of(task) <= hold.start
            return ends_before or self._goes_before(unit, task)
        if task.unit is not None and task.unit.overdue:
            return True
        if task.pod.priority > unit.priority or (task.unit is not None and task.unit.express and not unit.express):
            return True
        first = unit.tasks[0]
        if hold.own and task.queue != first.queue:
            return True  # its own queue keeps it out: others pay nothing for that
        if self._queue_priority(task) > self._queue_priority(first):
            return True
        return self._ends_before(hold, task) or self._would_take_back(task, unit)

    def _ends_before(self, hold: Hold, task: Task) -> bool:
        """Whether a task that starts now is thought to end before a hold begins."""
        total = self.runtimes.total(task)
        if total is None:
            return False
        # What is ended at its time limit does end. What is only expected to was wrong each time that the start was put off:
        # were it believed again for all who come, one after the other would put it off for ever.
        certain = self.runtimes.services.limits.of(task) <= total
        return self.now + (total if certain else total * (1 + hold.late)) <= hold.start

    def _goes_before(self, unit: Unit, task: Task) -> bool:
        """Whether a task goes before a unit that was passed for too long, whatever is reserved for that one."""
        first, own = unit.tasks[0], task.unit
        if self._queue_priority(task) > self._queue_priority(first) or (own is not None and own.express and not unit.express):
            return True
        if task.queue == first.queue:
            node = self.queues.queues[first.queue]
            return own is not None and node.unit_key(own) < node.unit_key(unit)
        policy = self.queues.fair.policy
        return policy.reclaim and policy.preempt and self._would_take_back(task, unit)

    @contextmanager
    def weighed(self, unit: Unit) -> Iterator[None]:
        """Within this, holds give way to a unit's guarantee where they do at its start, whatever is tried for the unit.

        Victims that are taken on trial change what their queues hold, and a hold of theirs would bind the unit then.
        """
        outer, self._weighed = self._weighed, (None, {})
        others = [hold.unit for hold in self.holds.values() if hold.unit is not None]
        self._weighed = (unit, {id(other): self._would_take_back(unit.tasks[0], other) for other in others})
        try:
            yield
        finally:
            self._weighed = outer

    def _would_take_back(self, task: Task, unit: Unit) -> bool:
        """Whether a task, with its gang, deserves what a unit would hold beyond its queue's share: it would preempt the unit."""
        queues = self.queues
        weighed, verdicts = self._weighed
        if weighed is not None and task.unit is weighed and id(unit) in verdicts:
            return verdicts[id(unit)]
        demand = task.unit.demand if task.unit is not None else queues.tree.asked(task.ranking)
        return queues.reclaim.is_due_before(queues.queues[task.queue], demand, queues.queues[unit.tasks[0].queue], unit.demand)

    def _queue_priority(self, task: Task) -> int:
        return self.queues.queues[task.queue].path[-1].policy.priority

"""Allocate: give the next unit its place among free capacity, or return as data why there is none.

`core.explain` puts that into words where it is reported.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np

from fairlead.api.names import AI_PROFILE
from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core import gang_slices
from fairlead.core.gang_devices import place_members
from fairlead.core.gang_topology import ATTEMPTS, Scattered, by_rank, domains_of_all, near_of, neighbourhoods, scattered
from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.pods import Near
from fairlead.core.nodes.shared_resources import wanted_by
from fairlead.core.nodes.whole_domains import first_of
from fairlead.core.pods.colocation import Homes, homes, kin
from fairlead.core.pods.filters.compute_domains import ComputeDomains
from fairlead.core.pods.filters.network_topology import NetworkTopology
from fairlead.core.pods.layout import lay_out
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Task, TaskState, Unit
from fairlead.core.queues.queue_node import QueueNode
from fairlead.core.queues.reservations import Hold
from fairlead.core.state.cluster import ClusterState

_ANYWHERE = Homes({}, frozenset())


class NoCapacity(NamedTuple):
    """No node, or no set of nodes, has capacity. What each node lacks is not counted: that costs more than the attempt."""

    code: ReasonCode = ReasonCode.RESOURCES


class OverLimit(NamedTuple):
    """A limit of its queue, or of one above it, keeps it out. reason: which, with the numbers."""

    reason: Reason

    @property
    def code(self) -> ReasonCode:
        """The limit's own."""
        return self.reason.code


class ReservedForOthers(NamedTuple):
    """There is capacity, but it is reserved for others until after a task is expected to end.

    hold: the first for which it is reserved. nodes: on how many nodes; none where it is what `queue` may still hold.
    """

    task: Task
    hold: Hold
    nodes: int
    queue: QueueNode | None = None
    code: ReasonCode = ReasonCode.RESERVATION


Refused = NoCapacity | OverLimit | ReservedForOthers | Scattered


def allocate(state: ClusterState, unit: Unit) -> list[Task] | Refused:
    """Place a unit on free capacity. Returns the tasks placed, or why none was; then nothing changed."""
    near = unit.tasks[0].shape.spec.near
    if len(unit.tasks) == 1 and (near is None or not near.preferred):  # else it matters to it in which domain it runs
        return _single(state, unit.tasks[0])
    outcome = _gang(state, unit)
    if isinstance(outcome, NoCapacity):
        # More nodes would not help a gang that its queue may not hold, so no autoscaler sees it as unschedulable.
        limit = state.queues.limits.over_limits(unit)
        return outcome if limit is None else OverLimit(limit)
    return outcome


def _single(state: ClusterState, task: Task) -> list[Task] | Refused:
    limit = state.queues.limits.over_limit(task)
    if limit is not None:
        return OverLimit(limit)
    near = task.shape.spec.near
    row = best_row(state, task, None if near is None or not near.parts else gang_slices.kept_off(state, task))
    if row < 0:
        return NoCapacity()
    state.placement.place(task, row)
    if state.reserved.holds:
        state.reserved.take(task, row)
    task.become(TaskState.ASSUMED)
    return [task]


def best_row(state: ClusterState, task: Task, outside: Mask | None = None) -> int:
    """The row where a task is placed best now, or -1: none that is kept, or was cleared, for others, or lies outside."""
    closed = closed_to(state, task, outside)
    places = _places(state, task) if state.network.pools else None
    if closed is None and places is None and not state.pods.nominated:
        return task.ranking.best()
    if (few := task.ranking.few_rows()) is not None and not few:
        return -1
    if state.pods.nominated:
        return _beside_nominated(state, task, closed)
    keys = _without(task.ranking.ranked(), closed)
    return _best_of(keys) if places is None else first_of(keys, places)


def _places(state: ClusterState, task: Task) -> Ints | None:
    """In which order domains of the network are used up by a pod that asks for none; None: that is no question."""
    if task.shape.spec.near is not None or task.pod.profile != AI_PROFILE or task.ranking.strategy.fill == "spread":
        return None
    return state.whole_domains.places()


def closed_to(state: ClusterState, task: Task, outside: Mask | None = None) -> Mask | None:
    """For each row whether it is closed to a task that may fit: reserved for others, its pool's limit reached, or outside."""
    kept = state.reserved.closed(task) if state.reserved.holds else None
    limited = state.queues.limits.closed(task) if state.queues.tree.by_row else None
    closed = kept if limited is None else limited if kept is None else kept | limited
    near = task.shape.spec.near
    if near is not None and (far := state.network.closed(near)) is not None:
        outside = far if outside is None else outside | far
    return closed if outside is None else outside if closed is None else closed | outside


def _without(keys: Ints, closed: Mask | None) -> Ints:
    return keys if closed is None else np.where(closed, -1, keys)


def _best_of(keys: Ints) -> int:
    row = int(keys.argmax()) if len(keys) else -1
    return row if row >= 0 and keys.item(row) >= 0 else -1


def _beside_nominated(state: ClusterState, task: Task, closed: Mask | None) -> int:
    """The best row for a task that is also good with those there for whom it was cleared, as upstream.

    Only pods of at least its priority count, and only while they wait: after a restart, or when another scheduler
    nominated them. What this scheduler holds itself is taken already.
    """
    keys = _without(task.ranking.ranked(), closed)
    for node, others in sorted(state.pods.nominated.items()):
        row = state.nodes.rows.get(node)
        ahead = [
            each
            for uid, each in sorted(others.items())
            if uid != task.pod.uid and each.state is TaskState.WAITING and each.pod.priority >= task.pod.priority
        ]
        if row is None or not ahead or keys.item(row) < 0:
            continue
        mark = state.log.mark()
        for each in ahead:
            state.placement.assign(each, row, ())
        fits = task.ranking.fits_row(row)
        state.log.rollback(mark)
        if not fits:
            keys = keys.copy()
            keys[row] = -1
    return _best_of(keys)


def fits(state: ClusterState, unit: Unit) -> bool:
    """Whether a unit could be placed as things stand; nothing changes."""
    mark = state.log.mark()
    placed = isinstance(_gang(state, unit) if len(unit.tasks) > 1 else _single(state, unit.tasks[0]), list)
    for task in unit.tasks:
        task.become(TaskState.WAITING)
    state.log.rollback(mark)
    return placed


def _gang(state: ClusterState, unit: Unit) -> list[Task] | Refused:
    """All of the needed members, then as many of the others as fit."""
    if state.nodes.shared.declared and _lacks_shared(state, unit):
        return NoCapacity()
    if (kept := state.reserved.exhausted_by(unit)) is not None:
        limit = state.queues.limits.over_limits(unit)  # each of them may fit beside the head by itself
        return ReservedForOthers(unit.tasks[0], kept[0], 0, kept[1]) if limit is None else OverLimit(limit)
    near = near_of(state, unit)
    if near is None:
        return _gang_anywhere(state, unit)
    return _gang_in_slices(state, unit, near) if gang_slices.divided(unit) else _gang_near(state, unit, near)


def _lacks_shared(state: ClusterState, unit: Unit) -> bool:
    """Whether all pools together have too little left of what the needed members of a unit take of shared resources."""
    wanted = wanted_by(task.shape.spec.shared for task in unit.tasks[: unit.need])
    return bool(wanted) and state.nodes.shared.lacks(wanted)


def _gang_in_slices(state: ClusterState, unit: Unit, near: Near) -> list[Task] | Refused:
    """A gang with slices, or roles in domains of their own: as the search lays it, else slice by slice."""
    refused: Refused | None = None
    for laid in islice(gang_slices.plans(state, unit, lambda task: closed_to(state, task)), ATTEMPTS):
        outcome = _as_laid(state, laid)
        if isinstance(outcome, list):
            return outcome + _others(state, unit)
        refused = outcome
        if isinstance(refused, OverLimit) and not state.queues.tree.by_row:
            return refused
    outcome = _slice_by_slice(state, unit, near)
    if isinstance(outcome, list):
        return outcome + _others(state, unit)
    if isinstance(refused or outcome, NoCapacity):
        return full_pool(state, unit.tasks[0]) or reserved_for_others(state, unit.tasks[0]) or NoCapacity(ReasonCode.TOPOLOGY)
    return refused or outcome


def _as_laid(state: ClusterState, laid: gang_slices.Laid) -> list[Task] | Refused:
    """A gang with its needed members on these rows."""
    mark = state.log.mark()
    placed: list[Task] = []
    for task, row in laid:
        limit = state.queues.limits.over_limit(task, row=row)
        if limit is not None or not task.ranking.fits_row(row):
            state.log.rollback(mark)
            return OverLimit(limit) if limit is not None else NoCapacity(ReasonCode.TOPOLOGY)
        state.placement.place(task, row)
        state.reserved.take(task, row)
        placed.append(task)
    state.log.commit()
    for task in placed:
        task.become(TaskState.ASSUMED)
    return placed


def _others(state: ClusterState, unit: Unit) -> list[Task]:
    """As many as fit of the members that a gang can do without, one by one."""
    outcomes = (_single(state, task) for task in unit.tasks[unit.need :])
    return [task for placed in outcomes if isinstance(placed, list) for task in placed]


def _slice_by_slice(state: ClusterState, unit: Unit, near: Near) -> list[Task] | Refused:
    """The same where other rules than amounts decide: in one domain after the other, of the preferred level first."""
    refused: Refused | None = None
    for rows in domains_of_all(state, unit, near, lambda task: closed_to(state, task)):
        with state.network.within(near.gang, rows):
            outcome = _each_slice(state, unit)
        if isinstance(outcome, list):
            return outcome
        refused = refused or outcome
    return refused or NoCapacity(ReasonCode.TOPOLOGY)


def _each_slice(state: ClusterState, unit: Unit) -> list[Task] | Refused:
    """One slice, or role with a domain of its own, after the other, in the domain where it fits tightest."""
    mark = state.log.mark()
    placed: list[Task] = []
    refused: Refused | None = None
    for together in gang_slices.blocks(state, unit):
        for rows in gang_slices.domains_for(state, together):
            inner = state.log.mark()
            before = len(placed)
            with state.network.all_within(gang_slices.counted_as(together), rows):
                refused = _fill_all(state, together, placed)
            if refused is None:
                state.log.commit()
                break
            del placed[before:]
            state.log.rollback(inner)
        else:
            state.log.rollback(mark)
            return refused or NoCapacity(ReasonCode.TOPOLOGY)
    state.log.commit()
    for task in placed:
        task.become(TaskState.ASSUMED)
    return placed


def _fill_all(state: ClusterState, tasks: list[Task], placed: list[Task]) -> Refused | None:
    """All of these tasks, shape by shape; why one of them has no place."""
    by_shape: dict[int, list[Task]] = {}
    for task in tasks:
        by_shape.setdefault(task.shape.number, []).append(task)
    for alike in by_shape.values():
        if (refused := _fill(state, alike, placed, None)) is not None:
            return refused
    return None


def _gang_near(state: ClusterState, unit: Unit, near: Near) -> list[Task] | Refused:
    """A gang whose members are to be close to one another: where that is best, else where it is allowed."""
    refused: Refused | None = _too_few(state, unit, near) or scattered(state, unit, near, lambda task: closed_to(state, task))
    if refused is not None:
        return refused
    for rows in neighbourhoods(state, unit, near, lambda task: closed_to(state, task)):
        with state.network.within(near.gang, rows):
            outcome = _gang_anywhere(state, unit)
        if isinstance(outcome, list):
            return outcome
        refused = outcome
        if isinstance(refused, OverLimit) and not state.queues.tree.by_row:
            return refused
    if near.required and (refused is None or isinstance(refused, NoCapacity)):
        return full_pool(state, unit.tasks[0]) or reserved_for_others(state, unit.tasks[0]) or NoCapacity(ReasonCode.TOPOLOGY)
    return refused or _shut_out(state, unit.tasks[0])


def _too_few(state: ClusterState, unit: Unit, near: Near) -> Refused | None:
    """Why a gang has no place although it may be in any domain; None: it may have one. Of members that are alike only.

    The most frequent question where many gangs wait: too little is free, so no choice of domains needs to be made.
    """
    core = list(unit.tasks[: unit.need])
    first = core[0].shape
    if near.required or first.spec.devices or first.wants_company or state.queues.tree.by_row:
        return None
    if any(task.shape is not first for task in core):
        return None
    capacity = _capacity_of(core[0].ranking)
    return _too_little(state, core, capacity) if capacity < len(core) else None


def _gang_anywhere(state: ClusterState, unit: Unit) -> list[Task] | Refused:
    groups = kin(unit.tasks[: unit.need])
    refused: Refused | None = None
    for home in homes(groups) if groups else (_ANYWHERE,):
        outcome = _settle_in(state, unit, home)
        if isinstance(outcome, list):
            return outcome
        refused = outcome
        if isinstance(refused, NoCapacity) and _with_devices_together(state, unit, home):
            return list(unit.tasks[: unit.need])
        if isinstance(refused, OverLimit) and not state.queues.tree.by_row:
            break  # as it would be elsewhere
    return refused or _shut_out(state, unit.tasks[0])


def _with_devices_together(state: ClusterState, unit: Unit, home: Homes) -> bool:
    """Whether the needed members of a gang are placed now, with the claims of all of them allocated at once."""
    needed = unit.tasks[: unit.need]
    with_claims = [task for task in needed if task.shape.spec.devices]
    if not with_claims:
        return False
    mark = state.log.mark()

    def closed(task: Task) -> Mask | None:
        # Devices of all members are chosen at once: where some are reserved for others none of them is had.
        found, kept = closed_to(state, task, home.outside.get(task.shape.number)), state.reserved.closed_together(task)
        return found if kept is None else kept if found is None else found | kept

    done = place_members(state, with_claims, closed)
    if done:
        placed: list[Task] = []
        others = [task for task in needed if not task.shape.spec.devices]
        done = all(_fill(state, [task], placed, home.outside.get(task.shape.number)) is None for task in others)
    if not done:
        state.log.rollback(mark)
        return False
    state.log.commit()
    for task in needed:
        task.become(TaskState.ASSUMED)
    return True


def _settle_in(state: ClusterState, unit: Unit, home: Homes) -> list[Task] | Refused:
    """A gang in given domains: founders first, then the scarcest shape; what is beyond its need where capacity is left."""
    mark = state.log.mark()
    placed: list[Task] = []
    for core, group in ((True, unit.tasks[: unit.need]), (False, unit.tasks[unit.need :])):
        by_shape: dict[int, list[Task]] = {}
        for task in group:
            by_shape.setdefault(task.shape.number, []).append(task)
        capacities = {number: _capacity_of(tasks[0].ranking) for number, tasks in by_shape.items()}
        order = sorted(
            by_shape,
            key=lambda number: (
                number not in home.founders,
                -sum(amount for _, amount in by_shape[number][0].shape.spec.shared),  # only some pools have what these take
                capacities[number],
                by_shape[number][0].pod.key,
            ),
        )
        for number in order:
            tasks = by_shape[number]
            refused: Refused | None
            if core and not placed and capacities[number] < len(tasks) and not state.queues.tree.by_row:
                refused = _too_little(state, tasks, capacities[number])
            else:
                refused = _fill(state, tasks, placed, home.outside.get(number) if core else None)
            if refused is not None and core:
                state.log.rollback(mark)
                return refused
    state.log.commit()
    for task in placed:
        task.become(TaskState.ASSUMED)
    return placed


def _capacity_of(ranking: Ranking) -> int:
    return int(ranking.counts().sum())


def _too_little(state: ClusterState, tasks: list[Task], capacity: int) -> Refused:
    """Why tasks for which too little is free are not placed, without trying: the most frequent question in a full cluster."""
    limit = state.queues.limits.over_limit(tasks[0], count=capacity) if capacity else None
    return OverLimit(limit) if limit is not None else _shut_out(state, tasks[0])


def _shut_out(state: ClusterState, task: Task) -> Refused:
    """Why a member finds no node, as far as the state of its gang depends on it."""
    return full_pool(state, task) or reserved_for_others(state, task) or NoCapacity()


def full_pool(state: ClusterState, task: Task) -> OverLimit | None:
    """A limit for a pool that has capacity for the pod, or outside which it may not run; None if there is none."""
    full = state.queues.limits.full_rows(task)
    if not full:
        return None
    rows = slice(0, state.nodes.count)
    fits, admitted = task.ranking.alone(), task.ranking.admitted(rows) & state.nodes.open[rows]
    closed = np.logical_or.reduce([mask for mask, _ in full])
    if admitted.any() and not (admitted & ~closed).any():
        return OverLimit(full[0][1])
    return next((OverLimit(reason) for mask, reason in full if (fits & mask).any()), None)


def reserved_for_others(state: ClusterState, task: Task) -> ReservedForOthers | None:
    """Suitable nodes are reserved for others until after the pod is expected to end; None if there are none."""
    if not state.reserved.holds:
        return None
    against = state.reserved.against(task)
    for hold in against:
        queue = state.reserved.exhausts(hold, task)
        if queue is not None and task.ranking.best() >= 0:
            return ReservedForOthers(task, hold, 0, queue)
    holds = [hold for hold in against if any(task.ranking.fits_row(row) for row in hold.kept_rows(task))]
    if not holds:
        return None
    first = min(holds, key=lambda hold: (hold.start, hold.key))
    return ReservedForOthers(task, first, len({row for hold in holds for row in hold.kept_rows(task)}))


def _fill(state: ClusterState, tasks: list[Task], placed: list[Task], outside: Mask | None) -> Refused | None:
    """Place as many of these identical tasks as fit; returns why some did not."""
    near = tasks[0].shape.spec.near
    if (
        (near is not None and near.even)
        or tasks[0].shape.wants_company
        or any(not isinstance(each, NetworkTopology | ComputeDomains) for each in tasks[0].ranking.relations)
    ):
        return _one_by_one(state, tasks, placed, outside)
    ranking = tasks[0].ranking
    while tasks:
        closed = closed_to(state, tasks[0], outside)
        rows = lay_out(ranking, len(tasks), ranking.strategy.fill, closed, _places(state, tasks[0]))
        if not rows:
            return _shut_out(state, tasks[-1])
        laid = 0
        if tasks[0].shape.spec.near is not None:
            tasks, rows = by_rank(state, tasks, rows)
        for task, row in zip(tasks, rows, strict=False):
            if state.queues.limits.over_limit(task, row=row) is not None:
                limit = state.queues.limits.over_limit(task)
                if limit is not None:
                    return OverLimit(limit)
                break  # its pool's limit is reached on the way: the others are laid over the other pools
            state.placement.place(task, row)
            state.reserved.take(task, row)
            placed.append(task)
            laid += 1
        if not laid or laid == len(rows) < len(tasks):
            return _shut_out(state, tasks[-1])
        tasks = tasks[laid:]
    return None


def _one_by_one(state: ClusterState, tasks: list[Task], placed: list[Task], outside: Mask | None) -> Refused | None:
    """Where each pod's place depends on those of the others, each is placed before the next is considered."""
    for task in tasks:
        limit = state.queues.limits.over_limit(task)
        if limit is not None:
            return OverLimit(limit)
        row = best_row(state, task, outside)
        if row < 0:
            return _shut_out(state, task)
        state.placement.place(task, row)
        state.reserved.take(task, row)
        placed.append(task)
    return None

"""Spare places of gangs that run: members that are replaced get them at once, and what is missing is placed again.

What spares are is in `state/spares.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.core.actions.assume import begin
from fairlead.core.actions.serve import prepare
from fairlead.core.allocation import allocate
from fairlead.core.gang_topology import by_rank
from fairlead.core.model.transactions import Evict, Transaction
from fairlead.core.pods.tasks import Gang, Task, TaskState, Unit
from fairlead.core.queues.entitlement import beyond_quota
from fairlead.core.state.cluster import ClusterState


def replace(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Members that their gangs lack are placed where spares are, or elsewhere beside them, before anything else is served."""
    for key in sorted(state.spares.keys):
        gang = state.gangs.get(key)
        kept = state.spares.own(gang) if gang is not None else []
        unit = _lacking(gang) if gang is not None and kept else None
        if unit is not None:
            with state.isolation.guard("spares", unit):
                yield from _replace(state, unit, kept, now)


def hand_over(state: ClusterState, now: float) -> Iterator[Transaction]:
    """Followers that have come are placed where places are reserved for them, or else beside these, before all else is served.

    The places are given up as they start, so the queue is never charged for both (`Spares.followed`). Reservations do not close
    these places to them: what is reserved there is for the time when the gang has ended.
    """
    for gang, places in list(state.spares.for_followers()):
        unit = _lacking(gang)
        if unit is None:
            continue
        with state.isolation.guard("spares", unit):
            mark = state.log.mark()
            rows = [task.row for task in places]
            for task in places:
                state.placement.unassign(task)
            prepare(state, unit)
            placed = _on_places(state, unit, rows) or allocate(state, unit)
            if isinstance(placed, list):
                state.log.commit()
                yield from begin(state, unit, placed, now)
            else:
                state.log.rollback(mark)


def _on_places(state: ClusterState, unit: Unit, rows: list[int]) -> list[Task] | None:
    """The needed members of a unit on these rows, the first on the first that takes it; None: some find no place there.

    What administrators reserve is closed to them, as to all that would still run then; what is reserved for jobs is not.
    """
    tasks, left = by_rank(state, list(unit.tasks[: unit.need]), rows)
    mark = state.log.mark()
    for task in tasks:
        closed = state.reserved.closed_by_administrators(task)
        row = next((row for row in left if task.ranking.fits_row(row) and (closed is None or not closed[row])), -1)
        if row < 0 or state.queues.limits.over_limit(task, row=row) is not None:
            state.log.rollback(mark)
            return None
        left.remove(row)
        state.placement.place(task, row)
    state.log.commit()
    for task in tasks:
        task.become(TaskState.ASSUMED)
    return tasks


def _lacking(gang: Gang) -> Unit | None:
    """The unit of the members that a gang lacks, if these wait in line."""
    if len(gang.placed()) >= gang.needed:
        return None  # those that come in the places of members that have succeeded are no replacements
    return next((task.unit for task in gang.tasks.values() if task.unit is not None and not task.beyond), None)


def _replace(state: ClusterState, unit: Unit, kept: list[Task], now: float) -> Iterator[Transaction]:
    """The spares leave their places; the unit is placed; those that still can go back.

    Where the usual search finds no places for it, as these are reserved for others, it gets those of the spares: they are charged
    for, and a reservation there is for the time when the gang has ended.
    """
    mark = state.log.mark()
    places = [(task, task.row, task.devices) for task in kept]
    for task in kept:
        state.placement.unassign(task)
    prepare(state, unit)
    found = allocate(state, unit)
    placed = found if isinstance(found, list) else _on_places(state, unit, [row for _, row, _ in places])
    if placed is None:
        state.log.rollback(mark)
        return
    over = []
    for task, row, devices in places:
        if state.placement.takes(task, row):
            same = all(state.nodes.devices.states[state.nodes.device.item(row)][each] >= task.shape.gpu_milli for each in devices)
            state.placement.assign(task, row, devices if same else state.placement.devices_of(task, row))
        else:
            over.append(task)
    state.log.commit()
    for task in over:
        state.spares.remove(task)
    yield from begin(state, unit, placed, now)


def refill(state: ClusterState) -> None:
    """Gangs that keep fewer spares than they ask for get more where capacity is left that nothing waits for."""
    for key in sorted(state.gangs.keys() & state.spares.asking):
        gang = state.gangs[key]
        full: set[str] = set()  # leaders in whose domains nothing is left; empty: of places for members
        with state.isolation.guard("spares", gang):
            for pod in state.spares.missing(gang):
                if pod.leader in full:
                    continue
                task = state.spares.make(pod)
                if task is None:
                    continue
                unit = Unit((task,), 1, gang)
                prepare(state, unit)
                if not _within_quota(state, task) or not isinstance(allocate(state, unit), list):
                    state.spares.remove(task)
                    full.add(pod.leader)
                    continue
                state.spares.keep((task,))


def _within_quota(state: ClusterState, task: Task) -> bool:
    """Whether a spare more keeps its queue within its quota of what is scarce: beyond, its gang could be reclaimed for it."""
    asked = dict(state.queues.tree.asked(task.ranking))
    names = [name for name in state.queues.fair.disputed if name in asked]
    return not beyond_quota([state.queues.queues[task.queue]], names, lambda each, name: each.stays(name) + asked[name])


def releasing(state: ClusterState, transactions: Iterable[Transaction]) -> Iterator[Transaction]:
    """Where a gang is evicted as a whole its spares go, too."""
    if not state.spares.keys:
        yield from transactions
        return
    for transaction in transactions:
        yield transaction
        gang = state.gangs.get(transaction.group) if isinstance(transaction, Evict) else None
        if gang is not None and isinstance(transaction, Evict):
            leaving = {binding.pod.uid for binding in transaction.victims}
            if all(task.pod.uid in leaving or task.state is TaskState.EVICTING for task in gang.placed()):
                state.spares.release(gang.key)

"""Held places: what becomes of them while their victims do not go.

A unit whose place is held takes free places elsewhere as soon as there are any, in its order among those that wait. When its
victims' time is over it is released and planned again; the victims count where they run, and none is chosen twice in a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import NamedTuple

from fairlead.api.reasons import Reason, ReasonCode
from fairlead.core.allocation import allocate
from fairlead.core.model.charges import Charge
from fairlead.core.model.instants import at_time
from fairlead.core.model.transactions import Binding, Evict, Refuse, Warn
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Task, TaskState, Unit, note_reported
from fairlead.core.pods.waits import awaited_by
from fairlead.core.queues.followed import Followed
from fairlead.core.queues.queue_node import PendingClass, QueueNode, QueuePosition, Step
from fairlead.core.state.cluster import ClusterState
from fairlead.core.state.in_flight import GivenUp


def release_late(state: ClusterState, now: float) -> Iterator[Warn]:
    """Units that wait for victims whose time is over wait in line again, and the victims are charged where they run."""
    departures = state.departures
    if state.network.asked:
        state.claims.release_nodes()
    departures.tidy(now)
    late = departures.late(now)
    for victim in late:
        departures.stays(victim, now)
    for victim in late:
        name = _subject(victim)
        if state.isolation.rests("departures", name):
            continue
        with state.isolation.guard("departures", name):
            since, _, deleted = departures.leaving[victim.pod.uid]
            if victim.state is TaskState.EVICTING:
                state.evictions.give_up(victim.pod.uid, now)
            what = "was terminating already and has been waited for since" if deleted else "was evicted at"
            message = (
                f"it {what} {at_time(since)}; it has not ended after {now - since:.0f} s (a finalizer, or a node that does "
                "not respond?): its resources count as used, and jobs that waited for it are planned elsewhere"
            )
            yield Warn((victim.ref,), "EvictionTimedOut", message)
    if late:
        departures.tidy(now)


def hurry(state: ClusterState, now: float) -> Iterator[Evict]:
    """Victims that were deleted with a longer time to end than an eviction may give get the shorter one."""
    for victim in state.departures.slow(now):
        with state.isolation.guard("departures", _subject(victim)):
            ((uid, grace),) = state.departures.graces([victim])
            message = (
                f"it was deleted with time to end until {at_time(victim.pod.leaves)}, longer than an eviction may take while "
                f"other jobs wait for its resources: its grace period is {grace} s in total"
            )
            reason = Reason(ReasonCode.WAITING_FOR_VICTIMS, message, {"grace": grace})
            yield Evict((Binding(victim.ref, victim.pod.node),), "", reason, ((uid, grace),))


def report_waiting(state: ClusterState, now: float) -> Iterator[Refuse]:
    """For pods that have waited for victims for some time it is reported for which: all members of a gang at once."""
    jobs: dict[str, list[Task]] = {}
    for task in state.departures.unreported(now):
        jobs.setdefault(task.job, []).append(task)
    for job, tasks in sorted(jobs.items()):
        with state.isolation.guard("notices", f"job/{job}"):
            reason = state.departures.reason(tasks)
            reported = [task for task in tasks if reason is not None and note_reported(task, reason)]
            if reported and reason is not None:
                gang = reported[0].gang
                yield Refuse(tuple(task.ref for task in reported), reason, gang.key if gang is not None else "")


def note_freed(state: ClusterState) -> None:
    """Before it is forgotten where something became free: held places may be had there."""
    if state.departures.leaving:
        state.departures.freed |= state.nodes.gained


class _Asked:
    """What was found for some rows. queues: how many were asked. first: what goes first. fits: whether a row holds a shape."""

    __slots__ = ("first", "fits", "queues")

    def __init__(self) -> None:
        self.queues = 0
        self.first: QueuePosition | None = None
        self.fits: dict[Ranking, bool] = {}


def _share_in(shares: dict[QueueNode, float], node: QueueNode, _: Unit) -> float:
    return shares[node]


class _InLine(NamedTuple):
    """What waits in a queue, in order, and what decided that: the stamp of the queue, and what it, those above it, and its users
    held (None: more than is known).
    """

    classes: list[tuple[QueuePosition, PendingClass]]
    stamp: int
    held: tuple[list[int], dict[str, tuple[int, int]]] | None


class _Firsts:
    """What waits for some rows and goes before others, as things stand.

    A queue goes no earlier than what it holds already lets it. So queues are asked in that order, and no further than needed:
    most of what waits is left out by its queue.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._on: dict[tuple[int, ...], _Asked] = {}
        self._order: list[tuple[QueuePosition, int, QueueNode]] | None = None  # the earliest position of each
        self._lines: dict[QueueNode, _InLine] = {}
        self._charged: set[QueueNode] = set()  # of these: those that hold something else, or may
        self._least: dict[QueueNode, Step] = {}
        queues = state.queues
        self._followed = Followed(queues.tree, queues.fair, queues.accounts.charged)

    def forget(self) -> None:
        """The state is another, or is about to be: something is placed or released, or events have come."""
        self._on.clear()
        self._order = None

    def _follow(self) -> None:
        """Forget the earliest positions of queues that hold something else, or of all where policies, shares or nodes changed."""
        changed = self._followed.changed()
        for node in list(self._least) if changed is None else changed:
            self._least.pop(node, None)
        if changed is None or self._state.services.any_express:
            self._lines.clear()
        elif changed:
            self._charged.update(node for node in self._lines if any(each in changed for each in node.path))

    def go_before(self, moving: list[Task], rows: list[int]) -> bool:
        """Whether a pending unit that one of the rows holds goes before held tasks."""
        unit = _unit(moving)
        unit.express = unit.level < self._state.services.of(moving[0]).express
        held, _ = self._state.queues.waiting.order_key(unit, held=True)
        asked, order = self._on.setdefault(tuple(rows), _Asked()), self._ordered()
        while asked.first is None or not asked.first < held:
            if asked.queues == len(order) or not order[asked.queues][0] < held:
                return False
            self._ask(order[asked.queues][2], rows, asked)
            asked.queues += 1
        return True

    def _ordered(self) -> list[tuple[QueuePosition, int, QueueNode]]:
        """The queues in which something waits, in the order in which these may go: by number where that is the same."""
        if self._order is None:
            self._follow()
            plain = not self._state.services.any_express
            waiting = [node for node in self._state.queues.queues.values() if node.pods_waiting]
            steps = [tuple(self._least_of(each) for each in reversed(node.path)) for node in waiting]
            self._order = sorted(
                ((least[0][0], plain, least), number, node)
                for number, (node, least) in enumerate(zip(waiting, steps, strict=True))
            )
        return self._order

    def _ask(self, node: QueueNode, rows: list[int], asked: _Asked) -> None:
        """Note the first of a queue that one of the rows holds, if it goes before those of others."""
        for position, pending_class in self._in_line(node):
            if asked.first is not None and not position < asked.first:
                return
            if self._fits_one(pending_class, rows, asked.fits):
                asked.first = position
                return

    def _in_line(self, node: QueueNode) -> list[tuple[QueuePosition, PendingClass]]:
        """The pending classes of a queue by the positions that their firsts give it."""
        known = self._lines.get(node)
        if (
            known is None
            or known.stamp != node.stamp
            or (node in self._charged and (known.held is None or known.held != self._held(node, self._names_of(node))))
        ):
            known = self._lines[node] = self._find(node)
        self._charged.discard(node)
        return known.classes

    def _find(self, node: QueueNode) -> _InLine:
        """Most that waits in a queue asks for the same of what counts: shares are found once for it."""
        order, fair, names = self._state.queues.waiting.order, self._state.queues.fair, self._names_of(node)
        shares: dict[Charge, dict[QueueNode, float]] = {}
        found: list[tuple[QueuePosition, PendingClass]] = []
        for pending_class in node.pending_classes.values():
            unit = pending_class.first()
            if unit is None:
                continue
            charge = pending_class.core_of(names)
            if not names or charge not in shares:
                shares[charge] = {each: fair.dominant_share_with(each, unit) for each in node.path}
            found.append((order.position(node, unit, partial(_share_in, shares[charge])), pending_class))
        found.sort(key=itemgetter(0))
        return _InLine(found, node.stamp, self._held(node, names))

    def _names_of(self, node: QueueNode) -> frozenset[str]:
        """What decides the shares of a queue and of those above it; nothing: that is not known."""
        fair, pools = self._state.queues.fair, self._state.queues.tree.pools.named
        if pools or any(fair.names_that_count(each) is None for each in node.path):
            return frozenset()
        return fair.names_of(node)

    @staticmethod
    def _held(node: QueueNode, names: frozenset[str]) -> tuple[list[int], dict[str, tuple[int, int]]] | None:
        held = [each.used.get(name, 0) for each in node.path for name in sorted(names)]
        return (held, dict(node.users.held)) if names else None

    def _least_of(self, node: QueueNode) -> Step:
        """A queue's step with what it holds already: with a unit more it is no earlier."""
        least = self._least.get(node)
        if least is None:
            share = self._state.queues.fair.dominant_share(node)
            least = self._least[node] = (-node.policy.priority, share, -node.guarantee, -math.inf, "")
        return least

    @staticmethod
    def _fits_one(pending_class: PendingClass, rows: list[int], fits: dict[Ranking, bool]) -> bool:
        """Whether one of the rows holds a pod of a class."""
        for ranking in pending_class.rankings:
            if ranking not in fits:
                fits[ranking] = any(ranking.fits_row(row) for row in rows)
            if fits[ranking]:
                return True
        return False


def take_free_places(state: ClusterState, *, last: bool) -> Iterator[list[Task]]:
    """Units that wait for victims move to places that are free; yields the tasks of each, all placed.

    last: all other units were served already. Before that no unit that goes before such a unit is overtaken.
    """
    departures = state.departures
    if not departures.freed or not departures.leaving:
        return
    firsts = _Firsts(state)
    for tasks in _held(state):
        moved: bool | None = None
        with state.isolation.guard("holds", tasks):
            moved = _moves(state, tasks, None if last else firsts)
        if moved:
            yield tasks
        if moved is not False:
            firsts.forget()  # events may have come, or something was set aside
    if last:
        departures.freed.clear()


def _moves(state: ClusterState, tasks: list[Task], firsts: _Firsts | None) -> bool:
    """Whether held tasks are given free places instead; their victims are charged where they run then.

    firsts: what waits, which is not overtaken; None: all was served already.
    """
    if state.claims.held_with(tasks):
        return False  # the devices of their claims are those of victims
    lingering, awaited = state.in_flight.lingering, awaited_by(tasks)
    blocked = {lingering[uid] for uid in awaited if uid in lingering}
    short = {key for uid in awaited if uid in lingering for key in _takes(state, state.tasks[uid], lingering[uid])}
    moving = [task for task in tasks if task.row in blocked or not short.isdisjoint(_takes(state, task, task.row))]
    rows = [row for row in sorted(state.departures.freed) if moving and moving[0].ranking.fits_row(row)]
    if not rows or (firsts is not None and firsts.go_before(moving, rows)) or not _would_fit(state, moving):
        return False
    if firsts is not None:
        firsts.forget()
    victims = sorted(awaited)
    places = [GivenUp(task.pod.spec, task.row, task.devices, tuple(sorted(task.waits_for))) for task in moving]
    for task in moving:
        state.placement.unassign(task)
    state.evictions.release_victims(tasks, victims, places)
    gang = tasks[0].gang
    # Where members that its gang needs have gone meanwhile the others wait in line, for these and for what is free.
    lacks = gang is not None and not tasks[0].pod.placeholder and gang.lacks_some(tasks)
    if lacks or not _allocate(state, moving):
        state.evictions.release_holds(tasks)
        return False
    for task in tasks:
        task.become(TaskState.ASSUMED)
        task.reported = None
    return True


def _takes(state: ClusterState, task: Task, row: int) -> set[tuple[str, str]]:
    """From which pools a task on a row takes of what their nodes share, and by which names."""
    return {key for key, _ in state.nodes.shared.parts(task.shape.spec.shared, row)}


def _held(state: ClusterState) -> list[list[Task]]:
    """The tasks whose places are held, gang by gang, the first in rank first."""
    jobs: dict[str, list[Task]] = {}
    for uid in sorted({uid for wait in state.in_flight.all_waits(state.in_flight.waits) for uid in wait.tasks}):
        task = state.tasks.get(uid)
        if task is not None and task.state is TaskState.HELD and task.row >= 0 and task.pod.ours:
            jobs.setdefault(task.job, []).append(task)
    return sorted(jobs.values(), key=lambda tasks: min(task.rank for task in tasks))


def _would_fit(state: ClusterState, moving: list[Task]) -> bool:
    """Whether these fit elsewhere while their victims stay. The state is left as it was."""
    mark = state.log.mark()
    for task in moving:
        state.placement.unassign(task)
    victims = sorted(awaited_by(moving))
    for placeholder in state.leftovers.of(victims):
        state.placement.unassign(placeholder)
    for uid in victims:
        row = state.in_flight.lingering.get(uid)
        if row is not None:
            state.evictions.occupy(state.tasks[uid], row)
    fits = _allocate(state, moving)
    state.log.rollback(mark)
    for task in moving:
        task.become(TaskState.HELD)
    return fits


def _allocate(state: ClusterState, moving: list[Task]) -> bool:
    """Place these together; whether they have places."""
    unit = _unit(moving).adopt()
    try:
        return isinstance(allocate(state, unit), list)
    finally:
        unit.retire()


def _subject(victim: Task) -> str:
    return f"victim/{victim.pod.key}"


def _unit(tasks: list[Task]) -> Unit:
    return Unit(tuple(tasks), len(tasks), tasks[0].gang)

"""Evictions: from the plan until its victims are gone, or are counted where they run again.

What is remembered meanwhile is `InFlight`. Here it is done what that means for places, charges, states of tasks and deadlines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.pods.waits import awaited_by, waits_of
from fairlead.core.state.bound import BoundPods
from fairlead.core.state.departures import Departures
from fairlead.core.state.in_flight import GivenUp
from fairlead.core.state.leftovers import Leftovers
from fairlead.core.state.moves import Moves
from fairlead.core.state.overrides import Overrides
from fairlead.core.state.pending import Pending
from fairlead.core.state.placement import Placement
from fairlead.core.state.tables import Tables


class Evictions:
    """Victims and their beneficiaries."""

    def __init__(
        self,
        tables: Tables,
        placement: Placement,
        departures: Departures,
        leftovers: Leftovers,
        moves: Moves,
        overrides: Overrides,
        pending: Pending,
        bound: BoundPods,
    ) -> None:
        self._tables = tables
        self._in_flight = tables.in_flight
        self._placement = placement
        self._departures = departures
        self._leftovers = leftovers
        self._moves = moves
        self._overrides = overrides
        self._pending = pending
        self._bound = bound
        self._described = 0  # as of which nodes and pools plans are made

    # -- plans that are made -------------------------------------------------------------------

    def begin(
        self,
        victims: Sequence[Task],
        placed: list[Task],
        places: dict[str, tuple[int, tuple[int, ...]]],
        now: float,
        moved: frozenset[str],
    ) -> None:
        """The victims of a plan are asked to go; the places that they make are held for the tasks that are placed there.

        places: victim's UID -> the row and devices where it still is. moved: UIDs of victims that only move: the placeholders
        that keep their new places are charged in their stead.
        """
        tables, in_flight = self._tables, self._in_flight
        accounts = tables.queues.accounts
        uids = frozenset(task.pod.uid for task in victims)
        for task in victims:
            task.become(TaskState.EVICTING, tables.log)
            in_flight.plan(task.pod.uid, uids)
            row = places[task.pod.uid][0]
            self._placement.linger(task, row)
            tables.nodes.gained.add(row)
        charged = [(task, places[task.pod.uid][0]) for task in victims if task.charged and task.pod.uid not in moved]
        for debt in accounts.debts_of(charged, placed):
            accounts.charge_debt(debt)
        for uid in sorted(moved):
            self._placement.charge_instead(in_flight.kept[uid].placeholder)
        tables.queues.relieve({task.queue for task in victims if task.charged})
        for task in placed:
            task.become(TaskState.HELD)
            task.nominated = not task.pod.placeholder
        in_flight.wait([task.pod.uid for task in victims], placed)
        self._leftovers.hold(places, ((kept.after, kept.placeholder) for kept in in_flight.kept.values()))
        for uid, (row, _) in places.items():
            self._leftovers.close_claims((uid,), row)
        self._departures.begin(victims, placed, now)
        for gang in {task.gang.key: task.gang for task in victims if task.gang is not None}.values():
            tables.unsettle(gang)

    def join(self, placed: list[Task], mates: Iterable[Task]) -> bool:
        """Members of a gang that get places wait for the same victims as those that hold some; whether there are such victims."""
        waits = tuple(wait for wait in waits_of(mates) if wait.victims)
        for task in placed if waits else ():
            task.become(TaskState.HELD)
            self._in_flight.join(task, waits)
        return bool(waits)

    # -- pods that are gone --------------------------------------------------------------------

    def gone(self, task: Task) -> None:
        """A pod is gone: its place is free for those that waited for that, and it waits for nothing any more."""
        uid = task.pod.uid
        self._tables.queues.repay(uid)
        self._leftovers.release(uid)
        self._in_flight.gone(uid)
        if task.waits and task.waits_for:
            self.abandon(task)

    # -- plans that are given up ---------------------------------------------------------------

    def failed(self, uid: str, now: float, *, by_budget: bool = False) -> None:
        """An eviction was refused, by disruption budgets or otherwise: the victim stays, and its plan is given up."""
        if by_budget and uid in self._tables.tasks:
            self._overrides.refuse(uid, now)
        self.give_up(uid, now, rests=True)

    def give_up(self, uid: str, now: float, *, rests: bool = False) -> None:
        """The plan that a victim is part of is given up. rests: its beneficiaries wait before they are tried again."""
        plans = self._in_flight.plans
        victims = {uid, *plans.get(uid, ())}
        reached: set[str] = set()
        while waiting := {task for wait in self._in_flight.all_waits(victims) for task in wait.tasks} - reached:
            reached |= waiting  # of those that wait, others of their gangs may wait for victims of other plans, and so on
            for beneficiary in sorted(waiting):
                victims |= self._waits_again(beneficiary, now, rests=rests)
            victims |= {other for victim in victims for other in plans.get(victim, ())}
        self._count_again(sorted(victims), now)

    def follow_pools(self, now: float) -> None:
        """A pass begins. Where other nodes share other amounts by now, plans with victims that take of these are given up.

        Such a victim may be in another pool, and would be counted where it is not. What is held is checked when it is redeemed.
        """
        described, tasks = self._tables.nodes.shared.described, self._tables.tasks
        if described == self._described:
            return
        self._described = described
        for uid in sorted(self._in_flight.lingering):
            if uid in self._in_flight.lingering and tasks[uid].shape.spec.shared:
                self.give_up(uid, now)

    def _waits_again(self, beneficiary: str, now: float, *, rests: bool) -> set[str]:
        """A task and its gang give up the places that are held for them; returns the victims that they waited for."""
        victims: set[str] = set()
        held = self._tables.tasks.get(beneficiary)
        if held is None or held.state is not TaskState.HELD:
            return victims
        mates = held.gang.tasks.values() if held.gang else (held,)
        waiting = [each for each in mates if each.state is TaskState.HELD]
        victims |= awaited_by(waiting)
        for each in waiting:
            self._placement.unassign(each)
            self._tables.device_claims.wants.doubt(each.pod)
            self.abandon(each)
            each.become(TaskState.WAITING)
            if rests:
                self._pending.delay(each, now)
            else:
                self._pending.wait(each, counted=True)
        if held.gang is not None:
            self._tables.unsettle(held.gang)
        return victims

    def vacate(self, task: Task) -> None:
        """A place held for a task is given up. When nothing waits for its victims any more they are counted where they run.

        While others of its gang wait for them they fill the place, so it stays closed; so does that of a pod that only moves.
        """
        tasks, in_flight, row, devices = self._tables.tasks, self._in_flight, task.row, task.devices
        self._placement.unassign(task)
        victims = [uid for uid in sorted(task.waits_for) if uid in tasks]
        awaited = [uid for uid in victims if uid in in_flight.kept or len(in_flight.waiting_for(uid)) > 1]
        if awaited and awaited == victims:
            self._leftovers.close(task.pod.spec, row, devices, victims)
        else:
            given_up = [GivenUp(task.pod.spec, row, devices, tuple(awaited))] if awaited else []
            self.release_victims([task], [uid for uid in victims if uid not in awaited], given_up)

    def release_victims(self, tasks: list[Task], victims: list[str], given_up: Sequence[GivenUp] = ()) -> None:
        """These tasks wait for no victim any more: those who still run are counted where they do.

        given_up: the places that were held for the tasks; what victims fill of them for which others still wait stays closed.
        """
        for task in tasks:
            self.abandon(task)
        released = [uid for uid in victims if not any(wait.tasks for wait in self._in_flight.waits.get(uid, ()))]
        self._count_again(released, self._tables.services.now, given_up)

    def release_holds(self, tasks: list[Task]) -> None:
        """Places held for these are no good any more, though they wait for no victim: they wait in line again."""
        for task in tasks:
            self._placement.unassign(task)
            self._tables.device_claims.wants.doubt(task.pod)
            self._pending.wait(task)

    def abandon(self, task: Task) -> None:
        """The task no longer waits for any victim to leave."""
        debts = self._tables.queues.accounts.debts
        for victim in sorted(uid for uid in task.waits_for if uid in debts and debts[uid].credits):
            self._tables.queues.uncredit(victim, task.pod.uid)
        self._in_flight.leave(task)
        if task.instead_of:
            self._placement.charge_back(task)

    # -- victims that are counted again --------------------------------------------------------

    def _count_again(self, released: list[str], now: float, given_up: Sequence[GivenUp] = ()) -> None:
        """Nothing waits for these victims: they are counted where they run. No place is free that another victim still fills."""
        self._leftovers.release(*released)
        places = [*given_up, *self._moves.drop(*released)]
        for uid in released:
            self._stays(uid, now)
        for place in places:
            self._leftovers.keep_closed(place)

    def _stays(self, uid: str, now: float) -> None:
        """A victim whose place is not needed any more is counted where it runs, until it is gone or for good."""
        tables = self._tables
        self._in_flight.stays(uid)
        victim = tables.tasks.get(uid)
        if victim is None or victim.state is not TaskState.EVICTING:
            return
        self._placement.part(victim)
        tables.queues.repay(uid)
        self._placement.unstray(victim, victim.pod.node)
        if victim.row >= 0:
            victim.become(TaskState.BOUND)  # its node was gone for a while
            tables.queues.accounts.changes.pods[uid] = None
        else:
            self._bound.place(victim)
        if victim.gang is not None:
            victim.gang.fault_at = now
            tables.unsettle(victim.gang)

    def occupy(self, task: Task, row: int) -> None:
        """Count a victim on a row where it lingers."""
        self._tables.queues.repay(task.pod.uid)
        self._placement.assign(task, row, self._placement.devices_of(task, row))

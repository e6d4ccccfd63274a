"""Evictions in flight: which tasks wait for which victims, until these are gone or counted where they run again.

What must change together is one object: the victims that a task waits for, the tasks that a victim's place is for, the plan that
victims are part of, what queues are charged for victims, the places reserved for pods that move, and what stays closed beside
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.pods.waits import Wait, awaited_by
from fairlead.core.state.bound import BoundPods
from fairlead.core.state.leftovers import GivenUp, Leftovers
from fairlead.core.state.moves import Moves
from fairlead.core.state.overrides import Overrides
from fairlead.core.state.pending import Pending
from fairlead.core.state.placement import Placement
from fairlead.core.state.tables import Tables


class Evictions:
    """Victims and their beneficiaries.

    holds: victim's UID -> the waits of which it is one. freed: tasks for which the last victim is gone, by UID. plans:
    victim's UID -> all victims of its plan; they go together or not at all.
    """

    def __init__(
        self,
        tables: Tables,
        placement: Placement,
        leftovers: Leftovers,
        moves: Moves,
        overrides: Overrides,
        pending: Pending,
        bound: BoundPods,
    ) -> None:
        self._tables = tables
        self._placement = placement
        self._leftovers = leftovers
        self._moves = moves
        self._overrides = overrides
        self._pending = pending
        self._bound = bound
        self.holds: dict[str, tuple[Wait, ...]] = {}
        self.freed: dict[str, Task] = {}
        self.plans: dict[str, frozenset[str]] = {}

    # -- pods that are gone --------------------------------------------------------------------

    def gone(self, task: Task) -> None:
        """A pod is gone: its place is free for those that waited for that, and it waits for nothing any more."""
        uid = task.pod.uid
        self.freed.pop(uid, None)
        self._tables.queues.repay(uid)
        self._forget_plan(uid)
        self._leftovers.release(uid)
        self.free(uid)
        if task.waits_for:
            self.abandon(task)

    def free(self, uid: str) -> None:
        """Nothing waits for a victim any more: it is gone. Tasks that waited for no other may be bound."""
        tasks = self._tables.tasks
        for wait in self.holds.pop(uid, ()):
            wait.victims.discard(uid)
            for beneficiary in wait.tasks if not wait.victims else ():
                held = tasks.get(beneficiary)
                if held is not None and not held.waits_for and held.state is TaskState.HELD:
                    self.freed[beneficiary] = held

    def wait(self, victims: Iterable[str], tasks: Iterable[Task]) -> None:
        """Tasks wait for victims of which some others wait, too."""
        waiting = list(tasks)
        made = Wait(victims, (task.pod.uid for task in waiting))
        for uid in made.victims:
            self._tables.log.insert(self.holds, uid, (*self.holds.get(uid, ()), made))
        for task in waiting:
            task.waits = (made,)

    def waiting_for(self, uid: str) -> list[str]:
        """UIDs of the tasks that wait for a victim to go."""
        return list(dict.fromkeys(task for wait in self.holds.get(uid, ()) for task in wait.tasks))

    def _forget_plan(self, uid: str) -> None:
        """A victim is gone. Its plan is remembered until all are: word that it failed may still be on its way."""
        tasks, plan = self._tables.tasks, self.plans.get(uid, frozenset())
        if not any(other in tasks and tasks[other].state is TaskState.EVICTING for other in plan):
            for other in plan:
                self.plans.pop(other, None)

    # -- plans that are given up ---------------------------------------------------------------

    def failed(self, uid: str, now: float, *, by_budget: bool = False) -> None:
        """An eviction was refused, by disruption budgets or otherwise: the victim stays, and its plan is given up."""
        if by_budget and uid in self._tables.tasks:
            self._overrides.refuse(uid, now)
        self.give_up(uid, now, rests=True)

    def give_up(self, uid: str, now: float, *, rests: bool = False) -> None:
        """The plan that a victim is part of is given up. rests: its beneficiaries wait before they are tried again."""
        victims = {uid, *self.plans.get(uid, ())}
        reached: set[str] = set()
        while waiting := self._waiting_for_any(victims) - reached:
            reached |= waiting  # of those that wait, others of their gangs may wait for victims of other plans, and so on
            for beneficiary in sorted(waiting):
                victims |= self._waits_again(beneficiary, now, rests=rests)
            victims |= {other for victim in victims for other in self.plans.get(victim, ())}
        self._count_again(sorted(victims), now)

    def _waiting_for_any(self, victims: Iterable[str]) -> set[str]:
        waits = {id(wait): wait for victim in victims for wait in self.holds.get(victim, ())}
        return {uid for wait in waits.values() for uid in wait.tasks}

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
        tasks, row, devices = self._tables.tasks, task.row, task.devices
        self._placement.unassign(task)
        victims = [uid for uid in sorted(task.waits_for) if uid in tasks]
        if any(uid in self._moves.kept or len(self.waiting_for(uid)) > 1 for uid in victims):
            self._leftovers.close(task.pod.spec, row, devices, victims)
        else:
            self.release_victims([task], victims)

    def release_victims(self, tasks: list[Task], victims: list[str], given_up: Sequence[GivenUp] = ()) -> None:
        """These tasks wait for no victim any more: those who still run are counted where they do.

        given_up: the places that were held for the tasks; what victims fill of them for which others still wait stays closed.
        """
        for task in tasks:
            self.abandon(task)
        released = [uid for uid in victims if not any(wait.tasks for wait in self.holds.get(uid, ()))]
        self._count_again(released, self._tables.services.now, given_up)

    def release_holds(self, tasks: list[Task]) -> None:
        """Places held for these are no good any more, though they wait for no victim: they wait in line again."""
        for task in tasks:
            self._placement.unassign(task)
            self._pending.wait(task)

    def abandon(self, task: Task) -> None:
        """The task no longer waits for any victim to leave."""
        debts = self._tables.queues.accounts.debts
        for victim in sorted(uid for uid in task.waits_for if uid in debts and debts[uid].credits):
            self._tables.queues.uncredit(victim, task.pod.uid)
        for wait in task.waits:
            wait.tasks.pop(task.pod.uid, None)
        task.waits = ()
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
        self.holds.pop(uid, None)
        for other in self.plans.pop(uid, ()):
            if other not in tables.tasks:
                self.plans.pop(other, None)  # gone before, and remembered for the others' sake
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

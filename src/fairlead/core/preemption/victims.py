"""All preemptible work that runs, queue by queue, in order of value: made once per pass, read from the cheapest on.

A queue's lists are sorted when they are first asked for and serve all units of the pass; what was evicted since is passed over.
Members that their gangs can do without have a list of their own: they go before all others, for whatever reason.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from fairlead.core.model.arrays import Mask
from fairlead.core.model.causes import PreemptionReason
from fairlead.core.pods.members import first_to_go, index_of
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.preemption.ledger import Ledger
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.victim import Order, Preemptible, Victim
from fairlead.core.queues.tree import QueueNode

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


_MOST_MEMBERS = 1 << 30

STEPS = 3_000
"""How many questions searches for sets of victims ask of ledgers in one pass, where the cheapest make no place."""


class _Reversed:
    """Orders victims as their lists do: the cheapest last."""

    __slots__ = ("order",)

    def __init__(self, victim: Victim) -> None:
        self.order = victim.order

    def __lt__(self, other: _Reversed) -> bool:
        return other.order < self.order


def victims_of(state: ClusterState) -> VictimTable:
    """The victims as they stood when they were first asked for in this pass."""
    return state.pass_caches.get(VictimTable)


class VictimTable:
    """The victims of each queue, as things stand in one pass."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._lists: dict[str, list[Victim]] = {}
        self._spares: dict[str, list[Victim]] = {}
        self._of: dict[str, Victim] = {}  # uid -> the victim it is part of
        self.steps = STEPS  # how many questions searches for sets of victims may still ask in this pass (`subsets`)

    def suppose_started(self) -> None:
        """In a trial: take all that was placed in this pass, and is not confirmed yet, for running, so that it is preemptible."""
        for node in self.state.queues.queues.values():
            fresh = [task for task in node.placed.values() if task.state is TaskState.ASSUMED and task.row >= 0]
            for task in fresh:
                task.become(TaskState.BOUND, self.state.log)
            new = [task for task in fresh if task.pod.uid not in self._of]
            victims = self._lists.get(node.name)
            if not new or victims is None:
                continue
            if any(task.gang is not None or self.state.suspended.suspendable(task) for task in new):
                # What is evicted together is put together anew, and after the trial as it was.
                self.state.log.call(self._list_again, (node.name, self._lists.pop(node.name), self._spares.pop(node.name, [])))
                continue
            for task in new:
                victim = self._of[task.pod.uid] = self._victim((task,))
                bisect.insort(victims, victim, key=_Reversed)

    def _list_again(self, listed: tuple[str, list[Victim], list[Victim]]) -> None:
        queue, victims, spares = listed
        self._lists[queue], self._spares[queue] = victims, spares
        for victim in (*victims, *spares):
            for task in victim.tasks:
                self._of[task.pod.uid] = victim

    def one_by_one(self, preemption: PreemptionPolicy) -> Iterator[tuple[PreemptionReason, Victim]]:
        """Victims that a unit may preempt, each by itself, cheapest first; whatever budgets allow."""
        nothing = Ledger(preemption)
        for reason, victim in self._near(preemption):
            if nothing.is_reclaimable(reason, victim):
                yield reason, victim

    def in_order(self, preemption: PreemptionPolicy, where: Mask | None = None) -> Iterator[tuple[PreemptionReason, Victim]]:
        """Victims that a unit may preempt together, cheapest first; of a queue over its share no more than the excess.

        where: rows of which they must hold one; victims elsewhere would use up what may be reclaimed, without use.
        """
        near = self._near(preemption)
        if where is not None:
            near = (each for each in near if any(where.item(task.row) for task in each[1].tasks))
        ledger = Ledger(preemption)
        yield from ledger.admitted(near)

    def _near(self, preemption: PreemptionPolicy) -> Iterator[tuple[PreemptionReason, Victim]]:
        if not preemption.any_preemptible():
            return
        near = [node for node in self.state.queues.queues.values() if node.placed]
        for node in near:
            if node.name not in self._lists:
                self.of_queue(node.name)
        if any(self._spares.values()):
            yield from self._merged(preemption, near, None)
        for reason in preemption.reasons():
            yield from self._merged(preemption, near, reason)

    def _merged(
        self, preemption: PreemptionPolicy, near: list[QueueNode], wanted: PreemptionReason | None
    ) -> Iterator[tuple[PreemptionReason, Victim]]:
        """The victims of queues for one reason, cheapest first; None: those that their gangs can do without, for any reason.

        Most units need only the first of them, so nothing is asked about a queue, or about a victim, before it is next.
        """
        lists = self._spares if wanted is None else self._lists
        heads: list[tuple[Order, str, int, list[Victim], QueueNode]] = []
        for node in near:
            victims = lists[node.name]
            while victims and victims[-1].evicted:
                for task in victims.pop().tasks:
                    self._of.pop(task.pod.uid, None)
            if victims:
                heads.append((victims[-1].order, node.name, len(victims) - 1, victims, node))
        if wanted is PreemptionReason.PRIORITY:
            heads = [each for each in heads if each[0][1] < preemption.unit.priority]
        heapify(heads)
        while heads:
            order, name, at, victims, node = heads[0]
            if (wanted is PreemptionReason.PRIORITY and order[1] >= preemption.unit.priority) or not preemption.reaches(node):
                heappop(heads)
                continue
            victim = victims[at]
            reason = preemption.reason_for_all(victim.tasks) if victim.alive else None
            if reason is not None and (reason is wanted or wanted is None):
                yield reason, victim
            at = min(at, len(victims)) - 1  # others may have taken out some meanwhile
            if at >= 0:
                heapreplace(heads, (victims[at].order, name, at, victims, node))
            else:
                heappop(heads)

    def on_row(self, preemption: PreemptionPolicy, row: int) -> list[tuple[PreemptionReason, Victim]]:
        """Victims on one row that a unit may preempt together, cheapest first; gangs with all their members elsewhere."""
        ledger = Ledger(preemption)
        return list(ledger.admitted(self.preemptible_on(preemption, row)))

    def preemptible_on(self, preemption: PreemptionPolicy, row: int) -> list[tuple[PreemptionReason, Victim]]:
        """Victims on one row that a unit may preempt, each by itself, cheapest first; whatever shares and budgets allow."""
        found: dict[int, tuple[PreemptionReason, Victim]] = {}
        for task in self.state.nodes.pods[row].values():
            if task.queue not in self.state.queues.queues or not task.pod.ours:
                continue
            self.of_queue(task.queue)
            victim = self._of.get(task.pod.uid)
            if victim is None or id(victim) in found or not victim.alive:
                continue
            reason = preemption.reason_for_all(victim.tasks)
            if reason is not None:
                found[id(victim)] = (reason, victim)
        return sorted(found.values(), key=lambda each: (not each[1].spare, each[0], each[1].order))

    def with_rest(self, preemption: PreemptionPolicy, chosen: Sequence[Preemptible]) -> list[Preemptible]:
        """These, and the members of no use alone: what else runs of gangs that lose members which they need.

        They stay where disruption budgets forbid it.
        """
        ended = [victim.tasks[0].gang for _, victim in chosen if not victim.spare and not victim.tasks[0].pod.terminating]
        gangs = {gang.key: gang for gang in ended if gang is not None and gang.group is not None}
        if not gangs:
            return list(chosen)
        rest, evicted = list[Preemptible](), {task.pod.uid for _, victim in chosen for task in victim.tasks}
        for task in sorted((each for gang in gangs.values() for each in gang.placed()), key=lambda each: each.pod.key):
            victim = self._of.get(task.pod.uid)
            if task.pod.uid in evicted or victim is None or not (victim.spare and victim.alive):
                continue
            reason = preemption.reason_for_all(victim.tasks)
            if reason is not None:
                rest.append((reason, victim))
        if self.state.budgets.may_block and rest:
            guard = self.state.budgets.guard()
            if not guard.admits([task for _, victim in (*chosen, *rest) for task in victim.tasks]):
                return list(chosen)
        return [*chosen, *rest]

    def of_queue(self, queue: str) -> list[Victim]:
        """The victims of a queue, the cheapest last: from there they are taken out once they are evicted.

        When it is first asked for in a pass they are those of that moment, for the rest of the pass.
        """
        known = self._lists.get(queue)
        if known is None:
            found = sorted(self._make(queue), key=lambda each: each.order, reverse=True)
            known = self._lists[queue] = []
            spares = self._spares[queue] = list[Victim]()
            for victim in found:
                (spares if victim.spare else known).append(victim)
                for task in victim.tasks:
                    self._of[task.pod.uid] = victim
        return known

    def _make(self, queue: str) -> Iterator[Victim]:
        seen: set[str] = set()
        suspended = self.state.suspended
        jobs: dict[str, list[Task]] = {}
        for task in self.state.queues.queues[queue].placed.values():
            if task.pod.terminating and self.state.departures.stays_on(task, self.state.services.now):
                if task.state is TaskState.BOUND and task.row >= 0:
                    yield self._victim((task,))  # neither its gang nor its job has it any more
                continue
            gang = task.gang
            if gang is None or gang.group is None:
                if suspended.suspendable(task):
                    jobs.setdefault(task.pod.owner, []).append(task)  # its job is suspended as a whole
                elif self._runs(task):
                    yield self._victim((task,))
            elif gang.key not in seen:
                seen.add(gang.key)
                members = gang.placed()
                if not all(self._runs(each) for each in members):
                    continue  # still being placed: its fate is open
                spare, needed = first_to_go(members, gang.needed)
                yield from (self._spare(each) for each in spare)
                if needed:
                    yield self._victim(tuple(needed))
        for tasks in jobs.values():
            if all(self._runs(task) for task in tasks):
                yield self._victim(tuple(sorted(tasks, key=lambda task: task.pod.key)))

    @staticmethod
    def _runs(task: Task) -> bool:
        return task.state is TaskState.BOUND and task.row >= 0 and not task.pod.terminating

    def _victim(self, tasks: tuple[Task, ...]) -> Victim:
        services = self.state.services
        if len(tasks) == 1:  # as below, without a generator for each: most are of one
            (task,) = tasks
            lost = 0.0 if task.pod.terminating else services.lost_with(task)
            return Victim((1, task.pod.priority, -services.victim_level(task), lost, 1, -task.pod.created, task.pod.uid), tasks)
        order = (
            1,
            max(task.pod.priority for task in tasks),
            -max(services.victim_level(task) for task in tasks),
            sum(services.lost_with(task) for task in tasks if not task.pod.terminating),
            len(tasks),
            -max(task.pod.created for task in tasks),
            min(task.pod.uid for task in tasks),
        )
        return Victim(order, tasks)

    def _spare(self, task: Task) -> Victim:
        """A member that its gang can do without."""
        pod, (outer, index) = task.pod, index_of(task.pod)
        place = outer * _MOST_MEMBERS + index
        return Victim((0, pod.priority, -place, self.state.services.lost_with(task), 1, -pod.created, pod.uid), (task,))

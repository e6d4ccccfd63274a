"""All preemptible work that runs, in order of value, as things stood when it was first asked for in a pass.

The lists are kept from pass to pass (`listing`) and serve all units of a pass; what was evicted since is passed over. Members
that their gangs can do without have lists of their own: they go before all others, for whatever reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from fairlead.core.model.arrays import Mask
from fairlead.core.model.causes import PreemptionReason
from fairlead.core.pods.tasks import TaskState
from fairlead.core.preemption.listing import VictimLists
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy, may_lend
from fairlead.core.preemption.preemption_classes import preemption_classes
from fairlead.core.preemption.victim import Kind, Order, Preemptible

if TYPE_CHECKING:
    from fairlead.core.state.cluster import ClusterState


_FEW_KINDS = 64  # so many kinds of work are asked about one by one, in less time than lenders are listed

STEPS = 3_000
"""How many checks of one more victim searches for sets make in one pass, where the cheapest make no place."""


def victims_of(state: ClusterState) -> VictimTable:
    """The victims as they stood when they were first asked for in this pass."""
    return state.pass_caches.get(VictimTable)


def catch_up(state: ClusterState) -> None:
    """A pass begins, and nothing is tried yet."""
    state.caches.get(VictimLists).catch_up()


class There(dict[int, list[Preemptible]]):
    """The victims on each row that a unit may preempt, each by itself, cheapest first: found when they are first asked for."""

    def __init__(self, table: VictimTable, preemption: PreemptionPolicy) -> None:
        self._table = table
        self._preemption = preemption

    def __missing__(self, row: int) -> list[Preemptible]:
        found = self[row] = self._table.preemptible_on(self._preemption, row)
        return found


class VictimTable:
    """The victims as things stand in one pass.

    steps: how many questions searches for sets of victims may still ask (`subsets`).
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.steps = STEPS
        self._lists = state.caches.get(VictimLists)
        self._listed = False

    @property
    def listed(self) -> VictimLists:
        """The victims, of this moment when they are first asked for in a pass, for the rest of the pass."""
        self.list_now()
        return self._lists

    def list_now(self) -> None:
        """List victims as things stand, unless that was done in this pass."""
        if not self._listed:
            self._listed = True
            self._lists.refresh()

    def suppose_started(self) -> None:
        """In a trial: take all that was placed in this pass, and is not confirmed yet, for running, so that it is preemptible."""
        fresh = self._lists.assumed()
        for task in fresh:
            task.become(TaskState.BOUND, self.state.log)
        if self._listed:
            self._lists.again([task for task in fresh if task.pod.uid not in self._lists.of])
        else:
            self.state.queues.accounts.changes.note(task.pod.uid for task in fresh)

    def one_by_one(self, preemption: PreemptionPolicy, where: Callable[[int], bool]) -> Iterator[Preemptible]:
        """Victims that a unit may preempt, each by itself, cheapest first; whatever budgets allow.

        where: rows of which they must hold one.
        """
        nothing = PlannedVictims(preemption)
        for reason, victim in self._near(preemption, alone=True):
            if any(where(task.row) for task in victim.tasks) and nothing.is_reclaimable(reason, victim):
                yield reason, victim

    def in_order(
        self, preemption: PreemptionPolicy, where: Mask | None = None, only: Callable[[Preemptible], bool] | None = None
    ) -> Iterator[Preemptible]:
        """Victims that a unit may preempt together, cheapest first; of a queue over its share no more than the excess.

        where: rows of which they must hold one; victims elsewhere would use up what may be reclaimed, without use. only: those
        that help.
        """
        near = self._near(preemption) if only is None else filter(only, self._near(preemption))
        if where is not None:
            near = (each for each in near if any(where.item(task.row) for task in each[1].tasks))
        planned = PlannedVictims(preemption)
        yield from planned.admitted(near)

    def _near(self, preemption: PreemptionPolicy, *, alone: bool = False) -> Iterator[Preemptible]:
        if not preemption.any_preemptible() or not self._any(preemption, alone=alone):
            return
        if any(kind.spare for kind in self.listed.kinds.values()):
            yield from self._merged(preemption, None, alone=alone)
        for reason in preemption.reasons():
            yield from self._merged(preemption, reason, alone=alone)

    def _any(self, preemption: PreemptionPolicy, *, alone: bool = False) -> bool:
        """Whether there is a kind of which the unit may preempt any: most searches find none, and ask each kind once for that."""
        return any(True for _ in self._takes(preemption, alone=alone))

    def _kinds_near(self, preemption: PreemptionPolicy, *, alone: bool = False) -> Iterator[Kind]:
        """The kinds of work of queues that a unit may reach at all.

        alone: of those of which each victim is like all others, none of a queue that gives nothing before others were evicted.
        """
        kinds = self.listed.kinds
        near = _queues_near(preemption, later=not alone) if len(kinds) > _FEW_KINDS else None
        later: frozenset[str] | None = None
        for kind in kinds.values():
            if near is None or kind.queue in near:
                yield kind
            elif alone and not kind.alike:
                later = later or _queues_near(preemption, later=True)
                if later is None or kind.queue in later:
                    yield kind

    def _takes(self, preemption: PreemptionPolicy, *, alone: bool = False) -> Iterator[Kind]:
        """The kinds of which a unit may preempt any: each is asked about once."""
        queues = self.state.queues.queues
        for kind in self._kinds_near(preemption, alone=alone):
            if kind.victims and preemption.reaches(queues[kind.queue]) and preemption.may_take(kind):
                yield kind

    def hold(self, preemption: PreemptionPolicy, devices: int) -> bool:
        """Whether what a unit may preempt could hold so many devices, in milli; kinds of work are asked about, not victims."""
        for kind in self._takes(preemption):
            for victim in kind.victims:
                devices -= sum(task.shape.device_milli for task in victim.tasks)
                if devices <= 0:
                    return True
        return False

    def _merged(self, preemption: PreemptionPolicy, wanted: PreemptionReason | None, *, alone: bool) -> Iterator[Preemptible]:
        """The victims for one reason, cheapest first; None: those that their gangs can do without, for any reason.

        alone: each without others, so none of a queue that gives nothing before others below it were evicted.
        Most units need only the first of them, so nothing is asked about a kind, or about a victim, before it is next.
        """
        heads: list[tuple[Order, int, int, Kind]] = []
        queues, below = self.state.queues.queues, preemption.unit.priority
        for number, kind in enumerate(self._kinds_near(preemption, alone=alone)):
            victims = kind.victims
            if kind.spare is not (wanted is None):
                continue
            while victims and victims[-1].evicted:
                self._lists.drop(kind)
            if victims and (wanted is not PreemptionReason.PRIORITY or victims[-1].order[1] < below):
                heads.append((victims[-1].order, number, len(victims) - 1, kind))
        heapify(heads)
        while heads:
            order, number, at, kind = heads[0]
            if (
                (wanted is PreemptionReason.PRIORITY and order[1] >= below)
                or not kind.victims
                or not preemption.reaches(queues[kind.queue])
                or not preemption.may_take(kind, wanted)
                or (alone and preemption.may_only_take_later(kind))
            ):
                heappop(heads)
                continue
            victims = kind.victims
            at = min(at, len(victims) - 1)  # others may have taken out some meanwhile
            victim = victims[at]
            reason = preemption.reason_for_victim(victim) if victim.alive else None
            if reason is not None and wanted in (None, reason):
                yield reason, victim
            at = min(at, len(victims)) - 1
            if at >= 0:
                heapreplace(heads, (victims[at].order, number, at, kind))
            else:
                heappop(heads)

    def on_row(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """Victims on one row that a unit may preempt together, cheapest first; gangs with all their members elsewhere."""
        planned = PlannedVictims(preemption)
        return list(planned.admitted(self.preemptible_on(preemption, row)))

    def preemptible_on(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """Victims on one row that a unit may preempt, each by itself, cheapest first; whatever shares and budgets allow."""
        found: dict[int, Preemptible] = {}
        listed = self.listed.of
        for task in self.state.nodes.pods[row].values():
            victim = listed.get(task.pod.uid)
            if victim is None or id(victim) in found or not task.pod.ours or not victim.alive:
                continue
            reason = preemption.reason_for_victim(victim)
            if reason is not None:
                found[id(victim)] = (reason, victim)
        return sorted(found.values(), key=lambda each: (not each[1].spare, each[0], each[1].order))

    def there(self, preemption: PreemptionPolicy) -> There:
        """The same of every row, asked about once each: for as long as the state is as it is now."""
        return There(self, preemption)

    def rows(self, preemption: PreemptionPolicy) -> set[int]:
        """The rows on which there may be a victim that a unit may preempt; on others there is none."""
        kinds = [kind for kind in self._kinds_near(preemption) if kind.victims and preemption.may_take(kind)]
        return {task.row for kind in kinds for victim in kind.victims for task in victim.tasks if task.row >= 0}

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
            victim = self.listed.of.get(task.pod.uid)
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


def _queues_near(preemption: PreemptionPolicy, *, later: bool) -> frozenset[str] | None:
    """The queues of which a unit may preempt anything, and perhaps others; None: any may be one.

    later: also once others below the queues above its own were evicted.
    """
    if preemption.express or preemption_classes(preemption.state).wide:
        return None
    return frozenset((preemption.queue.name, *(lender.name for lender in may_lend(preemption, later=later))))

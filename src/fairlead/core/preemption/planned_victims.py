"""The victims of one plan so far, compared with what may be reclaimed from queues and users and what disruption budgets allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fairlead.core.model.causes import PreemptionReason
from fairlead.core.preemption.policy import Budgets, PreemptionPolicy
from fairlead.core.preemption.victim import Preemptible, Victim

if TYPE_CHECKING:
    from fairlead.core.state.budgets import Guard


class PlannedVictims:
    """The victims of one plan for one unit. The state does not change meanwhile: victims are only noted here."""

    def __init__(
        self,
        preemption: PreemptionPolicy,
        queues: dict[str, dict[str, int]] | None = None,
        users: dict[str, int] | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._preemption = preemption
        self._queues = {} if queues is None else queues  # queue -> resource -> what it would hold less
        self._users = {} if users is None else users
        self._guard = guard

    def copy(self) -> PlannedVictims:
        """The same victims, to go on with separately."""
        queues = {name: dict(less) for name, less in self._queues.items()}
        return PlannedVictims(
            self._preemption, queues, dict(self._users), self._guard.copy() if self._guard is not None else None
        )

    def is_reclaimable(self, reason: PreemptionReason, victim: Victim) -> bool:
        """Whether so much may be reclaimed from a victim's queue, or user, besides what is noted; others need no excess."""
        if reason is PreemptionReason.SHARE:
            queue = self._preemption.state.queues.queues[victim.tasks[0].queue]
            return self._preemption.reclaims_from(queue, self._queues, victim.tasks)
        return reason is not PreemptionReason.USER or self._preemption.user_holds_more(victim.tasks, self._users)

    def admits(self, reason: PreemptionReason, victim: Victim) -> bool:
        """Whether a victim may be preempted besides those noted, so that its queue, or user, is left with no less than its share.

        It is noted then.
        """
        preemption = self._preemption
        if not self.is_reclaimable(reason, victim) or not self._within_budgets(reason, victim):
            return False
        if preemption.reclaims_from_users:
            preemption.take_from_user(victim.tasks, self._users)
        if preemption.entitled:
            for task in victim.tasks:
                preemption.take(task, self._queues)
        return True

    def admitted(self, candidates: Iterable[Preemptible]) -> Iterator[Preemptible]:
        """Those of some, in their order, that may be preempted together.

        What is preempted below a queue above the unit's relieves that queue: more may be reclaimable then.
        """
        passed: list[Preemptible] = []
        for each in candidates:
            if not self.admits(*each):
                if self._preemption.nested and each[0] is PreemptionReason.SHARE:
                    passed.append(each)
                continue
            yield each
            relieved = self._preemption.relieved_by(each[1].tasks)
            while passed and relieved:
                again = next((one for one in passed if self.admits(*one)), None)
                if again is None:
                    break
                passed.remove(again)
                yield again

    def admits_all(self, victims: Sequence[Preemptible]) -> bool:
        """Whether all of these may be preempted without the others with which they were found."""
        return not self._preemption.nested or len(list(self.admitted(victims))) == len(victims)

    def _within_budgets(self, reason: PreemptionReason, victim: Victim) -> bool:
        preemption = self._preemption
        if not preemption.state.budgets.may_block:
            return True
        if self._guard is None:
            self._guard = preemption.state.budgets.guard()
        if self._guard.admits(victim.tasks) or preemption.budgets is Budgets.IGNORE:
            return True
        if preemption.budgets is Budgets.KEEP or reason is not PreemptionReason.SHARE:
            return False
        return preemption.may_override(preemption.state.queues.queues[victim.tasks[0].queue], self._queues)

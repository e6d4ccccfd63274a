"""What falls already in one plan, held against what queues and users owe and what disruption budgets allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fairlead.core.model.causes import PreemptionReason
from fairlead.core.preemption.policy import Budgets, Contest
from fairlead.core.preemption.victim import Falling, Victim

if TYPE_CHECKING:
    from fairlead.core.state.budgets import Guard


class Ledger:
    """The account of one plan for one unit. The state stays as it is while it is kept: what falls is only noted here."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest
        self._queues: dict[str, dict[str, int]] = {}  # queue -> resource -> what it would hold less
        self._users: dict[str, int] = {}
        self._guard: Guard | None = None

    def copy(self) -> Ledger:
        """The same account, to go on with separately."""
        other = Ledger.__new__(Ledger)
        other._contest = self._contest
        other._queues = {name: dict(less) for name, less in self._queues.items()}
        other._users = dict(self._users)
        other._guard = self._guard.copy() if self._guard is not None else None
        return other

    def owed(self, ground: PreemptionReason, victim: Victim) -> bool:
        """Whether a victim's queue, or its user, owes so much besides what is noted; other grounds need no debt."""
        if ground is PreemptionReason.SHARE:
            queue = self._contest.state.queues.queues[victim.tasks[0].queue]
            return self._contest.owed_by(queue, self._queues, victim.tasks)
        return ground is not PreemptionReason.USER or self._contest.user_owes(victim.tasks, self._users)

    def admits(self, ground: PreemptionReason, victim: Victim) -> bool:
        """Whether a victim may fall besides those noted: who would only make his queue, or user, more than even may not.

        It is noted then.
        """
        contest = self._contest
        if not self.owed(ground, victim) or not self._within_budgets(ground, victim):
            return False
        if contest.evens:
            contest.take_from_user(victim.tasks, self._users)
        if contest.entitled:
            for task in victim.tasks:
                contest.take(task, self._queues)
        return True

    def admitted(self, candidates: Iterable[Falling]) -> Iterator[Falling]:
        """Those of some, in their order, who may fall together.

        Where somebody falls below a queue above the unit's, that holds less then: who was not owed before may be now.
        """
        passed: list[Falling] = []
        for each in candidates:
            if not self.admits(*each):
                if self._contest.nested and each[0] is PreemptionReason.SHARE:
                    passed.append(each)
                continue
            yield each
            eased = self._contest.eased_by(each[1].tasks)
            while passed and eased:
                again = next((one for one in passed if self.admits(*one)), None)
                if again is None:
                    break
                passed.remove(again)
                yield again

    def stands(self, falling: Sequence[Falling]) -> bool:
        """Whether all of these may fall without the others with whom they were found."""
        return not self._contest.nested or len(list(self.admitted(falling))) == len(falling)

    def _within_budgets(self, ground: PreemptionReason, victim: Victim) -> bool:
        contest = self._contest
        if not contest.state.budgets.may_block:
            return True
        if self._guard is None:
            self._guard = contest.state.budgets.guard()
        if self._guard.admits(victim.tasks) or contest.budgets is Budgets.IGNORE:
            return True
        if contest.budgets is Budgets.KEEP or ground is not PreemptionReason.SHARE:
            return False
        return contest.may_override(contest.state.queues.queues[victim.tasks[0].queue], self._queues)

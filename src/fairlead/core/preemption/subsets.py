"""Sets of victims tried one after another, where the cheapest first have used up what is owed and no place has come of it.

Small victims may take all that a queue owes, so that a large one which alone makes the place may not fall any more. Here sets are
searched depth first, the largest pieces first; victims that are alike count once. What a set may hold is bounded by what is owed,
and the questions of who may fall by `victims.STEPS` in a pass: a search in vain costs no more in a larger cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fairlead.core.pods.amounts import by_column, covers, lacking
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.ledger import Ledger
from fairlead.core.preemption.policy import Contest
from fairlead.core.preemption.removal import Removal, cost, reprieve
from fairlead.core.preemption.victim import Falling
from fairlead.core.preemption.victims import victims_of

_EACH = 1200
"""How many questions are asked of ledgers for one choice of rows."""


def search(
    contest: Contest, core: Unit, rows: Iterable[Sequence[int]], fits: Callable[[Sequence[int]], bool]
) -> tuple[list[Falling], Sequence[int]] | None:
    """The cheapest set of victims without whom a unit fits, and on which rows; or None. The state is left as it was.

    rows: choices of rows that are tried one by one, each with those who may fall there. fits: whether the unit fits on such rows.
    """
    best: tuple[list[Falling], Sequence[int]] | None = None
    for choice in rows:
        if victims_of(contest.state).steps <= 0:
            break
        found = _Search(contest, core, choice, fits).run()
        if found and (best is None or cost(found) < cost(best[0])):
            best = found, choice
    return best


class _Search:
    """One choice of rows."""

    def __init__(self, contest: Contest, core: Unit, rows: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> None:
        self.contest, self.rows, self.state = contest, rows, contest.state
        self.fits = fits
        self.steps = _EACH
        self.best: list[Falling] | None = None
        self.missing = lacking(self.state.nodes, list(rows), by_column(core.tasks))
        self.classes = self._classes()

    def run(self) -> list[Falling] | None:
        """The cheapest set that is found."""
        held = by_column(task for alike in self.classes for _, victim in alike for task in victim.tasks if task.row in self.rows)
        if covers(held, self.missing):
            self._extend(0, [], Ledger(self.contest))
        return self.best

    def _classes(self) -> list[list[Falling]]:
        """Who may fall on the rows, or elsewhere where that eases a queue above: the alike together, cheapest first."""
        found: dict[int, Falling] = {}
        for row in range(self.state.nodes.count) if self.contest.nested else self.rows:
            for each in victims_of(self.state).anybody_on(self.contest, row):
                if row in self.rows or self.contest.eased_by(each[1].tasks):
                    found[id(each[1])] = each
        alike: dict[tuple[object, ...], list[Falling]] = {}
        for each in found.values():
            tasks = each[1].tasks
            places = tuple(
                sorted((task.row, task.shape.number, task.devices if task.shape.gpu_milli % 1000 else ()) for task in tasks)
            )
            guarded = tasks[0].pod.uid if self.state.budgets.may_block or self.contest.evens else ""
            alike.setdefault((each[0], tasks[0].queue, each[1].spare, places, guarded), []).append(each)
        return sorted(alike.values(), key=lambda them: (-_devices(them[0]), not them[0][1].spare, them[0][0], them[0][1].order))

    def _extend(self, at: int, chosen: list[Falling], ledger: Ledger) -> None:
        """Look at a set, then at those with one more."""
        if chosen and self._enough(chosen) and self._admitted(chosen) and self._serves(chosen):
            if self.best is None or cost(chosen) < cost(self.best):
                self.best = list(chosen)
            return
        for number in range(at, len(self.classes)):
            count = sum(each in chosen for each in self.classes[number])
            if count >= len(self.classes[number]):
                continue
            if self.steps <= 0 or victims_of(self.state).steps <= 0:
                return
            self._spend()
            each, account = self.classes[number][count], ledger.copy()
            # What is taken in falling order may overdraw in the middle; in trees others may ease it: judged as a whole then.
            if account.admits(*each) or self.contest.nested or self.contest.within_quota(self.contest.queue):
                self._extend(number, [*chosen, each], account)

    def _enough(self, chosen: Sequence[Falling]) -> bool:
        return covers(by_column(task for _, victim in chosen for task in victim.tasks if task.row in self.rows), self.missing)

    def _admitted(self, chosen: Sequence[Falling]) -> bool:
        """Whether all may fall together: the smallest first, since the last may leave less than what is its queue's due."""
        ledger, left = Ledger(self.contest), sorted(chosen, key=_devices)
        while left:
            for each in left:
                self._spend()
                if ledger.admits(*each):
                    left.remove(each)
                    break
            else:
                return False
        return True

    def _spend(self) -> None:
        """One question to a ledger: they are what a search costs."""
        self.steps -= 1
        victims_of(self.state).steps -= 1

    def _serves(self, chosen: Sequence[Falling]) -> bool:
        mark = self.state.log.mark()
        removal = Removal(self.state)
        for _, victim in chosen:
            removal.take(victim.tasks)
        served = self.fits(self.rows)
        kept = reprieve(removal, list(chosen), lambda: self.fits(self.rows)) if served and not self.contest.nested else chosen
        self.state.log.rollback(mark)
        return served and len(kept) == len(chosen)


def _devices(falling: Falling) -> int:
    return sum(task.shape.device_milli for task in falling[1].tasks)

"""Sets of victims tried one after another, where the cheapest first have used up what may be reclaimed and no place has come of
it.

Small victims may use up all that is reclaimable from a queue, so that a large one which alone makes the place may not be
preempted any more. Here sets are searched depth first, the largest victims first; victims that are alike count once. What a set
may hold is bounded by what may be reclaimed, and the checks of one more victim by `victims.STEPS` in a pass: a search in
vain costs no more in a larger cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fairlead.core.pods.amounts import by_column, covers, lacking
from fairlead.core.pods.tasks import Unit
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.removal import Removal, cost, reprieve
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of

_EACH = 1200
"""How many checks of one more victim are made for one choice of rows."""


def search(
    preemption: PreemptionPolicy, core: Unit, rows: Iterable[Sequence[int]], fits: Callable[[Sequence[int]], bool]
) -> tuple[list[Preemptible], Sequence[int]] | None:
    """The cheapest set of victims without whom a unit fits, and on which rows; or None. The state is left as it was.

    rows: choices of rows that are tried one by one, each with the victims there. fits: whether the unit fits on such rows.
    """
    best: tuple[list[Preemptible], Sequence[int]] | None = None
    there = _There(preemption)
    for choice in rows:
        if victims_of(preemption.state).steps <= 0:
            break
        found = _Search(there, core, choice, fits).run()
        if found and (best is None or cost(found) < cost(best[0])):
            best = found, choice
    return best


class _There:
    """The victims on rows, found once for all choices; and those that relieve a queue above, wherever they are."""

    def __init__(self, preemption: PreemptionPolicy) -> None:
        self.preemption = preemption
        victims = victims_of(preemption.state)
        self._on = victims.there(preemption)
        self._relieving: dict[int, list[Preemptible]] = {}
        for row in sorted(victims.rows(preemption)) if preemption.nested else ():
            relieving = [each for each in self._on[row] if preemption.relieved_by(each[1].tasks)]
            if relieving:
                self._relieving[row] = relieving

    def near(self, rows: Sequence[int]) -> Iterator[Preemptible]:
        """The victims on rows, or elsewhere where that relieves a queue above, row by row."""
        on = set(rows)
        for row in sorted(on | self._relieving.keys()):
            yield from self._on[row] if row in on else self._relieving[row]


class _Search:
    """One choice of rows."""

    def __init__(self, there: _There, core: Unit, rows: Sequence[int], fits: Callable[[Sequence[int]], bool]) -> None:
        self.preemption, self.rows, self.state = there.preemption, rows, there.preemption.state
        self._there = there
        self.fits = fits
        self.steps = _EACH
        self.best: list[Preemptible] | None = None
        self.missing = lacking(self.state.nodes, list(rows), by_column(core.tasks))
        self.classes = self._classes()

    def run(self) -> list[Preemptible] | None:
        """The cheapest set that is found."""
        held = by_column(task for alike in self.classes for _, victim in alike for task in victim.tasks if task.row in self.rows)
        if covers(held, self.missing):
            self._extend(0, [], PlannedVictims(self.preemption))
        return self.best

    def _classes(self) -> list[list[Preemptible]]:
        """Victims on the rows, or elsewhere where that relieves a queue above: the alike together, cheapest first."""
        found = {id(each[1]): each for each in self._there.near(self.rows)}
        alike: dict[tuple[object, ...], list[Preemptible]] = {}
        for each in found.values():
            tasks = each[1].tasks
            places = tuple(
                sorted((task.row, task.shape.number, task.devices if task.shape.gpu_milli % 1000 else ()) for task in tasks)
            )
            guarded = tasks[0].pod.uid if self.state.budgets.may_block or self.preemption.reclaims_from_users else ""
            alike.setdefault((each[0], tasks[0].queue, each[1].spare, places, guarded), []).append(each)
        return sorted(alike.values(), key=lambda them: (-_devices(them[0]), not them[0][1].spare, them[0][0], them[0][1].order))

    def _extend(self, at: int, chosen: list[Preemptible], planned: PlannedVictims) -> None:
        """Try a set, then those with one more."""
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
            each, longer = self.classes[number][count], planned.copy()
            # From the largest on, a set may exceed what is reclaimable midway; in trees others may relieve it: judged as a whole.
            if longer.admits(*each) or self.preemption.nested or self.preemption.within_quota(self.preemption.queue):
                self._extend(number, [*chosen, each], longer)

    def _enough(self, chosen: Sequence[Preemptible]) -> bool:
        return covers(by_column(task for _, victim in chosen for task in victim.tasks if task.row in self.rows), self.missing)

    def _admitted(self, chosen: Sequence[Preemptible]) -> bool:
        """Whether all may be preempted together: the smallest first, since the last may leave its queue less than its share."""
        planned, left = PlannedVictims(self.preemption), sorted(chosen, key=_devices)
        while left:
            for each in left:
                self._spend()
                if planned.admits(*each):
                    left.remove(each)
                    break
            else:
                return False
        return True

    def _spend(self) -> None:
        """One more victim is checked: that is what a search costs."""
        self.steps -= 1
        victims_of(self.state).steps -= 1

    def _serves(self, chosen: Sequence[Preemptible]) -> bool:
        mark = self.state.log.mark()
        removal = Removal(self.state)
        for _, victim in chosen:
            removal.take(victim.tasks)
        served = self.fits(self.rows)
        kept = reprieve(removal, list(chosen), lambda: self.fits(self.rows)) if served and not self.preemption.nested else chosen
        self.state.log.rollback(mark)
        return served and len(kept) == len(chosen)


def _devices(victim: Preemptible) -> int:
    return sum(task.shape.device_milli for task in victim[1].tasks)

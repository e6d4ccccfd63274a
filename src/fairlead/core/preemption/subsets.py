"""Sets of victims tried one after another, where the cheapest first have used up what may be reclaimed and no place has come of
it.

Small victims may use up all that is reclaimable from a queue, so that a large one which alone makes the place may not be
preempted any more. Here sets are searched depth first, the largest victims first; victims that are alike count once. What a set
may hold is bounded by what may be reclaimed, and the checks of one more victim by `victims.STEPS` in a pass: a search in
vain costs no more in a larger cluster.

A unit that asks for whole devices gains nothing from a part of one. So if no set of single victims serves it, those that share a
device are tried together (`shared_devices`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fairlead.core.model.units import WHOLE
from fairlead.core.pods.amounts import Amounts, asked_by, by_column, covers, lacking
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.network_devices import elsewhere
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.removal import Removal, cost, reprieve
from fairlead.core.preemption.shared_devices import Together, by_device, wants_whole, whole_devices
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of

_EACH = 1200
"""How many checks of one more victim are made for one choice of rows."""

_MOST = 64
"""So many victims, or devices with theirs, a set holds at most: in a tree what is evicted elsewhere may go on without end."""


def search(
    preemption: PreemptionPolicy, core: Unit, rows: Iterable[Sequence[int]], fits: Callable[[Sequence[int]], bool]
) -> tuple[list[Preemptible], Sequence[int]] | None:
    """The cheapest set of victims without whom a unit fits, and on which rows; or None. The state is left as it was.

    rows: choices of rows that are tried one by one, each with the victims there. fits: whether the unit fits on such rows.
    """
    best: tuple[list[Preemptible], Sequence[int]] | None = None
    there = _There(preemption, core)
    for choice in rows:
        if victims_of(preemption.state).steps <= 0:
            break
        found = _search_one(there, core, choice, fits)
        if found and (best is None or cost(found) < cost(best[0])):
            best = found, choice
    return best


def _search_one(
    there: _There, core: Unit, rows: Sequence[int], fits: Callable[[Sequence[int]], bool]
) -> list[Preemptible] | None:
    """The cheapest set for one choice of rows, victim by victim; else with those together that share a device."""
    state = there.preemption.state
    missing = lacking(state.nodes, list(rows), asked_by(core.tasks))
    near = list({id(each[1]): each for each in there.near(rows)}.values())
    if not covers(by_column(task for _, victim in near for task in victim.tasks if task.row in rows), missing):
        return None
    found = _Search(there, core, rows, fits, [(each,) for each in near], missing, whole=False).run()
    if found or not wants_whole(core):
        return found
    together = by_device(state, near, rows)
    return _Search(there, core, rows, fits, together, missing, whole=True).run() if together else None


class _There:
    """The victims on rows, found once for all choices; and those that relieve a queue above, or hold shared devices, anywhere."""

    def __init__(self, preemption: PreemptionPolicy, core: Unit) -> None:
        self.preemption = preemption
        victims = victims_of(preemption.state)
        self._on = victims.there(preemption)
        self._relieving: dict[int, list[Preemptible]] = {}
        for row in sorted(victims.rows(preemption)) if preemption.nested else ():
            relieving = [each for each in self._on[row] if preemption.relieved_by(each[1].tasks)]
            if relieving:
                self._relieving[row] = relieving
        others = elsewhere(preemption.state, core.tasks)
        for row in sorted(others.rows) if others is not None else ():
            known = self._relieving.setdefault(row, [])
            known += [each for each in others.holding(preemption, (row,)) if each not in known] if others is not None else []

    def near(self, rows: Sequence[int]) -> Iterator[Preemptible]:
        """The victims on rows, or elsewhere where that relieves a queue above, row by row."""
        on = set(rows)
        for row in sorted(on | self._relieving.keys()):
            yield from self._on[row] if row in on else self._relieving[row]


class _Search:
    """One choice of rows, which lack so much. whole: only sets that leave as many whole devices as the unit asks for."""

    def __init__(
        self,
        there: _There,
        core: Unit,
        rows: Sequence[int],
        fits: Callable[[Sequence[int]], bool],
        near: Iterable[Together],
        missing: Amounts,
        *,
        whole: bool,
    ) -> None:
        self.preemption, self.rows, self.state = there.preemption, rows, there.preemption.state
        self.fits = fits
        self.steps = _EACH
        self.best: list[Preemptible] | None = None
        self.missing = missing
        self.devices = sum(task.shape.gpus for task in core.tasks) if whole else 0
        self.classes = self._classes(near)

    def run(self) -> list[Preemptible] | None:
        """The cheapest set that is found."""
        held = by_column(task for alike in self.classes for each in alike for task in _tasks(each) if task.row in self.rows)
        if covers(held, self.missing):
            self._extend(0, [], PlannedVictims(self.preemption))
        return self.best

    def _classes(self, near: Iterable[Together]) -> list[list[Together]]:
        """Victims on the rows, or elsewhere where that relieves a queue above: the alike together, cheapest first."""
        alike: dict[tuple[object, ...], list[Together]] = {}
        for each in near:
            alike.setdefault(self._kind(each), []).append(each)
        return sorted(alike.values(), key=lambda them: (-_devices(them[0]), *_price(them[0])))

    def _kind(self, together: Together) -> tuple[object, ...]:
        """What is the same of victims that are worth the same."""
        guards = self.state.budgets.may_block or self.preemption.reclaims_from_users
        found = []
        for reason, victim in together:
            tasks = victim.tasks
            places = tuple(
                sorted(
                    (task.row, task.shape.number, task.devices if task.shape.gpu_milli % WHOLE and not self.devices else ())
                    for task in tasks
                )
            )
            own = guards or any(task.pod.claims for task in tasks)  # by claims each has other devices
            found.append((reason, tasks[0].queue, victim.spare, places, tasks[0].pod.uid if own else ""))
        return tuple(sorted(found))

    def _extend(self, at: int, chosen: list[Together], planned: PlannedVictims) -> None:
        """Try a set, then those with one more."""
        victims = list({id(each[1]): each for together in chosen for each in together}.values())
        if chosen and self._enough(victims) and self._admitted(victims) and self._serves(victims):
            if self.best is None or cost(victims) < cost(self.best):
                self.best = victims
            return
        if len(chosen) >= _MOST:
            return
        for number in range(at, len(self.classes)):
            count = sum(each in chosen for each in self.classes[number])
            if count >= len(self.classes[number]):
                continue
            if self.steps <= 0 or victims_of(self.state).steps <= 0:
                return
            each, longer = self.classes[number][count], planned.copy()
            # From the largest on, a set may exceed what is reclaimable midway; in trees others may relieve it: judged as a whole.
            if self._admits(longer, each) or self.preemption.nested or self.preemption.within_quota(self.preemption.queue):
                self._extend(number, [*chosen, each], longer)

    def _admits(self, planned: PlannedVictims, together: Together) -> bool:
        for each in together:
            self._spend()
            if not planned.admits(*each):
                return False
        return True

    def _enough(self, chosen: Sequence[Preemptible]) -> bool:
        gone = [task for _, victim in chosen for task in victim.tasks if task.row in self.rows]
        if not covers(by_column(gone), self.missing):
            return False
        return not self.devices or whole_devices(self.state, self.rows, gone) >= self.devices

    def _admitted(self, chosen: Sequence[Preemptible]) -> bool:
        """Whether all may be preempted together: the smallest first, since the last may leave its queue less than its share."""
        planned, left = PlannedVictims(self.preemption), sorted(chosen, key=lambda each: _devices((each,)))
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


def _tasks(together: Together) -> list[Task]:
    return [task for _, victim in together for task in victim.tasks]


def _devices(together: Together) -> int:
    return sum(task.shape.device_milli for task in _tasks(together))


def _price(together: Together) -> tuple[object, ...]:
    """In which order those of the same size are tried."""
    return max((not victim.spare, reason, victim.order) for reason, victim in together)

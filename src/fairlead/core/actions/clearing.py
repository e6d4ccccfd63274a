"""Whole rows cleared for a gang of which the cheapest victims of all, wherever they are, make no place.

`preempt` goes down one list from the cheapest on, until the gang fits. Where what falls must be owed, by queues or by users, it
may end before that: small pods spread over the cluster fall by the list, a piece on each node, until their queue owes nothing any
more, and no node is free for a large pod. Here places are bought one by one: every row says who would have to fall there for one
more member, the cheapest offer is taken, and what falls for it is noted against what is owed.

Costs an offer for each row (who may fall there, tried under the undo log), and one more for each member.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fairlead.core.actions.contest import Contest
from fairlead.core.actions.fallen import Fallen, Falling, cost, least_on
from fairlead.core.actions.ledger import Ledger
from fairlead.core.tasks import Task, Unit

Mask = npt.NDArray[np.bool_]


class _Offer(NamedTuple):
    """What one more member costs on a row; a place that is free costs nothing and comes first."""

    cost: tuple[float, ...]
    name: str
    row: int
    victims: list[Falling]


def clear(contest: Contest, core: Unit, rows: dict[int, Mask]) -> list[Falling] | None:
    """Who falls so that every member of a gang has a place by itself, cheapest rows first; None if that cannot be.

    rows: by shape number, those that a member may have, whoever is there now. What members ask of each other (affinity) is not
    looked at, but for those on one row. The state is left as it was.
    """
    by_shape: dict[int, list[Task]] = {}
    for task in core.tasks:
        by_shape.setdefault(task.shape.number, []).append(task)
    largest_first = sorted(by_shape.items(), key=lambda each: (-each[1][0].shape.device_milli, each[1][0].pod.key))
    for sparing in (False, True):
        clearing = _Clearing(contest, sparing=sparing)
        if all(clearing.place(tasks, np.flatnonzero(rows[number]).tolist()) for number, tasks in largest_first):
            return clearing.victims
    return None


class _Clearing:
    """What is bought so far. victims: who falls, in the order in which they were taken.

    sparing: what takes fewest devices is cheapest, so that what is owed goes furthest; else what loses least.
    """

    def __init__(self, contest: Contest, *, sparing: bool) -> None:
        self.contest, self.state, self.sparing = contest, contest.state, sparing
        self.ledger = Ledger(contest)
        self.victims: list[Falling] = []
        self._gone: set[str] = set()
        self._off: dict[int, list[Task]] = {}  # row -> who falls there
        self._on: dict[int, list[Task]] = {}  # row -> members that have places there

    def place(self, tasks: list[Task], rows: list[int]) -> bool:
        """Buy places for alike members; whether all have one."""
        offers = [offer for row in rows if (offer := self._offer(row, tasks[0])) is not None]
        heapify(offers)
        for task in tasks:
            while offers:
                offer = heappop(offers)
                if self._accept(offer):
                    self._on.setdefault(offer.row, []).append(task)
                    break
                # What was owed is taken elsewhere meanwhile: perhaps somebody else may fall here.
                self._again(offers, offer.row, task)
            else:
                return False
            self._again(offers, offer.row, task)
        return True

    def _again(self, offers: list[_Offer], row: int, task: Task) -> None:
        offer = self._offer(row, task)
        if offer is not None:
            heappush(offers, offer)

    def _accept(self, offer: _Offer) -> bool:
        """Take an offer, if all that fall for it still run and are owed besides those taken before."""
        ledger = self.ledger.copy()
        for ground, victim in offer.victims:
            if victim.tasks[0].pod.uid in self._gone or not ledger.admits(ground, victim):
                return False
        self.ledger = ledger
        self.victims += offer.victims
        for _, victim in offer.victims:
            for task in victim.tasks:
                self._gone.add(task.pod.uid)
                self._off.setdefault(task.row, []).append(task)
        return True

    def _offer(self, row: int, task: Task) -> _Offer | None:
        """Who falls for one more member on a row, as things stand."""
        state = self.state
        name = state.nodes.names[row]
        falling = [
            each for each in state.victims.on_row(self.contest, row, self.ledger) if each[1].tasks[0].pod.uid not in self._gone
        ]
        if self.sparing:
            falling.sort(key=_devices)
        mark = state.log.mark()
        Fallen(state).take(self._off.get(row, ()))
        for member in self._on.get(row, ()):
            state.assign(member, row, member.shape.strategy.pick(member.shape, row))
        free = task.shape.fits_row(row) and state.queues.over_limit(task, row=row) is None
        chosen = [] if free else least_on(state, task, row, falling)
        state.log.rollback(mark)
        if chosen is None:
            return None
        price = cost(chosen) if chosen else ()
        return _Offer((sum(map(_devices, chosen)), *price) if self.sparing else price, name, row, chosen)


def _devices(falling: Falling) -> int:
    return sum(task.shape.device_milli for task in falling[1].tasks)

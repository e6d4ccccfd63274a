"""Whole rows cleared for a gang of which the cheapest victims of all, wherever they are, make no place.

`preempt` goes down one list from the cheapest on, until the gang fits. Where what falls must be owed, by queues or by users, it
may end before that: small pods spread over the cluster fall by the list, a piece on each node, until their queue owes nothing any
more, and no node is free for a large pod. Here places are bought one by one: every row says who would have to fall there for one
more member, the cheapest offer is taken, and what falls for it is noted against what is owed.

Costs an offer for each row (who may fall there, tried under the undo log), and one more for each member. Where amounts alone
say that there are too few places, no offer is made.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.pods.amounts import by_column, places
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.ledger import Ledger
from fairlead.core.preemption.policy import Contest
from fairlead.core.preemption.removal import Removal, cost, least_on
from fairlead.core.preemption.victim import Falling
from fairlead.core.preemption.victims import victims_of


class _Offer(NamedTuple):
    """What one more member costs on a row; a place that is free costs nothing and comes first. after: how many fell before."""

    cost: tuple[float, ...]
    name: str
    row: int
    victims: list[Falling]
    after: int


def clear(contest: Contest, core: Unit, rows: dict[int, Mask]) -> list[Falling] | None:
    """Who falls so that every member of a gang has a place by itself, cheapest rows first; None if that cannot be.

    rows: by shape number, those that a member may have, whoever is there now. What members ask of each other (affinity) is not
    looked at, but for those on one row. The state is left as it was.
    """
    by_shape: dict[int, list[Task]] = {}
    for task in core.tasks:
        by_shape.setdefault(task.shape.number, []).append(task)
    largest_first = sorted(by_shape.values(), key=lambda tasks: (-tasks[0].shape.device_milli, tasks[0].pod.key))
    wanted = [(tasks, np.flatnonzero(rows[tasks[0].shape.number]).tolist()) for tasks in largest_first]
    there = _There(contest)
    if not all(_could_hold(contest, there, each, tasks) for tasks, each in wanted):
        return None
    for sparing in (False, True):
        clearing = _Clearing(contest, there, sparing=sparing)
        if all(clearing.place(tasks, each) for tasks, each in wanted):
            return clearing.victims
    return None


class _There(dict[int, list[Falling]]):
    """Who may fall on each row, cheapest first: looked at once for all offers."""

    def __init__(self, contest: Contest) -> None:
        self._contest = contest

    def __missing__(self, row: int) -> list[Falling]:
        found = self[row] = victims_of(self._contest.state).anybody_on(self._contest, row)
        return found


def _could_hold(contest: Contest, there: _There, rows: list[int], tasks: list[Task]) -> bool:
    """Whether there could be places for alike members by amounts alone, were everybody gone who may fall on a row."""
    state, demand = contest.state, tasks[0].shape.demand
    held = 0
    for row in rows:
        gone = by_column(each for _, victim in there[row] for each in victim.tasks if each.row == row)
        held += places(state.nodes, row, demand, gone, len(tasks))
        if held >= len(tasks):
            return True
    return False


class _Clearing:
    """What is bought so far. victims: who falls, in the order in which they were taken.

    sparing: what takes fewest devices is cheapest, so that what is owed goes furthest; else what loses least.
    """

    def __init__(self, contest: Contest, there: _There, *, sparing: bool) -> None:
        self.state, self.there, self.sparing = contest.state, there, sparing
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
                if offer.after < len(self.victims):
                    # What was owed is taken elsewhere meanwhile: perhaps other pods may fall here.
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
        """Take an offer, if all that fall for it still run and are owed besides those taken before, in whichever order."""
        ledger = self.ledger.copy()
        victims = list(ledger.admitted(each for each in offer.victims if each[1].tasks[0].pod.uid not in self._gone))
        if len(victims) < len(offer.victims):
            return False
        self.ledger = ledger
        self.victims += victims
        for _, victim in victims:
            for task in victim.tasks:
                self._gone.add(task.pod.uid)
                self._off.setdefault(task.row, []).append(task)
        return True

    def _offer(self, row: int, task: Task) -> _Offer | None:
        """Who falls for one more member on a row, as things stand."""
        state, falling = self.state, self._may_fall(row)
        mark = state.log.mark()
        Removal(state).take(self._off.get(row, ()))
        for member in self._on.get(row, ()):
            state.placement.place(member, row)
        free = state.placement.takes(task, row)
        chosen = [] if free else least_on(state, task, row, falling)
        state.log.rollback(mark)
        if chosen is None:
            return None
        price = cost(chosen) if chosen else ()
        return _Offer(
            (sum(map(_devices, chosen)), *price) if self.sparing else price,
            state.nodes.names[row],
            row,
            chosen,
            len(self.victims),
        )

    def _may_fall(self, row: int) -> list[Falling]:
        """Who on a row may fall besides those taken before, in the order in which they are tried."""
        ledger = self.ledger.copy()
        here = (each for each in self.there[row] if each[1].tasks[0].pod.uid not in self._gone)
        falling = list(ledger.admitted(here))
        return sorted(falling, key=_devices) if self.sparing else falling


def _devices(falling: Falling) -> int:
    return sum(task.shape.device_milli for task in falling[1].tasks)

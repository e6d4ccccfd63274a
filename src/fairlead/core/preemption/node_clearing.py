"""Whole rows cleared for a gang of which the cheapest victims of all, wherever they are, make no place.

`preempt` goes down one list from the cheapest on, until the gang fits. Where victims must be reclaimable, from queues or from
users, it may end before that: small pods spread over the cluster are taken by the list, one on each node, until their queue is at
its share, and no node is free for a large pod. Here places are bought one by one: for every row there is an offer, the victims
needed there for one more member; the cheapest is taken, and its victims are noted against what may be reclaimed.

Costs an offer for each row (its victims, tried under the undo log), and one more for each member. Where by amounts alone
there are too few places, no offer is made.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.pods.amounts import by_column, places
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.removal import Removal, cost, least_on
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import There, victims_of


class _Offer(NamedTuple):
    """What one more member costs on a row; a free place costs nothing. after: how many victims were taken before."""

    cost: tuple[float, ...]
    name: str
    row: int
    victims: list[Preemptible]
    after: int


def clear(preemption: PreemptionPolicy, core: Unit, rows: dict[int, Mask]) -> list[Preemptible] | None:
    """The victims without which every member of a gang has a place by itself, cheapest rows first; None if there is no such set.

    rows: by shape number, those that a member may have, whatever is there now. What members ask of each other (affinity) is not
    checked, but for those on one row. The state is left as it was.
    """
    by_shape: dict[int, list[Task]] = {}
    for task in core.tasks:
        by_shape.setdefault(task.shape.number, []).append(task)
    largest_first = sorted(by_shape.values(), key=lambda tasks: (-tasks[0].shape.device_milli, tasks[0].pod.key))
    wanted = [(tasks, np.flatnonzero(rows[tasks[0].shape.number]).tolist()) for tasks in largest_first]
    there = victims_of(preemption.state).there(preemption)
    if not all(_could_hold(preemption, there, each, tasks) for tasks, each in wanted):
        return None
    for sparing in (False, True):
        clearing = _Clearing(preemption, there, sparing=sparing)
        if all(clearing.place(tasks, each) for tasks, each in wanted):
            return clearing.victims
    return None


def _could_hold(preemption: PreemptionPolicy, there: There, rows: list[int], tasks: list[Task]) -> bool:
    """Whether there could be places for alike members by amounts alone, were all preemptible pods of a row gone."""
    state, demand = preemption.state, tasks[0].shape.demand
    held = 0
    for row in rows:
        gone = by_column(each for _, victim in there[row] for each in victim.tasks if each.row == row)
        held += places(state.nodes, row, demand, gone, len(tasks))
        if held >= len(tasks):
            return True
    return False


class _Clearing:
    """What is bought so far. victims: in the order in which they were taken.

    sparing: what takes fewest devices is cheapest, so that what may be reclaimed goes furthest; else what loses least.
    """

    def __init__(self, preemption: PreemptionPolicy, there: There, *, sparing: bool) -> None:
        self.state, self.there, self.sparing = preemption.state, there, sparing
        self.planned = PlannedVictims(preemption)
        self.victims: list[Preemptible] = []
        self._gone: set[str] = set()
        self._off: dict[int, list[Task]] = {}  # row -> victims there
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
                    # What could be reclaimed was taken elsewhere meanwhile: perhaps other pods here may be preempted.
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
        """Take an offer, if all its victims still run and may be reclaimed besides those taken before, in whichever order."""
        planned = self.planned.copy()
        victims = list(planned.admitted(each for each in offer.victims if each[1].tasks[0].pod.uid not in self._gone))
        if len(victims) < len(offer.victims):
            return False
        self.planned = planned
        self.victims += victims
        for _, victim in victims:
            for task in victim.tasks:
                self._gone.add(task.pod.uid)
                self._off.setdefault(task.row, []).append(task)
        return True

    def _offer(self, row: int, task: Task) -> _Offer | None:
        """The victims for one more member on a row, as of now."""
        state, preemptible = self.state, self._preemptible(row)
        mark = state.log.mark()
        Removal(state).take(self._off.get(row, ()))
        for member in self._on.get(row, ()):
            state.placement.place(member, row)
        free = state.placement.takes(task, row)
        chosen = [] if free else least_on(state, task, row, preemptible)
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

    def _preemptible(self, row: int) -> list[Preemptible]:
        """Victims on a row that may be preempted besides those taken before, in the order in which they are tried."""
        planned = self.planned.copy()
        here = (each for each in self.there[row] if each[1].tasks[0].pod.uid not in self._gone)
        preemptible = list(planned.admitted(here))
        return sorted(preemptible, key=_devices) if self.sparing else preemptible


def _devices(victim: Preemptible) -> int:
    return sum(task.shape.device_milli for task in victim[1].tasks)

"""Nodes that other ComputeDomains have, cleared for a gang of one: the fewest pods, as whole gangs.

A node is in one domain at a time, so it is of use only once all pods of other domains have left it, and these run on other nodes,
too. The list of the cheapest victims (`search`) does not see that: it takes gangs that share no node. Here sets of victims are
tried by how many pods they are, the fewest first; before that those of lower priority, as everywhere. Most are ruled out by what
nodes could hold without them, which is counted once for each node and what leaves it. Where none is found within the bounds,
victims are sought as for other gangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.model.causes import Cause
from fairlead.core.pods import amounts
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.ascending import ascending
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of

_LISTED = 20_000  # so many sets at most are counted
_TRIED = 48  # so many of them are tried on the state


def joins_domain(unit: Unit) -> str:
    """UID of the ComputeDomain that a unit's pods join; empty: none."""
    return next((near.domain for task in unit.tasks if (near := task.shape.spec.near) is not None and near.domain), "")


def level_of(victim: Preemptible) -> tuple[int, int]:
    """(reason, top priority): victims of a lower level go before all of a higher one."""
    return victim[0], max(task.pod.priority for task in victim[1].tasks)


def price_of(victims: Sequence[Task], why: Cause | None) -> tuple[int, ...]:
    """What plans in several domains of the network are compared by: their level, if `why` is given, pods, devices."""
    level = () if why is None else (max(why.reasons), max(task.pod.priority for task in victims))
    return *level, len(victims), sum(task.shape.counted_milli for task in victims)


def fewest(preemption: PreemptionPolicy, core: Unit, rows: dict[int, Mask], fits: Callable[[], bool]) -> list[Preemptible] | None:
    """The fewest victims of the lowest level without which a gang of a ComputeDomain fits; None: none are found.

    rows: by shape number, those that a member may have, whatever is evicted there. The state is left as it was.
    """
    domain = joins_domain(core)
    on = np.flatnonzero(np.logical_or.reduce(list(rows.values()))).tolist()
    there = victims_of(preemption.state).there(preemption)
    found = {id(each[1]): each for row in on for each in there[row]}
    victims = sorted(found.values(), key=lambda each: (len(each[1].tasks), _held(each), each[1].order))
    capacity = _Capacity(preemption, core, domain, on, rows)
    listed = tried = 0
    for level in sorted({level_of(each) for each in victims}):
        allowed = [each for each in victims if level_of(each) <= level]
        if not capacity.suffices([task for _, victim in allowed for task in victim.tasks]):
            continue
        for indices in ascending([(len(each[1].tasks), _held(each)) for each in allowed]):
            chosen = [allowed[at] for at in indices]
            listed += 1
            if listed > _LISTED or tried >= _TRIED:
                return None
            if all(level_of(each) < level for each in chosen):
                continue  # tried by then
            if not capacity.suffices([task for _, victim in chosen for task in victim.tasks]):
                continue
            if len(list(PlannedVictims(preemption).admitted(chosen))) < len(chosen):
                continue
            tried += 1
            if _fits_without(preemption, chosen, fits):
                return chosen
    return None


def _held(victim: Preemptible) -> int:
    return sum(task.shape.counted_milli for task in victim[1].tasks)


def _fits_without(preemption: PreemptionPolicy, chosen: Sequence[Preemptible], fits: Callable[[], bool]) -> bool:
    state = preemption.state
    mark = state.log.mark()
    removal = Removal(state)
    for _, victim in chosen:
        removal.take(victim.tasks)
    found = fits()
    state.log.rollback(mark)
    return found


class _Capacity:
    """How many members the rows could hold by amounts, counted once for each row and what leaves it."""

    def __init__(self, preemption: PreemptionPolicy, core: Unit, domain: str, on: Sequence[int], rows: dict[int, Mask]) -> None:
        self._nodes = preemption.state.nodes
        self._wanted: dict[int, list[Task]] = {}
        for task in core.tasks:
            self._wanted.setdefault(task.shape.number, []).append(task)
        self._on, self._rows = on, rows
        self._others = {row: frozenset(self._of_others(row, domain)) for row in on}
        self._known: dict[tuple[int, int, frozenset[str]], int] = {}

    def _of_others(self, row: int, domain: str) -> Iterator[str]:
        for task in self._nodes.pods[row].values():
            near = task.shape.spec.near
            if near is not None and near.domain not in ("", domain) and not task.pod.terminating:
                yield task.pod.uid

    def suffices(self, gone: Sequence[Task]) -> bool:
        """Whether there could be places for all members without these, kind by kind."""
        off: dict[int, dict[str, Task]] = {}
        for task in gone:
            off.setdefault(task.row, {})[task.pod.uid] = task
        return all(self._held(number, tasks, off) >= len(tasks) for number, tasks in self._wanted.items())

    def _held(self, number: int, tasks: list[Task], off: dict[int, dict[str, Task]]) -> int:
        held = 0
        for row in self._on:
            if self._rows[number][row]:
                held += self._on_row(number, tasks, row, off.get(row, {}))
        return held

    def _on_row(self, number: int, tasks: list[Task], row: int, off: dict[str, Task]) -> int:
        if not self._others[row] <= off.keys():
            return 0
        key = number, row, frozenset(off)
        known = self._known.get(key)
        if known is None:
            freed = amounts.by_column(off.values())
            known = self._known[key] = amounts.places(self._nodes, row, tasks[0].shape.demand, freed, len(tasks))
        return known

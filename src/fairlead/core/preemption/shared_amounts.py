"""Amounts that pools share, in searches for victims: which pools are short of them, who takes some, and whether it is enough.

Cheap tests, asked before something is tried under the undo log. Where a unit would fit but for what pools share, only those
who take some of it are victims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import NamedTuple

import numpy as np

from fairlead.core import allocation
from fairlead.core.nodes.shared_resources import Key, SharedResources, wanted_by
from fairlead.core.pods.tasks import Task, Unit
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.removal import Removal
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.state.cluster import ClusterState

_FEW = 4
"""So many nodes of a pool that is short of what its nodes share are tried for a pod."""


class Short:
    """The pools that have too little left for some tasks, as things stand."""

    def __init__(self, state: ClusterState, tasks: Sequence[Task]) -> None:
        self._state, self._tasks, self._shared = state, tasks, state.nodes.shared
        self._wanted = wanted_by(task.shape.spec.shared for task in tasks)
        self._keys = self._shared.short(self._wanted) if self._wanted else set()
        self._near: dict[str, list[int]] = {}
        self._sharing: list[_Sharer] | None = None

    def rows(self) -> set[int]:
        """Where pods take of what is short."""
        return {
            row
            for pool, name in self._keys
            for row in np.flatnonzero(self._shared.mask(pool)).tolist()
            if self._shared.taken_on(row, name)
        }

    def takes(self, victim: Preemptible) -> set[Key]:
        """The pools that are short of something that a victim takes, with its name."""
        if not self._keys:
            return set()
        parts = (self._shared.parts(task.shape.spec.shared, task.row) for task in victim[1].tasks if task.row >= 0)
        return {key for each in parts for key, _ in each} & self._keys

    def helped(self, victim: Preemptible) -> set[int]:
        """The rows where it could help that a victim leaves."""
        rows = {task.row for task in victim[1].tasks}
        if self._keys:
            rows = set(filter(self.is_worth, rows))
            for pool, _ in self.takes(victim):
                rows.update(self._best(pool))
        return rows

    def is_worth(self, row: int) -> bool:
        """Whether a row is to be tried: not where its pool is short, and has others that would do but for that."""
        pools = {key[0] for name in self._wanted for key in self._shared.keys(row, name) if key in self._keys}
        return all(not (best := self._best(pool)) or row in best for pool in pools)

    def _best(self, pool: str) -> list[int]:
        """A few rows of a pool that fit the first task but for what pools share, the best first."""
        found = self._near.get(pool)
        if found is None:
            keys = np.where(self._shared.mask(pool), self._tasks[0].ranking.scores_alone(), -1)
            best = np.argsort(-keys, kind="stable")[:_FEW].tolist()
            found = self._near[pool] = [row for row in best if keys.item(row) >= 0]
        return found

    def beside(self, preemption: PreemptionPolicy, row: int, own: Sequence[Preemptible]) -> Iterator[Preemptible]:
        """Victims on a row, and as many of those elsewhere as make up for what one task lacks there. own: the former.

        Both cheapest first.
        """
        parts = self._shared.parts(self._tasks[0].shape.spec.shared, row)
        lacking = {key: missing for key, amount in parts if (missing := amount - self._shared.free(key)) > 0}
        there = {id(each[1]) for each in own}
        others = (each for each in (self._sharers(preemption) if lacking else ()) if id(each.victim[1]) not in there)
        for each in merge((_Sharer.of(self._shared, each) for each in own), others, key=lambda one: one.order):
            helps = any(lacking.get(key, 0) > 0 for key in each.freed)
            if helps:
                for key in lacking:
                    lacking[key] -= each.freed.get(key, 0)
            if helps or id(each.victim[1]) in there:
                yield each.victim
                there.discard(id(each.victim[1]))
            if not there and all(missing <= 0 for missing in lacking.values()):
                return

    def _sharers(self, preemption: PreemptionPolicy) -> list[_Sharer]:
        """Victims anywhere that take of what is short."""
        if self._sharing is None:
            found: dict[int, Preemptible] = {}
            for row in sorted(self.rows()):
                found |= {
                    id(each[1]): each for each in victims_of(self._state).preemptible_on(preemption, row) if self.takes(each)
                }
            self._sharing = sorted((_Sharer.of(self._shared, each) for each in found.values()), key=lambda each: each.order)
        return self._sharing


class _Sharer(NamedTuple):
    """A victim, and what is free of what pools share once it is gone."""

    order: tuple[object, ...]
    victim: Preemptible
    freed: Mapping[Key, int]

    @classmethod
    def of(cls, shared: SharedResources, victim: Preemptible) -> _Sharer:
        """A victim as things stand."""
        freed: dict[Key, int] = {}
        for task in victim[1].tasks:
            for key, amount in shared.parts(task.shape.spec.shared, task.row):
                freed[key] = freed.get(key, 0) + amount
        return cls(cheapest_first(victim), victim, freed)


def cheapest_first(each: Preemptible) -> tuple[object, ...]:
    """In which order victims for a pod are tried."""
    return not each[1].spare, each[0], each[1].order


class Together:
    """What the needed members of a unit take of what pools share, by sums over all pools: too little there is too little."""

    def __init__(self, state: ClusterState, core: Unit) -> None:
        self._state, self._core, self._shared = state, core, state.nodes.shared
        self._wanted = wanted_by(task.shape.spec.shared for task in core.tasks)
        self._freed: Counter[Key] = Counter()

    def covered_with(self, tasks: Iterable[Task]) -> bool:
        """Whether it is enough if these left as well as those that were asked about before."""
        for task in tasks if self._wanted else ():
            self._freed.update(dict(self._shared.parts(task.shape.spec.shared, task.row)))
        return not self._wanted or self._suffices(self._freed)

    def may_return(self, removal: Removal) -> Callable[[Sequence[Task]], bool]:
        """Whether it may be enough with some removed tasks back where they were."""

        def found(tasks: Sequence[Task]) -> bool:
            if not self._wanted:
                return True
            back: Counter[Key] = Counter()
            for task in tasks:
                back.subtract(dict(self._shared.parts(task.shape.spec.shared, removal.places[task.pod.uid][0])))
            return not back or self._suffices(back)

        return found

    def _suffices(self, more: Counter[Key]) -> bool:
        shared = self._shared
        return all(
            sum(max(0, shared.free((pool, name)) + more[pool, name]) for pool in shared.pools_with(name)) >= amount
            for name, amount in self._wanted.items()
        )

    def only(self) -> Callable[[Preemptible], bool] | None:
        """Which victims help a unit that would fit but for what pools share; None: any may."""
        if not self._wanted or allocation.fits(self._state, self._core):
            return None
        with self._shared.ignored():
            fits = allocation.fits(self._state, self._core)
        short = Short(self._state, self._core.tasks)
        return (lambda victim: bool(short.takes(victim))) if fits else None

"""Victims on other nodes: pods that have what several nodes could use, where a task needs some of it.

A device of the network is held by a pod wherever that runs. To evict that pod helps on every node from where the device can be
used, so for these rows such pods are victims like those on the row itself, by the same rules and in the same order. So it is with
what the nodes of a pool share, where the pool has too little left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fairlead.core.nodes.claim_users import holders, pools_of
from fairlead.core.nodes.shared_resources import wanted_by
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.state.cluster import ClusterState

_FEW = 4
"""So many nodes of a pool that is short of what its nodes share are tried, besides those of victims."""


class Elsewhere:
    """Who holds shared devices, or takes of what is short in a pool. rows: where these pods are."""

    def __init__(self, state: ClusterState, tasks: Sequence[Task]) -> None:
        self._state, self._tasks = state, tasks
        self._holders: dict[str, Task] = {}
        self._pools: frozenset[tuple[str, str]] = frozenset()
        if any(task.shape.spec.devices for task in tasks):
            self._pools = frozenset(state.device_claims.devices.slices.shared())
            held = {uid: state.tasks[uid] for uid in holders(state.device_claims, self._pools) if uid in state.tasks}
            self._holders = {uid: task for uid, task in held.items() if task.row >= 0}
        self.rows = {task.row for task in self._holders.values()}
        self._helped: dict[tuple[str, str], list[int]] = {}
        shared = state.nodes.shared
        self._short = shared.short(wanted_by(task.shape.spec.shared for task in tasks))
        self._near: dict[str, list[int]] = {}  # pool that is short -> its few rows that would do besides
        for pool, name in sorted(self._short):
            self.rows.update(row for row in np.flatnonzero(shared.mask(pool)).tolist() if shared.taken_on(row, name))

    def __bool__(self) -> bool:
        return bool(self.rows)

    def helped(self, victim: Preemptible) -> set[int]:
        """The rows where it could help that a victim leaves: its own, and those from where devices that it has can be used.

        Of a pool that is short of what it takes there are a few more: the best that would do but for that.
        """
        rows = {task.row for task in victim[1].tasks}
        for task in victim[1].tasks:
            if task.pod.uid in self._holders:
                for pool in pools_of(self._state.device_claims, task.pod) & self._pools:
                    if pool not in self._helped:
                        self._helped[pool] = self._state.device_claims.devices.rows_of(pool)
                    rows.update(self._helped[pool])
            for key in self._takes(task):
                rows.update(self._would_do(key[0]))
        return rows

    def _takes(self, task: Task) -> set[tuple[str, str]]:
        """The pools that are short of something that a task takes, with its name."""
        if not self._short or task.row < 0:
            return set()
        shared = self._state.nodes.shared
        return {key for key, _ in shared.parts(task.shape.spec.shared, task.row)} & self._short

    def _would_do(self, pool: str) -> list[int]:
        """A few rows of a pool that fit the first task but for what the pool is short of, the best first."""
        found = self._near.get(pool)
        if found is None:
            ranking, count = self._tasks[0].ranking, self._state.nodes.count
            keys = np.where(ranking.alone() & self._state.nodes.shared.mask(pool)[:count], ranking.scores_alone(), -1)
            best = np.argsort(-keys, kind="stable")[:_FEW].tolist()
            found = self._near[pool] = [row for row in best if keys.item(row) >= 0]
        return found

    def near(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """Victims on a row, and those elsewhere that hold what could be used there, each by itself, cheapest first."""
        table, shared = victims_of(self._state), self._state.nodes.shared
        found = {id(each[1]): each for each in table.preemptible_on(preemption, row)}
        here = {key for _, name in self._short for key in shared.keys(row, name)} & self._short  # what the row has a part in
        for each in self.holding(preemption, (other for other in self.rows if other != row)):
            tasks = each[1].tasks
            if any(task.pod.uid in self._holders or not here.isdisjoint(self._takes(task)) for task in tasks):
                found[id(each[1])] = each
        return sorted(found.values(), key=lambda each: (not each[1].spare, each[0], each[1].order))

    def together(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """The same, as far as they may be preempted together."""
        return list(PlannedVictims(preemption).admitted(self.near(preemption, row)))

    def holding(self, preemption: PreemptionPolicy, rows: Iterable[int]) -> Iterator[Preemptible]:
        """Victims on some rows that hold shared devices, or take of what is short."""
        for row in sorted(rows):
            for each in victims_of(self._state).preemptible_on(preemption, row):
                if any(task.pod.uid in self._holders or self._takes(task) for task in each[1].tasks):
                    yield each


def elsewhere(state: ClusterState, tasks: Sequence[Task]) -> Elsewhere | None:
    """Who holds what tasks may need and could have on other nodes; None: nothing of that kind is held."""
    if not any(task.shape.spec.devices or task.shape.spec.shared for task in tasks):
        return None
    found = Elsewhere(state, tasks)
    return found or None

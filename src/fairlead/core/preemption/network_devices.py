"""Victims on other nodes: pods that have what several nodes could use, where a task needs some of it.

A device of the network is held by a pod wherever that runs. To evict that pod helps on every node from where the device can be
used, so for these rows such pods are victims like those on the row itself, by the same rules and in the same order. So it is with
what the nodes of a pool share, where the pool has too little left (`shared_amounts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairlead.core.nodes.claim_users import holders, pools_of
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.shared_amounts import Short, cheapest_first
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.state.cluster import ClusterState


class Elsewhere:
    """Who holds shared devices, or takes of what is short in a pool. rows: where these pods are."""

    def __init__(self, state: ClusterState, tasks: Sequence[Task]) -> None:
        self._state = state
        self._holders: dict[str, Task] = {}
        self._pools: frozenset[tuple[str, str]] = frozenset()
        if any(task.shape.spec.devices for task in tasks):
            self._pools = frozenset(state.device_claims.devices.slices.shared())
            held = {uid: state.tasks[uid] for uid in holders(state.device_claims, self._pools) if uid in state.tasks}
            self._holders = {uid: task for uid, task in held.items() if task.row >= 0}
        self._holding = {task.row for task in self._holders.values()}
        self._helped: dict[tuple[str, str], list[int]] = {}
        self._short = Short(state, tasks)
        self.rows = self._holding | self._short.rows()

    def __bool__(self) -> bool:
        return bool(self.rows)

    def helped(self, victim: Preemptible) -> set[int]:
        """The rows where it could help that a victim leaves: its own, and those from where devices that it has can be used.

        Of a pool that is short of what it takes these are the few best that would do but for that, if there are any.
        """
        rows = self._short.helped(victim)
        for task in victim[1].tasks if self._holders else ():
            if task.pod.uid in self._holders:
                for pool in pools_of(self._state.device_claims, task.pod) & self._pools:
                    if pool not in self._helped:
                        self._helped[pool] = self._state.device_claims.devices.rows_of(pool)
                    rows.update(self._helped[pool])
        return rows

    def worth(self, rows: Iterable[int]) -> list[int]:
        """Those of some rows that are to be tried: of a pool that is short of something only its best, as in `helped`."""
        return [row for row in rows if self._short.is_worth(row)]

    def together(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """Victims on a row, and those elsewhere that hold what could be used there, as far as they may be preempted together.

        Cheapest first. Of those that take of what is short in its pools there are no more than make up for that.
        """
        table, planned = victims_of(self._state), PlannedVictims(preemption)
        found = {id(each[1]): each for each in table.preemptible_on(preemption, row)}
        found |= {id(each[1]): each for each in self._with_devices(preemption, (one for one in self._holding if one != row))}
        return list(planned.admitted(self._short.beside(preemption, row, sorted(found.values(), key=cheapest_first))))

    def holding(self, preemption: PreemptionPolicy, rows: Iterable[int]) -> Iterator[Preemptible]:
        """Victims on some rows that hold shared devices, or take of what is short."""
        for row in sorted(rows):
            for each in victims_of(self._state).preemptible_on(preemption, row):
                if self._short.takes(each) or any(task.pod.uid in self._holders for task in each[1].tasks):
                    yield each

    def _with_devices(self, preemption: PreemptionPolicy, rows: Iterable[int]) -> Iterator[Preemptible]:
        for row in sorted(rows):
            for each in victims_of(self._state).preemptible_on(preemption, row):
                if any(task.pod.uid in self._holders for task in each[1].tasks):
                    yield each


def elsewhere(state: ClusterState, tasks: Sequence[Task]) -> Elsewhere | None:
    """Who holds what tasks may need and could have on other nodes; None: nothing of that kind is held."""
    if not any(task.shape.spec.devices or task.shape.spec.shared for task in tasks):
        return None
    found = Elsewhere(state, tasks)
    return found or None

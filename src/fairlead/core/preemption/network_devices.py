"""Victims on other nodes: pods that have devices which several nodes could use, where a task needs one of these.

A device of the network is held by a pod wherever that runs. To evict that pod helps on every node from where the device can be
used, so for these rows such pods are victims like those on the row itself, by the same rules and in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairlead.core.nodes.claim_users import holders, pools_of
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.planned_victims import PlannedVictims
from fairlead.core.preemption.policy import PreemptionPolicy
from fairlead.core.preemption.victim import Preemptible
from fairlead.core.preemption.victims import victims_of
from fairlead.core.state.cluster import ClusterState


class Elsewhere:
    """Who holds shared devices. rows: where these pods are."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._pools = state.device_claims.devices.slices.shared()
        self._holders = {uid: state.tasks[uid] for uid in holders(state.device_claims, self._pools) if uid in state.tasks}
        self._holders = {uid: task for uid, task in self._holders.items() if task.row >= 0}
        self.rows = {task.row for task in self._holders.values()}
        self._helped: dict[tuple[str, str], list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._holders)

    def helped(self, victim: Preemptible) -> set[int]:
        """The rows where it could help that a victim leaves: its own, and those from where devices that it has can be used."""
        rows = {task.row for task in victim[1].tasks}
        for task in victim[1].tasks:
            if task.pod.uid in self._holders:
                for pool in pools_of(self._state.device_claims, task.pod) & self._pools:
                    if pool not in self._helped:
                        self._helped[pool] = self._state.device_claims.devices.rows_of(pool)
                    rows.update(self._helped[pool])
        return rows

    def near(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """Victims on a row, and those elsewhere that hold shared devices, each by itself, cheapest first."""
        table = victims_of(self._state)
        found = {id(each[1]): each for each in table.preemptible_on(preemption, row)}
        found |= {id(each[1]): each for each in self.holding(preemption, (other for other in self.rows if other != row))}
        return sorted(found.values(), key=lambda each: (not each[1].spare, each[0], each[1].order))

    def together(self, preemption: PreemptionPolicy, row: int) -> list[Preemptible]:
        """The same, as far as they may be preempted together."""
        return list(PlannedVictims(preemption).admitted(self.near(preemption, row)))

    def holding(self, preemption: PreemptionPolicy, rows: Iterable[int]) -> Iterator[Preemptible]:
        """Victims on some rows that hold shared devices."""
        for row in sorted(rows):
            for each in victims_of(self._state).preemptible_on(preemption, row):
                if any(task.pod.uid in self._holders for task in each[1].tasks):
                    yield each


def elsewhere(state: ClusterState, tasks: Sequence[Task]) -> Elsewhere | None:
    """Who holds shared devices that tasks may need; None: nothing of that kind is held."""
    if not any(task.shape.spec.devices for task in tasks):
        return None
    found = Elsewhere(state)
    return found or None

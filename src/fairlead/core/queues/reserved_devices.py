"""Devices that a hold keeps for its unit: what is spoken for when the hold begins, of the pools from which the unit gets some.

At its start some of what runs now has ended, and the unit has its devices. What is allocated now and goes on after that start
must fit twice with the same devices: beside what is held now, and beside what is held then. So it is allocated in a state of the
node that has less than both: a device is free where it is free both times, of counters and capacities the lesser rest is free.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from fairlead.core.dra import refusals
from fairlead.core.dra.model import Allocation
from fairlead.core.model.arrays import Mask
from fairlead.core.model.undo import UndoLog
from fairlead.core.nodes.device_claims import DeviceClaims, key_of
from fairlead.core.nodes.table import NodeTable
from fairlead.core.pods.filters.base import Refusal
from fairlead.core.pods.filters.dynamic_resources import DynamicResources
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Task

if TYPE_CHECKING:
    from fairlead.core.dra.held import NodeState
    from fairlead.core.dra.pools import PoolId

_Verdict = tuple[tuple[int, int, int, int], bool]


class ReservedDevices:
    """Made in a trial, in which what ends before has left its place and the unit has its own. Raises nothing.

    version: changes with what others took of the rest.
    """

    def __init__(self, nodes: NodeTable, claims: DeviceClaims, placed: Iterable[Task], log: UndoLog) -> None:
        self._nodes, self._claims, self._log = nodes, claims, log
        keys = {(task.row, key_of(task.pod.uid, use)) for task in placed for use in task.pod.claims}
        allocations = [(row, each) for row, key in sorted(keys) if (each := claims.allocation_of(key)) is not None]
        self._wanted = {(row, each.device) for row, allocation in allocations for each in allocation.devices if not each.admin}
        self.pools: set[PoolId] = {(device.driver, device.pool) for _, device in self._wanted}
        held = claims.by_pool.of(self.pools)
        self._spoken_for = dict.fromkeys(held)  # claims that hold devices then
        self._later = claims.devices.hold(held.values())
        self.version = 0
        self._verdicts: dict[tuple[int, int], _Verdict] = {}  # (shape, row) -> when it was found out, and whether it is closed

    def rows(self) -> list[int]:
        """The rows from where the pools can be used."""
        return sorted({row for pool in self.pools for row in self._claims.devices.rows_of(pool)})

    def state_on(self, row: int) -> NodeState | None:
        """What of a node's devices is free now and when the hold begins; None: there is no node."""
        now = self._claims.devices.state_of(row)
        return None if now is None else now.less(self._later.on(now.inventory))

    def closed(self, ranking: Ranking) -> Mask:
        """For each row whether pods of a shape find no devices there beside what is kept, shape (rows,)."""
        closed: Mask = np.zeros(self._nodes.count, np.bool_)
        relation = DynamicResources.of(ranking.relations)
        if relation is None:
            return closed
        devices = self._claims.devices
        for row in self.rows():
            seen = devices.column.item(row), devices.everywhere, self.version, self._claims.version
            key = ranking.shape.number, row
            known = self._verdicts.get(key)
            if known is None or known[0] != seen:
                known = self._verdicts[key] = seen, self._refuses(relation, row)
            closed[row] = known[1]
        return closed

    def _refuses(self, relation: DynamicResources, row: int) -> bool:
        """A claim that has devices now, and not then, would keep them from the unit."""
        claims = self._claims
        for need in relation.spec.devices:
            allocation = claims.allocation_of(need.claim) if need.claim and need.claim not in self._spoken_for else None
            if allocation is not None and any(
                (each.device.driver, each.device.pool) in self.pools for each in allocation.devices
            ):
                return True
        return isinstance(relation.decide(row, self.state_on(row)), Refusal | refusals.Refusal)

    def all_closed(self) -> Mask:
        """The rows from where the pools can be used, as a mask: closed to what is not asked about one by one."""
        closed: Mask = np.zeros(self._nodes.count, np.bool_)
        closed[self.rows()] = True
        return closed

    def take(self, task: Task) -> None:
        """Another pod has its place, and goes on when the hold begins: what its claims have is spoken for then, too."""
        for key in {key_of(task.pod.uid, use) for use in task.pod.claims}:
            allocation = self._claims.allocation_of(key)
            if allocation is None or key in self._spoken_for:
                continue
            self._log.insert(self._spoken_for, key, None)
            self._later.take([allocation], self._claims.devices.known)
            self._log.call(self._release, allocation)
            self._log.renew(self)

    def _release(self, allocation: Allocation) -> None:
        self._later.release([allocation])

    def missing(self) -> int:
        """How many of the unit's devices cannot be had now, in thousandths of all of them."""
        if not self._wanted:
            return 0
        lacking = 0
        for row, device in self._wanted:
            state = self._claims.devices.state_of(row)
            at = state.inventory.position.get(device) if state is not None else None
            if state is None or at is None:
                lacking += 1
            else:
                taken = state.alone | state.unservable
                lacking += taken >> at & 1
        return 1000 * lacking // len(self._wanted)

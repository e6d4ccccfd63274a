"""Sets of pods that move so that a task with ResourceClaims fits a row: tried on the state, since only that knows devices.

A pod elsewhere is one of them where it has devices that the row could use, too (devices of the network). What shares counters
(the partitions of a GPU) is freed only if all of it moves, so sets that touch fewest GPUs are tried first: one GPU is emptied,
and not several by halves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from fairlead.core.dra.model import DeviceId
from fairlead.core.nodes.claim_users import holders
from fairlead.core.nodes.device_claims import key_of
from fairlead.core.pods import amounts
from fairlead.core.pods.tasks import Task
from fairlead.core.preemption.movers import Block
from fairlead.core.preemption.removal import Removal
from fairlead.core.state.cluster import ClusterState

_TRIED = 48  # so many sets at most are tried on one row
_LISTED = 600  # of one size, before they are ordered


class ClaimSets:
    """Sets of blocks without which a task with claims fits a row, by size; none that contains a smaller one."""

    def __init__(self, state: ClusterState, task: Task, row: int, blocks: Sequence[Block]) -> None:
        self._state, self._task, self._row = state, task, row
        self._blocks = [block for block in blocks if block.tasks[0].row >= 0]
        self._cells = [_cells_of(state, block) for block in self._blocks]
        self._needed = dict(task.shape.demand)
        self._found: list[tuple[Block, ...]] = []
        self._counts = [0]
        self._tried = 0
        self._over = not self._blocks or not self._helps(range(len(self._blocks)))

    def up_to(self, most: int) -> list[tuple[Block, ...]]:
        """Those of so many blocks at most, smallest first."""
        counts = self._counts
        while len(counts) <= most and not self._over:
            self._try(len(counts))
            counts.append(len(self._found))
            self._over = self._tried >= _TRIED or bool(self._found) or len(counts) > len(self._blocks)
        return self._found[: counts[min(most, len(counts) - 1)]]

    def _try(self, size: int) -> None:
        listed = list(islice(combinations(range(len(self._blocks)), size), _LISTED))
        for chosen in sorted(listed, key=self._order):
            if self._tried >= _TRIED:
                return
            if self._may_do(chosen):
                self._tried += 1
                if self._helps(chosen):
                    self._found.append(tuple(self._blocks[at] for at in chosen))

    def _order(self, chosen: tuple[int, ...]) -> tuple[float, ...]:
        cells = set().union(*(self._cells[at] for at in chosen))
        return len(cells), sum(self._blocks[at].lost for at in chosen), *chosen

    def _may_do(self, chosen: Sequence[int]) -> bool:
        """Whether amounts suffice without these: a cheap test."""
        gone = amounts.by_column(task for at in chosen for task in self._blocks[at].tasks if task.row == self._row)
        return amounts.fits(self._state.nodes, self._row, self._task.shape.demand, gone)

    def _helps(self, chosen: Sequence[int]) -> bool:
        """Whether the task fits without these."""
        if not self._may_do(chosen):
            return False
        state, mark = self._state, self._state.log.mark()
        removal = Removal(state)
        for at in chosen:
            removal.take(self._blocks[at].tasks)
        fits = self._task.ranking.fits_row(self._row)
        state.log.rollback(mark)
        return fits


def _cells_of(state: ClusterState, block: Block) -> set[tuple[object, ...]]:
    """The GPUs of which a block has something: devices by themselves, or the counters that they share with others."""
    claims = state.device_claims
    found: set[tuple[object, ...]] = set()
    for task in block.tasks:
        for use in task.pod.claims:
            allocation = claims.allocation_of(key_of(task.pod.uid, use))
            for each in allocation.devices if allocation is not None else ():
                found.update(_cells_of_device(state, each.device))
    return found


def _cells_of_device(state: ClusterState, device_id: DeviceId) -> Iterator[tuple[object, ...]]:
    device = state.device_claims.devices.known.get(device_id)
    if device is None or not device.counters:
        yield device_id.driver, device_id.pool, device_id.device, ""
    for name, _ in device.counters if device is not None else ():
        yield device_id.driver, device_id.pool, "", name


def holders_elsewhere(state: ClusterState, task: Task, row: int) -> dict[int, list[Task]]:
    """Pods on other rows that have devices which the node of a row could use: row -> pods. Only where a task has claims."""
    devices = state.device_claims.devices
    node = devices.state_of(row) if task.shape.spec.devices else None
    if node is None:
        return {}
    found: dict[int, list[Task]] = {}
    for uid in holders(state.device_claims, (pool for pool in node.inventory.pools if devices.slices.is_shared(pool))):
        other = state.tasks.get(uid)
        if other is not None and other.row >= 0 and other.row != row:
            found.setdefault(other.row, []).append(other)
    return found

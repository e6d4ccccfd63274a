"""Claims by the pools of which they hold devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlead.core.dra.model import Allocation
from fairlead.core.model.undo import UndoLog

if TYPE_CHECKING:
    from fairlead.core.dra.pools import PoolId


class ClaimsByPool:
    """What claims are counted as holding, by pool, under the undo log."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self._pools: dict[PoolId, dict[str, Allocation]] = {}

    def put(self, key: str, allocation: Allocation) -> None:
        """A claim holds devices."""
        for pool in pools_in(allocation):
            self._log.insert(self._pools.setdefault(pool, {}), key, allocation)

    def drop(self, key: str, allocation: Allocation) -> None:
        """It holds them no longer."""
        for pool in pools_in(allocation):
            self._log.remove(self._pools[pool], key)

    def clear(self) -> None:
        """Nothing is held."""
        self._pools = {}

    def of(self, pools: Iterable[PoolId]) -> dict[str, Allocation]:
        """The claims that hold devices of some pools: what leaves holds what nothing else takes."""
        return {key: each for pool in sorted(pools) for key, each in self._pools.get(pool, {}).items()}

    def problems(self, counted: dict[str, Allocation]) -> list[str]:
        """What does not follow from the claims that are counted."""
        right: dict[PoolId, set[str]] = {}
        for key, each in counted.items():
            for pool in pools_in(each):
                right.setdefault(pool, set()).add(key)
        listed = {pool: set(keys) for pool, keys in self._pools.items() if keys}
        return [f"claims by pool are {right}, and listed are {listed}"] if listed != right else []


def pools_in(allocation: Allocation) -> set[PoolId]:
    """The pools of which an allocation has devices."""
    return {(each.device.driver, each.device.pool) for each in allocation.devices}

"""Device states of nodes, interned: a node's devices are one integer.

A state is the tuple of free milli-units of each device, in device order. Nodes of one make pass
through the same states again and again, so what a request does to a state (does it fit, which
devices it takes, what is left) is computed once and remembered. Undo is one integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fairlead.core.model.arrays import Ints
from fairlead.core.model.units import WHOLE

_FEW = 2048
"""So many states are remembered at least."""
UNKNOWN = -2
INFEASIBLE = -1

Chooser = Callable[[tuple[int, ...], int], tuple[int, int]]
"""(free milli per device, milli wanted) -> (device index, cost); the device must fit."""


class DeviceStates:
    """The device states met so far. Id 0 is the node without devices."""

    def __init__(self) -> None:
        self._limit = _FEW
        self._forget()

    def _forget(self) -> None:
        self.states: list[tuple[int, ...]] = []
        self._ids: dict[tuple[int, ...], int] = {}
        self._shifts: dict[tuple[int, tuple[int, ...], int], int] = {}
        self.total: Ints = np.zeros(64, np.int64)
        self.whole: npt.NDArray[np.int32] = np.zeros(64, np.int32)  # of each state, the one with all of its devices free
        self.intern(())

    def __len__(self) -> int:
        return len(self.states)

    @property
    def crowded(self) -> bool:
        """Whether so many states are remembered that those that no node has any more had better be forgotten."""
        return len(self.states) > self._limit

    def keep(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Forget all states but these. Returns their new ids; shape as `ids`, one dimension.

        Whatever is remembered by an old id is void. Amortized: the next time comes when there are four times as many.
        """
        kept, where = np.unique(ids, return_inverse=True)
        states = [self.states[state_id] for state_id in kept.tolist()]
        self._forget()
        renumbered = np.array([self.intern(state) for state in states], np.int32)
        self._limit = max(_FEW, 4 * len(self.states))
        return renumbered[where]

    def intern(self, state: tuple[int, ...]) -> int:
        """The id of a state."""
        known = self._ids.get(state)
        if known is not None:
            return known
        number = len(self.states)
        self._ids[state] = number
        self.states.append(state)
        if number >= len(self.total):
            self.total = np.concatenate([self.total, np.zeros_like(self.total)])
            self.whole = np.concatenate([self.whole, np.zeros_like(self.whole)])
        self.total[number] = sum(state)
        self.whole[number] = number
        self.whole[number] = self.intern((WHOLE,) * len(state))
        return number

    def take(self, state_id: int, devices: tuple[int, ...], milli: int) -> int:
        """The state after `milli` is taken of each named device; may go below zero."""
        return self._shift(state_id, devices, -milli)

    def give(self, state_id: int, devices: tuple[int, ...], milli: int) -> int:
        """The state after `milli` comes back to each named device."""
        return self._shift(state_id, devices, milli)

    def _shift(self, state_id: int, devices: tuple[int, ...], delta: int) -> int:
        key = (state_id, devices, delta)
        known = self._shifts.get(key)
        if known is None:
            known = self._shifts[key] = self._shifted(state_id, devices, delta)
        return known

    def _shifted(self, state_id: int, devices: tuple[int, ...], delta: int) -> int:
        free = list(self.states[state_id])
        for device in devices:
            if device < len(free):
                free[device] += delta
        return self.intern(tuple(free))


Table = TypeVar("Table", npt.NDArray[np.int32], npt.NDArray[np.int64])


def _grown(table: Table, size: int) -> Table:
    """A table by state id of at least so many states; what is not known yet is `UNKNOWN`."""
    if len(table) >= size:
        return table
    grown = np.full(2 * size, UNKNOWN, table.dtype)
    grown[: len(table)] = table
    return grown


class DeviceFit:
    """What one kind of device request does to every state, remembered.

    cost[state]: `UNKNOWN`, `INFEASIBLE`, or what taking it costs by the chooser (>= 0).
    """

    def __init__(self, states: DeviceStates, gpus: int, milli: int, chooser: Chooser | None) -> None:
        self.states = states
        self.gpus = gpus
        self.milli = milli
        self.chooser = chooser
        self.cost: npt.NDArray[np.int32] = np.full(64, UNKNOWN, np.int32)
        self._picks: dict[int, tuple[int, ...]] = {}
        self._counts: dict[int, int] = {}
        self._held: npt.NDArray[np.int64] = np.full(64, UNKNOWN, np.int64)  # as `_counts`, by state id

    def costs(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Costs of an array of state ids; shape as `ids`."""
        self.cost = _grown(self.cost, len(self.states))
        found: npt.NDArray[np.int32] = self.cost[ids]
        if found.size and found.min() == UNKNOWN:
            for state_id in set(ids[found == UNKNOWN].tolist()):
                self._learn(state_id)
            found = self.cost[ids]
        return found

    def one_cost(self, state_id: int) -> int:
        """The cost of one state."""
        if state_id < len(self.cost):
            known = self.cost.item(state_id)
            if known != UNKNOWN:
                return known
        return int(self.costs(np.array([state_id], np.int32))[0])

    def pick(self, state_id: int) -> tuple[int, ...]:
        """The devices taken from a feasible state."""
        if state_id not in self._picks:
            self._learn(state_id)
        return self._picks[state_id]

    def count(self, state_id: int) -> int:
        """How many such requests fit one after the other."""
        known = self._counts.get(state_id)
        if known is None:
            known = 0
            at = state_id
            while self.one_cost(at) != INFEASIBLE:
                at = self.states.take(at, self.pick(at), self.milli)
                known += 1
            self._counts[state_id] = known
        return known

    def counts(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """`count` of an array of state ids; shape as `ids`."""
        self._held = _grown(self._held, len(self.states))
        found: npt.NDArray[np.int64] = self._held[ids]
        if found.size and found.min() == UNKNOWN:
            for state_id in set(ids[found == UNKNOWN].tolist()):
                self._held[state_id] = self.count(state_id)
            found = self._held[ids]
        return found

    def _learn(self, state_id: int) -> None:
        free = self.states.states[state_id]
        fitting = [device for device, left in enumerate(free) if left >= self.milli]
        picks: tuple[int, ...] = ()
        if len(fitting) < self.gpus:
            cost = INFEASIBLE
        elif self.gpus == 1 and self.milli < WHOLE and self.chooser is not None:
            device, cost = self.chooser(free, self.milli)
            picks = (device,)
        else:
            # Whole devices: the first fully free ones; several fractions: the tightest first.
            fitting.sort(key=lambda device: (free[device], device))
            cost, picks = 0, tuple(sorted(fitting[: self.gpus]))
        self.cost[state_id] = cost
        self._picks[state_id] = picks

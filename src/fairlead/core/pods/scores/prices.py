"""Bid prices for fractions of a device.

Fractions are a one-dimensional packing problem inside each device. The linear program of Gilmore
and Gomory (1961) covers the demand for every size with as few devices as possible; its dual is a
price per size, and a knapsack over these prices gives `value[r]`: what the best use of a free
remainder `r` is worth, in thousandths of a device. Placing size s on remainder r loses
`value[r] - price(s) - value[r - s]`, never less than nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fairlead.core.model.units import WHOLE

_GRAIN = 10  # milli; sizes round up to it, remainders down
_SLOTS = WHOLE // _GRAIN
_ROUNDS = 200


class Prices:
    """`value[slot]` in thousandths of a device for a remainder of `slot` grains; `price` per size."""

    def __init__(self, demand: Mapping[int, float]) -> None:
        """demand: milli size (1..1000) -> how often it is asked for."""
        sizes = sorted(size for size, count in demand.items() if count > 0 and 0 < size <= WHOLE)
        grains = np.array([-(-size // _GRAIN) for size in sizes], np.int64)
        duals = _duals(grains, np.array([demand[size] for size in sizes], np.float64))
        # Thousandths as integers: later arithmetic is exact, on every machine alike.
        rounded = np.rint(duals * WHOLE).astype(np.int64)
        value, _ = _knapsack(grains, rounded.astype(np.float64))
        self.value: list[int] = [int(each) for each in value]
        self.price: dict[int, int] = {
            size: max(int(price), self.value[grain] if grain else 0)
            for size, price, grain in zip(sizes, rounded.tolist(), grains.tolist(), strict=True)
        }

    def loss(self, remainder: int, size: int) -> int:
        """What is lost by placing `size` on a device with `remainder` free (both milli)."""
        value = self.value
        price = self.price.get(size)
        if price is None:
            price = value[min(_SLOTS, -(-size // _GRAIN))]
        return max(0, value[remainder // _GRAIN] - price - value[(remainder - size) // _GRAIN])


def _duals(grains: npt.NDArray[np.int64], demand: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Column generation: price, find the best pattern at these prices, swap it in, until none helps."""
    count = len(grains)
    if count == 0:
        return np.zeros(0)
    basis = np.diag((_SLOTS // grains).astype(np.float64))
    duals: npt.NDArray[np.float64] = np.ones(count) / np.diag(basis)
    for _ in range(_ROUNDS):
        duals = np.linalg.solve(basis.T, np.ones(count)).astype(np.float64)
        value, choice = _knapsack(grains, duals)
        if value[_SLOTS] <= 1 + 1e-9:
            break
        pattern = np.zeros(count)
        slot = _SLOTS
        while slot > 0:
            taken = int(choice[slot])
            if taken < 0:
                slot -= 1
            else:
                pattern[taken] += 1
                slot -= int(grains[taken])
        both = np.linalg.solve(basis, np.column_stack([demand, pattern]))
        usable = both[:, 1] > 1e-9
        if not usable.any():
            break
        ratios = np.where(usable, np.maximum(both[:, 0], 0) / np.where(usable, both[:, 1], 1), np.inf)
        basis[:, int(ratios.argmin())] = pattern
    return np.maximum(duals, 0)


def _knapsack(
    grains: npt.NDArray[np.int64], worth: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Best worth per number of free slots with unlimited items, and the item that reaches it (-1: none)."""
    best = np.zeros(_SLOTS + 1)
    choice = np.full(_SLOTS + 1, -1, np.int64)
    order = np.argsort(grains, kind="stable")
    sorted_grains, sorted_worth = grains[order], worth[order]
    fitting = np.searchsorted(sorted_grains, np.arange(_SLOTS + 1), side="right")
    for slot in range(1, _SLOTS + 1):
        best[slot] = best[slot - 1]
        fits = int(fitting[slot])
        if fits:
            reached = sorted_worth[:fits] + best[slot - sorted_grains[:fits]]
            item = int(reached.argmax())
            if reached[item] > best[slot]:
                best[slot] = reached[item]
                choice[slot] = order[item]
    return best, choice

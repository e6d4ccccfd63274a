"""Which jobs share a GPU: pairs of large total worth, by the estimated speeds of their kinds.

A slot is half a GPU; idle slots are partners of kind `IDLE`, beside which a job runs at its speed alone. The search begins
with the best pairs first and then exchanges partners of two GPUs while that gains (2-opt), all exchanges compared at once.
An exchange must gain at least what it costs, so pairs that run are kept where a change is worth little.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fairlead.core.pairs.estimate import Estimate, Speeds

IDLE = -1


def worths(estimate: Estimate, *, slowest: float = 0.5, aversion: float = 2.0, optimism: float = 1.0) -> Speeds:
    """What a GPU is worth with each pair of kinds, in jobs that run alone: kinds x kinds, symmetric.

    slowest: below this relative speed of the slower job a pair counts less, by `aversion` for each unit. optimism: standard
    errors that are added, so that pairs of which little is known are tried.
    """
    speed = np.clip(estimate.speed + optimism * estimate.deviation, 0.0, 1.0)
    slower = np.minimum(speed, speed.T)
    return speed + speed.T - aversion * np.maximum(0.0, slowest - slower)


def choose(
    kinds: Sequence[int],
    worth: Speeds,
    forbidden: NDArray[np.bool_],
    running: Sequence[tuple[int, int]] = (),
    *,
    change: float = 0.0,
) -> list[tuple[int, int]]:
    """Pairs of indexes into `kinds`, each index once.

    kinds: of each slot, `IDLE` for an idle one; their number is even. worth: of a GPU with two kinds. forbidden: pairs of
    kinds that do not run together. running: the present pairs, with which the search begins if they are of all slots.
    change: what an exchange must gain beyond nothing, in jobs' worth. A forbidden pair is in the result only where no
    exchange with another pair removes one: the caller gives its jobs a GPU each, or lets one wait.
    """
    table = _with_idle(worth, forbidden)
    kind = np.asarray(kinds, dtype=np.int64)
    if len(kind) % 2:
        raise ValueError(f"{len(kind)} slots: two are a GPU")
    pairs = np.array(running or _greedy(kind, table), dtype=np.int64).reshape(-1, 2)
    if sorted(pairs.ravel().tolist()) != list(range(len(kind))):
        raise ValueError(f"the present pairs are of {pairs.size} slots, not each of {len(kind)} once")
    _exchange(pairs, kind, table, change)
    return [(int(first), int(second)) for first, second in pairs]


def _with_idle(worth: Speeds, forbidden: NDArray[np.bool_]) -> Speeds:
    """The worth of every two kinds, the last one for idle slots (index -1): 1 with a job, 0 with another idle one."""
    count = len(worth)
    table = np.ones((count + 1, count + 1))
    table[:count, :count] = np.where(forbidden | forbidden.T, -10.0, worth)
    table[count, count] = 0.0
    return table


def _greedy(kind: NDArray[np.int64], table: Speeds) -> list[tuple[int, int]]:
    """Pairs, the best kinds first; ties by the order of kinds."""
    slots: dict[int, list[int]] = {}
    last = len(table) - 1
    for slot, each in enumerate(kind.tolist()):
        slots.setdefault(each if each != IDLE else last, []).append(slot)
    present = sorted(slots)
    ranked = sorted(((-table[a, b], a, b) for i, a in enumerate(present) for b in present[i:]))
    pairs = []
    for _, a, b in ranked:
        while slots[a] and slots[b] and (a != b or len(slots[a]) > 1):
            first = slots[a].pop(0)
            pairs.append((first, slots[b].pop(0)))
    return pairs


def _exchange(pairs: NDArray[np.int64], kind: NDArray[np.int64], table: Speeds, change: float) -> None:
    """Exchange partners while that gains more than `change`; the best exchange of each GPU first."""
    floor = max(change, 1e-9)
    # Every exchange raises the total, so it ends; the bound is for a table of numbers that do not compare.
    for _ in range(8 * len(pairs) + 8):
        first, second = kind[pairs[:, 0]], kind[pairs[:, 1]]
        now = table[first, second]
        pair_sum = now[:, None] + now[None, :]
        crossed = table[first[:, None], second[None, :]] + table[second[:, None], first[None, :]] - pair_sum
        parallel = table[first[:, None], first[None, :]] + table[second[:, None], second[None, :]] - pair_sum
        gain = np.maximum(crossed, parallel)
        np.fill_diagonal(gain, -np.inf)
        if gain.size == 0 or gain.max() <= floor:
            return
        free = np.ones(len(pairs), dtype=bool)
        for one in np.argsort(-gain.max(axis=1), kind="stable").tolist():
            other = int(gain[one].argmax())
            if not (free[one] and free[other]) or gain[one, other] <= floor:
                continue
            free[one] = free[other] = False
            a, b = pairs[one].tolist()
            c, d = pairs[other].tolist()
            pairs[one], pairs[other] = ((a, d), (c, b)) if crossed[one, other] >= parallel[one, other] else ((a, c), (b, d))

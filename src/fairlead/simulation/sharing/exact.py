"""The best pairs for known worths: a bound that no matching exceeds, and a matching beside it.

Every matching is an assignment in which each job is assigned its partner, so the best assignment (each job gets a partner,
each is a partner once) is worth at least as much. It is found exactly by shortest augmenting paths (Jonker and Volgenant,
1987). Its cycles of even length are two matchings, of which the better is taken; only cycles of odd length leave a gap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairlead.core.pairs.estimate import Speeds

_NEVER = -1e6
_ROUNDS = 50
_NOTHING = 1e-9


def assignment(worth: Speeds) -> list[int]:
    """Of each row the column, all different, with the largest sum of worths. worth: n x n, finite."""
    count = len(worth)
    cost = worth.max(initial=0.0) - worth
    price = np.zeros(count)  # of columns: reduced costs of what is assigned are the least of their rows
    row_of = np.full(count, -1, dtype=np.int64)
    column_of = np.full(count, -1, dtype=np.int64)
    for start in range(count):
        distance = cost[start] - price
        before = np.full(count, start, dtype=np.int64)
        done = np.zeros(count, dtype=bool)
        while True:
            column = int(np.where(done, np.inf, distance).argmin())
            if row_of[column] < 0:
                break
            done[column] = True
            row = int(row_of[column])
            onward = distance[column] + (cost[row] - price) - (cost[row, column] - price[column])
            shorter = ~done & (onward < distance)
            distance[shorter] = onward[shorter]
            before[shorter] = row
        price[done] += distance[done] - distance[column]
        while True:
            row = int(before[column])
            row_of[column], column_of[row], column = row, column, int(column_of[row])
            if row == start:
                break
    return column_of.tolist()


def best_pairs(worth: Speeds, runnable: Speeds) -> tuple[list[tuple[int, ...]], float]:
    """Pairs of large worth per GPU, and jobs alone; and the bound, the most that any are worth per GPU.

    worth: of a GPU with jobs i and j, symmetric, n x n; a job alone is worth 1. runnable: above 0 where they run together.
    A quotient is the largest where worth less the bound for each GPU is 0 at most (Dinkelbach, 1967): each round raises it.
    """
    count = len(worth)
    if count == 0:
        return [], 0.0
    alone = np.eye(count, dtype=bool)
    allowed = (runnable > 0) & (runnable.T > 0) & ~alone
    every = np.arange(count)
    partner, bound = every.tolist(), 1.0
    for _ in range(_ROUNDS):
        value = np.where(alone, 1.0 - bound, np.where(allowed, (worth - bound) / 2, _NEVER))
        found = np.array(assignment(value))
        gpus = np.where(found == every, 1.0, 0.5).sum()
        total = np.where(found == every, 1.0, worth[every, found] / 2).sum()
        partner, before, bound = found.tolist(), bound, float(max(bound, total / gpus))
        if bound - before < _NOTHING:
            break
    return _matching(partner, worth, allowed), bound


def _matching(partner: list[int], worth: Speeds, allowed: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """The pairs of an assignment's cycles; of an odd cycle one job is left, and those are paired as far as they may be."""
    pairs: list[tuple[int, ...]] = []
    left: list[int] = []
    seen: set[int] = set()
    for start in range(len(partner)):
        cycle = []
        while start not in seen:
            seen.add(start)
            cycle.append(start)
            start = partner[start]  # noqa: PLW2901 - along the cycle
        if len(cycle) == 1:
            left += cycle
            continue
        starts = [cycle[at:] + cycle[:at] for at in range(len(cycle) if len(cycle) % 2 else min(2, len(cycle)))]
        if not starts:
            continue
        best = max(starts, key=lambda each: sum(worth[a, b] for a, b in zip(each[::2], each[1::2], strict=False)))
        for a, b in zip(best[::2], best[1::2], strict=False):
            if allowed[a, b]:
                pairs.append((a, b))
            else:
                left += [a, b]
        left += best[-1:] if len(best) % 2 else []
    while left:
        job = left.pop()
        fitting = [other for other in left if allowed[job, other]]
        if not fitting:
            pairs.append((job,))
            continue
        other = max(fitting, key=lambda each: (worth[job, each], -each))
        left.remove(other)
        pairs.append((job, other))
    return pairs

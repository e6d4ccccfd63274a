"""Sets of items in the order of their sums, without listing all of them first.

The method: E. Lawler, "A procedure for computing the K best solutions to discrete optimization problems", 1972. Each set that is
taken from the heap puts the two there that follow from it: with the next item besides, and with the next instead of its last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import add

Weight = tuple[int, ...]


def ascending(weights: Sequence[Weight]) -> Iterator[tuple[int, ...]]:
    """The non-empty sets of items, as indices, by the sums of their weights. weights: none below zero, in ascending order.

    Of equal sums the set of the earlier items comes first. Each costs a logarithm of how many were given before.
    """
    heap: list[tuple[Weight, tuple[int, ...]]] = [(weights[0], (0,))] if weights else []
    while heap:
        total, chosen = heappop(heap)
        yield chosen
        last = chosen[-1]
        if last + 1 < len(weights):
            more = tuple(map(add, total, weights[last + 1]))
            heappush(heap, (more, (*chosen, last + 1)))
            instead = tuple(one - other for one, other in zip(more, weights[last], strict=True))
            heappush(heap, (instead, (*chosen[:-1], last + 1)))

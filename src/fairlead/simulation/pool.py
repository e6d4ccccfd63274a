"""Free GPUs of equal nodes, for policies that know nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

Place = tuple[tuple[int, int], ...]
"""(node, GPUs) of each part of a job."""


class Pool:
    """Nodes 0 to n-1 of `size` GPUs each.

    A job of up to one node's GPUs goes to the node with the fewest free GPUs that suffice, a larger one to entirely
    free nodes and, for a remainder, to one more of them; the lowest number among equals.
    """

    def __init__(self, nodes: int, gpus_per_node: int) -> None:
        self.size = gpus_per_node
        self.free = [gpus_per_node] * nodes
        self.counts = [0] * gpus_per_node + [nodes]
        self.total = nodes * gpus_per_node
        self._heaps: list[list[int]] = [[] for _ in range(gpus_per_node)] + [list(range(nodes))]

    def copy(self) -> Pool:
        """The same, to try things on."""
        other = Pool.__new__(Pool)
        other.size, other.free, other.counts, other.total = self.size, self.free[:], self.counts[:], self.total
        other._heaps = [each[:] for each in self._heaps]  # noqa: SLF001 - it is a pool, too
        return other

    def nodes_of(self, gpus: int) -> int:
        """How many nodes a job spans."""
        return -(-gpus // self.size)

    def fits(self, gpus: int) -> bool:
        """Whether a job of so many GPUs finds a place."""
        if gpus <= self.size:
            return any(self.counts[gpus:])
        return self.counts[self.size] >= self.nodes_of(gpus)

    def find(self, gpus: int) -> Place:
        """Take the place of a job that fits."""
        if gpus <= self.size:
            level = next(number for number in range(gpus, self.size + 1) if self.counts[number])
            return self.take(((self._node(level), gpus),))
        parts: list[tuple[int, int]] = []
        while gpus > 0:
            part = min(gpus, self.size)
            parts += self.take(((self._node(self.size), part),))
            gpus -= part
        return tuple(parts)

    def on(self, nodes: Iterable[int], gpus: int) -> Place:
        """Take a place on these nodes, in this order."""
        parts = []
        for node in nodes:
            parts.append((node, min(gpus, self.size)))
            gpus -= self.size
        return self.take(tuple(parts))

    def _node(self, level: int) -> int:
        heap = self._heaps[level]
        while self.free[heap[0]] != level:
            heappop(heap)
        return heap[0]

    def take(self, place: Place) -> Place:
        """Occupy a place."""
        for node, gpus in place:
            self._change(node, -gpus)
        return place

    def give(self, place: Place) -> None:
        """Free a place."""
        for node, gpus in place:
            self._change(node, gpus)

    def _change(self, node: int, by: int) -> None:
        old = self.free[node]
        new = old + by
        self.free[node] = new
        self.counts[old] -= 1
        self.counts[new] += 1
        self.total += by
        heap = self._heaps[new]
        if len(heap) > 4 * len(self.free):
            heap[:] = {each for each in heap if self.free[each] == new}
            heapify(heap)
        heappush(heap, node)

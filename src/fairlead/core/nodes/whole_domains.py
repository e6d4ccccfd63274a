"""In which order domains of the network are used up by work that asks for none, so that others stay whole for gangs.

Domains of the narrowest level of each pool, those with the fewest whole nodes first: a rack in which little is left serves gangs
badly anyway. A node is whole while no device of it is in use, and at least half of its CPU and memory is free. It is a tie-break:
only among nodes with the best score.
"""

from __future__ import annotations

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.nodes.name_ranks import NAME_RANK_BITS
from fairlead.core.nodes.network import Network
from fairlead.core.nodes.table import NodeTable


class WholeDomains:
    """For each row the place of its domain in that order; found anew where nodes have changed."""

    def __init__(self, nodes: NodeTable, network: Network) -> None:
        self._nodes = nodes
        self._network = network
        self._levels: tuple[int, tuple[str, ...]] = (-1, ())
        self._found: tuple[tuple[int, ...], Ints] | None = None

    def places(self) -> Ints | None:
        """Shape (rows,), 0 for rows in no domain; None where no pool has levels."""
        network, nodes = self._network, self._nodes
        if self._levels[0] != network.version:
            names = [pool.levels[-1].label for _, pool in sorted(network.pools.items()) if pool.levels]
            self._levels = network.version, tuple(dict.fromkeys(names))
        if not self._levels[1]:
            return None
        levels = [network.level(name) for name in self._levels[1]]
        changes = nodes.changes
        version = network.version, nodes.topologies.version, changes.generation, changes.end, nodes.count
        if self._found is None or self._found[0] != version:
            count, first = nodes.count, 0
            domain = np.zeros(count, np.int64)
            for level in levels:
                own = level.domain[:count].astype(np.int64)
                domain = np.where((domain == 0) & (own > 0), own + first, domain)
                first += len(level.values)
            held = np.bincount(domain, weights=self._whole(count), minlength=first + 1)
            held[0] = -1
            place = np.empty(len(held), np.int64)
            place[np.argsort(held, kind="stable")] = np.arange(len(held))
            self._found = version, place[domain]
        return self._found[1]

    def _whole(self, count: int) -> Ints:
        nodes = self._nodes
        whole = nodes.open[:count].copy()
        devices = np.zeros(count, np.bool_)
        for column in nodes.gpu_columns():
            alloc = nodes.alloc[column][:count]
            whole &= nodes.free[column][:count] >= alloc
            devices |= alloc > 0
        for column in (0, 1):  # CPU and memory
            whole &= 2 * nodes.free[column][:count] >= nodes.alloc[column][:count]
        found: Ints = (whole & devices).astype(np.int64)
        return found


def first_of(keys: Ints, places: Ints) -> int:
    """The row with the best score, of equal ones that in the first domain; -1 where none is feasible."""
    best = int(keys.max()) if len(keys) else -1
    if best < 0:
        return -1
    rows = np.flatnonzero(keys >> NAME_RANK_BITS == best >> NAME_RANK_BITS)
    rows = rows[places[rows] == places[rows].min()]
    return int(rows[keys[rows].argmax()])


def in_order(keys: Ints, held: Ints, places: Ints) -> Ints:
    """An order of rows: those that hold most first, then by score, then by domain."""
    return np.lexsort((-keys, places, -(keys >> NAME_RANK_BITS), -held))

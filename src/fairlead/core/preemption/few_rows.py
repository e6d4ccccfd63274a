"""Few rows: on a full cluster few have free GPUs, and what waits in all queues is compared with these at once.

Only which groups of pending classes none of the rows has enough for is found: of the others each class is asked about by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.queues.queue_node import PendingClass, QueueNode
from fairlead.core.state.cluster import ClusterState

_NOT_ASKED = np.iinfo(np.int64).min

Alike = tuple[frozenset[str], list[list[PendingClass]]]
"""What waits in a queue, together what shares and quotas treat alike; see `QueueNode.alike_in`."""


class _Asked(NamedTuple):
    """What the classes of a group ask for. demand: a line for each, an amount for each column of the nodes.

    gpus: (column, amount) of GPUs that each asks for at least.
    """

    demand: Ints
    gpus: tuple[int, int]


class FewRows:
    """What groups ask for, kept as long as the same classes are in them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[QueueNode, tuple[Alike, list[_Asked | None]]] = {}
        self._versions = (-1, -1, -1)

    def without_place(self, nodes: Iterable[QueueNode]) -> dict[int, list[PendingClass]]:
        """The groups of some queues, by their `id`, of which no free row has enough for any; there may be more."""
        self._follow()
        groups: list[list[PendingClass]] = []
        asked: list[_Asked] = []
        for node in nodes:
            if node.alike is not None:
                for group, each in zip(node.alike[1], self._asked(node, node.alike), strict=True):
                    if each is not None:
                        groups.append(group)
                        asked.append(each)
        columns = {each.gpus[0] for each in asked}
        if len(columns) != 1:
            return {}  # none, or several kinds of GPUs
        column, table = columns.pop(), self._state.nodes
        rows = table.free_rows.at_least(column, min(each.gpus[1] for each in asked), table.free[column][: table.count])
        if rows is None:
            return {}
        demand = np.concatenate([each.demand for each in asked])
        fits = np.zeros(len(demand), np.bool_)
        for row in rows:
            fits |= np.all(demand <= table.matrix[: demand.shape[1], row], axis=1)
        starts = np.cumsum([0, *(len(each.demand) for each in asked[:-1])])
        found = np.logical_or.reduceat(fits, starts)
        return {id(group): group for group, fits_any in zip(groups, found.tolist(), strict=True) if not fits_any}

    def _follow(self) -> None:
        state = self._state
        versions = state.queues.tree.version, len(state.nodes.free), state.pairs.epoch + state.numa.epoch
        if versions != self._versions:
            self._versions = versions
            self._known.clear()

    def _asked(self, node: QueueNode, alike: Alike) -> list[_Asked | None]:
        known = self._known.get(node)
        if known is None or known[0] is not alike:
            known = self._known[node] = alike, [self._ask(group) for group in alike[1]]
        return known[1]

    def _ask(self, group: list[PendingClass]) -> _Asked | None:
        """What classes ask for; None: for one of them more decides than what is free on a row with free GPUs."""
        demand = np.full((len(group), len(self._state.nodes.free)), _NOT_ASKED, np.int64)
        found: set[tuple[int, int]] = set()
        for number, pending_class in enumerate(group):
            if len(pending_class.rankings) != 1:
                return None
            (ranking,) = pending_class.rankings
            shape = ranking.shape
            if ranking.gpus is None or shape.labels is not None or shape.holds or shape.minds_neighbours or ranking.relations:
                return None
            found.add(ranking.gpus)
            for column, amount in shape.demand:
                demand[number, column] = amount
        columns = {column for column, _ in found}
        return _Asked(demand, min(found)) if len(columns) == 1 else None

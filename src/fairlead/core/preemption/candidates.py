"""Candidates for preemption, remembered per kind of newcomer: whom it would evict on each node.

Working out one node means taking its lower-priority pods off and putting back those that need not be evicted. What came of it
holds until the node changes, so it is kept, and after each decision only the rows that were touched are worked out
anew. Newcomers whose place depends on pods elsewhere have nothing kept: any pod anywhere may change their verdict.
At most a hundred nodes, or a tenth, are worked out anew at a time, as upstream does; those whose least valuable pod
is cheapest come first.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from fairlead.core.pods import amounts
from fairlead.core.pods.filters.base import Refusal
from fairlead.core.pods.tasks import Task, TaskState
from fairlead.core.preemption import default_preemption, protected
from fairlead.core.preemption.default_preemption import Choice

if TYPE_CHECKING:
    from fairlead.core.pods.ranking import Ranking
    from fairlead.core.state.cluster import ClusterState

_LEAST, _SHARE = 100, 10
_REMEMBERED = 64

Cost = tuple[object, ...]


class Candidates:
    """Whom newcomers of one shape and priority would evict, by row."""

    def __init__(self, state: ClusterState, ranking: Ranking, priority: int) -> None:
        self.state = state
        self.ranking = ranking
        self.priority = priority
        self._choices: dict[int, tuple[Cost, Choice]] = {}
        self._heap: list[tuple[Cost, int]] = []
        self._unknown: set[int] = set()
        self._cursor = 0
        self._generation = -1
        self._budgets = -1
        self._protected: tuple[object, ...] = ()

    def best(self) -> Choice | None:
        """The cheapest choice, over what is known and what may be worked out now."""
        self._forget_changed()
        self._work_out()
        while self._heap:
            cost, row = self._heap[0]
            known = self._choices.get(row)
            if known is None or known[0] != cost:
                heappop(self._heap)
                continue
            # Pods may have begun to run since: what is returned is as of now.
            fresh = self._choose(row)
            if fresh is not None and self._choices[row][0] == cost:
                return fresh
        return None

    def _choose(self, row: int) -> Choice | None:
        """Work out one row and remember what comes of it."""
        state = self.state
        preemptible = {task.pod.uid for task in self._preemptible(row)}
        choice = default_preemption.on_row(
            state, self.priority, row, self.ranking.fits_row, lambda task: task.pod.uid in preemptible
        )
        if choice is None:
            self._choices.pop(row, None)
        else:
            cost = (*default_preemption.cost(choice), state.nodes.names[row])
            if row not in self._choices or self._choices[row][0] != cost:
                heappush(self._heap, (cost, row))
            self._choices[row] = cost, choice
        # What was tried and taken back has been entered into the ring: nothing changed by it.
        self._generation, self._cursor = state.nodes.changes.generation, state.nodes.changes.end
        return choice

    def _forget_changed(self) -> None:
        nodes, stamp = self.state.nodes, protected.stamp(self.state)
        known = self._generation == nodes.changes.generation and self._protected == stamp
        if not known or self.ranking.relations or self._budgets != self.state.budgets.version:
            self._budgets, self._protected = self.state.budgets.version, stamp
            self._choices.clear()
            self._heap.clear()
            self._unknown = set(nodes.rows.values())
        else:
            for row in nodes.changes.since(self._cursor).tolist():
                self._choices.pop(row, None)
                self._unknown.add(row)
        self._generation, self._cursor = nodes.changes.generation, nodes.changes.end

    def _work_out(self) -> None:
        state = self.state
        nodes = state.nodes
        promising = []
        for row in self._unknown:
            least = self.least(row)
            if least is not None:
                promising.append((least, nodes.names[row], row))
        bound = max(_LEAST, len(nodes.rows) // _SHARE)
        if len(promising) <= bound:
            self._unknown.clear()
        else:
            promising.sort()
            self._unknown.intersection_update(row for _, _, row in promising)
        found = 0
        for _, _, row in promising:
            if found >= bound:
                break
            self._unknown.discard(row)
            found += self._choose(row) is not None
        if len(self._heap) > 4 * max(64, len(self._choices)):
            self._heap = [(cost, row) for row, (cost, _) in self._choices.items()]
            heapify(self._heap)

    def least(self, row: int) -> tuple[int, float] | None:
        """Priority and start of the least valuable preemptible pod on a row; None where no eviction could help."""
        state, ranking = self.state, self.ranking
        nodes = state.nodes
        if not nodes.open.item(row) or not ranking.admits(row):
            return None
        preemptible = self._preemptible(row)
        if not preemptible or not amounts.fits(nodes, row, ranking.shape.demand, amounts.by_column(preemptible)):
            return None
        for relation in ranking.relations:
            if relation.stop() is not None or (
                relation.applies() and relation.refuses(row) in (Refusal.UNRESOLVABLE, Refusal.ERROR)
            ):
                return None
        return min((task.pod.priority, -default_preemption.start(task)) for task in preemptible)

    def _preemptible(self, row: int) -> list[Task]:
        """The pods on a row that may be preempted."""
        return protected.unprotected(self.state, filter(self._is_preemptible, self.state.nodes.pods[row].values()))

    def _is_preemptible(self, task: Task) -> bool:
        if task.pod.priority >= self.priority or task.state is not TaskState.BOUND:
            return False
        return not self.state.departures.spares(task, self.state.services.now)


def candidates_of(state: ClusterState) -> CandidateTable:
    """The candidates that are kept from pass to pass."""
    return state.caches.get(CandidateTable)


class CandidateTable:
    """The candidates of the kinds of newcomers asked for last."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._kinds: dict[tuple[int, int], Candidates] = {}

    def of(self, ranking: Ranking, priority: int) -> Candidates:
        """Those for one shape and priority."""
        key = (ranking.shape.number, priority)
        made = self._kinds.pop(key, None) or Candidates(self.state, ranking, priority)
        self._kinds[key] = made
        while len(self._kinds) > _REMEMBERED:
            del self._kinds[next(iter(self._kinds))]
        return made

"""InterPodAffinity: required affinity and anti-affinity towards other pods, and theirs towards this one.

Affinity: a node must have every topology key, and in each of those domains there must be pods that match all terms;
if there are none anywhere and the pod matches its own terms, it may be the first. Anti-affinity: no pod that matches
a term may be in the node's domain. The terms of pods that run bind newcomers likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Mask
from fairlead.core.model.pods import AffinityTerm
from fairlead.core.nodes.tallies import Tally
from fairlead.core.pods.filters.base import Refusal, Relation, Surroundings
from fairlead.core.pods.pairs import PodCount, Who

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape


def who(term: AffinityTerm) -> Who:
    """Whom a term speaks of."""
    return term.namespaces, term.namespace_selector, term.selector


class PodAffinity(Relation):
    """The required terms of a shape, and those of others that match it."""

    plugin = "InterPodAffinity"
    code = ReasonCode.NODE_AFFINITY
    complaint = "node(s) didn't match pod affinity/anti-affinity rules"

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        super().__init__(shape, around)
        nodes, pairs = around.nodes, around.pairs
        self.counts: list[PodCount] = []
        self.near: list[Tally] = []
        self.may_be_first = all(pairs.own_match(term, self.labels) for term in self.spec.pod_affinity)
        if self.spec.pod_affinity:
            count = pairs.count(tuple(who(term) for term in self.spec.pod_affinity))
            self.counts.append(count)
            self.near = [count.tally(nodes, term.topology_key) for term in self.spec.pod_affinity]
        self.away: list[Tally] = []
        for term in self.spec.pod_anti_affinity:
            count = pairs.count((who(term),))
            self.counts.append(count)
            self.away.append(count.tally(nodes, term.topology_key))
        anti = [each for each in self.labels.terms if each.anti]
        self.watched = [*self.counts, *anti]
        self.kept_away = [each.tally(nodes, each.term.topology_key) for each in anti]

    @override
    def applies(self) -> bool:
        return bool(self.near or self.away) or any(tally.refresh().any for tally in self.kept_away)

    @override
    def refused(self) -> Mask | None:
        rows = slice(0, self.nodes.count)
        refused: Mask = np.zeros(self.nodes.count, np.bool_)
        if self.near:
            lacks: Mask = np.zeros(self.nodes.count, np.bool_)
            first = self._first()
            for tally in self.near:
                refused |= tally.topology.domain[rows] == 0
                if not first:
                    lacks |= tally.of(rows) <= 0
            refused |= lacks
        for tally in (*self.away, *self.kept_away):
            if tally.refresh().any:
                refused |= tally.of(rows) > 0
        return refused

    @override
    def refuses(self, row: int) -> Refusal | None:
        if self.near:
            if any(not tally.topology.domain.item(row) for tally in self.near):
                return Refusal.UNRESOLVABLE
            if not self._first() and any(tally.one(row) <= 0 for tally in self.near):
                return Refusal.UNRESOLVABLE
        for tally in (*self.away, *self.kept_away):
            if tally.refresh().one(row) > 0:
                return Refusal.UNSCHEDULABLE
        return None

    def _first(self) -> bool:
        """Whether the pod may go anywhere, being the first of its kind."""
        deserted = self.deserted()
        return self.may_be_first and deserted

    def deserted(self) -> bool:
        """Whether no pod that this one must be near is anywhere yet."""
        others = [tally.refresh().any for tally in self.near]  # each is refreshed: its sums are read next
        return not any(others)

    @override
    def version(self) -> int:
        return sum(each.version for each in self.watched)

    @override
    def close(self) -> None:
        for count in self.counts:
            self.around.pairs.release(count)

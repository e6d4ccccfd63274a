"""PodTopologySpread: required constraints on how evenly pods lie over the domains of a topology key.

A node is out where its domain, with this pod, would hold more than `maxSkew` more pods than the emptiest domain. Only
nodes with all of the pod's topology keys make up domains, and only those that the constraint's policies admit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fairlead.api.reasons import ReasonCode
from fairlead.core.model.arrays import Ints, Mask
from fairlead.core.model.pods import PodSpec, SpreadConstraint
from fairlead.core.model.selectors import matches
from fairlead.core.nodes.node_classes import CLOSED
from fairlead.core.nodes.table import NodeTable
from fairlead.core.nodes.tallies import Eligibility
from fairlead.core.pods.filters import node_affinity, taints
from fairlead.core.pods.filters.base import Refusal, Relation, Surroundings
from fairlead.core.pods.pairs import LabelSet

if TYPE_CHECKING:
    from fairlead.core.pods.shapes import Shape


class Constraint:
    """One constraint with its count. own: 1 where the pod itself matches."""

    def __init__(
        self, spec: PodSpec, labels: LabelSet, around: Surroundings, given: SpreadConstraint, keys: tuple[str, ...]
    ) -> None:
        self.given = given
        self.own = int(matches(given.selector, labels.labels))
        self.counted = around.pairs.count((((labels.namespace,), None, given.selector),), live=True)
        self.tally = self.counted.tally(around.nodes, given.topology_key, eligibility(around.nodes, spec, given, keys))
        self._ignored: Ints | None = None

    def start(self) -> None:
        """Judging begins: a selector that selects everything counts no pod that is there now, as upstream."""
        self._ignored = self.tally.refresh().sums.copy() if self.given.selector == () else None

    def over(self) -> Mask:
        """For each domain whether this pod would be one too many there; the first stands for nodes without the key."""
        tally = self.tally.refresh()
        sums = tally.sums if self._ignored is None else tally.sums - self._ignored
        over: Mask = sums > self.given.max_skew - self.own + self._least(sums)
        over[0] = True
        return over

    def _least(self, sums: Ints) -> int:
        tally = self.tally
        if not tally.domains or tally.domains < self.given.min_domains:
            return 0
        return tally.least if self._ignored is None else int(sums[tally.nodes_in > 0].min())


class TopologySpread(Relation):
    """The required constraints of a shape."""

    plugin = "PodTopologySpread"
    code = ReasonCode.TOPOLOGY
    complaint = "node(s) didn't match pod topology spread constraints"

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        super().__init__(shape, around)
        keys = tuple(each.topology_key for each in self.spec.spread)
        self.constraints = [Constraint(shape.spec, self.labels, around, each, keys) for each in self.spec.spread]

    @override
    def applies(self) -> bool:
        for each in self.constraints:
            each.start()
        return True

    @override
    def refused(self) -> Mask | None:
        rows = slice(0, self.nodes.count)
        refused: Mask = np.zeros(self.nodes.count, np.bool_)
        for each in self.constraints:
            refused |= each.over()[each.tally.topology.domain[rows]]
        return refused

    @override
    def refuses(self, row: int) -> Refusal | None:
        for each in self.constraints:
            domain = each.tally.topology.domain.item(row)
            if not domain:
                return Refusal.UNRESOLVABLE
            if each.over().item(domain):
                return Refusal.UNSCHEDULABLE
        return None

    @override
    def version(self) -> int:
        return sum(each.counted.version for each in self.constraints)

    @override
    def close(self) -> None:
        for each in self.constraints:
            self.around.pairs.release(each.counted)


def eligibility(nodes: NodeTable, spec: PodSpec, given: SpreadConstraint, keys: tuple[str, ...]) -> Eligibility:
    """Which nodes make up the domains of a constraint. keys: that nodes must have all of."""
    by_affinity = given.honor_affinity and (bool(spec.node_selector) or spec.affinity is not None)
    admits: Callable[[int], bool] | None = None
    if by_affinity or given.honor_taints:

        def admits(number: int) -> bool:
            if number == CLOSED:
                return False
            node = nodes.classes.known[number]
            return (not by_affinity or node_affinity.FILTER.admits(spec, node)) and (
                not given.honor_taints or taints.untolerated(spec, node) is None
            )

    key = (
        frozenset(keys),
        (spec.node_selector, spec.affinity) if by_affinity else None,
        spec.tolerations if given.honor_taints else None,
    )
    return Eligibility(key, tuple(nodes.topologies.of(each) for each in sorted(set(keys))), admits)

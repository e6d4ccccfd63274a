"""kube-scheduler's own scores: every plugin of its default profile, with its weight and its arithmetic.

Two of them read one node alone and are part of the shape's key (`Kubernetes.rows`): free capacity, and balance; with
image locality, which changes when nodes' images do. The others are normalised over the nodes that are feasible just
now, so they are added when a place is searched for: taints that are tolerated, preferred node affinity, soft
spreading, and preferred affinity between pods. Divisions are of integers, and fractions are the same doubles as in Go.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from fairlead.api.names import HOSTNAME_LABEL, KUBERNETES_PROFILE, ZONE_LABEL
from fairlead.core.model.arrays import Ints, Rows
from fairlead.core.model.pods import SpreadConstraint
from fairlead.core.model.selectors import SelectorTerm, term_holds
from fairlead.core.nodes.name_ranks import NAME_RANK_BITS
from fairlead.core.nodes.node_classes import NodeClass
from fairlead.core.nodes.table import NodeTable
from fairlead.core.nodes.tallies import Tally
from fairlead.core.pods.filters.node_affinity import by_name, only_excludes, only_names
from fairlead.core.pods.filters.pod_affinity import who
from fairlead.core.pods.filters.taints import tolerates
from fairlead.core.pods.filters.topology_spread import eligibility
from fairlead.core.pods.pairs import PodCount
from fairlead.core.pods.scores.base import SCORE_BITS, States, Strategy

if TYPE_CHECKING:
    from fairlead.core.pods.filters.base import Surroundings
    from fairlead.core.pods.shapes import Shape

Indices = npt.NDArray[np.int32] | npt.NDArray[np.int64]

FULL = 100
WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}

_MI = 1 << 20
_SMALL_IMAGE = 23 * _MI
_LARGE_IMAGE = 1000 * _MI
_HARD_AFFINITY_WEIGHT = 1
_PREFERENCE_BITS = 10  # of a score, where what is preferred comes first
_MOST_PREFERRED = (1 << _PREFERENCE_BITS) - 1  # the plugins' weighted sum is below it
_EXACT_BELOW = 1 << 56  # amounts that may be multiplied by 100 in 64 bits


class Kubernetes(Strategy):
    """The sum of kube-scheduler's scores; ties go to the earlier name instead of at random."""

    name = "kubernetes"
    fill = "spread"

    @property
    def epoch(self) -> int:
        """Images count by how many nodes have them: then every node's score changes."""
        return self.nodes.images.version

    @epoch.setter
    def epoch(self, value: int) -> None:
        """Nothing is learnt here."""

    @override
    def rows(self, shape: Shape, rows: Rows, states: States, costs: States | None) -> Ints:
        total = least_allocated(self.nodes, shape, rows) + image_locality(self.nodes, shape, rows)
        balanced = balanced_allocation(self.nodes, shape, rows)
        result: Ints = total if balanced is None else total + balanced
        return result

    @override
    def pick(self, shape: Shape, row: int) -> tuple[int, ...]:
        return shape.devices_on(row) if shape.gpus else ()

    @override
    def row(self, shape: Shape, row: int) -> int:
        place = np.array([row], np.int32)
        return int(self.rows(shape, place, self.nodes.device[place], None)[0])


# -- of one node alone ------------------------------------------------------------------------------


def least_allocated(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints:
    """NodeResourcesFit: how much CPU and memory would be left, in percent, on average."""
    wanted = shape.spec.scored_new or shape.spec.scored or (shape.cpu, shape.memory)
    total: Any = 0
    resources: Any = 0
    for column, extra, amount in ((0, nodes.extra[0], wanted[0]), (1, nodes.extra[1], wanted[1])):
        capacity = nodes.alloc[column][rows]
        used = capacity - nodes.free[column][rows] + extra[rows] + amount
        if len(capacity) and int(capacity.max()) >= _EXACT_BELOW:
            capacity, used = capacity.astype(object), used.astype(object)
        there = capacity > 0
        left = np.where(there & (used <= capacity), capacity - used, 0)
        total = total + (left * FULL // np.where(there, capacity, 1)).astype(np.int64)
        resources = resources + there
    result: Ints = (total // np.maximum(resources, 1)).astype(np.int64)
    return result


def balanced_allocation(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints | None:
    """NodeResourcesBalancedAllocation: whether CPU and memory would be used more evenly than before; None: no opinion."""
    if not shape.cpu and not shape.memory:
        return None
    before, after = [], []
    there = []
    for column, amount in ((0, shape.cpu), (1, shape.memory)):
        capacity = nodes.alloc[column][rows]
        used = capacity - nodes.free[column][rows]
        exists = capacity > 0
        divisor = np.where(exists, capacity, 1)
        before.append(np.minimum(used / divisor, 1.0))
        after.append(np.minimum((used + amount) / divisor, 1.0))
        there.append(exists)
    both = there[0] & there[1]
    with_pod, without = (_evenness(fractions, both) for fractions in (after, before))
    result: Ints = FULL // 2 + (FULL // 2 + with_pod - without) // 2
    return result


def _evenness(fractions: list[npt.NDArray[np.float64]], both: npt.NDArray[np.bool_]) -> Ints:
    deviation = np.where(both, np.abs((fractions[0] - fractions[1]) / 2), 0.0)
    result: Ints = ((1 - deviation) * float(FULL)).astype(np.int64)
    return result


def image_locality(nodes: NodeTable, shape: Shape, rows: Rows) -> Ints:
    """ImageLocality: how many bytes of the pod's images are there already, each by how widely it is spread."""
    count = nodes.count
    sums: Ints = np.zeros(count, np.int64)
    for name in shape.spec.images:
        holders = nodes.images.rows.get(name)
        if holders:
            share = len(holders) / len(nodes.rows)
            for row, size in holders.items():
                sums[row] += int(float(size) * share)
    least, most = _SMALL_IMAGE, _LARGE_IMAGE * shape.spec.containers
    result: Ints = FULL * (np.clip(sums[rows], least, most) - least) // (most - least)
    return result


# -- against each other -----------------------------------------------------------------------------


class _ByClass:
    """A number per static class of nodes, worked out once for each. most: the largest so far."""

    def __init__(self, nodes: NodeTable, judge: Callable[[NodeClass], int]) -> None:
        self.nodes = nodes
        self._judge = judge
        self._numbers: Ints = np.zeros(0, np.int64)
        self._epoch = -1

    def of(self, rows: Indices) -> Ints:
        """The number of each row's class."""
        self._learn()
        result: Ints = self._numbers[self.nodes.classes.column[rows]]
        return result

    @property
    def most(self) -> int:
        """The largest number of any class; 0 if there are none."""
        self._learn()
        return int(self._numbers.max(initial=0))

    def _learn(self) -> None:
        nodes = self.nodes
        if self._epoch != nodes.classes.epoch:
            self._epoch = nodes.classes.epoch
            self._numbers = np.zeros(0, np.int64)
        known = len(self._numbers)
        if known < len(nodes.classes.known):
            more = [self._judge(node) for node in nodes.classes.known[known:]]
            self._numbers = np.concatenate([self._numbers, np.array(more, np.int64)])


class _Named:
    """The weights of nodes that preferred terms name, or name as exceptions, worked out once as long as the rows are the same."""

    def __init__(self, nodes: NodeTable, terms: tuple[tuple[int, SelectorTerm], ...]) -> None:
        self.nodes = nodes
        self.weights: dict[str, int] = {}
        self._others = 0  # of a node that no term names
        for weight, term in terms:
            for name in only_names(term) or ():
                self.weights[name] = self.weights.get(name, 0) + weight
            excluded = only_excludes(term)
            self._others += weight if excluded is not None else 0
            for name in excluded or ():
                self.weights[name] = self.weights.get(name, 0) - weight
        self._by_row: Ints = np.zeros(0, np.int64)
        self._version = -1

    def of(self, rows: Indices) -> Ints:
        """The weight of each row."""
        nodes = self.nodes
        if self._version != nodes.topologies.version or len(self._by_row) < nodes.count:
            self._version = nodes.topologies.version
            self._by_row = np.full(nodes.count, self._others, np.int64)
            for name, weight in self.weights.items():
                if name in nodes.rows:
                    self._by_row[nodes.rows[name]] += weight
        result: Ints = self._by_row[rows]
        return result


class Preferences:
    """What a shape prefers among the nodes that are feasible, per plugin. Made anew when pairs may match differently."""

    def __init__(self, shape: Shape, around: Surroundings) -> None:
        self.shape = shape
        self.around = around
        self.nodes = around.nodes
        self._counts: list[PodCount] = []
        self.spread = Spreading.of(shape, around, self._counts)
        pairs, nodes = around.pairs, around.nodes
        self.terms: list[tuple[int, Tally]] = []
        for weight, term in shape.spec.preferred_pods:
            count = pairs.count((who(term),))
            self._counts.append(count)
            self.terms.append((weight, count.tally(nodes, term.topology_key)))
        theirs = [each for each in (shape.labels.terms if shape.labels else ()) if not each.anti]
        self.theirs = [(each.tally(nodes, each.term.topology_key), each.weighed(nodes)) for each in theirs]
        self._taints = _ByClass(nodes, self._untolerated)
        preferred = shape.spec.preferred_nodes
        self._affinity = _ByClass(nodes, self._preferred) if preferred is not None else None
        self._named = _Named(nodes, preferred or ())

    def close(self) -> None:
        """The shape is forgotten."""
        for count in self._counts:
            self.around.pairs.release(count)

    @property
    def any(self) -> bool:
        """Whether any plugin may distinguish nodes in the present state."""
        return (
            self.spread is not None
            or self._taints.most > 0
            or (self._affinity is not None and self._affinity.most > 0)
            or bool(self._named.weights)
            or any(tally.refresh().any for _, tally in self.terms)
            or any(tally.refresh().any for tally, _ in self.theirs)
        )

    def ranked(self, keys: Ints) -> Ints:
        """The keys of all rows with what is preferred added to the scores in them; infeasible rows stay below 0."""
        rows = np.flatnonzero(keys >= 0)
        if not len(rows):
            return keys
        total: Any = 0
        for plugin, scores in self._plugins(rows).items():
            if scores is not None:
                total = total + scores * WEIGHTS[plugin]
        ranked = np.full(len(keys), -1, np.int64)
        ranked[rows] = keys[rows] + (total << NAME_RANK_BITS)
        return ranked

    def ordered(self, keys: Ints) -> Ints:
        """The keys with what is preferred, by the rules of the shape's profile."""
        return self.ranked(keys) if self.shape.profile == KUBERNETES_PROFILE else self.foremost(keys)

    def foremost(self, keys: Ints) -> Ints:
        """The keys of all rows with what is preferred before the scores in them, whose last bits are dropped for it."""
        rows = np.flatnonzero(keys >= 0)
        if not len(rows):
            return keys
        total: Any = sum(scores * WEIGHTS[plugin] for plugin, scores in self._plugins(rows).items() if scores is not None)
        ranked = np.full(len(keys), -1, np.int64)
        scores, name_ranks = keys[rows] >> NAME_RANK_BITS, keys[rows] & ((1 << NAME_RANK_BITS) - 1)
        scores = (np.minimum(total, _MOST_PREFERRED) << (SCORE_BITS - _PREFERENCE_BITS)) | (scores >> _PREFERENCE_BITS)
        ranked[rows] = (scores << NAME_RANK_BITS) | name_ranks
        return ranked

    def weighted(self, rows: Indices) -> dict[str, Ints]:
        """Plugin -> weighted scores of these rows, all of which are feasible; plugins without an opinion are left out."""
        return {name: scores * WEIGHTS[name] for name, scores in self._plugins(rows).items() if scores is not None}

    def _plugins(self, rows: Indices) -> dict[str, Ints | None]:
        affinity: Ints | None = None
        if self._affinity is not None:
            raw = self._affinity.of(rows)
            affinity = _normalised(raw + self._named.of(rows) if self._named.weights else raw)
        return {
            "TaintToleration": _normalised(self._taints.of(rows), reverse=True),
            "NodeAffinity": affinity,
            "PodTopologySpread": self.spread.scores(rows) if self.spread else None,
            "InterPodAffinity": self._pod_affinity(rows),
        }

    def _untolerated(self, node: NodeClass) -> int:
        return sum(
            1
            for taint in node.taints
            if taint.effect == "PreferNoSchedule" and not any(tolerates(each, taint) for each in self.shape.spec.tolerations)
        )

    def _preferred(self, node: NodeClass) -> int:
        terms = self.shape.spec.preferred_nodes or ()
        return sum(weight for weight, term in terms if not by_name(term) and term_holds(term, node.labels, node.name))

    def _pod_affinity(self, rows: Indices) -> Ints | None:
        raw: Any = None
        for weight, tally in self.terms:
            if tally.refresh().any:
                raw = weight * tally.of(rows) + (0 if raw is None else raw)
        for tally, weighed in self.theirs:
            if tally.refresh().any:
                raw = weighed.refresh().of(rows) + (0 if raw is None else raw)
        if raw is None or not len(rows):
            return None
        least, most = int(raw.min()), int(raw.max())
        if most == least:
            return np.zeros(len(rows), np.int64)
        result: Ints = (float(FULL) * ((raw - least) / float(most - least))).astype(np.int64)
        return result


def _normalised(raw: Ints, *, reverse: bool = False) -> Ints:
    most = int(raw.max(initial=0))
    if not most:
        return np.full(len(raw), FULL, np.int64) if reverse else raw
    scores = raw * FULL // most
    result: Ints = FULL - scores if reverse else scores
    return result


class Spreading:
    """Soft spreading: the pod's own constraints, or those that every pod gets that something selects."""

    DEFAULTS = ((HOSTNAME_LABEL, 3), (ZONE_LABEL, 5))

    def __init__(
        self,
        shape: Shape,
        around: Surroundings,
        constraints: tuple[SpreadConstraint, ...],
        counts: list[PodCount],
        *,
        strict: bool,
    ) -> None:
        self.nodes = around.nodes
        self.strict = strict  # nodes that lack a topology key are left out
        keys = tuple(each.topology_key for each in constraints)
        self.topologies = [around.nodes.topologies.of(key) for key in keys]
        self.constraints: list[tuple[SpreadConstraint, Tally]] = []
        namespace = shape.labels.namespace if shape.labels else ""
        for each in constraints:
            # A selector that matches everything counts no pod, as upstream.
            count = around.pairs.count((((namespace,), None, each.selector or None),), live=True)
            counts.append(count)
            if each.topology_key == HOSTNAME_LABEL:
                tally = count.per_row(around.nodes)
            else:
                eligible = eligibility(around.nodes, shape.spec, each, keys if strict else ())
                tally = count.tally(around.nodes, each.topology_key, eligible)
            self.constraints.append((each, tally))

    @classmethod
    def of(cls, shape: Shape, around: Surroundings, counts: list[PodCount]) -> Spreading | None:
        """The soft spreading of a shape, if any."""
        spec = shape.spec
        if spec.preferred_spread:
            return cls(shape, around, spec.preferred_spread, counts, strict=True)
        if spec.default_spread is None or spec.spread:
            return None
        constraints = tuple(SpreadConstraint(key, skew, spec.default_spread) for key, skew in cls.DEFAULTS)
        return cls(shape, around, constraints, counts, strict=False)

    def scores(self, rows: Indices) -> Ints:
        """Normalised scores of feasible rows."""
        domains = [topology.domain[rows] for topology in self.topologies]
        counted = np.ones(len(rows), np.bool_)
        for each in domains if self.strict else ():
            counted &= each > 0
        all_counted = bool(counted.all())
        raw = np.zeros(len(rows), np.float64)
        for (constraint, tally), domain in zip(self.constraints, domains, strict=True):
            if constraint.topology_key == HOSTNAME_LABEL:
                size = int(np.count_nonzero(counted))
            else:
                size = int(np.count_nonzero(np.bincount(domain if all_counted else domain[counted])))
            amount = tally.refresh().of(rows) * math.log(float(size + 2)) + float(constraint.max_skew - 1)
            raw = raw + np.where(domain > 0, amount, 0.0)
        whole = np.floor(raw)
        scores = (whole + (raw - whole >= 0.5)).astype(np.int64)
        ranked = scores if all_counted else scores[counted]
        if not len(ranked):
            return np.zeros(len(rows), np.int64)
        least, most = int(ranked.min()), int(ranked.max())
        if not most:
            return np.where(counted, FULL, 0).astype(np.int64)
        result: Ints = FULL * (most + least - scores) // most
        return result if all_counted else np.where(counted, result, 0)

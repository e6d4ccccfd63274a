"""A lower bound for every rule, also one that knows all departures: at each moment, gangs of whole leaves share the full leaves.

When gangs start and end is the same under every rule. A gang uses at least the leaves that it needs alone. A gang of n nodes,
n a multiple of 8, uses at least n / 8, and for each of its nodes on a leaf of 7 hosts or fewer 1 / 7 - 1 / 8 more. At each
sampled moment the full leaves hold 8 nodes each, so that of the nodes of these gangs all beyond that lie on smaller leaves.
A gang that runs at k sampled moments has a k-th of its weight at each: then the sum over moments is at most the weighted
leaves under any rule, since the places that a rule gives keep to this at every moment.

The bound leaves out that gangs do not move: at each moment they could lie anew. So it is far below what can be reached at
high loads.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from fairlead.simulation.topology.fabric import Fabric
from fairlead.simulation.topology.floors import LEAF, Run


def lower_bound(fabric: Fabric, run: Run, every: float = 4.0) -> float:
    """At most the mean of leaves over the ideal under any rule. every: time between sampled moments."""
    leaves = Counter(fabric.sizes)
    least = {nodes: _alone(nodes, leaves) for nodes in {nodes for nodes, *_ in run.intervals}}
    moments: dict[int, list[int]] = defaultdict(list)
    seen: list[int] = []
    for at, (_, start, end, _) in enumerate(run.intervals):
        inside = range(math.ceil(start / every), math.ceil(end / every))
        seen.append(len(inside))
        for moment in inside:
            moments[moment].append(at)
    total = sum(
        _weight(nodes) * least[nodes] for (nodes, _, _, counted), k in zip(run.intervals, seen, strict=True) if counted and not k
    )
    for gangs in moments.values():
        total += _moment(run, gangs, seen, leaves, least)
    return total / len(run.over_ideal)


def _weight(nodes: int) -> float:
    return 1 / math.ceil(nodes / LEAF)


def _alone(nodes: int, leaves: Counter[int]) -> int:
    """The fewest leaves for a gang that is alone."""
    found = 0
    for size in sorted(leaves.elements(), reverse=True):
        if nodes <= 0:
            break
        nodes, found = nodes - size, found + 1
    return found


def _moment(run: Run, gangs: list[int], seen: list[int], leaves: Counter[int], least: dict[int, int]) -> float:
    """At most the weighted leaves of the gangs that run at one moment, of those that are counted."""
    total, nodes_by_weight = 0.0, defaultdict[float, int](int)
    for at in gangs:
        nodes, _, _, counted = run.intervals[at]
        weight = _weight(nodes) / seen[at] if counted else 0.0
        total += weight * least[nodes]
        if nodes == least[nodes] * LEAF:
            nodes_by_weight[weight] += nodes
    # The nodes with the least weight are put on smaller leaves.
    excess = sum(nodes_by_weight.values()) - LEAF * leaves[LEAF]
    for weight, nodes in sorted(nodes_by_weight.items()):
        if excess <= 0:
            break
        share = min(excess, nodes)
        total += weight * share * (1 / (LEAF - 1) - 1 / LEAF)
        excess -= share
    return total

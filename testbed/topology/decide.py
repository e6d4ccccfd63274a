"""`fairlead bench topology --decide`: what one decision costs, a gang of 1,000 pods in 100 subgroups on racks that are in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from statistics import median

import msgspec
import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.topology.choose import choose
from fairlead.core.topology.request import Group, Placement, Request, Rules, Set, Shape
from fairlead.core.topology.tree import Tree
from testbed.topology.checker import broken

RACKS = 50
SUBGROUPS = 100
PODS = 1000


class Decided(msgspec.Struct):
    """Milliseconds by nodes, medians. decision_ms: the slowest kind of gang. by_kind: each kind; tree_ms: domains by labels.

    growth: at the largest number of nodes against the smallest. broken: rules that an answer did not keep.
    """

    racks: int
    subgroups: int
    pods: int
    rounds: int
    decision_ms: dict[str, float]
    by_kind: dict[str, dict[str, float]]
    tree_ms: dict[str, float]
    growth: float
    broken: int


def run(sizes: tuple[int, ...] = (5000, 10_000), rounds: int = 5, progress: Callable[[int, int], None] | None = None) -> Decided:
    """Alike subgroups; subgroups of different sizes; a leader and workers in each; each at every size."""
    by_kind: dict[str, dict[str, float]] = {}
    trees: dict[str, float] = {}
    faults = 0
    worlds = {nodes: _world(nodes) for nodes in sizes}
    for nodes, (labels, tree, _) in worlds.items():
        trees[str(nodes)] = _milliseconds(partial(Tree.of_labels, tree.names, labels), rounds)
    done = 0
    for kind, make in (("alike", _alike), ("different", _different), ("leader", _leader)):
        by_kind[kind] = {}
        for nodes, (labels, tree, fits) in worlds.items():
            request = make(fits)
            found = choose(tree, request)
            if not isinstance(found, Placement):
                raise TypeError(found.text)  # there are enough free nodes
            faults += bool(list(broken(labels, request, found)))
            by_kind[kind][str(nodes)] = _milliseconds(partial(choose, tree, request), rounds)
            done += 1
            if progress is not None:
                progress(done, 3 * len(sizes))
    slowest = {str(nodes): max(each[str(nodes)] for each in by_kind.values()) for nodes in sizes}
    growth = slowest[str(sizes[-1])] / slowest[str(sizes[0])]
    return Decided(RACKS, SUBGROUPS, PODS, rounds, slowest, by_kind, trees, growth, faults)


def _world(nodes: int) -> tuple[list[list[str | None]], Tree, Ints]:
    """Blocks of ten racks; of each rack a random part of the nodes is in use."""
    random = Random(nodes)
    racks = [row * RACKS // nodes for row in range(nodes)]
    labels: list[list[str | None]] = [[f"block-{rack // 10}" for rack in racks], [f"rack-{rack}" for rack in racks]]
    used = [random.uniform(0.1, 0.6) for _ in range(RACKS)]
    fits = np.array([0 if random.random() < used[rack] else 1 for rack in racks], np.int64)
    return labels, Tree.of_labels(["block", "rack"], labels), fits


_IN_RACK = Rules(required=1)
_NEAR = Rules(preferred=1)


def _alike(fits: Ints) -> Request:
    return Request((Shape(fits),), (Set((Group(0, PODS // SUBGROUPS),), _IN_RACK, SUBGROUPS),), _NEAR)


def _different(fits: Ints) -> Request:
    sizes = [5 + at % 11 for at in range(SUBGROUPS - 1)]
    sizes.append(PODS - sum(sizes))
    return Request((Shape(fits),), tuple(Set((Group(0, size),), _IN_RACK) for size in sizes), _NEAR)


def _leader(fits: Ints) -> Request:
    """A leader of half a node and nine workers of a whole one."""
    groups = (Group(1, 1), Group(0, PODS // SUBGROUPS - 1))
    return Request((Shape(fits), Shape(2 * fits)), (Set(groups, _IN_RACK, SUBGROUPS),), _NEAR)


def _milliseconds(call: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        found.append((time.process_time() - began) * 1000)
    return median(found)

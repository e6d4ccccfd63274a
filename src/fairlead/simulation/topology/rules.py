"""Rules that choose leaves for a gang of whole nodes: simple ones, Fairlead's, and one that knows when everything ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np

from fairlead.core.topology import select
from fairlead.core.topology.choose import choose
from fairlead.core.topology.request import Group, Placement, Request, Rules, Set, Shape
from fairlead.simulation.topology.fabric import Fabric

Places = dict[int, int]
"""Nodes by leaf."""


class Moment(NamedTuple):
    """What a rule is given. free: free nodes by leaf. ends: by leaf, when running gangs end there, and with how many nodes.

    now, end: the time, and when the gang will end; life: the mean time of a gang; only `clairvoyant` reads these, and `ends`.
    """

    free: list[int]
    nodes: int
    random: Random
    now: float
    end: float
    life: float
    ends: list[list[tuple[float, int]]]


Rule = Callable[[Fabric, Moment], Places]


def at_random(_fabric: Fabric, moment: Moment) -> Places:
    """Any free nodes."""
    slots = [leaf for leaf, free in enumerate(moment.free) for _ in range(free)]
    return dict(Counter(moment.random.sample(slots, moment.nodes)))


def first_fit(_fabric: Fabric, moment: Moment) -> Places:
    """Leaf after leaf."""
    found, left = {}, moment.nodes
    for leaf, free in enumerate(moment.free):
        if free and left:
            found[leaf] = min(left, free)
            left -= found[leaf]
    return found


def best_fit(fabric: Fabric, moment: Moment) -> Places:
    """The leaf with the least free nodes that holds all; else the block with the least, its largest leaves first."""
    return _fit(fabric, moment, best=True)


def worst_fit(fabric: Fabric, moment: Moment) -> Places:
    """The leaf with the most free nodes; what no leaf holds as by best fit."""
    return _fit(fabric, moment, best=False)


def _fit(fabric: Fabric, moment: Moment, *, best: bool) -> Places:
    free, nodes = moment.free, moment.nodes
    leaves = [leaf for leaf, some in enumerate(free) if some]
    holding = [leaf for leaf in leaves if free[leaf] >= nodes]
    if holding:
        return {(min if best else max)(holding, key=lambda leaf: free[leaf]): nodes}
    totals: Counter[str] = Counter()
    for leaf in leaves:
        totals[fabric.blocks[leaf]] += free[leaf]
    blocks = [block for block, total in totals.items() if total >= nodes]
    if blocks:
        chosen = min(blocks, key=lambda block: totals[block])
        leaves = [leaf for leaf in leaves if fabric.blocks[leaf] == chosen]
    leaves.sort(key=lambda leaf: -free[leaf])
    found: Places = {}
    while nodes:
        holding = [leaf for leaf in leaves if leaf not in found and free[leaf] >= nodes]
        leaf = (
            min(holding, key=lambda each: free[each])
            if holding
            else max((each for each in leaves if each not in found), key=lambda each: free[each])
        )
        found[leaf] = min(nodes, free[leaf])
        nodes -= found[leaf]
    return found


def fairlead(fabric: Fabric, moment: Moment) -> Places:
    """The search of `core/topology`, with the leaf as the preferred level."""
    tree = fabric.tree
    leaf_of = np.repeat(np.arange(len(fabric.sizes)), fabric.sizes)
    fits = (np.arange(tree.rows) - fabric.first[leaf_of] < np.array(moment.free)[leaf_of]).astype(np.int64)
    found = choose(tree, Request((Shape(fits),), (Set((Group(0, moment.nodes),)),), Rules(preferred=1)))
    if not isinstance(found, Placement):
        raise TypeError(found.text)  # there are enough free nodes
    places: Counter[int] = Counter()
    for place in found.sets[0]:
        places[int(leaf_of[place.row])] += place.pods
    return dict(places)


def clairvoyant(_fabric: Fabric, moment: Moment) -> Places:
    """The fewest leaves, those whose free nodes are worth least while the gang runs, by all departures that are to come."""
    wanted = moment.nodes
    leaves = [leaf for leaf, free in enumerate(moment.free) if free]
    units = np.array([moment.free[leaf] for leaf in leaves])
    asked = select.Units(units, np.ones(len(units), np.bool_), wanted, beyond=False)
    fewest = asked.fewest()
    needed = wanted - int(np.sort(units)[::-1][: fewest - 1].sum())
    keep = [leaf for leaf in leaves if moment.free[leaf] >= needed]
    units = np.array([moment.free[leaf] for leaf in keep])
    prices = np.full((1, len(keep), min(wanted, int(units.max())) + 1), 1e18)
    prices[:, :, 0] = 0.0
    for at, leaf in enumerate(keep):
        for nodes in range(wanted if fewest == 1 else 1, min(wanted, moment.free[leaf]) + 1):
            prices[0, at, nodes] = 1e4 + _forgone(moment, leaf, nodes)
    chosen = select.best(select.Units(units, np.ones(len(units), np.bool_), wanted, beyond=False), prices)
    return {keep[at]: int(nodes) for at, nodes in enumerate(chosen.given) if nodes}


def _forgone(moment: Moment, leaf: int, nodes: int) -> float:
    """What free nodes of a leaf would be worth, f ** 1.5 for f together, until the gang ends; later counts less."""
    decay, until = 0.3 * moment.life, moment.end - moment.now
    free, since, total = moment.free[leaf], 0.0, 0.0
    for end, held in [*sorted(moment.ends[leaf]), (moment.end, 0)]:
        at = min(end - moment.now, until)
        if at > since:
            total += (free**1.5 - (free - nodes) ** 1.5) * (np.exp(-since / decay) - np.exp(-at / decay))
        free, since = free + held, at
        if end >= moment.end:
            break
    return float(total)


RULES: dict[str, Rule] = {
    "random": at_random,
    "first-fit": first_fit,
    "worst-fit": worst_fit,
    "best-fit": best_fit,
    "fairlead": fairlead,
}

"""Small random instances: trees with missing and contradicting labels, gangs with levels, slices, equal parts, spares, copies."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import numpy as np

from fairlead.core.topology.request import Group, Request, Rules, Set, Shape, Slice
from fairlead.core.topology.tree import Tree


class Instance(NamedTuple):
    """labels: for each level the value of every row, or None: what the tree was built from."""

    labels: list[list[str | None]]
    tree: Tree
    request: Request


def draw(seed: int, *, several: bool = False) -> Instance:
    """One instance. several: sets of several shapes beside one another, too."""
    random = Random(seed)
    levels = random.choice((1, 2, 2, 3))
    rows = random.randint(2, 14)
    # Few values, each level's drawn by itself: the same rack in several blocks.
    labels: list[list[str | None]] = [
        [None if random.random() < missing else f"{'brn'[level]}{random.randint(1, random_values)}" for _ in range(rows)]
        for level in range(levels)
        for missing, random_values in [(random.choice((0.0, 0.0, 0.1)), random.choice((1, 2, 3, 4)))]
    ]
    names = ["block", "rack", "nvlink"][:levels] if levels > 1 else ["rack"]
    tree = Tree.of_labels(names, labels)
    most = random.choice((1, 1, 2, 4))
    shapes, sets = [], []
    for _ in range(random.choice((1, 2, 3)) if several else 1):
        fits = np.array([random.choice((0, *range(1, most + 1))) if random.random() < 0.6 else most for _ in range(rows)])
        shapes.append(Shape(fits))
    left = max(1, sum(int(each.fits.sum()) for each in shapes) // len(shapes))
    rules = _rules(random, levels, 0)
    for _ in range(random.choice((1, 2)) if several else 1):
        sets.append(_set(random, levels, rules, len(shapes), max(1, left)))
        left //= 2
    whole = np.array([random.random() < 0.7 for _ in range(rows)]) if random.random() < 0.3 else None
    return Instance(labels, tree, Request(tuple(shapes), tuple(sets), rules, None, whole))


def _rules(random: Random, levels: int, widest: int) -> Rules:
    required = random.randint(widest, levels - 1) if random.random() < 0.4 else None
    preferred = random.randint(required or widest, levels) if random.random() < 0.7 else None
    return Rules(required, preferred)


def _set(random: Random, levels: int, rules: Rules, shapes: int, most: int) -> Set:
    several = shapes > 1 and random.random() < 0.5
    own = _rules(random, levels, rules.required or 0) if random.random() < 0.4 else Rules()
    copies = random.choice((1, 1, 1, 2, 3))
    groups = []
    for _ in range(2 if several else 1):
        pods = random.randint(1, max(1, most // copies // (2 if several else 1)))
        slices: list[Slice] = []
        level, size = max(own.required or 0, rules.required or 0), pods
        for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
            level = random.randint(level, levels)
            sizes = [each for each in range(1, size + 1) if not slices or size % each == 0]
            size = random.choice(sizes)
            slices.append(Slice(level, size))
        groups.append(Group(random.randrange(shapes), pods, tuple(slices)))
    simple = len(groups) == 1
    return Set(tuple(groups), own, copies, simple and random.random() < 0.25, random.choice((0, 0, 0, 1)) if simple else 0)

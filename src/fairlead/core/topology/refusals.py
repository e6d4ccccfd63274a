"""Why a gang has no places: the domain with the most, and what it lacks."""

from __future__ import annotations

import numpy as np

from fairlead.core.topology.capacity import Capacity
from fairlead.core.topology.checks import alike
from fairlead.core.topology.request import Group, Refusal, Request, Set, Slice
from fairlead.core.topology.tree import Tree


def refusal_of(tree: Tree, request: Request) -> Refusal:
    """The refusal of a gang for which the search found no places, with numbers of the first group that fits nowhere alone."""
    for at, each in enumerate(request.sets):
        for group in each.groups:
            refused = _alone(tree, request, at, each, group)
            if refused is not None:
                return refused
    level = request.rules.required if request.rules.required is not None else -1
    if len(request.sets) == 1 and len(request.sets[0].groups) == 1:
        only = request.sets[0]
        if only.balanced:
            return Refusal("Balance", "the pods fit, but not in equal parts", level, at=0, wanted=_pods(only))
        text = f"one of {only.copies} sets of pods fits, not all"
        return Refusal("Sets", text, level, at=0, wanted=_pods(only), proven=only.copies == 1 or alike(only))
    return Refusal("Sets", "each group of pods fits alone, not all together", level, proven=False)


def _pods(each: Set) -> int:
    return sum(group.pods + each.spares for group in each.groups) * each.copies


def _alone(tree: Tree, request: Request, at: int, each: Set, group: Group) -> Refusal | None:
    """A refusal where a group has no places even if the rest of the gang had none."""
    fits = np.maximum(np.asarray(request.shapes[group.shape].fits, np.int64), 0)
    one = group.pods + each.spares
    wanted = one * each.copies
    most = int(fits.sum())
    if most < wanted:
        return Refusal("TooFew", f"the nodes take {most} of {wanted} pods", -1, -1, most, wanted, at)
    required, outer = each.rules.required, request.rules.required
    if required is not None:
        # One copy; without slices first: the number of pods is what a reader can count.
        for slices in ((), group.slices) if group.slices else ((),):
            refused = _nowhere(tree, Capacity(tree, slices, one, fits), required, one, at)
            if refused is not None:
                return refused
    whole = each.copies == 1 or (len(each.groups) == 1 and alike(each))
    chain = group.slices if whole else ()
    if required is not None and each.copies > 1 and whole:
        chain = (Slice(required, one), *chain)
    if outer is not None:
        for slices in ((), chain) if chain else ((),):
            refused = _nowhere(tree, Capacity(tree, slices, wanted, fits), outer, wanted, at)
            if refused is not None:
                return refused
    counted = Capacity(tree, chain, wanted, fits)
    if counted.fits(-1, 0):
        return None
    outermost = chain[0]
    units = int(counted.units[outermost.level].sum())
    needed = -(-wanted // outermost.size)
    text = f"the {_level(tree, outermost.level)}s take {units} of {needed} slices of {outermost.size} pods"
    return Refusal("Slices", text, outermost.level, -1, units * outermost.size, wanted, at)


def _nowhere(tree: Tree, capacity: Capacity, level: int, wanted: int, at: int) -> Refusal | None:
    """A refusal where no domain of a level takes so many pods, with the one that takes the most."""
    if bool((capacity.holds(level, wanted) & tree.named[level]).any()):
        return None
    pods = capacity.pods(level) * tree.named[level]
    best = int(pods.argmax())
    most = int(pods[best])
    sliced = " in whole slices" if len(capacity.chain) > 1 else ""
    text = f"{_level(tree, level)} {tree.name(level, best)} has {most} of {wanted}{sliced}"
    return Refusal("NoDomain", text, level, best, most, wanted, at)


def _level(tree: Tree, level: int) -> str:
    return tree.names[level] if level < tree.depth else "node"

"""Why a gang has no places: the domain with the most, and what it lacks."""

from __future__ import annotations

from fairlead.core.topology.capacity import Capacity
from fairlead.core.topology.request import Refusal, Request, Slice
from fairlead.core.topology.tree import Tree


def refusal_of(tree: Tree, request: Request) -> Refusal:
    """The refusal of a gang for which the search found no places, with numbers of the first group that fits nowhere alone."""
    outer = request.rules.required
    for at, each in enumerate(request.sets):
        for group in each.groups:
            fits = request.shapes[group.shape].fits
            wanted = group.pods * each.copies
            total = Capacity(tree, (), wanted, fits)
            most = int(total.units[0].sum())
            if most < wanted:
                return Refusal("TooFew", f"the nodes take {most} of {wanted} pods", -1, -1, most, wanted, at)
            required = each.rules.required
            slices = group.slices if required is None else (Slice(required, group.pods), *group.slices)
            if required is not None:
                refused = _nowhere(tree, Capacity(tree, group.slices, group.pods, fits), required, group.pods, at)
                if refused is not None:
                    return refused
            sliced = Capacity(tree, slices, wanted, fits)
            if outer is not None:
                refused = _nowhere(tree, sliced, outer, wanted, at)
                if refused is not None:
                    return refused
            if not sliced.fits(-1, 0):
                size = sliced.size_at(0)
                units = int(sliced.units[0].sum())
                level = slices[0].level
                name = tree.names[level] if level < tree.depth else "node"
                text = f"the {name}s take {units} of {-(-wanted // size)} slices of {size} pods"
                return Refusal("Slices", text, level, -1, units * size, wanted, at)
    return Refusal("Sets", "each set of pods fits alone, not all together", outer if outer is not None else -1, proven=False)


def _nowhere(tree: Tree, capacity: Capacity, level: int, wanted: int, at: int) -> Refusal | None:
    """A refusal where no domain of a level takes so many pods, with the one that takes the most."""
    if bool((capacity.holds(level, wanted) & tree.named[level]).any()):
        return None
    pods = capacity.pods(level) * tree.named[level]
    best = int(pods.argmax())
    most = int(pods[best])
    name = tree.names[level] if level < tree.depth else "node"
    return Refusal("NoDomain", f"{name} {tree.name(level, best)} has {most} of {wanted}", level, best, most, wanted, at)

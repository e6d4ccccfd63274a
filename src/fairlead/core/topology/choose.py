"""Places for a gang on a network with levels: the fewest domains, large free domains left whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.topology.capacity import Capacity
from fairlead.core.topology.checks import problem
from fairlead.core.topology.refusals import refusal_of
from fairlead.core.topology.remaining import Remaining
from fairlead.core.topology.request import Group, Place, Placement, Refusal, Request, Set, Slice
from fairlead.core.topology.spread import Spread
from fairlead.core.topology.tree import Tree


def choose(tree: Tree, request: Request) -> Placement | Refusal:
    """The best places found, or why there are none."""
    wrong = problem(tree, request)
    if wrong is not None:
        return wrong
    return next(_placements(tree, request), None) or refusal_of(tree, request)


def choices(tree: Tree, request: Request) -> Iterator[Placement]:
    """Places, the best first, each in another domain of the required level: for pods that do not fit as was counted."""
    if problem(tree, request) is None:
        yield from _placements(tree, request)


def _placements(tree: Tree, request: Request) -> Iterator[Placement]:
    """One placement for each domain of the gang's required level that has one."""
    level = request.rules.required
    if level is None:
        found = _within(tree, request, -1, 0)
        if found is not None:
            yield found
        return
    for domain in _candidates(tree, request, level):
        found = _within(tree, request, level, domain)
        if found is not None:
            yield found


def _candidates(tree: Tree, request: Request, level: int) -> list[int]:
    """The domains of a level that may hold the whole gang, those with the least left first."""
    enough = tree.named[level].copy()
    left: Ints = np.zeros(tree.sizes[level], np.int64)
    for each in request.sets:
        for group in each.groups:
            fits = np.asarray(request.shapes[group.shape].fits)
            remaining = np.bincount(tree.domain[level], weights=fits, minlength=len(left)).astype(np.int64)
            left += remaining - group.pods * each.copies
            enough &= remaining >= group.pods * each.copies
    found = np.flatnonzero(enough)
    return [int(at) for at in found[np.argsort(left[found], kind="stable")]]


def _within(tree: Tree, request: Request, level: int, domain: int) -> Placement | None:
    """Places for all sets in one domain, the hardest set first."""
    remaining = Remaining(request)
    sets: list[tuple[Place, ...]] = [()] * len(request.sets)
    for at in sorted(range(len(request.sets)), key=lambda at: _hardness(request.sets[at])):
        places = _set(tree, request, remaining, at, level, domain)
        if places is None:
            return None
        sets[at] = places
    return Placement(tuple(sets), _count(tree, request, sets))


def _hardness(each: Set) -> tuple[int, int]:
    """Sets with a required level and of many pods come first."""
    return (0 if each.rules.required is not None else 1, -sum(group.pods for group in each.groups))


def _set(tree: Tree, request: Request, remaining: Remaining, at: int, level: int, domain: int) -> tuple[Place, ...] | None:
    each = request.sets[at]
    preferred = each.rules.preferred if each.rules.preferred is not None else request.rules.preferred
    required = each.rules.required
    if len(each.groups) == 1:
        group = each.groups[0]
        # Copies that each lie in one domain are slices of one group.
        outer = () if required is None else (Slice(required, group.pods),)
        whole = Group(group.shape, group.pods * each.copies, (*outer, *group.slices))
        rows = _group(tree, remaining, whole, preferred, level, domain)
        return None if rows is None else tuple(_copies(rows, group.pods))
    found: list[Place] = []
    for copy in range(each.copies):
        homes = [(level, domain)] if required is None else _homes(tree, remaining, each, required, level, domain)
        for home in homes:
            places = _groups(tree, remaining, each, preferred, home, copy)
            if places is not None:
                found.extend(places)
                break
        else:
            return None
    return tuple(found)


def _homes(tree: Tree, remaining: Remaining, each: Set, required: int, level: int, domain: int) -> list[tuple[int, int]]:
    """The domains that may hold one copy of a set, those with the least left first."""
    enough = tree.named[required].copy()
    low, high = tree.inside(level, domain, required)
    enough[:low] = enough[high:] = False
    left: Ints = np.zeros(len(enough), np.int64)
    for group in each.groups:
        pods = np.bincount(tree.domain[required], weights=remaining.fits[group.shape], minlength=len(enough)).astype(np.int64)
        left += pods - group.pods
        enough &= pods >= group.pods
    found = np.flatnonzero(enough)
    return [(required, int(at)) for at in found[np.argsort(left[found], kind="stable")]]


def _groups(
    tree: Tree, remaining: Remaining, each: Set, preferred: int | None, home: tuple[int, int], copy: int
) -> list[Place] | None:
    """One copy of a set in one domain, group after group; what was put is taken back where one does not fit."""
    found: list[Place] = []
    for number, group in enumerate(each.groups):
        rows = _group(tree, remaining, group, preferred, *home)
        if rows is None:
            for place in found:
                remaining.take_back(place.row, each.groups[place.group].shape, place.pods)
            return None
        found.extend(Place(row, number, pods, copy) for row, pods in rows)
    return found


def _group(
    tree: Tree, remaining: Remaining, group: Group, preferred: int | None, level: int, domain: int
) -> list[tuple[int, int]] | None:
    """Rows for one group in one domain, put there; None: it does not fit."""
    capacity = Capacity(tree, group.slices, group.pods, remaining.fits[group.shape])
    if not capacity.fits(level, domain):
        return None
    rows = list(Spread(capacity, preferred).rows(level, domain, group.pods))
    for row, pods in rows:
        remaining.put(row, group.shape, pods)
    return rows


def _copies(rows: list[tuple[int, int]], count: int) -> Iterator[Place]:
    """Places of one group after another, each of so many pods."""
    copy, left = 0, count
    for row, pods in rows:
        while pods:
            share = min(pods, left)
            yield Place(row, 0, share, copy)
            pods, left = pods - share, left - share  # noqa: PLW2901
            if not left:
                copy, left = copy + 1, count


def _count(tree: Tree, request: Request, sets: list[tuple[Place, ...]]) -> int:
    """The domains of the gang's preferred level that are used; of the narrowest level with labels, where it has none."""
    level = request.rules.preferred if request.rules.preferred is not None else max(tree.depth - 1, 0)
    return len({int(tree.domain[level][place.row]) for places in sets for place in places})

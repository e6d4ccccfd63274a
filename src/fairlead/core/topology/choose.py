"""Places for a gang on a network with levels: the fewest domains, and large free domains stay whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fairlead.core.model.arrays import Mask
from fairlead.core.topology.capacity import Capacity
from fairlead.core.topology.checks import alike, problem
from fairlead.core.topology.loss import Loss
from fairlead.core.topology.refusals import refusal_of
from fairlead.core.topology.remaining import Remaining
from fairlead.core.topology.request import Group, Place, Placement, Refusal, Request, Set, Slice
from fairlead.core.topology.spread import NoBalance, Spread
from fairlead.core.topology.tree import Tree


def choose(tree: Tree, request: Request) -> Placement | Refusal:
    """The best places found, or why there are none."""
    wrong = problem(tree, request)
    if wrong is not None:
        return wrong
    return next(_Search(tree, request).placements(), None) or refusal_of(tree, request)


def choices(tree: Tree, request: Request) -> Iterator[Placement]:
    """Places, the best first, each in another domain of the required level: for pods that do not fit as was counted."""
    if problem(tree, request) is None:
        yield from _Search(tree, request).placements()


_Home = tuple[int, int]
"""A level and a domain; level -1: the whole tree."""

_EVERYWHERE: _Home = (-1, 0)


@dataclass
class _Search:
    """One search. losses: by shape; they are those before the gang has any place."""

    tree: Tree
    request: Request
    remaining: Remaining = field(init=False)
    used: set[int] = field(init=False, default_factory=set)
    _counted: tuple[tuple[object, ...], Capacity] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        request = self.request
        self.remaining = Remaining(request)
        whole: Mask = np.zeros(self.tree.rows, np.bool_)
        if request.whole is not None:
            whole |= request.whole
        else:
            for fits in self.remaining.fits:
                whole |= fits > 0
        self.losses = [Loss(self.tree, fits, whole) for fits in self.remaining.fits]

    def placements(self) -> Iterator[Placement]:
        """One placement for each domain of the gang's required level that has one, the best domain first."""
        level = self.request.rules.required
        homes = [_EVERYWHERE] if level is None else self._homes(self.request.sets, level, _EVERYWHERE, all_copies=True)
        for home in homes:
            found = self._within(home)
            if found is not None:
                yield found

    def _within(self, home: _Home) -> Placement | None:
        """Places for all sets in one domain, the hardest set first."""
        self.used.clear()
        self.remaining.reset()
        sets = self.request.sets
        found: list[tuple[Place, ...]] = [()] * len(sets)
        for at in sorted(range(len(sets)), key=lambda at: _hardness(sets[at])):
            try:
                places = self._set(sets[at], home)
            except NoBalance:
                return None
            if places is None:
                return None
            found[at] = tuple(places)
            target = self._target(self.request.rules.preferred)
            self.used.update(int(self.tree.domain[target][place.row]) for place in places)
        return Placement(tuple(found), len(self.used))

    def _target(self, preferred: int | None) -> int:
        return preferred if preferred is not None else max(self.tree.depth - 1, 0)

    def _homes(self, sets: tuple[Set, ...], level: int, home: _Home, *, all_copies: bool) -> list[_Home]:
        """The domains of a level in another one that may hold sets, those with the fewest domains first, then the least loss."""
        tree = self.tree
        low, high = tree.inside(*home, level)
        enough = tree.named[level][low:high].copy()
        domains = np.arange(low, high)
        lost = np.zeros(high - low)
        spreads: list[tuple[Spread, int]] = []
        for each in sets:
            for group in each.groups:
                pods = (group.pods + each.spares) * (each.copies if all_copies else 1)
                capacity = self._capacity(_chain(each, group, copies=all_copies), pods, group.shape)
                enough &= capacity.holds(level, pods)[low:high]
                lost += self.losses[group.shape].of(level, domains, np.array([pods]))[:, 0]
                spreads.append((self._spread(capacity, each, group), pods))
        able = (domains[enough]).tolist()
        fewest = {at: sum(spread.domains(level, at, pods) for spread, pods in spreads if level < spread.target) for at in able}
        target = self._target(self.request.rules.preferred)
        new = {at: level == target and at not in self.used for at in able}
        able.sort(key=lambda at: (fewest[at], new[at], lost[at - low], at))
        return [(level, at) for at in able]

    def _capacity(self, chain: tuple[Slice, ...], pods: int, shape: int) -> Capacity:
        """Counted once, as long as nothing is put anywhere."""
        key = (self.remaining.changes, chain, pods, shape)
        if self._counted is None or self._counted[0] != key:
            self._counted = (key, Capacity(self.tree, chain, pods, self.remaining.fits[shape]))
        return self._counted[1]

    def _spread(self, capacity: Capacity, each: Set, group: Group) -> Spread:
        rules = self.request.rules
        preferred = each.rules.preferred if each.rules.preferred is not None else rules.preferred
        used = frozenset(self.used if each.rules.preferred is None and rules.preferred is not None else ())
        return Spread(capacity, self.losses[group.shape], preferred, balanced=each.balanced, used=used)

    def _set(self, each: Set, home: _Home) -> list[Place] | None:
        required = each.rules.required
        if len(each.groups) == 1 and (each.copies == 1 or alike(each)):
            # Copies are slices of one group.
            homes = [home] if required is None or each.copies > 1 else self._homes((each,), required, home, all_copies=True)
            for one in homes:
                places = self._group(each, 0, one, each.copies, 0)
                if places is not None:
                    return places
            return None
        found: list[Place] = []
        for copy in range(each.copies):
            homes = [home] if required is None else self._homes((each,), required, home, all_copies=False)
            for one in homes:
                places = self._groups(each, one, copy)
                if places is not None:
                    found.extend(places)
                    break
            else:
                self._take_back(each, found)
                return None
        return found

    def _groups(self, each: Set, home: _Home, copy: int) -> list[Place] | None:
        """One copy of a set in one domain, group after group; what was put is taken back where one does not fit."""
        found: list[Place] = []
        for number in range(len(each.groups)):
            places = self._group(each, number, home, 1, copy)
            if places is None:
                self._take_back(each, found)
                return None
            found.extend(places)
        return found

    def _take_back(self, each: Set, places: list[Place]) -> None:
        for place in places:
            self.remaining.take_back(place.row, each.groups[place.group].shape, place.pods)

    def _group(self, each: Set, number: int, home: _Home, copies: int, copy: int) -> list[Place] | None:
        """Places for copies of one group in one domain, put there; None: they do not fit. Raises `NoBalance`."""
        group = each.groups[number]
        pods = group.pods + each.spares
        capacity = self._capacity(_chain(each, group, copies=copies > 1), pods * copies, group.shape)
        if not capacity.fits(*home):
            return None
        rows = list(self._spread(capacity, each, group).rows(*home, pods * copies))
        for row, amount in rows:
            self.remaining.put(row, group.shape, amount)
        return list(_ranked(rows, number, copy, group.pods, each.spares))


def _hardness(each: Set) -> tuple[int, int, int]:
    """Sets with a required level, with slices and of many pods come first."""
    pods = sum(group.pods for group in each.groups)
    return (each.rules.required is None, not any(group.slices for group in each.groups), -pods)


def _chain(each: Set, group: Group, *, copies: bool) -> tuple[Slice, ...]:
    if not copies or each.rules.required is None:
        return group.slices
    size = group.pods + each.spares
    if group.slices and each.copies == 1:
        size = -(-size // group.slices[0].size) * group.slices[0].size  # the last slice may have fewer pods
    return (Slice(each.rules.required, size), *group.slices)


def _ranked(rows: list[tuple[int, int]], group: int, copy: int, pods: int, spares: int) -> Iterator[Place]:
    """Rows in the order of ranks as places of one copy after another, each of so many pods and spares."""
    left, spare = pods, False
    for row, amount in rows:
        while amount:
            share = min(amount, left)
            yield Place(row, group, share, copy, spare)
            amount, left = amount - share, left - share  # noqa: PLW2901
            if not left:
                if not spare and spares:
                    left, spare = spares, True
                else:
                    copy, left, spare = copy + 1, pods, False

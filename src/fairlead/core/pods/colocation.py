"""Colocation: members of a gang that must be near one another, while there is no such pod yet to be near to.

By the rules of pod affinity the first of its kind may go anywhere and binds all others to its domain. Its best row is
therefore a poor guide for a gang: the domain must hold all of them. So domain after domain is tried, best row first,
among those that could hold every member by counting, and the members that bind the others are placed first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import Domains, Ints, Mask
from fairlead.core.pods.filters.pod_affinity import PodAffinity
from fairlead.core.pods.pairs import PodCount
from fairlead.core.pods.ranking import Ranking
from fairlead.core.pods.tasks import Task

_ATTEMPTS = 64
"""So many choices of domains are tried; each costs as much as placing the gang. More are only there where rules on top
of affinity keep a gang out of domains with enough capacity."""


class Homes(NamedTuple):
    """One choice of domains. outside: by shape number, the rows it may not have. founders: shapes to be placed first."""

    outside: dict[int, Mask]
    founders: frozenset[int]


class Kin:
    """Shapes of a gang that must share a domain of one topology key. counts: how many pods of each."""

    def __init__(self, count: PodCount, founder: PodAffinity) -> None:
        self.count = count
        self.topology = max((tally.topology for tally in founder.near), key=lambda each: len(each.values))
        self.shapes: dict[int, Ranking] = {}
        self.founders: set[int] = set()
        self.counts: Counter[int] = Counter()

    def add(self, ranking: Ranking, count: int) -> None:
        """Pods of this shape must share the domain."""
        self.shapes[ranking.shape.number] = ranking
        self.counts[ranking.shape.number] = count

    @property
    def domain(self) -> Domains:
        """The domain of every row, shape (rows,)."""
        return self.topology.domain[: next(iter(self.shapes.values())).nodes.count]

    def _capacity(self, ranking: Ranking) -> Ints:
        """How many pods of a shape each domain holds, by amounts; shape (domains,), the first for rows without the key."""
        return np.bincount(self.domain, weights=ranking.counts(), minlength=max(2, len(self.topology.values))).astype(np.int64)

    def domains(self) -> Iterator[int]:
        """The domains that could hold all of them, by amounts; those with the best rows first."""
        size = max(2, len(self.topology.values))
        enough = np.ones(size, np.bool_)
        enough[0] = False
        best: Ints = np.full(size, -1, np.int64)
        for number, ranking in self.shapes.items():
            enough &= self._capacity(ranking) >= self.counts[number]
            np.maximum.at(best, self.domain, ranking.ranked())
        found = np.flatnonzero(enough)
        yield from found[np.argsort(-best[found], kind="stable")].tolist()

    def most(self) -> tuple[str, int, int]:
        """The topology key, how many must share a domain, and the most that one holds of the shape that lacks most."""
        held = {number: int(self._capacity(ranking)[1:].max()) for number, ranking in self.shapes.items()}
        tightest = min(held, key=lambda number: held[number] - self.counts[number])
        return self.topology.key, self.counts[tightest], min(held[tightest], self.counts[tightest])


def kin(tasks: Sequence[Task]) -> list[Kin]:
    """Those of a gang's needed members whose first will bind the others to its domain, group by group."""
    rankings = {task.shape.number: task.ranking for task in tasks}
    numbers = Counter(task.shape.number for task in tasks)
    groups: dict[int, Kin] = {}
    for number, ranking in rankings.items():
        for relation in ranking.relations:
            if not isinstance(relation, PodAffinity) or not relation.near or not relation.deserted():
                continue
            count = relation.counts[0]
            group = groups.setdefault(id(count), Kin(count, relation))
            group.add(ranking, numbers[number])
            if relation.may_be_first:
                group.founders.add(number)
    for group in groups.values():
        if group.founders:
            continue
        # None of them may be the first: they follow members that have no such term themselves.
        for number, ranking in rankings.items():
            labels = ranking.shape.labels
            if number not in group.shapes and labels is not None and group.count in labels.counts:
                group.add(ranking, numbers[number])
                group.founders.add(number)
    return [group for group in groups.values() if sum(group.counts.values()) > 1]


def homes(groups: Sequence[Kin]) -> Iterator[Homes]:
    """The choices of domains to be tried, one for each group; none if some group fits nowhere together."""
    founders = frozenset(number for group in groups for number in group.founders)
    for chosen in islice(product(*(list(group.domains()) for group in groups)), _ATTEMPTS):
        outside: dict[int, Mask] = {}
        for group, domain in zip(groups, chosen, strict=True):
            away = group.domain != domain
            for number in group.shapes:
                outside[number] = outside[number] | away if number in outside else away
        yield Homes(outside, founders)

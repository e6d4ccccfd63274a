"""The network between nodes: which domain of a level each node is in, and where the members of gangs are.

A NodePool names the levels of its nodes' network, from the widest to the narrowest, each with a label of nodes. A domain is what
the values of the labels of its level and of all wider ones name together: racks with the same name in two blocks are two racks.
A node that lacks one of these labels is in no domain of the level. Columns of domains are kept up to date by `Topologies`, for
those levels that some gang names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fairlead.api.names import CLIQUE_LABEL, COMPUTE_DOMAIN_LABEL
from fairlead.core.model.arrays import Mask
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.pods import Near
from fairlead.core.model.selectors import matches
from fairlead.core.model.undo import UndoLog, new_version
from fairlead.core.nodes.topology import Topology
from fairlead.core.topology.tree import Tree

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable

BUILT_IN = (CLIQUE_LABEL,)
"""Labels that are levels whether a pool names them or not."""

_KEY = "\0network"  # no label key begins so
_Paths = Callable[[str, Mapping[str, str]], tuple[str, ...] | None]


class Level(Topology):
    """The domains of a level, or of several together; 0: the node is in none. levels: as they are referred to."""

    def __init__(self, levels: tuple[str, ...], capacity: int, paths: _Paths) -> None:
        super().__init__("\0".join((_KEY, *levels)), capacity)
        self.levels = levels
        self._paths = paths
        self._domains: dict[tuple[str, ...], int] = {}
        self._called: Counter[str] = Counter()  # how many domains end in a value

    @override
    def set(self, row: int, labels: Mapping[str, str]) -> None:
        found: list[str] = []
        for level in self.levels:
            path = self._paths(level, labels)
            values = [labels.get(label) for label in path] if path is not None else [None]
            if None in values:
                self.domain[row] = 0
                return
            found += [f"{label}={value}" for label, value in zip(path or (), values, strict=True)]
        domain = tuple(dict.fromkeys(found))
        number = self._domains.get(domain)
        if number is None:
            number = self._domains[domain] = len(self.values)
            self.values.append(domain[-1].partition("=")[2])
            self._called[self.values[-1]] += 1
        self.domain[row] = number

    def name(self, number: int) -> str:
        """What a domain is called: the value of its label, with those of wider levels where that is not enough."""
        value = self.values[number]
        if self._called[value] == 1:
            return value
        path = next(path for path, known in self._domains.items() if known == number)
        return "/".join(each.partition("=")[2] for each in path)


class Seats:
    """Where the members of one gang are. rows: row -> how many; rows that once counted may remain with 0.

    home: of which level, at which versions of this and of labels, and the domain.
    """

    __slots__ = ("home", "rows", "version")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.home: tuple[Level | None, int, int, int] = (None, 0, 0, 0)
        self.version = new_version()


class Network:
    """The levels of all pools, and where members of gangs are that are to be close to one another.

    version: raised when levels are others.
    """

    def __init__(self, log: UndoLog, nodes: NodeTable) -> None:
        self._log = log
        self._nodes = nodes
        self.pools: dict[str, NodePool] = {}
        self.version = 0
        self.asked = False  # whether a pod has ever asked for anything of it
        self._levels: dict[tuple[str, ...], Level] = {}
        self._trees: dict[tuple[str, ...], tuple[tuple[int, int, int], Tree]] = {}
        self._seats: dict[str, Seats] = {}
        self._within: dict[str, Mask] = {}
        self._members: dict[int, dict[str, int]] = {}  # row -> UID of a ComputeDomain -> how many of its pods have places there

    # -- events --------------------------------------------------------------------------------

    def upsert_pool(self, pool: NodePool) -> None:
        """A node pool came or changed."""
        before = self.pools.get(pool.name)
        if before == pool:
            return
        self.pools[pool.name] = pool
        if pool.levels or (before is not None and before.levels):
            self._renew()

    def remove_pool(self, name: str) -> None:
        """A node pool is gone."""
        before = self.pools.pop(name, None)
        if before is not None and before.levels:
            self._renew()

    def _renew(self) -> None:
        """Levels are others: their domains are found anew for all nodes, and what waits for one may start."""
        for level in self._levels.values():
            self._nodes.topologies.drop(level.key)
        self._levels.clear()
        self._trees.clear()
        self.version = new_version()

    def seat(self, near: Near, row: int, by: int) -> None:
        """A pod has a place on a row (1) or leaves it (-1)."""
        if near.gang:
            self._seat(near.gang, row, by)
        if near.domain:
            self._seat(_seats_of(near.domain), row, by)
            members = self._members.setdefault(row, {})
            self._log.add(members, near.domain, by)
            if not self._log.depth and not any(members.values()):
                del self._members[row]

    def _seat(self, gang: str, row: int, by: int) -> None:
        seats = self._seats.get(gang)
        if seats is None:
            seats = self._seats[gang] = Seats()
            self._log.call(self._forget, gang)
        self._log.add(seats.rows, row, by)
        self._log.renew(seats)
        if not self._log.depth and not any(seats.rows.values()):
            del self._seats[gang]

    def _forget(self, gang: str) -> None:
        self._seats.pop(gang, None)

    def recount(self, seated: Iterator[tuple[Near, int]]) -> None:
        """Count anew where pods are that are to be close to others. seated: of each that has a place, with its row."""
        self._within.clear()
        self._seats.clear()
        self._members.clear()
        for near, row in seated:
            self.seat(near, row, 1)

    def problems(self, seated: Iterable[tuple[Near, int]]) -> list[str]:
        """What is counted otherwise than pods with places are. seated: of each, with its row."""
        expected = Network(UndoLog(), self._nodes)
        for near, row in seated:
            expected.seat(near, row, 1)

        def counted(seats: dict[str, Seats], members: dict[int, dict[str, int]]) -> list[object]:
            rows = {gang: {row: count for row, count in each.rows.items() if count} for gang, each in seats.items()}
            domains = {row: {uid: count for uid, count in each.items() if count} for row, each in members.items()}
            return [{gang: each for gang, each in rows.items() if each}, {row: each for row, each in domains.items() if each}]

        if counted(expected._seats, expected._members) == counted(self._seats, self._members):
            return []
        return ["members of gangs are counted on other rows than where they have places"]

    # -- questions -----------------------------------------------------------------------------

    def _path(self, level: str, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """The labels that name a domain of a level on a node with these labels, widest first; None: it has no such level.

        Of pools that share a node, the first by name counts which has the level.
        """
        for _, pool in sorted(self.pools.items()):
            if not pool.levels or not matches(pool.nodes, labels):
                continue
            for number, each in enumerate(pool.levels):
                if level in (each.name, each.label):
                    return tuple(each.label for each in pool.levels[: number + 1])
        return (level,) if level in BUILT_IN else None

    def knows(self, level: str) -> bool:
        """Whether some pool has a level, by its name or its label."""
        return level in BUILT_IN or any(level in (each.name, each.label) for pool in self.pools.values() for each in pool.levels)

    def path(self, labels: Mapping[str, str]) -> list[tuple[str, str]]:
        """(level, domain) of a node with these labels, widest first, by the first pool by name that has levels and it.

        A domain is written as its path, `block/rack`. A level of which the node lacks a label is left out, narrower ones too.
        """
        for _, pool in sorted(self.pools.items()):
            if not pool.levels or not matches(pool.nodes, labels):
                continue
            found: list[tuple[str, str]] = []
            for each in pool.levels:
                value = labels.get(each.label)
                if value is None:
                    break
                found.append((each.name, f"{found[-1][1]}/{value}" if found else value))
            return found
        return []

    @property
    def names(self) -> list[str]:
        """The names of all levels of all pools."""
        return sorted({each.name for pool in self.pools.values() for each in pool.levels})

    def level(self, *levels: str) -> Level:
        """The domains of a level, or of several together, from now on kept up to date."""
        made = self._levels.get(levels)
        if made is None:
            made = self._levels[levels] = Level(levels, 0, self._path)
            self._nodes.topologies.keep(made)
        return made

    def tree(self, levels: Sequence[Level]) -> Tree:
        """The domains of these levels as a tree, the first the widest; made anew once labels, nodes or levels have changed."""
        key, count = tuple(level.key for level in levels), self._nodes.count
        version = self._nodes.topologies.version, self.version, count
        known = self._trees.get(key)
        if known is None or known[0] != version:
            codes = [level.domain[:count].astype(np.int64) for level in levels]
            made = Tree([level.levels[-1] for level in levels], codes, [level.values for level in levels], count)
            known = self._trees[key] = version, made
        return known[1]

    def seats_version(self, gang: str) -> int:
        """Changes when a member comes to have a place or leaves it."""
        seats = self._seats.get(gang)
        return 0 if seats is None else seats.version

    def home(self, gang: str, level: Level) -> int:
        """The domain where a gang's members are; 0: none is anywhere. Where they are in several, that of most, the first by name.

        That is so only after labels of nodes have changed under running pods, or levels have.
        """
        seats, labels = self._seats.get(gang), self._nodes.topologies.version
        if seats is None:
            return 0
        if seats.home[:3] == (level, seats.version, labels):
            return seats.home[3]
        held: dict[int, int] = {}
        for row, count in seats.rows.items():
            domain = level.domain.item(row)
            if count > 0 and domain:
                held[domain] = held.get(domain, 0) + count
        home = min(held, key=lambda domain: (-held[domain], level.name(domain))) if held else 0
        seats.home = level, seats.version, labels, home
        return home

    def closed(self, near: Near) -> Mask | None:
        """For each row whether a pod may not have it, for its gang or its ComputeDomain; None: none is."""
        closed, other = self.apart(near), self.joined(near)
        return closed if other is None else other if closed is None else closed | other

    def apart(self, near: Near) -> Mask | None:
        """For each row whether members of a gang may not have it: it is outside of their domain, or of where they are tried.

        None: none is.
        """
        count = self._nodes.count
        within = self._within.get(near.gang)
        closed: Mask | None = ~within if within is not None else None
        if near.required:
            level = self.level(*near.required)
            home = self.home(near.gang, level)
            domain = level.domain[:count]
            outside: Mask = (domain != home) if home else (domain == 0)
            closed = outside if closed is None else closed | outside
        return closed

    def apart_row(self, near: Near, row: int) -> bool:
        """The same for one row."""
        within = self._within.get(near.gang)
        if within is not None and not within[row]:
            return True
        if not near.required:
            return False
        level = self.level(*near.required)
        domain = level.domain.item(row)
        return not domain or self.home(near.gang, level) not in (0, domain)

    # -- ComputeDomains ------------------------------------------------------------------------

    def clique(self, domain: str) -> int:
        """The clique where the pods of a ComputeDomain are; 0: none is anywhere."""
        return self.home(_seats_of(domain), self.level(CLIQUE_LABEL))

    def joined(self, near: Near) -> Mask | None:
        """For each row whether a pod of a ComputeDomain may not have it; None: it is in none.

        It is in no clique, in another than other pods of the domain, or in another domain: by its label, or by pods with places.
        """
        if not near.domain:
            return None
        count, clique = self._nodes.count, self.clique(near.domain)
        cliques = self.level(CLIQUE_LABEL).domain[:count]
        closed: Mask = (cliques != clique) if clique else (cliques == 0)
        labels = self._nodes.topologies.of(COMPUTE_DOMAIN_LABEL)
        closed |= (labels.domain[:count] != 0) & (labels.domain[:count] != labels.number(near.domain))
        closed[[row for row in self._members if self.others(near.domain, row)]] = True
        return closed

    def joined_row(self, near: Near, row: int) -> bool:
        """The same for one row."""
        clique, here = self.clique(near.domain), self.level(CLIQUE_LABEL).domain.item(row)
        return not here or clique not in (0, here) or self.other_label(near.domain, row) or self.others(near.domain, row)

    def other_label(self, domain: str, row: int) -> bool:
        """Whether the label of a node names another ComputeDomain."""
        labels = self._nodes.topologies.of(COMPUTE_DOMAIN_LABEL)
        return labels.domain.item(row) not in (0, labels.number(domain))

    def domain_version(self, domain: str) -> int:
        """Changes when a pod of a ComputeDomain comes to have a place or leaves it."""
        return self.seats_version(_seats_of(domain))

    def others(self, domain: str, row: int) -> bool:
        """Whether pods of another ComputeDomain have places on a row."""
        return any(count > 0 and each != domain for each, count in self._members.get(row, {}).items())

    def is_confined(self, gang: str) -> bool:
        """Whether a gang is tried on some rows only."""
        return gang in self._within

    @contextmanager
    def within(self, gang: str, rows: Mask) -> Iterator[None]:
        """In this context members of a gang have only these rows, shape (rows,)."""
        before = self._within.get(gang)
        self._within[gang] = rows if before is None else before & rows
        try:
            yield
        finally:
            if before is None:
                self._within.pop(gang, None)
            else:
                self._within[gang] = before


def _seats_of(domain: str) -> str:
    """What the pods of a ComputeDomain are counted under; no gang is called so."""
    return f"ComputeDomain:{domain}"


def rows_in(level: Level, domain: int, count: int) -> Mask:
    """The rows of a domain, shape (rows,)."""
    mask: Mask = level.domain[:count] == domain
    return mask

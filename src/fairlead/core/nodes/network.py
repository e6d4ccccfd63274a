"""The network between nodes: which domain of a level each node is in, and where the members of gangs are.

A NodePool names the levels of its nodes' network, from the widest to the narrowest, each with a label of nodes. A domain is what
the values of the labels of its level and of all wider ones name together: racks with the same name in two blocks are two racks.
A node that lacks one of these labels is in no domain of the level. Columns of domains are kept up to date by `Topologies`, for
those levels that some gang names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from fairlead.api.names import CLIQUE_LABEL, HOSTNAME_LABEL
from fairlead.core.model.arrays import Mask
from fairlead.core.model.network_labels import label_of, level_of, names_label
from fairlead.core.model.nodes import NodePool
from fairlead.core.model.pods import Near
from fairlead.core.model.selectors import matches
from fairlead.core.model.undo import UndoLog, new_version
from fairlead.core.nodes.joined_domains import JoinedDomains, seats_of
from fairlead.core.nodes.topology import Topology
from fairlead.core.topology.tree import Tree

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable

BUILT_IN = (CLIQUE_LABEL, HOSTNAME_LABEL)
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
    """Where the members of one gang, or of a part of one, are. rows: row -> how many; rows that once counted may remain with 0.

    slices: of a role, the outermost slices that have members with places. home: of which level, at which versions of this and of
    labels, and the domain.
    """

    __slots__ = ("home", "rows", "slices", "version")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        self.slices: dict[str, int] = {}
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
        self.domains = JoinedDomains(
            log, nodes, lambda: self.level(CLIQUE_LABEL), lambda members: self.home(members, self.level(CLIQUE_LABEL))
        )

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
        if near.team:
            self._seat(near.team, row, by, near.slices[0].key if near.slices else "")
            for each in near.slices:
                self._seat(each.key, row, by)
        if near.domain:
            self._seat(seats_of(near.domain), row, by)
            self.domains.seat(near.domain, row, by)

    def _seat(self, gang: str, row: int, by: int, outermost: str = "") -> None:
        seats = self._seats.get(gang)
        if seats is None:
            seats = self._seats[gang] = Seats()
            self._log.call(self._forget, gang)
        self._log.add(seats.rows, row, by)
        if outermost:
            self._log.add(seats.slices, outermost, by)
        self._log.renew(seats)
        if not self._log.depth and not any(seats.rows.values()):
            del self._seats[gang]

    def _forget(self, gang: str) -> None:
        self._seats.pop(gang, None)

    def recount(self, seated: Iterator[tuple[Near, int]]) -> None:
        """Count anew where pods are that are to be close to others. seated: of each that has a place, with its row."""
        self._within.clear()
        self._seats.clear()
        self.domains.members.clear()
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

        if counted(expected._seats, expected.domains.members) == counted(self._seats, self.domains.members):
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
                if level in (each.name, each.label, level_of(each.label)):
                    return tuple(each.label for each in pool.levels[: number + 1])
        return (label_of(level),) if level in BUILT_IN or names_label(level) else None

    def knows(self, level: str) -> bool:
        """Whether some pool has a level, by its name or its label."""
        if level in BUILT_IN or names_label(level):
            return True
        return any(level in (each.name, each.label) for pool in self.pools.values() for each in pool.levels)

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
            made = Tree([label_of(level.levels[-1]) for level in levels], codes, [level.values for level in levels], count)
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
        return _either(self.apart(near), self.domains.closed(near))

    def closed_to_all(self, near: Near) -> Mask | None:
        """The same whatever is evicted there: pods of another ComputeDomain may be, and the node leaves that with the last."""
        return _either(self.apart(near), self.domains.closed_to_all(near))

    def apart(self, near: Near) -> Mask | None:
        """For each row whether members of a gang may not have it: it is outside of their domain, or of where they are tried.

        None: none is.
        """
        count = self._nodes.count
        within = self._within.get(near.gang)
        closed: Mask | None = ~within if within is not None else None
        for key, level in self._together(near):
            home = self.home(key, level)
            domain = level.domain[:count]
            outside: Mask = (domain != home) if home else (domain == 0)
            closed = outside if closed is None else closed | outside
        if near.even and (full := self._uneven(near)) is not None:
            level = self.level(near.even)
            outside = np.isin(level.domain[:count], full)
            closed = outside if closed is None else closed | outside
        return closed

    def _together(self, near: Near) -> Iterator[tuple[str, Level]]:
        """What a pod belongs to that is in one domain, and of which level."""
        if near.required:
            yield near.gang, self.level(*near.required)
        for part in near.parts:
            yield part.key, self.level(part.level)

    def units(self, near: Near) -> dict[int, int]:
        """Of the level of equal parts, how many units of a role each domain has: outermost slices, or members."""
        seats, found = self._seats.get(near.team), dict[int, int]()
        if seats is None:
            return found
        column = self.level(near.even).domain
        if near.slices:
            for key, count in seats.slices.items():
                if count > 0:
                    domain = next((column.item(row) for row, here in self._seats[key].rows.items() if here > 0), 0)
                    found[domain] = found.get(domain, 0) + 1
            return found
        for row, count in seats.rows.items():
            if count > 0:
                found[column.item(row)] = found.get(column.item(row), 0) + count
        return found

    def _uneven(self, near: Near) -> list[int] | None:
        """The domains that one unit more would make unequal to others, 0 among them; None: all may have the pod."""
        if near.slices and any(count > 0 for count in self.rows_of(near.slices[0].key).values()):
            return None  # its slice counts already
        return uneven(self.units(near), near.least, range(len(self.level(near.even).values)))

    def rows_of(self, key: str) -> dict[int, int]:
        """On which rows members of a gang, a role or a slice are: row -> how many, some of them 0."""
        seats = self._seats.get(key)
        return seats.rows if seats is not None else {}

    def apart_row(self, near: Near, row: int) -> bool:
        """The same for one row."""
        within = self._within.get(near.gang)
        if within is not None and not within[row]:
            return True
        for key, level in self._together(near):
            domain = level.domain.item(row)
            if not domain or self.home(key, level) not in (0, domain):
                return True
        if not near.even:
            return False
        full = self._uneven(near)
        return full is not None and self.level(near.even).domain.item(row) in full

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

    @contextmanager
    def all_within(self, gangs: Iterable[str], rows: Mask) -> Iterator[None]:
        """The same for several, where members of one gang count as more of them."""
        with ExitStack() as confined:
            for gang in gangs:
                confined.enter_context(self.within(gang, rows))
            yield


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    """Rows that one of two closes; None: neither closes any."""
    return one if other is None else other if one is None else one | other


def widest_first(network: Network, levels: Iterable[str]) -> list[str]:
    """Levels from the widest to the narrowest, by the first pool by name that has the most of them."""
    wanted = list(dict.fromkeys(levels))

    def place(pool: NodePool, level: str) -> int:
        names = ((each.name, each.label, level_of(each.label)) for each in pool.levels)
        return next((at for at, each in enumerate(names) if level in each), len(pool.levels))

    pools = [pool for _, pool in sorted(network.pools.items())]
    best = max(pools, key=lambda pool: sum(place(pool, each) < len(pool.levels) for each in wanted), default=None)
    return wanted if best is None else sorted(wanted, key=lambda level: place(best, level))


def unknown_levels(network: Network, near: Near) -> list[str]:
    """The levels that a pod must keep to and no pool has."""
    asked = (*near.required, *(each.level for each in near.parts), *([near.even] if near.even else []))
    return [each for each in dict.fromkeys(asked) if not network.knows(each)]


def uneven(held: Mapping[int, int], least: int, domains: Iterable[int]) -> list[int]:
    """The domains of which none may get one unit more, and 0.

    held: units by domain. With one more there must still be an end with equal parts, up to one, of `least` units or of those that
    there are; or the domain is one that has fewest.
    """
    total, fewest, found = max(least, sum(held.values()) + 1), min((each for each in held.values() if each), default=0), [0]
    for domain in domains:
        if not domain:
            continue
        own = held.get(domain, 0)
        counts = [count + (each == domain) for each, count in held.items()] + ([] if own else [1])
        part, larger = divmod(total, len(counts))
        fits = sum(each > part for each in counts) <= larger and max(counts) <= part + bool(larger)
        if not fits and not (own and own == fewest):
            found.append(domain)
    return found


def rows_in(level: Level, domain: int, count: int) -> Mask:
    """The rows of a domain, shape (rows,)."""
    mask: Mask = level.domain[:count] == domain
    return mask

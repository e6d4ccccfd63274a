"""What a gang asks of the network, and the answer: places, or a refusal with numbers.

A gang consists of sets (roles, subgroups), a set of groups of identical pods. Levels are numbers of `Tree`: 0 is the
widest, `tree.depth` the single node.
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.core.model.arrays import Ints, Mask


class Slice(NamedTuple):
    """So many consecutive pods of a group lie in one domain of a level; the last slice may have fewer."""

    level: int
    size: int


class Shape(NamedTuple):
    """Identical pods. fits: how many of them each row takes now, shape (rows,), with no other pod of this gang there.

    needs: what one pod takes of each resource of `Request.free`, where that is given.
    """

    fits: Ints
    needs: tuple[int, ...] = ()


class Group(NamedTuple):
    """Identical pods of a set. shape: its place in `Request.shapes`. slices: from the widest level to the narrowest."""

    shape: int
    pods: int
    slices: tuple[Slice, ...] = ()


class Rules(NamedTuple):
    """required: the level at which one domain holds all. preferred: the level at which they use the fewest domains."""

    required: int | None = None
    preferred: int | None = None


class Set(NamedTuple):
    """Pods with rules of their own: those of one role, or of one subgroup.

    copies: so many sets alike, each of which keeps `rules.required` by itself.
    balanced: the domains of the preferred level (of the narrowest level with labels, where none is preferred) that are used get
    equal numbers of units, up to one. A unit is an outermost slice, or a copy, or a pod.
    spares: so many further pods have places under the same rules, for each copy; `Place.spare` marks them.
    """

    groups: tuple[Group, ...]
    rules: Rules = Rules()
    copies: int = 1
    balanced: bool = False
    spares: int = 0


class Request(NamedTuple):
    """A gang. rules: for all sets together.

    free: what each row has left of each resource, shape (rows, resources), where `Shape.needs` is given: pods of different
    shapes share a row by it. Without it, each pod takes its part of what the row would take of its shape alone, which is never
    too little.
    """

    shapes: tuple[Shape, ...]
    sets: tuple[Set, ...]
    rules: Rules = Rules()
    free: Ints | None = None
    whole: Mask | None = None


class Place(NamedTuple):
    """Pods of a group on one row. group: its place in its set. copy: of which copy of the set."""

    row: int
    group: int
    pods: int
    copy: int = 0
    spare: bool = False


class Placement(NamedTuple):
    """Places for all pods.

    sets: for each set its places; those of one copy and group side by side, in the order of ranks: rows of one domain follow each
    other, and every slice is a run of consecutive pods.
    domains: how many domains of the preferred level are used.
    """

    sets: tuple[tuple[Place, ...], ...]
    domains: int

    def counts(self, at: int, group: int) -> dict[int, int]:
        """How many pods of a group of set number `at` each row gets."""
        found: dict[int, int] = {}
        for place in self.sets[at]:
            if place.group == group:
                found[place.row] = found.get(place.row, 0) + place.pods
        return found


class Refusal(NamedTuple):
    """No places now.

    reason: `Invalid` (the request contradicts itself), `NoSuchDomain` (no node has the labels of `level`), `TooFew` (the rows
    together take too few), `NoDomain` (no domain of `level` takes all), `Slices` (too few whole slices), `Sets` (each set fits
    alone, not all together), `Balance` (no equal parts).
    level, domain: where the most is possible, -1: nowhere. fits, wanted: how many pods it takes, and how many there are.
    at: the set, -1: all together. proven: an exhaustive search finds none either.
    """

    reason: str
    text: str
    level: int = -1
    domain: int = -1
    fits: int = 0
    wanted: int = 0
    at: int = -1
    proven: bool = True

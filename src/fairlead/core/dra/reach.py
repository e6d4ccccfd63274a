"""From which nodes devices can be used: of one slice, of a change, and which selectors a node satisfies.

A node selector is found by labels of a node without reading all selectors: each of its terms is listed under one requirement
that the node must meet (a name, a label with one of some values, a label that must be there); only terms without such a
requirement are checked for every node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from fairlead.core.dra.model import Reach, Slice
from fairlead.core.model.nodes import Node
from fairlead.core.model.selectors import NAME_FIELD, SelectorTerm, any_term_holds, term_mistake

Terms = tuple[SelectorTerm, ...]


def reaches(reach: Reach, node: Node) -> bool:
    """Whether a node can use what has this reach."""
    if reach.node:
        return reach.node == node.name
    return reach.everywhere or (reach.terms is not None and any_term_holds(reach.terms, node.labels, node.name))


def reaches_of(each: Slice) -> Iterator[Reach]:
    """From where something of a slice can be used: of the slice itself, or of its devices."""
    if each.per_device:
        for device in each.devices:
            yield device.reach
    else:
        yield each.reach


class Affected(msgspec.Struct, frozen=True):
    """The nodes that can see something else since slices changed; all others see what they saw.

    everywhere: all nodes; else those of these names, and those that one of the terms selects.
    """

    names: frozenset[str] = frozenset()
    terms: Terms = ()
    everywhere: bool = False

    def includes(self, node: Node) -> bool:
        """Whether a node, with its present labels, is one of them."""
        return self.everywhere or node.name in self.names or any_term_holds(self.terms, node.labels, node.name)

    def __bool__(self) -> bool:
        """Whether there can be any."""
        return bool(self.everywhere or self.names or self.terms)

    def __or__(self, other: Affected) -> Affected:
        """Those of both."""
        if not other or self.everywhere:
            return self
        if not self or other.everywhere:
            return other
        return Affected(self.names | other.names, tuple(dict.fromkeys((*self.terms, *other.terms))))


NO_NODES = Affected()


EVERYWHERE = -1

Key = str | int
"""What something reaches: the node of a name, nodes by the number of a selector, or EVERYWHERE."""


class Reaches:
    """Node selectors by number, and which of them a node satisfies. A selector is known as long as it is used."""

    def __init__(self) -> None:
        self._numbers: dict[Terms, int] = {}
        self._terms: dict[int, Terms] = {}
        self._uses: dict[int, int] = {}
        self._next = 0
        self._listed: dict[tuple[str, ...], set[int]] = {}

    def add(self, reach: Reach) -> Key | None:
        """The key of a reach, which is used once more; None: it reaches nothing."""
        terms = _selecting(reach)
        if terms is not None and terms not in self._numbers:
            number = self._numbers[terms] = self._next
            self._next += 1
            self._terms[number] = terms
            self._uses[number] = 0
            for key in _keys(terms):
                self._listed.setdefault(key, set()).add(number)
        found = self.key(reach)
        if terms is not None:
            self._uses[self._numbers[terms]] += 1
        return found

    def key(self, reach: Reach) -> Key | None:
        """The key of a reach that is used."""
        if reach.node:
            return reach.node
        if reach.everywhere:
            return EVERYWHERE
        return self._numbers[reach.terms] if reach.terms else None

    def remove(self, reach: Reach) -> None:
        """Use a reach once less."""
        terms = _selecting(reach)
        if terms is None:
            return
        number = self._numbers[terms]
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._numbers[terms], self._terms[number], self._uses[number]
        for key in _keys(terms):
            self._listed[key].discard(number)
            if not self._listed[key]:
                del self._listed[key]

    def affected(self, keys: Iterable[Key | None]) -> Affected:
        """The nodes that keys reach."""
        names: set[str] = set()
        terms: dict[SelectorTerm, None] = {}
        for each in keys:
            if isinstance(each, str):
                names.add(each)
            elif each == EVERYWHERE:
                return Affected(everywhere=True)
            elif each is not None:
                terms.update(dict.fromkeys(self._terms[each]))
        return Affected(frozenset(names), tuple(terms))

    def satisfied(self, node: Node) -> tuple[int, ...]:
        """The keys that reach a node otherwise than by its name, in order: EVERYWHERE and the selectors that it satisfies."""
        if not self._terms:
            return (EVERYWHERE,)
        found = {*self._listed.get((), ()), *self._listed.get(("", "", node.name), ())}
        for key, value in node.labels.items():
            found.update(self._listed.get((key, value), ()))
            found.update(self._listed.get((key,), ()))
        chosen = (each for each in found if any_term_holds(self._terms[each], node.labels, node.name))
        return (EVERYWHERE, *sorted(chosen))


def _selecting(reach: Reach) -> Terms | None:
    return None if reach.node or reach.everywhere else (reach.terms or None)


def _keys(terms: Terms) -> set[tuple[str, ...]]:
    """Under what a selector is listed: a node that satisfies it has one of these. Terms that no node satisfies: under nothing."""
    found: set[tuple[str, ...]] = set()
    for term in terms:
        if (term.expressions or term.fields) and not term_mistake(term):
            found.update(_keys_of(term))
    return found


def _keys_of(term: SelectorTerm) -> set[tuple[str, ...]]:
    for each in term.fields:
        if each.key == NAME_FIELD and each.operator == "In":
            return {("", "", value) for value in each.values}
    listed = [each for each in term.expressions if each.operator == "In"]
    if listed:
        least = min(listed, key=lambda each: len(each.values))
        return {(least.key, value) for value in least.values}
    for each in term.expressions:
        if each.operator in ("Exists", "Gt", "Lt"):
            return {(each.key,)}
    return {()}

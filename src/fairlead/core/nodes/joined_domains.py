"""Which ComputeDomain each node is in: by the label that NVIDIA's driver writes, and by pods with places where it is to come.

A node is in one domain at a time, and stays in it until the driver takes the label away, some time after the last pod of the
domain has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fairlead.api.names import COMPUTE_DOMAIN_LABEL
from fairlead.core.model.arrays import Domains, Mask
from fairlead.core.model.pods import Near
from fairlead.core.model.undo import UndoLog

if TYPE_CHECKING:
    from fairlead.core.nodes.table import NodeTable
    from fairlead.core.nodes.topology import Topology


def seats_of(domain: str) -> str:
    """What the pods of a ComputeDomain are counted under as members of gangs are; no gang is called so."""
    return f"ComputeDomain:{domain}"


class JoinedDomains:
    """The ComputeDomains of nodes. members: row -> UID of a domain -> how many of its pods have places there.

    leaving: the same of victims whose places are given away, and who are still there.
    cliques: the cliques of nodes. home: by what members are counted under, the clique where they are; 0: none is anywhere.
    """

    def __init__(self, log: UndoLog, nodes: NodeTable, cliques: Callable[[], Topology], home: Callable[[str], int]) -> None:
        self._log, self._nodes = log, nodes
        self._cliques, self._home = cliques, home
        self.members: dict[int, dict[str, int]] = {}
        self.leaving: dict[int, dict[str, int]] = {}
        self._released: frozenset[int] = frozenset()  # rows whose labels end with the pods that are evicted from there

    def seat(self, domain: str, row: int, by: int) -> None:
        """A pod of a domain has a place on a row (1) or leaves it (-1)."""
        members = self.members.setdefault(row, {})
        self._log.add(members, domain, by)
        if not self._log.depth and not any(members.values()):
            del self.members[row]

    def linger(self, domain: str, row: int, by: int) -> None:
        """A victim of a domain lost its place on a row and is still there (1), or is there no longer (-1)."""
        leaving = self.leaving.setdefault(row, {})
        leaving[domain] = leaving.get(domain, 0) + by
        if not any(leaving.values()):
            del self.leaving[row]

    def clique(self, domain: str) -> int:
        """The clique where the pods of a domain are; 0: none is anywhere."""
        return self._home(seats_of(domain))

    def closed(self, near: Near) -> Mask | None:
        """For each row whether a pod of a domain may not have it; None: it is in none.

        It is in no clique, in another than other pods of the domain, or in another domain: by its label, or by pods with places.
        """
        if not near.domain:
            return None
        closed = self._far(near)
        closed |= self._other_labels(near.domain)
        closed[[row for row in {**self.members, **self.leaving} if self.others(near.domain, row)]] = True
        return closed

    def closed_row(self, near: Near, row: int) -> bool:
        """The same for one row."""
        clique, here = self.clique(near.domain), self._cliques().domain.item(row)
        return not here or clique not in (0, here) or self.other_label(near.domain, row) or self.others(near.domain, row)

    def closed_to_all(self, near: Near) -> Mask | None:
        """For each row whether a pod of a domain may not have it, whatever is evicted there; None: it is in no domain."""
        return self._far(near) | self._other_labels(near.domain) if near.domain else None

    def _far(self, near: Near) -> Mask:
        """For each row whether it is in no clique, or in another than other pods of the domain; shape (rows,)."""
        clique, cliques = self.clique(near.domain), self._cliques().domain[: self._nodes.count]
        far: Mask = (cliques != clique) if clique else (cliques == 0)
        return far

    def _other_labels(self, domain: str) -> Mask:
        """For each row whether its label names another domain, and remains; shape (rows,)."""
        labels, number = self._labels()[: self._nodes.count], self._number(domain)
        other: Mask = (labels != 0) & (labels != number)
        if self._released:
            other[list(self._released)] = False
        return other

    def _labels(self) -> Domains:
        return self._nodes.topologies.of(COMPUTE_DOMAIN_LABEL).domain

    def _number(self, domain: str) -> int:
        return self._nodes.topologies.of(COMPUTE_DOMAIN_LABEL).number(domain)

    def other_label(self, domain: str, row: int) -> bool:
        """Whether the label of a node names another domain, and remains."""
        return row not in self._released and self._labels().item(row) not in (0, self._number(domain))

    def is_labelled(self, domain: str, row: int) -> bool:
        """Whether the label of a node names this domain."""
        return self._labels().item(row) == self._number(domain)

    def others(self, domain: str, row: int) -> bool:
        """Whether pods of another domain have places on a row, or are still there."""
        here, leaving = self.members.get(row), self.leaving.get(row)
        return _has_other(here, domain) or _has_other(leaving, domain)

    def epoch(self) -> int:
        """Changes when other labels count."""
        return hash(self._released)

    @contextmanager
    def released(self) -> Iterator[None]:
        """In this context a node that is in a domain by its pods leaves it with the last of them: the label follows.

        A label without pods, which the driver has not taken away yet or never will, counts as ever.
        """
        before = self._released
        self._released = frozenset(
            row
            for row, members in self.members.items()
            if any(self.is_labelled(each, row) for each, many in members.items() if many > 0)
        )
        try:
            yield
        finally:
            self._released = before


def _has_other(domains: dict[str, int] | None, domain: str) -> bool:
    """Whether any pod counts for another domain."""
    return domains is not None and any(count > 0 and each != domain for each, count in domains.items())

"""Domains of nodes by levels of the network, as columns.

A domain is a node's labels down to a level: two racks of one name in two blocks are two domains. The level below all
others is the node itself. Rows that lack a label lie in no named domain of that level or of narrower ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlead.core.model.arrays import Ints, Mask


class Tree:
    """Domains by level. Levels are numbers, 0 the widest; `depth` is the level of single nodes.

    names: of the levels with labels, widest first.
    codes: for each of them the value of every row as a number, 0 where the label is missing; shape (rows,).
    values: for each of them the value of every number; the first, of rows without the label, is not read.
    """

    def __init__(self, names: Sequence[str], codes: Sequence[Ints], values: Sequence[Sequence[str]], rows: int) -> None:
        self.names = tuple(names)
        self.depth = len(self.names)
        self.rows = rows
        self._values = [tuple(each) for each in values]
        self.domain: list[Ints] = []
        """For each level the domain of every row, shape (rows,): each row lies in one, which may have no name."""
        self.parent: list[Ints] = []
        """For each level the wider domain that each domain lies in, shape (domains,); 0 at the widest level."""
        self.named: list[Mask] = []
        """For each level whether each domain has a name. Others are single rows without the label."""
        self.path: list[Ints] = []
        """For each level the numbers of its domains' own labels, shape (domains,)."""
        above: Ints = np.zeros(rows, np.int64)
        known: Mask = np.ones(rows, np.bool_)
        for column in codes:
            code = np.asarray(column[:rows], np.int64)
            known = known & (code > 0)
            # A row without a name is a domain of its own: nothing is known of what it is near to.
            own = np.where(known, code, -1 - np.arange(rows, dtype=np.int64))
            above, known = self._add(above, own, known)
        self._add(above, np.arange(rows, dtype=np.int64), np.ones(rows, np.bool_))
        self.sizes = [len(each) for each in self.parent]
        # Domains are numbered in topology order: those inside one follow each other.
        self._first = [
            np.searchsorted(self.parent[level + 1], np.arange(self.sizes[level] + 1)).astype(np.int64)
            for level in range(self.depth)
        ]
        self._inside = [each.tolist() for each in self._first]
        self.order: Ints = np.argsort(self.domain[self.depth], kind="stable")
        """The rows in topology order: those of one domain side by side, at every level. Domains of `depth` have this order."""

    def _add(self, above: Ints, own: Ints, known: Mask) -> tuple[Ints, Mask]:
        keys, first, inverse = np.unique(np.stack([above, own]), axis=1, return_index=True, return_inverse=True)
        domain: Ints = inverse.reshape(-1).astype(np.int64)
        self.domain.append(domain)
        self.parent.append(keys[0])
        self.named.append(known[first] if len(first) else np.zeros(0, np.bool_))
        self.path.append(keys[1])
        return domain, known

    @classmethod
    def of_labels(cls, names: Sequence[str], labels: Sequence[Sequence[str | None]]) -> Tree:
        """A tree by the values of each level's label; labels: for each level the value of every row, or None."""
        codes, values = [], []
        for column in labels:
            known = sorted({value for value in column if value is not None})
            number = {value: at for at, value in enumerate(known, 1)}
            codes.append(np.array([0 if value is None else number[value] for value in column], np.int64))
            values.append(["", *known])
        return cls(names, codes, values, len(labels[0]) if labels else 0)

    def level(self, name: str) -> int | None:
        """The number of a level; None: there is none of this name."""
        return self.names.index(name) if name in self.names else None

    def name(self, level: int, domain: int) -> str:
        """The name of a domain: the labels down to its level, as `block-1/rack-7`. A row without the label: `row 12`."""
        if level == self.depth or not self.named[level][domain]:
            return f"row {int(np.flatnonzero(self.domain[level] == domain)[0])}"
        parts = []
        for each in range(level, -1, -1):
            parts.append(self._values[each][int(self.path[each][domain])])
            domain = int(self.parent[each][domain])
        return "/".join(reversed(parts))

    def up(self, amounts: Ints, level: int) -> Ints:
        """Amounts of the domains of a level, summed in those of the next wider one."""
        found: Ints = np.add.reduceat(amounts, self._first[level - 1][:-1]) if len(amounts) else amounts
        return found

    def any_up(self, marks: Mask, level: int) -> Mask:
        """Whether any of the domains of a level is marked, for those of the next wider one."""
        found: Mask = np.logical_or.reduceat(marks, self._first[level - 1][:-1]) if len(marks) else marks
        return found

    def inside(self, level: int, domain: int, to: int) -> tuple[int, int]:
        """The domains of a narrower level, or of the same, that lie in one: from the first up to before the second.

        Domains are numbered in topology order, so that they follow each other. Level -1 is the whole tree.
        """
        if level < 0:
            return 0, self.sizes[to]
        low, high = domain, domain + 1
        for each in range(level + 1, to + 1):
            low, high = self._inside[each - 1][low], self._inside[each - 1][high]
        return low, high

    def members(self, level: int, domain: int) -> Ints:
        """The rows of a domain, in topology order."""
        low, high = self.inside(level, domain, self.depth)
        return self.order[low:high]

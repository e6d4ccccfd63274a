"""Ranges of sizes and costs, and how large the values are that an expression may reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final

UNBOUNDED: Final = (1 << 64) - 1
Span = tuple[int, int]
"""The least and the most of a size or a cost; it ends at `UNBOUNDED` and does not wrap."""
UNKNOWN: Final[Span] = (0, UNBOUNDED)
ONE: Final[Span] = (1, 1)
NOTHING: Final[Span] = (0, 0)


@dataclass(frozen=True)
class Node:
    """How large a value may be, and what it holds. by_name: items may also be reached as fields of any name."""

    most: int
    key: Node | None = None
    item: Node | None = None
    fields: Mapping[str, Node] = field(default_factory=dict)
    by_name: bool = False


@dataclass(frozen=True)
class Sizes:
    """The variables of an environment, by name."""

    roots: Mapping[str, Node]

    def at(self, path: tuple[str, ...] | None) -> Span | None:
        """The size of what a path leads to; None if it is not known."""
        node = self.roots.get(path[0]) if path else None
        for step in path[1:] if path else ():
            if node is None:
                return None
            if step in ("@items", "@values"):
                node = node.item
            elif step == "@keys":
                node = node.key
            elif step in node.fields:
                node = node.fields[step]
            else:
                node = node.item if node.by_name else None
        return (0, node.most) if node is not None else None


def plus(*spans: Span) -> Span:
    """The sum."""
    return min(sum(each[0] for each in spans), UNBOUNDED), min(sum(each[1] for each in spans), UNBOUNDED)


def times(left: Span, right: Span) -> Span:
    """The product."""
    return min(left[0] * right[0], UNBOUNDED), min(left[1] * right[1], UNBOUNDED)


def scaled(span: Span, factor: float) -> Span:
    """Times a factor, rounded up."""
    low, high = (min(ceil(float(each) * factor), UNBOUNDED) if each < UNBOUNDED or factor < 1 else UNBOUNDED for each in span)
    return low, high


def union(left: Span, right: Span) -> Span:
    """What holds both."""
    return min(left[0], right[0]), max(left[1], right[1])

"""A fabric as hosts with the labels of its levels, from a CSV of hosts (docs/traces.md)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fairlead.core.model.arrays import Ints
from fairlead.core.topology.tree import Tree
from fairlead.simulation.traces import TraceError

LEVELS = ("PSW", "ASW")
_MOST_HOSTS = 1_000_000


class Fabric(NamedTuple):
    """Leaves in the order of their names, and hosts leaf by leaf.

    sizes, blocks: hosts of each leaf, and the block that it lies in, shape (leaves,). first: the first host of each leaf.
    """

    tree: Tree
    sizes: list[int]
    blocks: list[str]
    first: Ints

    @property
    def hosts(self) -> int:
        """All hosts."""
        return sum(self.sizes)


def read(path: Path) -> Fabric:
    """The fabric of a file with the columns PSW (block) and ASW (leaf; a name counts within its block). Raises `TraceError`."""
    leaves: dict[tuple[str, str], int] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.DictReader(file), 2):
                block, leaf = row.get(LEVELS[0]), row.get(LEVELS[1])
                if not block or not leaf:
                    raise TraceError(f"{path}:{number}: a host has the columns {LEVELS[0]} and {LEVELS[1]}")
                leaves[block, leaf] = leaves.get((block, leaf), 0) + 1
                if number > _MOST_HOSTS:
                    raise TraceError(f"{path}: more than {_MOST_HOSTS} hosts")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path}: {error}") from error
    if not leaves:
        raise TraceError(f"{path}: no hosts")
    ordered = sorted(leaves)
    sizes = [leaves[each] for each in ordered]
    labels: list[list[str | None]] = [
        [each[level] for each, size in zip(ordered, sizes, strict=True) for _ in range(size)] for level in range(2)
    ]
    first: Ints = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return Fabric(Tree.of_labels(LEVELS, labels), sizes, [block for block, _ in ordered], first)

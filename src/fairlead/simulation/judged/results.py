"""What one judged world came to, and the totals over many."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec


class Found(NamedTuple):
    """One world. evictions: pods evicted that need not have been; servable: jobs that the judge would serve, missed: of
    these those that the scheduler left waiting; note: what went wrong, in words.
    """

    evictions: int = 0
    servable: int = 0
    missed: int = 0
    note: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return not self.evictions and not self.missed


class Tally(msgspec.Struct):
    """Totals. evicting_worlds: worlds with a needless eviction; evictions: pods evicted in them."""

    worlds: int = 0
    evicting_worlds: int = 0
    evictions: int = 0
    servable: int = 0
    missed: int = 0

    def add(self, found: Found) -> None:
        """Count one world."""
        self.worlds += 1
        self.evicting_worlds += bool(found.evictions)
        self.evictions += found.evictions
        self.servable += found.servable
        self.missed += found.missed


class WorldsBench(Tally, kw_only=True):
    """All worlds of a kind, and by variety. examples: the first that went wrong."""

    kind: str
    varieties: dict[str, Tally] = {}
    examples: list[str] = []


class Kind(NamedTuple):
    """A question asked of random worlds. play: (variety, seed) -> what came of that world."""

    varieties: tuple[str, ...]
    play: Callable[[str, int], Found]

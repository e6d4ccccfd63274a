"""Rank: the order of what waits inside one queue."""

from __future__ import annotations

from typing import NamedTuple


class Rank(NamedTuple):
    """Smaller goes first. priority and urgency are negated, so that the larger goes first; level: of attained service.

    created: seconds since the epoch; name: of the gang or the pod, where all else is equal.
    """

    priority: int
    urgency: int
    level: int
    created: float
    name: str

    @property
    def precedence(self) -> tuple[int, int, int]:
        """What comes before age."""
        return self.priority, self.urgency, self.level

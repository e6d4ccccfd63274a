"""Caches: what layers above the state derive from it and keep with it, by type.

The state does not know what they are. It only drops, when a pass begins, those that hold for one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

S = TypeVar("S")
T = TypeVar("T")


class Caches(Generic[S]):
    """One of each type, made from the state when it is first asked for."""

    def __init__(self, state: S) -> None:
        self._state = state
        self._made: dict[Callable[[S], object], object] = {}

    def get(self, make: Callable[[S], T]) -> T:
        """The one that a type makes of the state."""
        found = self._made.get(make)
        if found is None:
            found = self._made[make] = make(self._state)
        return cast("T", found)

    def drop(self) -> None:
        """All are made anew when they are asked for again."""
        self._made.clear()
